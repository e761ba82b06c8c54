"""Sessions of browsers: a signed cookie, and what it proves.

The cookie holds no key. Of a sign-in with a key it has the principal and a mark of the key, so that the session ends with
the key; of one with a token it has the token, which is looked at again each time. So sessions take no memory of the
server, and prove never more than the credential did.
"""

from __future__ import annotations

import hmac
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64
from collections.abc import Mapping
from typing import NamedTuple

import orjson

from queuey.errors import Forbidden, InvalidApplicationKey, InvalidToken, Unauthenticated
from queuey.http.access import identify
from queuey.security.claims import unix_now
from queuey.security.permissions import ANONYMOUS, Grant, Identity
from queuey.service import Service

__all__ = ["COOKIE", "SESSION_SECONDS", "Session", "Sessions"]

COOKIE = "queuey_console"
SESSION_SECONDS = 12 * 3600
"""The longest life of a session: a working day."""
MAX_COOKIE = 3800
"""Characters of a cookie's value. Browsers drop cookies of more than 4096, name and attributes included."""
_ID_BYTES = 16
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
    """Of that key."""
    token: str = ""
    """Of a sign-in with a token."""


class Sessions:
    """Begins sessions, and says what they prove."""

    def __init__(self, service: Service) -> None:
        self._service = service
        given = service.settings.console.secrets or (secrets.token_hex(32),)
        self._keys = [secret.encode() for secret in given]

    def anonymous(self) -> Session:
        """A session that proves nothing. The sign-in page needs one, for its form."""
        return Session(secrets.token_hex(_ID_BYTES), int(unix_now(self._service.clock)))

    def begin(self, credential: str) -> Session:
        """Sign in with the key of an application or an operator, or with a token.

        :raises Unauthenticated: it proves nothing.
        :raises Throttled: too many bad tokens came in the last second.
        """
        text = credential.strip()
        if not text or not text.isascii() or not text.isprintable() or " " in text or ";" in text:
            raise InvalidApplicationKey("This is neither a key nor a token: they have no blanks and no semicolons.")
        try:
            return self._with_key(identify(self._service, f"Application {text}"))
        except InvalidApplicationKey:
            if text.count(".") != _DOTS_OF_TOKEN:
                raise
        if not identify(self._service, f"Bearer {text}").principals:
            raise InvalidToken("This server takes no tokens: its settings have neither [tokens] keys nor an issuer.")
        session = self.anonymous()._replace(token=text)
        if len(self.seal(session)) > MAX_COOKIE:
            raise InvalidToken(f"The token is too long for a browser's cookie of {MAX_COOKIE} characters.")
        return session

    def _with_key(self, known: Identity) -> Session:
        (principal,) = known.principals
        return self.anonymous()._replace(principal=principal, mark=_mark(self._keys[0], known.key_of(principal) or b""))

    def identity(self, session: Session | None) -> Identity:
        """What a session proves now; nothing once it, its key or its token has ended."""
        if session is None or unix_now(self._service.clock) - session.began >= SESSION_SECONDS:
            return ANONYMOUS
        if session.token:
            try:
                return identify(self._service, f"Bearer {session.token}")
            except Unauthenticated:
                return ANONYMOUS
        for found in self._service.keys.of(session.principal):
            if any(hmac.compare_digest(session.mark, _mark(key, found.digest)) for key in self._keys):
                return Identity([Grant(session.principal, key=found.digest)])
        return ANONYMOUS

    def csrf(self, session: Session) -> str:
        """What each form of this session has to bring."""
        return _signature(self._keys[0], b"form", session.id.encode())

    def check_csrf(self, session: Session, given: str) -> None:
        """:raises Forbidden: the form is not from a page of this session."""
        signed = [_signature(key, b"form", session.id.encode()) for key in self._keys]
        if not any(hmac.compare_digest(one.encode(), given.encode()) for one in signed):
            raise Forbidden(
                "This form is not from a page of your session: load its page again, and send it from there."
            )

    def seal(self, session: Session) -> str:
        """The cookie's value."""
        payload = urlsafe_b64encode(orjson.dumps(tuple(session))).rstrip(b"=")
        return f"{payload.decode()}.{_signature(self._keys[0], b'session', payload)}"

    def of(self, headers: Mapping[str, str]) -> Session | None:
        """The session of a request; None if it has none that this server signed."""
        for pair in headers.get("cookie", "").split(";"):
            name, _, value = pair.strip().partition("=")
            if name == COOKIE:
                return self._opened(value)
        return None

    def _opened(self, value: str) -> Session | None:
        if len(value) > MAX_COOKIE or not value.isascii():
            return None
        payload, _, signature = value.partition(".")
        signed = [_signature(key, b"session", payload.encode()) for key in self._keys]
        if not any(hmac.compare_digest(one, signature) for one in signed):
            return None
        try:
            return Session(*orjson.loads(urlsafe_b64decode(payload + "=" * (-len(payload) % 4))))
        except (NotBase64, ValueError, TypeError):
            return None  # signed by another version of this program


def _signature(key: bytes, purpose: bytes, data: bytes) -> str:
    return hmac.digest(key, b"queuey console " + purpose + b"\0" + data, "sha256").hex()


def _mark(key: bytes, digest: bytes) -> str:
    """A mark of an application's or an operator's key. It does not help to guess the key."""
    return _signature(key, b"key", digest)[:32]
