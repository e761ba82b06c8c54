"""Sessions of browsers: a signed cookie, and what it proves.

The cookie holds no key. Of a sign-in with a key it has the principal and a mark of the key, so that the session ends with
the key; of one with a token it has the token, which is looked at again each time. So sessions take no memory of the
server, and prove never more than the credential did.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import NamedTuple

from queuey.console.seals import MAX_COOKIE, Seals, cookie_of
from queuey.errors import Forbidden, InvalidApplicationKey, InvalidToken, Unauthenticated
from queuey.http.access import identify
from queuey.http.addresses import scheme_of
from queuey.http.exchange import Call
from queuey.security.claims import unix_now
from queuey.security.permissions import ANONYMOUS, Grant, Identity
from queuey.service import Service

__all__ = ["COOKIE", "SESSION_SECONDS", "Session", "Sessions", "cookie_header"]

COOKIE = "queuey_console"
SESSION_SECONDS = 12 * 3600
"""The longest life of a session: a working day."""
_ID_BYTES = 16
_SESSION, _FORM, _KEY = b"session", b"form", b"key"
"""What a seal is for."""
_DOTS_OF_TOKEN = 2
"""In a JSON Web Token."""


class Session(NamedTuple):
    """What a cookie says."""

    id: str
    began: int
    """Seconds since 1970."""
    principal: str = ""
    """Of a sign-in with a key: whom it proves."""
    mark: str = ""
    """Of that key. It does not help to guess the key."""
    token: str = ""
    """Of a sign-in with a token."""


class Sessions:
    """Begins sessions, and says what they prove."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._sealing = _sealing(service.settings.console.secrets)

    @property
    def seals(self) -> Seals:
        """What signs cookies, by the secrets in force."""
        if self._sealing[0] != (given := self._service.settings.console.secrets):
            self._sealing = _sealing(given)
        return self._sealing[1]

    def anonymous(self) -> Session:
        """A session that proves nothing. The sign-in page needs one, for its form."""
        return Session(secrets.token_hex(_ID_BYTES), int(unix_now(self._service.clock)))

    def begin(self, credential: str, call: Call) -> Session:
        """Sign in with the key of an application or an operator, or with a token.

        :raises Unauthenticated: it proves nothing.
        :raises Throttled: too many bad tokens came in the last second.
        """
        text = credential.strip()
        if not text or not text.isascii() or not text.isprintable() or " " in text or ";" in text:
            raise InvalidApplicationKey("This is neither a key nor a token: they have no blanks and no semicolons.")
        try:
            return self._with_key(identify(self._service, f"Application {text}", call))
        except InvalidApplicationKey:
            if text.count(".") != _DOTS_OF_TOKEN:
                raise
        return self.with_token(text, call)

    def with_token(self, token: str, call: Call) -> Session:
        """Sign in with a token.

        :raises Unauthenticated, Throttled: as of :meth:`begin`.
        """
        if not identify(self._service, f"Bearer {token}", call).principals:
            raise InvalidToken("This server takes no tokens: its settings have neither [tokens] keys nor an issuer.")
        session = self.anonymous()._replace(token=token)
        if len(self.seal(session)) > MAX_COOKIE:
            raise InvalidToken(f"The token is too long for a browser's cookie of {MAX_COOKIE} characters.")
        return session

    def _with_key(self, known: Identity) -> Session:
        (principal,) = known.principals
        mark = self.seals.mark(_KEY, known.key_of(principal) or b"")
        return self.anonymous()._replace(principal=principal, mark=mark)

    def identity(self, session: Session | None, call: Call, *, again: bool = False) -> Identity:
        """What a session proves now; nothing once it, its key or its token has ended.

        :param again: as of :func:`~queuey.http.access.identify`.
        """
        if session is None or unix_now(self._service.clock) - session.began >= SESSION_SECONDS:
            return ANONYMOUS
        if session.token:
            try:
                return identify(self._service, f"Bearer {session.token}", call, again=again)
            except Unauthenticated:
                return ANONYMOUS
        for found in self._service.keys.of(session.principal):
            if self.seals.is_mark(session.mark, _KEY, found.digest):
                self._service.keys.note_use(found.digest)
                return Identity([Grant(session.principal, key=found.digest)])
        return ANONYMOUS

    def csrf(self, session: Session) -> str:
        """What each form of this session has to bring."""
        return self.seals.mark(_FORM, session.id.encode())

    def check_csrf(self, session: Session, given: str) -> None:
        """:raises Forbidden: the form is not from a page of this session."""
        if not self.seals.is_mark(given, _FORM, session.id.encode()):
            raise Forbidden(
                "This form is not from a page of your session: load its page again, and send it from there."
            )

    def seal(self, session: Session) -> str:
        """The cookie's value."""
        return self.seals.seal(_SESSION, tuple(session))

    def of(self, headers: Mapping[str, str]) -> Session | None:
        """The session of a request; None if it has none that this server signed."""
        found = self.seals.open(_SESSION, cookie_of(headers, COOKIE) or "")
        try:
            return None if found is None else Session(*found)
        except TypeError:
            return None  # signed by another version of this program


def _sealing(given: tuple[str, ...]) -> tuple[tuple[str, ...], Seals]:
    """Secrets, and what signs with them."""
    return given, Seals(given)


def cookie_header(name: str, value: str, call: Call, path: str = "/console", seconds: int | None = None) -> str:
    """A Set-Cookie header. The cookie is ``Secure`` where the browser came by TLS.

    The server itself or a proxy ends TLS, and says so. A browser that says it without one harms nobody: it keeps a cookie that it then
    does not send.

    :param seconds: how long it is kept; 0 removes it, None keeps it as long as the browser runs.
    """
    secure = "; Secure" if scheme_of(call.headers.get("x-forwarded-proto", "")) == "https" else ""
    life = "" if seconds is None else f"; Max-Age={seconds}"
    return f"{name}={value}; Path={path}{life}; HttpOnly; SameSite=Lax{secure}"
