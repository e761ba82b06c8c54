"""Application keys: ``Authorization: Application <key>`` proves ``app:<name>``.

Keys have 256 random bits, so a plain SHA-256 is kept of them: there is nothing to guess that a
slow hash would protect.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Awaitable, Callable, Mapping

from queuey.errors import InvalidApplicationKey
from queuey.model import ApplicationKey

MIN_KEY = 16
"""Characters; the first Queuey's one-character keys are refused (queuey-api-v1 W2)."""


def new_key() -> str:
    """A key nobody can guess."""
    return secrets.token_hex(32)


def digest_of(key: str) -> bytes:
    """What is kept of a key."""
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()


class ApplicationKeys:
    """The ``Application`` scheme."""

    name = "application"
    refusal = InvalidApplicationKey

    def __init__(self, known: Callable[[], Awaitable[Mapping[bytes, ApplicationKey]]]) -> None:
        """:param known: gives the keys in force now, by digest."""
        self._known = known

    async def identify(self, credential: str) -> str:
        """:raises InvalidApplicationKey: nobody has this key."""
        digest = digest_of(credential)
        key = (await self._known()).get(digest)
        if key is None or not hmac.compare_digest(key.digest, digest):
            raise InvalidApplicationKey
        return f"app:{key.application}"
