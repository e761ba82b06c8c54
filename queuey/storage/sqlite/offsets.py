"""Offsets of groups in an embedded store's file."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence

import apsw

from queuey.errors import QueueNotFound, QueueyError
from queuey.future import Future
from queuey.ids import MessageId
from queuey.model import Offset, OffsetChange, OffsetMove
from queuey.storage import OffsetStore
from queuey.storage.checksums import NONSENSE, making_sense
from queuey.storage.sqlite.checked_rows import names_in, with_checksum, without_checksum
from queuey.storage.sqlite.file import File
from queuey.storage.sqlite.purging import Purge
from queuey.storage.sqlite.statements import SQL
from queuey.storage.sqlite.transaction import Row, Transaction


class SqliteOffsets(OffsetStore):
    """The offsets of groups in one file."""

    def __init__(self, file: File) -> None:
        self._file = file
        file.purger.add(Purge(dropped=("purge_dropped_offsets",)))

    def read_offsets(self, queue: uuid.UUID, group: str) -> Future[Mapping[int, Offset]]:
        if queue.bytes in self._file.dropped:
            return Future.of({})
        return self._file.query(SQL["offset_find"], (queue.bytes, group), _offsets)

    def change_offsets(self, queue: uuid.UUID, group: str, change: OffsetChange) -> Future[Mapping[int, OffsetMove]]:
        group_key = (queue.bytes, group)

        def job(transaction: Transaction) -> Mapping[int, OffsetMove]:
            if queue.bytes in self._file.dropped:
                raise QueueNotFound
            with making_sense():
                stored = _offsets(transaction.look(SQL["offset_find"], group_key))
            moves = change.moves(stored, self._file.clock.now_ticks())
            for number, (_, after) in moves.items():
                transaction.look(SQL["offset_keep"], with_checksum((*group_key, number, *_offset_row(after))))
            return moves

        try:
            with self._file.readers.lend() as reader:
                known = _offsets(reader.ask(SQL["offset_find"], group_key, list))
        except (QueueyError, apsw.Error, *NONSENSE) as error:
            return Future.failed(self._file.read_failed(error))
        # Existing rows need no more space. So on a full disk commits go on (G18), and only new rows are refused.
        return self._file.committer.submit(job, grows=not change.ids.keys() <= known.keys())

    def list_groups(self, queue: uuid.UUID, *, start: str = "", limit: int = 1000) -> Future[Sequence[str]]:
        if queue.bytes in self._file.dropped:
            return Future.of([])
        return self._file.query(SQL["offset_groups"], (queue.bytes, start, limit), names_in)

    def forget_group(self, queue: uuid.UUID, group: str) -> Future[None]:
        return self._file.change(SQL["offset_forget"], (queue.bytes, group))


def _offsets(rows: Iterable[Row]) -> dict[int, Offset]:
    return {
        number: Offset(None if ticks is None else MessageId(ticks, tail), generation, set_ticks)
        for _, _, number, ticks, tail, generation, set_ticks in map(without_checksum, rows)
    }


def _offset_row(offset: Offset) -> Row:
    return (*(offset.id or (None, None)), offset.generation, offset.set_ticks)
