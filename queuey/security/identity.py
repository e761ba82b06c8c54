"""From an Authorization header to an identity.

A header may carry several credentials separated by ``;``. Each is given to the scheme that its
first word names; a scheme nobody knows is ignored, and one bad credential of a known scheme
refuses the whole request, on public queues too (queuey-api-v1 section 3.1). A further scheme is a
further :class:`Scheme`, nothing else.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Protocol

from queuey.clock import Clock
from queuey.errors import Throttled, Unauthenticated
from queuey.locks import new_lock
from queuey.security.app_keys import digest_of
from queuey.security.permissions import ANONYMOUS, Grant, Identity

MAX_HEADER = 8192
"""Characters of an Authorization header that are looked at."""
REMEMBERED = 10_000
"""Credentials known by their hash, of each scheme: about 4 MB."""
_PARTS = 4
"""An :class:`Allowance` has this number of parts, and one client may use up one of them."""
_CLIENTS = 1000
"""Clients whose uses are counted; of more, those that were counted longest ago have all of theirs again."""
MOST_RECALLED = 8
"""Credentials of one header that :meth:`Identifier.recall` looks at, on the event loop: callers have one or two."""


class NamedScheme(Protocol):
    """What a credential is given to."""

    @property
    def name(self) -> str:
        """The word before the credential, as it is written; capitals do not matter."""

    @property
    def refusal(self) -> type[Unauthenticated]:
        """What a bad credential of this scheme gets."""


class Scheme(NamedScheme, Protocol):
    """One way to prove an identity.

    It decides from memory: no request waits for a network here (G20).
    """

    def identify(self, credential: str) -> Grant:
        """What a credential proves.

        :raises Unauthenticated: nothing.
        """


class RecallingScheme(NamedScheme, Protocol):
    """A scheme that also answers from memory, at the cost of one hash."""

    def identify(self, credential: str, client: str | None) -> Grant:
        """As of :class:`Scheme`.

        :param client: the network that sends it; empty if that is not known. None if it is checked however many bad ones
            came, as of a caller that proved itself by it before, and waits.
        :raises Throttled: too many bad ones came in the last second, of this client or of all.
        """

    def recall(self, credential: str) -> Grant | None:
        """What a credential is known to prove, by one look-up of its hash.

        None if that does not say: it may prove something all the same.
        """


class Identifier:
    """Asks the schemes."""

    def __init__(
        self, schemes: Sequence[RecallingScheme], count: Callable[[str, str], None] = lambda kind, result: None
    ) -> None:
        """:param count: called for each credential, with its scheme in lower case and ``accepted``, ``refused`` or ``throttled``."""
        self._schemes = {scheme.name.lower(): scheme for scheme in schemes}
        self._count = count
        self.challenge = ", ".join(f'{scheme.name} realm="queuey"' for scheme in schemes)
        """For WWW-Authenticate."""

    def identify(self, header: str | None, client: str | None = "") -> Identity:
        """The identity of a request; without a known scheme :data:`ANONYMOUS`.

        :param client: as of :meth:`RecallingScheme.identify`.
        :raises Unauthenticated: the scheme's own refusal, for one bad or over-long credential.
        :raises Throttled: too many bad credentials came in the last second to look at another one.
        """
        if not header:
            return ANONYMOUS
        too_long = len(header) > MAX_HEADER
        asked = self._credentials(header)
        grants = [self._ask(scheme, credential, client, too_long=too_long) for scheme, credential in asked]
        return Identity(grants) if grants else ANONYMOUS

    def recall(self, header: str) -> Identity:
        """What is known of a caller before anything is checked.

        It decides whose share pays, and permits nothing.

        It checks no signature, refuses nothing and counts nothing.
        """
        if not header or len(header) > MAX_HEADER:
            return ANONYMOUS
        some = islice(self._credentials(header), MOST_RECALLED)
        grants = [grant for scheme, credential in some if (grant := scheme.recall(credential)) is not None]
        return Identity(grants) if grants else ANONYMOUS

    def _credentials(self, header: str) -> Iterator[tuple[RecallingScheme, str]]:
        """The credentials of known schemes."""
        for part in header[: MAX_HEADER + 1].split(";"):
            word, _, credential = part.strip().partition(" ")
            scheme = self._schemes.get(word.lower())
            if scheme is not None:
                yield scheme, credential.strip()

    def _ask(self, scheme: RecallingScheme, credential: str, client: str | None, *, too_long: bool) -> Grant:
        result = "refused"
        try:
            if too_long:
                raise scheme.refusal(f"The Authorization header is longer than {MAX_HEADER} characters.")
            grant = scheme.identify(credential, client)
            result = "accepted"
        except Throttled:
            result = "throttled"
            raise
        finally:
            self._count(scheme.name.lower(), result)
        return grant


class Allowance:
    """A number of uses for each second, of which one client has a part (G17). Thread-safe."""

    def __init__(self, per_second: int, clock: Clock) -> None:
        self._clock = clock
        self._all = _Uses(per_second, clock.elapsed())
        self._of_client = max(per_second // _PARTS, 1)
        self._clients: OrderedDict[str, _Uses] = OrderedDict()
        self._lock = new_lock()

    def is_used_up(self, client: str = "") -> bool:
        """Whether no use is left now, to this client or to all.

        :param client: empty if it is not known: then only those of all count.
        """
        with self._lock:
            now = self._clock.elapsed()
            uses = self._clients.get(client)
            return self._all.left_at(now) < 1 or (uses is not None and uses.left_at(now) < 1)

    def use(self, client: str = "") -> None:
        """Use one up."""
        with self._lock:
            self._all.left -= 1
            if client:
                uses = self._clients.pop(client, None) or _Uses(self._of_client, self._clock.elapsed())
                uses.left -= 1
                self._clients[client] = uses
                if len(self._clients) > _CLIENTS:
                    self._clients.popitem(last=False)


class _Uses:
    """What is left of a number for each second."""

    def __init__(self, per_second: int, now: float) -> None:
        self._per_second, self._looked = per_second, now
        self.left = float(per_second)

    def left_at(self, now: float) -> float:
        self.left = min(self._per_second, self.left + (now - self._looked) * self._per_second)
        self._looked = now
        return self.left


class Remembering:
    """A scheme with costly checks: one for each credential, few for bad ones.

    A proof is known by the SHA-256 of its credential until it expires. A bad credential costs a check each time it comes,
    for its sender can always make another. So an :class:`Allowance` bounds the bad ones of a second; beyond it, credentials
    that are not known already get 429. One client that sends bad ones keeps nobody else from proving something.
    """

    def __init__(self, scheme: Scheme, clock: Clock, allowance: Allowance) -> None:
        self.name = scheme.name
        self.refusal = scheme.refusal
        self._scheme = scheme
        self._clock = clock
        self._allowance = allowance
        self._known: OrderedDict[bytes, Grant] = OrderedDict()
        self._trust = 0
        self._lock = new_lock()

    def identify(self, credential: str, client: str | None = "") -> Grant:
        """As :meth:`RecallingScheme.identify`.

        :raises Throttled: see above.
        """
        digest = digest_of(credential)
        grant = self._recall(digest)
        if grant is not None:
            return grant
        trust = self._trust
        if client is not None and self._allowance.is_used_up(client):
            raise Throttled("Too many bad credentials came in the last second: try again after Retry-After seconds.")
        try:
            grant = self._scheme.identify(credential)
        except Unauthenticated:
            self._allowance.use(client or "")
            raise
        with self._lock:
            if trust == self._trust:
                self._known[digest] = grant
            while len(self._known) > REMEMBERED:
                self._known.popitem(last=False)
        return grant

    def forget(self) -> None:
        """Check each credential anew: the scheme trusts other keys now."""
        with self._lock:
            self._trust += 1
            self._known.clear()

    def recall(self, credential: str) -> Grant | None:
        """What it proved before and still proves."""
        return self._recall(digest_of(credential))

    def _recall(self, digest: bytes) -> Grant | None:
        with self._lock:
            grant = self._known.get(digest)
            if grant is not None and grant.expires_ticks is not None and grant.expires_ticks <= self._clock.now_ticks():
                del self._known[digest]
                return None
            return grant
