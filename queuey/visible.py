"""Text of others, for lines of a log and of a terminal."""

from __future__ import annotations

__all__ = ["visible"]


def visible(text: str) -> str:
    r"""Text that ends no line, and cannot steer a terminal.

    >>> visible("a\x1b[31m\nb")
    'a\\x1b[31m\\nb'
    """
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
