"""Message ids: TimeUUIDs, their order, and where new ones come from.

A message's id is a version 1 UUID of the moment the message is due. ``ticks`` are 100 ns since
1582-10-15. Order is Cassandra's TimeUUID order: time first, then the low 64 bits byte by byte as
signed bytes; text order and :class:`uuid.UUID`'s own order are not time order (G4).

Inside, an id is the pair ``(ticks, tail)``, where ``tail`` is the low half with its bytes' sign
bits turned, read as a signed 64-bit integer. So the order of plain tuples, and of two integer
columns of a database, *is* the order of ids, with no comparison code anywhere.
"""

from __future__ import annotations

import datetime as dt
import os
import random
import re
import secrets
import struct
import uuid
import weakref
from functools import lru_cache
from typing import NamedTuple, Protocol

from queuey.locks import new_lock

EPOCH_TICKS = 0x01B21DD213814000
"""Ticks at 1970-01-01 UTC."""
TICKS_PER_SECOND = 10_000_000
MAX_TICKS = (1 << 60) - 1
"""A version 1 UUID has 60 bits of time."""

TAIL_MASK = 0x0080808080808080
_U64 = (1 << 64) - 1
_SCHEDULED = 1 << 50
"""The bit of a tail, within the clock sequence, that marks ids of scheduled messages."""
_COUNT_BITS = 47
"""Of the count in such a tail: it starts over every 162 days."""
MIN_TAIL, MAX_TAIL = -(1 << 63), (1 << 63) - 1

_UNIX = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_TIMESTAMP = re.compile(r"[0-9]{1,12}(?:\.[0-9]{1,30})?")
_HALVES = struct.Struct(">QQ")


def tail_from_low(low: int) -> int:
    """The sort key of a UUID's low 64 bits: equal order, as one signed integer.

    >>> tail_from_low(0x80ff000000000000) < tail_from_low(0x8000000000000000) < tail_from_low(0x8001000000000000)
    True
    """
    key = low ^ TAIL_MASK
    return key - (1 << 64) if key >> 63 else key


def low_from_tail(tail: int) -> int:
    """The inverse of :func:`tail_from_low`."""
    return (tail & _U64) ^ TAIL_MASK


@lru_cache(maxsize=4096)
def hex_after(high: int, tail: int) -> str:
    """All but the first 8 digits of an id, from its ticks above 32 bits and its tail.

    Ids that one process stamps within seven minutes share them.
    """
    return f"{high & 0xFFFF:04x}1{high >> 16:03x}{low_from_tail(tail):016x}"


class MessageId(NamedTuple):
    """The identity of a message and its place in order.

    Only ids whose tail carries the RFC 4122 variant are ever given to messages; others
    (:meth:`first_of`, :meth:`before`) serve as bounds of spans.
    """

    ticks: int
    tail: int

    def __str__(self) -> str:
        """As :attr:`hex`."""
        return self.hex

    def __repr__(self) -> str:
        return f"MessageId({self.hex!r})"

    @classmethod
    def parse(cls, text: str) -> MessageId:
        """Read 32 hex digits, dashes and upper case allowed.

        :raises ValueError: not hex, not version 1, not the RFC 4122 variant.

        >>> MessageId.parse("1f9f6640e56711f189bf02fc00000001").hex
        '1f9f6640e56711f189bf02fc00000001'
        """
        plain = text.replace("-", "") if len(text) != 32 else text
        try:
            raw = bytes.fromhex(plain)
        except ValueError:
            raw = b""
        if len(raw) != 16 or len(plain) != 32:  # blanks between digits count for nothing there
            raise ValueError("not 32 hexadecimal digits")
        return cls.from_bytes(raw)

    @classmethod
    def from_bytes(cls, raw: bytes) -> MessageId:
        """Read the 16 bytes of a UUID.

        :raises ValueError: as :meth:`parse`.
        """
        high, low = _HALVES.unpack(raw)
        if (high >> 12) & 0xF != 1 or low >> 62 != 0b10:
            raise ValueError("not a version 1 UUID")
        ticks = high >> 32 | (high >> 16 & 0xFFFF) << 32 | (high & 0x0FFF) << 48
        return cls(ticks, tail_from_low(low))

    @classmethod
    def from_uuid(cls, value: uuid.UUID) -> MessageId:
        return cls.from_bytes(value.bytes)

    @property
    def bytes(self) -> bytes:
        """The 16 bytes of the UUID."""
        ticks = self.ticks
        high = (ticks & 0xFFFFFFFF) << 32 | (ticks >> 32 & 0xFFFF) << 16 | 0x1000 | ticks >> 48
        return _HALVES.pack(high, low_from_tail(self.tail))

    @property
    def hex(self) -> str:
        """Wire form: 32 lower-case hex digits."""
        return f"{self.ticks & 0xFFFFFFFF:08x}{hex_after(self.ticks >> 32, self.tail)}"

    @property
    def uuid(self) -> uuid.UUID:
        return uuid.UUID(bytes=self.bytes)

    @property
    def is_scheduled(self) -> bool:
        """Whether it was appended at another moment than the id's own."""
        return bool(self.tail & _SCHEDULED)

    def scheduled_at(self, newest: int) -> int | None:
        """The ticks at which a scheduled message was appended; None for other messages.

        Those that were appended at other moments 162 days apart have equal tails: of these moments it is the last.

        :param newest: the ticks of the last moment that it may be.
        """
        if not self.is_scheduled:
            return None
        count = (self.tail >> 41 & 0x7F) << 40 | self.tail & ((1 << 40) - 1)
        return newest - ((newest - count) & ((1 << _COUNT_BITS) - 1))

    @property
    def timestamp(self) -> str:
        """Wire form of the id's moment, see :func:`format_timestamp`."""
        return format_timestamp(self.ticks)

    @property
    def datetime(self) -> dt.datetime:
        """The id's moment in UTC, cut off to the microsecond.

        >>> MessageId.parse("1f9f6640e56711f189bf02fc00000001").datetime.isoformat()
        '2026-11-21T04:50:50.012832+00:00'
        """
        return _UNIX + dt.timedelta(microseconds=(self.ticks - EPOCH_TICKS) // (TICKS_PER_SECOND // 1_000_000))

    @classmethod
    def first_of(cls, ticks: int) -> MessageId:
        """The bound below every id of this tick."""
        return cls(ticks, MIN_TAIL)

    @classmethod
    def last_of(cls, ticks: int) -> MessageId:
        """The bound above every id of this tick."""
        return cls(ticks, MAX_TAIL)

    def before(self) -> MessageId:
        """The greatest bound below this id.

        It turns an inclusive start into a span's ``after``.
        """
        if self.tail == MIN_TAIL:
            return MessageId(self.ticks - 1, MAX_TAIL)
        return MessageId(self.ticks, self.tail - 1)

    def following(self) -> MessageId:
        """The least bound above this id."""
        if self.tail == MAX_TAIL:
            return MessageId(self.ticks + 1, MIN_TAIL)
        return MessageId(self.ticks, self.tail + 1)


ZERO_ID = MessageId(0, MIN_TAIL)
"""Below every message."""
MAX_ID = MessageId(MAX_TICKS, MAX_TAIL)
"""Above every message."""


_unique = random.Random()  # noqa: S311 - it guards nothing, and is its own: programs seed the module's to do the same again
os.register_at_fork(after_in_child=_unique.seed)


def unique_bytes() -> bytes:
    """16 bytes that nothing else has, in any process. They guard nothing: whoever sees many can tell the next ones.

    :func:`uuid.uuid4` asks the system, and gives the interpreter to other threads meanwhile: beside the busy ones of
    Cassandra's driver that took 110 us, a quarter of a request.
    """
    return _unique.randbytes(16)


def unique_uuid() -> uuid.UUID:
    """The same as a UUID of version 4."""
    return uuid.UUID(bytes=unique_bytes(), version=4)


def format_timestamp(ticks: int) -> str:
    """Seconds since 1970 UTC with exactly seven decimals.

    It is exact; a float loses 100 ns in 16% of ids.

    >>> format_timestamp(EPOCH_TICKS + 17952366500128320)
    '1795236650.0128320'
    >>> format_timestamp(EPOCH_TICKS - 1)
    '-0.0000001'
    """
    since = ticks - EPOCH_TICKS
    if since >= TICKS_PER_SECOND:
        digits = str(since)
        return f"{digits[:-7]}.{digits[-7:]}"
    sign, since = ("-", -since) if since < 0 else ("", since)
    return f"{sign}{since // TICKS_PER_SECOND}.{since % TICKS_PER_SECOND:07d}"


def parse_timestamp(text: str) -> int:
    """Ticks of a moment in decimal seconds since 1970.

    What is finer than 100 ns is cut off.

    :raises ValueError: a sign, an exponent, anything but digits and one point; past the year 5236.

    >>> parse_timestamp("1795236650.012832") - EPOCH_TICKS
    17952366500128320
    """
    if not _TIMESTAMP.fullmatch(text):
        raise ValueError("not decimal seconds")
    whole, _, fraction = text.partition(".")
    ticks = EPOCH_TICKS + int(whole) * TICKS_PER_SECOND + int(fraction[:7].ljust(7, "0") or 0)
    if ticks > MAX_TICKS:
        raise ValueError("beyond the time an id can hold")
    return ticks


class TimeSource(Protocol):
    """What a generator needs of ``queuey.clock``."""

    def now_ticks(self) -> int:
        """The wall clock."""

    def elapsed(self) -> float:
        """Seconds that no step of the wall clock moves."""


class Anchor(NamedTuple):
    """A moment that a process had not passed, and the elapsed time then.

    The two bound its ids after its death.
    """

    ticks: int
    elapsed: float

    @property
    def base(self) -> int:
        """The bound at the boot, as if the process had lived then.

        The bound grows with the time that elapses.
        """
        return self.ticks - round((self.elapsed - ANCHOR_SLACK_SECONDS) * TICKS_PER_SECOND)

    def bound(self, elapsed: float) -> int:
        """The ticks that a process with this anchor had not passed at this elapsed time.

        >>> Anchor(1_000_000_000, 50.0).bound(52.0)
        1020100000
        """
        return self.base + round(elapsed * TICKS_PER_SECOND)


ANCHOR_SLACK_SECONDS = 0.01
"""How far the wall clock may run ahead of the elapsed time after an anchor: one second of slewing, and no step."""


_AT_ONCE_TICKS = round(ANCHOR_SLACK_SECONDS * TICKS_PER_SECOND) // 2
"""Ids that may be stamped in one moment, ahead of it: half of the slack is theirs, or they would pass the bound of an anchor."""


_generators: weakref.WeakSet[IdGenerator] = weakref.WeakSet()


def _draw_all() -> None:
    for ids in [*_generators]:
        ids._draw_tail()  # noqa: SLF001 - of this module


os.register_at_fork(after_in_child=_draw_all)


class IdGenerator:
    """Rising ids of one process, and the exact watermark of its writes (G3, G4).

    One process never makes two equal or falling ids: ``ticks = max(now, last + 1)``, also when the
    wall clock is stepped back. Node and clock sequence are random per process (the multicast bit
    marks the node as no network card's) and drawn anew after a fork.

    A store that stamps inside its commit brackets every commit with :meth:`open_group` and
    :meth:`close_group`; between them :meth:`watermark` stays below the group's first stamp, so no
    reader takes a moment for complete while a message of that moment is on its way to disk.
    Outside of groups, serving a watermark raises ``last``: no later stamp can fall behind it.

    Thread-safe. One group is open at a time.
    """

    def __init__(self, clock: TimeSource, *, floor_ticks: int = 0) -> None:
        """:param floor_ticks: ids and watermarks stay above this, the last moment known from before a restart."""
        self._clock = clock
        self._last = floor_ticks
        self._group_floor: int | None = None
        self._base: int | None = None
        self._lock = new_lock()
        self._draw_tail()
        _generators.add(self)

    def _draw_tail(self) -> None:
        node = secrets.randbits(48) | 1 << 40
        self._low = 0b10 << 62 | secrets.randbits(14) << 48 & ~_SCHEDULED | node
        self.tail = tail_from_low(self._low)
        """Shared by all ids of this process that are due at once."""

    @property
    def last_ticks(self) -> int:
        """The newest tick stamped or served as a watermark."""
        return self._last

    @property
    def ahead_seconds(self) -> float:
        """How far the clock is behind what was stamped or served: it was set back, if that is more than a moment."""
        return max(self._last - self._clock.now_ticks(), 0) / TICKS_PER_SECOND

    def _now(self) -> int:
        """The wall clock, but not past the anchor's bound.

        A step forward counts once a new anchor is on disk.
        """
        now = self._clock.now_ticks()
        if self._base is None:
            return now
        return min(now, self._base + round(self._clock.elapsed() * TICKS_PER_SECOND) - _AT_ONCE_TICKS)

    @property
    def held_back(self) -> bool:
        """Whether the wall clock is past the anchor's bound, so that a new anchor is due."""
        return self._clock.now_ticks() > self._now()

    def anchor(self) -> Anchor:
        """A point for a store to write down.

        From it a later process goes on above all ids of this one.

        From here on stamps and watermarks keep to it as well as to those before, until it is :meth:`anchored`.
        Wherever the wall clock is stepped, in this process or before the next: no id comes twice, and none
        behind a watermark that was served (G3, G4).
        """
        with self._lock:
            found = Anchor(max(self._clock.now_ticks(), self._last), self._clock.elapsed())
            self._base = found.base if self._base is None else min(self._base, found.base)
            return found

    def anchored(self, anchor: Anchor) -> None:
        """The anchor is on disk; those before count no more."""
        with self._lock:
            self._base = anchor.base

    def raise_floor(self, ticks: int) -> None:
        """Keep ids and watermarks above ``ticks`` from now on.

        A store calls it with what it knows from before.
        """
        with self._lock:
            self._last = max(self._last, ticks)

    def open_group(self) -> None:
        """From here on, stamps belong to a group that no watermark passes."""
        with self._lock:
            self._last = max(self._now(), self._last)
            self._group_floor = self._last

    def close_group(self) -> None:
        """The group is on disk, or will never be."""
        with self._lock:
            self._group_floor = None

    def stamp(self, count: int = 1) -> int:
        """Reserve ``count`` consecutive ticks.

        :returns: the first of them; ids are ``MessageId(tick, self.tail)``.
        """
        with self._lock:
            first = max(self._now(), self._last + 1)
            self._last = first + count - 1
            return first

    def next_id(self) -> MessageId:
        """One fresh id, due now."""
        return MessageId(self.stamp(), self.tail)

    def scheduled_tail(self) -> int:
        """The tail for ids with a given tick in the future.

        It is unique within the process, and rises with each call. It tells when it was made
        (:meth:`MessageId.scheduled_at`), so that a purge knows what was there before it.

        Two messages may be due at the same tick. Their order is that of their appends, unless the
        counter of 47 bits of ticks started over between these, which it does every 162 days.
        """
        count = self.stamp() & ((1 << _COUNT_BITS) - 1)
        node = (count >> 40) << 41 | 1 << 40 | count & ((1 << 40) - 1)
        return (self.tail >> 48) << 48 | _SCHEDULED | node

    def watermark(self) -> int:
        """Ticks up to which all that is or will be acknowledged is readable now."""
        with self._lock:
            if self._group_floor is not None:
                return self._group_floor
            self._last = max(self._now(), self._last)
            return self._last
