"""Threads that do the same again and again: one failure, of whatever kind, ends none of them."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from qdo.groups import local
from qdo.groups.local import LocalCoordinator
from qdo.groups.zookeeper import Membership
from queuey.clock import ManualClock
from queuey.storage import cassandra
from queuey.storage.cassandra import NodeClocks
from queuey.storage.cassandra.clock import ClockGuard
from queuey.storage.sqlite.readers import LookupThread

WAIT_SECONDS = 30


class FailsOnce:
    """Raises what nobody expects, and is reached once more after that."""

    def __init__(self) -> None:
        self.again = threading.Event()
        self._failed = False

    def __call__(self, *_: Any, **__: Any) -> Any:
        if self._failed:
            self.again.set()
            return ()
        self._failed = True
        raise ZeroDivisionError


@pytest.fixture
def fails_once() -> FailsOnce:
    return FailsOnce()


def test_the_clocks_of_nodes_are_asked_again(fails_once: FailsOnce, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every later append would have been refused: no node had told its time lately."""
    monkeypatch.setattr(cassandra, "SAMPLE_SECONDS", 0.01)
    session: Any = SimpleNamespace(hosts=lambda: ())
    clocks = NodeClocks(session, ManualClock(), ClockGuard(ManualClock(), 1.0))
    clocks.start()
    session.hosts = fails_once

    assert fails_once.again.wait(WAIT_SECONDS)
    clocks.stop()


def test_the_clocks_of_nodes_are_asked_soon_again_while_none_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """When all nodes had been away, calls were refused for five seconds more once they were back."""
    again, looks = threading.Event(), list[int]()

    def no_host_is_up() -> Sequence[Any]:
        monkeypatch.setattr(cassandra, "SAMPLE_SECONDS", 3600.0)
        looks.append(1)
        if len(looks) > 1:
            again.set()
        return ()

    monkeypatch.setattr(cassandra, "SAMPLE_SECONDS", 0.01)
    session: Any = SimpleNamespace(hosts=lambda: ())
    clocks = NodeClocks(session, ManualClock(), ClockGuard(ManualClock(), 1.0))
    clocks.start()
    session.hosts = no_host_is_up

    assert again.wait(WAIT_SECONDS)
    clocks.stop()


def test_questions_are_answered_after_one_that_went_wrong() -> None:
    def find_all(asked: Sequence[int]) -> Sequence[int]:
        return asked if 2 in asked else ()

    lookups = LookupThread(find_all)
    with pytest.raises(ValueError, match="zip"):
        lookups.ask(1).wait(WAIT_SECONDS)

    assert lookups.ask(2).wait(WAIT_SECONDS) == 2
    lookups.close()


def test_a_question_that_goes_wrong_fails_no_other_that_came_with_it() -> None:
    """One damaged queue failed requests to others, now and then."""
    begun, goes_on, together = threading.Event(), threading.Event(), list[int]()

    def find_all(asked: Sequence[int]) -> Sequence[int]:
        begun.set()
        assert goes_on.wait(WAIT_SECONDS)
        together.append(len(asked))
        if 2 in asked:
            raise ValueError("planted")
        return asked

    lookups = LookupThread(find_all)
    futures = [lookups.ask(0)]
    assert begun.wait(WAIT_SECONDS)
    futures += [lookups.ask(number) for number in (1, 2, 3)]
    goes_on.set()

    assert [futures[at].wait(WAIT_SECONDS) for at in (0, 1, 3)] == [0, 1, 3]
    with pytest.raises(ValueError, match="planted"):
        futures[2].wait(WAIT_SECONDS)
    assert together[:2] == [1, 3]
    lookups.close()


def test_a_member_of_a_local_group_looks_again(
    fails_once: FailsOnce, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(local, "LOOK_SECONDS", 0.01)
    member = LocalCoordinator("group", tmp_path)
    monkeypatch.setattr(member, "look", fails_once)
    member.join({})

    assert fails_once.again.wait(WAIT_SECONDS)
    member.close()


def test_a_member_of_a_group_in_zookeeper_asks_again(caplog: pytest.LogCaptureFixture) -> None:
    """Its session lived on, and with it its claims, while it trusted itself no more and did nothing."""
    answers = iter([ZeroDivisionError("planted"), None])
    turns = iter([False, False, True])

    def get(timeout: float) -> None:
        error = next(answers)
        if error is not None:
            raise error

    client = SimpleNamespace(connected=True, sync_async=lambda _: SimpleNamespace(get=get))
    member: Any = SimpleNamespace(
        _over=SimpleNamespace(wait=lambda _: next(turns)),
        _session=SimpleNamespace(timeout_seconds=6.0, client=client, number=lambda: 1),
        _nodes=SimpleNamespace(root="/"),
        _clock=ManualClock(),
        name="me",
        session_number=1,
        _heard=-1.0,
    )
    Membership._beat(member)

    assert member._heard == member._clock.elapsed()
    assert "planted" in caplog.text
