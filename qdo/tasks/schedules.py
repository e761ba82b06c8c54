"""Schedules: what is sent by itself, and when.

A schedule is a message of the queue ``schedules``, at a place that follows from its name. So to set it again overwrites it.
Its next occurrence is an *alarm*: a message of the queue ``schedules-due`` with that moment as delivery time. A worker that gets
the alarm stores the occurrence and the next alarm in the commit that acknowledges this one (:mod:`qdo.tasks.alarms`). So each
occurrence is stored once, whichever worker does it, and no clock but the server's counts.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from qdo.client import Client, Message, NewMessage
from qdo.client.places import place_named
from qdo.client.wire import once_of
from qdo.tasks.occurrences import Cron
from qdo.tasks.sending import make_queue
from qdo.tasks.wire import JSON, NAME
from queuey.errors import NotFound, QueueNotFound
from queuey.model.schedules import ALARMS, OCCURRENCE_HEADER, SCHEDULE_HEADER, SCHEDULE_LIFE_SECONDS, SCHEDULES

__all__ = ["ALARMS", "ALARMS_GROUP", "SCHEDULES", "Alarm", "Schedule", "ScheduleBook", "ScheduleNotFound"]

ALARMS_GROUP = "schedules"
"""The lease group of all workers on alarms, whatever their own group is."""
RENEW_SECONDS = 30 * 86_400
"""A schedule that was written longer ago is written again."""
CHANGE_SECONDS = 5
"""From a change of a schedule until it takes effect. What is due until then is sent by the schedule as it was."""
AHEAD_SECONDS = 300 * 86_400
"""The longest delivery time of an alarm; the server takes 366 days."""
MOST_FORMER = 20
_ALARM_RULES = {"max_failures": 0, "backoff": {"first": 1, "factor": 2, "most": 60}}
"""An alarm that fails, because a queue may not be made for instance, is tried again until it succeeds."""


class ScheduleNotFound(NotFound):
    """There is no schedule of this name."""


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
    paused: bool = False
    revision: str = ""
    """Changes with each change of what or when. The alarms of one revision follow each other."""
    since: int = 0
    """Occurrences after this moment are this revision's."""
    former: Mapping[str, int] = field(default_factory=dict, hash=False)
    """Earlier revisions, each with the last moment that is its own."""
    started: bool = False
    """Its first alarm is stored."""
    written: int = 0

    @property
    def what(self) -> tuple[str | None, ...]:
        """All that makes another revision if it changes."""
        return self.cron, self.tz, self.missed, self.queue, self.task, self.body

    @property
    def line(self) -> Cron:
        """:raises ConfigurationError: the cron line is none, or the time zone does not exist."""
        return Cron(self.cron, self.tz)

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
        return cls(replace(schedule, paused=False, since=0, former={}, started=False, written=0), moment)

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
        """:raises msgspec.MsgspecError: it is no alarm."""
        return msgspec.json.decode(message.body, type=cls)


class ScheduleBook:
    """The schedules of one application."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def now(self) -> float:
        """The server's clock."""
        return float(self._client.read(SCHEDULES, limit=1, newest_first=True, with_bodies=False).watermark)

    def get(self, name: str) -> Schedule | None:
        """A schedule; None if there is none of this name."""
        try:
            found = self._client.get(SCHEDULES, self._place(name))
        except QueueNotFound:
            return None
        return _schedule_of(found[0]) if found else None

    def all(self) -> Iterator[Schedule]:
        """Every schedule, by name."""
        try:
            found = [_schedule_of(one) for one in self._client.iterate(SCHEDULES)]
        except QueueNotFound:
            return
        yield from sorted(found, key=lambda one: one.name)

    def set(self, wanted: Schedule) -> bool:
        """Make a schedule, or change what it sends and when. A pause stays.

        It may be repeated after an error: an occurrence is sent once in any case. Only if the server takes longer than
        ``CHANGE_SECONDS`` to store the change, what comes due in that time may be sent as it was and as it is.

        :returns: False if it was like this already.
        :raises ConfigurationError: the cron line is none, or the time zone does not exist.
        """
        line = wanted.line
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
        paused = before is not None and before.paused
        return replace(wanted, revision=uuid.uuid4().hex, since=since, former=former, paused=paused, started=False)

    def _start(self, schedule: Schedule, line: Cron) -> None:
        self._append_first(schedule, line)
        self._put_over(schedule, started=True)

    def _append_first(self, schedule: Schedule, line: Cron) -> None:
        first = Alarm.at(line.after(schedule.since), schedule)
        # As an entry of a batch, like those that follow: a key of the request would be another one to the server.
        self._client.append_batch(ALARMS, [first.to_message(self.now())])

    def pause(self, name: str, *, paused: bool) -> Schedule:
        """Send no occurrence that comes due while the schedule is paused.

        :raises ScheduleNotFound: there is none of this name.
        """
        changed = replace(self._found(name), paused=paused)
        self._put(changed)
        return changed

    def remove(self, name: str) -> None:
        """Send nothing any more.

        :raises ScheduleNotFound: there is none of this name.
        """
        self._found(name)
        self._client.delete(SCHEDULES, self._place(name))

    def renew(self, schedule: Schedule, now: float) -> None:
        """Keep a schedule from expiring."""
        if now - schedule.written > RENEW_SECONDS:
            self._put_over(schedule)

    def _put_over(self, schedule: Schedule, **changes: Any) -> None:
        """Change a schedule, unless somebody has removed it, or made another of it, since it was read."""
        kept = self.get(schedule.name)
        if kept is not None and kept.revision == schedule.revision:
            self._put(replace(kept, **changes))

    def _found(self, name: str) -> Schedule:
        found = self.get(name)
        if found is None:
            raise ScheduleNotFound(f"no schedule is named {name}")
        return found

    def _put(self, schedule: Schedule) -> None:
        body = msgspec.json.encode(replace(schedule, written=int(self.now())))
        new = NewMessage(body, ttl_seconds=SCHEDULE_LIFE_SECONDS, content_type=JSON, key=schedule.name)
        self._client.put(SCHEDULES, self._place(schedule.name), new)

    def _make_queues(self) -> None:
        make_queue(self._client, SCHEDULES)
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
        return place_named(name, queue.created)


def _schedule_of(message: Message) -> Schedule:
    return msgspec.json.decode(message.body, type=Schedule)
