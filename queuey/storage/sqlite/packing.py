"""Makes packs and takes them apart, inside a transaction of an embedded store.

No other message lies in a pack's range, so a reader merges nothing. Three rules ensure that. A batch is stamped without
gaps, and is packed only if no scheduled message is due in between. Before a message is stored under a chosen id, the
pack around that id is unpacked. And a later pack contains all messages between two ids below the watermark.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from queuey.errors import CorruptMessage
from queuey.ids import TICKS_PER_SECOND, MessageId
from queuey.model import Alike, Columns, Drafts, LocationsInOrder, ReadRequest, Span, shifted
from queuey.storage.checksums import NONSENSE, checksums_of, corrupt
from queuey.storage.sqlite import packs
from queuey.storage.sqlite.packs import Rest, cut, encoded, packed, read_whole
from queuey.storage.sqlite.pages import PageBuilder, pack_of
from queuey.storage.sqlite.rows import partition_of
from queuey.storage.sqlite.statements import SQL
from queuey.storage.sqlite.transaction import Row, Transaction

__all__ = ["Ready", "insert", "pack", "remove", "uncount"]


class Run(NamedTuple):
    """Messages of one partition that follow each other.

    Ids and expiries are counted from the first of their request.
    """

    columns: Columns
    rest: Rest | None
    """The rest of the future pack; None if the messages are too few for one."""

    def moved(self, first: MessageId) -> Columns:
        """The messages, with their ids."""
        ticks, _, expires, *others = self.columns.all()
        tails = Alike(first.tail, len(self.columns))
        return Columns(_moved(ticks, first.ticks), tails, _moved(expires, first.ticks), *others)


class Ready(NamedTuple):
    """Drafts of a request, all due now, ready to be stored but for their ids.

    Storing them changes none of these fields.
    """

    partitions: bytes
    """The partition of each draft."""
    runs: Mapping[int, Sequence[Run]]
    """The runs by partition."""

    @classmethod
    def of(cls, drafts: Drafts) -> Ready:
        """:param drafts: at least one."""
        partitions, ticks = bytes(drafts.partitions), range(len(drafts))
        tails, expires = Alike(0, len(drafts)), _expiries(ticks, drafts.ttls)
        whole = Columns(ticks, tails, expires, drafts.content_types, drafts.keys, drafts.bodies, drafts.headers)
        chosen = _by_partition(partitions)
        return cls(partitions, {number: [*_runs(packs.taken_from(whole, chosen[number]))] for number in chosen})


def _runs(columns: Columns) -> Iterator[Run]:
    for run in cut(columns):
        yield Run(run, Rest.of(run) if len(run) >= packs.LEAST else None)


def _moved(numbers: Sequence[int], by: int) -> Sequence[int]:
    """The numbers, with ``by`` added to each."""
    if isinstance(numbers, range):
        return range(numbers.start + by, numbers.stop + by, numbers.step)
    return shifted("q", numbers, by)


def _expiries(ticks: range, ttls: Sequence[int]) -> Sequence[int]:
    """The moments at which messages expire; a range too if all live equally long."""
    if ttls.count(ttls[0]) < len(ttls):
        return [tick + ttl * TICKS_PER_SECOND for tick, ttl in zip(ticks, ttls, strict=True)]
    life = ttls[0] * TICKS_PER_SECOND
    return range(ticks.start + life, ticks.stop + life)


def _by_partition(partitions: bytes) -> Mapping[int, Sequence[int]]:
    """The indexes of the messages of each partition."""
    regular = {number: _every(partitions, number) for number in set(partitions)}
    if sum(map(len, regular.values())) == len(partitions):
        return regular
    found: dict[int, list[int]] = {number: [] for number in regular}
    for at, number in enumerate(partitions):
        found[number].append(at)
    return found


def _every(partitions: bytes, number: int) -> range:
    """The indexes of a number as a range, if they are regular: every n-th.

    Otherwise it is the range of only some of them.
    """
    first = partitions.index(number)
    step = partitions.find(number, first + 1) - first
    if step < 1:
        return range(first, first + 1)
    places = range(first, len(partitions), step)
    others = partitions[first::step].lstrip(bytes([number]))
    return places[: len(places) - len(others)]


def insert(transaction: Transaction, queue: bytes, ready: Ready) -> LocationsInOrder:
    """Give messages their ids in order, and insert them, most of them as packs.

    It may be repeated if its transaction was not committed: they get other ids then.
    """
    ids, count = transaction.ids, len(ready.partitions)
    first = MessageId(ids.stamp(count), ids.tail)
    for number, runs in ready.runs.items():
        _insert_runs(transaction, queue + number.to_bytes(1, "big"), runs, first)
    return LocationsInOrder(first, ready.partitions)


def _insert_runs(transaction: Transaction, partition_key: bytes, runs: Sequence[Run], first: MessageId) -> None:
    """Insert messages of one partition."""
    every = [run.moved(first) for run in runs]
    # Rows may lie between others. So if all become rows nothing is looked up, and the group may stay one statement.
    is_crossed = any(run.rest for run in runs) and _any_between(transaction, partition_key, every[0], every[-1])
    for (_, rest), columns in zip(runs, every, strict=True):
        if rest is None or (is_crossed and _any_between(transaction, partition_key, columns, columns)):
            _insert_rows(transaction, partition_key, columns, _checksums(columns))
        else:
            _insert_pack(transaction, partition_key, columns, rest)
            transaction.inserted += len(columns)


def remove(transaction: Transaction, partition_key: bytes, ids: Collection[MessageId]) -> None:
    """Remove messages by id, whether they exist or not.

    Afterwards no pack has one of these ids between its ends.

    :raises CorruptMessage: a damaged pack's messages cannot be separated. Those before it are removed; see
        :meth:`Transaction.whole`.
    """
    transaction.counted.note_change(partition_key)
    # With "returning" the statement takes half as long again.
    delete = SQL["delete_counted" if transaction.counted.has(partition_key) else "delete_message"]
    for message_id in ids:
        uncount(transaction, partition_key, transaction.execute(delete, (partition_key, *message_id)))
        if not transaction.connection.changes():
            for seq, *_ in transaction.look(SQL["pack_over"], (partition_key, *message_id)):
                _unpack(transaction, partition_key, seq, ids)


def pack(transaction: Transaction, partition_key: bytes, span: Span, now_ticks: int) -> MessageId | None:
    """Make one pack of loose messages and small packs at the beginning of a span.

    Messages at the end of the span that fill no pack stay as they are, since more may come.

    :param span: not past the watermark.
    :returns: where to go on; None at the end of the span, or at a damaged message.
    """
    span = Span(_behind_pack(transaction, partition_key, span.after), span.upto)
    request = ReadRequest(partition_of(partition_key), span, packs.MOST, max_bytes=packs.MOST_BYTES)
    builder = PageBuilder(request, now_ticks, transaction.look)
    try:
        page = builder.page(
            transaction.cursor(SQL["read_ascending"], (partition_key, *span.after, *span.upto, now_ticks))
        )
    except (CorruptMessage, *NONSENSE):
        return None
    parts, taken = builder.whole()
    found = Columns.joined(parts)
    if not page.more or not found:
        return None
    if len(found) >= packs.LEAST and (len(parts) > 1 or not taken):
        for seq in taken:
            _delete_pack(transaction, partition_key, seq)
        for leftovers in ("delete_between", "packs_delete_between"):  # leftovers have expired, so they were not found
            deleted = transaction.execute(SQL[leftovers], (partition_key, *found[0].id, *found[-1].id))
            uncount(transaction, partition_key, deleted)
        _insert_pack(transaction, partition_key, found)
    return found[-1].id


def _behind_pack(transaction: Transaction, partition_key: bytes, after: MessageId) -> MessageId:
    """The end of the pack that an id lies in; else the id."""
    for _, *last in transaction.look(SQL["pack_over"], (partition_key, *after)):
        return MessageId(*last)
    return after


def _insert_pack(transaction: Transaction, partition_key: bytes, columns: Columns, made: Rest | None = None) -> None:
    made = made or Rest.of(columns)
    head, rest = packed(columns, made)
    known = (partition_key, *_first_and_last(columns), len(columns), *_bounds(columns.expires_ticks), made.body_bytes)
    transaction.look(SQL["pack_insert"], (*known, head.crc, rest.crc, head.data, rest.data))
    transaction.counted.add(partition_key, len(columns), made.body_bytes)


def _delete_pack(transaction: Transaction, partition_key: bytes, seq: int) -> None:
    uncount(transaction, partition_key, transaction.look(SQL["pack_delete"], (seq,)))


def uncount(transaction: Transaction, partition_key: bytes, deleted: Sequence[Row]) -> None:
    """Count messages as gone.

    :param deleted: the numbers of messages, and the bytes of their bodies.
    """
    for messages, size in deleted:
        transaction.counted.add(partition_key, -messages, -size)


def _bounds(values: Sequence[int]) -> tuple[int, int]:
    """The least and the greatest value."""
    return (values[0], values[-1]) if isinstance(values, range) else (min(values), max(values))


def _any_between(transaction: Transaction, partition_key: bytes, begin: Columns, end: Columns) -> bool:
    """Whether a message lies between the first of ``begin`` and the last of ``end``."""
    ends = (*_first_and_last(begin)[:2], *_first_and_last(end)[2:])
    return bool(transaction.execute(SQL["any_between"], (partition_key, *ends)))


def _first_and_last(columns: Columns) -> tuple[int, int, int, int]:
    """The first and the last id."""
    return columns.ticks[0], columns.tails[0], columns.ticks[-1], columns.tails[-1]


def _insert_rows(transaction: Transaction, partition_key: bytes, columns: Columns, checksums: Sequence[int]) -> None:
    kinds, keys = encoded(columns.content_types), encoded(columns.keys)
    for message, kind, key, checksum in zip(columns, kinds, keys, checksums, strict=True):
        ticks, tail, expires, _, _, body, headers = message
        transaction.insert((partition_key, ticks, tail, expires, checksum, kind, key, body, headers))


def _unpack(transaction: Transaction, partition_key: bytes, seq: int, without: Collection[MessageId]) -> None:
    """Make rows of a pack's messages; damaged ones stay damaged.

    :raises CorruptMessage: its messages cannot be separated; nothing changed.
    """
    head, rest = pack_of(transaction.look, seq)
    if head is None:
        raise corrupt(next(iter(without)))
    try:
        columns, sound = read_whole(head, rest)
    except ValueError as error:
        raise corrupt(next(iter(without))) from error
    _delete_pack(transaction, partition_key, seq)
    kept = [at for at in range(len(columns)) if head.id_at(at) not in without]
    transaction.inserted -= len(kept)  # they were counted when they came
    if kept:
        rows = packs.taken_from(columns, kept)
        checksums = [checksum if sound[at] else ~checksum for at, checksum in zip(kept, _checksums(rows), strict=True)]
        _insert_rows(transaction, partition_key, rows, checksums)


def _checksums(columns: Columns) -> list[int]:
    kinds, keys = encoded(columns.content_types), encoded(columns.keys)
    return checksums_of(columns.ticks, columns.tails, (kinds, keys, columns.headers), columns.bodies)
