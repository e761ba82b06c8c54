"""Redrive: dead letters of a lease group go back, each once (G25).

A task has a lease group of its own on the dead-letter queue, which hands out each letter once. A step receives some
letters and notes those that are to be moved in the task's row. The next step appends them and acknowledges their leases
as one, then deletes the letters, and goes on. So a letter that was moved is one whose lease is settled: after a death the
next server finds out which of the noted letters those are, and deletes them. It takes the leases of the others away
first, so a server that wakes up late can move none of them.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from queuey.clock import Clock
from queuey.errors import InvalidReceipt, LeaseGroupNotFound, QueueNotFound, StaleReceipt
from queuey.ids import TICKS_PER_SECOND, ZERO_ID, MessageId
from queuey.model import (
    DEFAULT_TTL_SECONDS,
    AppendRequest,
    Draft,
    Location,
    Message,
    Queue,
    Retention,
    Span,
    decode_headers,
    encode_headers,
)
from queuey.model.dead_letters import Story, story_of, with_origin, without_story
from queuey.model.lease_groups import GroupSettings, LeaseGroup
from queuey.model.lease_requests import Action, ReceiveRequest, Settle
from queuey.model.lease_steps import GroupStep, HandedOut, LeaseOutcome, LeaseStep
from queuey.model.only_groups import only_for
from queuey.model.tasks import StoredTask, TaskState
from queuey.model.values import IdempotencyKey
from queuey.monitor.metrics import DEAD_LETTERS_MOVED, Monitor
from queuey.service.log import Log, QueueRead, partition_for
from queuey.service.queues import Queues
from queuey.service.tasks.kinds import Stepped, TaskKind, seconds_until
from queuey.service.tasks.letters import NOTED, REDRIVE, moves_all
from queuey.service.turns import Turns
from queuey.storage import Stores

__all__ = ["LetterFilter", "Previewed", "RedriveKind", "redrive_name"]

MOST_TOGETHER = 100
"""Letters of one step."""
_MOST_BYTES = 1 << 20
"""Of the bodies of these letters, unless one has more."""
_LEASE_SECONDS = 60.0
_LOOK_AGAIN_SECONDS = 1.0
MOST_PREVIEWED = 10_000
"""Letters that a preview looks at."""
_PAGE = 500
_DIGEST = b"redrive"


def redrive_name(group: str) -> str:
    """The name of the task that moves the dead letters of a lease group."""
    return f"{REDRIVE}:{group}"


class LetterFilter(NamedTuple):
    """Which dead letters are meant. An empty text, no header and no time filter nothing."""

    queue: str
    """They come from this queue."""
    group: str
    """This group gave them up."""
    reason: str = ""
    """A part of the reason."""
    key: str | None = None
    headers: Mapping[str, str] = {}
    """Values of headers of the message, names in lower case."""
    since: int = 0
    """They became dead letters at this moment or later, in ticks."""
    until: int = 0
    """They became dead letters before this moment, in ticks; 0 for no end."""

    def matches(self, letter: Message) -> Story | None:
        """The story of a letter that is meant; None for others, and for what is no dead letter."""
        headers = decode_headers(letter.headers)
        try:
            story = story_of(headers)
        except ValueError:
            return None
        own = {name.lower(): value for name, value in without_story(headers).items()}
        is_meant = (
            (story.queue, story.group) == (self.queue, self.group)
            and self.reason in story.reason
            and self.key in (None, letter.key)
            and all(own.get(name) == value.encode() for name, value in self.headers.items())
            and self.since <= letter.ticks
            and (not self.until or letter.ticks < self.until)
        )
        return story if is_meant else None


class Previewed(NamedTuple):
    """What a redrive would do."""

    matching: int
    looked: int
    more: bool
    """There are more letters than were looked at."""


class _Judged(NamedTuple):
    """What becomes of letters that were received."""

    batch: list[HandedOut]
    """They are to be moved."""
    passed: list[HandedOut]
    """They stay: they are not meant, or cannot be moved."""
    again: list[HandedOut]
    """They come again."""
    problems: list[str]
    """Why letters cannot be moved."""


class RedriveKind(TaskKind):
    """Moves dead letters, at the rate that was asked for."""

    def __init__(self, stores: Stores, queues: Queues, log: Log, clock: Clock, monitor: Monitor) -> None:
        self._leases, self._messages, self._tasks = stores.leases, stores.messages, stores.tasks
        self._queues, self._log, self._clock, self._monitor = queues, log, clock, monitor

    async def preview(self, dead: Queue, wanted: LetterFilter) -> Previewed:
        """How many letters would be moved, of the first :data:`MOST_PREVIEWED`."""
        matching, looked, turns = 0, 0, Turns()
        for number in range(1, dead.partitions + 1):
            after, more = ZERO_ID, True
            while more:
                if looked >= MOST_PREVIEWED:
                    return Previewed(matching, looked, more=True)
                read = QueueRead([(number, Span(after))], min(_PAGE, MOST_PREVIEWED - looked))
                page = (await self._log.read(dead, read, turns)).pages[0].page
                looked += len(page.messages)
                letters = [(number, letter) for letter in page.messages if wanted.matches(letter) is not None]
                matching += len(letters) - len(await self._settled(dead, letters))
                more = page.more
                after = page.messages[-1].id if page.messages else after
        return Previewed(matching, looked, more=False)

    async def step(self, task: StoredTask, queue: Queue) -> Stepped:
        asked, place = _Asked.of(task), dict(task.place)
        dead = await self._queues.find(queue.application, asked.dead_letters)
        if place.get("is_over") or dead is None:
            if dead is not None:
                await self._leases.forget_group(dead.uuid, _group_of(task))
            return Stepped(task.changed(state=TaskState.DONE))
        if "token" not in place:
            return Stepped(task.changed(place={"token": secrets.randbits(63), "round": 0, "ended": [], NOTED: []}))
        if await moves_all(self._tasks, dead):
            return await self._given_way(task, place, dead)
        early = seconds_until(place.get("not_before", 0), asked.rate, self._clock.now_ticks())
        if early > 0:
            return Stepped(task, early)
        moved = await self._move(task, queue, dead, asked)
        self._monitor.count(DEAD_LETTERS_MOVED, moved, task.application, "moved")
        place |= {NOTED: [], "round": place["round"] + 1}
        if asked.rate and moved:
            place["not_before"] = self._clock.now_ticks() + round(moved / asked.rate * TICKS_PER_SECOND)
        return await self._next(task.changed(done=task.done + moved), place, dead, asked, queue)

    async def _given_way(self, task: StoredTask, place: dict[str, Any], dead: Queue) -> Stepped:
        """Give the noted letters back, but for those that were moved: a move task has the others while it runs."""
        noted = _noted(task)
        if not noted:
            return Stepped(task, _LOOK_AGAIN_SECONDS)
        moved = await self._recover(task, dead)
        place |= {NOTED: [], "round": place["round"] + 1}
        counts = {"looked": task.looked - len(noted) + moved, "done": task.done + moved}
        return Stepped(task.changed(place=place, **counts), _LOOK_AGAIN_SECONDS)

    # Which letters are next

    async def _next(self, task: StoredTask, place: dict[str, Any], dead: Queue, asked: _Asked, queue: Queue) -> Stepped:
        """Receive some letters, and note those that are to be moved."""
        numbers = [number for number in range(1, dead.partitions + 1) if number not in place["ended"]]
        outcome = await self._receive(task, place, dead, numbers, asked) if numbers else None
        if outcome is not None and outcome.more:
            return Stepped(task.changed(place=place))
        handed = [*outcome.handed] if outcome is not None else []
        if not handed:
            counts = await self._leases.count(dead.uuid, _group_of(task), numbers)
            waits = any(count.holes for count in counts.values()) or self._log.watermark(dead) < asked.upto
            again = await self._come_again(task, dead, place["ended"], asked)
            place["ended"] = [number for number in place["ended"] if number not in again]
            place["is_over"] = not (waits or again)
            return Stepped(task.changed(place=place), _LOOK_AGAIN_SECONDS if waits else 0.0)
        place["ended"] = [*place["ended"], *{one.partition for one in handed if one.message.ticks > asked.upto}]
        meant = [one for one in handed if one.message.ticks <= asked.upto]
        settled = await self._settled(dead, [(one.partition, one.message) for one in meant])
        found = await self._judged(meant, settled, queue, asked)
        await self._settle(task, place, dead, found.passed, Action.ACKNOWLEDGE)
        await self._settle(task, place, dead, found.again, Action.RELEASE)
        failed = len(found.problems)
        self._monitor.count(DEAD_LETTERS_MOVED, failed, task.application, "failed")
        place[NOTED] = [[one.partition, one.message.id.hex, one.hole.deliveries] for one in found.batch]
        looked = task.looked + len(found.batch) + len(found.passed)
        reason = found.problems[-1] if failed else task.reason
        return Stepped(task.changed(place=place, looked=looked, failed=task.failed + failed, reason=reason))

    async def _come_again(self, task: StoredTask, dead: Queue, ended: Sequence[int], asked: _Asked) -> Sequence[int]:
        """Partitions that have handed out later letters, and hold some that are meant: their leases were given back."""
        found = []
        for number in ended:
            _, holes, _ = await self._leases.held(dead.uuid, _group_of(task), number, after=ZERO_ID, limit=1)
            if holes and holes[0].id.ticks <= asked.upto:
                found.append(number)
        return found

    async def _settled(self, dead: Queue, letters: Sequence[tuple[int, Message]]) -> Collection[Location]:
        """Those of some letters that their queue gives away once those before them are settled: nobody wants them back.

        :param letters: with their partitions.
        """
        names: Sequence[str] = ()
        if letters and dead.retention is Retention.ACKNOWLEDGED:
            names = [name for name in await self._leases.list_groups(dead.uuid) if ":" not in name]
        settled = {Location(number, letter.id) for number, letter in letters} if names else set[Location]()
        for name in names:
            for number, counts in (await self._leases.count(dead.uuid, name, [*{at for at, _ in letters}])).items():
                keys = {letter.id: letter.key for at, letter in letters if at == number}
                held = await self._held(dead, name, number, Span(min(keys).before(), max(keys)))
                for id_, key in keys.items():  # one of a closed key may have been passed over
                    if id_ > counts.frontier or (counts.closed_keys and key is not None) or id_ in held:
                        settled.discard(Location(number, id_))
        return settled

    async def _held(self, dead: Queue, name: str, number: int, span: Span) -> Collection[MessageId]:
        """What a group holds between two letters."""
        found, after = set[MessageId](), span.after
        while after < span.upto:
            _, holes, _ = await self._leases.held(dead.uuid, name, number, after=after, limit=_PAGE)
            found.update([hole.id for hole in holes])
            after = holes[-1].id if len(holes) == _PAGE else span.upto
        return found

    async def _judged(
        self, letters: Sequence[HandedOut], settled: Collection[Location], queue: Queue, asked: _Asked
    ) -> _Judged:
        """What becomes of letters that were received. One without its message is moved alone: that may be large."""
        found = _Judged([], [], [], [])
        for at, one in enumerate(letters):
            is_meant = Location(one.partition, one.message.id) not in settled
            story = asked.filter.matches(one.message) if is_meant else None
            problem = None if story is None else await self._problem(one.message, story, queue, asked)
            if problem is not None:
                found.problems.append(problem)
            if story is None or problem is not None:
                found.passed.append(one)
            elif story.is_alone and found.batch:
                found.again.append(one)
            else:
                found.batch.append(one)
                if story.is_alone:
                    found.again.extend(letters[at + 1 :])
                    break
        return found

    async def _receive(
        self, task: StoredTask, place: Mapping[str, Any], dead: Queue, numbers: Sequence[int], asked: _Asked
    ) -> LeaseOutcome:
        most = MOST_TOGETHER if not asked.rate else min(max(int(asked.rate), 1), MOST_TOGETHER)
        new = LeaseGroup(place["token"], settings=GroupSettings(max_failures=0))
        group = GroupStep(dead, _group_of(task), new, receive_from=numbers)
        key = f"{task.id.hex} {place['round']}"
        receive = ReceiveRequest(most, _LEASE_SECONDS, max_bytes=_MOST_BYTES)
        outcome = await self._leases.step(LeaseStep([group], (), receive, IdempotencyKey(key, _DIGEST)))
        if outcome.larger:
            receive = receive._replace(max_bytes=outcome.larger)
            attempt = IdempotencyKey(f"{key} larger", _DIGEST)
            outcome = await self._leases.step(LeaseStep([group], (), receive, attempt))
        return outcome

    async def _settle(
        self, task: StoredTask, place: Mapping[str, Any], dead: Queue, handed: Sequence[HandedOut], action: Action
    ) -> None:
        """Settle leases without appending anything. It does not matter if some had ended."""
        if handed:
            leases = [(one.partition, one.message.id, one.hole.deliveries) for one in handed]
            await self._leases.step(LeaseStep([_group_step(task, place, dead, leases, action)]))

    async def _problem(self, letter: Message, story: Story, queue: Queue, asked: _Asked) -> str | None:
        """Why a letter cannot be moved, or None."""
        if story.is_alone and await self._original(queue, story) is None:
            return f"letter {letter.id.hex} has no room for its message, which is gone from {queue.name}"
        try:
            _headers(letter, story, asked)
        except ValueError as error:
            return f"letter {letter.id.hex}: {error}"
        return None

    # Moving them

    async def _move(self, task: StoredTask, queue: Queue, dead: Queue, asked: _Asked) -> int:
        """Append the noted messages and acknowledge their letters, as one; then delete the letters."""
        place, leases = task.place, _noted(task)
        if not leases:
            return 0
        wanted = [Location(number, id_) for number, id_, _ in leases]
        letters = await self._messages.fetch(dead, wanted, now_ticks=self._clock.now_ticks())
        target = queue if asked.queue is None else await self._queues.find(queue.application, asked.queue)
        if target is None:
            raise QueueNotFound(f"no queue is named {asked.queue} any more")
        moved: list[Location] = []
        drafts: list[Draft] = []
        for at, letter in zip(wanted, letters, strict=True):
            draft = None if letter is None else await self._draft(letter, queue, target, asked)
            if draft is not None:
                moved.append(at)
                drafts.append(draft)
        appends = [AppendRequest(target, drafts)] if drafts else []
        step = LeaseStep([_group_step(task, place, dead, leases, Action.ACKNOWLEDGE)], appends)
        try:
            outcome = await self._leases.step(step)
        except StaleReceipt:
            return await self._recover(task, dead)
        for request, appended in zip(appends, outcome.appended, strict=True):
            self._log.arrived(request.queue, appended.placed)
        await self._log.delete(dead, moved)
        return len(moved)

    async def _draft(self, letter: Message, queue: Queue, target: Queue, asked: _Asked) -> Draft | None:
        """The message of a letter; None if it is gone."""
        try:
            story = story_of(decode_headers(letter.headers))
        except ValueError:
            return None
        message = letter if not story.is_alone else await self._original(queue, story)
        if message is None:
            return None
        headers = _headers(message, story, asked)
        number = story.partition
        if letter.key is not None or not 1 <= number <= target.partitions or target.uuid != queue.uuid:
            number = partition_for(target, letter.key)
        ttl = story.ttl or DEFAULT_TTL_SECONDS
        return Draft(number, message.body, ttl, message.content_type, letter.key, headers=headers)

    async def _original(self, queue: Queue, story: Story) -> Message | None:
        """The message of a letter that is only a story, if it is still in its queue."""
        try:
            place = Location(story.partition, MessageId.parse(story.message_id))
        except ValueError:
            return None  # whoever wrote it named no message
        queue = await self._queues.with_partitions(queue, place.partition)
        if not 1 <= place.partition <= queue.partitions:
            return None
        (found,) = await self._messages.fetch(queue, [place], now_ticks=self._clock.now_ticks())
        is_it = found is not None and story.alone(found.body).sha256 == story.sha256
        return found if is_it else None

    async def _recover(self, task: StoredTask, dead: Queue) -> int:
        """Find out which of the noted letters were moved by a server that died, and delete those.

        The leases of the others end, so nobody moves them with these any more.
        """
        leases = _noted(task)
        outcome = await self._leases.step(LeaseStep([_group_step(task, task.place, dead, leases, Action.RELEASE)]))
        of_partition: dict[int, list[MessageId]] = {}
        for number, id_, _ in leases:
            of_partition.setdefault(number, []).append(id_)
        moved = []
        for stale in outcome.stale:
            id_ = of_partition[stale.partition][stale.at]
            _, holes, _ = await self._leases.held(
                dead.uuid, _group_of(task), stale.partition, after=id_.before(), limit=1
            )
            if not (holes and holes[0].id == id_):
                moved.append(Location(stale.partition, id_))
        if moved:
            await self._log.delete(dead, moved)
        return len(moved)

    async def end(self, task: StoredTask, queue: Queue) -> StoredTask:
        """Delete the letters that were moved, and forget the group. The others stay where they are."""
        moved = await self._clear(task)
        return task.changed(looked=task.looked - len(_noted(task)) + moved, done=task.done + moved)

    async def abandon(self, task: StoredTask) -> None:
        await self._clear(task)

    async def _clear(self, task: StoredTask) -> int:
        """Leave nothing of a redrive on the dead-letter queue.

        :returns: how many of the noted letters had been moved.
        """
        dead = await self._queues.find(task.application, _Asked.of(task).dead_letters)
        if dead is None or "token" not in task.place:
            return 0
        moved = 0
        if _noted(task):
            with suppress(InvalidReceipt, LeaseGroupNotFound, QueueNotFound):  # gone by the end before
                moved = await self._recover(task, dead)
        await self._leases.forget_group(dead.uuid, _group_of(task))
        self._monitor.count(DEAD_LETTERS_MOVED, moved, task.application, "moved")
        return moved


class _Asked(NamedTuple):
    """What the caller asked for."""

    dead_letters: str
    group: str
    queue: str | None
    group_only: bool
    rate: float
    upto: int
    filter: LetterFilter

    @classmethod
    def of(cls, task: StoredTask) -> _Asked:
        asked, group = task.asked, task.name.partition(":")[2]
        wanted = LetterFilter(task.queue_name, group, **asked["match"])
        return cls(
            asked["from"],
            group,
            asked.get("queue"),
            asked.get("group_only", False),
            asked.get("rate", 0.0),
            asked["upto"],
            wanted,
        )


_Lease = tuple[int, MessageId, int]
"""Partition, letter, and delivery."""


def _noted(task: StoredTask) -> list[_Lease]:
    """The letters that a step noted, to be moved by the next."""
    return [(number, MessageId.parse(text), delivery) for number, text, delivery in task.place.get(NOTED, ())]


def _group_of(task: StoredTask) -> str:
    """The lease group of a task: no caller can name it, since the name has a colon."""
    return f"{REDRIVE}:{task.id.hex}"


def _group_step(
    task: StoredTask, place: Mapping[str, Any], dead: Queue, leases: Sequence[_Lease], action: Action
) -> GroupStep:
    settles: dict[int, list[Settle]] = {}
    seconds = 0.0 if action is Action.RELEASE else None
    for number, id_, delivery in leases:
        settles.setdefault(number, []).append(Settle(id_, delivery, action, seconds, counts=False))
    return GroupStep(dead, _group_of(task), None, place["token"], settles)


def _headers(message: Message, story: Story, asked: _Asked) -> bytes | None:
    """The headers of a message that goes back, with its origin as far as there is room for it.

    :raises ValueError: the message's own headers leave no room for the name of the group.
    """
    own = without_story(decode_headers(message.headers))
    kept = only_for(own, asked.group) if asked.group_only else own
    if not story.is_alone:
        with suppress(ValueError):
            return encode_headers(with_origin(kept, story))
    return encode_headers(kept)
