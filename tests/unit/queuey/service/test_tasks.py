"""Tasks on a clock that the test moves: which server runs them, how they end, and what a death in the middle leaves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from queuey.clock import ManualClock
from queuey.errors import CorruptMessage, QueueyError, StorageUnavailable, TaskNotFound, TaskRunning, TooManyTasks
from queuey.future import Future, run
from queuey.ids import TICKS_PER_SECOND, ZERO_ID, IdGenerator, MessageId
from queuey.model import AppendRequest, Draft, Location, Overwrite, Page, Queue, ReadRequest, Span, SpanRemoval
from queuey.model.lease_groups import GroupSettings
from queuey.model.lease_requests import ReceiveRequest
from queuey.model.lease_steps import GroupStep, LeaseStep
from queuey.model.tasks import StoredTask
from queuey.service import Service
from queuey.service.log import QueueRead
from queuey.service.queues import QueueSettings
from queuey.service.tasks import MOST_TASKS, PURGE
from queuey.service.tasks.purge import MOST_TOGETHER
from queuey.settings import load_settings
from queuey.storage.memory import MemoryStores

MESSAGES = 3 * MOST_TOGETHER


class Stores(MemoryStores):
    """Stores whose removals fail when a test says so."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock, IdGenerator(clock))
        self.metadata.trusted_seconds = 1.0  # other servers change queues, too
        self.error: QueueyError | None = None
        remove = self.messages.delete_span

        def delete_span(
            queue: Queue, number: int, span: Span, *, most: int, whole: bool = False
        ) -> Future[SpanRemoval]:
            return (
                remove(queue, number, span, most=most, whole=whole) if self.error is None else Future.failed(self.error)
            )

        self.messages.delete_span = delete_span  # type: ignore[method-assign]


class Slow(ManualClock):
    """A clock by which each look takes a second, so that a step removes one part."""

    slow = False

    def elapsed(self) -> float:
        if self.slow:
            self.advance(1)
        return super().elapsed()


@pytest.fixture
def clock() -> Slow:
    return Slow()


@pytest.fixture
def stores(clock: Slow) -> Stores:
    return Stores(clock)


def server(stores: Stores, clock: ManualClock) -> Service:
    """One more server on these stores. Its tasks run when a test lets them."""
    return Service(load_settings(None, {}, {}), stores, clock=clock, waiters_by_hand=True)


@pytest.fixture
def first(stores: Stores, clock: Slow) -> Iterator[Service]:
    service = server(stores, clock)
    yield service
    service.close()


@pytest.fixture
def second(stores: Stores, clock: Slow) -> Iterator[Service]:
    service = server(stores, clock)
    yield service
    service.close()


@pytest.fixture
def queue(first: Service) -> Queue:
    made = run(first.queues.create("demo", "jobs", QueueSettings(partitions=2)))
    fill(first, made, MESSAGES)
    return made


def fill(service: Service, queue: Queue, count: int) -> None:
    for number in (1, 2):
        run(service.log.append(AppendRequest(queue, [Draft(number, b"x", 86_400)] * (count // 2))))


def depth(service: Service, queue: Queue) -> int:
    return sum(state.depth for state in run(service.queues.inspect(queue)))


def purge(service: Service, queue: Queue) -> StoredTask:
    return run(service.tasks.purge(queue))


def purge_of(service: Service, queue: Queue) -> StoredTask:
    return run(service.tasks.find(queue, PURGE))


def to_its_end(service: Service, queue: Queue, turns: int = 60) -> StoredTask:
    for _ in range(turns):
        run(service.tasks.turn())
        if not purge_of(service, queue).is_open:
            return purge_of(service, queue)
    raise AssertionError(f"still open: {purge_of(service, queue)}")


@pytest.mark.parametrize("turns", range(9))
def test_a_task_of_a_server_that_died_is_finished_by_another(
    first: Service, second: Service, queue: Queue, clock: Slow, turns: int
) -> None:
    clock.slow = True
    purge(first, queue)
    for _ in range(turns):
        run(first.tasks.turn())
    clock.advance(31)

    found = to_its_end(second, queue)

    assert (found.state, found.done, found.left, depth(first, queue)) == ("done", MESSAGES, 0, 0)


def test_a_task_has_one_runner_until_that_is_silent_for_half_a_minute(
    first: Service, second: Service, queue: Queue, clock: Slow
) -> None:
    clock.slow = True
    purge(first, queue)
    run(first.tasks.turn())
    runner = purge_of(first, queue).runner

    for _ in range(3):
        run(second.tasks.turn())
        assert purge_of(first, queue).runner == runner
    clock.advance(31)
    run(second.tasks.turn())
    assert purge_of(first, queue).runner not in (runner, "")
    before = depth(first, queue)
    run(first.tasks.turn())
    assert depth(first, queue) == before  # it sees that the task is another's now
    assert to_its_end(second, queue).done == MESSAGES


def test_what_was_appended_after_it_was_asked_for_stays(first: Service, queue: Queue, clock: Slow) -> None:
    run(first.log.append(AppendRequest(queue, [Draft(1, b"due", 86_400, due_ticks=clock.now_ticks() + 10**9)])))
    purge(first, queue)
    clock.advance(1)
    fill(first, queue, 2)

    assert to_its_end(first, queue).done == MESSAGES + 1
    assert depth(first, queue) == 2


def test_an_append_is_not_taken_for_a_scheduled_message_however_late_it_is_stored(
    first: Service, queue: Queue, stores: Stores, clock: Slow
) -> None:
    """The append is on its way when the purge looks where the future begins, and is stored before the purge reads."""
    read = stores.messages.read

    def read_late(request: ReadRequest, **options: Any) -> Future[Page]:
        clock.advance(0.001)
        fill(first, queue, 2)
        return read(request, **options)

    stores.messages.read = read_late  # type: ignore[method-assign]
    purge(first, queue)

    assert to_its_end(first, queue).done == MESSAGES
    assert depth(first, queue) >= 2


def test_of_scheduled_messages_those_go_that_were_there_before(first: Service, queue: Queue, clock: Slow) -> None:
    def schedule(body: bytes, seconds: float) -> None:
        due = clock.now_ticks() + round(seconds * TICKS_PER_SECOND)
        run(first.log.append(AppendRequest(queue, [Draft(1, body, 86_400, due_ticks=due)])))

    schedule(b"soon", 1)
    schedule(b"later", 60)
    run(first.log.put(queue, [Location(2, MessageId(clock.now_ticks() + 10**8, 1))], Overwrite(b"put", 60)))
    purge(first, queue)
    clock.advance(2)
    schedule(b"new and soon", 1)
    schedule(b"new and later", 60)

    assert to_its_end(first, queue).done == MESSAGES + 3
    clock.advance(100)
    left = run(first.log.read(queue, QueueRead([(number, Span(ZERO_ID)) for number in (1, 2)], 10))).pages
    assert [message.body for page in left for message in page.page.messages] == [b"new and soon", b"new and later"]


def test_a_cancelled_purge_leaves_what_it_has_not_reached_to_receivers(
    first: Service, second: Service, queue: Queue, clock: Slow
) -> None:
    step = LeaseStep([GroupStep(queue, "g", first.leases.new_group(GroupSettings(), ZERO_ID), receive_from=[1, 2])])
    receive = step._replace(receive=ReceiveRequest(1000, 600.0, max_bytes=1 << 30))
    assert len(first.stores.leases.step(receive).wait().handed) == 1000
    clock.slow = True
    purge(first, queue)
    while (left := depth(first, queue)) == MESSAGES:
        run(first.tasks.turn())
    assert 0 < left < MESSAGES

    assert run(second.tasks.cancel(queue, PURGE)).state == "cancelling"
    found = to_its_end(first, queue)

    assert (found.state, found.done, found.left) == ("cancelled", MESSAGES - left, left)
    assert depth(first, queue) == left
    handed = 0
    while some := first.stores.leases.step(receive).wait().handed:
        handed += len(some)
    held = sum(count.holes for count in first.leases.count(queue, "g").wait().values())
    assert handed == held == left  # what is gone is no hole, and all the rest is handed out
    assert run(second.tasks.cancel(queue, PURGE)).state == "cancelled"


def test_only_one_task_of_a_name_runs(first: Service, second: Service, queue: Queue) -> None:
    with pytest.raises(TaskNotFound):
        purge_of(first, queue)
    with pytest.raises(TaskNotFound):
        run(first.tasks.cancel(queue, PURGE))
    one = purge(first, queue)
    with pytest.raises(TaskRunning, match=one.id.hex):
        purge(second, queue)

    to_its_end(first, queue)
    assert purge(second, queue).id != one.id


def test_an_application_has_so_many_tasks_at_once(first: Service) -> None:
    for number in range(MOST_TASKS):
        purge(first, run(first.queues.create("demo", f"q{number}", QueueSettings())))
    last = run(first.queues.create("demo", "last", QueueSettings()))
    with pytest.raises(TooManyTasks):
        purge(first, last)
    purge(first, run(first.queues.create("other", "q", QueueSettings())))
    for _ in range(5):
        run(first.tasks.turn())
    assert to_its_end(first, run(first.queues.create("demo", "q0", QueueSettings()))).state == "done"
    purge(first, last)


def test_an_error_that_stays_ends_a_task_with_its_reason(first: Service, queue: Queue, stores: Stores) -> None:
    stores.error = CorruptMessage("message 5 does not match")
    purge(first, queue)

    found = to_its_end(first, queue)

    assert (found.state, found.reason) == ("failed", "message 5 does not match")
    assert found.finished
    assert not stores.tasks.open_tasks().wait()


def test_a_task_ends_once_what_was_under_way_is_at_an_end(
    first: Service, queue: Queue, stores: Stores, clock: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a redrive would leave letters that it has moved, and the next one would move them again."""

    async def cannot_end(task: StoredTask, queue: Queue) -> StoredTask:
        raise StorageUnavailable("no node answers")

    def turns() -> None:
        for _ in range(8):
            clock.advance(min(run(first.tasks.turn()), 60.0))

    stores.error = CorruptMessage("message 5 does not match")
    with monkeypatch.context() as away:
        away.setattr(first.tasks._kinds[PURGE], "end", cannot_end)
        purge(first, queue)
        turns()
        assert purge_of(first, queue).is_open
    turns()
    found = purge_of(first, queue)
    assert (found.state, found.reason) == ("failed", "message 5 does not match")


def test_a_store_that_is_away_is_waited_for_but_not_for_ever(
    first: Service, queue: Queue, stores: Stores, clock: Slow, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    stores.error = StorageUnavailable("no node answers")
    purge(first, queue)
    run(first.tasks.turn())
    began, turns = clock.elapsed(), 0
    while clock.elapsed() < began + 590:
        clock.advance(run(first.tasks.turn()))
        turns += 1
    assert purge_of(first, queue).is_open
    assert turns < 200
    assert len([record for record in caplog.records if "no node answers" in record.getMessage()]) == 1

    clock.advance(600)
    found = to_its_end(first, queue)
    assert (found.state, found.reason) == ("failed", "no node answers")


def test_a_task_of_a_queue_that_was_removed_is_over(first: Service, queue: Queue, stores: Stores) -> None:
    purge(first, queue)
    run(first.tasks.turn())
    run(first.queues.delete(queue))

    assert run(first.tasks.turn()) > 0
    assert not stores.tasks.open_tasks().wait()
