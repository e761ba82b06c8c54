"""Where workers report how they do, and the console reads it."""

from __future__ import annotations

__all__ = ["REPORTS", "REPORT_LIFE_SECONDS", "REPORT_SECONDS"]

REPORTS = "qdo-workers"
"""The queue with one message for each worker, overwritten again and again."""
REPORT_SECONDS = 10.0
"""Between two reports of a worker."""
REPORT_LIFE_SECONDS = 60
"""A worker that has not reported for longer is gone."""
