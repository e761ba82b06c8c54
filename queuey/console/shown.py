"""How values look on a page: times, numbers, sizes, bodies of messages."""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from itertools import count
from typing import Any, NamedTuple

import orjson

__all__ = [
    "ShownBody",
    "absolute",
    "ago",
    "as_count",
    "as_size",
    "body_of",
    "image_type",
    "iso",
    "moment_of",
    "shorter",
    "visibly",
]

_SPANS = ((60, 1, "s"), (3600, 60, "min"), (86_400, 3600, "h"), (86_400 * 60, 86_400, "days"))
_NO_MOMENT = (TypeError, ValueError, OverflowError, OSError)
MAX_MOMENT = 100
"""Characters of what should be a moment and is none."""
_EXACT = 10_000
MAX_TREE_BYTES = 64 << 10
"""A longer body is shown as text."""
MAX_TREE_NODES = 2_000
_CHARACTERS_A_NODE = 20
"""A list of 50 bodies folds at most 200 members of each: to draw them takes 60 ms."""
MAX_DEPTH = 24
"""What is nested deeper stands in one line."""
HEX_BYTES = 1 << 10
_IMAGES = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
}
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\u202a-\u202e\u2066-\u2069]")
"""Characters that a page cannot show, or that would turn the text around them."""


def ago(timestamp: str | float | None, now: float) -> str:
    """A moment as people say it.

    >>> ago("1000.0", 1090.0), ago("1000.0", 998.0), ago("1000.0", 4_600.0), ago(None, 1.0)
    ('1 min ago', 'in 2 s', '1 h ago', 'never')
    """
    if timestamp is None:
        return "never"
    try:
        seconds = now - float(timestamp)
    except (TypeError, ValueError):
        return absolute(timestamp)
    size = abs(seconds)
    for most, unit, name in _SPANS:
        if size < most:
            text = f"{int(size // unit)} {name}"
            return f"{text} ago" if seconds >= 0 else f"in {text}"
    return absolute(timestamp)[:10]


def absolute(timestamp: str | float | None) -> str:
    """A moment in UTC, to the millisecond.

    What is no moment is shown as it is: a forged dead letter may have anything in its place.

    >>> absolute("1795236650.0128320")
    '2026-11-21 04:50:50.012 UTC'
    """
    if timestamp is None:
        return "never"
    try:
        found = datetime.fromtimestamp(float(timestamp), UTC)
    except _NO_MOMENT:
        return visibly(str(timestamp)[:MAX_MOMENT])
    return f"{found:%Y-%m-%d %H:%M:%S}.{found.microsecond // 1000:03d} UTC"


def iso(timestamp: str | float | None) -> str:
    """A moment for the attribute of a time element; empty if there is none."""
    if timestamp is None:
        return ""
    try:
        return datetime.fromtimestamp(float(timestamp), UTC).isoformat(timespec="milliseconds")
    except _NO_MOMENT:
        return ""


_AGO = re.compile(r"([0-9]{1,9}) ?(s|m|min|h|d)(?: ago)?")
_UNITS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400}


def moment_of(text: str, now: float) -> str:
    """A moment as people type it, in the form of v1: seconds since 1970, or an id, which stays as it is.

    A date and time without a zone is in UTC. What is none of these stays as it is, too, and v1 refuses it.

    >>> moment_of("10m", 1000.0), moment_of("2026-11-21 04:50", 0.0), moment_of("1795236650.5", 0.0)
    ('400.000', '1795236600.000', '1795236650.5')
    """
    text = text.strip()
    found = _AGO.fullmatch(text)
    if found is not None:
        return f"{max(now - int(found[1]) * _UNITS[found[2]], 0):.3f}"
    if text[4:5] != "-":
        return text
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return text
    return f"{(moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp():.3f}"


def as_count(number: float | None) -> str:
    """A number of things. Large ones are rounded.

    >>> as_count(9_999), as_count(12_345), as_count(2_500_000), as_count(None)
    ('9,999', '12.3 k', '2.5 M', '-')
    """
    if number is None:
        return "-"
    if number < _EXACT:
        return f"{number:,.0f}"
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.1f} {unit}"
    return f"{number:,.0f}"


def as_size(number: float | None) -> str:
    """A number of bytes.

    >>> as_size(512), as_size(2048), as_size(5 << 20)
    ('512 B', '2.0 KiB', '5.0 MiB')
    """
    if number is None:
        return "-"
    for power, unit in ((3, "GiB"), (2, "MiB"), (1, "KiB")):
        if number >= 1024**power:
            return f"{number / 1024**power:.1f} {unit}"
    return f"{number:.0f} B"


def shorter(text: str, most: int = 200) -> str:
    """The beginning of a text, in one line."""
    line = " ".join(text[: 2 * most].split())
    return line if len(line) <= most else f"{line[:most]}…"


class Node(NamedTuple):
    """A value of JSON, or a member of one."""

    kind: str
    """``object``, ``array``, ``text``, ``number`` or ``word``."""
    name: str | None
    """Of a member of an object."""
    text: str
    """Of a single value; how many there are inside of another."""
    inside: tuple[Node, ...] = ()


class _Digits(str):
    """A number as it stands in a text: one of more digits than a float has is shown with all of them."""

    __slots__ = ()


class _Members(list[tuple[str, Any]]):
    """The members of an object as they stand in a text: also those that have the same name."""


class ShownBody(NamedTuple):
    """A body as a page shows it."""

    kind: str
    """``json``, ``text``, ``image`` or ``hex``."""
    size: int
    """Bytes."""
    line: str
    """Its beginning."""
    text: str = ""
    is_cut: bool = False
    """There is more of it than the text."""
    tree: Node | None = None


def body_of(entry: Mapping[str, Any], most: int) -> ShownBody:
    """The body of an entry of v1.

    :param most: characters of a text.
    """
    body = entry.get("body", "")
    if entry.get("encoding") == "base64":
        return _of_bytes(b64decode(body))
    text = body if isinstance(body, str) else str(body)
    data_size = len(text.encode())
    visible = visibly(text[:most])
    nodes = min(MAX_TREE_NODES, most // _CHARACTERS_A_NODE)
    tree = _tree(text, nodes) if text[:1] in ("{", "[") and data_size <= MAX_TREE_BYTES else None
    return ShownBody("json" if tree else "text", data_size, shorter(visible), visible, len(text) > most, tree)


def visibly(text: str) -> str:
    """A text in which each character can be seen."""
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _of_bytes(data: bytes) -> ShownBody:
    kind = "image" if image_type(data) else "hex"
    return ShownBody(kind, len(data), data[:32].hex(" "), "\n".join(_hex_lines(data)), len(data) > HEX_BYTES)


def image_type(data: bytes) -> str | None:
    """The type of a picture that every browser shows, by its first bytes; None for anything else."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for start, kind in _IMAGES.items() if data.startswith(start)), None)


def _hex_lines(data: bytes) -> Iterator[str]:
    for start in range(0, min(len(data), HEX_BYTES), 16):
        row = data[start : start + 16]
        seen = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        yield f"{start:06x}  {row.hex(' '):<47}  {seen}"


def _tree(text: str, most: int) -> Node | None:
    """A text as JSON; None if it is none, or has more members than ``most``."""
    numbers = count()

    def number(digits: str) -> _Digits:
        if next(numbers) >= most:
            raise OverflowError
        return _Digits(digits)

    try:
        orjson.loads(text)  # is stricter: of broken texts, and of depth
        value = json.loads(text, parse_int=number, parse_float=number, object_pairs_hook=_Members)
        return _node(value, None, 0, [most])
    except (ValueError, OverflowError, RecursionError):
        return None


def _node(value: Any, name: str | None, depth: int, left: list[int]) -> Node:
    """:raises OverflowError: there are more members than are left."""
    left[0] -= 1
    if left[0] < 0:
        raise OverflowError
    shown_name = None if name is None else visibly(name)
    if isinstance(value, list) and depth < MAX_DEPTH:
        members = value if isinstance(value, _Members) else [(None, one) for one in value]
        inside = tuple([_node(one, key, depth + 1, left) for key, one in members])
        return Node("object" if isinstance(value, _Members) else "array", shown_name, str(len(inside)), inside)
    kind = "number" if isinstance(value, _Digits) else "text" if isinstance(value, str) else "word"
    return Node(kind, shown_name, visibly(_in_a_line(value)))


def _in_a_line(value: Any) -> str:
    """A value as JSON, without folds."""
    if isinstance(value, _Digits):
        return str(value)
    if isinstance(value, _Members):
        return f"{{{','.join(f'{_in_a_line(name)}:{_in_a_line(one)}' for name, one in value)}}}"
    if isinstance(value, list):
        return f"[{','.join(map(_in_a_line, value))}]"
    return orjson.dumps(value).decode()
