"""Schedules whose occurrences are overdue, and what was sent of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from qdo import Client, Worker
from qdo.tasks.alarms import send_occurrence
from qdo.tasks.schedules import ALARMS, ALARMS_GROUP, Alarm, Schedule, ScheduleBook
from queuey.errors import QueueNotFound
from tests.support.worker_threads import at_work

__all__ = ["EVERY_MINUTE", "MINUTE", "occurrences", "on_alarms", "overdue"]

MINUTE = 60
EVERY_MINUTE = Schedule(name="report", cron="* * * * *", queue="reports", body="go")


@contextmanager
def on_alarms(count: int = 1) -> Iterator[None]:
    """Workers on alarms, while the block runs."""
    workers = [Worker(send_occurrence, [ALARMS], lease=True, group=ALARMS_GROUP, threads=1) for _ in range(count)]
    with at_work(*workers):
        yield


def overdue(client: Client, wanted: Schedule, minutes: int) -> int:
    """Set a schedule as if no worker had run for some minutes: the moment of its first occurrence."""
    book = ScheduleBook(client)
    book._make_queues()
    since = int(book.now()) // MINUTE * MINUTE - minutes * MINUTE
    was = replace(wanted, revision="first", since=since, started=True)
    book._put(was)
    first = wanted.line.after(since)
    client.append_batch(ALARMS, [Alarm.at(first, was).to_message(book.now())])
    return first


def occurrences(client: Client, queue: str = EVERY_MINUTE.queue) -> list[int]:
    """The moments of those that were sent, in their order."""
    try:
        return [int(message.headers["queuey-occurrence"]) for message in client.iterate(queue)]
    except QueueNotFound:
        return []
