"""The delivery report: what was lost, came twice, late or out of order.

It is made from the logs of senders and receivers.

The figures are those of the BDQS paper, for each queue and in total. One task judges a queue. Its memory must hold the
lines of the queue: about 150 bytes for each line of both logs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from qdo.pipeline.jobs.delivery import (
    CALLS,
    NO_CHECKSUM,
    NO_TIME,
    RANKS,
    Figures,
    Lines,
    Tally,
    judge,
    tally_percentiles,
)
from qdo.pipeline.jobs.logs import one_form
from qdo.pipeline.jobs.pages import utc

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["ALL", "COLUMNS", "Report", "report"]

ALL = "*"
"""The name of the row for all queues together. No queue can have it."""
_COUNTS = ("sent", "received", "duplicates", "missing", "corrupt", "strangers")
_RATES = ("duplication", "loss", "out_of_order", "displacement")
_TIMES = ("first_sent", "last_sent", "first_received", "last_received")
_PERCENTILES = tuple(f"{call}_{name}" for call in CALLS for name in RANKS)
COLUMNS = {
    "queue": "string",
    **dict.fromkeys(_COUNTS, "bigint"),
    **dict.fromkeys(_RATES, "double"),
    **dict.fromkeys(_TIMES, "timestamp"),
    **dict.fromkeys((f"{name}_ms" for name in _PERCENTILES), "double"),
}
"""Of the report, with their types."""
_TALLY = {"tally": "string", "value": "bigint", "count": "bigint"}
_BUCKETS = 200
"""The least number of groups of queues. A task holds one group in memory and judges its queues together."""
_TASKS_PER_CORE = 2
"""A task judges one group after the other."""
_ARROW = {
    "string": pa.string(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}
_NOTHING = {"at": NO_TIME, "took": NO_TIME, "checksum": NO_CHECKSUM}
"""In place of null. Other columns have 0 there."""
_SIGN_BITS = np.uint64(0x0080808080808080)


@dataclass(frozen=True)
class Report:
    """What a report says.

    It is computed once, and Spark keeps it until :meth:`close`.
    """

    queues: DataFrame
    """:data:`COLUMNS`, a row for each queue. Percentiles are exact."""
    total: Mapping[str, Any]
    """:data:`COLUMNS` once more, for the queue :data:`ALL`. Disorder and displacement are means over the queues, as in the
    paper. Percentiles except the greatest are rounded down, by less than one percent."""
    tallies: Mapping[str, Sequence[tuple[int, int]]]
    """How often each value occurred, with rising values: calls by microseconds, ``sent`` and ``received`` by second since
    1970, and lines of ``unreadable_sent`` and ``unreadable_received``."""
    measured: DataFrame

    @property
    def tables(self) -> Mapping[str, DataFrame]:
        """The tables to write, by name."""
        schema = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
        total = self.queues.sparkSession.createDataFrame([tuple(self.total.values())], schema)
        return {"queues": self.queues, "total": total}

    def unreadable(self, kind: str) -> int:
        """Lines of a log, ``sent`` or ``received``, that could not be used."""
        return sum(count for _, count in self.tallies.get(f"unreadable_{kind}", ()))

    def worst(self, most: int) -> list[dict[str, Any]]:
        """The queues with the most losses, then duplicates, then disorder."""
        from pyspark.sql import functions as F  # noqa: N812

        trouble = [F.col(name).desc_nulls_last() for name in ("loss", "duplication", "out_of_order", "delivery_max_ms")]
        return [row.asDict() for row in self.queues.orderBy(*trouble, "queue").limit(most).collect()]

    def close(self) -> None:
        self.measured.unpersist()


def report(sent: DataFrame, received: DataFrame, *, queue: str | None = None) -> Report:
    """Compare what was received with what was sent.

    :param sent: a log of sends, in the columns of :data:`qdo.pipeline.jobs.logs.SENT`.
    :param received: a log of receipts, in the columns of :data:`qdo.pipeline.jobs.logs.RECEIVED`.
    :param queue: of lines that name none.
    :raises ConfigurationError: a log lacks a column that the report needs.
    """
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls them

    lines = one_form(sent, received, queue)
    spark = lines.sparkSession
    buckets = max(_BUCKETS, int(spark.conf.get("spark.sql.shuffle.partitions") or 0))
    tasks = min(buckets, _TASKS_PER_CORE * spark.sparkContext.defaultParallelism)
    by_bucket = lines.withColumn("bucket", F.pmod(F.xxhash64("queue"), F.lit(buckets))).repartition(tasks, "bucket")
    judged = by_bucket.groupBy("bucket").agg(_judging(lines.columns)(*lines.columns).alias("found"))
    measured = judged.persist()
    queues = measured.select(F.inline("found.queues"))
    tallies = _tallies(measured.select(F.inline("found.tallies")))
    return Report(queues, _total(queues, tallies), tallies, measured)


def _judging(names: Sequence[str]) -> Callable[..., Column]:
    """An aggregate over these columns.

    The figures of the queues in a group, and what counts over all queues.

    It is an aggregate because ``mapInArrow`` and ``applyInArrow`` need pandas to be installed, though they do not use it.
    """
    from pyspark.sql.pandas.functions import arrow_udf

    def judged(batches: Iterator[tuple[pa.Array, ...]]) -> pa.Scalar:
        return _judged(pa.RecordBatch.from_arrays(list(columns), list(names)) for columns in batches)

    kind = f"struct<queues: array<{_struct(COLUMNS)}>, tallies: array<{_struct(_TALLY)}>>"
    made: Callable[..., Column] = arrow_udf(judged, kind)  # type: ignore[call-overload]  # iterators to one value are not in its types
    return made


def _struct(columns: Mapping[str, str]) -> str:
    return f"struct<{', '.join(f'{name}: {kind}' for name, kind in columns.items())}>"


def _tallies(rows: DataFrame) -> dict[str, list[tuple[int, int]]]:
    from pyspark.sql import functions as F  # noqa: N812

    counted = rows.groupBy("tally", "value").agg(F.sum("count").alias("count"))
    found: dict[str, list[tuple[int, int]]] = {}
    for row in counted.toArrow().sort_by([("tally", "ascending"), ("value", "ascending")]).to_pylist():
        found.setdefault(row["tally"], []).append((row["value"], row["count"]))
    return found


def _total(queues: DataFrame, tallies: Mapping[str, Sequence[tuple[int, int]]]) -> dict[str, Any]:
    from pyspark.sql import functions as F  # noqa: N812

    sums = [F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in _COUNTS]
    means = [F.avg(name).alias(name) for name in ("out_of_order", "displacement")]
    times = [(F.min if name.startswith("first") else F.max)(name).alias(name) for name in _TIMES]
    longest = [F.max(f"{call}_max_ms").alias(f"{call}_max_ms") for call in CALLS]
    row = queues.agg(*sums, *means, *times, *longest).first()
    assert row is not None  # noqa: S101 - an aggregate without groups has one row
    found = row.asDict()
    # A time without its zone is written an hour off in the hour when summer time ends.
    found |= {name: utc(found[name]) for name in _TIMES if found[name] is not None}
    sent = found["sent"] or None
    found["duplication"] = sent and found["duplicates"] / sent
    found["loss"] = sent and (found["missing"] + found["corrupt"]) / sent
    for call in CALLS:
        percentiles = tally_percentiles(tallies.get(call, ()))
        for name in RANKS:
            found.setdefault(f"{call}_{name}_ms", percentiles[name] / 1000 if percentiles else None)
    found["queue"] = ALL
    return {name: found[name] for name in COLUMNS}


def _judged(batches: Iterator[pa.RecordBatch]) -> pa.Scalar:
    """The figures of all queues of one group."""
    names, lines, unreadable = _gather(batches)
    queues = _list([], COLUMNS)
    tallies = {
        f"unreadable_{kind}": Tally(np.zeros(1, np.int64), np.array([count]))
        for kind, count in unreadable.items()
        if count
    }
    if names:
        figures = judge(lines)
        queues = _list([_rows(names, figures)], COLUMNS)
        tallies |= figures.tallies
    found = pa.StructArray.from_arrays(
        [queues, _list([_tally_rows(name, tally) for name, tally in tallies.items()], _TALLY)], ["queues", "tallies"]
    )
    return found[0]


def _gather(batches: Iterator[pa.RecordBatch]) -> tuple[list[str], Lines, dict[str, int]]:
    """Names of the queues and their lines.

    For each log it also says how many lines could not be used.
    """
    numbers: dict[str, int] = {}
    parts: dict[str, list[Any]] = {}
    unreadable = {"sent": 0, "received": 0}
    for batch in batches:
        bad = batch.filter(pc.is_null(batch.column("queue")))
        receipts = pc.sum(bad.column("received")).as_py() or 0
        unreadable["received"] += receipts
        unreadable["sent"] += bad.num_rows - receipts
        good = batch.filter(pc.is_valid(batch.column("queue"))) if bad.num_rows else batch
        for name, column in _columns(good, numbers):
            parts.setdefault(name, []).append(column)
    columns = {name: np.concatenate(parts.pop(name)) for name in list(parts)}
    return list(numbers), _lines(columns, len(numbers)), unreadable


def _columns(batch: pa.RecordBatch, numbers: dict[str, int]) -> Iterator[tuple[str, Any]]:
    """The columns as numpy arrays.

    :param numbers: of the queues, by name. New queues are added.
    """
    named = batch.column("queue").dictionary_encode()
    codes = [numbers.setdefault(name, len(numbers)) for name in named.dictionary.to_pylist()]
    yield "queue", np.array(codes, np.int64)[named.indices.to_numpy()]
    for name in batch.schema.names[1:]:
        column = batch.column(name)
        if name == "message_id":
            yield from zip(("high", "low"), _sortable(column), strict=True)
        elif name == "received":
            yield name, column.to_numpy(zero_copy_only=False)
        else:
            yield name, column.fill_null(_NOTHING.get(name, 0)).to_numpy()


def _sortable(ids: pa.Array) -> tuple[Any, Any]:
    """TimeUUIDs as two numbers that sort as the ids do.

    These are the numbers of :class:`queuey.ids.MessageId`.
    """
    fixed = ids.cast(pa.binary(16))
    halves = np.frombuffer(fixed.buffers()[1], ">u8").reshape(-1, 2)[fixed.offset : fixed.offset + len(fixed)]
    high, low = (half.astype(np.uint64) for half in halves.T)
    ticks = high >> 32 | (high >> 16 & 0xFFFF) << 32 | (high & 0x0FFF) << 48
    return ticks.astype(np.int64), (low ^ _SIGN_BITS).view(np.int64)


def _lines(columns: Mapping[str, Any], queues: int) -> Lines:
    count = len(columns.get("queue", ()))

    def column(*names: str) -> Any:
        found = next((columns[name] for name in names if name in columns), None)
        return np.broadcast_to(np.int64(0), count) if found is None else found

    return Lines(
        queue=column("queue"),
        queues=queues,
        partition=column("partition"),
        high=column("high", "sequence"),
        low=column("low"),
        order=column("order"),
        received=column("received"),
        at=column("at"),
        position=column("position"),
        checksum=column("checksum"),
        took=column("took"),
    )


def _rows(names: Sequence[str], figures: Figures) -> dict[str, pa.Array]:
    """A row for each queue."""
    counts = figures.counts
    arrived, sent = counts["received"], counts["sent"]
    columns = {
        "queue": pa.array(names),
        **{name: pa.array(counts[name]) for name in _COUNTS},
        "duplication": _share(counts["duplicates"], sent),
        "loss": _share(counts["missing"] + counts["corrupt"], sent),
        "out_of_order": _share(counts["out_of_order"], arrived),
        "displacement": _share(counts["displaced"], arrived),
        **{name: pa.array(figures.times[name], mask=figures.times[name] == NO_TIME) for name in _TIMES},
    }
    for name, micros in figures.percentiles.items():
        columns[f"{name}_ms"] = pa.array(micros / 1000, mask=micros == NO_TIME)
    return columns


def _share(part: Any, whole: Any) -> pa.Array:
    return pa.array(part / np.maximum(whole, 1), mask=whole == 0)


def _tally_rows(name: str, tally: Tally) -> dict[str, pa.Array]:
    names = pa.array([name] * len(tally.values), pa.string())
    return {"tally": names, "value": pa.array(tally.values), "count": pa.array(tally.counts)}


def _list(parts: Sequence[Mapping[str, pa.Array]], columns: Mapping[str, str]) -> pa.Array:
    """One list of rows: all parts, one behind the other."""
    fields = [pa.field(name, _ARROW[kind]) for name, kind in columns.items()]
    arrays = [
        pa.concat_arrays([pa.array([], field.type), *(part[field.name].cast(field.type) for part in parts)])
        for field in fields
    ]
    rows = pa.StructArray.from_arrays(arrays, fields=fields)
    return pa.ListArray.from_arrays(pa.array([0, len(rows)], pa.int32()), rows)
