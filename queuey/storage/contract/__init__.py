"""What a store must do, written as tests.

The suite ships with the package, so that it can check other people's stores too. It needs pytest and hypothesis.
Subclass, and provide a ``store`` fixture::

    class TestMyStore(MessageStoreContract, MetadataStoreContract):
        @pytest.fixture
        def store(self, clock, ids, tmp_path):
            store = MyStore(tmp_path, clock, ids)
            yield store
            store.close()

``clock`` and ``ids`` are fixtures of the suite: a clock that moves when a test moves it, and the generator from which
the store must draw its ids. Each test needs an empty store of its own.

:class:`PartitionHistory`, :class:`OffsetHistory` and :class:`MetadataHistory` are the state machines behind the tests
named ``test_any_history_...``; they compare a store with a plain dict.
"""

from __future__ import annotations

import pytest

_PARTS = (
    "appending",
    "changing",
    "common",
    "headers",
    "lease_history",
    "lease_order",
    "lease_queues",
    "lease_receiver",
    "lease_sharing",
    "leases",
    "history",
    "metadata",
    "offsets",
    "reading",
    "repeating",
    "tasks",
    "timing",
)
pytest.register_assert_rewrite(*(f"{__name__}.{part}" for part in _PARTS))  # so that a failure shows its values

# ruff: noqa: E402
from queuey.clock import ManualClock
from queuey.storage import MessageStore
from queuey.storage.contract.appending import Appending, Ending
from queuey.storage.contract.changing import Changing
from queuey.storage.contract.common import drive_histories
from queuey.storage.contract.headers import Headers
from queuey.storage.contract.history import MetadataHistory, PartitionHistory
from queuey.storage.contract.lease_history import LeaseHistory
from queuey.storage.contract.lease_sharing import SharingHistory
from queuey.storage.contract.leases import LeaseStoreContract
from queuey.storage.contract.metadata import MetadataStoreContract
from queuey.storage.contract.offsets import Committing, OffsetHistory
from queuey.storage.contract.reading import CountingSpans, Fetching, Reading
from queuey.storage.contract.repeating import Repeating
from queuey.storage.contract.tasks import TaskStoreContract
from queuey.storage.contract.timing import Scheduling

__all__ = [
    "LeaseHistory",
    "LeaseStoreContract",
    "MessageStoreContract",
    "MetadataHistory",
    "MetadataStoreContract",
    "OffsetHistory",
    "PartitionHistory",
    "SharingHistory",
    "TaskStoreContract",
]


class MessageStoreContract(
    Appending, Ending, Reading, Fetching, CountingSpans, Changing, Headers, Scheduling, Repeating, Committing
):
    """Every sentence of :class:`~queuey.storage.MessageStore` and the offset store."""

    def test_any_history_reads_as_the_model_says(self, store: MessageStore, clock: ManualClock) -> None:
        drive_histories(lambda: PartitionHistory(store, clock), self.histories)
