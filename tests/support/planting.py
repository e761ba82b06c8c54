"""A fault takes the place of something that is there."""

from __future__ import annotations


def plant(owner: type, name: str, fault: object) -> None:
    """Give a class another method, or another property.

    :raises AttributeError: it has none of this name: the fault would do nothing.
    """
    getattr(owner, name)
    setattr(owner, name, fault)
