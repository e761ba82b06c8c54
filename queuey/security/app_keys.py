"""Keys of applications and operators.

``Authorization: Application <key>`` proves ``app:<name>`` or ``operator:<name>``.

Keys have 256 random bits, so the store keeps a plain SHA-256 of each: there is nothing to guess that a slow hash would
protect.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable

from queuey.errors import InvalidApplicationKey, Unauthenticated
from queuey.model import PrincipalKey
from queuey.security.permissions import Grant


def new_key() -> str:
    """A key nobody can guess."""
    return secrets.token_hex(32)


def digest_of(key: str) -> bytes:
    """What the store keeps of a key."""
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()


def label_of(digest: bytes) -> str:
    """A name for people: the beginning of a key's digest.

    A chosen key has too few characters to show any of them.

    >>> label_of(digest_of("f25bfb8fe200475c8a0532a9cbe7651e"))
    'e1e94da6'
    """
    return digest[:4].hex()


class ApplicationKeys:
    """The ``Application`` scheme."""

    name = "Application"
    refusal: type[Unauthenticated] = InvalidApplicationKey

    def __init__(
        self, find: Callable[[bytes], PrincipalKey | None], used: Callable[[bytes], None] = lambda _: None
    ) -> None:
        """:param find: the key in force with this digest.
        :param used: gets the digest of a key that identifies a caller.
        """
        self._find, self._used = find, used

    def identify(self, credential: str, client: str | None = "") -> Grant:
        """A look costs one hash, so any client may have as many as it likes.

        :raises InvalidApplicationKey: nobody has this key.
        """
        grant = self.recall(credential)
        if grant is None:
            raise InvalidApplicationKey
        if grant.key is not None:
            self._used(grant.key)
        return grant

    def recall(self, credential: str) -> Grant | None:
        """What it proves; None if nobody has this key."""
        digest = digest_of(credential)
        key = self._find(digest)
        if key is None or not hmac.compare_digest(key.digest, digest):
            return None
        return Grant(key.principal, key=key.digest)
