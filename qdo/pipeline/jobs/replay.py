"""From the archive back into queues.

Messages are appended anew, or restored under their own ids.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from qdo.client import NewMessage
from qdo.pipeline.jobs.archive import Archive
from qdo.pipeline.options import WRITE, Given, Reach, ticks_of
from qdo.pipeline.task_reader import connect
from queuey.errors import ConfigurationError, Forbidden
from queuey.ids import EPOCH_TICKS, TICKS_PER_SECOND, MessageId

if TYPE_CHECKING:
    from datetime import datetime

    from pyspark.sql import DataFrame, SparkSession

    from qdo.client import Client

T = TypeVar("T")
_ALIVE = "seconds_left >= 1"
IN_FLIGHT = 8
"""Requests of a task that are under way together. A client keeps ten connections."""

__all__ = ["Chosen", "preview", "replay", "restore"]


@dataclass(frozen=True)
class Chosen:
    """Which messages of an archive to take."""

    queues: Sequence[str] = ()
    """Names of queues; empty for all."""
    since: datetime | None = None
    """Inclusive."""
    until: datetime | None = None
    """Exclusive."""
    keys: Sequence[str] = ()

    def of(self, archive: Archive) -> DataFrame:
        """:raises ConfigurationError: the archive has nothing of a queue that is named."""
        from pyspark.sql.functions import col

        files = archive.files()
        strays = sorted(set(self.queues) - {file.queue for file in files})
        if strays:
            raise ConfigurationError(f"{archive.folder.url} has nothing of queue {strays[0]}")
        frame = archive.read([file for file in files if not self.queues or file.queue in self.queues])
        if self.since is not None:
            frame = frame.filter(col("timestamp") >= self.since)
        if self.until is not None:
            frame = frame.filter(col("timestamp") < self.until)
        return frame.filter(col("key").isin(*self.keys)) if self.keys else frame


def preview(
    spark: SparkSession,
    path: str,
    *,
    options: Mapping[str, str],
    chosen: Chosen = Chosen(),
    queue: str | None = None,
    now: datetime | None = None,
) -> int:
    """How many messages :func:`replay` or :func:`restore` would send.

    Nothing is sent.

    :param now: for a restore; None for a replay.
    :raises ConfigurationError: as they would for the messages' places.
    """
    frame = chosen.of(Archive(spark, path))
    going = _appended(frame) if now is None else _with_lives(frame, now).where(_ALIVE)
    return _check_room(going, _reach(options), queue)


def replay(
    spark: SparkSession,
    path: str,
    *,
    options: Mapping[str, str],
    chosen: Chosen = Chosen(),
    queue: str | None = None,
    rate: int | None = None,
) -> None:
    """Append messages of an archive anew.

    They keep the order that they had in their partitions.

    The idempotency key of each is its old id. So a replay that is repeated within a day stores nothing twice.

    :param options: of the sink: url, application, token, ttl, batchSize.
    :param queue: where all messages go; None for the queue of the name that each was in. It must exist, with as many
        partitions. A message with a key goes to the partition of its key.
    :param rate: messages a second, at most; None for no limit.
    :raises ConfigurationError: a queue does not exist, or has fewer partitions. Nothing is appended.
    """
    from pyspark.sql.functions import col, expr, lit

    frame = chosen.of(Archive(spark, path))
    _check_room(_appended(frame), _reach(options), queue)
    rows = frame.select(
        (lit(queue) if queue is not None else col("queue")).alias("queue"),
        expr("if(key is null, partition, null) as partition"),
        "key",
        "body",
        "content_type",
        "headers",
        col("message_id").alias("idempotency_key"),
        col("partition").alias("was"),
        "timestamp",
    )
    # One task has the whole of a partition, so its messages go in order. With a rate there is one task.
    rows = rows.repartition("queue", "was") if rate is None else rows.coalesce(1)
    rows = rows.sortWithinPartitions("queue", "was", "timestamp", "idempotency_key").drop("was", "timestamp")
    limited = {} if rate is None else {"maxRate": str(rate)}
    rows.write.format("queuey").options(**options, **limited).mode("append").save()


def restore(
    spark: SparkSession,
    path: str,
    *,
    options: Mapping[str, str],
    now: datetime,
    chosen: Chosen = Chosen(),
    queue: str | None = None,
) -> tuple[int, int]:
    """Put messages of an archive back under their ids.

    They live for the time that they had left, in their old partitions.

    Each message is a request, and :data:`IN_FLIGHT` requests of each core are under way together. So this is for messages
    that were lost, not for a pipeline. Readers that are past these places do not see the messages.

    :param now: decides which messages have expired.
    :returns: how many messages were put back, and how many had expired.
    :raises ConfigurationError: a queue does not exist, or has fewer partitions. Nothing is put back.
    """
    reach = _reach(options)
    rows = _with_lives(chosen.of(Archive(spark, path)), now)
    _check_room(rows.where(_ALIVE), reach, queue)

    def put(client: Client, row: Any) -> bool:
        """Whether the message had not expired."""
        if row.seconds_left < 1:
            return False
        where = f"{row.partition}:{MessageId.parse(row.message_id).hex}"
        message = NewMessage(
            bytes(row.body),
            row.seconds_left,
            key=row.key,
            content_type=row.content_type,
            headers={name: bytes(value) for name, value in (row.headers or {}).items()},
        )
        client.put(queue or row.queue, where, message)
        return True

    def put_all(rows: Iterable[Any]) -> Iterator[tuple[int, int]]:
        with connect(reach) as client, ThreadPoolExecutor(IN_FLIGHT) as pool:
            counts = Counter(_each(pool, partial(put, client), rows))
        yield counts[True], counts[False]

    counts = rows.repartition(spark.sparkContext.defaultParallelism).rdd.mapPartitions(put_all).collect()
    return sum(done for done, _ in counts), sum(expired for _, expired in counts)


def _appended(frame: DataFrame) -> DataFrame:
    """Messages to replay, with the partitions that they need.

    A message with a key needs no certain partition.
    """
    from pyspark.sql.functions import expr

    return frame.withColumn("partition", expr("if(key is null, partition, 1)"))


def _with_lives(frame: DataFrame, now: datetime) -> DataFrame:
    """Messages to restore, with the whole seconds that they have left."""
    left = f"(unix_micros(expires) * 10 - {ticks_of(now) - EPOCH_TICKS}) div {TICKS_PER_SECOND} as seconds_left"
    return frame.selectExpr("queue", "partition", "message_id", "body", "content_type", "key", "headers", left)


def _reach(options: Mapping[str, str]) -> Reach:
    return Reach.of(Given(options, WRITE))


def _check_room(frame: DataFrame, reach: Reach, queue: str | None) -> int:
    """Check that all messages have a place, before the first of them is sent.

    :param frame: with the partitions that the messages need.
    :param queue: where all messages go; None for the queue of the name that each was in.
    :returns: the number of messages.
    :raises ConfigurationError: a queue does not exist, or has fewer partitions. With a token that may not list queues
        this cannot be checked.
    """
    from pyspark.sql.functions import expr

    most: dict[str, int] = {}
    count = 0
    for name, partition, messages in frame.groupBy("queue").agg(expr("max(partition)"), expr("count(*)")).collect():
        target = queue or name
        most[target] = max(most.get(target, 0), partition)
        count += messages
    with connect(reach) as client:
        for name, partitions in sorted(most.items()):
            try:
                found = client.find_queue(name)
            except Forbidden:  # a token for appending alone: the server refuses messages without a place
                break
            if found is None:
                raise ConfigurationError(
                    f"there is no queue {name} to replay to: make it, with {partitions} partitions or more "
                    f"(queuey queue add {name} --partitions {partitions})"
                )
            if found.partitions < partitions:
                raise ConfigurationError(
                    f"queue {name} has {found.partitions} partitions, and there are messages of partition {partitions}: give it as many "
                    f"(queuey queue edit {name} --partitions {partitions}), or name another queue"
                )
    return count


def _each(pool: ThreadPoolExecutor, call: Callable[[Any], T], items: Iterable[Any]) -> Iterator[T]:
    """The results of all calls, in order.

    No more items are taken than there are calls under way.
    """
    under_way: deque[Future[T]] = deque()
    for item in items:
        if len(under_way) == IN_FLIGHT:
            yield under_way.popleft().result()
        under_way.append(pool.submit(call, item))
    while under_way:
        yield under_way.popleft().result()
