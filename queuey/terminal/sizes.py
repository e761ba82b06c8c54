"""Sizes in bytes as people write and read them."""

from __future__ import annotations

import re

__all__ = ["SIZE_FORM", "parse_size", "shown_size"]

_UNITS = {"": 1, "B": 1} | {
    f"{letter}{kind}": base**power
    for power, letter in enumerate("KMGT", 1)
    for kind, base in (("B", 1000), ("iB", 1024), ("", 1024))
}
_SIZE = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,3})?)\s?([KMGT]?(?:i?B)?)", re.IGNORECASE)
_BY_LOWER = {name.lower(): factor for name, factor in _UNITS.items()}

SIZE_FORM = "a size such as 1048576, 512MiB, 10GB or 10G"


def parse_size(text: str) -> int:
    """Bytes.

    :raises ValueError: not of that form.

    >>> parse_size("1.5KiB"), parse_size("10GB"), parse_size("7")
    (1536, 10000000000, 7)
    """
    found = _SIZE.fullmatch(text.strip())
    factor = _BY_LOWER.get(found[2].lower()) if found else None
    if found is None or factor is None:
        raise ValueError(f"{text!r} is not {SIZE_FORM}")
    return int(float(found[1]) * factor)


def shown_size(size: float) -> str:
    """Bytes to a text for people.

    >>> shown_size(512), shown_size(1536), shown_size(9 << 30)
    ('512 B', '1.5 KiB', '9.0 GiB')
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
