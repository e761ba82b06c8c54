"""Messages stored by column.

Databases give them in this form, and wire forms want them so.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, chain, pairwise, repeat
from typing import Any, Literal, NamedTuple, TypeVar, overload

from queuey.ids import MessageId
from queuey.model.messages import Draft, Location, Message
from queuey.model.values import IdempotencyKey

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Bodies(Sequence[bytes]):
    """Bodies that lie end to end in one piece of memory, as in Arrow."""

    data: bytes
    ends: Sequence[int]
    """Where each body begins and the one before it ends, counted from ``start``: one number more than there are
    bodies."""
    start: int

    def __len__(self) -> int:
        return len(self.ends) - 1

    def __iter__(self) -> Iterator[bytes]:
        data, start = self.data, self.start
        return iter([data[start + begin : start + end] for begin, end in pairwise(self.ends)])

    @overload
    def __getitem__(self, at: int) -> bytes: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[bytes]: ...

    def __getitem__(self, at: int | slice) -> bytes | Sequence[bytes]:
        if isinstance(at, slice):
            begin, end, step = at.indices(len(self))
            if step != 1:
                return list(self)[at]
            return Bodies(self.data, self.ends[begin : max(begin, end) + 1], self.start)
        at = range(len(self))[at]
        return self.data[self.start + self.ends[at] : self.start + self.ends[at + 1]]

    def picked(self, chosen: Sequence[int]) -> Sequence[bytes]:
        """The bodies with these indexes."""
        return [self[at] for at in chosen]

    def texts(self) -> list[str]:
        """Each body, decoded.

        :raises UnicodeDecodeError: one is not UTF-8.
        """
        whole = bytes(self.whole())
        if not whole.isascii():
            return list(map(bytes.decode, self))
        text = whole.decode("ascii")
        return [text[begin:end] for begin, end in pairwise(self.places())]

    @property
    def size(self) -> int:
        """Bytes of all bodies."""
        return self.ends[-1] - self.ends[0]

    def places(self) -> Sequence[int]:
        """The ends of the bodies, counted from the first body."""
        return shifted("i", self.ends, -self.ends[0]) if self.ends[0] else self.ends

    def whole(self) -> memoryview:
        """All bodies as one view, without a copy."""
        return memoryview(self.data)[self.start + self.ends[0] : self.start + self.ends[-1]]

    @classmethod
    def joined(cls, parts: Sequence[Bodies]) -> Bodies:
        """Several of them as one, in order."""
        ends, size = array("i", [0]), 0
        for part in parts:
            ends.extend(shifted("i", part.ends[1:], size - part.ends[0]))
            size += part.size
        return cls(b"".join([part.whole() for part in parts]), ends, 0)


def shifted(code: Literal["i", "q"], numbers: Sequence[int], shift: int) -> array[int]:
    """The numbers, with ``shift`` added to each.

    They are 0 or more before and after, and fit the type code. They are added in one step, as digits of one large
    number, which takes a quarter of the time of one by one.
    """
    found = array(code, numbers)
    digits = int.from_bytes(found.tobytes(), sys.byteorder)
    ones = int.from_bytes(array(code, [1]).tobytes() * len(found), sys.byteorder)
    return array(code, (digits + shift * ones).to_bytes(len(found) * found.itemsize, sys.byteorder))


@dataclass(frozen=True, slots=True)
class Alike(Sequence[Value]):
    """The same value many times.

    A column that no message of a request fills is one. Nothing is done for each message.
    """

    value: Value
    length: int

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[Value]:
        return repeat(self.value, self.length)

    @overload
    def __getitem__(self, at: int) -> Value: ...

    @overload
    def __getitem__(self, at: slice) -> Alike[Value]: ...

    def __getitem__(self, at: int | slice) -> Value | Alike[Value]:
        if isinstance(at, slice):
            return Alike(self.value, len(range(self.length)[at]))
        if not -self.length <= at < self.length:
            raise IndexError(at)
        return self.value

    def count(self, value: Any) -> int:
        return self.length if value == self.value else 0

    def picked(self, chosen: Sequence[int]) -> Alike[Value]:
        """The values with these indexes."""
        return Alike(self.value, len(chosen))


@dataclass(frozen=True, slots=True)
class Columns(Sequence[Message]):
    """Messages of a page, stored by column.

    A message is made only when it is asked for, which most readers never do.
    """

    ticks: Sequence[int]
    tails: Sequence[int]
    expires_ticks: Sequence[int]
    content_types: Sequence[str | None]
    keys: Sequence[str | None]
    bodies: Sequence[bytes]
    headers: Sequence[bytes | None]
    """Encoded, see :mod:`queuey.model.headers`."""

    @classmethod
    def of(cls, messages: Sequence[Message]) -> Columns:
        """Messages as columns, however they are stored."""
        if isinstance(messages, cls):
            return messages
        return cls(*zip(*messages, strict=True)) if messages else cls((), (), (), (), (), (), ())

    def __len__(self) -> int:
        return len(self.ticks)

    def __iter__(self) -> Iterator[Message]:
        return map(Message, *self.all())

    @overload
    def __getitem__(self, at: int) -> Message: ...

    @overload
    def __getitem__(self, at: slice) -> Columns: ...

    def __getitem__(self, at: int | slice) -> Message | Columns:
        if isinstance(at, slice):
            return self._cut(at)
        return Message(
            self.ticks[at],
            self.tails[at],
            self.expires_ticks[at],
            self.content_types[at],
            self.keys[at],
            self.bodies[at],
            self.headers[at],
        )

    def _cut(self, at: slice) -> Columns:
        ticks, nothing = self.ticks[at], None
        found: list[Any] = [ticks]
        for column in self.all()[1:]:
            if type(column) is Alike and column.value is None:  # mostly three of them: one is made for all
                nothing = nothing or Alike(None, len(ticks))
                found.append(nothing)
            else:
                found.append(column[at])
        return Columns(*found)

    def all(self) -> tuple[Sequence[Any], ...]:
        """The columns, in the order of a message's fields."""
        return (
            self.ticks,
            self.tails,
            self.expires_ticks,
            self.content_types,
            self.keys,
            self.bodies,
            self.headers,
        )

    @classmethod
    def joined(cls, parts: Sequence[Columns]) -> Columns:
        """Several of them as one, in order."""
        if len(parts) < 2:
            return parts[0] if parts else cls.of([])
        return cls(*[_joined(columns) for columns in zip(*[part.all() for part in parts], strict=True)])

    @property
    def size(self) -> int:
        """Bytes of the bodies and the headers."""
        headers, size = self.headers, _size(self.bodies)
        if type(headers) is Alike and headers.value is None:  # a page asks five times, and mostly there are none
            return size
        return size + size_of_headers(headers)

    def sizes(self) -> list[int]:
        """Bytes of each message: its body and its headers."""
        if self.headers.count(None) == len(self):
            return [*map(len, self.bodies)]
        return [len(body) + len(headers or b"") for body, headers in zip(self.bodies, self.headers, strict=True)]

    def number_within(self, max_bytes: int) -> int:
        """How many of these messages, from the first on, have this many bytes together; one in any case."""
        sums = accumulate(self.sizes())
        return max(sum(1 for total in sums if total <= max_bytes), 1)


def _size(bodies: Sequence[bytes]) -> int:
    return bodies.size if isinstance(bodies, Bodies) else sum(map(len, bodies))


def size_of_headers(headers: Sequence[bytes | None]) -> int:
    """Bytes of all headers; 0 at once if no message has any."""
    if type(headers) is Alike:  # of a pack, and then mostly of none
        return 0 if headers.value is None else len(headers.value) * headers.length
    if headers.count(None) == len(headers):
        return 0
    return sum([len(encoded) for encoded in headers if encoded is not None])


def _joined(columns: Sequence[Any]) -> Sequence[Any]:
    """Several columns as one, of the kind that they all have."""
    kinds = {*map(type, columns)}
    if kinds == {array}:
        return array("q", b"".join(columns))
    if kinds == {Bodies}:
        return Bodies.joined(columns)
    if kinds == {Alike}:
        value = columns[0].value
        if [column.value for column in columns].count(value) == len(columns):
            return Alike(value, sum([column.length for column in columns]))
    return list(chain.from_iterable(columns))


@dataclass(frozen=True, slots=True)
class Drafts(Sequence[Draft]):
    """Drafts of one request, stored by column.

    Bulk requests come in this form, and a store that packs messages wants them so.
    """

    partitions: Sequence[int]
    bodies: Sequence[bytes]
    ttls: Sequence[int]
    content_types: Sequence[str | None]
    keys: Sequence[str | None]
    dues: Sequence[int | None]
    idempotency_keys: Sequence[IdempotencyKey | None]
    headers: Sequence[bytes | None]

    @classmethod
    def of(cls, drafts: Sequence[Draft]) -> Drafts:
        """Drafts as columns, at least one, however they are stored."""
        return drafts if isinstance(drafts, cls) else cls(*zip(*drafts, strict=True))

    @classmethod
    def joined(cls, parts: Sequence[Drafts]) -> Drafts:
        """Several of them as one, in order; at least one."""
        if len(parts) == 1:
            return parts[0]
        columns: list[Any] = [_joined(columns) for columns in zip(*[part.all() for part in parts], strict=True)]
        return cls(*columns)

    def __len__(self) -> int:
        return len(self.bodies)

    def __iter__(self) -> Iterator[Draft]:
        make = partial(tuple.__new__, Draft)  # without the interpreter step that the constructor takes
        return map(make, zip(*self.all(), strict=True))

    @overload
    def __getitem__(self, at: int) -> Draft: ...

    @overload
    def __getitem__(self, at: slice) -> Drafts: ...

    def __getitem__(self, at: int | slice) -> Draft | Drafts:
        fields: list[Any] = [column[at] for column in self.all()]
        return Drafts(*fields) if isinstance(at, slice) else Draft(*fields)

    @property
    def size(self) -> int:
        """Bytes of the bodies and the headers."""
        return _size(self.bodies) + size_of_headers(self.headers)

    def all(self) -> tuple[Sequence[Any], ...]:
        """The columns, in the order of a draft's fields."""
        return (
            self.partitions,
            self.bodies,
            self.ttls,
            self.content_types,
            self.keys,
            self.dues,
            self.idempotency_keys,
            self.headers,
        )


def bytes_of(drafts: Sequence[Draft]) -> int:
    """Bytes of the bodies and headers of drafts, however they are stored."""
    if len(drafts) == 1:
        draft = drafts[0]
        return len(draft.body) + (len(draft.headers) if draft.headers else 0)
    if isinstance(drafts, Drafts):
        return drafts.size
    return sum([len(draft.body) + (len(draft.headers) if draft.headers else 0) for draft in drafts])


@dataclass(frozen=True, slots=True)
class LocationsInOrder(Sequence[Location]):
    """Locations of messages that were stamped one tick after the other.

    For a thousand messages these are two values.
    """

    first: MessageId
    partitions: bytes

    def __len__(self) -> int:
        return len(self.partitions)

    def __iter__(self) -> Iterator[Location]:
        ticks, tail = self.first
        for tick, partition in enumerate(self.partitions, ticks):
            yield Location(partition, MessageId(tick, tail))

    @overload
    def __getitem__(self, at: int) -> Location: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[Location]: ...

    def __getitem__(self, at: int | slice) -> Location | Sequence[Location]:
        if isinstance(at, slice):
            return list(self)[at]
        index = range(len(self))[at]
        return Location(self.partitions[index], MessageId(self.first.ticks + index, self.first.tail))


class Page(NamedTuple):
    """Messages of one span, and whether the span holds more."""

    messages: Sequence[Message]
    more: bool
    """True if the page ended at its limit of count or bytes; False if it reached the end of the span."""
    corrupt: int = 0
    """Messages that were skipped because they do not match their checksum."""

    @property
    def size(self) -> int:
        """Bytes of the bodies and the headers."""
        return Columns.of(self.messages).size if self.messages else 0
