"""A stream reader as Spark's driver uses it: where micro-batches end, and what each of them reads."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import StringType, StructField, StructType

from qdo.client import Client, NewMessage
from qdo.pipeline.options import BATCH, STREAM, ReadOptions
from qdo.pipeline.planner import Planner
from qdo.pipeline.source import QueueySource, reader_of
from qdo.pipeline.stream import QueueyStreamReader
from qdo.pipeline.tasks import Task
from queuey.errors import ConfigurationError, DataLost, Forbidden
from queuey.ids import EPOCH_TICKS, MessageId
from tests.support.client import new_name
from tests.support.pipeline import (
    APPLICATION,
    KEY,
    append,
    counted,
    fill,
    on_both_stores,
    on_both_stores_if_drawn,
    settle,
)
from tests.support.servers import RunningServer, eventually
from tests.support.services.proxy import Proxy

SCHEMA = StructType([StructField("message_id", StringType())])


class Stream:
    """A stream reader as Spark's driver uses it, without Spark around it."""

    def __init__(
        self, running: RunningServer, clock: Callable[[], float] = lambda: 0.0, cores: int | None = None, **options: str
    ) -> None:
        given = {"url": running.url, "application": APPLICATION, "token": KEY} | options
        asked = ReadOptions.of(given, STREAM)
        self.reader = QueueyStreamReader(asked, reader_of(asked, SCHEMA), cores, clock)

    def latest(self, start: dict[str, Any], most: int | None = None) -> dict[str, Any]:
        return self.reader.latestOffset(start, ReadAllAvailable() if most is None else ReadMaxRows(most))

    def read(self, start: dict[str, Any], end: dict[str, Any]) -> list[str]:
        tasks = self.reader.partitions(start, end)
        return [id_ for task in tasks for batch in self.reader.read(task) for id_ in batch.column(0).to_pylist()]


@on_both_stores_if_drawn
def test_queues_of_a_pattern_are_read_whenever_something_comes_to_them(running: RunningServer, client: Client) -> None:
    stem = new_name()
    names = [f"{stem}.{number}" for number in range(8)]
    for name in names[:-1]:
        client.create_queue(name, partitions=1)
        client.append_batch(name, [f"{name} {number}" for number in range(5)])
    settle(client, names[-2])
    stream = Stream(running, subscribePattern=rf"{stem}\..*", startingOffsets="earliest")
    offset, read = stream.reader.initialOffset(), Counter[str]()

    def drain(most: int) -> int:
        """Micro-batches until there is nothing."""
        nonlocal offset
        for batches in range(20):
            end = stream.latest(offset, most)
            if end == offset:
                return batches
            read.update(stream.read(offset, end))
            offset = end
        raise AssertionError("it does not come to an end")

    assert drain(12) == 3  # what a limit leaves in a queue is read though nothing comes to it any more
    client.create_queue(names[-1], partitions=1)
    for name in names[-2:]:
        append(client, name, "new")
    client.delete_queue(names[0])  # which a pattern passes over
    eventually(
        lambda: drain(12) >= 0 and sum(read.values()) == 37
    )  # a server tells what came a tenth of a second later

    assert len(read) == 37


def test_a_trigger_asks_about_no_queue_in_which_nothing_came(running: RunningServer, client: Client) -> None:
    stem = new_name()
    for number in range(12):
        client.create_queue(f"{stem}.{number}", partitions=1)
    stream = Stream(running, subscribePattern=rf"{stem}\..*")
    start = stream.latest(stream.reader.initialOffset())

    def requests_of_a_look() -> int:
        before = counted(running, "queuey_http_request_duration_seconds_count")
        stream.latest(start)
        return (
            int(counted(running, "queuey_http_request_duration_seconds_count") - before) - 1
        )  # which asked for the count

    assert requests_of_a_look() == 1
    client.append(f"{stem}.7", "x")
    eventually(lambda: requests_of_a_look() == 2)  # it learns of it a tenth of a second later


@on_both_stores
def test_a_span_is_read_the_same_again_though_more_has_come(running: RunningServer, client: Client) -> None:
    queue = fill(client, partitions=2, messages=30)
    stream = Stream(running, subscribe=queue, startingOffsets="earliest")
    start = stream.reader.initialOffset()
    end = stream.latest(start, 20)
    first = stream.read(start, end)
    append(client, queue, *["late"] * 20)

    assert len(first) == 20
    assert Stream(running, subscribe=queue).read(json.loads(json.dumps(start)), json.loads(json.dumps(end))) == first
    assert stream.latest(end, 20) != end
    assert stream.latest(end)["queues"] == (stream.reader.reportLatestOffset() or {})["queues"]


@on_both_stores
@pytest.mark.parametrize("spread", [(40, 40, 40, 40), (130, 3, 3, 3), (60, 1, 50, 0), (90,), (7, 7, 90, 90)])
def test_micro_batches_keep_their_limit_however_messages_are_spread(
    running: RunningServer, client: Client, spread: tuple[int, ...]
) -> None:
    queue = new_name()
    client.create_queue(queue, partitions=len(spread))
    client.append_batch(
        queue, [NewMessage("x", partition=at) for at, number in enumerate(spread, 1) for _ in range(number)]
    )
    settle(client, queue)
    stream = Stream(running, subscribe=queue, startingOffsets="earliest")
    offset, read, sizes = stream.reader.initialOffset(), list[str](), list[int]()
    while (end := stream.latest(offset, 24)) != offset:
        found = stream.read(offset, end)
        read += found
        sizes.append(len(found))
        offset = end

    assert sizes == [24] * (sum(spread) // 24) + ([sum(spread) % 24] if sum(spread) % 24 else [])
    assert sorted(read) == sorted(message.id.hex for message in client.iterate(queue))


def test_a_look_is_one_request_while_partitions_have_about_as_much_to_read(
    running: RunningServer, client: Client
) -> None:
    stream = Stream(running, subscribe=fill(client, partitions=4, messages=40), startingOffsets="earliest")
    offset = stream.latest(stream.reader.initialOffset(), 40)
    before = counted(running, "queuey_http_request_duration_seconds_count")

    assert len(stream.read(offset, stream.latest(offset, 40))) == 40

    asked = counted(running, "queuey_http_request_duration_seconds_count") - before
    assert asked == 1 + 1 + 4  # for the count before, to look, and to read


def test_small_micro_batches_are_one_task_and_large_ones_more(running: RunningServer, client: Client) -> None:
    queue = fill(client, partitions=4, messages=5)
    stream = Stream(running, subscribe=queue, startingOffsets="earliest")
    start = stream.reader.initialOffset()

    end = stream.latest(start)
    (small,) = stream.reader.partitions(start, end)
    replayed = Stream(running, subscribe=queue).reader.partitions(start, end)
    client.append_batch(queue, [NewMessage("x", partition=number) for number in (1, 2) for _ in range(10_000)][:10_000])
    client.append_batch(queue, [NewMessage("x", partition=2)] * 10_000)
    capped = Stream(running, subscribe=queue, tasksPerTrigger="1")
    on_one_core = Stream(running, subscribe=queue, cores=1)
    limited, alone, folded = (
        each.reader.partitions(start, each.latest(start)) for each in (stream, capped, on_one_core)
    )

    assert isinstance(small, Task)
    assert len(small.parts) == 4
    assert [task.parts for task in replayed if isinstance(task, Task)] == [
        tuple(replace(part, messages=None) for part in small.parts)
    ]
    assert (len(limited), len(alone), len(folded)) == (2, 1, 1)


@on_both_stores
def test_latest_begins_with_what_comes_next(running: RunningServer, client: Client) -> None:
    queue = fill(client)
    stream = Stream(running, subscribe=queue)
    start = stream.reader.initialOffset()
    assert stream.latest(start) is start

    (new,) = (each.id.hex for each in append(client, queue, "new"))

    assert stream.read(start, stream.latest(start)) == [new]


@on_both_stores
def test_a_stream_begins_at_a_moment(running: RunningServer, client: Client) -> None:
    queue = fill(client, partitions=1)
    ids = [message.id for message in client.iterate(queue)]
    micros = (ids[6].ticks - EPOCH_TICKS) // 10
    moment = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)).isoformat()
    stream = Stream(running, subscribe=queue, startingTimestamp=moment)
    start = stream.reader.initialOffset()

    wanted = [id_.hex for id_ in ids if (id_.ticks - EPOCH_TICKS) // 10 >= micros]
    assert stream.read(start, stream.latest(start)) == wanted


def test_few_messages_wait_for_more_but_not_for_ever(running: RunningServer, client: Client) -> None:
    queue = fill(client, partitions=2, messages=5)
    now = [0.0]
    stream = Stream(
        running,
        lambda: now[0],
        subscribe=queue,
        startingOffsets="earliest",
        minOffsetsPerTrigger="11",
        maxTriggerDelay="30s",
    )
    start = stream.reader.initialOffset()

    assert stream.latest(start) is start
    now[0] = 29.9
    assert stream.latest(start) is start
    now[0] = 30.1
    end = stream.latest(start)
    assert len(stream.read(start, end)) == 10
    client.append_batch(queue, ["x"] * 11)
    assert stream.latest(end) != end


@on_both_stores
def test_available_now_ends_though_a_producer_goes_on(running: RunningServer, client: Client) -> None:
    queue = fill(client, partitions=2, messages=20)
    stream = Stream(running, subscribe=queue, startingOffsets="earliest")
    offset = stream.reader.initialOffset()
    stream.reader.prepareForTriggerAvailableNow()
    read: list[str] = []
    for _ in range(20):
        client.append(queue, "goes on")
        end = stream.latest(offset, 7)
        if end == offset:
            break
        read += stream.read(offset, end)
        offset = end

    assert len(read) == len(set(read)) == 40


@on_both_stores
def test_what_was_deleted_before_it_was_read_is_told_with_its_number_and_place(
    running: RunningServer, client: Client
) -> None:
    queue = fill(client, partitions=1, messages=10)
    stream = Stream(running, subscribe=queue, startingOffsets="earliest")
    start = stream.reader.initialOffset()
    end = stream.latest(start)
    gone = list(client.iterate(queue))[3:6]
    client.delete(queue, gone)

    with pytest.raises(DataLost, match=f"3 of 10 messages of queue {queue}, partition 1"):
        stream.read(start, end)
    tolerant = Stream(running, subscribe=queue, failOnDataLoss="false")
    assert len(tolerant.read(start, end)) == 7


def test_what_is_put_into_a_span_after_it_was_counted_is_no_loss(running: RunningServer, client: Client) -> None:
    queue = fill(client, partitions=1, messages=3)
    stream = Stream(running, subscribe=queue, startingOffsets="earliest")
    start = stream.reader.initialOffset()
    end = stream.latest(start)
    first = next(iter(client.iterate(queue)))
    client.put(queue, f"1:{MessageId(first.id.ticks - 1, first.id.tail).hex}", NewMessage("restored"))

    assert len(stream.read(start, end)) == 4


def test_a_stream_goes_on_at_another_server_if_its_own_is_away(running: RunningServer, client: Client) -> None:
    queue = fill(client, messages=3)
    with Proxy(lambda: ("127.0.0.1", running.port)) as proxy:
        stream = Stream(running, url=f"{proxy.url},{running.url}", retries="0", subscribePattern=queue)
        start = stream.reader.initialOffset()
        assert stream.latest(start) == start
        (more,) = append(client, queue, "more")

    end = stream.latest(start)

    assert stream.read(start, end) == [more.id.hex]


@on_both_stores
def test_a_queue_that_was_deleted_is_told_where_it_is_planned_and_where_it_is_read(
    running: RunningServer, client: Client
) -> None:
    queue = fill(client, messages=5)
    stream = Stream(running, subscribe=queue, startingOffsets="earliest")
    start = stream.reader.initialOffset()
    end = stream.latest(start)
    client.delete_queue(queue)

    for _ in range(2):
        with pytest.raises(DataLost, match=f"queue {queue} was deleted"):
            stream.latest(end)
        with pytest.raises(DataLost, match=f"queue {queue} was deleted"):
            stream.read(start, end)
        client.create_queue(queue)  # another one of its name
    assert Stream(running, subscribe=queue, failOnDataLoss="false").read(start, end) == []


@on_both_stores
def test_a_span_whose_end_has_expired_is_told(running: RunningServer, client: Client) -> None:
    queue = new_name()
    client.create_queue(queue)
    stream = Stream(running, subscribe=queue, startingOffsets="earliest")
    start = stream.reader.initialOffset()

    def ended() -> dict[str, Any] | None:
        """Behind a message, unless that expires before anybody has looked."""
        append(client, queue, NewMessage("short", ttl_seconds=3))
        end = stream.latest(start)
        return end if end != start else None

    end = eventually(ended, seconds=120)
    assert end is not None
    eventually(lambda: not list(client.iterate(queue)), seconds=90)

    with pytest.raises(DataLost, match="expired or were deleted"):
        Stream(running, subscribe=queue).read(start, end)


def test_the_group_follows_for_people_to_see(running: RunningServer, client: Client) -> None:
    queue = fill(client, partitions=2, messages=5)
    stream = Stream(running, subscribe=queue, startingOffsets="earliest", groupId="spark")
    start = stream.reader.initialOffset()
    end = stream.latest(start)

    stream.reader.commit(end)

    ids = {offset.partition: offset.id for offset in client.offsets(queue, "spark")}
    assert {str(number): id_.hex for number, id_ in ids.items() if isinstance(id_, MessageId)} == end["queues"][queue][
        "p"
    ]


def test_the_group_learns_only_of_queues_that_went_on(running: RunningServer, client: Client) -> None:
    still, busy = fill(client, messages=1), fill(client, messages=1)
    stream = Stream(running, subscribe=f"{still},{busy}", startingOffsets="earliest", groupId="spark")
    end = stream.latest(stream.reader.initialOffset())
    stream.reader.commit(end)
    client.reset_offsets(still, "spark", "beginning")
    append(client, busy, "more")
    later = stream.latest(end)

    stream.reader.commit(later)

    assert all(offset.id is None for offset in client.offsets(still, "spark"))
    assert {offset.id.hex for offset in client.offsets(busy, "spark") if isinstance(offset.id, MessageId)} == {
        *later["queues"][busy]["p"].values()
    }


def test_a_queue_that_was_deleted_keeps_the_query_from_nothing(running: RunningServer, client: Client) -> None:
    """It stays in the checkpoint, so the query could never go on. A queue made anew learns nothing of it."""
    gone, left = fill(client, messages=1), fill(client, messages=1)
    stream = Stream(running, subscribe=f"{gone},{left}", startingOffsets="earliest", groupId="spark")
    end = stream.latest(stream.reader.initialOffset())
    client.delete_queue(gone)

    stream.reader.commit(end)

    assert all(offset.id is not None for offset in client.offsets(left, "spark"))
    client.create_queue(gone, partitions=1)
    stream.reader.commit(end)
    assert all(offset.id is None for offset in client.offsets(gone, "spark"))


def test_an_older_spark_is_told_which_one_can(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "qdo.pipeline.stream")
    monkeypatch.setitem(sys.modules, "pyspark.sql.streaming.datasource", None)

    with pytest.raises(ConfigurationError, match=r"a streaming read needs Spark 4\.2 or newer, and this is "):
        QueueySource({"subscribe": "x"}).streamReader(SCHEMA)


@on_both_stores_if_drawn
def test_only_assigned_partitions_are_read(running: RunningServer, client: Client) -> None:
    queue = fill(client, partitions=3, messages=4)
    stream = Stream(running, assign=json.dumps({queue: [1, 3]}), startingOffsets="earliest")
    start = stream.reader.initialOffset()
    wanted = {message.id.hex for message in client.iterate(queue) if message.partition != 2}

    end = stream.latest(start)
    assert sorted(stream.read(start, end)) == sorted(wanted)
    cut = stream.latest(start, 2)
    rest = stream.latest(cut)
    assert {*stream.read(start, cut), *stream.read(cut, rest)} == wanted
    append(client, queue, NewMessage("other", partition=2))
    assert stream.latest(end) == end
    (more,) = append(client, queue, NewMessage("more", partition=3))
    assert stream.read(end, stream.latest(end)) == [more.id.hex]
    target = Stream(running, assign=json.dumps({queue: [2]}), startingOffsets="earliest")
    target.reader.prepareForTriggerAvailableNow()
    assert len(target.read(start, target.latest(start))) == 5


def test_a_stream_that_begins_at_a_moment_to_come_reads_nothing_before_it(
    running: RunningServer, client: Client
) -> None:
    queue = fill(client, partitions=2, messages=3)
    for moment in ("9000-01-01T00:00:00Z", (datetime.now(UTC) + timedelta(hours=1)).isoformat()):
        stream = Stream(running, subscribe=queue, startingTimestamp=moment, groupId="spark")
        start = stream.reader.initialOffset()
        append(client, queue, "too early")

        assert stream.latest(start) == start
        stream.reader.commit(start)
    early = Stream(running, subscribe=queue, startingTimestamp="1500-01-01T00:00:00Z")
    start = early.reader.initialOffset()
    assert len(early.read(start, early.latest(start))) == 8


@on_both_stores_if_drawn
def test_a_moment_holds_for_queues_and_partitions_that_come_later(running: RunningServer, client: Client) -> None:
    queue = fill(client, partitions=1, messages=1)
    pattern = rf"{queue}.*"
    start = Stream(running, startingTimestamp="9000-01-01T00:00:00Z", subscribePattern=pattern).reader.initialOffset()
    client.update_queue(queue, partitions=2)
    client.create_queue(f"{queue}.new", partitions=1)
    stored = [append(client, queue, NewMessage("x", partition=2))[0].id for _ in range(2)]
    stored += [append(client, f"{queue}.new", "x")[0].id for _ in range(3)]
    micros = (stored[3].ticks - EPOCH_TICKS) // 10
    moment = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)).isoformat()
    stream = Stream(running, startingTimestamp=moment, subscribePattern=pattern)

    cut = stream.latest(start, 1)
    end = stream.latest(cut)

    assert stream.read(start, cut) == [stored[3].hex]
    assert stream.read(cut, end) == [stored[4].hex]
    assert stream.latest(end) == end
    assert [list(offset["p"]) for _, offset in sorted(cut["queues"].items())] == [["1", "2"], ["1"]]
    another = Stream(running, startingTimestamp="1500-01-01T00:00:00Z", subscribePattern=pattern)
    assert another.latest(end) == end, "what the checkpoint has is where each partition goes on"


@pytest.mark.parametrize(
    ("places", "said"),
    [({"QUEUE": {"3": "earliest"}}, "partition 3 of queue"), ({"other": {"1": "earliest"}}, "other, which is not")],
)
def test_offsets_of_what_is_not_read_are_refused(
    running: RunningServer, client: Client, places: dict[str, dict[str, str]], said: str
) -> None:
    queue = fill(client, partitions=2, messages=1)
    offsets = json.dumps(places).replace("QUEUE", queue)

    with pytest.raises(ConfigurationError, match=said):
        Stream(running, subscribe=queue, startingOffsets=offsets).reader.initialOffset()
    batch = ReadOptions.of(
        {"url": running.url, "application": APPLICATION, "token": KEY, "subscribe": queue, "startingOffsets": offsets},
        BATCH,
    )
    with pytest.raises(ConfigurationError, match=said):
        Planner(batch).tasks()
    with pytest.raises(ConfigurationError, match="2 partitions, and no 3"):
        Stream(running, assign=json.dumps({queue: [3]})).reader.initialOffset()


def test_a_schema_that_is_not_null_is_refused(running: RunningServer) -> None:
    asked = ReadOptions.of({"url": running.url, "subscribe": "any"}, STREAM)

    with pytest.raises(ConfigurationError, match="column message_id is not null"):
        reader_of(asked, StructType([StructField("message_id", StringType(), nullable=False)]))


def test_what_a_token_may_not_do_is_told_with_the_queue(running: RunningServer, client: Client) -> None:
    mine, other = fill(client, partitions=1), fill(client, partitions=1)
    token = client.new_token(queues=[mine], verbs=["read"]).text

    def begun(**options: Any) -> tuple[Stream, dict[str, Any]]:
        stream = Stream(running, token=token, **options)
        return stream, stream.reader.initialOffset()

    stream, start = begun(subscribe=mine, startingOffsets="earliest", groupId="spark")
    end = stream.latest(start)
    assert len(stream.read(start, end)) == 10
    with pytest.raises(Forbidden, match=f"recording offsets of group spark in queue {mine}: "):
        stream.reader.commit(end)
    with pytest.raises(Forbidden, match=f"reading queue {other}: "):
        begun(subscribe=f"{mine},{other}")
    with pytest.raises(Forbidden, match=f"the list of queues of {APPLICATION}: "):
        begun(subscribePattern=".*")
    whole = Stream(running, subscribe=other, startingOffsets="earliest")
    start = whole.reader.initialOffset()
    with pytest.raises(Forbidden, match=f"reading queue {other}: "):
        stream.read(start, whole.latest(start))
