"""Queues and keys, in memory."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from uuid import UUID

from queuey.future import Future
from queuey.model import PrincipalKey, Queue
from queuey.storage import MetadataStore
from queuey.storage.memory.process import Process

__all__ = ["MemoryMetadata"]


class MemoryMetadata(MetadataStore):
    """Queues and application keys of one process."""

    def __init__(self, process: Process) -> None:
        self._lock = process.lock
        self._queues: dict[str, dict[str, Queue]] = {}
        self._names: dict[str, list[str]] = {}
        self._named: dict[tuple[str, str], list[str]] = {}
        """Sorted names of queues by application and principal."""
        self._removed: dict[UUID, None] = {}
        self._keys: dict[bytes, PrincipalKey] = {}

    def create_queue(self, queue: Queue) -> Future[tuple[Queue, bool]]:
        with self._lock:
            queues = self._queues.setdefault(queue.application, {})
            if queue.name not in queues:
                queues[queue.name] = queue
                insort(self._names.setdefault(queue.application, []), queue.name)
                self._index(queue)
            stored = queues[queue.name]
        return Future.of((stored, stored.uuid == queue.uuid))

    def find_queue(self, application: str, name: str) -> Future[Queue | None]:
        with self._lock:
            return Future.of(self._queues.get(application, {}).get(name))

    def replace_queue(self, old: Queue, new: Queue) -> Future[bool]:
        with self._lock:
            queues = self._queues.get(old.application, {})
            if queues.get(old.name) != old:
                return Future.of(False)
            queues[old.name] = new
            self._unindex(old)
            self._index(new)
            return Future.of(True)

    def remove_queue(self, queue: Queue) -> Future[bool]:
        with self._lock:
            queues = self._queues.get(queue.application, {})
            stored = queues.get(queue.name)
            if stored is None or stored.uuid != queue.uuid:
                return Future.of(False)
            del queues[queue.name]
            names = self._names[queue.application]
            del names[bisect_left(names, queue.name)]
            self._unindex(stored)
            self._removed[queue.uuid] = None
            return Future.of(True)

    def removed(self, limit: int = 100) -> Future[Sequence[UUID]]:
        with self._lock:
            return Future.of(list(self._removed)[:limit])

    def forget_removed(self, queue: UUID) -> Future[None]:
        with self._lock:
            self._removed.pop(queue, None)
        return Future.of(None)

    def list_queues(self, application: str, *, start: str = "", limit: int = 1000) -> Future[Sequence[Queue]]:
        with self._lock:
            names = self._names.get(application, [])
            first = bisect_left(names, start)
            return Future.of([self._queues[application][name] for name in names[first : first + limit]])

    def list_named(
        self, application: str, principal: str, *, start: str = "", limit: int = 1000
    ) -> Future[Sequence[Queue]]:
        with self._lock:
            names = self._named.get((application, principal), [])
            first = bisect_left(names, start)
            return Future.of([self._queues[application][name] for name in names[first : first + limit]])

    def _index(self, queue: Queue) -> None:
        for principal in set(queue.principals):
            insort(self._named.setdefault((queue.application, principal), []), queue.name)

    def _unindex(self, queue: Queue) -> None:
        for principal in set(queue.principals):
            at = (queue.application, principal)
            names = self._named[at]
            del names[bisect_left(names, queue.name)]
            if not names:
                del self._named[at]

    def add_key(self, key: PrincipalKey) -> Future[None]:
        with self._lock:
            self._keys.setdefault(key.digest, key)
        return Future.of(None)

    def keys(self) -> Future[Sequence[PrincipalKey]]:
        with self._lock:
            return Future.of(sorted(self._keys.values(), key=lambda key: (key.created_ticks, key.digest)))

    def remove_key(self, principal: str, label: str) -> Future[int]:
        with self._lock:
            found = [key for key in self._keys.values() if (key.principal, key.label) == (principal, label)]
            for key in found:
                del self._keys[key.digest]
        return Future.of(len(found))

    def problems(self) -> Sequence[str]:
        return ()

    def close(self) -> None:
        """Do nothing: this store holds no resources."""
