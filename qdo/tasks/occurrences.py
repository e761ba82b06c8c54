"""When a schedule is due. Moments are whole seconds since 1970."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from queuey.errors import ConfigurationError

__all__ = ["MISSED", "Cron"]

MISSED = ("one", "all", "none")
"""What may happen with occurrences that were due while no worker ran."""


class Cron:
    """The occurrences of a cron line in a time zone.

    When clocks are put forward, an occurrence in the hour that is left out comes at the end of that hour. When they are put
    back, an occurrence at a fixed time comes once.

    >>> Cron("0 6 * * *", "Europe/Berlin").after(1774738800)  # 2026-03-29, the clocks go forward
    1774756800
    """

    def __init__(self, line: str, tz: str) -> None:
        """:raises ConfigurationError: the line is none, never comes true, or there is no such time zone."""
        self._line = line
        try:
            self._zone = UTC if tz == "UTC" else ZoneInfo(tz)
        except (ZoneInfoNotFoundError, ValueError, OSError) as error:
            raise ConfigurationError(f"tz is {tz!r}: expected a time zone such as Europe/Berlin") from error
        try:
            self.after(datetime.now(UTC).timestamp())
        except (CronSimError, StopIteration, ValueError) as error:
            raise ConfigurationError(
                f"cron is {line!r}: expected minute, hour, day, month and weekday, such as '0 6 * * *' ({error})"
            ) from error

    def after(self, moment: float) -> int:
        """The first occurrence after a moment."""
        return int(next(CronSim(self._line, datetime.fromtimestamp(moment, self._zone))).timestamp())
