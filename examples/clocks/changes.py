"""The data: when the clocks of the world were changed, from the time zone database of IANA.

The database is in the public domain. The package ``tzdata`` has it as TZif files (RFC 9636), one for each zone.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from importlib.resources import files

from qdo import NewMessage

_HEADER = struct.Struct(">4s c 15x 6L")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST = -(1 << 55)
"""Some files begin with a change before all time."""


def zones() -> list[str]:
    """Names of all zones, with those of the past."""
    return files("tzdata").joinpath("zones").read_text().split()


def changes(zone: str) -> Iterator[tuple[int, int, bool, str]]:
    """Each change: seconds since 1970, the new offset in seconds, whether it is summer time, and the letters.

    :raises ValueError: the file is no TZif file of version 2 or later.
    """
    data = files("tzdata").joinpath("zoneinfo", *zone.split("/")).read_bytes()
    magic, version, isut, isstd, leap, times, types, letters = _HEADER.unpack_from(data)
    if magic != b"TZif" or version < b"2":
        raise ValueError(f"{zone} is no TZif file of version 2 or later")
    # The first block has times of 32 bits, for old programs. The second block has all of them.
    at = _HEADER.size + times * 5 + types * 6 + letters + leap * 8 + isstd + isut
    _, _, isut, isstd, leap, times, types, letters = _HEADER.unpack_from(data, at)
    at += _HEADER.size
    moments = struct.unpack_from(f">{times}q", data, at)
    kinds = data[at + times * 8 : at + times * 9]
    table = [struct.unpack_from(">l?B", data, at + times * 9 + number * 6) for number in range(types)]
    names = data[at + times * 9 + types * 6 :][:letters]
    for moment, kind in zip(moments, kinds, strict=True):
        offset, summer, first = table[kind]
        if moment > _FIRST:
            yield moment, offset, summer, names[first:].partition(b"\0")[0].decode()


def events() -> Iterator[NewMessage]:
    """A message for each change. Its key is the zone, so the changes of a zone stay in order."""
    for zone in zones():
        for moment, offset, summer, letters in changes(zone):
            body = {
                "zone": zone,
                "at": (_EPOCH + timedelta(seconds=moment)).isoformat(),
                "offset": offset,
                "summer": summer,
                "letters": letters,
            }
            yield NewMessage(json.dumps(body), key=zone, content_type="application/json")
