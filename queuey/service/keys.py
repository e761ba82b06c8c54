"""The keys of applications and operators: which credentials are in force."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import count

from queuey.clock import Clock
from queuey.errors import ConfigurationError, InvalidParameter
from queuey.model import PrincipalKey
from queuey.security.access_keys import AccessKey, MasterSecrets, access_key_id_of, account_of, digest_of_access_key
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


def chosen_key(environ: Mapping[str, str]) -> str | None:
    """The key of the application ``demo`` that the environment chooses, if it does.

    :raises ConfigurationError: it is no key.
    """
    key = environ.get("QUEUEY_KEY") or None
    if key is not None and not is_key(key):
        raise ConfigurationError(f"the variable QUEUEY_KEY {KEY_RULE}: unset it, or choose another")
    return key


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


def _of_ini(configured: Mapping[str, tuple[str, ...]]) -> list[PrincipalKey]:
    return [
        _as_kept(app_principal(application), digest_of(key), 0)
        for application, keys in configured.items()
        for key in keys
    ]


def _by_account(applications: Iterable[str]) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for application in applications:
        number = account_of(application)
        found[number] = None if number in found else application
    return found


class Keys:
    """The keys in force: those of the store and those of the ini file."""

    def __init__(self, metadata: MetadataStore, clock: Clock, configured: Mapping[str, tuple[str, ...]]) -> None:
        self._metadata = metadata
        self._clock = clock
        self._configured = _of_ini(configured)
        self._known: dict[bytes, PrincipalKey] = {}
        self._access_keys: dict[str, str] = {}
        """The application of each access key, by its id."""
        self._applications: frozenset[str] = frozenset()
        self._accounts = self._applications, dict[str, str | None]()
        """Some applications, and by account the one that it belongs to; None where there are several."""
        self._looked = float("-inf")
        self._looks, self._last_look = count(1), 0
        """Numbers of looks at the store, and that of the last one whose answer is in force."""
        self._used: dict[bytes, int] = {}
        """When keys in force were used last, in ticks; by their digests."""

    def configure(self, configured: Mapping[str, tuple[str, ...]]) -> None:
        """Take other keys of the ini file. The next request loads all keys again."""
        self._configured = _of_ini(configured)
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

    def note_use(self, digest: bytes) -> None:
        """A key has identified a caller. It is called once a second at least while a key is in use."""
        self._used[digest] = self._clock.now_ticks()

    def last_use(self, digest: bytes) -> int | None:
        """When a key was used last, in ticks; None if nobody has used it since this server began."""
        return self._used.get(digest)

    def application_of_access_key(self, key_id: str) -> str | None:
        """The application of an access key in force; None if there is no such key."""
        return self._access_keys.get(key_id)

    def application_of_account(self, account: str) -> str | None:
        """The application with this account number.

        None if there is none, or if there are several: an account that means two applications is neither's.
        """
        now = self._applications
        of, accounts = self._accounts
        if of is not now:
            accounts = _by_account(now)
            self._accounts = now, accounts  # only when it is whole: other threads read it
        return accounts.get(account)

    def acting_for(self, application: str) -> list[bytes]:
        """SHA-256 of the keys that may act for an application: its own, and operators'."""
        own = app_principal(application)
        return [key.digest for key in self._known.values() if key.principal == own or operator_of(key.principal)]

    def of(self, principal: str) -> list[PrincipalKey]:
        """The keys in force that prove a principal."""
        return [key for key in self._known.values() if key.principal == principal]

    def oldest(self) -> dict[str, int]:
        """When the oldest key in force of each application or operator was made, in ticks.

        Keys of the ini file have no date, and are left out.
        """
        found: dict[str, int] = {}
        for key in self._known.values():
            if key.created_ticks:
                name = application_of(key.principal) or key.principal
                found[name] = min(key.created_ticks, found.get(name, key.created_ticks))
        return found

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
        number = next(self._looks)
        stored = await self._metadata.keys()
        if number < self._last_look:
            return  # a later look was answered sooner, and may know of a key that was made or removed meanwhile
        self._last_look = number
        known = {key.digest: key for key in [*self._configured, *stored]}
        named = [(digest, application_of(key.principal)) for digest, key in known.items()]
        applications = frozenset([name for _, name in named if name is not None])
        if applications != self._applications:
            self._applications = applications
        ids = [(access_key_id_of(digest), name) for digest, name in named]
        self._access_keys = {id_: name for id_, name in ids if id_ is not None and name is not None}
        self._known = known
        self._used = {digest: ticks for digest, ticks in [*self._used.items()] if digest in known}

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

    async def new_access_key(self, application: str, secrets: MasterSecrets) -> AccessKey:
        """Make an access key for an application, which may begin to exist with it.

        The store keeps its id, also as its label.

        :returns: the key, whose secret is not to be shown again.
        :raises InvalidParameter: the name is not acceptable.
        :raises ConfigurationError: there is no master secret to derive it from; nothing was stored.
        """
        principal = owner_of_key(application, operator=False)
        made = secrets.new_access_key()
        digest = digest_of_access_key(made.id)
        await self._metadata.add_key(PrincipalKey(principal, digest, made.id, self._clock.now_ticks()))
        await self._look()
        return made

    async def begin(self, chosen: str | None) -> tuple[str, str] | None:
        """Learn which keys there are, and put a chosen one of the application ``demo`` in force.

        :returns: application and key if it was not in force, else None.
        """
        await self._look()
        if chosen and digest_of(chosen) not in self._known:
            return DEMO, await self.new(DEMO, chosen)
        return None

    async def first(self) -> tuple[str, str] | None:
        """Make the application ``demo``, with a random key, on the very first start.

        It does so if no key exists, not even an operator's.

        :returns: application and key if one was made now, to show it once; else None.
        """
        if not self._known:
            await self._look()
        if self._known:
            return None
        return DEMO, await self.new(DEMO)
