"""Receivers that wait for messages of a lease group: on a clock that the test moves."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from queuey.clock import ManualClock
from queuey.future import Future, run, start
from queuey.ids import TICKS_PER_SECOND, IdGenerator
from queuey.model import AppendRequest, Draft, Queue
from queuey.model.lease_steps import GroupStep
from queuey.monitor.metrics import WAITERS, Monitor
from queuey.service.log import Log
from queuey.service.queues import Queues, QueueSettings
from queuey.service.waiting.registry import Waiters
from queuey.service.waiting.rooms import BLOCKED_REST_SECONDS, Rooms, WaitingReceiver
from queuey.settings import load_settings
from queuey.storage.memory import MemoryStores

GROUP = "g"


def _step(queue: Queue) -> GroupStep:
    return GroupStep(queue, GROUP, None, receive_from=[1])


def _request(queue: Queue, *, partition: int = 1) -> AppendRequest:
    return AppendRequest(queue, [Draft(partition, b"x", 1000)])


class House:
    """Rooms over a store in memory. Nothing happens but by :meth:`pass_time`."""

    def __init__(self, **limits: int) -> None:
        self.clock = ManualClock()
        stores = MemoryStores(self.clock, IdGenerator(self.clock))
        self.monitor = Monitor("memory")
        settings = load_settings(None, {}, {"limits": limits})
        self.waiters = Waiters(stores.messages, self.clock, self.monitor, settings, by_hand=True)
        self.stays_open = False
        self.rooms = Rooms(self.waiters, self.clock, lambda: self.stays_open)
        self.queues = Queues(stores, self.clock, self.monitor, self.waiters)
        self.log = Log(stores.messages, self.queues, self.clock, self.monitor, self.waiters)

    def queue(self, name: str = "q") -> Queue:
        return run(self.queues.create("demo", name, QueueSettings(partitions=1)))

    def append(self, queue: Queue, seconds: float) -> None:
        """A message that is due later."""
        due = self.clock.now_ticks() + round(seconds * TICKS_PER_SECOND)
        run(self.log.append(AppendRequest(queue, [Draft(1, b"x", 1000, due_ticks=due)])))

    def receiver(self, *queues: Queue) -> WaitingReceiver:
        receiver = self.rooms.admit(["app:demo"], in_thread=False)
        for queue in queues:
            self.rooms.join(receiver, _step(queue))
        receiver.looks()
        return receiver

    def wait(self, receiver: WaitingReceiver) -> Future[None]:
        return start(receiver.wait(self.clock.elapsed() + 1000))

    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.waiters.tick()


@pytest.fixture
def house() -> Iterator[House]:
    found = House()
    yield found
    found.waiters.close()


def test_each_message_that_falls_due_wakes_a_receiver(house: House) -> None:
    """Also the second, which nobody expected before the first was due: and the receiver of the first does not come back."""
    queue = house.queue()
    receivers = [house.receiver(queue) for _ in range(2)]
    waits = [house.wait(receiver) for receiver in receivers]
    for seconds in (10, 20):
        house.append(queue, seconds)

    house.pass_time(10)
    assert [wait.done for wait in waits] == [True, False]
    receivers[0].looks()
    house.rooms.found(receivers[0])
    house.rooms.leave(receivers[0])
    assert waits[1].done  # there may be more
    receivers[1].looks()  # and there is not, yet
    wait = house.wait(receivers[1])
    house.pass_time(9)
    assert not wait.done
    house.pass_time(1)
    assert wait.done


def test_an_append_whose_commit_waits_wakes_a_receiver_of_each_group_of_its_queue(house: House) -> None:
    queue, other = house.queue(), house.queue("other")
    receivers = [house.receiver(queue), house.receiver(queue), house.receiver(other)]
    waits = [house.wait(receiver) for receiver in receivers]

    house.rooms.note_coming(_request(queue))
    assert [wait.done for wait in waits] == [False, False, False]
    house.stays_open = True
    house.rooms.note_coming(_request(queue, partition=2))  # nobody receives from it
    assert [wait.done for wait in waits] == [False, False, False]
    house.rooms.note_coming(_request(queue))
    assert [wait.done for wait in waits] == [True, False, False]
    for receiver in receivers[:2]:
        house.rooms.leave(receiver)
    house.rooms.note_coming(_request(queue))
    assert not waits[2].done


def test_a_receiver_that_is_woken_while_it_joins_and_leaves_wakes_the_next(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has found one message, and there may be more."""
    queue = house.queue()
    join = house.rooms.join

    def woken(receiver: WaitingReceiver, one: GroupStep) -> None:
        join(receiver, one)
        house.rooms.ring(queue.uuid, GROUP)

    monkeypatch.setattr(house.rooms, "join", woken)
    first = house.rooms.admit(["app:demo"], in_thread=False)
    first.join([_step(queue)])
    monkeypatch.undo()
    wait = house.wait(house.receiver(queue))
    assert not wait.done
    house.rooms.leave(first)
    assert wait.done


def test_a_message_that_becomes_readable_between_a_look_and_its_wait_ends_the_wait(house: House) -> None:
    queue, other = house.queue(), house.queue("other")
    house.append(other, 1)
    receiver = house.receiver(queue, other)
    house.clock.advance(1)

    assert house.wait(receiver).done


def test_a_lease_that_ends_is_looked_for_while_another_thread_hears_of_an_event(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = house.queue()
    receiver, wait = house.receiver(queue), house.waiters.wait
    threads: list[threading.Thread] = []

    def slow(watch: Any, until: float, **how: Any) -> Future[None]:
        if not threads:  # meanwhile a step says when its lease ends
            told = (_step(queue), 5)
            threads.append(threading.Thread(target=house.rooms.next_due, args=told))
            threads[0].start()
            threads[0].join(0.2)
        return wait(watch, until, **how)

    monkeypatch.setattr(house.waiters, "wait", slow)
    house.waiters.wake(receiver.joined[0].watch)  # the room hears, and listens again
    monkeypatch.undo()
    threads[0].join()
    receiver.looks()

    waiting = house.wait(receiver)
    house.pass_time(4.9)
    assert not waiting.done
    house.pass_time(0.1)
    assert waiting.done


def test_a_lease_that_ends_soon_is_looked_for_then_and_what_is_blocked_after_a_rest(house: House) -> None:
    queue = house.queue()
    receiver = house.receiver(queue)
    for seconds, rest in ((0.01, 0.01), (0.0, BLOCKED_REST_SECONDS), (-3.0, BLOCKED_REST_SECONDS)):
        house.rooms.next_due(_step(queue), seconds)
        receiver.looks()
        waiting = house.wait(receiver)
        house.pass_time(rest - 0.001)
        assert not waiting.done
        house.pass_time(0.002)
        assert waiting.done


def test_a_receiver_of_several_queues_is_one_waiter() -> None:
    house = House(max_waiters=2)
    queues = [house.queue(name) for name in ("a", "b", "c")]
    receivers = [house.receiver(*queues), house.receiver(queues[0])]
    assert house.monitor.value(WAITERS) == 2

    for receiver in receivers:
        house.rooms.leave(receiver)
    assert (house.monitor.value(WAITERS), house.rooms.has_receivers) == (0, False)
