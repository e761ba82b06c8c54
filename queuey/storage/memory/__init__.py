"""The store without a disk, for tests and for trying Queuey out.

It also shows in few lines what a store does. One lock makes every call a single step, and every future is done when it
is returned. All data is lost when the process ends.
"""

from __future__ import annotations

from queuey.clock import Clock
from queuey.ids import IdGenerator
from queuey.storage import Stores
from queuey.storage.leasing.book import LeaseBook
from queuey.storage.memory.leases import MemoryLeases
from queuey.storage.memory.messages import MemoryMessages
from queuey.storage.memory.metadata import MemoryMetadata
from queuey.storage.memory.offsets import MemoryOffsets
from queuey.storage.memory.process import Process
from queuey.storage.memory.tasks import MemoryTasks

__all__ = ["MemoryLeases", "MemoryMessages", "MemoryMetadata", "MemoryOffsets", "MemoryStores", "MemoryTasks"]


class MemoryStores(Stores):
    """All stores of one process."""

    messages: MemoryMessages
    leases: MemoryLeases

    def __init__(self, clock: Clock, ids: IdGenerator) -> None:
        process, book = Process(clock), LeaseBook(in_portions=True)
        offsets = MemoryOffsets(process)
        messages = MemoryMessages(process, ids, offsets, book)
        leases = MemoryLeases(process, ids, messages, book)
        super().__init__(messages, offsets, MemoryMetadata(process), leases, MemoryTasks(process))
