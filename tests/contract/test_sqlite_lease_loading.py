"""Large states of lease groups are read by a thread of their own, and nothing waits for one that cannot be read."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from queuey.errors import StorageUnavailable
from queuey.storage.contract.lease_receiver import bodies
from queuey.storage.leasing.changes import StoredChanges
from queuey.storage.sqlite import leases as sqlite_leases
from tests.support.opened_leases import Opened


@pytest.fixture
def large(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> Opened:
    """A store that has to read a state, which counts as large."""
    monkeypatch.setattr(sqlite_leases, "LARGE_BYTES", 0)
    opened.log.add(b"0", b"1")
    opened.jobs().receive()
    opened.again()
    return opened


@pytest.mark.parametrize("error", [MemoryError, RuntimeError])
def test_a_state_that_cannot_be_read_just_now_is_read_later(
    large: Opened, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: type[Exception]
) -> None:
    """What waited for it waited for ever."""

    def fails(*_: Any) -> Any:
        raise error("planted")

    with monkeypatch.context() as planted:
        planted.setattr(StoredChanges, "read", fails)
        with pytest.raises(StorageUnavailable, match="planted"):
            large.jobs().receive()

    assert bodies(large.jobs().receive()) == [b"1"]
    assert "makes no sense" not in caplog.text


def test_a_thread_that_cannot_begin_fails_what_needs_it_alone(large: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """The committer's thread ended with it."""

    def fails(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as planted:
        planted.setattr(threading.Thread, "start", fails)
        with pytest.raises(StorageUnavailable, match="can't start new thread"):
            large.jobs().receive()

    assert bodies(large.jobs().receive()) == [b"1"]
