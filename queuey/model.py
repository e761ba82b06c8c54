"""The values that travel between the layers. All are immutable."""

from __future__ import annotations

import sys
import uuid
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from itertools import chain, pairwise, repeat
from typing import Any, Literal, NamedTuple, TypeVar, overload

from queuey.errors import InvalidParameter, OffsetMovesBack, StaleGeneration
from queuey.ids import MAX_ID, ZERO_ID, MessageId

__all__ = [
    "MAX_GENERATION",
    "MAX_GENERATION_STEP",
    "MAX_PARTITIONS",
    "MAX_TTL_SECONDS",
    "Alike",
    "AppendRequest",
    "Appended",
    "ApplicationKey",
    "Bodies",
    "Columns",
    "Consistency",
    "Draft",
    "Drafts",
    "Message",
    "Offset",
    "OffsetChange",
    "OffsetMove",
    "Once",
    "Page",
    "PartitionId",
    "PartitionState",
    "Placed",
    "PlacedInOrder",
    "Queue",
    "QueueKind",
    "Span",
    "Survey",
]

MAX_PARTITIONS = 200
"""Partitions of one queue; the numbers are 1..200."""
MAX_TTL_SECONDS = 1 << 25
"""388 days, the longest TTL of the v1 contract."""
MAX_GENERATION = (1 << 63) - 1
MAX_GENERATION_STEP = 1 << 40
"""Of one change: at the greatest generation nobody could be fenced off any more (G14)."""

Value = TypeVar("Value")


class QueueKind(StrEnum):
    """Who may read without being named: nobody, or anybody."""

    USER = "user"
    PUBLIC = "public"


class Consistency(StrEnum):
    """How many replicas answer before an acknowledgement; a single embedded store makes no difference."""

    WEAK = "weak"
    STRONG = "strong"
    VERY_STRONG = "very_strong"


class PartitionId(NamedTuple):
    """One partition of one incarnation of a queue: the unit of order.

    The queue's uuid, not its name: a queue deleted and made anew shares nothing with its former self (G9).
    """

    queue: uuid.UUID
    number: int


@dataclass(frozen=True, slots=True)
class Queue:
    """A named list of messages in numbered partitions, and its settings."""

    application: str
    name: str
    uuid: uuid.UUID
    created_ticks: int
    partitions: int = 1
    kind: QueueKind = QueueKind.USER
    consistency: Consistency = Consistency.STRONG
    principals: tuple[str, ...] = ()
    """As given and in the order given; empty means that the owner reads."""

    def partition(self, number: int) -> PartitionId:
        return PartitionId(self.uuid, number)


class Message(NamedTuple):
    """A stored message. Flat, so that a database row becomes one without a loop."""

    ticks: int
    tail: int
    expires_ticks: int
    """Never returned from this instant on."""
    content_type: str | None
    """As the writer named it; None if it named none."""
    key: str | None
    """The key that chose its partition, None without one."""
    body: bytes

    @property
    def id(self) -> MessageId:
        return MessageId(self.ticks, self.tail)


@dataclass(frozen=True, slots=True)
class Bodies(Sequence[bytes]):
    """Bodies that lie end to end in one piece of memory, which is how Arrow has them too."""

    data: bytes
    ends: Sequence[int]
    """Where each begins and the one before it ends, counted from ``start``: one number more than there are bodies."""
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
        """Those at these places."""
        return [self[at] for at in chosen]

    def texts(self) -> list[str]:
        """Each decoded.

        :raises UnicodeDecodeError: one is not UTF-8.
        """
        whole = bytes(self.whole())
        if not whole.isascii():
            return list(map(bytes.decode, self))
        text = whole.decode("ascii")
        return [text[begin:end] for begin, end in pairwise(self.places())]

    @property
    def size(self) -> int:
        """Bytes of all."""
        return self.ends[-1] - self.ends[0]

    def places(self) -> Sequence[int]:
        """The ends, counted from the first body."""
        return shifted("i", self.ends, -self.ends[0]) if self.ends[0] else self.ends

    def whole(self) -> memoryview:
        """All of them, where they are."""
        return memoryview(self.data)[self.start + self.ends[0] : self.start + self.ends[-1]]

    @classmethod
    def joined(cls, parts: Sequence[Bodies]) -> Bodies:
        """Several, one after the other."""
        ends, size = array("i", [0]), 0
        for part in parts:
            ends.extend(shifted("i", part.ends[1:], size - part.ends[0]))
            size += part.size
        return cls(b"".join([part.whole() for part in parts]), ends, 0)


def shifted(code: Literal["i", "q"], numbers: Sequence[int], shift: int) -> array[int]:
    """Something added to each of these, which are 0 or more and stay what the code takes.

    All at once, as digits of one large number: a quarter of the time of one by one.
    """
    found = array(code, numbers)
    digits = int.from_bytes(found.tobytes(), sys.byteorder)
    ones = int.from_bytes(array(code, [1]).tobytes() * len(found), sys.byteorder)
    return array(code, (digits + shift * ones).to_bytes(len(found) * found.itemsize, sys.byteorder))


@dataclass(frozen=True, slots=True)
class Alike(Sequence[Value]):
    """The same value many times, as a column has it that no message of a request fills: nothing is done for each of them."""

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
        range(self.length)[at]  # raises of what is none of them
        return self.value

    def count(self, value: Any) -> int:
        return self.length if value == self.value else 0

    def picked(self, chosen: Sequence[int]) -> Alike[Value]:
        """Those at these places."""
        return Alike(self.value, len(chosen))


@dataclass(frozen=True, slots=True)
class Columns(Sequence[Message]):
    """Messages of a page, kept by column: as databases give them and wire forms want them.

    A message is made when one is asked for; most readers never do.
    """

    ticks: Sequence[int]
    tails: Sequence[int]
    expires_ticks: Sequence[int]
    content_types: Sequence[str | None]
    keys: Sequence[str | None]
    bodies: Sequence[bytes]

    @classmethod
    def of(cls, messages: Sequence[Message]) -> Columns:
        """Messages, however they are kept."""
        if isinstance(messages, cls):
            return messages
        return cls(*zip(*messages, strict=True)) if messages else cls((), (), (), (), (), ())

    def __len__(self) -> int:
        return len(self.ticks)

    def __iter__(self) -> Iterator[Message]:
        return map(Message, self.ticks, self.tails, self.expires_ticks, self.content_types, self.keys, self.bodies)

    @overload
    def __getitem__(self, at: int) -> Message: ...

    @overload
    def __getitem__(self, at: slice) -> Columns: ...

    def __getitem__(self, at: int | slice) -> Message | Columns:
        if isinstance(at, slice):
            return Columns(*[column[at] for column in self.all()])
        return Message(
            self.ticks[at],
            self.tails[at],
            self.expires_ticks[at],
            self.content_types[at],
            self.keys[at],
            self.bodies[at],
        )

    def all(self) -> tuple[Sequence[Any], ...]:
        """The columns, in the order of a message's fields."""
        return self.ticks, self.tails, self.expires_ticks, self.content_types, self.keys, self.bodies

    @classmethod
    def joined(cls, parts: Sequence[Columns]) -> Columns:
        """Several, one after the other."""
        if len(parts) < 2:
            return parts[0] if parts else cls.of([])
        return cls(*[_joined(columns) for columns in zip(*[part.all() for part in parts], strict=True)])

    @property
    def size(self) -> int:
        """Bytes of the bodies."""
        return _size(self.bodies)


def _size(bodies: Sequence[bytes]) -> int:
    return bodies.size if isinstance(bodies, Bodies) else sum(map(len, bodies))


def _joined(columns: Sequence[Any]) -> Sequence[Any]:
    """One column of several, of the kind that all of them are."""
    if all(type(column) is array for column in columns):
        return array("q", b"".join(columns))
    if all(type(column) is Bodies for column in columns):
        return Bodies.joined(columns)
    if all(type(column) is Alike and column.value == columns[0].value for column in columns):
        return Alike(columns[0].value, sum(map(len, columns)))
    return list(chain.from_iterable(columns))


class Once(NamedTuple):
    """An idempotency key and what it stands for (G7)."""

    key: str
    digest: bytes
    """Of all that was asked: another digest under the same key is refused."""


class Draft(NamedTuple):
    """A message that has no id yet."""

    partition: int
    body: bytes
    ttl_seconds: int
    content_type: str | None = None
    key: str | None = None
    due_ticks: int | None = None
    """The moment it is to be readable from; None or a moment past means now."""
    once: Once | None = None
    """This message's own idempotency key, within a batch."""


@dataclass(frozen=True, slots=True)
class Drafts(Sequence[Draft]):
    """Drafts of one request, kept by column: as they come in bulk, and as stores that keep many together want them."""

    partitions: Sequence[int]
    bodies: Sequence[bytes]
    ttls: Sequence[int]
    content_types: Sequence[str | None]
    keys: Sequence[str | None]
    dues: Sequence[int | None]
    onces: Sequence[Once | None]

    @classmethod
    def of(cls, drafts: Sequence[Draft]) -> Drafts:
        """Drafts, at least one, however they are kept."""
        return drafts if isinstance(drafts, cls) else cls(*zip(*drafts, strict=True))

    def __len__(self) -> int:
        return len(self.bodies)

    def __iter__(self) -> Iterator[Draft]:
        make = partial(tuple.__new__, Draft)  # without the step of the interpreter that its constructor is
        return map(make, zip(*self._all(), strict=True))

    @overload
    def __getitem__(self, at: int) -> Draft: ...

    @overload
    def __getitem__(self, at: slice) -> Drafts: ...

    def __getitem__(self, at: int | slice) -> Draft | Drafts:
        fields: list[Any] = [column[at] for column in self._all()]
        return Drafts(*fields) if isinstance(at, slice) else Draft(*fields)

    @property
    def size(self) -> int:
        """Bytes of the bodies."""
        return _size(self.bodies)

    def _all(self) -> tuple[Sequence[Any], ...]:
        return self.partitions, self.bodies, self.ttls, self.content_types, self.keys, self.dues, self.onces


def bytes_of(drafts: Sequence[Draft]) -> int:
    """Bytes of the bodies of drafts, however they are kept."""
    if len(drafts) == 1:
        return len(drafts[0].body)
    return drafts.size if isinstance(drafts, Drafts) else sum([len(draft.body) for draft in drafts])


class AppendRequest(NamedTuple):
    """Messages of one request, stored whole or not at all in an embedded store (G2)."""

    queue: Queue
    drafts: Sequence[Draft]
    once: Once | None = None
    """The whole request's idempotency key."""


class Placed(NamedTuple):
    """Where a message went."""

    id: MessageId
    partition: int


@dataclass(frozen=True, slots=True)
class PlacedInOrder(Sequence[Placed]):
    """Where messages went that were stamped one tick after the other: of a thousand, two values."""

    first: MessageId
    partitions: bytes

    def __len__(self) -> int:
        return len(self.partitions)

    def __iter__(self) -> Iterator[Placed]:
        ticks, tail = self.first
        for tick, partition in enumerate(self.partitions, ticks):
            yield Placed(MessageId(tick, tail), partition)

    @overload
    def __getitem__(self, at: int) -> Placed: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[Placed]: ...

    def __getitem__(self, at: int | slice) -> Placed | Sequence[Placed]:
        if isinstance(at, slice):
            return list(self)[at]
        index = range(len(self))[at]
        return Placed(MessageId(self.first.ticks + index, self.first.tail), self.partitions[index])


class Appended(NamedTuple):
    """The outcome of an append: one place per draft, in their order."""

    placed: Sequence[Placed]
    repeated: bool = False
    """True if earlier requests with the same idempotency keys had stored all of it; this one stored nothing."""


class Span(NamedTuple):
    """Ids ``after < id <= upto``: spans that share an end join without gap or repeat (G5)."""

    after: MessageId = ZERO_ID
    upto: MessageId = MAX_ID


class Page(NamedTuple):
    """Messages of one span, and whether the span holds more."""

    messages: Sequence[Message]
    more: bool
    """True if the page ended at its limit of count or bytes; False: the span is exhausted."""
    corrupt: int = 0
    """Messages stepped over because they do not match their checksum."""

    @property
    def size(self) -> int:
        """Bytes of the bodies."""
        return Columns.of(self.messages).size if self.messages else 0


class Survey(NamedTuple):
    """What lies in a span of one partition, without its messages."""

    newest: MessageId | None
    """The last id of the span, None of an empty one."""
    messages: int
    """Live messages, counted up to a limit."""
    more: bool
    """The limit was reached: there are more than were counted."""
    marks: Sequence[MessageId]
    """Each n-th of the counted ids, in order: where to cut the span into parts of n messages."""


class PartitionState(NamedTuple):
    """What lies in a partition now, expired messages not counted."""

    depth: int
    """Live messages, those due in the future included."""
    scheduled: int
    """Of these, how many are not yet due."""
    oldest: MessageId | None
    newest: MessageId | None


class Offset(NamedTuple):
    """How far a group has got in one partition."""

    id: MessageId | None = None
    """The last message that it has finished; None before the first."""
    generation: int = 0
    """Of the owner that claimed the partition last."""
    set_ticks: int | None = None
    """When the id was last set; None if it never was."""


class OffsetMove(NamedTuple):
    """An offset before and after a change."""

    before: Offset
    after: Offset


class OffsetChange(NamedTuple):
    """What a group's offsets are to become in some partitions: in all of them, or in none."""

    ids: Mapping[int, MessageId | None]
    """By partition, at least one. None leaves the id as it is, and raises the generation alone: so an owner takes over. Of a reset
    it is the beginning."""
    generation: int = 0
    """Of the owner who asks; a reset has none."""
    resets: bool = False
    """By hand: to any id, whoever owns the partition. It raises the generation by one, so that who was at work cannot
    commit what comes after the former offset."""

    def moves(self, stored: Mapping[int, Offset], now_ticks: int) -> dict[int, OffsetMove]:
        """What it does to the offsets that are stored.

        :raises StaleGeneration: a partition was claimed with a greater generation (G14).
        :raises OffsetMovesBack: an id is lower than the stored one.
        :raises InvalidParameter: the generation is too far above a stored one.
        """
        before = {number: stored.get(number, Offset()) for number in sorted(self.ids)}
        if not self.resets:
            self._check(before)
        return {number: OffsetMove(offset, self._after(number, offset, now_ticks)) for number, offset in before.items()}

    def _check(self, before: Mapping[int, Offset]) -> None:
        for number, (_, generation, _) in before.items():
            if generation > self.generation:
                raise StaleGeneration(
                    f"partition {number} was claimed with generation {generation}, or reset, and this request has "
                    f"{self.generation}: stop work on it, and claim it anew with {generation} or more; nothing was changed"
                )
            if self.generation - generation > MAX_GENERATION_STEP:
                raise InvalidParameter(
                    problems={
                        "generation": f"is {self.generation}, and partition {number} has {generation}: it may rise by "
                        f"{MAX_GENERATION_STEP} at once; count owners from 1; nothing was changed"
                    }
                )
        for number, (stored, _, _) in before.items():
            wanted = self.ids[number]
            if wanted is not None and stored is not None and wanted < stored:
                raise OffsetMovesBack(
                    f"the offset of partition {number} is {stored.hex}, and {wanted.hex} lies before it: commit a later "
                    'message, or send "reset": true to go back; nothing was changed'
                )

    def _after(self, number: int, before: Offset, now_ticks: int) -> Offset:
        wanted = self.ids[number]
        if self.resets:
            return Offset(wanted, min(before.generation + 1, MAX_GENERATION), now_ticks)
        if wanted is None:
            return before._replace(generation=self.generation)
        return Offset(wanted, self.generation, now_ticks)


@dataclass(frozen=True, slots=True)
class ApplicationKey:
    """A key as it is kept: never the key itself."""

    application: str
    digest: bytes = field(repr=False)
    """SHA-256 of the key."""
    label: str
    """The first eight hex digits of the digest: enough to tell two keys apart, and no character of the key."""
    created_ticks: int

    @property
    def principal(self) -> str:
        """Whom the key proves."""
        return f"app:{self.application}"
