"""The MD5 sums by which clients of SQS check what they sent and got. They protect from nobody."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import md5
from typing import NamedTuple

__all__ = ["Attribute", "md5_of_attributes", "md5_of_body", "size_of"]

BINARY = "Binary"


class Attribute(NamedTuple):
    """A message attribute, or a system attribute that a sender gave."""

    type: str
    """The whole type, its label included: ``String``, ``Number.int``, ``Binary.gif``."""
    value: bytes
    """Text as UTF-8."""

    @property
    def is_binary(self) -> bool:
        return self.type.startswith(BINARY)


def size_of(attributes: Mapping[str, Attribute]) -> int:
    """Bytes of names, types and values: they count against the size of a message."""
    return sum([len(name.encode()) + len(one.type.encode()) + len(one.value) for name, one in attributes.items()])


def md5_of_body(body: bytes) -> str:
    """As 32 hexadecimal digits.

    >>> md5_of_body(b"hello")
    '5d41402abc4b2a76b9719d911017c592'
    """
    total = _NOTHING.copy()  # half the time that a new one takes
    total.update(body)
    return total.hexdigest()


_NOTHING = md5(usedforsecurity=False)


def md5_of_attributes(attributes: Mapping[str, Attribute]) -> str:
    """As 32 hexadecimal digits, whatever the order of the attributes; empty text if there are none.

    An answer never carries the sum of nothing: some SDKs refuse it.

    >>> md5_of_attributes({"Foo": Attribute("String", b"Bar")})
    'ae7155c6026991b6d54b11589678bf9c'
    """
    if not attributes:
        return ""
    total = md5(usedforsecurity=False)
    for name, attribute in sorted((name.encode(), attribute) for name, attribute in attributes.items()):
        total.update(_with_length(name))
        total.update(_with_length(attribute.type.encode()))
        total.update(b"\2" if attribute.is_binary else b"\1")
        total.update(_with_length(attribute.value))
    return total.hexdigest()


def _with_length(part: bytes) -> bytes:
    return len(part).to_bytes(4, "big") + part
