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
MOST_RECALLED = 8
"""Credentials of one header that :meth:`Identifier.recall` looks at, on the event loop: callers have one or two."""


class Scheme(Protocol):
    """One way to prove an identity.

    It decides from memory: no request waits for a network here (G20).
    """

    @property
    def name(self) -> str:
        """The word before the credential, as it is written; capitals do not matter."""

    @property
    def refusal(self) -> type[Unauthenticated]:
        """What a bad credential of this scheme gets."""

    def identify(self, credential: str) -> Grant:
        """What a credential proves.

        :raises Unauthenticated: nothing.
        """


class RecallingScheme(Scheme, Protocol):
    """A scheme that also answers from memory, at the cost of one hash."""

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

    def identify(self, header: str | None) -> Identity:
        """The identity of a request; without a known scheme :data:`ANONYMOUS`.

        :raises Unauthenticated: the scheme's own refusal, for one bad or over-long credential.
        :raises Throttled: too many bad credentials came in the last second to look at another one.
        """
        if not header:
            return ANONYMOUS
        too_long = len(header) > MAX_HEADER
        grants = [self._ask(scheme, credential, too_long=too_long) for scheme, credential in self._credentials(header)]
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

    def _ask(self, scheme: Scheme, credential: str, *, too_long: bool) -> Grant:
        result = "refused"
        try:
            if too_long:
                raise scheme.refusal(f"The Authorization header is longer than {MAX_HEADER} characters.")
            grant = scheme.identify(credential)
            result = "accepted"
        except Throttled:
            result = "throttled"
            raise
        finally:
            self._count(scheme.name.lower(), result)
        return grant


class Allowance:
    """A number of uses for each second (G17)."""

    def __init__(self, per_second: int, clock: Clock) -> None:
        self._per_second = per_second
        self._clock = clock
        self._left = float(per_second)
        self._looked = clock.elapsed()
        self._lock = new_lock()

    def is_used_up(self) -> bool:
        """Whether no use is left now."""
        with self._lock:
            now = self._clock.elapsed()
            self._left = min(self._per_second, self._left + (now - self._looked) * self._per_second)
            self._looked = now
            return self._left < 1

    def use(self) -> None:
        """Use one up."""
        with self._lock:
            self._left -= 1


class Remembering:
    """A scheme with costly checks: one for each credential, few for bad ones.

    A proof is known by the SHA-256 of its credential until it expires. A bad credential costs a check each time it comes,
    for its sender can always make another. So an :class:`Allowance` bounds the bad ones of a second; beyond it, credentials
    that are not known already get 429.
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

    def identify(self, credential: str) -> Grant:
        """As :meth:`Scheme.identify`.

        :raises Throttled: see above.
        """
        digest = digest_of(credential)
        grant = self._recall(digest)
        if grant is not None:
            return grant
        trust = self._trust
        if self._allowance.is_used_up():
            raise Throttled("Too many bad credentials came in the last second: try again after Retry-After seconds.")
        try:
            grant = self._scheme.identify(credential)
        except Unauthenticated:
            self._allowance.use()
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
