"""Lease groups in the embedded store: across restarts, and beside what fails."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import Any

import apsw
import pytest
from hypothesis import Phase, settings
from hypothesis.errors import Flaky
from hypothesis.stateful import run_state_machine_as_test

from queuey.errors import InvalidReceipt, OutcomeUnknown, QueueyError, StorageUnavailable
from queuey.model import AppendRequest, IdempotencyKey, holes
from queuey.model.lease_groups import ORDER_BY_KEY, GroupSettings, LeaseGroup
from queuey.model.lease_requests import Action, ReceiveRequest
from queuey.model.lease_state import LeaseState
from queuey.model.lease_steps import GroupStep, LeaseStep
from queuey.storage.contract import LeaseHistory
from queuey.storage.contract.common import HISTORIES, QueueLog, done, draft, drive_histories
from queuey.storage.contract.lease_passing import append_for
from queuey.storage.contract.lease_receiver import Receiver, bodies, settle_of
from queuey.storage.leasing import book as leasing_book
from queuey.storage.leasing import changes as leasing_changes
from queuey.storage.leasing import partition_book, passing
from queuey.storage.leasing.changes import StoredChanges
from queuey.storage.sqlite import leases as sqlite_leases
from queuey.storage.sqlite.lease_loading import StatePlace
from queuey.storage.sqlite.transaction import LEASE_CHANGES, CommitFailed, Kind, Transaction
from queuey.storage.sqlite.writes import PutOff
from tests.support.opened_leases import Opened


def test_any_history_of_leases_is_as_the_model_says(opened: Opened) -> None:
    drive_histories(lambda: LeaseHistory(lambda: opened.stores, opened.clock, opened.again), 25)


@pytest.fixture
def folding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each state is large: it is folded all the time, in small portions, and read outside of the committer's turn. And a
    step passes over few messages.
    """
    monkeypatch.setattr(partition_book, "AHEAD", 2)
    monkeypatch.setattr(passing, "LEAST_TOGETHER", 2)
    monkeypatch.setattr(passing, "MOST_PASSED_OVER", 3)
    monkeypatch.setattr(holes, "_CHUNK", 2)
    monkeypatch.setattr(leasing_book, "FOLD_BYTES", 16)
    monkeypatch.setattr(leasing_changes, "_BLOCKS_TOGETHER", 1)
    monkeypatch.setattr(leasing_changes, "_MOST_BLOCKS", 1)
    monkeypatch.setattr(leasing_changes, "_DROPPED_TOGETHER", 2)
    monkeypatch.setattr(sqlite_leases, "LARGE_BYTES", 0)


@pytest.mark.usefixtures("folding")
def test_any_history_of_large_states_is_as_the_model_says(opened: Opened) -> None:
    drive_histories(lambda: LeaseHistory(lambda: opened.stores, opened.clock, opened.again), 15)


@pytest.mark.usefixtures("folding")
def test_a_large_state_is_folded_over_many_commits(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    opened.log.append(*[draft(b"x")] * 40)
    monkeypatch.setattr(leasing_book, "FOLD_BYTES", 800)
    jobs = opened.jobs()
    held = [jobs.receive(visibility_seconds=9999.0)[0] for _ in range(20)]
    seen = set()
    for _ in range(6):
        for one in held[5:10]:
            assert jobs.settle(one, Action.EXTEND, seconds=9999.0)
            seen.add(opened.rows("lease_changes"))
        opened.again()
        jobs = opened.jobs()
        assert (jobs.count().holes, jobs.count().leased) == (20, 20)
    assert max(seen) < 60, "older changes are deleted, some at a time"
    assert all(opened.jobs().settle(one) for one in held)


@pytest.mark.usefixtures("folding")
def test_steps_wait_for_a_large_state_and_others_do_not(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    opened.log.append(*[draft(b"x")] * 9)
    (held,) = opened.jobs().receive()
    opened.again()
    reading, goes_on = threading.Event(), threading.Event()
    read = StoredChanges.read
    reads = []

    def slow(self: StoredChanges, *given: Any) -> Any:
        reads.append(self.partition)
        reading.set()
        assert goes_on.wait(30)
        return read(self, *given)

    monkeypatch.setattr(StoredChanges, "read", slow)
    step = LeaseStep([GroupStep(opened.log.queue, "workers", None, receive_from=(1,))], receive=ReceiveRequest(2))
    both: list[Any] = [opened.stores.leases.step(step) for _ in range(2)]
    assert reading.wait(30)
    counted: Any = opened.stores.leases.count(opened.log.queue.uuid, "workers", [1])
    opened.log.append(draft(b"beside"))
    assert not any(one.done for one in (*both, counted))
    goes_on.set()
    assert [len(done(one).handed) for one in both] == [2, 2]
    assert done(counted)[1].holes in (1, 3, 5), "the three may come in any order"
    assert opened.jobs().count().holes == 5
    assert opened.jobs().settle(held)
    assert reads == [1], "it is read once"


@pytest.mark.usefixtures("folding")
def test_a_state_that_changed_while_it_was_read_is_read_again(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    opened.log.add(b"0", b"1", b"2")
    opened.jobs().receive()
    opened.again()
    read, planted = StoredChanges.read, [True]

    def meanwhile(self: StoredChanges, *given: Any) -> Any:
        found = read(self, *given)
        if planted:
            planted.clear()
            self.next += 7
        return found

    monkeypatch.setattr(StoredChanges, "read", meanwhile)
    assert bodies(opened.jobs().receive()) == [b"1"]
    assert not planted


@pytest.mark.usefixtures("folding")
def test_a_store_that_closes_refuses_what_waits_for_a_state(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    opened.log.add(b"0", b"1")
    opened.jobs().receive()
    opened.again()
    reading, goes_on = threading.Event(), threading.Event()
    read = StoredChanges.read

    def slow(self: StoredChanges, *given: Any) -> Any:
        reading.set()
        assert goes_on.wait(30)
        return read(self, *given)

    monkeypatch.setattr(StoredChanges, "read", slow)
    step = LeaseStep([GroupStep(opened.log.queue, "workers", None, receive_from=(1,))], receive=ReceiveRequest(2))
    waiting = opened.stores.leases.step(step)
    assert reading.wait(30)
    closing = threading.Thread(target=opened.stores.close)
    closing.start()
    with pytest.raises(StorageUnavailable, match="closing"):
        done(waiting)
    goes_on.set()
    closing.join()


def test_leases_and_answers_outlive_a_restart_and_a_stepped_clock(opened: Opened) -> None:
    opened.log.add(*[b"%d" % number for number in range(5)])
    opened.log.watermark()
    attempt: dict[str, Any] = {"attempt": IdempotencyKey("a", b""), "receive": ReceiveRequest(2, 100.0)}
    first = opened.jobs().step(**attempt)
    opened.clock.step(1000)
    opened.again()
    again = opened.jobs().step(**attempt)
    assert again.repeated
    assert list(again.handed) == list(first.handed)
    assert bodies(opened.jobs().receive(9)) == [b"2", b"3", b"4"]
    opened.clock.step(-2000)
    opened.again()
    opened.clock.advance(101)
    assert bodies(opened.jobs().receive(9)) == [b"2"], "it goes alone, and its lease ran out first"
    assert opened.jobs().settle(first.handed[0]), "its lease ran out, and nobody else has the message"


def test_keys_are_in_order_across_restarts(opened: Opened) -> None:
    drafts = [draft(b"%d" % at, key="ab"[at % 2]) for at in range(40)]
    opened.log.append(*drafts)
    found: list[bytes] = []
    while True:
        opened.again()
        jobs = opened.jobs(order=ORDER_BY_KEY)
        handed = jobs.receive(9)
        if not handed:
            break
        found += bodies(handed)
        opened.again()
        assert not opened.jobs(order=ORDER_BY_KEY).step({1: [settle_of(one) for one in handed]}).stale
    assert found == [b"%d" % at for at in range(40)]


def test_what_is_overwritten_behind_a_key_is_handed_out_after_a_restart(opened: Opened) -> None:
    """The file knows of the messages that wait only where those of their key begin."""
    placed = opened.log.append(*[draft(b"%d" % at, key="a") for at in range(3)]).placed
    jobs = opened.jobs(order=ORDER_BY_KEY, per_key=9)
    (first,) = jobs.receive()
    assert not jobs.receive()
    opened.log.put(placed[1], body=b"new")
    opened.again()
    jobs = opened.jobs()
    assert jobs.settle(first)
    assert [(one.message.body, one.message.key) for one in jobs.receive(9)] == [(b"new", "a"), (b"2", "a")]


def test_what_was_passed_over_stays_so_after_a_restart(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passing, "MOST_PASSED_OVER", 100)
    append_for(opened.log, "others", 1000)
    opened.log.add(b"mine")
    handed, steps = opened.jobs().receive(), 1
    while not handed and steps < 12:
        opened.again()
        handed, steps = opened.jobs().receive(), steps + 1
    assert bodies(handed) == [b"mine"]
    assert 5 < steps < 12


def test_after_a_restart_a_receive_looks_up_a_key_in_steps(opened: Opened) -> None:
    drafts = [draft(b"%d" % at, key="a") for at in range(2500)]
    opened.log.append(draft(b"first", key="b"), *drafts, draft(b"last", key="b"))
    first, _ = opened.jobs(order=ORDER_BY_KEY).receive(2)
    assert not opened.jobs(order=ORDER_BY_KEY).receive()
    assert opened.jobs().settle(first)
    opened.again()
    steps = 1
    jobs = opened.jobs()
    while not (handed := jobs.receive()):
        assert jobs.outcome.more
        steps += 1
    assert (bodies(handed), steps) == ([b"last"], 3)


def test_changes_are_folded_and_forgotten_ones_are_purged(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leasing_book, "FOLD_BYTES", 2000)
    opened.log.append(*[draft(b"x")] * 500)
    jobs = opened.jobs()
    kept = [jobs.receive(visibility_seconds=9999.0)[0] for _ in range(3)]
    while handed := jobs.receive(2):
        assert not jobs.step({1: [settle_of(one) for one in handed]}).stale
    assert 1 <= opened.rows("lease_changes") < 60
    opened.again()
    assert (opened.jobs().count().holes, opened.jobs().count().leased) == (3, 3)
    assert opened.jobs().settle(kept[0])
    done(opened.stores.leases.forget_group(opened.log.queue.uuid, "workers"))
    assert opened.rows("lease_forgotten") == 1
    opened.stores.file.purger.run()
    opened.stores.file.purger.run()
    assert [opened.rows(name) for name in ("lease_changes", "lease_forgotten", "lease_groups")] == [0, 0, 0]
    with pytest.raises(InvalidReceipt):
        opened.jobs().settle(kept[1])


def test_a_small_state_that_is_read_often_has_few_changes(opened: Opened) -> None:
    opened.log.append(*[draft(b"%d" % at) for at in range(60)])
    (kept,) = opened.jobs().receive(visibility_seconds=9999.0)
    for _ in range(10):
        opened.again()
        jobs = opened.jobs()
        for _ in range(5):
            (handed,) = jobs.receive()
            assert jobs.settle(handed)
        assert opened.rows("lease_changes") <= 30
    assert (opened.jobs().count().holes, opened.jobs().settle(kept)) == (1, True)


def test_a_dropped_queue_leaves_nothing_and_attempts_are_forgotten(opened: Opened) -> None:
    opened.log.add(b"0")
    opened.jobs().step(attempt=IdempotencyKey("a", b""), receive=ReceiveRequest())
    opened.clock.advance(400)
    assert opened.stores.file.purger.has_refuse()
    done(opened.stores.file.purger.purge(10))
    assert opened.rows("lease_attempts") == 0
    opened.jobs().step(attempt=IdempotencyKey("b", b""), receive=ReceiveRequest())
    done(opened.stores.messages.drop(opened.log.queue.uuid))
    for _ in range(4):
        opened.stores.file.purger.run()
    tables = ("lease_changes", "lease_forgotten", "lease_groups", "lease_attempts", "dropped")
    assert [opened.rows(name) for name in tables] == [0] * 5


def test_a_commit_that_fails_leaves_memory_as_the_file_is(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    opened.log.add(b"0", b"1")
    (handed,) = opened.jobs().receive(visibility_seconds=50.0)
    commit = Transaction.commit

    def failing(transaction: Transaction) -> None:
        for work in transaction._at_end:
            work()
        if transaction.connection.in_transaction:
            transaction.connection.execute("rollback")
        raise CommitFailed("planted")

    monkeypatch.setattr(Transaction, "commit", failing)
    with pytest.raises(OutcomeUnknown):
        opened.jobs().step({1: [settle_of(handed)]}, receive=ReceiveRequest(9))
    monkeypatch.setattr(Transaction, "commit", commit)
    opened.stores.file.health.failing = None
    assert bodies(opened.jobs().receive(9)) == [b"1"]
    assert opened.jobs().settle(handed)


def test_a_step_that_fails_beside_others_fails_alone(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """The group is rolled back, and its jobs run one by one: what was in memory is read again."""
    opened.log.add(b"0", b"1")
    (handed,) = opened.jobs().receive()
    results = [AppendRequest(opened.log.queue, [draft(b"result", 2)])]
    committer, planted = opened.stores.file.committer, [True]

    def faulty(transaction: Transaction) -> None:
        if planted:
            raise apsw.ConstraintError("planted")

    def both() -> None:
        futures.append(committer.submit(faulty, grows=False))

    futures: list[Any] = []
    outcome: list[Any] = []

    def hold() -> None:
        both()
        outcome.append(opened.stores.leases.step(_step(opened, handed, results)))

    done(committer.run_between(hold))
    assert done(outcome[0]).stale == []
    with pytest.raises(StorageUnavailable):
        done(futures[0])
    assert not opened.jobs().settle(handed)
    assert opened.log.bodies(2) == [b"result"]


def test_what_a_step_has_done_is_answered_if_messages_cannot_be_read(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened.log.add(b"0")
    (handed,) = opened.jobs().receive()
    opened.log.add(b"1")

    def refuse(*_: Any) -> None:
        raise StorageUnavailable("planted")

    results = [AppendRequest(opened.log.queue, [draft(b"result", 2)])]
    with monkeypatch.context() as planted:
        planted.setattr(sqlite_leases._Access, "read", refuse)
        outcome = opened.jobs().step({1: [settle_of(handed)]}, receive=ReceiveRequest(9), appends=results)
        assert (len(outcome.appended), len(outcome.handed)) == (1, 0)
        with pytest.raises(StorageUnavailable, match="planted"):
            opened.jobs().receive()
    assert not opened.jobs().settle(handed)
    assert sorted(bodies(opened.jobs().receive(9))) == [b"1", b"result"]


def _step(opened: Opened, handed: Any, appends: list[AppendRequest]) -> Any:
    group = GroupStep(opened.log.queue, "workers", LeaseGroup(77), 77, {1: [settle_of(handed)]})
    return LeaseStep([group], appends)


@pytest.mark.parametrize("is_large", [False, True])
def test_a_damaged_change_is_refused_and_named(is_large: bool, opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    if is_large:
        monkeypatch.setattr(sqlite_leases, "LARGE_BYTES", 0)
    opened.log.add(b"0")
    opened.jobs().receive()
    opened.stores.close()
    connection = apsw.Connection(str(opened.path))
    connection.execute("update lease_changes set checksum = checksum + 1")
    connection.close()
    opened.stores = opened._open()
    opened.log.store = opened.stores.messages
    with pytest.raises(StorageUnavailable, match="checksum"):
        opened.jobs().receive()


def test_a_large_state_of_which_messages_are_passed_over_is_read_beside_the_commits(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_leases, "LARGE_BYTES", 0)
    (id_,) = opened.log.add(b"0")
    opened.jobs().receive()
    opened.again()
    loader = opened.stores.leases._loader
    loaded, put_off = list[StatePlace](), loader.put_off

    def noted(place: StatePlace) -> PutOff:
        loaded.append(place)
        return put_off(place)

    monkeypatch.setattr(loader, "put_off", noted)
    done(opened.stores.leases.step(LeaseStep([GroupStep(opened.log.queue, "workers", None, passes={1: id_})])))
    assert [place.partition for place in loaded] == [opened.log.queue.partition(1)]
    assert opened.jobs().count().holes == 0


def test_a_message_that_goes_alone_comes_through_behind_a_busier_queue(opened: Opened) -> None:
    """It waits for one receive, and the next one is its own (G28)."""
    busy = QueueLog(opened.stores.messages, opened.clock)
    opened.log.add(b"last try", b"behind it")
    jobs = opened.jobs(max_failures=2)
    (one,) = jobs.receive(visibility_seconds=1.0)
    opened.clock.advance(2)
    groups = [
        GroupStep(log.queue, "workers", LeaseGroup(token, settings=GroupSettings(max_failures=2)), receive_from=(1,))
        for token, log in enumerate((busy, opened.log), 76)
    ]
    found = []
    for number in range(4):
        busy.add(b"busy %d" % number)
        busy.watermark()
        outcome = done(opened.stores.leases.step(LeaseStep(groups, receive=ReceiveRequest(9), turns=(0, 1))))
        found.append(bodies(outcome.handed))
    assert one.message.body == b"last try"
    assert found == [[b"busy 0", b"behind it"], [b"last try"], [b"busy 1", b"busy 2"], [b"busy 3"]]


def test_settling_goes_on_when_the_store_is_full(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    opened.log.add(b"0", b"1")
    (handed,) = opened.jobs().receive()
    monkeypatch.setattr(
        type(opened.stores.file.health), "refusal_to_grow", lambda self, free: StorageUnavailable("full")
    )
    assert opened.jobs().settle(handed, Action.ACKNOWLEDGE)
    assert bodies(opened.jobs().receive(9)) == [b"1"]
    with pytest.raises(StorageUnavailable, match="full"):
        opened.jobs().step(appends=[AppendRequest(opened.log.queue, [draft(b"x")])])


def test_a_group_that_is_forgotten_leaves_memory_at_once(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server lets Python look for cycles at everything once a minute, and seldom if there is much."""
    monkeypatch.setattr(leasing_book, "MOST_GROUPS", 2)
    opened.log.append(*[draft(b"x")] * 9)

    def use(number: int) -> None:
        jobs = Receiver(opened.stores.leases, opened.log, f"group-{number}")
        jobs.token, jobs.new = number, LeaseGroup(number)
        (one,) = jobs.receive()
        assert jobs.settle(one)

    def states() -> int:
        return sum([type(one) is LeaseState for one in gc.get_objects()])

    use(1)
    gc.collect()
    gc.disable()
    try:
        before = states()
        for number in range(2, 52):
            use(number)
        assert states() - before < 50
    finally:
        gc.enable()


UNTIL_FOUND = settings(HISTORIES, max_examples=100, phases=[Phase.generate])
PLANTED: dict[str, tuple[object, str, object, Callable[[Opened, pytest.MonkeyPatch], None]]] = {
    "memory is kept after a rollback": (
        leasing_book.LeaseBook,
        "undone",
        lambda self: None,
        test_a_commit_that_fails_leaves_memory_as_the_file_is,
    ),
    "what is passed over is only in memory": (
        partition_book.PartitionBook,
        "change",
        lambda self, change: None,
        test_what_was_passed_over_stays_so_after_a_restart,
    ),
    "a step passes over all that there is": (
        partition_book,
        "has_passed_enough",
        lambda access: False,
        test_what_was_passed_over_stays_so_after_a_restart,
    ),
}


@pytest.mark.parametrize("fault", PLANTED)
def test_these_tests_find(fault: str, opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    where, name, planted, test = PLANTED[fault]
    monkeypatch.setattr(where, name, planted)
    with pytest.raises(AssertionError):
        test(opened, monkeypatch)


class _Restarted(LeaseHistory):
    """Each history ends with a restart: nothing is known any more but what the file has."""

    def teardown(self) -> None:
        self.restart()
        super().teardown()


def test_a_history_finds_a_store_that_loses_changes(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    keep = Transaction.keep

    def some(transaction: Transaction, kind: Kind, values: tuple[Any, ...], *name: object) -> None:
        if kind is not LEASE_CHANGES or values[2] % 2:
            keep(transaction, kind, values, *name)

    monkeypatch.setattr(Transaction, "keep", some)
    make: Any = lambda: _Restarted(lambda: opened.stores, opened.clock, opened.again)  # noqa: E731
    with pytest.raises((AssertionError, QueueyError, Flaky, ExceptionGroup)):
        run_state_machine_as_test(make, settings=UNTIL_FOUND, _min_steps=30)  # most would have none that matters
