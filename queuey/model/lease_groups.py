"""Lease groups and their settings (queue-layer, section 2)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from queuey.ids import EPOCH_TICKS, TICKS_PER_SECOND, ZERO_ID, MessageId
from queuey.model.lease_rules import Backoff, LeaseRules

__all__ = [
    "AUTO",
    "BEGINNING",
    "END",
    "KEY_MOST_SECONDS",
    "NO_DEFAULTS",
    "NO_ORDER",
    "ORDER_BY_KEY",
    "UNTIL_RESUMED",
    "Breaker",
    "GroupSettings",
    "LeaseDefaults",
    "LeaseGroup",
    "LettersLife",
]

NO_ORDER, ORDER_BY_KEY = "none", "key"
AUTO: Literal["auto"] = "auto"
BEGINNING, END = "beginning", "end"
KEY_MOST_SECONDS = 30.0
"""The longest back-off of a group that orders keys, unless it says otherwise: the key waits behind its retry."""
_DEFAULTS = LeaseRules()


class Breaker(NamedTuple):
    """More dead letters than this in this time pause the group."""

    dead: int = 100
    seconds: float = 60.0


UNTIL_RESUMED = 32_503_680_000.0
"""The end of a pause that ends when somebody says so: the year 3000, in seconds since 1970."""


class GroupSettings(NamedTuple):
    """The settings of a lease group, by their names on the wire."""

    visibility: float = _DEFAULTS.visibility
    """Seconds for which a message is hidden, if a receive does not say."""
    max_failures: int = _DEFAULTS.max_failures
    dead_letter_queue: str | None = None
    """None for the queue's own name with ``-dead`` behind it."""
    backoff: Backoff = _DEFAULTS.backoff
    order: str = NO_ORDER
    per_key: int = _DEFAULTS.per_key
    k: int | Literal["auto"] = _DEFAULTS.k
    """With :data:`AUTO` it follows the duplicates of a weak group, and is 1 elsewhere."""
    exact: bool = True
    """False for a weak group: on Cassandra its receives do not agree with other servers."""
    max_leased: int = _DEFAULTS.max_leased
    max_held: int = _DEFAULTS.max_held
    paused_until: float | None = None
    """Seconds since 1970; until then nothing is handed out."""
    paused_reason: str | None = None
    breaker: Breaker | None = None
    fair: bool = False
    """A key with more than a tenth of the leases, and 30 of them, waits behind others."""
    tripped_ticks: int = 0
    """When the breaker paused the group last; dead letters from before do not count any more. The server alone sets
    it."""

    @property
    def rules(self) -> LeaseRules:
        """The settings that decide what is handed out."""
        return LeaseRules(
            self.max_failures,
            self.backoff,
            self.order == ORDER_BY_KEY,
            self.per_key,
            _DEFAULTS.k if self.k == AUTO else self.k,
            self.max_leased,
            self.max_held,
            self.visibility,
            self.fair,
        )

    def is_paused(self, now_ticks: int) -> bool:
        """Whether nothing is handed out now, by the wall clock."""
        until = self.paused_until
        return until is not None and until * TICKS_PER_SECOND > now_ticks - EPOCH_TICKS

    def to_json(self) -> dict[str, Any]:
        """The settings as a JSON object, as on the wire.

        >>> GroupSettings.from_json(GroupSettings(k=3).to_json()) == GroupSettings(k=3)
        True
        """
        breaker = None if self.breaker is None else self.breaker._asdict()
        return self._asdict() | {"backoff": self.backoff._asdict(), "breaker": breaker}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> GroupSettings:
        """The inverse of :meth:`to_json`. What is not there has its default."""
        return cls().changed(document)

    def changed(self, named: Mapping[str, Any]) -> GroupSettings:
        """These settings with others.

        :param named: those that change, by name; ``backoff`` has those of its members that change.

        >>> GroupSettings().changed({"order": "key", "backoff": {"first": 2.0}}).backoff.most
        30.0
        """
        backoff = dict(named.get("backoff", {}))
        turns_to_keys = named.get("order") == ORDER_BY_KEY != self.order
        if turns_to_keys and self.backoff.most == _DEFAULTS.backoff.most:
            backoff = {"most": KEY_MOST_SECONDS} | backoff
        breaker = self.breaker
        if "breaker" in named:
            breaker = None if named["breaker"] is None else Breaker(**named["breaker"])
        return self._replace(**{**named, "backoff": self.backoff._replace(**backoff), "breaker": breaker})


class LeaseGroup(NamedTuple):
    """A lease group of a queue."""

    token: int
    """Names this group among all of its name, 63 random bits: its receipts end with it."""
    start: MessageId = ZERO_ID
    """The group receives what comes after it."""
    settings: GroupSettings = GroupSettings()


class LettersLife(NamedTuple):
    """How long the dead letters live that come to a queue."""

    seconds: int
    from_send: bool
    """Counted from when the message was sent, not from when it became a dead letter."""


class LeaseDefaults(NamedTuple):
    """What the lease groups of a queue begin with, unless they are made with other settings."""

    text: str = "{}"
    """The settings that are unlike a group's own, ``start``, and ``letters`` (:class:`LettersLife`): JSON, their names in
    order."""

    def changed(self, named: Mapping[str, Any]) -> LeaseDefaults:
        """These with others.

        :param named: as for :meth:`GroupSettings.changed`, and ``start``. None is the group's own again.

        >>> LeaseDefaults().changed({"k": 3, "backoff": {"first": 2}}).changed({"k": None, "backoff": {"most": 9}}).text
        '{"backoff": {"first": 2, "most": 9}}'
        """
        before = json.loads(self.text)
        found = before | named
        if named.get("backoff") is not None:
            found["backoff"] = before.get("backoff", {}) | named["backoff"]
        return LeaseDefaults(json.dumps({name: found[name] for name in sorted(found) if found[name] is not None}))

    @property
    def start(self) -> str:
        """:data:`BEGINNING`, :data:`END`, decimal seconds since 1970, or the id of a message."""
        return BEGINNING if self.text == "{}" else _defaults(self.text, GroupSettings())[1]

    @property
    def letters(self) -> LettersLife | None:
        """None: as long as dead letters live that nobody says more about."""
        return None if self.text == "{}" else _defaults(self.text, GroupSettings())[2]

    def settings(self, own: GroupSettings) -> GroupSettings:
        """The settings of a new group.

        :param own: those of a group that says nothing.
        """
        return own if self.text == "{}" else _defaults(self.text, own)[0]


@lru_cache(1024)
def _defaults(text: str, own: GroupSettings) -> tuple[GroupSettings, str, LettersLife | None]:
    named = json.loads(text)
    start, letters = named.pop("start", BEGINNING), named.pop("letters", None)
    return own.changed(named), start, None if letters is None else LettersLife(*letters)


NO_DEFAULTS = LeaseDefaults()
