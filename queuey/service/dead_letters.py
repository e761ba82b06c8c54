"""Moves messages that are given up to the dead letters (G25)."""

from __future__ import annotations

import logging
import zlib

from queuey.clock import Clock
from queuey.errors import QueueNotFound, QueueyError, StaleReceipt
from queuey.ids import TICKS_PER_SECOND, MessageId, format_timestamp
from queuey.model import (
    MAX_TTL_SECONDS,
    AppendRequest,
    Draft,
    IdempotencyKey,
    Location,
    Message,
    Queue,
    Retention,
    decode_headers,
)
from queuey.model.dead_letters import (
    ALONE_TYPE,
    DEAD_LETTER_SECONDS,
    Story,
    parted_reason,
    story_to_header,
    with_story,
)
from queuey.model.lease_groups import LeaseGroup
from queuey.model.lease_requests import Action, Settle
from queuey.model.lease_steps import GivenUp, GroupStep, LeaseStep
from queuey.monitor.metrics import DEAD_LETTERS, Monitor
from queuey.service.breakers import Breakers
from queuey.service.log import Log, partition_for
from queuey.service.queues import Queues, QueueSettings
from queuey.sparing import SparingLog
from queuey.storage import Stores

__all__ = ["DeadLetters", "dead_letter_queue"]

log = logging.getLogger(__name__)

_SUFFIX = "-dead"
_MOST_NAME = 50
_TOO_OFTEN = "failed too often"


def dead_letter_queue(queue: str) -> str:
    """The name of a queue's dead-letter queue, if its group names none.

    >>> dead_letter_queue("jobs"), len(dead_letter_queue("a" * 50))
    ('jobs-dead', 50)
    """
    if len(queue) + len(_SUFFIX) <= _MOST_NAME:
        return queue + _SUFFIX
    digest = f"-{zlib.crc32(queue.encode()):08x}{_SUFFIX}"
    return queue[: _MOST_NAME - len(digest)] + digest


def _is_of_clients(queue: Queue, name: str) -> bool:
    """Whether SQS clients have named the dead-letter queue: its ARN ends a text in a text of JSON."""
    return f':{name}\\"' in queue.attributes


def _name_of(one: GroupStep, given_up: GivenUp, group: LeaseGroup) -> IdempotencyKey:
    """Keeps the letter of a message one, though servers of a weak group may move it at the same time.

    No caller can use such a key: it is not ASCII.
    """
    place = f"{one.queue.uuid.hex} {one.name} {group.token} {given_up.partition} {given_up.hole.id.hex}"
    return IdempotencyKey(f"† {place}", b"dead letter")


class DeadLetters:
    """Moves one message after the other. The store reports a message until it is moved, so none is lost on the way."""

    def __init__(self, stores: Stores, queues: Queues, log: Log, clock: Clock, monitor: Monitor) -> None:
        self._stores, self._queues, self._log = stores, queues, log
        self._clock, self._monitor = clock, monitor
        self._breakers = Breakers(stores, clock, monitor)
        self._sparing = SparingLog(logging.getLogger(__name__), clock.elapsed)

    async def bury(self, one: GroupStep, given_up: GivenUp) -> None:
        """Move a message, or leave it where it is if that is not possible now."""
        application = one.queue.application
        try:
            is_moved = await self._move(one, given_up)
        except StaleReceipt:
            return  # another server has moved it
        except QueueyError as error:
            self._monitor.count(DEAD_LETTERS, 1, application, "waits")
            self._sparing.write(
                (one.queue.uuid, error.code),
                logging.WARNING,
                "message %s of queue %s/%s is given up, and its dead letter could not be stored: %s",
                given_up.hole.id.hex,
                application,
                one.queue.name,
                error,
            )
        else:
            self._monitor.count(DEAD_LETTERS, int(is_moved), application, "moved")

    async def _move(self, one: GroupStep, given_up: GivenUp) -> bool:
        """Move a message; False if it is gone, or its group is."""
        leases = self._stores.leases
        group = await leases.find_group(one.queue.uuid, one.name)
        if group is None:
            return False
        place = Location(given_up.partition, given_up.hole.id)
        queue = one.queue._replace(consistency=one.queue.consistency.at_least_strong)
        (message,) = await self._stores.messages.fetch(queue, [place], now_ticks=self._clock.now_ticks())
        appends: list[AppendRequest] = []
        breaker = group.settings.breaker
        if message is not None:
            dead = await self._queue(one.queue, group)
            await self._breakers.prepare(one.queue, one.name, group.settings, dead)
            letter = self._letter(one, given_up, message, dead)
            if not group.settings.exact:
                letter = letter._replace(idempotency=_name_of(one, given_up, group))
            appends.append(AppendRequest(dead, [letter]))
        action = Action.REMOVE if message is None else Action.MOVED
        ended = Settle(given_up.hole.id, given_up.hole.deliveries, action)
        step = GroupStep(one.queue, one.name, None, group.token, {given_up.partition: [ended]})
        outcome = await leases.step(LeaseStep([step], appends))
        for request, appended in zip(appends, outcome.appended, strict=True):
            self._log.arrived(request.queue, appended.placed)
            if breaker is not None and not appended.repeated:
                await self._breakers.note(one.queue, one.name, breaker, appended.placed[0].id.ticks)
        return bool(appends)

    async def _queue(self, queue: Queue, group: LeaseGroup) -> Queue:
        """The dead-letter queue, which is made if it does not exist.

        :raises QueueNotFound: it does not exist, and SQS clients make theirs themselves: what is made here would be of
            another type, and in the way of theirs.
        """
        name = group.settings.dead_letter_queue or dead_letter_queue(queue.name)
        if name == queue.name:
            raise QueueNotFound(f"the dead-letter queue of {name} is {name} itself")
        found = await self._queues.find(queue.application, name)
        if found is None and _is_of_clients(queue, name):
            raise QueueNotFound(f"{name} was removed: make it again, or let {queue.name} name another one")
        return found or await self._queues.create(queue.application, name, QueueSettings())

    def _letter(self, one: GroupStep, given_up: GivenUp, message: Message, dead: Queue) -> Draft:
        hole = given_up.hole
        reason, traceback = parted_reason(_TOO_OFTEN if given_up.reason is None else given_up.reason)
        story = Story(
            one.queue.name,
            given_up.partition,
            message.id.hex,
            one.name,
            hole.failures,
            reason,
            hole.deliveries,
            format_timestamp(hole.first_delivered) if hole.first_delivered else None,
            format_timestamp(self._clock.now_ticks()),
            traceback=traceback,
            ttl=min((message.expires_ticks - message.ticks) // TICKS_PER_SECOND, MAX_TTL_SECONDS),
        ).after(decode_headers(message.headers))
        partition, ttl = partition_for(dead, message.key), self._ttl(story, dead)
        stays = one.queue.retention is not Retention.ACKNOWLEDGED
        for told, bounded in ((story, True), (story._replace(traceback=""), stays)):
            try:
                headers = with_story(message.headers, told, bounded=bounded)
            except ValueError:  # the message's own headers leave no room for it
                continue
            kind = message.content_type
            return Draft(partition, message.body, ttl, kind, message.key, headers=headers)
        alone = story.alone(message.body)
        body, headers = story_to_header(alone), with_story(None, alone)
        return Draft(partition, body, ttl, ALONE_TYPE, message.key, headers=headers)

    def _ttl(self, story: Story, dead: Queue) -> int:
        """Seconds that the letter of a message lives: from the send, or the delivery time, of what it was first."""
        life = dead.leases.letters
        if life is None:
            return DEAD_LETTER_SECONDS
        sent = MessageId.parse(story.first_message_id).ticks
        age = round((self._clock.now_ticks() - sent) / TICKS_PER_SECOND) if life.from_send else 0
        return min(max(life.seconds - age, 1), life.seconds)  # a forged story may name a moment to come
