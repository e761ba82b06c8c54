"""Receivers that wait for messages of lease groups.

Readers all want each message, so each is woken by it. Of the receivers of a group one gets it: so those that receive from
the same partitions have one watch, and each of its events wakes one of them. A receiver that got something wakes the
next, for there may be more.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Sequence
from math import inf
from types import TracebackType
from typing import Any, Self
from uuid import UUID

from queuey.clock import Clock
from queuey.locks import new_lock
from queuey.model import AppendRequest
from queuey.model.lease_steps import GroupStep
from queuey.service.waiting.registry import Waiters
from queuey.service.waiting.watch import FAILED_LOOK_SECONDS, Watch

__all__ = ["Check", "Room", "Rooms", "WaitingReceiver"]

BLOCKED_REST_SECONDS = 0.05
"""A group that has something due which may not be handed out yet is looked at no more often."""

LOOK_AGAIN_SECONDS = 2.0
"""Where there are other servers: a lease that ends there, or is released, is found after this time at the latest."""

GroupName = tuple[UUID, str]
"""A queue and a group."""

Check = Callable[[], Coroutine[Any, Any, None]]
"""Raises a :class:`~queuey.errors.QueueyError` once a receiver that waits may not receive any more."""


class Room:
    """The receivers of one group that wait for messages of the same partitions: what one finds, each of them would."""

    __slots__ = ("due", "group", "partitions", "receivers", "watch")

    def __init__(self, group: GroupName, partitions: frozenset[int], watch: Watch) -> None:
        self.group, self.partitions = group, partitions
        self.watch = watch
        """Hears of what comes to these partitions."""
        self.receivers: dict[WaitingReceiver, None] = {}
        """The one that is woken next comes first."""
        self.due = inf
        """The elapsed time at which a lease may end."""


class WaitingReceiver:
    """One receiver, in the room of each group that it receives from. A context manager that leaves them."""

    __slots__ = ("_rooms", "attempt", "check", "every", "is_awaited", "is_rung", "joined", "watch")

    def __init__(self, rooms: Rooms, watch: Watch) -> None:
        self._rooms = rooms
        self.watch = watch
        """Of no partition: it counts the receiver, and is what it waits by."""
        self.joined: list[Room] = []
        self.attempt: str | None = None
        """The name of its request."""
        self.is_awaited: Callable[[], bool] = lambda: True
        """Whether anybody waits for what it gets still."""
        self.every = False
        """It receives from all partitions of its queues."""
        self.check: Check | None = None
        """Called before each look for messages."""
        self.is_rung = False
        """It was woken, and has not looked since."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._rooms.leave(self)

    def join(self, groups: Iterable[GroupStep]) -> None:
        """Hear of these groups, from now on."""
        self.looks()  # before: what wakes it between two of them wakes the next receiver if this one leaves
        for one in groups:
            self._rooms.join(self, one)

    def move(self, groups: Iterable[GroupStep]) -> None:
        """Hear of these groups and of no others, from now on: their queues have got partitions.

        The next receiver of the rooms that it leaves looks, since it may have to move as well.
        """
        self.is_rung = True
        self._rooms.leave_rooms(self)
        self.join(groups)

    def looks(self) -> bool:
        """Call it before a look: what comes later wakes the receiver again.

        :returns: whether a queue was changed or removed, or the server stops.
        """
        self.is_rung = False
        _, invalidated = self.watch.take_events()
        return invalidated

    @property
    def has_heard(self) -> bool:
        """Whether there may be something that it has not looked at."""
        return self.watch.invalidated or self._rooms.have_news(self.joined)

    async def wait(self, until: float) -> None:
        """Wait until there may be something, or for the elapsed time ``until``."""
        for room in self.joined:
            if not await self._rooms.look_ahead(room):
                until = min(until, self._rooms.elapsed() + FAILED_LOOK_SECONDS)
        await self.watch.wait(until)


class Rooms:
    """The rooms of all groups with waiting receivers. Thread-safe.

    A room is one of a dictionary for its group, which is replaced and never changed.
    """

    def __init__(self, waiters: Waiters, clock: Clock, stays_open: Callable[[], bool]) -> None:
        """:param stays_open: see :meth:`queuey.storage.MessageStore.stays_open`."""
        self._waiters, self._clock, self._stays_open = waiters, clock, stays_open
        self._rooms: dict[GroupName, dict[frozenset[int], Room]] = {}
        """By group, then by partitions."""
        self._by_queue: dict[UUID, list[Room]] = {}
        self._lock = new_lock()

    @property
    def has_receivers(self) -> bool:
        """Whether any receiver waits."""
        return bool(self._rooms)

    def have_all(self, groups: Iterable[GroupStep]) -> bool:
        """Whether receivers wait for messages of each of these groups."""
        return all(frozenset(one.receive_from) in self._rooms.get(_group_of(one), ()) for one in groups)

    def have_news(self, rooms: Sequence[Room]) -> bool:
        """Whether something has come to these rooms that has woken nobody yet."""
        now = self._clock.elapsed()
        return any(room.watch.readable or room.watch.invalidated or room.due <= now for room in rooms)

    def admit(self, readers: Sequence[str], *, in_thread: bool) -> WaitingReceiver:
        """A receiver that waits for nothing yet; see :meth:`Waiters.watch` for what is raised."""
        return WaitingReceiver(self, self._waiters.watch((), readers, in_thread=in_thread))

    def elapsed(self) -> float:
        return self._clock.elapsed()

    def join(self, receiver: WaitingReceiver, one: GroupStep) -> None:
        """Let a receiver hear of the partitions of a group from which it receives. Then it looks, and after that it waits."""
        queue, group, partitions = one.queue, _group_of(one), frozenset(one.receive_from)
        with self._lock:
            rooms = self._rooms.get(group, {})
            room = rooms.get(partitions)
            is_new = room is None
            if room is None:
                room = Room(group, partitions, self._waiters.watch((), None, in_thread=False))
                self._rooms[group] = {**rooms, partitions: room}
                self._by_queue[queue.uuid] = [*self._by_queue.get(queue.uuid, ()), room]
            room.receivers[receiver] = None
            receiver.joined.append(room)
        for number in one.receive_from:
            if queue.partition(number) not in room.watch.partitions:
                self._waiters.add(room.watch, queue, number)
        if is_new:
            self._listen(room)

    async def look_ahead(self, room: Room) -> bool:
        """Learn when the next message may be handed out; False if nobody knows: look again soon."""
        return await self._waiters.look_ahead(room.watch)

    def leave(self, receiver: WaitingReceiver) -> None:
        """A receiver waits no more. What it was woken for and did not look at, or found more of, wakes the next."""
        receiver.watch.close()
        self.leave_rooms(receiver)

    def leave_rooms(self, receiver: WaitingReceiver) -> None:
        """A receiver waits for nothing of what it joined; as :meth:`leave`."""
        closed = []
        with self._lock:
            for room in receiver.joined:
                room.receivers.pop(receiver, None)
                if not room.receivers and self._rooms.get(room.group, {}).get(room.partitions) is room:
                    self._forget(room)
                    closed.append(room.watch)
            left = [room for room in receiver.joined if room.receivers]
            receiver.joined = []
        for watch in closed:
            watch.close()
        if receiver.is_rung:
            for room in left:
                self._wake_next(room)

    def _forget(self, room: Room) -> None:
        rooms = {numbers: one for numbers, one in self._rooms[room.group].items() if one is not room}
        if rooms:
            self._rooms[room.group] = rooms
        else:
            del self._rooms[room.group]
        queue = room.group[0]
        others = [one for one in self._by_queue[queue] if one is not room]
        if others:
            self._by_queue[queue] = others
        else:
            del self._by_queue[queue]

    def note_coming(self, asked: AppendRequest) -> None:
        """An append was just asked for. Receivers that wait look in the same commit, if it waits for them."""
        rooms = self._by_queue.get(asked.queue.uuid, ()) if self._by_queue else ()
        if rooms and self._stays_open():
            numbers = {draft.partition for draft in asked.drafts}
            for room in rooms:
                if not room.partitions.isdisjoint(numbers):
                    self._wake_next(room)

    def found(self, receiver: WaitingReceiver) -> None:
        """A receiver got messages: there may be more for others."""
        receiver.is_rung = True

    def next_due(self, one: GroupStep, seconds: float | None) -> None:
        """A lease in the partitions of a step ends in this time at the earliest.

        :param seconds: 0 or less, if something is due that may not be handed out yet; None, if no lease will end.
        """
        if self._waiters.looks_again:
            seconds = LOOK_AGAIN_SECONDS if seconds is None else min(seconds, LOOK_AGAIN_SECONDS)
        if seconds is None or _group_of(one) not in self._rooms:
            return
        due = self._clock.elapsed() + (seconds if seconds > 0 else BLOCKED_REST_SECONDS)
        for room in self._rooms_of(_group_of(one), {*one.receive_from, *one.settles}):
            with self._lock:
                is_sooner = due < room.due
                room.due = min(room.due, due)
            if is_sooner:
                self._listen(room)

    def ring(self, queue: UUID, group: str, partitions: Collection[int] | None = None) -> None:
        """Something may be handed out that was there before.

        :param partitions: where; None for all.
        """
        for room in self._rooms_of((queue, group), partitions):
            self._wake_next(room)

    def wake(self, queue: UUID, group: str, attempt: str) -> None:
        """Wake the receivers of a request."""
        for room in self._rooms_of((queue, group)):
            with self._lock:
                receivers = [one for one in room.receivers if one.attempt == attempt]
            for receiver in receivers:
                self._waiters.ring(receiver.watch)

    def _rooms_of(self, group: GroupName, partitions: Collection[int] | None = None) -> Iterator[Room]:
        """The rooms of a group.

        :param partitions: only those that hear of one of these.
        """
        for room in self._rooms.get(group, {}).values():
            if partitions is None or not room.partitions.isdisjoint(partitions):
                yield room

    def _listen(self, room: Room) -> None:
        with self._lock:  # or a thread that read an earlier due time would take back the later one
            heard = self._waiters.wait(room.watch, room.due)
        heard.add_done_callback(lambda _: self._heard(room))

    def _heard(self, room: Room) -> None:
        if room.watch.closed:
            return
        _, invalidated = room.watch.take_events()
        with self._lock:
            if room.due <= self._clock.elapsed():
                room.due = inf
            receivers = list(room.receivers) if invalidated or self._waiters.ended else []
        if self._waiters.ended:
            return
        for receiver in receivers:
            self._waiters.ring(receiver.watch)
        self._wake_next(room)
        self._listen(room)

    def _wake_next(self, room: Room) -> None:
        """Wake the receiver that waits longest; it goes to the end."""
        with self._lock:
            receiver = next(iter(room.receivers), None)
            if receiver is None:
                return
            room.receivers.pop(receiver)
            room.receivers[receiver] = None
            receiver.is_rung = True
        self._waiters.ring(receiver.watch)


def _group_of(one: GroupStep) -> GroupName:
    return one.queue.uuid, one.name
