"""Messages whose queues are in another file than the one that is named are refused: such a store would look like a new one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from queuey.clock import ManualClock
from queuey.errors import ConfigurationError
from queuey.ids import IdGenerator
from queuey.settings import load_settings
from queuey.storage import Stores
from queuey.storage.contract.common import QueueLog, done
from queuey.storage.opening import open_stores
from tests.support.commands import run_in

PARTED = "has no queue: the queues of these messages are in another file"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def opened(folder: Path, clock: ManualClock, metadata: str) -> Stores:
    path = str(folder / metadata) if metadata else ""
    given = {"server": {"data": str(folder)}, "metadata": {"path": path}}
    return open_stores(load_settings(None, {}, given), clock, IdGenerator(clock))


@pytest.fixture(params=["", "metadata.db"], ids=["together", "apart"])
def made(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> str:
    """Where the queues of a store with a message are."""
    metadata = str(request.param)
    stores = opened(tmp_path, clock, metadata)
    log = QueueLog(stores.messages, clock)
    done(stores.metadata.create_queue(log.queue))
    log.add(b"kept")
    stores.close()
    return metadata


def test_a_server_does_not_begin_without_the_queues(tmp_path: Path, clock: ManualClock, made: str) -> None:
    with pytest.raises(ConfigurationError, match=PARTED):
        opened(tmp_path, clock, "" if made else "other.db")

    stores = opened(tmp_path, clock, made)
    assert done(stores.metadata.find_queue("app", "log")) is not None
    stores.close()


def test_a_store_without_messages_may_get_its_queues_elsewhere(tmp_path: Path, clock: ManualClock) -> None:
    opened(tmp_path, clock, "").close()
    opened(tmp_path, clock, "other.db").close()


def test_a_store_whose_last_queue_is_removed_opens(tmp_path: Path, clock: ManualClock, made: str) -> None:
    stores = opened(tmp_path, clock, made)
    queue = done(stores.metadata.find_queue("app", "log"))
    assert queue is not None
    done(stores.metadata.remove_queue(queue))
    stores.close()

    opened(tmp_path, clock, made).close()


def test_messages_alone_are_not_restored(tmp_path: Path, made: str) -> None:
    """The backup of the queues lay beside them, and no setting named it."""
    backup = tmp_path / "backup.db"
    shutil.copy(tmp_path / "queuey.db", backup)

    ended = run_in({}, tmp_path, "restore", str(backup), "--data", str(tmp_path / "restored"))

    assert ended.code == (2 if made else 0)
    assert (PARTED in ended.err) == bool(made)
    assert (tmp_path / "restored" / "queuey.db").exists() == (not made)
