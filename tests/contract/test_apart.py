"""Messages and metadata may live in different stores."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from queuey.clock import ManualClock
from queuey.ids import IdGenerator
from queuey.settings import load_settings
from queuey.storage import Stores
from queuey.storage.contract import MetadataHistory, OffsetHistory, PartitionHistory
from queuey.storage.contract.common import STRONG, QueueLog, StoreContract, done, drive_histories
from queuey.storage.contract.metadata import queue
from queuey.storage.memory import MemoryMetadata
from queuey.storage.opening import open_stores
from queuey.storage.sqlite import SqliteMessages


def open_apart(folder: Path, clock: ManualClock, ids: IdGenerator, metadata: str) -> Stores:
    """Messages in a file of their own, metadata in memory or in another file."""
    overrides = {"server": {"data": str(folder)}, "metadata": {"backend": metadata}}
    return open_stores(load_settings(None, {}, overrides), clock, ids)


class TestApart(StoreContract):
    """Each of the stores passes the whole suite elsewhere; here any history goes through those that were put together."""

    histories = 10

    @pytest.fixture(params=["memory", "sqlite"])
    def stores(
        self, request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock, ids: IdGenerator
    ) -> Iterator[Stores]:
        stores = open_apart(tmp_path, clock, ids, request.param)
        yield stores
        stores.close()

    def test_any_history_reads_as_the_model_says(self, stores: Stores, clock: ManualClock) -> None:
        drive_histories(lambda: PartitionHistory(stores.messages, clock), self.histories)

    def test_any_history_of_offsets_is_as_the_model_says(self, stores: Stores, clock: ManualClock) -> None:
        drive_histories(lambda: OffsetHistory(stores.offsets, clock), self.histories)

    def test_any_history_of_metadata_is_as_the_model_says(self, stores: Stores) -> None:
        drive_histories(lambda: MetadataHistory(stores.metadata), self.histories)

    def test_each_keeps_its_own(self, tmp_path: Path, clock: ManualClock, ids: IdGenerator) -> None:
        stores = open_apart(tmp_path, clock, ids, "memory")
        assert isinstance(stores.messages, SqliteMessages)
        assert isinstance(stores.metadata, MemoryMetadata)
        log = QueueLog(stores.messages, clock)
        done(stores.metadata.create_queue(log.queue))
        log.add(b"kept")
        stores.close()

        again = open_apart(tmp_path, clock, IdGenerator(clock), "memory")

        log.store = again.messages
        assert log.bodies() == [b"kept"]
        assert done(again.metadata.find_queue("app", "log")) is None
        again.close()

    def test_a_queue_is_removed_in_one_and_dropped_in_the_other(self, stores: Stores, clock: ManualClock) -> None:
        log = QueueLog(stores.messages, clock)
        done(stores.metadata.create_queue(log.queue))
        log.add(b"gone")

        done(stores.metadata.remove_queue(log.queue))
        assert log.bodies() == [b"gone"]
        for uuid in done(stores.metadata.removed()):
            done(stores.messages.drop(uuid))
            done(stores.metadata.forget_removed(uuid))

        assert log.bodies() == []
        assert [*done(stores.metadata.removed())] == []

    def test_a_change_of_metadata_tells_no_reader_that_messages_under_way_are_there(
        self, stores: Stores, ids: IdGenerator, clock: ManualClock
    ) -> None:
        """G3: a commit to the one file must not end the other's group."""
        ids.open_group()
        stamp = ids.stamp()
        clock.advance(1)

        done(stores.metadata.create_queue(queue()))

        assert stores.messages.watermark(STRONG) < stamp
        ids.close_group()

    def test_problems_of_both_are_told(self, stores: Stores) -> None:
        assert stores.problems() == []
