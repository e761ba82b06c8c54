"""The keys of applications and operators: which credentials are in force."""

from __future__ import annotations

import re
from collections.abc import Mapping

from queuey.clock import Clock
from queuey.errors import InvalidParameter
from queuey.model import PrincipalKey
from queuey.security.app_keys import digest_of, label_of, new_key
from queuey.security.principals import app_principal, application_of, operator_of, operator_principal
from queuey.settings import MIN_KEY_CHARACTERS, is_key
from queuey.storage import MetadataStore

REFRESH_SECONDS = 1.0
"""The longest time until a key that another process made or removed takes effect here."""
DEMO = "demo"
"""The application made on first start."""
KEY_RULE = f"must be at least {MIN_KEY_CHARACTERS} printable characters without blanks and semicolons"
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,50}")


def owner_of_key(name: str, *, operator: bool) -> str:
    """The principal that a key of this name proves.

    :param operator: the key is an operator's, not an application's.
    :raises InvalidParameter: not 1 to 50 letters, digits, ``_``, ``-`` and ``.``, or only dots.
    """
    if not _NAME.fullmatch(name) or name in (".", ".."):
        kind = "operator" if operator else "application"
        raise InvalidParameter(problems={kind: "must be 1 to 50 letters, digits, '_', '-' or '.'"})
    return operator_principal(name) if operator else app_principal(name)


def _as_kept(principal: str, digest: bytes, created_ticks: int) -> PrincipalKey:
    return PrincipalKey(principal, digest, label_of(digest), created_ticks)


class Keys:
    """The keys in force: those of the store and those of the ini file."""

    def __init__(self, metadata: MetadataStore, clock: Clock, configured: Mapping[str, tuple[str, ...]]) -> None:
        self._metadata = metadata
        self._clock = clock
        self._configured = [
            _as_kept(app_principal(application), digest_of(key), 0)
            for application, keys in configured.items()
            for key in keys
        ]
        self._known: dict[bytes, PrincipalKey] = {}
        self._applications: frozenset[str] = frozenset()
        self._looked = float("-inf")

    @property
    def stale(self) -> bool:
        """Whether the keys in memory are older than :data:`REFRESH_SECONDS`."""
        return self._clock.elapsed() - self._looked >= REFRESH_SECONDS

    async def refresh(self) -> bool:
        """Load the keys in force again.

        :returns: whether any of the former keys is no longer in force.
        """
        self._looked = self._clock.elapsed()
        before = self._owners()
        await self._look()
        return not before <= self._owners()

    def find(self, digest: bytes) -> PrincipalKey | None:
        """The key in force with this digest."""
        return self._known.get(digest)

    def acting_for(self, application: str) -> list[bytes]:
        """SHA-256 of the keys that may act for an application: its own, and operators'."""
        own = app_principal(application)
        return [key.digest for key in self._known.values() if key.principal == own or operator_of(key.principal)]

    @property
    def applications(self) -> list[str]:
        """The applications that have a key, in code point order. Operators are none."""
        return sorted(self._applications)

    def knows(self, application: str) -> bool:
        """Whether an application of this name has a key."""
        return application in self._applications

    def _owners(self) -> set[tuple[bytes, str]]:
        return {(key.digest, key.principal) for key in self._known.values()}

    async def _look(self) -> None:
        known = {key.digest: key for key in [*self._configured, *await self._metadata.keys()]}
        names = [application_of(key.principal) for key in known.values()]
        self._applications = frozenset([name for name in names if name is not None])
        self._known = known

    async def new(self, name: str, key: str | None = None, *, operator: bool = False) -> str:
        """Make a key for an application or an operator.

        An application exists from its first key on.

        :param key: a key chosen elsewhere; without it a random one is made.
        :returns: the key, which cannot be shown again.
        :raises InvalidParameter: the name or the key is not acceptable.
        """
        principal = owner_of_key(name, operator=operator)
        if key is not None and not is_key(key):
            raise InvalidParameter(problems={"key": KEY_RULE})
        made = key or new_key()
        await self._metadata.add_key(_as_kept(principal, digest_of(made), self._clock.now_ticks()))
        await self._look()
        return made

    async def first(self, chosen: str | None) -> tuple[str, str] | None:
        """Make the application ``demo`` on the very first start.

        It does so if no key exists, not even an operator's.

        :param chosen: its key; without it a random one is made. A chosen key is put in force on later starts too.
        :returns: application and key if one was made now, else None.
        """
        await self._look()
        if chosen and digest_of(chosen) not in self._known:
            return DEMO, await self.new(DEMO, chosen)
        if self._known:
            return None
        return DEMO, await self.new(DEMO)
