"""What an embedded store remembers by names of clients: idempotency keys, and attempts that share commits."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import apsw
import pytest

from queuey.clock import ManualClock
from queuey.errors import KeyReused, StorageUnavailable
from queuey.model import AppendRequest, IdempotencyKey
from queuey.model.lease_groups import LeaseGroup
from queuey.model.lease_requests import Acknowledged, ReceiveRequest
from queuey.model.lease_steps import GroupStep, LeaseOutcome, LeaseStep
from queuey.storage.contract.common import done, draft
from queuey.storage.sqlite.checked_rows import with_checksum
from queuey.storage.sqlite.moments import Moments
from queuey.storage.sqlite.remembering import KEYS, key_seq, place_of, places_of
from queuey.storage.sqlite.statements import SQL
from queuey.storage.sqlite.transaction import Transaction
from tests.support.opened_leases import Opened

DAY, MINUTES = 86_400, 300
MANY = 32


def _together(opened: Opened, *begin: Callable[[], Any]) -> list[Any]:
    """What these give, or are refused with, in one commit."""
    committer, futures, go_on = opened.stores.file.committer, list[Any](), threading.Event()
    committer.turns.takes = lambda write: False  # type: ignore[method-assign]
    committer.run_between(lambda: (go_on.wait(30), None)[1])
    futures = [one() for one in begin]
    go_on.set()
    found: list[Any] = []
    for one in futures:
        try:
            found.append(done(one))
        except (KeyReused, StorageUnavailable) as refused:
            found.append(refused)
    return found


def _append(opened: Opened, key: str, digest: bytes = b"", seconds: int = DAY) -> Callable[[], Any]:
    request = AppendRequest(opened.log.queue, [draft(b"0")], IdempotencyKey(key, digest, seconds))
    return lambda: opened.stores.messages.append(request)


class Steps:
    """Steps of one group, each with an attempt."""

    def __init__(self, opened: Opened) -> None:
        self._opened, self._group = opened, LeaseGroup(77)

    def receive(self, attempt: str) -> Callable[[], Any]:
        return self._step(
            LeaseStep([self._of({}, (1,))], receive=ReceiveRequest(), attempt=IdempotencyKey(attempt, b""))
        )

    def acknowledge(self, attempt: str, outcome: LeaseOutcome, digest: bytes = b"") -> Callable[[], Any]:
        (one,) = outcome.handed
        settles = {1: Acknowledged([one.message.id], [one.hole.deliveries])}
        return self._step(LeaseStep([self._of(settles, ())], attempt=IdempotencyKey(attempt, digest)))

    def _of(self, settles: dict[int, Acknowledged], receive_from: tuple[int, ...]) -> GroupStep:
        token = self._group.token if settles else None
        return GroupStep(self._opened.log.queue, "workers", self._group, token, settles, (), receive_from)

    def _step(self, step: LeaseStep) -> Callable[[], Any]:
        return lambda: self._opened.stores.leases.step(step)


def _handed(outcomes: list[LeaseOutcome]) -> list[Any]:
    return [[(one.message.id, one.hole.deliveries) for one in outcome.handed] for outcome in outcomes]


def test_a_key_that_stands_twice_in_one_commit_stores_one_message(opened: Opened) -> None:
    first, second, other = _together(opened, _append(opened, "a"), _append(opened, "a"), _append(opened, "a", b"other"))
    assert (first.repeated, second.repeated) == (False, True)
    assert [*first.placed] == [*second.placed]
    assert isinstance(other, KeyReused)
    opened.again()
    assert [*done(_append(opened, "a")()).placed] == [*first.placed]


def test_attempts_of_one_commit_are_answered_again_after_a_restart(opened: Opened) -> None:
    opened.log.add(*[b"%d" % number for number in range(MANY)])
    steps = Steps(opened)
    done(steps.receive("first")())
    received = _together(opened, *[steps.receive(f"r{number}") for number in range(1, MANY)])
    assert len({ids[0] for ids in _handed(received)}) == MANY - 1
    acknowledged = _together(opened, *[steps.acknowledge(f"a{at}", one) for at, one in enumerate(received)])
    assert not any(outcome.stale or outcome.repeated for outcome in acknowledged)

    opened.again()
    again = _together(opened, *[steps.receive(f"r{number}") for number in range(1, MANY)])
    assert _handed(again) == _handed(received)
    assert all(outcome.repeated for outcome in again)
    settled = _together(opened, *[steps.acknowledge(f"a{at}", one) for at, one in enumerate(received)])
    assert all(outcome.repeated and not outcome.stale for outcome in settled)


def test_an_attempt_that_stands_twice_in_one_commit_is_carried_out_once(opened: Opened) -> None:
    opened.log.add(b"0", b"1", b"2")
    steps = Steps(opened)
    done(steps.receive("first")())
    outcomes = _together(opened, steps.receive("a"), steps.receive("a"), steps.receive("b"))
    assert [outcome.repeated for outcome in outcomes] == [False, True, False]
    first, second, other = _handed(outcomes)
    assert first == second != other

    ends = _together(opened, steps.acknowledge("c", outcomes[0]), steps.acknowledge("c", outcomes[0], b"other"))
    assert not ends[0].stale
    assert isinstance(ends[1], KeyReused)


def test_what_is_refused_whole_remembers_no_key(opened: Opened) -> None:
    done(_append(opened, "taken", b"other")())
    queue = opened.log.queue
    keyed = [AppendRequest(queue, [draft(b"0")], IdempotencyKey(key, b"")) for key in ("new", "taken")]
    group = GroupStep(queue, "workers", LeaseGroup(77))
    (refused,) = _together(opened, lambda: opened.stores.leases.step(LeaseStep([group], keyed)))
    assert isinstance(refused, KeyReused)
    assert not done(_append(opened, "new")()).repeated


@pytest.mark.parametrize("rows", [1, 3])
def test_a_row_that_cannot_be_stored_fails_alone(opened: Opened, rows: int) -> None:
    def faulty(transaction: Transaction) -> None:
        for number in range(rows):
            transaction.keep(KEYS, (number + 1, 1, b"", "key", None, b"", 1))

    submit = opened.stores.file.committer.submit
    append, other = _append(opened, "a"), _append(opened, "b")
    stored, failed, also = _together(opened, append, lambda: submit(faulty, grows=True), other)
    assert isinstance(failed, StorageUnavailable)
    assert not stored.repeated
    assert not also.repeated
    assert opened.rows("idempotency") == opened.rows("messages") == 2


def test_each_key_goes_when_it_expires_whatever_came_before(opened: Opened) -> None:
    for key, seconds in (("day", DAY), ("minutes", MINUTES)):
        done(_append(opened, key, seconds=seconds)())
    opened.clock.advance(MINUTES + 1)
    purger = opened.stores.file.purger
    assert purger.has_refuse()
    done(purger.purge(100))
    assert opened.rows("idempotency") == 1
    assert not purger.has_refuse()
    assert done(_append(opened, "day")()).repeated
    opened.clock.advance(DAY)
    done(purger.purge(100))
    assert opened.rows("idempotency") == 0


def test_names_that_share_a_place_are_told_apart(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    opened.log.add(b"0", b"1")
    for module in ("appending", "leases"):
        monkeypatch.setattr(f"queuey.storage.sqlite.{module}.place_of", lambda *name: 7)
    placed = [[*done(_append(opened, key)()).placed] for key in ("a", "b")]
    assert [[*done(_append(opened, key)()).placed] for key in ("a", "b")] == placed
    steps = Steps(opened)
    received = [done(steps.receive(attempt)()) for attempt in ("a", "b")]
    again = [done(steps.receive(attempt)()) for attempt in ("a", "b")]
    assert _handed(again) == _handed(received)


@pytest.mark.parametrize("table", ["idempotency", "lease_attempts"])
def test_names_of_a_dropped_queue_go_with_it(opened: Opened, table: str) -> None:
    opened.log.add(b"0")
    done(_append(opened, "a")())
    done(Steps(opened).receive("a")())
    assert opened.rows(table) == 1
    done(opened.stores.messages.drop(opened.log.queue.uuid))
    done(opened.stores.file.purger.purge(100))
    assert opened.rows(table) == 0


def test_a_group_is_forgotten_in_a_small_commit_however_many_attempts_it_has(opened: Opened) -> None:
    """To delete 300,000 of them at once held up all writes for some seconds."""
    opened.log.add(b"0")
    assert done(Steps(opened).receive("a")()).handed
    done(opened.stores.leases.forget_group(opened.log.queue.uuid, "workers"))
    assert opened.rows("lease_attempts") == 1
    opened.clock.advance(MINUTES + 1)
    done(opened.stores.file.purger.purge(100))
    assert opened.rows("lease_attempts") == 0


def test_attempts_of_a_boot_whose_clock_was_ahead_hold_up_no_others(opened: Opened) -> None:
    opened.log.add(b"0")
    done(Steps(opened).receive("a")())
    opened.stores.close()
    with apsw.Connection(str(opened.path)) as other:
        other.execute("update lease_attempts set expires = expires + 1000000000000000")
        ((elapsed,),) = other.execute("select elapsed from lease_moment")
        other.execute("delete from lease_moment")
        other.execute(SQL["lease_moment_keep"], with_checksum(("another", elapsed, 0)))
    other.close()
    opened.again()
    assert done(Steps(opened).receive("a")()).repeated
    opened.clock.advance(MINUTES + 1)
    done(opened.stores.file.purger.purge(100))
    assert opened.rows("lease_attempts") == 0


def test_a_boot_is_noted_only_with_the_bound_of_earlier_attempts(opened: Opened) -> None:
    """Else the next process of this boot would take them for bounded."""
    file = opened.stores.file

    class Rebooted(ManualClock):
        def boot(self) -> str:
            return "another"

    def begin() -> None:
        file.writer.exec_trace = lambda cursor, sql, bindings: "lease_attempts" not in sql
        with pytest.raises(apsw.ExecTraceAbort):
            Moments(file.writer, Rebooted(), file.ids).lease_clock(keep=True)
        file.writer.exec_trace = None

    done(file.committer.run_between(begin))
    with apsw.Connection(str(opened.path)) as other:
        assert other.execute("select boot from lease_moment").fetchall() == [("manual",)]
    other.close()


def test_a_commit_of_many_attempts_writes_few_pages(opened: Opened) -> None:
    opened.log.add(*[b"0" for _ in range(2 * MANY)])
    steps = Steps(opened)
    done(steps.receive("first")())
    for number in range(40):
        values = [
            (*with_checksum((place_of(b"", f"{number} {at}"), b"", 0, f"{number} {at}", b"", bytes(300))), 1 << 60)
            for at in range(50)
        ]
        with apsw.Connection(str(opened.path)) as other:
            columns = "place, queue, token, key, digest, answer, checksum, expires"
            insert = f"insert into lease_attempts ({columns}) values (?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608
            other.executemany(insert, values)
        other.close()

    def written() -> int:
        found: list[int] = []
        file = opened.stores.file
        look = file.writer.status
        done(file.committer.run_between(lambda: found.append(look(apsw.SQLITE_DBSTATUS_CACHE_WRITE)[0])))
        return found[0]

    before = written()
    outcomes = _together(opened, *[steps.receive(f"r{number}") for number in range(MANY)])
    assert all(outcome.handed for outcome in outcomes)
    assert written() - before < MANY, "each has a page of its own"


def test_keys_of_one_tick_and_of_different_spans_have_different_rows() -> None:
    ticks = range(0x01B21DD213814000, 0x01B21DD213814000 + 5)
    assert len({key_seq(tick, seconds) for tick in ticks for seconds in (DAY, MINUTES)}) == 10


def test_the_names_of_a_queue_lie_together() -> None:
    queue, next_queue = b"\x01\x02\x04" + bytes(13), b"\x01\x02\x06" + bytes(13)
    span = places_of(queue)
    for number in range(100):
        assert span["first_place"] <= place_of(queue, "group", str(number)) <= span["last_place"]
    assert places_of(next_queue)["first_place"] > span["last_place"]
    assert 0 <= span["first_place"] < 1 << 63 > places_of(b"\xff" * 16)["last_place"]
