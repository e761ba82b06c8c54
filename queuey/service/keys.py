"""Application keys: who may be an application here."""

from __future__ import annotations

import re
from collections.abc import Mapping

from queuey.clock import Clock
from queuey.errors import InvalidParameter
from queuey.model import ApplicationKey
from queuey.security.app_keys import digest_of, label_of, new_key
from queuey.settings import MIN_KEY_CHARACTERS, is_key
from queuey.storage import MetadataStore

REFRESH_SECONDS = 1.0
"""A key made or removed by another process is in force here after at most this long."""
DEMO = "demo"
"""The application made on first start."""
KEY_RULE = f"must be at least {MIN_KEY_CHARACTERS} printable characters without blanks and semicolons"
_APPLICATION = re.compile(r"[A-Za-z0-9_.-]{1,50}")


def check_application(name: str) -> None:
    """:raises InvalidParameter: not 1 to 50 letters, digits, ``_``, ``-`` and ``.``, or only dots."""
    if not _APPLICATION.fullmatch(name) or name in (".", ".."):
        raise InvalidParameter(problems={"application": "must be 1 to 50 letters, digits, '_', '-' or '.'"})


def _as_kept(application: str, digest: bytes, created_ticks: int) -> ApplicationKey:
    return ApplicationKey(application, digest, label_of(digest), created_ticks)


class Keys:
    """The keys in force: those of the store and those of the ini file."""

    def __init__(self, metadata: MetadataStore, clock: Clock, configured: Mapping[str, tuple[str, ...]]) -> None:
        self._metadata = metadata
        self._clock = clock
        self._configured = [
            _as_kept(application, digest_of(key), 0) for application, keys in configured.items() for key in keys
        ]
        self._known: dict[bytes, ApplicationKey] = {}
        self._applications: frozenset[str] = frozenset()
        self._looked = float("-inf")

    @property
    def stale(self) -> bool:
        """Whether what is known is older than :data:`REFRESH_SECONDS`."""
        return self._clock.elapsed() - self._looked >= REFRESH_SECONDS

    async def refresh(self) -> bool:
        """Look anew at the keys in force.

        :returns: whether one of those known before is not in force any more.
        """
        self._looked = self._clock.elapsed()
        before = self._owners()
        await self._look()
        return not before <= self._owners()

    def find(self, digest: bytes) -> ApplicationKey | None:
        """The key in force with this digest."""
        return self._known.get(digest)

    def of(self, application: str) -> list[bytes]:
        """The SHA-256 of an application's keys in force."""
        return [key.digest for key in self._known.values() if key.application == application]

    def knows(self, application: str) -> bool:
        """Whether an application of this name has a key."""
        return application in self._applications

    def _owners(self) -> set[tuple[bytes, str]]:
        return {(key.digest, key.application) for key in self._known.values()}

    async def _look(self) -> None:
        known = {key.digest: key for key in [*self._configured, *await self._metadata.keys()]}
        self._applications = frozenset(key.application for key in known.values())
        self._known = known

    async def new(self, application: str, key: str | None = None) -> str:
        """Make a key for an application, which begins to exist with its first.

        :param key: the key itself, if it was chosen elsewhere; else a fresh one is drawn.
        :returns: the key: this is the one moment at which it can be seen.
        :raises InvalidParameter: a name or a key that is not acceptable.
        """
        check_application(application)
        if key is not None and not is_key(key):
            raise InvalidParameter(problems={"key": KEY_RULE})
        made = key or new_key()
        await self._metadata.add_key(_as_kept(application, digest_of(made), self._clock.now_ticks()))
        await self._look()
        return made

    async def first(self, chosen: str | None) -> tuple[str, str] | None:
        """On the very first start make the application ``demo``.

        :param chosen: its key; a fresh one is drawn without. If given, it is made to be in force on later starts too.
        :returns: application and key if one was made now, else None.
        """
        await self._look()
        if chosen and digest_of(chosen) not in self._known:
            return DEMO, await self.new(DEMO, chosen)
        if self._applications:
            return None
        return DEMO, await self.new(DEMO)
