"""Where schedules lie, and what their messages are called: workers write them, and the console shows them."""

from __future__ import annotations

__all__ = [
    "ALARMS",
    "OCCURRENCE_HEADER",
    "PAUSES_PARTITION",
    "SCHEDULES",
    "SCHEDULE_HEADER",
    "SCHEDULE_LIFE_SECONDS",
    "TASK_HEADER",
    "pause_place",
]

SCHEDULES, ALARMS = "schedules", "schedules-due"
"""The queues of the schedules of an application, and of their alarms."""
PAUSES_PARTITION = 2
"""Of ``schedules``, where the pause of a schedule has the id that the schedule has in partition 1."""
SCHEDULE_LIFE_SECONDS = 33_554_432
"""Of schedules and alarms: the longest TTL there is, 388 days."""
TASK_HEADER = "queuey-task"
"""The name of the task. The only header that a task needs."""
SCHEDULE_HEADER, OCCURRENCE_HEADER = "queuey-schedule", "queuey-occurrence"
"""Of an occurrence: the name of its schedule, and the moment in seconds since 1970."""


def pause_place(place: str) -> str:
    """Where the pause of a schedule is.

    >>> pause_place("1:0068b2b7e9d911f19011a3e970fd33b3")
    '2:0068b2b7e9d911f19011a3e970fd33b3'

    :param place: the schedule's, ``<partition>:<id>``.
    """
    return f"{PAUSES_PARTITION}:{place.rpartition(':')[2]}"
