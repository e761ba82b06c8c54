"""Failures by reason over time, from dead letters.

The workers of qdo write them, and the lease groups of the server, in the form of :mod:`queuey.model.dead_letters`.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any

from qdo.groups.dead_letter_names import DEFAULT_DEAD_LETTERS
from qdo.pipeline.jobs.messages import hour_of
from qdo.pipeline.jobs.pages import HtmlPage, draw_by_hour, plot, shown, utc
from queuey.model.dead_letters import STORY_HEADER

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["COLUMNS", "DeadLetterReport", "dead_letters", "page"]

READ = ("queue", "message_id", "timestamp", "body", "headers")
"""The columns of a queue of dead letters that the report needs."""
_STORY = (
    "queue string, partition int, message_id string, group string, failures long, deliveries long, reason string, "
    "size long"
)
_REQUIRED = ("queue", "partition", "message_id", "group", "failures", "reason")
_GROUP = ("queue", "dead_letters", "group", "error")
COLUMNS = {
    "queue": "where the messages came from",
    "dead_letters": "the queue of the letters",
    "group": "of workers, or the lease group",
    "error": "class of the exception, or the reason up to its first colon",
    "letters": "how many",
    "fewest_failures": "least number of failures",
    "most_failures": "greatest number of failures",
    "first_seen": "when the first of them was written",
    "last_seen": "when the last of them was written",
    "reasons": "how many different reasons",
    "samples": "the newest: letter, message_id, failures, deliveries, reason, and the body's beginning if it is text",
    "retry": "the command that appends these messages to their queue again",
    "retried": "how many letters that command finds: more than here, if other reasons contain the same words",
}
"""Of the table of groups, with their meanings."""
SHOWN = ("queue", "group", "error", "letters", "most_failures", "first_seen", "last_seen", "retry", "retried")
_SAMPLE = ("letter", "message_id", "failures", "deliveries", "reason")
_BODY_CHARACTERS = 200
_MOST_LINES = 8
_MOST_ROWS = 50


@dataclass(frozen=True)
class DeadLetterReport:
    """What is in queues of dead letters. Spark keeps it until :meth:`close`."""

    groups: DataFrame
    """:data:`COLUMNS`, with the most letters first."""
    hours: DataFrame
    """``queue``, ``error``, ``hour`` and ``letters``."""
    strangers: int
    """Messages in those queues that are no dead letters."""
    letters: DataFrame

    @property
    def tables(self) -> Mapping[str, DataFrame]:
        """The tables to write, by name."""
        return {"groups": self.groups, "hours": self.hours}

    def close(self) -> None:
        self.letters.unpersist()


def dead_letters(messages: DataFrame, *, samples: int = 3) -> DeadLetterReport:
    """Group dead letters by queue, group and class of exception.

    :param messages: of queues of dead letters, with the columns :data:`READ`.
    :param samples: letters of each group that are shown.
    """
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls them

    text = F.col("body").cast("string")
    story = F.try_element_at("headers", F.lit(STORY_HEADER)).cast("string")
    read = messages.select(
        F.col("queue").alias("dead_letters"),
        F.col("message_id").alias("letter"),
        F.col("timestamp").alias("seen"),
        F.from_json(story, _STORY).alias("story"),
        F.substring(text, 1, _BODY_CHARACTERS).alias("beginning"),
        F.is_valid_utf8(text).alias("is_text"),
    ).select("dead_letters", "letter", "seen", "beginning", "is_text", "story.*")
    found = read.withColumn("error", _error_of(F.col("reason"))).persist()
    is_letter = reduce(and_, (F.col(name).isNotNull() for name in _REQUIRED))
    letters = found.where(is_letter)
    hours = letters.groupBy("queue", "error", hour_of("seen").alias("hour")).agg(F.count("*").alias("letters"))
    groups = _with_retried(_groups(letters, samples), letters)
    strangers = found.where(~is_letter).count()
    return DeadLetterReport(
        groups.select(*COLUMNS).orderBy(F.desc("letters"), *_GROUP),
        hours.orderBy("queue", "error", "hour"),
        strangers,
        found,
    )


def _error_of(reason: Column) -> Column:
    """``ValueError`` of ``ValueError: not a number``.

    A reason of another form is a class of its own, up to its first line end.
    """
    from pyspark.sql import functions as F  # noqa: N812

    return F.regexp_extract(reason, r"\A([^:\r\n]*)", 1)


def _groups(letters: DataFrame, samples: int) -> DataFrame:
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812

    newest = Window.partitionBy(*_GROUP).orderBy(F.desc("seen"), F.desc("letter"))
    # The body of a letter that is only a story is no message's.
    text = F.when(F.col("is_text") & F.col("size").isNull(), F.col("beginning"))
    sample = F.struct(*_SAMPLE, text.alias("body"))
    ranked = letters.withColumn("place", F.row_number().over(newest)).withColumn("sample", sample)
    grouped = ranked.groupBy(*_GROUP).agg(
        F.count("*").alias("letters"),
        F.min("failures").alias("fewest_failures"),
        F.max("failures").alias("most_failures"),
        F.min("seen").alias("first_seen"),
        F.max("seen").alias("last_seen"),
        F.count_distinct("reason").alias("reasons"),
        F.min("reason").alias("one_reason"),
        F.collect_list(F.when(F.col("place") <= samples, F.col("sample"))).alias("samples"),
    )
    # The command searches for the reason itself if the group has one reason, and for the class if it has more.
    words = F.when(F.col("reasons") == 1, F.col("one_reason")).otherwise(F.col("error"))
    grouped = grouped.withColumn("words", words)
    retry = F.udf(retry_command, "string", useArrow=False)
    return grouped.withColumn("retry", retry("queue", "dead_letters", "group", "words"))


def _with_retried(groups: DataFrame, letters: DataFrame) -> DataFrame:
    """Add how many letters each command finds."""
    from pyspark.sql import functions as F  # noqa: N812

    same = ("queue", "dead_letters", "group")
    pairs = groups.select(*_GROUP, "words").join(letters.select(*same, "reason"), list(same))
    hits = pairs.where(F.expr("contains(reason, words)")).groupBy(*_GROUP).agg(F.count("*").alias("retried"))
    return groups.join(hits, list(_GROUP))


def retry_command(queue: str, dead_letters: str, group: str, words: str) -> str:
    r"""The command in a form for a shell.

    >>> retry_command("orders", "orders-dead", "mail", "ValueError: it's no number")
    'qdo dead retry orders --all --group mail --reason \'ValueError: it\'"\'"\'s no number\''
    """
    command = ["qdo", "dead", "retry", queue, "--all", "--group", group, "--reason", words]
    if dead_letters != DEFAULT_DEAD_LETTERS.format(queue=queue):
        command += ["--dead-letters", dead_letters]
    return shlex.join(command)


def page(report: DeadLetterReport) -> HtmlPage:
    """The page for people: the groups, when they came, and samples."""
    groups = [row.asDict(recursive=True) for row in report.groups.limit(_MOST_ROWS).collect()]
    hours = [row.asDict() for row in report.hours.collect()]
    letters = sum(row["letters"] for row in hours)
    found = HtmlPage(
        "Dead letters", f"{shown(letters)} letters of {shown(len({row['queue'] for row in hours}))} queues."
    )
    found.heading("By queue, group and exception")
    found.table(SHOWN, groups, code=("retry",))
    if report.strangers:
        found.text(f"{shown(report.strangers)} messages in these queues are no dead letters.")
    if hours:
        _over_time(found, hours)
    for group in groups:
        found.heading(f"{group['queue']}, group {group['group']}: {group['error']}")
        found.table((*_SAMPLE, "body"), group["samples"], code=("letter", "message_id"))
    return found


def _over_time(found: HtmlPage, hours: Sequence[Mapping[str, Any]]) -> None:
    totals: dict[str, int] = {}
    for row in hours:
        totals[row["error"]] = totals.get(row["error"], 0) + row["letters"]
    most = sorted(totals, key=lambda error: (-totals[error], error))[:_MOST_LINES]
    figure, axes = plot("Letters an hour", "time (UTC)", "letters")
    lines: dict[str, Counter[datetime]] = {error[:60]: Counter() for error in most}
    for row in hours:
        if row["error"] in most:
            lines[row["error"][:60]][utc(row["hour"])] += row["letters"]
    draw_by_hour(axes, lines)
    found.figure(
        figure, f"The {len(most)} exceptions with the most letters, of all queues; an hour without any has no mark."
    )
