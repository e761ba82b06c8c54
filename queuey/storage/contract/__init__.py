"""What a store must do, said as tests.

The suite ships with the package, so that a store kept elsewhere can be held to it as well. It
needs pytest and hypothesis. Subclass, and provide a ``store`` fixture::

    class TestMyStore(MessageStoreContract, MetadataStoreContract):
        @pytest.fixture
        def store(self, clock, ids, tmp_path):
            store = MyStore(tmp_path, clock, ids)
            yield store
            store.close()

``clock`` and ``ids`` are fixtures of the suite: a clock that moves when a test says so, and the
generator that the store is to draw its ids from. Each test wants an empty store of its own.

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
    "history",
    "metadata",
    "offsets",
    "reading",
    "repeating",
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
from queuey.storage.contract.metadata import MetadataStoreContract
from queuey.storage.contract.offsets import Committing, OffsetHistory
from queuey.storage.contract.reading import CountingSpans, Fetching, Reading
from queuey.storage.contract.repeating import Repeating
from queuey.storage.contract.timing import Scheduling

__all__ = ["MessageStoreContract", "MetadataHistory", "MetadataStoreContract", "OffsetHistory", "PartitionHistory"]


class MessageStoreContract(
    Appending, Ending, Reading, Fetching, CountingSpans, Changing, Headers, Scheduling, Repeating, Committing
):
    """Every sentence of :class:`~queuey.storage.MessageStore`, and of :class:`~queuey.storage.OffsetStore`."""

    def test_any_history_reads_as_the_model_says(self, store: MessageStore, clock: ManualClock) -> None:
        drive_histories(lambda: PartitionHistory(store, clock), self.histories)
