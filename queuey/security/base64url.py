"""Bytes as text in URLs and signed tokens (RFC 4648, without padding)."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode

__all__ = ["decode", "encode"]


def encode(content: bytes) -> str:
    """Base64url without padding.

    >>> encode(b"hello!!")
    'aGVsbG8hIQ'
    """
    return urlsafe_b64encode(content).rstrip(b"=").decode()


def decode(text: str) -> bytes:
    """The one text of :func:`encode` that stands for these bytes.

    :raises ValueError: no such text, or an empty one.

    >>> decode("aGVsbG8hIQ")
    b'hello!!'
    """
    content = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if not content or encode(content) != text:
        raise ValueError("no base64url")
    return content
