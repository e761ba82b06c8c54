"""Issuers at whose pages people sign in, and the sign-ins that are under way.

Until the browser comes back, a sign-in takes no memory of the server: the browser keeps a sealed cookie for ten minutes. It has
a random id, and with the secrets of the console that id gives the state, the nonce and the verifier of PKCE, none of which the cookie shows.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from queuey.console.seals import Seals, cookie_of
from queuey.errors import InvalidToken, NotFound, Throttled
from queuey.http.access import identify
from queuey.http.addresses import client_of
from queuey.http.exchange import Call
from queuey.locks import new_lock
from queuey.security.claims import unix_now
from queuey.security.code_flow import CodeFlow, SignInSecrets
from queuey.service import Service
from queuey.settings.issuers import Issuer

__all__ = ["ATTEMPT_COOKIE", "ATTEMPT_SECONDS", "Attempt", "Exchanges", "Providers"]

ATTEMPT_COOKIE = "queuey_sign_in"
ATTEMPT_SECONDS = 600
"""How long somebody may take at the issuer's page."""
MAX_CODE = 2000
_PURPOSE = b"sign-in"
_ID_BYTES = 32
_NOT_BEGUN = (
    "This browser began no sign-in, or more than ten minutes ago, or at another address than [console] url names. "
    "Sign in again."
)


class Attempt(NamedTuple):
    """A sign-in under way, as the cookie has it."""

    id: str
    began: int
    """Seconds since 1970."""
    issuer: str
    """The name of its section."""
    wanted: str
    """The page that follows."""


class Exchanges:
    """Codes that are being exchanged for tokens. Thread-safe.

    Each waits for an issuer in a thread of the server. A slow issuer, or a client that asks in vain again and again, keeps
    some of the threads, and leaves the rest to other sign-ins.
    """

    def __init__(self, threads: int) -> None:
        """:param threads: of the server."""
        self._most = max(threads - 1, 1)
        self._most_at_issuer = max(threads - 2, 1)
        self._most_of_client = max(threads // 4, 1)
        self._under_way: list[tuple[str, str]] = []
        """The issuer and the client of each."""
        self._lock = new_lock()

    @contextmanager
    def begun(self, issuer: str, client: str) -> Iterator[None]:
        """One exchange.

        :param client: an address, or a network of one client.
        :raises Throttled: there are as many as may be, of all, at this issuer or of this client.
        """
        entry = issuer, client
        with self._lock:
            at_issuer = sum(one == issuer for one, _ in self._under_way)
            of_client = sum(one == client for _, one in self._under_way)
            if (
                len(self._under_way) >= self._most
                or at_issuer >= self._most_at_issuer
                or of_client >= self._most_of_client
            ):
                raise Throttled("Other sign-ins are under way at an issuer: load this page again after a second.")
            self._under_way.append(entry)
        try:
            yield
        finally:
            with self._lock:
                self._under_way.remove(entry)


class Providers:
    """The issuers of the settings that have a client id. Thread-safe."""

    def __init__(self, service: Service, seals: Callable[[], Seals]) -> None:
        """:param seals: gives those in force."""
        self._service, self._seals = service, seals
        self._exchanges = Exchanges(service.settings.server.threads)

    @property
    def names(self) -> Sequence[str]:
        """Their names, in the order of the settings in force."""
        return [one.name for one in self._service.settings.issuers if one.client_id]

    def begin(self, issuer: str, wanted: str) -> tuple[str, str]:
        """Begin a sign-in.

        :param wanted: a page of the console, to go on to.
        :returns: the issuer's page, and the value of the cookie.
        :raises NotFound: nobody signs in there.
        """
        flow = self._flow(self._issuer(issuer))
        attempt = Attempt(secrets.token_urlsafe(_ID_BYTES), int(unix_now(self._service.clock)), issuer, wanted)
        return flow.address(self._secrets(attempt)), self._seals().seal(_PURPOSE, tuple(attempt))

    def finish(self, issuer: str, call: Call) -> tuple[str, str]:
        """End a sign-in with what the browser brings back from the issuer. Asks the issuer, and waits for it.

        :returns: the token, which was checked, and the page that follows.
        :raises NotFound: nobody signs in there.
        :raises InvalidToken: it proves nothing, and why.
        :raises Throttled: other sign-ins are asking an issuer now. The same address may be asked again.
        """
        known_issuer, attempt, query = self._issuer(issuer), self._attempt(call), call.query
        flow = self._flow(known_issuer)
        if attempt is None or attempt.issuer != issuer:
            raise InvalidToken(_NOT_BEGUN)
        known = self._secrets(attempt)
        if not hmac.compare_digest(known.state.encode(), query.get("state", "").encode()):
            raise InvalidToken(_NOT_BEGUN)
        if query.get("iss", known_issuer.issuer) != known_issuer.issuer:
            raise InvalidToken("The answer is another issuer's. Sign in again.")
        code = query.get("code", "")
        if "error" in query or not code or len(code) > MAX_CODE:
            raise InvalidToken(f"The issuer {issuer} let nobody in. Sign in again.")
        with self._exchanges.begun(issuer, client_of(call, self._service.settings.server.trusted_proxies)):
            token = flow.exchange(code, known)
        # Raises, unless its signature, audience and life are good. A flood of bad tokens must not spend the code in vain.
        identify(self._service, f"Bearer {token}", call, again=True)
        flow.check(token, known)
        return token, attempt.wanted

    def _issuer(self, name: str) -> Issuer:
        for one in self._service.settings.issuers:
            if one.name == name and one.client_id:
                return one
        raise NotFound("Nobody signs in to this console at an issuer of that name.")

    def _flow(self, issuer: Issuer) -> CodeFlow:
        return CodeFlow(issuer, f"{self._service.settings.console.url}/console/sign-in/from/{issuer.name}")

    def _attempt(self, call: Call) -> Attempt | None:
        found = self._seals().open(_PURPOSE, cookie_of(call.headers, ATTEMPT_COOKIE) or "")
        try:
            attempt = None if found is None else Attempt(*found)
        except TypeError:
            return None  # signed by another version of this program
        if attempt is None or unix_now(self._service.clock) - attempt.began >= ATTEMPT_SECONDS:
            return None
        return attempt

    def _secrets(self, attempt: Attempt) -> SignInSecrets:
        given = f"{attempt.issuer}\0{attempt.id}".encode()
        seals = self._seals()
        return SignInSecrets(*[seals.mark(name, given) for name in (b"state", b"nonce", b"verifier")])
