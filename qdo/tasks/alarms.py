"""What a worker does when a schedule comes due."""

from __future__ import annotations

import logging
import threading
from math import ceil

from qdo.client import Client
from qdo.client.values import Message
from qdo.tasks.schedules import ALARMS, Alarm, Schedule, ScheduleBook
from qdo.tasks.sending import default_client, make_queue
from qdo.tasks.wire import NO_JSON
from qdo.worker.job import Context

__all__ = ["LATE_SECONDS", "send_occurrence"]

log = logging.getLogger(__name__)

MOST_AT_ONCE = 10
"""Occurrences that were missed, in one step. On Cassandra the next alarm is readable after the read delay only."""
LATE_SECONDS = 60.0
"""An occurrence that comes later was missed."""


class _Known:
    """What a thread need not ask for again with each alarm."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.book = ScheduleBook(client)
        self._queues: set[str] = set()

    def make(self, queue: str, *, again: bool) -> None:
        """Make a queue if there is none.

        :param again: look whether it is still there.
        """
        if again or queue not in self._queues:
            make_queue(self.client, queue)
            self._queues.add(queue)


class _OfThread(threading.local):
    known: _Known | None = None


_of_thread = _OfThread()


def _known_of(client: Client) -> _Known:
    known = _of_thread.known
    if known is None or known.client is not client:
        known = _of_thread.known = _Known(client)
    return known


def send_occurrence(message: Message, context: Context) -> None:
    """The job of alarms: store the occurrence and the next alarm, in the step that acknowledges this one.

    An alarm has one moment, and what follows is computed from that moment. So no clock decides which occurrences there are, and
    a worker that dies leaves an alarm that another worker gets.
    """
    try:
        alarm = Alarm.of(message)
    except NO_JSON:
        log.exception("message %s of %s is no alarm, and is passed over", message.id.hex, ALARMS)
        return
    known = _known_of(default_client())
    book = known.book
    kept = book.get(alarm.schedule.name)
    last = None if kept is None else kept.last_of(alarm.schedule.revision)
    if kept is None or last is None or alarm.moment > last:
        return  # it was removed, or changed before this moment
    now = max(book.lately(), float(message.timestamp))
    book.keep(kept, now)  # also where its next occurrence is a leap day, until when it would expire
    schedule = alarm.schedule
    following = first = _not_left_out(schedule, kept.not_paused(alarm.moment, now), now)
    if first <= min(now, last):
        moments = _moments(schedule, first, min(now, last))
        known.make(schedule.queue, again=context.attempt > 1)
        for moment in moments:
            context.append(schedule.queue, schedule.occurrence(moment))
        following = _next(schedule, moments[-1], now)
    if following <= last:
        context.append(ALARMS, Alarm.at(following, schedule).to_message(now))


def _not_left_out(schedule: Schedule, moment: int, now: float) -> int:
    """The first occurrence from this moment on, without those that were missed if none of them is sent."""
    is_left_out = schedule.missed == "none" and now - moment > LATE_SECONDS
    return schedule.line.after(ceil(now - LATE_SECONDS) - 1) if is_left_out else moment


def _moments(schedule: Schedule, first: int, last: float) -> list[int]:
    """The occurrences of one alarm: its own, and unless only one is sent, some of those behind it that are due."""
    moments = [first]
    while schedule.missed != "one" and len(moments) < MOST_AT_ONCE:
        following = schedule.line.after(moments[-1])
        if following > last:
            break
        moments.append(following)
    return moments


def _next(schedule: Schedule, moment: int, now: float) -> int:
    """The moment of the next alarm. If one of those that were missed is sent, the others are passed over."""
    following = schedule.line.after(moment)
    return following if schedule.missed != "one" or following > now else schedule.line.after(now)
