"""What is in queues, by queue and hour.

Figures say how much, how fast, how large, how old, and with which keys.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from qdo.pipeline.jobs.messages import hour_of
from qdo.pipeline.jobs.pages import HtmlPage, draw_by_hour, legend, plain, plot, shown, utc

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["COLUMNS", "Stats", "page", "stats"]

READ = ("queue", "message_id", "timestamp", "body", "key")
"""The columns of messages that the figures need."""
COLUMNS = {
    "queue": "the queue",
    "hour": "its beginning, UTC; only in the table by hour",
    "messages": "how many",
    "bytes": "of their bodies",
    "messages_per_second": "of an hour: over the whole of it; of a queue: from its first message to its last",
    "bytes_per_second": "the same",
    "longest_gap_seconds": "longest time without a message that ended here, also if it began in an earlier hour",
    "largest_bytes": "body of the largest message",
    "largest_message_id": "its id",
    "age_p50_seconds": "age of messages, to one part in 10,000 of their ranks",
    "age_p90_seconds": "",
    "age_p99_seconds": "",
    "age_max_seconds": "of the oldest",
    "first": "time of the first message",
    "last": "time of the last",
    "top_keys": "the keys of the most messages: key, messages",
}
"""Of both tables, with their meanings."""
SHOWN = (
    "queue",
    "messages",
    "bytes",
    "messages_per_second",
    "longest_gap_seconds",
    "largest_bytes",
    "age_p50_seconds",
    "age_p99_seconds",
    "last",
    "top_keys",
)
_AGES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
_RANK_PRECISION = 10_000
_MOST_LINES = 8
_MOST_ROWS = 50
_HOUR_SECONDS = 3600


@dataclass(frozen=True)
class Stats:
    """Figures of queues. Spark keeps them until :meth:`close`."""

    queues: DataFrame
    """:data:`COLUMNS` without the hour. Queues with the most messages come first."""
    hours: DataFrame
    """:data:`COLUMNS`. An hour without messages has no row."""
    now: datetime
    kept: Sequence[DataFrame]

    @property
    def tables(self) -> Mapping[str, DataFrame]:
        """The tables to write, by name."""
        return {"queues": self.queues, "hours": self.hours}

    def close(self) -> None:
        for frame in self.kept:
            frame.unpersist()


def stats(messages: DataFrame, *, now: datetime, top_keys: int = 5) -> Stats:
    """Count and measure messages.

    :param messages: with the columns :data:`READ`; ``key`` may be missing.
    :param now: ages count up to this moment; with a time zone.
    :param top_keys: keys that are named of each queue, and of each hour.
    """
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls them

    sized = messages.select(
        "queue",
        hour_of("timestamp").alias("hour"),
        F.unix_micros("timestamp").alias("at"),
        F.octet_length("body").cast("bigint").alias("size"),
        "message_id",
        (F.col("key") if "key" in messages.columns else F.lit(None)).cast("string").alias("key"),
    ).persist()
    now_micros = int(now.timestamp()) * 1_000_000 + now.microsecond
    gaps = _gaps(sized)
    hours = _figures(sized, ["queue", "hour"], now_micros, F.lit(_HOUR_SECONDS))
    hours = hours.join(gaps, ["queue", "hour"]).join(
        _top_keys(sized, ["queue", "hour"], top_keys), ["queue", "hour"], "left"
    )
    seconds = F.nullif(F.max("at") - F.min("at"), F.lit(0)) / 1e6
    queues = _figures(sized, ["queue"], now_micros, seconds)
    longest = gaps.groupBy("queue").agg(F.max("longest_gap_seconds").alias("longest_gap_seconds"))
    queues = queues.join(longest, ["queue"]).join(_top_keys(sized, ["queue"], top_keys), ["queue"], "left")
    hours = hours.select(*COLUMNS).orderBy("queue", "hour").persist()
    queues = queues.select(*(name for name in COLUMNS if name != "hour")).orderBy(F.desc("messages"), "queue").persist()
    return Stats(queues, hours, now, (sized, hours, queues))


def _figures(sized: DataFrame, by: list[str], now_micros: int, seconds: Column) -> DataFrame:
    """:param seconds: the time over which rates are computed."""
    from pyspark.sql import functions as F  # noqa: N812

    age = (F.lit(now_micros) - F.col("at")) / 1e6
    ages = F.percentile_approx(age, list(_AGES.values()), _RANK_PRECISION)
    largest = F.max(F.struct("size", "message_id"))
    return sized.groupBy(*by).agg(
        F.count("*").alias("messages"),
        F.sum("size").alias("bytes"),
        (F.count("*") / seconds).alias("messages_per_second"),
        (F.sum("size") / seconds).alias("bytes_per_second"),
        largest["size"].alias("largest_bytes"),
        largest["message_id"].alias("largest_message_id"),
        *(ages[place].alias(f"age_{name}_seconds") for place, name in enumerate(_AGES)),
        F.max(age).alias("age_max_seconds"),
        F.timestamp_micros(F.min("at")).alias("first"),
        F.timestamp_micros(F.max("at")).alias("last"),
    )


def _gaps(sized: DataFrame) -> DataFrame:
    """Gaps within each hour, then between hours.

    So no queue has to be sorted as a whole.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812

    in_hour = Window.partitionBy("queue", "hour").orderBy("at")
    within = sized.select("queue", "hour", "at", (F.col("at") - F.lag("at").over(in_hour)).alias("gap"))
    ends = within.groupBy("queue", "hour").agg(
        F.max("gap").alias("gap"), F.min("at").alias("begins"), F.max("at").alias("ends")
    )
    before = F.lag("ends").over(Window.partitionBy("queue").orderBy("hour"))
    longest = F.greatest("gap", F.col("begins") - before)
    return ends.select("queue", "hour", (longest / 1e6).alias("longest_gap_seconds"))


def _top_keys(sized: DataFrame, by: list[str], most: int) -> DataFrame:
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812

    counted = sized.where(F.col("key").isNotNull()).groupBy(*by, "key").agg(F.count("*").alias("messages"))
    place = F.row_number().over(Window.partitionBy(*by).orderBy(F.desc("messages"), "key"))
    first = counted.withColumn("place", place).where(F.col("place") <= most)
    listed = F.sort_array(F.collect_list(F.struct("place", "key", "messages")))
    keys = F.transform(listed, lambda one: F.struct(one["key"].alias("key"), one["messages"].alias("messages")))
    return first.groupBy(*by).agg(keys.alias("top_keys"))


def readable(row: dict[str, Any]) -> dict[str, Any]:
    """A row with its keys as one text, for tables."""
    keys = [f"{one['key']} ({one['messages']})" for one in row.get("top_keys") or ()]
    return {**row, "top_keys": ", ".join(keys)}


def page(found: Stats) -> HtmlPage:
    """The page for people: the largest queues, and what came when."""
    queues = [row.asDict(recursive=True) for row in found.queues.limit(_MOST_ROWS).collect()]
    made = HtmlPage("Queues by hour", f"As of {shown(found.now)} UTC; ages count up to then.")
    made.heading(f"Queues, those with the most messages first, {_MOST_ROWS} at most")
    made.table(SHOWN, [readable(row) for row in queues])
    if not queues:
        return made
    names = [row["queue"] for row in queues[:_MOST_LINES]]
    hours = [row.asDict() for row in found.hours.where(found.hours["queue"].isin(names)).collect()]
    made.heading("By hour")
    _by_hour(made, names, hours, "messages", "Messages an hour")
    _by_hour(made, names, hours, "bytes", "Bytes an hour")
    made.heading("Age")
    _ages(made, queues[:20])
    return made


def _by_hour(made: HtmlPage, names: Sequence[str], hours: Sequence[dict[str, Any]], column: str, title: str) -> None:
    figure, axes = plot(title, "time (UTC)", column)
    lines: dict[str, dict[datetime, int]] = {name: {} for name in names}
    for row in hours:
        lines[row["queue"]][utc(row["hour"])] = row[column]
    draw_by_hour(axes, lines)
    made.figure(figure, f"{title}, of the {len(names)} queues with the most messages; an hour without any has no mark.")


def _ages(made: HtmlPage, queues: Sequence[dict[str, Any]]) -> None:
    figure, axes = plot("Age of messages", "", "hours")
    for at, name in enumerate(("p50", "p90", "p99")):
        heights = [row[f"age_{name}_seconds"] / _HOUR_SECONDS for row in queues]
        axes.bar([place + (at - 1) * 0.27 for place in range(len(queues))], heights, 0.27, label=name)
    axes.set_xticks(range(len(queues)), [plain(row["queue"]) for row in queues], rotation=30, ha="right", fontsize=8)
    legend(axes)
    made.figure(figure, "Half, 90 percent and 99 percent of the messages of a queue are no older.")
