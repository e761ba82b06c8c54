"""Schedules: what is sent by itself, and when.

A schedule is a message of the queue ``schedules``, at a place that follows from its name. So to set it again overwrites it.
Its pause is a message of its own, at the same id in another partition, and so is the copy that workers store once a month,
lest it expires: whoever pauses, changes or keeps a schedule writes in another place, and undoes nothing of the others.
Its next occurrence is an *alarm*: a message of the queue ``schedules-due`` with that moment as delivery time. A worker that gets
the alarm stores the occurrence and the next alarm in the commit that acknowledges this one (:mod:`qdo.tasks.alarms`). So each
occurrence is stored once, whichever worker does it, and no clock but the server's counts.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from time import monotonic
from typing import Any

import msgspec

from qdo.client import Client, Message, NewMessage
from qdo.client.places import place_named
from qdo.client.values import address
from qdo.client.wire import once_of
from qdo.tasks.occurrences import MISSED, Cron
from qdo.tasks.sending import make_queue
from qdo.tasks.wire import JSON, NAME, NO_JSON
from queuey.errors import ConfigurationError, NotFound, QueueNotFound
from queuey.model.schedules import (
    ALARMS,
    COPIES_PARTITION,
    COPY_LIFE_SECONDS,
    OCCURRENCE_HEADER,
    REMOVED,
    SCHEDULE_HEADER,
    SCHEDULE_LIFE_SECONDS,
    SCHEDULES,
    copy_place,
    kept_schedules,
    pause_place,
)

__all__ = [
    "ALARMS",
    "ALARMS_GROUP",
    "SCHEDULES",
    "Alarm",
    "Schedule",
    "ScheduleBook",
    "ScheduleNotFound",
    "SchedulePause",
]

log = logging.getLogger(__name__)

MOST_NAME = 256
"""Characters of the name of a schedule."""
ALARMS_GROUP = "schedules"
"""The lease group of all workers on alarms, whatever their own group is."""
COPY_SECONDS = 30 * 86_400
"""A schedule that was written and copied longer ago is copied."""
CHANGE_SECONDS = 5
"""From a change of a schedule until it takes effect. What is due until then is sent by the schedule as it was."""
AHEAD_SECONDS = 300 * 86_400
"""The longest delivery time of an alarm; the server takes 366 days."""
LATELY_SECONDS = 1.0
"""A worker on alarms asks for the server's clock this often at most."""
MOST_FORMER = 20
_ALARM_RULES = {"max_failures": 0, "backoff": {"first": 1, "factor": 2, "most": 60}}
"""An alarm that fails, because a queue may not be made for instance, is tried again until it succeeds."""


class ScheduleNotFound(NotFound):
    """There is no schedule of this name."""


@dataclass(frozen=True, kw_only=True)
class SchedulePause:
    """That a schedule is paused, or was."""

    until: int | None = None
    """What is due up to this moment is not sent; None as long as the pause has no end."""
    written: int = 0


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """What is sent, and when. Moments are whole seconds since 1970, by the server's clock."""

    name: str
    cron: str
    queue: str
    task: str | None = None
    """None for a message that is no task."""
    body: str = "{}"
    tz: str = "UTC"
    missed: str = "one"
    pause: SchedulePause | None = None
    """The last one. It is stored beside the schedule, and not in it."""
    revision: str = ""
    """Changes with each change of what or when. The alarms of one revision follow each other."""
    since: int = 0
    """Occurrences after this moment are this revision's."""
    former: Mapping[str, int] = field(default_factory=dict, hash=False)
    """Earlier revisions, each with the last moment that is its own."""
    started: bool = False
    """Its first alarm is stored."""
    written: int = 0
    copied: int = 0
    """When a worker stored a copy last."""

    @property
    def what(self) -> tuple[str | None, ...]:
        """All that makes another revision if it changes."""
        return self.cron, self.tz, self.missed, self.queue, self.task, self.body

    @property
    def line(self) -> Cron:
        """:raises ConfigurationError: the cron line is none, or the time zone does not exist."""
        return Cron(self.cron, self.tz)

    @property
    def paused(self) -> bool:
        return self.pause is not None and self.pause.until is None

    def check(self) -> None:
        """:raises ConfigurationError: the name, the task, the cron line, the time zone or ``missed`` is none."""
        if not (self.name.isprintable() and 1 <= len(self.name) <= MOST_NAME):
            raise ConfigurationError(
                f"schedule {self.name!r}: expected a name of 1 to {MOST_NAME} printable characters"
            )
        if self.task is not None and not (self.task and self.task.isprintable()):
            raise ConfigurationError(f"task is {self.task!r}: expected printable characters, such as myapp.jobs.report")
        if self.missed not in MISSED:
            raise ConfigurationError(f"missed is {self.missed!r}: expected one of {', '.join(MISSED)}")
        _ = self.line

    def not_paused(self, moment: int, now: float) -> int:
        """The first occurrence that the last pause lets be sent: one from ``moment`` on.

        :param moment: of an occurrence.
        :param now: the server's clock. As long as the schedule is paused, nothing is sent that is due now.
        """
        if self.pause is None:
            return moment
        until = now if self.pause.until is None else self.pause.until
        return moment if moment > until else self.line.after(until)

    def last_of(self, revision: str) -> float | None:
        """The last moment that a revision may send; None for a revision that has no part in this schedule."""
        return float("inf") if revision == self.revision else self.former.get(revision)

    def occurrence(self, moment: int) -> NewMessage:
        """The message of an occurrence. Its key keeps it one, also if two alarms have this moment."""
        headers = {SCHEDULE_HEADER: self.name, OCCURRENCE_HEADER: str(moment)}
        if self.task is not None:
            headers[NAME] = self.task
        once = once_of("occurrence", self.name, self.revision, moment)
        return NewMessage(
            self.body, content_type=None if self.task is None else JSON, idempotency_key=once, headers=headers
        )


@dataclass(frozen=True)
class Alarm:
    """A schedule comes due."""

    schedule: Schedule
    """What is sent and when, as it was when the alarm was stored."""
    moment: int

    @classmethod
    def at(cls, moment: int, schedule: Schedule) -> Alarm:
        """The alarm of a moment. It is the same, whenever it is made: so two of one moment become one."""
        return cls(replace(schedule, pause=None, since=0, former={}, started=False, written=0, copied=0), moment)

    def to_message(self, now: float) -> NewMessage:
        """:param now: the server's clock."""
        due = min(self.moment, int(now) + AHEAD_SECONDS)
        schedule = self.schedule
        return NewMessage(
            msgspec.json.encode(self),
            ttl_seconds=SCHEDULE_LIFE_SECONDS,
            deliver_at=str(due),
            content_type=JSON,
            idempotency_key=once_of("alarm", schedule.name, schedule.revision, self.moment, due),
        )

    @classmethod
    def of(cls, message: Message) -> Alarm:
        """:raises Exception: one of :data:`~qdo.tasks.wire.NO_JSON`: it is no alarm."""
        return msgspec.json.decode(message.body, type=cls)


class ScheduleBook:
    """The schedules of one application."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._created: float | None = None
        """When the queue was made, as far as is known."""
        self._looked: tuple[float, float] = (-inf, 0.0)
        """When the server's clock was asked for, as elapsed seconds, and what it said."""

    def lately(self) -> float:
        """The server's clock, or what it showed up to :data:`LATELY_SECONDS` ago."""
        elapsed = monotonic()
        if elapsed - self._looked[0] > LATELY_SECONDS:
            self._looked = elapsed, self.now()
        return self._looked[1]

    def now(self) -> float:
        """The server's clock."""
        return float(self._client.read(SCHEDULES, limit=1, newest_first=True, with_bodies=False).watermark)

    def get(self, name: str) -> Schedule | None:
        """A schedule; None if there is none of this name."""
        try:
            found = None if self._created is None else self._at(place_named(name, self._created))
            return found or self._at(self._place(name))  # the queue may be another one by now
        except QueueNotFound:
            return None

    def _at(self, place: str) -> Schedule | None:
        found = self._client.get(SCHEDULES, [place, pause_place(place), copy_place(place)])
        return next(_schedules_in(found), None)

    def found(self, name: str) -> Schedule:
        """:raises ScheduleNotFound: there is none of this name."""
        found = self.get(name)
        if found is None:
            raise ScheduleNotFound(f"no schedule is named {name}: 'queuey schedule ls' lists those there are")
        return found

    def all(self) -> Iterator[Schedule]:
        """Every schedule, by name. Messages that are none are passed over, with a warning in the log."""
        try:
            found = list(self._client.iterate(SCHEDULES))
        except QueueNotFound:
            return
        yield from sorted(_schedules_in(found), key=lambda one: one.name)

    def set(self, wanted: Schedule) -> bool:
        """Make a schedule, or change what it sends and when. A pause stays.

        It may be repeated after an error: an occurrence is sent once in any case. Only if the server takes longer than
        ``CHANGE_SECONDS`` to store the change, what comes due in that time may be sent as it was and as it is.

        :returns: False if it was like this already.
        :raises ConfigurationError: as :meth:`Schedule.check`. Nothing was changed.
        :raises InvalidParameter: no queue can have the name that is given. Nothing is set.
        """
        wanted.check()
        line = wanted.line
        make_queue(self._client, wanted.queue)
        self._make_queues()
        before = self.get(wanted.name)
        if before is not None and before.what == wanted.what:
            if not before.started:
                self._start(before, line)
            return False
        while True:
            since = int(self.now()) + CHANGE_SECONDS
            made = self._following(wanted, before, since)
            self._put(made)
            if self.now() <= since:
                break
            self._append_first(made, line)  # what is due up to the next try is this revision's
            before = made
        self._start(made, line)
        return True

    @staticmethod
    def _following(wanted: Schedule, before: Schedule | None, since: int) -> Schedule:
        """A new revision, behind those before."""
        former: dict[str, int] = {}
        if before is not None:
            former = {**before.former, before.revision: since}
            former = dict(list(former.items())[-MOST_FORMER:])
        return replace(wanted, revision=uuid.uuid4().hex, since=since, former=former, started=False)

    def _start(self, schedule: Schedule, line: Cron) -> None:
        self._append_first(schedule, line)
        self._put_over(schedule, started=True)

    def _append_first(self, schedule: Schedule, line: Cron) -> None:
        first = Alarm.at(line.after(schedule.since), schedule)
        # As an entry of a batch, like those that follow: a key of the request would be another one to the server.
        self._client.append_batch(ALARMS, [first.to_message(self.now())])

    def pause(self, name: str, *, paused: bool) -> Schedule:
        """Send nothing while the schedule is paused, and nothing later that was due before the pause ends.

        :raises ScheduleNotFound: there is none of this name.
        """
        found = self.found(name)
        if found.paused == paused:
            return found
        return replace(found, pause=self._put_pause(name, SchedulePause(until=None if paused else int(self.now()))))

    def remove(self, name: str) -> None:
        """Send nothing any more.

        :raises ScheduleNotFound: there is none of this name.
        """
        self.found(name)
        place = self._place(name)
        self._put_at(place, REMOVED)
        self._client.delete(SCHEDULES, [pause_place(place), copy_place(place)])

    def keep(self, schedule: Schedule, now: float) -> None:
        """Let a schedule and its pause go on when they expire, as they are now. It undoes no change that comes meanwhile."""
        if now - max(schedule.written, schedule.copied) > COPY_SECONDS:
            self._make_queues()
            body = msgspec.json.encode(replace(schedule, written=int(self.now()), copied=0))
            self._put_at(copy_place(self._place(schedule.name)), body, COPY_LIFE_SECONDS)

    def _put_over(self, schedule: Schedule, **changes: Any) -> None:
        """Change a schedule, unless somebody has removed it, or made another of it, since it was read."""
        kept = self.get(schedule.name)
        if kept is not None and kept.revision == schedule.revision:
            self._put(replace(kept, **changes))

    def _put(self, schedule: Schedule) -> None:
        body = msgspec.json.encode(replace(schedule, pause=None, written=int(self.now()), copied=0))
        self._put_at(self._place(schedule.name), body)

    def _put_pause(self, name: str, pause: SchedulePause) -> SchedulePause:
        written = replace(pause, written=int(self.now()))
        self._put_at(pause_place(self._place(name)), msgspec.json.encode(written))
        return written

    def _put_at(self, place: str, body: bytes, seconds: int = SCHEDULE_LIFE_SECONDS) -> None:
        new = NewMessage(body, ttl_seconds=seconds, content_type=JSON)
        self._client.put(SCHEDULES, place, new)

    def _make_queues(self) -> None:
        kept = self._client.find_queue(SCHEDULES)
        if kept is None or kept.partitions < COPIES_PARTITION:
            self._client.create_queue(SCHEDULES, partitions=COPIES_PARTITION)
        if self._client.find_queue(ALARMS) is None:
            rules: Mapping[str, Any] = _ALARM_RULES
            self._client.create_queue(ALARMS, retention="acknowledged", leases=rules)

    def _place(self, name: str) -> str:
        """Where the schedule of a name is.

        :raises QueueNotFound: there are no schedules.
        """
        queue = self._client.find_queue(SCHEDULES)
        if queue is None or queue.created is None:
            raise QueueNotFound(f"there is no queue {SCHEDULES}")
        self._created = queue.created
        return place_named(name, queue.created)


def _schedules_in(found: Sequence[Message]) -> Iterator[Schedule]:
    """The schedules of these messages, each with its pause. What is none is passed over, with a warning in the log."""
    for place, one in kept_schedules({address(message): _object_in(message) for message in found}).items():
        try:
            yield msgspec.convert(one, Schedule)
        except msgspec.MsgspecError as error:
            log.warning("message %s of %s is no schedule, and is passed over: %s", place, SCHEDULES, error)


def _object_in(message: Message) -> Mapping[str, Any] | None:
    """The JSON object in a message; None for anything else."""
    try:
        return msgspec.json.decode(message.body, type=dict[str, Any] | None)
    except NO_JSON as error:
        log.warning("message %s of %s is no schedule, and is passed over: %s", address(message), SCHEDULES, error)
        return None
