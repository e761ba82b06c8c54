"""Values that a browser keeps for the server: signed, so that it cannot change them."""

from __future__ import annotations

import hmac
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

__all__ = ["MAX_COOKIE", "Seals", "cookie_of"]

MAX_COOKIE = 3800
"""Characters of a cookie's value. Browsers drop cookies of more than 4096, name and attributes included."""


class Seals:
    """Signs with the first of some secrets, and verifies with all of them."""

    def __init__(self, given: Sequence[str]) -> None:
        """:param given: without any, one is drawn."""
        self._keys = [secret.encode() for secret in given or (secrets.token_hex(32),)]

    def mark(self, purpose: bytes, data: bytes) -> str:
        """A signature in hexadecimal, 64 characters. It tells nothing of the data, and another purpose has another one."""
        return _signature(self._keys[0], purpose, data)

    def is_mark(self, given: str, purpose: bytes, data: bytes) -> bool:
        """Whether a text is the mark of the data, by any of the secrets."""
        signed = [_signature(key, purpose, data).encode() for key in self._keys]
        return any(hmac.compare_digest(one, given.encode()) for one in signed)

    def seal(self, purpose: bytes, value: object) -> str:
        """A value of JSON as the text that :meth:`open` takes."""
        payload = urlsafe_b64encode(orjson.dumps(value)).rstrip(b"=")
        return f"{payload.decode()}.{self.mark(purpose, payload)}"

    def open(self, purpose: bytes, text: str) -> Any:
        """The value in a sealed text; None if no seal of this server is on it."""
        if len(text) > MAX_COOKIE or not text.isascii():
            return None
        payload, _, signature = text.partition(".")
        if not self.is_mark(signature, purpose, payload.encode()):
            return None
        try:
            return orjson.loads(urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        except (NotBase64, ValueError):
            return None


def cookie_of(headers: Mapping[str, str], name: str) -> str | None:
    """The value of a cookie of a request; None if there is none."""
    for pair in headers.get("cookie", "").split(";"):
        found, _, value = pair.strip().partition("=")
        if found == name:
            return value
    return None


def _signature(key: bytes, purpose: bytes, data: bytes) -> str:
    return hmac.digest(key, b"queuey console " + purpose + b"\0" + data, "sha256").hex()
