"""The memory store is a store."""

from __future__ import annotations

import pytest

from queuey.clock import ManualClock
from queuey.ids import IdGenerator
from queuey.storage.contract import (
    LeaseHistory,
    LeaseStoreContract,
    MessageStoreContract,
    MetadataStoreContract,
    TaskStoreContract,
)
from queuey.storage.contract.common import QueueLog, draft, drive_histories
from queuey.storage.memory import MemoryMessages, MemoryStores


class TestMemoryStores(MessageStoreContract, MetadataStoreContract, LeaseStoreContract, TaskStoreContract):
    histories = 50

    @pytest.fixture
    def stores(self, clock: ManualClock, ids: IdGenerator) -> MemoryStores:
        return MemoryStores(clock, ids)

    def test_any_history_of_leases_is_as_the_model_says(self, stores: MemoryStores, clock: ManualClock) -> None:
        drive_histories(lambda: LeaseHistory(lambda: stores, clock, None), self.histories)

    def test_what_has_expired_takes_no_room_for_long(
        self, store: MemoryMessages, log: QueueLog, clock: ManualClock
    ) -> None:
        for _ in range(10):
            log.append(*[draft(partition=number, ttl_seconds=5) for number in range(1, 101)] * 10)
            clock.advance(10)

        assert sum(len(partition.rows) for partition in store._partitions.values()) <= 2000

    def test_what_was_deleted_takes_no_room_for_long(self, store: MemoryMessages, log: QueueLog) -> None:
        for _ in range(100):
            placed = log.append(*[draft()] * 10).placed
            log.delete(*((one.partition, one.id) for one in placed))

        assert all(len(partition._ids) <= 40 for partition in store._partitions.values())
