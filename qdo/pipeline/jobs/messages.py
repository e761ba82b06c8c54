"""Messages of queues as a DataFrame, for the jobs that look into queues."""

from __future__ import annotations

import fnmatch
import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["pattern_of", "read_messages"]


def read_messages(
    spark: SparkSession,
    url: str,
    application: str,
    token: str | None,
    *,
    pattern: str,
    columns: Sequence[str],
    since: str | None = None,
    until: str | None = None,
    timeout_seconds: float = 60,
) -> DataFrame:
    """What is in queues, as the format ``queuey`` reads it.

    :param pattern: a regular expression that a queue's whole name matches.
    :param columns: only these are sent.
    :param since: from here on, milliseconds since 1970 or ISO 8601; None is the beginning.
    :param until: up to here, itself not included; None is the end as it is now.
    :param timeout_seconds: to wait for the next bytes of an answer, in whole seconds.
    """
    options = {
        "url": url,
        "application": application,
        "token": token,
        "subscribePattern": pattern,
        "columns": ",".join(columns),
        "startingTimestamp": since,
        "endingTimestamp": until,
        "timeout": str(math.ceil(timeout_seconds)),
    }
    reader = spark.read.format("queuey")
    for name, value in options.items():
        if value:
            reader = reader.option(name, value)
    return reader.load()


def pattern_of(names: Sequence[str]) -> str:
    """A regular expression for names of queues and patterns such as ``mail-*``; for all if there are none.

    >>> bool(re.fullmatch(pattern_of(["orders", "mail-*"]), "mail-7")), bool(re.fullmatch(pattern_of(["orders"]), "orders2"))
    (True, False)
    """
    return "|".join(re.escape(name) if name.isalnum() else fnmatch.translate(name) for name in names) or ".*"
