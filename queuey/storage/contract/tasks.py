"""Tasks, and the removal of spans of messages for them."""

from __future__ import annotations

from uuid import uuid4

import pytest

from queuey.clock import ManualClock
from queuey.errors import QueueNotFound
from queuey.ids import MAX_ID, ZERO_ID, MessageId
from queuey.model import Queue, Span, SpanRemoval
from queuey.model.lease_groups import LeaseGroup
from queuey.model.lease_requests import ReceiveRequest
from queuey.model.lease_steps import GroupStep, LeaseStep
from queuey.model.tasks import StoredTask, TaskState
from queuey.storage import LeaseStore, MessageStore, Stores, TaskStore
from queuey.storage.contract.common import SECOND, QueueLog, StoreContract, done, draft

__all__ = ["TaskStoreContract"]


def new_task(queue: Queue, name: str = "purge") -> StoredTask:
    return StoredTask(queue.uuid, name, queue.application, queue.name, uuid4(), queue.created_ticks)


def open_of(tasks: TaskStore, log: QueueLog) -> list[StoredTask]:
    """The open tasks of one queue; other tests may have left some of theirs."""
    return [task for task in done(tasks.open_tasks()) if task.queue == log.queue.uuid]


class TaskStoreContract(StoreContract):
    """Every sentence of :class:`~queuey.storage.TaskStore`, and of :meth:`MessageStore.delete_span`."""

    @pytest.fixture
    def tasks(self, stores: Stores) -> TaskStore:
        return stores.tasks

    @pytest.fixture
    def leases(self, stores: Stores) -> LeaseStore:
        return stores.leases

    def test_a_task_is_changed_by_compare_and_set(self, tasks: TaskStore, log: QueueLog) -> None:
        first = new_task(log.queue)
        later = first.changed(done=3, looked=4, place={"partition": 2}, runner="one", runner_until=5)

        assert done(tasks.find_task(log.queue.uuid, "purge")) is None
        assert [done(tasks.change_task(None, first)) for _ in range(2)] == [True, False]
        assert [done(tasks.change_task(first, later)) for _ in range(2)] == [True, False]
        assert not done(tasks.change_task(first, first.changed(done=9)))
        assert done(tasks.find_task(log.queue.uuid, "purge")) == later

    def test_open_tasks_are_found_until_they_end(self, tasks: TaskStore, log: QueueLog) -> None:
        purge, redrive = new_task(log.queue), new_task(log.queue, "redrive:jobs")
        for task in (purge, redrive):
            assert done(tasks.change_task(None, task))
        cancelling = purge.changed(state=TaskState.CANCELLING)

        assert done(tasks.change_task(purge, cancelling))
        assert {task.name for task in open_of(tasks, log)} == {"purge", "redrive:jobs"}
        ended = cancelling.changed(state=TaskState.CANCELLED)
        assert done(tasks.change_task(cancelling, ended))
        assert open_of(tasks, log) == [redrive]

        again = new_task(log.queue)
        assert done(tasks.change_task(ended, again))
        assert {task.id for task in open_of(tasks, log)} == {again.id, redrive.id}

    def test_tasks_of_a_queue_come_by_name(self, tasks: TaskStore, log: QueueLog) -> None:
        names = ["purge", "redrive:a", "redrive:b"]
        for name in reversed(names):
            assert done(tasks.change_task(None, new_task(log.queue, name)))

        def listed(start: str = "", limit: int = 1000) -> list[str]:
            return [task.name for task in done(tasks.list_tasks(log.queue.uuid, start=start, limit=limit))]

        assert listed() == names
        assert listed(limit=2) == names[:2]
        assert listed(start="redrive:a") == names[1:]
        assert not done(tasks.list_tasks(uuid4()))

    def test_tasks_end_with_their_queue(self, tasks: TaskStore, store: MessageStore, log: QueueLog) -> None:
        task = new_task(log.queue)
        assert done(tasks.change_task(None, task))

        done(store.drop(log.queue.uuid))

        assert done(tasks.find_task(log.queue.uuid, "purge")) is None
        assert not done(tasks.list_tasks(log.queue.uuid))
        assert not open_of(tasks, log)
        with pytest.raises(QueueNotFound):
            done(tasks.change_task(task, task.changed(done=1)))

    # Spans

    def test_a_span_goes_in_parts_and_in_order(self, log: QueueLog, clock: ManualClock) -> None:
        ids = log.add(b"1", b"2", b"3", b"4", b"5")
        log.add(b"other", partition=2)

        first = remove(log, Span(ids[0], ids[3]), most=2)

        assert first.messages == 2
        assert ids[2] <= first.upto < ids[3]
        assert log.bodies() == [b"1", b"4", b"5"]
        assert remove(log, Span(first.upto, ids[3]), most=2) == (1, ids[3])
        assert remove(log, Span(ZERO_ID, ids[3]), most=9) == (1, ids[3])
        assert (log.bodies(), log.bodies(2)) == ([b"5"], [b"other"])
        assert [state.depth for state in log.inspect(1, 2)] == [1, 1]
        assert log.fetch((1, ids[1])) == [None]

    def test_a_span_may_cut_batches(self, log: QueueLog) -> None:
        placed = log.append(*(draft(b"%d" % number) for number in range(700))).placed
        ids = [place.id for place in placed]
        removed, after = 0, ids[99]
        log.inspect(1)  # from here on it is counted

        while after < ids[599]:
            found = remove(log, Span(after, ids[599]), most=150)
            removed, after = removed + found.messages, found.upto

        assert removed == 500
        assert log.bodies() == [b"%d" % number for number in [*range(100), *range(600, 700)]]
        (state,) = log.inspect(1)
        assert (state.depth, state.bytes) == (200, sum(map(len, log.bodies())))

    def test_messages_appended_behind_a_span_stay(self, log: QueueLog, clock: ManualClock) -> None:
        log.add(b"old")
        upto = MessageId.last_of(log.watermark())
        clock.advance(1)
        log.append(draft(b"new"), draft(b"scheduled", due_ticks=clock.now_ticks() + 60 * SECOND))

        assert remove(log, Span(ZERO_ID, upto), most=100) == (1, upto)
        assert log.bodies() == [b"new"]
        assert log.inspect(1)[0].scheduled == 1

    def test_scheduled_messages_can_be_removed(self, log: QueueLog, clock: ManualClock) -> None:
        log.append(draft(b"now"), *(draft(due_ticks=clock.now_ticks() + number * SECOND) for number in (60, 70)))

        assert remove(log, Span(MessageId.last_of(clock.now_ticks() + 5 * SECOND), MAX_ID), most=100).messages == 2
        log.append(draft(b"later", due_ticks=clock.now_ticks() + 65 * SECOND))
        clock.advance(75)
        assert log.bodies() == [b"now", b"later"]

    def test_a_dropped_queue_has_nothing_to_remove(self, store: MessageStore, log: QueueLog) -> None:
        (id_,) = log.add(b"1")
        done(store.drop(log.queue.uuid))

        assert remove(log, Span(ZERO_ID, id_), most=100) == (0, id_)

    # Leases of what is gone

    def test_a_group_settles_what_is_gone(self, log: QueueLog, leases: LeaseStore, clock: ManualClock) -> None:
        ids = log.add(*(b"%d" % number for number in range(8)))
        clock.advance(5)
        step = GroupStep(log.queue, "g", LeaseGroup(7), receive_from=[1])
        log.watermark()
        handed = done(leases.step(LeaseStep([step], receive=ReceiveRequest(4)))).handed
        assert len(handed) == 4

        done(leases.step(LeaseStep([GroupStep(log.queue, "g", None, passes={1: ids[2]})])))
        assert [one.holes for one in done(leases.count(log.queue.uuid, "g", [1])).values()] == [1]
        done(leases.step(LeaseStep([GroupStep(log.queue, "g", None, passes={1: ids[5]})])))

        (count,) = done(leases.count(log.queue.uuid, "g", [1])).values()
        assert (count.holes, count.leased, count.done_up_to) == (0, 0, ids[5])
        handed = done(leases.step(LeaseStep([step], receive=ReceiveRequest(9)))).handed
        assert [one.message.id for one in handed] == ids[6:]


def remove(log: QueueLog, span: Span, *, most: int) -> SpanRemoval:
    return done(log.store.delete_span(log.queue, 1, span, most=most))
