"""Where schedules lie, and what their messages are called: workers write them, and the console shows them."""

from __future__ import annotations

__all__ = ["ALARMS", "OCCURRENCE_HEADER", "SCHEDULES", "SCHEDULE_HEADER", "SCHEDULE_LIFE_SECONDS", "TASK_HEADER"]

SCHEDULES, ALARMS = "schedules", "schedules-due"
"""The queues of the schedules of an application, and of their alarms."""
SCHEDULE_LIFE_SECONDS = 33_554_432
"""Of schedules and alarms: the longest TTL there is, 388 days."""
TASK_HEADER = "queuey-task"
"""The name of the task. The only header that a task needs."""
SCHEDULE_HEADER, OCCURRENCE_HEADER = "queuey-schedule", "queuey-occurrence"
"""Of an occurrence: the name of its schedule, and the moment in seconds since 1970."""
