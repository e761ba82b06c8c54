"""Lease groups and their settings (queue-layer, section 2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from queuey.ids import ZERO_ID, MessageId
from queuey.model.lease_requests import Backoff, LeaseRules

__all__ = ["AUTO", "NO_ORDER", "ORDER_BY_KEY", "GroupSettings", "LeaseGroup"]

NO_ORDER, ORDER_BY_KEY = "none", "key"
AUTO: Literal["auto"] = "auto"
_DEFAULTS = LeaseRules()


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
        )

    def to_json(self) -> dict[str, Any]:
        """The settings as a JSON object, as on the wire.

        >>> GroupSettings.from_json(GroupSettings(k=3).to_json()) == GroupSettings(k=3)
        True
        """
        return self._asdict() | {"backoff": self.backoff._asdict()}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> GroupSettings:
        """The inverse of :meth:`to_json`."""
        return cls(**{**document, "backoff": Backoff(**document["backoff"])})


class LeaseGroup(NamedTuple):
    """A lease group of a queue."""

    token: int
    """Names this group among all of its name, 63 random bits: its receipts end with it."""
    start: MessageId = ZERO_ID
    """The group receives what comes after it."""
    settings: GroupSettings = GroupSettings()
