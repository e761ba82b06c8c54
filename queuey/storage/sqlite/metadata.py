"""Queues and application keys in an embedded store's file."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from queuey.future import Future
from queuey.model import Consistency, PrincipalKey, Queue, QueueKind, Retention
from queuey.model.lease_groups import LeaseDefaults
from queuey.storage import MetadataStore
from queuey.storage.checksums import NONSENSE, making_sense
from queuey.storage.sqlite.checked_rows import with_checksum, without_checksum
from queuey.storage.sqlite.file import File
from queuey.storage.sqlite.readers import LookupThread
from queuey.storage.sqlite.statements import SQL
from queuey.storage.sqlite.transaction import Row, Transaction


class SqliteMetadata(MetadataStore):
    """The queues and application keys of one file."""

    def __init__(self, file: File) -> None:
        self.file = file
        """The file that has them."""
        self._lookups = LookupThread(self._find_all)
        file.add_running(self._lookups)
        self._lookups.ask(("", "")).wait()  # opens its connection while the file surely exists (G18)

    def create_queue(self, queue: Queue) -> Future[tuple[Queue, bool]]:
        def job(transaction: Transaction) -> tuple[Queue, bool]:
            rows = transaction.look(SQL["queue_find"], (queue.application, queue.name))
            if rows:
                with making_sense():
                    stored = _queue(rows[0])
                return stored, stored.uuid == queue.uuid
            transaction.look(SQL["queue_insert"], with_checksum(_QueueRow.of(queue)))
            return queue, True

        return self.file.committer.submit(job, grows=True)

    def find_queue(self, application: str, name: str) -> Future[Queue | None]:
        return self._lookups.ask((application, name))

    def _find_all(self, names: Sequence[tuple[str, str]]) -> Sequence[Queue | None]:
        """The queues with these applications and names, in order."""
        if len(names) == 1:
            return [
                self.file.query(SQL["queue_find"], names[0], lambda rows: _queue(rows[0]) if rows else None).result()
            ]
        rows = self.file.query(SQL["queues_find"], (json.dumps(names),), lambda rows: json.loads(rows[0][0])).result()
        try:
            found = {
                (application, name): _queue((application, name, bytes.fromhex(key), *settings))
                for application, name, key, *settings in rows
            }
        except NONSENSE as error:
            raise self.file.read_failed(error) from error
        return [found.get(name) for name in names]

    def replace_queue(self, old: Queue, new: Queue) -> Future[bool]:
        def job(transaction: Transaction) -> bool:
            rows = transaction.look(SQL["queue_find"], (old.application, old.name))
            with making_sense():
                if not rows or _queue(rows[0]) != old:
                    return False
            row = _QueueRow.of(new)
            transaction.look(SQL["queue_update"], row._asdict() | {"checksum": with_checksum(row)[-1]})
            return True

        return self.file.committer.submit(job, grows=True)

    def remove_queue(self, queue: Queue) -> Future[bool]:
        def job(transaction: Transaction) -> bool:
            transaction.look(SQL["queue_delete"], (queue.application, queue.name, queue.uuid.bytes))
            if not transaction.connection.changes():
                return False
            transaction.look(SQL["removed_keep"], (queue.uuid.bytes,))
            return True

        return self.file.committer.submit(job, grows=False)

    def removed(self, limit: int = 100) -> Future[Sequence[uuid.UUID]]:
        return self.file.query(SQL["removed_list"], (limit,), lambda rows: [uuid.UUID(bytes=row[0]) for row in rows])

    def forget_removed(self, queue: uuid.UUID) -> Future[None]:
        return self.file.change(SQL["removed_forget"], (queue.bytes,))

    def list_queues(self, application: str, *, start: str = "", limit: int = 1000) -> Future[Sequence[Queue]]:
        return self.file.query(
            SQL["queue_list"], (application, start, limit), lambda rows: [_queue(row) for row in rows]
        )

    def list_named(
        self, application: str, principal: str, *, start: str = "", limit: int = 1000
    ) -> Future[Sequence[Queue]]:
        bindings = (application, principal, start, limit)
        return self.file.query(SQL["queue_list_named"], bindings, lambda rows: [_queue(row) for row in rows])

    def add_key(self, key: PrincipalKey) -> Future[None]:
        row = (key.digest, key.principal, key.label, key.created_ticks)
        return self.file.change(SQL["key_insert"], with_checksum(row))

    def keys(self) -> Future[Sequence[PrincipalKey]]:
        return self.file.query(SQL["key_list"], (), _keys)

    def remove_key(self, principal: str, label: str) -> Future[int]:
        def job(transaction: Transaction) -> int:
            transaction.look(SQL["key_delete"], (principal, label))
            return transaction.connection.changes()

        return self.file.committer.submit(job, grows=False)

    def problems(self) -> Sequence[str]:
        return self.file.problems()

    def close(self) -> None:
        self.file.close()


class _QueueRow(NamedTuple):
    """A queue as a row of ``queues``."""

    application: str
    name: str
    uuid: bytes
    created: int
    partitions: int
    kind: str
    consistency: str
    principals: str
    """The principals as a JSON list."""
    leases: str
    """What its lease groups begin with, as JSON."""
    retention: str
    attributes: str

    @classmethod
    def of(cls, queue: Queue) -> _QueueRow:
        return cls(
            queue.application,
            queue.name,
            queue.uuid.bytes,
            queue.created_ticks,
            queue.partitions,
            str(queue.kind),
            str(queue.consistency),
            json.dumps(queue.principals),
            queue.leases.text,
            str(queue.retention),
            queue.attributes,
        )

    def queue(self) -> Queue:
        return Queue(
            self.application,
            self.name,
            uuid.UUID(bytes=self.uuid),
            self.created,
            self.partitions,
            QueueKind(self.kind),
            Consistency(self.consistency),
            tuple(json.loads(self.principals)),
            LeaseDefaults(self.leases),
            Retention(self.retention),
            self.attributes,
        )


def _queue(row: Row) -> Queue:
    return _QueueRow(*without_checksum(row)).queue()


def _keys(rows: Sequence[Row]) -> list[PrincipalKey]:
    """Those that are sound. A damaged one gives no rights, and takes none from the others; the search for damage names it."""
    keys = []
    for stored_digest, *texts, stored_created, checksum in rows:
        with suppress(*NONSENSE):
            row = (stored_digest, *(str(text, "utf-8") for text in texts), stored_created, checksum)
            digest, principal, label, created = without_checksum(row)
            keys.append(PrincipalKey(principal, digest, label, created))
    return keys
