"""When a schedule is due. Moments are whole seconds since 1970."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from queuey.errors import ConfigurationError

__all__ = ["MISSED", "Cron"]

MISSED = ("one", "all", "none")
"""What may happen with occurrences that were due while no worker ran."""


class Cron:
    """The occurrences of a cron line in a time zone.

    When clocks are put forward, an occurrence in the hour that is left out comes at the end of that hour. When they are put
    back, an occurrence at a fixed time comes once, the first time. A time is fixed if neither minutes nor hours begin with a
    star. Others come whenever the clock shows such a time.

    >>> Cron("0 6 * * *", "Europe/Berlin").after(1774738800)  # 2026-03-29, the clocks go forward
    1774756800
    """

    def __init__(self, line: str, tz: str) -> None:
        """:raises ConfigurationError: the line is none, never comes true, or there is no such time zone."""
        for name, text in (("cron", line), ("tz", tz)):
            if not isinstance(text, str):
                raise ConfigurationError(f"{name} is {text!r}: expected a text")
        self._line = line
        try:
            self._zone = UTC if tz == "UTC" else ZoneInfo(tz)
        except (ZoneInfoNotFoundError, ValueError, OSError) as error:
            raise ConfigurationError(f"tz is {tz!r}: expected a time zone such as Europe/Berlin") from error
        self._is_fixed = not any(field.startswith("*") for field in line.split()[-5:-3])
        try:
            self.after(datetime.now(UTC).timestamp())
        except (CronSimError, StopIteration, ValueError) as error:
            raise ConfigurationError(
                f"cron is {line!r}: expected minute, hour, day, month and weekday, such as '0 6 * * *' ({error})"
            ) from error

    def after(self, moment: float) -> int:
        """The first occurrence after a moment."""
        local = datetime.fromtimestamp(moment, self._zone)
        shown = local.replace(tzinfo=None)
        # By the clock on the wall. One that was put back shows times that it has shown before.
        if self._is_fixed:
            return next(found for one in CronSim(self._line, shown) if (found := self._first_at(one)) > moment)
        found = self._next_shown(shown, moment)
        back = self._offset(local, 0) - self._offset(local, 1)
        # What it shows now comes again: so may what it has shown a while ago, and that before anything else.
        return min(found, self._next_shown(shown - back, moment)) if back and not local.fold else found

    def _next_shown(self, shown: datetime, moment: float) -> int:
        """A moment later than this one at which the clock shows the first such time of the line, from one that it shows on."""
        each = (found for one in CronSim(self._line, shown) for found in self._moments_of(one))
        return next(found for found in each if found > moment)

    def _moments_of(self, shown: datetime) -> Iterator[int]:
        """The moments at which the clock shows a time: one, two if it is put back over it, or none."""
        for fold in range(2):
            moment = self._moment(shown.replace(fold=fold))
            if datetime.fromtimestamp(moment, self._zone).replace(tzinfo=None) == shown:
                yield moment

    @staticmethod
    def _offset(local: datetime, fold: int) -> timedelta:
        return local.replace(fold=fold).utcoffset() or timedelta()

    def _first_at(self, shown: datetime) -> int:
        """The first moment at which the clock shows a time; the end of what is left out if it never does."""
        while datetime.fromtimestamp(moment := self._moment(shown), self._zone).replace(tzinfo=None) != shown:
            shown = shown.replace(second=0) + timedelta(minutes=1)
        return moment

    def _moment(self, shown: datetime) -> int:
        return int(shown.replace(tzinfo=self._zone).timestamp())
