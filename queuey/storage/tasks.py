"""What a store must do for tasks (:mod:`queuey.model.tasks`)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from uuid import UUID

from queuey.future import Future
from queuey.model.tasks import StoredTask

__all__ = ["TaskStore"]


class TaskStore(ABC):
    """The tasks of queues.

    They are stored with the messages: one :meth:`queuey.storage.MessageStore.drop` ends both (G9).
    """

    @abstractmethod
    def find_task(self, queue: UUID, name: str) -> Future[StoredTask | None]:
        """The newest task of this name, as stored now."""

    @abstractmethod
    def change_task(self, before: StoredTask | None, after: StoredTask) -> Future[bool]:
        """Compare-and-set: store ``after`` if ``before`` is what is stored, or None if there is none.

        :returns: False if something else is stored; then nothing changed.
        :raises QueueNotFound: the queue's incarnation was dropped; nothing is stored.
        """

    @abstractmethod
    def list_tasks(self, queue: UUID, *, start: str = "", limit: int = 1000) -> Future[Sequence[StoredTask]]:
        """One page of the tasks of a queue, by name in code point order.

        The page begins with ``start``, which is included.
        """

    @abstractmethod
    def open_tasks(self, limit: int = 1000) -> Future[Sequence[StoredTask]]:
        """Tasks of all queues that some server has to work on, in no order."""
