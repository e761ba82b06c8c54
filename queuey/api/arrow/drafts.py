"""Drafts of messages from an Arrow IPC stream, for writers of large batches."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from struct import error as StructError  # noqa: N812
from struct import unpack_from
from typing import Any, TypeVar

from queuey.api.arrow.answers import check_arrow
from queuey.api.arrow.bodies import ArrowBodies
from queuey.api.drafts import (
    MAX_BATCH_PROBLEMS,
    check_content_type,
    check_key,
    check_sizes,
)
from queuey.api.headers import headers_of_row
from queuey.api.params import Problems, in_range, latest_due, once_key, quoted
from queuey.errors import InvalidParameter
from queuey.http.exchange import ARROW, Call
from queuey.ids import EPOCH_TICKS, TICKS_PER_SECOND
from queuey.model import DEFAULT_TTL_SECONDS, MAX_TTL_SECONDS, Alike, Drafts, IdempotencyKey, Queue
from queuey.service.log import partition_for
from queuey.settings import Settings

T = TypeVar("T")

WRITE_COLUMNS = ("body", "partition", "key", "ttl", "content_type", "deliver_at", "idempotency_key", "headers")
"""Columns that a batch may have: ``body`` is binary or text and required, ``partition`` and ``ttl`` (seconds) are
integers, ``deliver_at`` is a timestamp, ``headers`` a map from text to binary or text, the others are texts. Null is
absent."""
MAX_BATCHES = 1000
"""Record batches in one body. Reading one takes as long as reading some 300 rows."""
MAX_METADATA_BYTES = 64 << 10
"""Bytes of metadata, which describe the layout of the stream or of a record batch. Arrow parses them on the event
loop."""


def arrow_drafts(call: Call, queue: Queue, settings: Settings, now_ticks: int) -> Drafts:
    """One draft for each row, in order; any bad row refuses the whole batch.

    :raises NotAcceptable: this server has no Arrow.
    :raises InvalidParameter: no Arrow stream, unknown columns or types, or bad values, named by row.
    """
    columns = _columns(call, settings.limits.max_batch_messages)
    problems = _RowProblems(MAX_BATCH_PROBLEMS)
    bodies = columns["body"]
    sizes = bodies.sizes()
    check_sizes(sizes.max(initial=0), 0, settings)
    if bodies.column.null_count or not sizes.all():
        problems.without_body(bodies)
    keys = problems.each("key", columns["key"], check_key)
    numbers = problems.numbers("partition", columns["partition"], 1, queue.partitions)
    ttls = problems.numbers("ttl", columns["ttl"], 1, MAX_TTL_SECONDS)
    kinds = problems.each("content_type", columns["content_type"], check_content_type)
    latest = latest_due(now_ticks)
    dues = problems.each("deliver_at", columns["deliver_at"], lambda ticks: _due(ticks, latest))
    onces = problems.each("idempotency_key", columns["idempotency_key"], once_key)
    partitions = _partitions(queue, numbers, keys, problems)
    headers = problems.each("headers", columns["headers"], headers_of_row)
    problems.check()
    if headers.count(None) < len(headers):
        for size, encoded in zip(sizes, headers, strict=True):
            check_sizes(size, len(encoded or b""), settings)
    own = _onces(onces, bodies, numbers, ttls, kinds, keys, dues, headers)
    return Drafts(partitions, bodies, _whole(ttls, DEFAULT_TTL_SECONDS), kinds, keys, dues, own, headers)


def _whole(values: Sequence[int | None], default: int) -> Sequence[int]:
    """The values, with the default in place of each null."""
    if values.count(None) == len(values):
        return Alike(default, len(values))
    return [default if value is None else value for value in values]


def _partitions(
    queue: Queue, numbers: Sequence[int | None], keys: Sequence[str | None], problems: _RowProblems
) -> Sequence[int]:
    """The partition of each message: the one it names, its key's, or a random one."""
    if keys.count(None) < len(keys):
        for index, (number, key) in enumerate(zip(numbers, keys, strict=True)):
            if key is not None and number is not None:
                problems.add(f"{index}.key", "give a partition or a key, not both")
    elif None not in numbers:
        return numbers  # type: ignore[return-value]  # the check above found no None
    return [number or partition_for(queue, key) for number, key in zip(numbers, keys, strict=True)]


def _onces(names: Sequence[str | None], *asked: Sequence[Any]) -> Sequence[IdempotencyKey | None]:
    """The idempotency key of each message, bound to all that the message asks for."""
    if names.count(None) == len(names):
        return Alike(None, len(names))
    return [
        None if name is None else IdempotencyKey(name, _digest(*rest))
        for name, *rest in zip(names, *asked, strict=True)
    ]


class _RowProblems(Problems):
    """Problems of a batch. They name rows by index."""

    def without_body(self, bodies: Iterable[bytes | None]) -> None:
        """Note each body that is missing or empty."""
        for index, body in enumerate(bodies):
            if not body:
                self.add(f"{index}.body", "Required")

    def each(self, name: str, values: Sequence[Any], check: Callable[[Any], T]) -> Sequence[T | None]:
        """The checked values; None for each that is absent or wrong."""
        if values.count(None) == len(values):
            return values
        return list(self._checked(name, values, check))

    def numbers(self, name: str, values: Sequence[int | None], low: int, high: int) -> Sequence[int | None]:
        """The same for integers; they are checked one by one only if one is out of range."""
        given: set[Any] = {*values} - {None}
        if not given or (low <= min(given) and max(given) <= high):
            return values
        return self.each(name, values, lambda value: in_range(value, low, high))

    def _checked(self, name: str, values: Sequence[Any], check: Callable[[Any], T]) -> Iterator[T | None]:
        for index, value in enumerate(values):
            try:
                yield None if value is None else check(value)
            except ValueError as error:
                self.add(f"{index}.{name}", str(error))
                yield None


def _due(ticks_since_1970: int, latest_ticks: int) -> int:
    ticks = EPOCH_TICKS + ticks_since_1970
    if ticks > latest_ticks:
        raise ValueError("more than 366 days from now")
    return max(ticks, 0)


_TICKS_PER = {"s": TICKS_PER_SECOND, "ms": TICKS_PER_SECOND // 1000, "us": TICKS_PER_SECOND // 1_000_000}


def _ticks(moments: Sequence[int | None], unit: str) -> Sequence[int | None]:
    """Moments as ticks since 1970.

    Nanoseconds round up, since no message may come early.
    """
    if unit == "ns":
        return [None if moment is None else -(-moment // 100) for moment in moments]
    return [None if moment is None else moment * _TICKS_PER[unit] for moment in moments]


def _digest(body: bytes, *rest: Any) -> bytes:
    return hashlib.sha256(repr(rest).encode() + b"\0" + body).digest()


def _columns(call: Call, limit: int) -> dict[str, Any]:
    """The values of each column that a batch may have.

    :param limit: the most rows of a batch.
    """
    if call.media_type != ARROW:
        raise InvalidParameter(
            problems={"Content-Type": f"{quoted(call.media_type)} is not {ARROW}, the form of a batch with batch=true"}
        )
    check_arrow("send a batch as JSON")
    import pyarrow as pa

    try:
        _check_messages(pa, call.body)
        _check_schema(pa, pa.ipc.open_stream(call.body).schema)
        table = pa.ipc.open_stream(call.body).read_all()
        table.validate(full=True)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:  # the last one of a column's name
        raise InvalidParameter(problems={"body": f"is not a whole Arrow IPC stream: {error}"}) from error
    if len(table) > limit:
        raise InvalidParameter(f"{len(table)} messages in one request; this server takes {limit}")
    found: dict[str, Any] = {name: Alike(None, len(table)) for name in WRITE_COLUMNS}
    for name in table.column_names:
        column = table[name]
        if name == "body":
            found[name] = _bodies(column.cast(pa.binary()))
        elif name == "deliver_at":
            found[name] = _ticks(column.cast(pa.int64()).to_pylist(), column.type.unit)
        elif name == "headers":
            # Small pairs take far more memory as objects than in the body: they become objects row by row (G17).
            found[name] = [row if row.is_valid else None for row in column]
        else:
            found[name] = column.to_pylist()
    return found


def _bodies(column: Any) -> ArrowBodies:
    return ArrowBodies.of(column.chunk(0) if column.num_chunks == 1 else column.combine_chunks())


def _check_messages(pa: Any, body: bytes) -> None:
    """Refuse batches that grow when they are read, or take long to read (G17).

    :raises InvalidParameter: a batch is compressed or has dictionaries, there are more than :data:`MAX_BATCHES`, or one
        of them or the schema has more than :data:`MAX_METADATA_BYTES` of metadata.
    """
    for number, message in enumerate(pa.ipc.MessageReader.open_stream(body)):
        if number > MAX_BATCHES:  # the first message is the schema, so this allows MAX_BATCHES batches
            raise InvalidParameter(
                problems={"body": f"has more than {MAX_BATCHES} record batches: send fewer, of more rows"}
            )
        if message.metadata.size > MAX_METADATA_BYTES:
            what = "a record batch" if number else "a schema"
            raise InvalidParameter(
                problems={"body": f"has {what} with more than {MAX_METADATA_BYTES} bytes of metadata: send less"}
            )
        if is_packed(message.metadata.to_pybytes()):
            raise InvalidParameter(
                problems={"body": "is packed: send record batches without compression or dictionaries"}
            )


def _check_schema(pa: Any, schema: Any) -> None:
    """Refuse unknown columns, and types whose rows could grow when they are read.

    :raises InvalidParameter: there are some.
    """
    names = schema.names
    if set(names) - set(WRITE_COLUMNS) or len(set(names)) < len(names) or "body" not in names:
        given = quoted(", ".join(names[: len(WRITE_COLUMNS) + 1]))
        expected = f"expected body, and of {', '.join(WRITE_COLUMNS[1:])}"
        raise InvalidParameter(problems={"body": f"has {len(names)} columns, {given}: {expected}"})
    kinds = pa.types
    texts = (kinds.is_string, kinds.is_large_string)
    known = {
        "body": (*texts, kinds.is_binary, kinds.is_large_binary),
        "partition": (kinds.is_integer,),
        "ttl": (kinds.is_integer,),
        "deliver_at": (kinds.is_timestamp,),
        "headers": (_is_headers,),
    }
    problems = Problems()
    for field in schema:
        if not any(fits(field.type) for fits in known.get(field.name, texts)):
            problems.add(field.name, f"has the type {quoted(str(field.type))[1:-1]}")
    problems.check()


def _is_headers(kind: Any) -> bool:
    """Whether a type is a map from text to text or bytes."""
    import pyarrow as pa

    texts = (pa.string(), pa.large_string())
    return (
        bool(pa.types.is_map(kind))
        and kind.key_type in texts
        and kind.item_type in (*texts, pa.binary(), pa.large_binary())
    )


_RECORD_BATCH, _DICTIONARY_BATCH = 3, 2
_COMPRESSION = 3


def is_packed(metadata: bytes) -> bool:
    """Whether a message of an Arrow stream grows when it is read.

    An upload of 8 MiB could become gigabytes (G17).

    The metadata is a flatbuffer. ``Message`` has the kind of its header in field 1 and the header in field 2. Field 3
    of a record batch says how it is compressed.

    :source: the Arrow columnar format, Message.fbs.
    """

    def field(table: int, number: int) -> int:
        """The offset of a table's field; 0 if it is absent."""
        entries = table - unpack_from("<i", metadata, table)[0]
        if 4 + 2 * number >= unpack_from("<H", metadata, entries)[0]:
            return 0
        offset: int = unpack_from("<H", metadata, entries + 4 + 2 * number)[0]
        return table + offset if offset else 0

    try:
        root: int = unpack_from("<I", metadata)[0]
        kind, header = field(root, 1), field(root, 2)
        if not kind or not header or metadata[kind] not in (_RECORD_BATCH, _DICTIONARY_BATCH):
            return False
        batch = header + unpack_from("<I", metadata, header)[0]
        return metadata[kind] == _DICTIONARY_BATCH or field(batch, _COMPRESSION) != 0
    except (StructError, IndexError):
        return True  # pyarrow writes nothing like this: refuse it
