"""Move: the messages of a dead-letter queue go back to where each came from, or to one other queue.

A task receives from the dead-letter queue as any receiver of its lease group does: so nobody else has a message that is
moved, what a receiver has stays with it, and keys keep their order. A message is appended and its lease acknowledged as
one step (G24), so each is moved once, wherever a server dies. What is received and stays is released in the end. The
receiver's name says which leases are those of the task: a server that goes on with it finds them by that. A group that
is forgotten, and begins anew, has none of them: the task receives from the new one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, NamedTuple

from queuey.clock import Clock
from queuey.errors import InvalidReceipt, StaleReceipt
from queuey.ids import TICKS_PER_SECOND, ZERO_ID, MessageId
from queuey.model import (
    DEFAULT_TTL_SECONDS,
    AppendRequest,
    Draft,
    IdempotencyKey,
    Location,
    Message,
    Queue,
    decode_headers,
    encode_headers,
)
from queuey.model.dead_letters import Story, story_of, with_origin, without_story
from queuey.model.holes import Hole
from queuey.model.lease_requests import Action, ReceiveRequest, Settle
from queuey.model.lease_steps import GroupStep, LeaseStep
from queuey.model.tasks import StoredTask, TaskState
from queuey.monitor.metrics import DEAD_LETTERS_MOVED, Monitor
from queuey.service.leases import Leases
from queuey.service.log import Log, partition_for
from queuey.service.queues import Queues
from queuey.service.tasks.kinds import Stepped, TaskKind, seconds_until
from queuey.service.tasks.letters import are_noted
from queuey.storage import Stores

__all__ = ["NO_DESTINATION", "NO_SOURCE", "MoveKind"]

NO_DESTINATION = "the queue to which messages go was removed"
NO_SOURCE = "messages stay that did not come from a queue of this group, or whose queue was removed"

MOST_TOGETHER = 100
"""Messages of one step."""
_MOST_BYTES = 1 << 20
"""Of these messages, unless one has more."""
_LEASE_SECONDS = 900.0
"""Mostly longer than a task is without a server: a message whose lease runs out is received again, and has failed once."""
_LOOK_AGAIN_SECONDS = 1.0
_PAGE = 500
_DIGEST = b"move"


class _Lease(NamedTuple):
    """A message that the task has received."""

    token: int
    """Of the group's life in which it has."""
    partition: int
    message: Message
    delivery: int

    @property
    def location(self) -> Location:
        return Location(self.partition, self.message.id)

    def ended(self, action: Action) -> Settle:
        return Settle(self.message.id, self.delivery, action, 0.0, counts=False)


class _Going(NamedTuple):
    """A message that is moved, and what becomes of it."""

    lease: _Lease
    target: Queue
    draft: Draft


class _AnyRoom:
    """See :class:`~queuey.service.leases.AnswerRoom`: a step has what it needs."""

    def __init__(self) -> None:
        self.bytes = _MOST_BYTES

    def grow(self, size: int) -> bool:
        self.bytes += size
        return True

    def waiting(self) -> AbstractContextManager[None]:
        return nullcontext()


class MoveKind(TaskKind):
    """Moves the messages that a dead-letter queue had at a moment.

    What is asked for: ``group``, which gives the messages away, and whose letters go back; ``upto``, the moment in ticks;
    ``rate``, messages a second, 0 for any number; ``queue``, where all go instead; ``ttl``, how many seconds they live
    there. Other members are for those that watch.
    """

    def __init__(
        self, stores: Stores, leases: Leases, queues: Queues, log: Log, clock: Clock, monitor: Monitor
    ) -> None:
        self._messages, self._tasks = stores.messages, stores.tasks
        self._leases, self._queues, self._log = leases, queues, log
        self._clock, self._monitor = clock, monitor

    async def step(self, task: StoredTask, queue: Queue) -> Stepped:
        place: dict[str, Any] = {"round": 0, "ended": [], "not_before": 0, "after": None, **task.place}
        name = task.asked.get("queue")
        if name is not None and await self._queues.find(queue.application, name) is None:
            ended = await self.end(task, queue)
            return Stepped(ended.changed(state=TaskState.FAILED, reason=NO_DESTINATION))
        if await are_noted(self._tasks, queue):
            return Stepped(task, _LOOK_AGAIN_SECONDS)
        try:
            return await (self._receive if place["after"] is None else self._sweep)(task, queue, {**place})
        except InvalidReceipt:  # the group was forgotten, and has given all back
            anew = {"round": place["round"] + 1, "ended": [], "after": None}
            return Stepped(task.changed(place=place | anew))

    async def _receive(self, task: StoredTask, queue: Queue, place: dict[str, Any]) -> Stepped:
        """Receive some messages, and move them."""
        numbers = [number for number in range(1, queue.partitions + 1) if number not in place["ended"]]
        rate, leases = task.asked["rate"], self._leases
        most = min(max(int(rate), 1), MOST_TOGETHER) if rate else MOST_TOGETHER
        wanted = ReceiveRequest(most, _LEASE_SECONDS, receiver=_receiver(task), max_bytes=_MOST_BYTES)
        group = leases.new_group(queue.leases.settings(leases.default_settings), ZERO_ID)
        attempt = IdempotencyKey(f"move {task.id.hex} {place['round']}", _DIGEST)
        step = LeaseStep([GroupStep(queue, task.asked["group"], group, receive_from=numbers)], (), wanted, attempt)
        outcome = await leases.step(step, _AnyRoom())
        token = outcome.tokens[0]
        found = [_Lease(token, one.partition, one.message, one.hole.deliveries) for one in outcome.handed]
        early = seconds_until(place["not_before"], rate, self._clock.now_ticks())
        if found and early > 0:
            return Stepped(task, early)  # the same round again has the same messages
        place["round"] += 1
        if found:
            later = {one.partition for one in found if one.message.ticks > task.asked["upto"]}
            place["ended"] = [*place["ended"], *later]
            return await self._moved(task, queue, place, found)
        if outcome.repeated or outcome.more:  # the server before has moved what it got, or the next round goes on
            return Stepped(task.changed(place=place))
        if numbers and (
            outcome.is_full or self._log.watermark(queue) < task.asked["upto"] or await self._is_paused(task, queue)
        ):
            return Stepped(task.changed(place=place), _LOOK_AGAIN_SECONDS)
        return Stepped(task.changed(place=place | {"after": [1, *ZERO_ID]}))

    async def _moved(self, task: StoredTask, queue: Queue, place: dict[str, Any], leases: Sequence[_Lease]) -> Stepped:
        """Move those that are meant, of some leases."""
        meant = [one for one in leases if one.message.ticks <= task.asked["upto"]]
        going = [one for lease in meant if (one := await self._going(task, queue, lease)) is not None]
        moved, failed = await self._move(task, queue, going), len(meant) - len(going)
        self._monitor.count(DEAD_LETTERS_MOVED, moved, task.application, "moved")
        self._monitor.count(DEAD_LETTERS_MOVED, failed, task.application, "failed")
        if task.asked["rate"] and moved:
            ticks = round(moved / task.asked["rate"] * TICKS_PER_SECOND)
            place["not_before"] = self._clock.now_ticks() + ticks
        counts = {"looked": task.looked + len(meant), "done": task.done + moved, "failed": task.failed + failed}
        return Stepped(task.changed(place=place, reason=NO_SOURCE if failed else task.reason, **counts))

    async def _sweep(self, task: StoredTask, queue: Queue, place: dict[str, Any]) -> Stepped:
        """Look at what the task still has: what a server had received that died long ago is moved, the rest released."""
        number, after = place["after"][0], MessageId(*place["after"][1:])
        token = await self._token(task, queue)
        if number > queue.partitions or token is None:
            state = TaskState.FAILED if task.failed else TaskState.DONE
            return Stepped(task.changed(state=state))
        held, upto = await self._held(task, queue, number, after)
        place["after"] = [number, *upto] if upto is not None else [number + 1, *ZERO_ID]
        late = [one for one in held if one.id.ticks <= task.asked["upto"]]
        now = self._clock.now_ticks()
        messages = await self._messages.fetch(queue, [Location(number, one.id) for one in late], now_ticks=now)
        leases = [
            _Lease(token, number, message, hole.deliveries)
            for hole, message in zip(late, messages, strict=True)
            if message is not None
        ]
        going = [one for lease in leases if (one := await self._going(task, queue, lease)) is not None]
        moved = await self._move(task, queue, going)
        await self._release(task, queue, token, number, [*await self._still(task, queue, number, held)])
        return Stepped(task.changed(place=place, done=task.done + moved))

    async def _held(
        self, task: StoredTask, queue: Queue, number: int, after: MessageId
    ) -> tuple[Sequence[Hole], MessageId | None]:
        """Leases of the task among some of those of its group, and where to go on; None behind the last."""
        page = await self._leases.held(queue, task.asked["group"], number, after=after, limit=_PAGE)
        ours = [hole for hole in page.holes if hole.receiver == _receiver(task)]
        return ours, page.holes[-1].id if len(page.holes) == _PAGE else None

    async def _still(self, task: StoredTask, queue: Queue, number: int, holes: Sequence[Hole]) -> Sequence[Hole]:
        """Those of some leases that the task has still."""
        if not holes:
            return ()
        known, _ = await self._held(task, queue, number, holes[0].id.before())
        wanted = {hole.id for hole in holes}
        return [hole for hole in known if hole.id in wanted]

    async def _release(self, task: StoredTask, queue: Queue, token: int, number: int, holes: Sequence[Hole]) -> None:
        """Give messages back at once. A group that was forgotten has given them back itself."""
        if holes:
            settles = [Settle(one.id, one.deliveries, Action.RELEASE, 0.0, counts=False) for one in holes]
            step = GroupStep(queue, task.asked["group"], None, token, {number: settles})
            with suppress(InvalidReceipt):
                await self._leases.step(LeaseStep([step]), _AnyRoom())

    async def _token(self, task: StoredTask, queue: Queue) -> int | None:
        """That of the group's life; None if there is no group."""
        group = await self._leases.find(queue, task.asked["group"])
        return None if group is None else group.token

    async def _is_paused(self, task: StoredTask, queue: Queue) -> bool:
        group = await self._leases.find(queue, task.asked["group"])
        return group is not None and group.settings.is_paused(self._clock.now_ticks())

    # Moving

    async def _going(self, task: StoredTask, queue: Queue, lease: _Lease) -> _Going | None:
        """What becomes of a message; None if it stays, since nobody knows where it came from."""
        asked, message = task.asked, lease.message
        headers, story = decode_headers(message.headers), _story(message)
        name = asked.get("queue")
        if name is None and story is not None and story.group == asked["group"] and not story.is_alone:
            name = story.queue
        target = None if name is None else await self._queues.find(queue.application, name)
        if target is None:
            return None
        number = 0 if story is None else story.partition
        if (
            message.key is not None
            or not 1 <= number <= target.partitions
            or story is None
            or target.name != story.queue
        ):
            number = partition_for(target, message.key)
        ttl = asked.get("ttl") or (story.ttl if story is not None else None) or DEFAULT_TTL_SECONDS
        packed = message.headers if story is None else _headers(headers, story)
        return _Going(
            lease, target, Draft(number, message.body, ttl, message.content_type, message.key, headers=packed)
        )

    async def _move(self, task: StoredTask, queue: Queue, going: Sequence[_Going]) -> int:
        """Append messages and acknowledge their leases, as one; then delete what was moved.

        :returns: how many are moved by now, those included that a server moved before it died.
        :raises InvalidReceipt: the group was forgotten, and all leases with it.
        """
        if not going:
            return 0
        try:
            await self._settle(task, queue, going)
        except StaleReceipt:
            return await self._move_others(task, queue, going)
        await self._delete(queue, going)
        return len(going)

    async def _move_others(self, task: StoredTask, queue: Queue, going: Sequence[_Going]) -> int:
        """The same for messages of which some are settled, or at others."""
        holes = [await self._hole(task, queue, one.lease.location) for one in going]
        if await self._token(task, queue) != going[0].lease.token:
            raise InvalidReceipt  # so what the group does not have is not settled
        gone = [one for one, hole in zip(going, holes, strict=True) if hole is None]
        left = [one for one, hole in zip(going, holes, strict=True) if hole and hole.receiver == _receiver(task)]
        await self._delete(queue, gone)
        with suppress(StaleReceipt):  # then another server has taken the task over
            if left:
                await self._settle(task, queue, left)
                await self._delete(queue, left)
                return len(gone) + len(left)
        return len(gone)

    async def _delete(self, queue: Queue, moved: Sequence[_Going]) -> None:
        await self._log.delete(queue, [one.lease.location for one in moved])

    async def _hole(self, task: StoredTask, queue: Queue, at: Location) -> Hole | None:
        """The state of a message in the group; None if it is settled."""
        page = await self._leases.held(queue, task.asked["group"], at.partition, after=at.id.before(), limit=1)
        return next((hole for hole in page.holes if hole.id == at.id), None)

    async def _settle(self, task: StoredTask, queue: Queue, going: Sequence[_Going]) -> None:
        """Append messages and acknowledge their leases, as one.

        :raises StaleReceipt: one of the leases has ended; nothing is done.
        :raises InvalidReceipt: the group was forgotten, and all leases with it; nothing is done.
        """
        settles: dict[int, list[Settle]] = {}
        drafts: dict[str, tuple[Queue, list[Draft]]] = {}
        for one in going:
            settles.setdefault(one.lease.partition, []).append(one.lease.ended(Action.ACKNOWLEDGE))
            drafts.setdefault(one.target.name, (one.target, []))[1].append(one.draft)
        step = GroupStep(queue, task.asked["group"], None, going[0].lease.token, settles)
        await self._leases.step(LeaseStep([step], [AppendRequest(*each) for each in drafts.values()]), _AnyRoom())

    async def end(self, task: StoredTask, queue: Queue) -> StoredTask:
        """Give back what the task has received and not moved."""
        token = await self._token(task, queue)
        if token is None:
            return task
        for number in range(1, queue.partitions + 1):
            after: MessageId | None = ZERO_ID
            while after is not None:
                held, after = await self._held(task, queue, number, after)
                await self._release(task, queue, token, number, held)
        return task

    async def abandon(self, task: StoredTask) -> None:
        """A move leaves nothing outside of its queue."""


def _receiver(task: StoredTask) -> str:
    """Whose the leases of a task are."""
    return f"move {task.id.hex}"


def _story(message: Message) -> Story | None:
    """That of a dead letter; None for a message that is none."""
    try:
        return story_of(decode_headers(message.headers))
    except ValueError:
        return None


def _headers(headers: Mapping[str, bytes], story: Story) -> bytes | None:
    """Of a message that goes back, with its origin as far as there is room for it."""
    with suppress(ValueError):
        return encode_headers(with_origin(headers, story))
    return encode_headers(without_story(headers))
