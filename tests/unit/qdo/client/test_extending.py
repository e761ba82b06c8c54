"""Leases that are extended in the background."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Sequence
from queue import SimpleQueue

import pytest

from qdo.client import extending
from qdo.client.extending import Extender, HeldLease
from queuey.errors import ServerUnreachable


class Sent:
    """What an extender sends: it answers by hand."""

    def __init__(self) -> None:
        self.receipts: SimpleQueue[list[str]] = SimpleQueue()
        self.stale: set[str] = set()
        self.fails = False
        self.closed = 0

    def send(self, leases: Sequence[HeldLease]) -> set[str]:
        assert len({(lease.queue, lease.group) for lease in leases}) == 1
        self.receipts.put(sorted(lease.receipt for lease in leases))
        if self.fails:
            raise ServerUnreachable
        return self.stale

    def close(self) -> None:
        self.closed += 1

    def next(self) -> list[str]:
        return self.receipts.get(timeout=90)


@pytest.fixture
def sent() -> Sent:
    return Sent()


@pytest.fixture
def extender(sent: Sent) -> Iterator[Extender]:
    extender = Extender(sent.send, sent.close)
    yield extender
    extender.close()


def lease(receipt: str, seconds: float = 3000, *, group: str = "g", due: float = 0.0) -> HeldLease:
    """One that is due, and then not for a long time."""
    return HeldLease("q", group, receipt, seconds, due or time.monotonic())


def test_leases_that_are_due_go_in_one_request_for_each_group(extender: Extender, sent: Sent) -> None:
    with extender._changed:  # it looks when all of them are there
        for receipt, group in (("a", "g"), ("b", "h"), ("c", "g")):
            extender.keep(lease(receipt, group=group))
        extender.keep(lease("d", due=time.monotonic() + 3600))

    assert sorted([sent.next(), sent.next()]) == [["a", "c"], ["b"]]


def test_a_lease_is_extended_each_third_of_its_length(extender: Extender, sent: Sent) -> None:
    one = lease("a", 30)
    before = time.monotonic()

    extender.keep(one)

    assert sent.next() == ["a"]
    deadline = time.monotonic() + 90
    while one.due < before + 10:
        assert time.monotonic() < deadline
    assert one.due <= time.monotonic() + 10


def test_a_process_that_was_forked_extends_no_leases_of_the_other(
    extender: Extender, sent: Sent, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_the_other = lease("of the other", due=time.monotonic() + 3600)
    extender.keep(of_the_other)
    lock_of_the_other = extender._changed

    with lock_of_the_other, monkeypatch.context() as forked:  # its thread cannot go on, as after a fork
        forked.setattr(os, "getpid", lambda: -1)
        of_the_other.due = time.monotonic()
        extender.keep(lease("own"))
        first = sent.next()
        extender.drop(of_the_other)
        extender.close()
        lock_of_the_other.notify_all()

    assert first == ["own"]


def test_a_lease_that_is_due_earlier_wakes_the_thread(extender: Extender, sent: Sent) -> None:
    extender.keep(lease("late", due=time.monotonic() + 3600))
    extender.keep(lease("early"))

    assert sent.next() == ["early"]


@pytest.mark.parametrize("settled", [True, False])
def test_a_stale_lease_is_lost_unless_it_was_settled_meanwhile(extender: Extender, sent: Sent, settled: bool) -> None:
    one, other = lease("a", 1), lease("b", 1)
    sent.stale = {"a"}

    def answer(leases: Sequence[HeldLease]) -> set[str]:
        one.is_over = settled
        return Sent.send(sent, leases)

    extender._send = answer
    extender.keep(one)
    extender.keep(other)
    while sent.next() != ["b"]:
        """The first is sent once, and the other goes on."""

    assert (one.is_lost, other.is_lost) == (not settled, False)


def test_a_lease_that_could_not_be_extended_is_tried_again(extender: Extender, sent: Sent) -> None:
    sent.fails = True
    one = lease("a", 1)
    extender.keep(one)

    assert [sent.next(), sent.next()] == [["a"], ["a"]]
    assert not one.is_lost


def test_leases_that_are_dropped_or_over_are_not_sent(extender: Extender, sent: Sent) -> None:
    dropped, over = lease("dropped"), lease("over")
    with extender._changed:  # it looks when this is done
        for one in (dropped, over, lease("left")):
            extender.keep(one)
        extender.drop(dropped)
        over.is_over = True

    assert sent.next() == ["left"]


def test_a_thread_ends_when_it_has_nothing_to_do_and_begins_again(sent: Sent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extending, "IDLE_SECONDS", 0.01)
    extender = Extender(sent.send, sent.close)
    for receipt in "ab":
        one = lease(receipt)
        extender.keep(one)
        thread = extender._thread
        assert sent.next() == [receipt]
        extender.drop(one)
        assert thread is not None
        extender.keep(
            other := lease("x", due=time.monotonic() + 0.01)
        )  # wakes it, so that it sees that there is nothing
        extender.drop(other)
        thread.join(90)
        assert not thread.is_alive()


def test_an_extender_that_is_closed_ends_its_thread_and_connections(extender: Extender, sent: Sent) -> None:
    extender.keep(lease("a", due=time.monotonic() + 3600))
    thread = extender._thread

    extender.close()

    assert thread is not None
    assert not thread.is_alive()
    assert thread not in threading.enumerate()
    assert sent.closed == 1


def test_an_answer_that_is_none_leaves_the_leases_to_the_next_try(extender: Extender, sent: Sent) -> None:
    """The thread would have ended, and every lease with it."""
    extender._send = lambda leases: {}[sent.send(leases)]  # type: ignore[index]
    one = lease("a", 1)
    extender.keep(one)
    assert sent.next() == ["a"]
    extender._send = sent.send

    assert sent.next() == ["a"]
    assert not one.is_lost


def test_no_request_names_more_leases_than_a_server_takes(extender: Extender, sent: Sent) -> None:
    with extender._changed:  # it looks when all of them are there
        for number in range(2500):
            extender.keep(lease(str(number)))

    assert sorted(len(sent.next()) for _ in range(3)) == [500, 1000, 1000]
