"""Where schedules lie, and what their messages are called: workers write them, and the console shows them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = [
    "ALARMS",
    "COPIES_PARTITION",
    "COPY_LIFE_SECONDS",
    "OCCURRENCE_HEADER",
    "PAUSES_PARTITION",
    "REMOVED",
    "SCHEDULES",
    "SCHEDULE_HEADER",
    "SCHEDULE_LIFE_SECONDS",
    "TASK_HEADER",
    "copy_place",
    "kept_schedules",
    "pause_place",
]

SCHEDULES, ALARMS = "schedules", "schedules-due"
"""The queues of the schedules of an application, and of their alarms."""
PAUSES_PARTITION = 2
"""Of ``schedules``, where the pause of a schedule has the id that the schedule has in partition 1."""
COPIES_PARTITION = 3
"""Where a worker has a copy of a schedule with its pause, at the id of the schedule. It counts where they have expired, and
nowhere else: so a worker that keeps a schedule undoes no change of it."""
SCHEDULE_LIFE_SECONDS = 33_554_432
"""Of schedules and alarms: the longest TTL there is, 388 days."""
COPY_LIFE_SECONDS = SCHEDULE_LIFE_SECONDS - 30 * 86_400
"""Of copies. A worker may store one after a change that it has not seen: the change outlives that copy."""
REMOVED = b"null"
"""What stands in the place of a schedule that was removed. If nothing stood there, a copy would count."""
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


def copy_place(place: str) -> str:
    """Where the copy of a schedule is; see :func:`pause_place`."""
    return f"{COPIES_PARTITION}:{place.rpartition(':')[2]}"


def kept_schedules(found: Mapping[str, Mapping[str, Any] | None]) -> dict[str, dict[str, Any]]:
    """Schedules by their places, each with its ``pause``, and with the moment at which it was ``copied``.

    >>> kept_schedules({"1:a": {"revision": "r"}, "3:a": {"revision": "r", "pause": {"until": None}, "written": 7}})
    {'1:a': {'revision': 'r', 'pause': {'until': None}, 'copied': 7}}

    :param found: the JSON objects of messages, by their places; None for a message that has none.
    """
    kept = {}
    for place in dict.fromkeys("1:" + at.rpartition(":")[2] for at in found if at != pause_place(at)):
        copy = found.get(copy_place(place)) or {}
        schedule = found.get(place, copy)
        if schedule:
            pause = found.get(pause_place(place)) or (copy.get("pause") if _is_of(copy, schedule) else None)
            copied = copy.get("written", 0) if copy.get("revision") == schedule.get("revision") else 0
            kept[place] = {**schedule, "pause": pause, "copied": copied}
    return kept


def _is_of(copy: Mapping[str, Any], schedule: Mapping[str, Any]) -> bool:
    """Whether a copy is of this schedule, and not of one that was removed before it."""
    former = schedule.get("former")
    known = [schedule.get("revision"), *(former if isinstance(former, Mapping) else ())]
    return copy.get("revision") in known
