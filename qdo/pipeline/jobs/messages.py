"""Messages of queues as a DataFrame, for jobs that look into queues."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime

    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["hour_of", "pattern_of", "read_messages"]


def read_messages(
    spark: SparkSession,
    options: Mapping[str, str],
    *,
    pattern: str,
    columns: Sequence[str],
    since: datetime | None = None,
    until: datetime | None = None,
) -> DataFrame:
    """What is in queues, as the format ``queuey`` reads it.

    Messages that expire or are deleted meanwhile are left out.

    :param options: of the source: url, application, token, timeout.
    :param pattern: a regular expression that a queue's whole name matches.
    :param columns: the server sends only these.
    :param since: inclusive, with a time zone; None for the beginning.
    :param until: exclusive; None for the end as it is now.
    """
    ends = {"startingTimestamp": since, "endingTimestamp": until}
    times = {name: moment.isoformat() for name, moment in ends.items() if moment is not None}
    which = {"subscribePattern": pattern, "columns": ",".join(columns), "failOnDataLoss": "false"}
    return spark.read.format("queuey").options(**options, **which, **times).load()


def hour_of(column: str) -> Column:
    """The beginning of the hour of UTC, whichever time zone the session has: some are half an hour off."""
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls them

    return F.timestamp_seconds(F.floor(F.unix_seconds(column) / 3600) * 3600)


def pattern_of(names: Sequence[str]) -> str:
    """A regular expression for names of queues and patterns such as ``mail-*``.

    It matches every name if there are none.

    >>> bool(re.fullmatch(pattern_of(["orders", "mail-*"]), "mail-7")), bool(re.fullmatch(pattern_of(["orders"]), "orders2"))
    (True, False)
    """
    return "|".join(re.escape(name) if name.isalnum() else fnmatch.translate(name) for name in names) or ".*"
