"""Logs of senders and receivers as Spark reads them.

They are JSON lines or Parquet, and come into one form.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from queuey.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["RECEIVED", "SENT", "one_form", "read_log"]

_JSON_LOOKED_AT = 1000
_FOLDERS_HAVE_TYPES = "spark.sql.sources.partitionColumnTypeInference.enabled"
_FIRST_MICROS, _LAST_MICROS = -62_135_000_000_000_000, 253_402_000_000_000_000
"""The years from 1 to 9999, but for some days: Python knows no others, in whichever time zone it shows them."""
SENT = {
    "queue": "where it went",
    "partition": "of the queue",
    "sequence": "a number that rises with each send to a queue",
    "message_id": "32 hexadecimal digits",
    "checksum": "of the body, text or a number",
    "body": "in place of a checksum: its CRC-32 is used",
    "sent": "when the call began",
    "timestamp": "in place of sent, as 'queuey put' prints it",
    "acknowledged": "when its answer came",
}
"""Columns of a log of sends."""
RECEIVED = {
    "queue": "where it came from",
    "partition": "of the queue",
    "sequence": "as it was sent",
    "message_id": "as it was sent",
    "checksum": "of the body as it came",
    "body": "in place of a checksum: its CRC-32 is used",
    "asked": "when the call began",
    "received": "when its answer came",
    "position": "a number that rises within an answer",
}
"""Columns of a log of receipts."""


def read_log(spark: SparkSession, paths: Sequence[str], *, sent: DataFrame | None = None) -> DataFrame:
    """A log: files or folders of one kind.

    It is Parquet if the first one is, otherwise JSON lines.

    Lines of JSON that were cut become empty rows. The first thousand lines determine the columns of JSON.

    :param paths: on any file system that Spark reaches.
    :param sent: of a log of receipts the log of sends. Receipts without a line have its columns: nothing was received.
    :raises ConfigurationError: there is no such file or folder, or no line in a log of sends.
    """
    from pyspark.errors import AnalysisException
    from pyspark.sql.functions import lit

    try:
        first = spark.read.format("binaryFile").option("recursiveFileLookup", "true").load(list(paths)).select("path")
        found = first.first()
    except AnalysisException as error:
        raise ConfigurationError(f"log {', '.join(paths)}: {str(error).splitlines()[0]}") from error
    with _folders_as_text(spark):
        if found is not None and found["path"].endswith(".parquet"):
            return spark.read.parquet(*paths)
        head = spark.read.text(list(paths)).select("value").limit(_JSON_LOOKED_AT)
        form = None if found is None else spark.read.json(head).schema
        if form is not None and form.fields:
            return spark.read.schema(form).json(list(paths))
    if sent is None:
        raise ConfigurationError(f"log {', '.join(paths)}: there is no line in it")
    return sent.drop("received").limit(0).withColumn("received", lit(None).cast("timestamp"))


@contextmanager
def _folders_as_text(spark: SparkSession) -> Iterator[None]:
    """Take columns from the names of folders as they are: of ``queue=007`` Spark would make the queue 7."""
    before = spark.conf.get(_FOLDERS_HAVE_TYPES)
    spark.conf.set(_FOLDERS_HAVE_TYPES, "false")
    try:
        yield
    finally:
        if before is not None:
            spark.conf.set(_FOLDERS_HAVE_TYPES, before)


def one_form(sent: DataFrame, received: DataFrame, queue: str | None = None) -> DataFrame:
    """The lines of both logs in one form.

    The columns are those of :class:`qdo.pipeline.jobs.delivery.Lines`.

    Columns that neither log has are left out. ``sequence`` identifies messages if both logs have it, otherwise
    ``message_id``. Order is judged within partitions if both logs name them. A line that cannot be used, because its name,
    its partition or the time of a receipt is missing, has no queue.

    :param queue: of lines that name none.
    :raises ConfigurationError: a log lacks a column that the report needs.
    """
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls them

    form = _Form.of(sent, received, queue)
    both = sent.select(form.columns(sent, receipts=False)).unionByName(
        received.select(form.columns(received, receipts=True))
    )
    usable = F.col(form.identity).isNotNull() & (~F.col("received") | F.col("at").isNotNull())
    if form.partitions:
        usable &= F.col("partition").isNotNull()
    return both.withColumn("queue", F.when(usable, F.col("queue")))


@dataclass(frozen=True)
class _Form:
    """The columns that two logs have in common."""

    queue: str | None
    identity: str
    partitions: bool
    ordered: bool
    """The order comes from a sequence that only the log of sends has."""
    positions: bool
    checked: bool

    @classmethod
    def of(cls, sent: DataFrame, received: DataFrame, queue: str | None) -> _Form:
        _demand_columns(sent, received, queue)
        common = set(sent.columns) & set(received.columns)
        identity = "sequence" if "sequence" in common else "message_id"
        return cls(
            queue,
            identity,
            partitions="partition" in common,
            ordered=identity == "message_id" and "sequence" in sent.columns,
            positions="position" in received.columns,
            checked=_checksum(sent) is not None and _checksum(received) is not None,
        )

    def columns(self, log: DataFrame, *, receipts: bool) -> list[Column]:
        """The columns of one log."""
        from pyspark.sql import functions as F  # noqa: N812

        nothing = F.lit(None).cast("bigint")
        names = [F.col("queue")] if "queue" in log.columns else []
        began, ended = _times_of(log, receipts=receipts)
        at = ended if receipts else began
        chosen = {
            "queue": F.coalesce(*names, F.lit(self.queue)).cast("string"),
            "received": F.lit(receipts),
            self.identity: _identity_of(self.identity),
            "at": nothing if at is None else at,
            "took": nothing if began is None or ended is None else ended - began,
        }
        if self.partitions:
            chosen["partition"] = F.col("partition").try_cast("int")
        if self.ordered:
            chosen["order"] = nothing if receipts else F.col("sequence").try_cast("bigint")
        if self.positions:
            chosen["position"] = F.col("position").try_cast("bigint") if receipts else nothing
        if self.checked:
            chosen["checksum"] = _digest(log)
        return [column.alias(name) for name, column in chosen.items()]


def _demand_columns(sent: DataFrame, received: DataFrame, queue: str | None) -> None:
    for what, log in (("sends", sent), ("receipts", received)):
        if queue is None and "queue" not in log.columns:
            raise ConfigurationError(f"the log of {what} has no column queue: say which it is, --queue NAME")
    if "received" not in received.columns:
        raise ConfigurationError(
            f"the log of receipts has no column received; it has {', '.join(received.columns)}, "
            f"and can have {', '.join(RECEIVED)}"
        )
    if not {"sequence", "message_id"} & set(sent.columns) & set(received.columns):
        raise ConfigurationError(
            "messages have no name in common: both logs need a column sequence or message_id; that of sends has "
            f"{', '.join(sent.columns)}, that of receipts {', '.join(received.columns)}"
        )


def _identity_of(identity: str) -> Column:
    """A number, or the 16 bytes of a TimeUUID."""
    from pyspark.sql import functions as F  # noqa: N812

    if identity == "sequence":
        return F.col("sequence").try_cast("bigint")
    digits = F.replace(F.col("message_id").cast("string"), F.lit("-"), F.lit(""))
    is_one = (F.length(digits) == 32) & (F.substring(digits, 13, 1) == "1")
    return F.when(is_one, F.unhex(digits))


def _times_of(log: DataFrame, *, receipts: bool) -> tuple[Column | None, Column | None]:
    """The columns for when the call began and when it ended."""
    began, ended = ("asked", "received") if receipts else ("sent", "acknowledged")
    if not receipts and "sent" not in log.columns:
        began = "timestamp"
    return tuple(_micros(log, name) if name in log.columns else None for name in (began, ended))  # type: ignore[return-value]  # two


def _micros(log: DataFrame, name: str) -> Column:
    """Microseconds since 1970. What lies outside of the years that Python knows is no time.

    The source is a timestamp, seconds as a number or text, or RFC 3339.

    :raises ConfigurationError: it is none of these.
    """
    from pyspark.sql import functions as F  # noqa: N812
    from pyspark.sql.types import NumericType, StringType, TimestampNTZType, TimestampType

    column, kind = F.col(name), log.schema[name].dataType
    moment = F.unix_micros(column.try_cast("timestamp"))
    match kind:
        case TimestampType() | TimestampNTZType():
            micros = moment
        case NumericType():
            micros = _from_seconds(column)
        case StringType():
            micros = F.coalesce(_from_seconds(column.try_cast("decimal(20,7)")), moment)
        case _:
            raise ConfigurationError(
                f"the column {name} is {kind.simpleString()}: times are timestamps, seconds since 1970, or RFC 3339"
            )
    return F.when(micros.between(_FIRST_MICROS, _LAST_MICROS), micros)


def _from_seconds(seconds: Column) -> Column:
    from pyspark.sql import functions as F  # noqa: N812

    return F.round(seconds * 1_000_000).try_cast("bigint")


def _checksum(log: DataFrame) -> str | None:
    return next((name for name in ("checksum", "body") if name in log.columns), None)


def _digest(log: DataFrame) -> Column:
    """The checksum as one number, 0 for none. Equal numbers count as equal checksums."""
    from pyspark.sql import functions as F  # noqa: N812

    name = _checksum(log)
    text = F.crc32(F.col("body").cast("binary")) if name == "body" else F.col("checksum")
    return F.when(text.isNotNull(), F.xxhash64(text.cast("string"))).otherwise(F.lit(0).cast("bigint"))
