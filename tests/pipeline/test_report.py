"""The delivery report: what was planted in two logs is found, exactly, by queue and in total."""

from __future__ import annotations

import base64
import json
import os
import random
import re
import subprocess
import sys
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from qdo.cli import main
from qdo.cli.pipeline import submit
from qdo.client import Client, NewMessage
from qdo.measure import disorder, duplicates, loss, percentiles
from qdo.pipeline.jobs.delivery import NO_CHECKSUM, NO_TIME, RANKS, Lines, judge
from qdo.pipeline.jobs.logs import read_log
from qdo.pipeline.jobs.pages import HtmlPage
from qdo.pipeline.jobs.report import ALL, COLUMNS, report
from qdo.pipeline.jobs.report_page import page as page_of
from queuey.errors import ConfigurationError
from queuey.ids import EPOCH_TICKS, MessageId

T0 = 1_795_273_096.0
"""When the first message of a test is sent."""

Line = Mapping[str, Any]
Sent = tuple[int, int, int]
Receipt = tuple[int, int, int, bool]
"""Queue, partition, sequence; and of receipts whether the checksum is right. Their order is that of time."""

line = st.tuples(st.integers(0, 2), st.integers(1, 2), st.integers(0, 6))
receipt = st.tuples(st.integers(0, 2), st.integers(1, 2), st.integers(0, 6), st.booleans())


def lines_of(sent: Sequence[Sent], receipts: Sequence[Receipt], seed: int) -> Lines:
    """In columns, shuffled: the order of lines must not matter."""
    rows = [(q, p, s, False, 1000 + 10 * s, 7) for q, p, s in sent]
    rows += [(q, p, s, True, 2000 + 3 * at, 7 if right else 8) for at, (q, p, s, right) in enumerate(receipts)]
    random.Random(seed).shuffle(rows)
    columns = [np.array(column) for column in zip(*rows, strict=True)] or [np.array([], np.int64)] * 6
    queue, partition, sequence, received, at, checksum = columns
    nothing = np.zeros(len(rows), np.int64)
    return Lines(
        queue=queue,
        queues=3,
        partition=partition,
        high=sequence,
        low=nothing,
        order=nothing,
        received=received.astype(np.bool_),
        at=at,
        position=nothing,
        checksum=checksum,
        took=np.full(len(rows), NO_TIME),
    )


@given(st.lists(line, max_size=30), st.lists(receipt, max_size=40), st.integers(0, 99))
@settings(max_examples=300, deadline=None)
def test_queues_judged_together_are_as_if_each_partition_was_judged_alone(
    sent: list[Sent], receipts: list[Receipt], seed: int
) -> None:
    figures = judge(lines_of(sent, receipts, seed))

    for queue in range(3):
        due = {one for one in sent if one[0] == queue}
        known = [one for one in receipts if one[:3] in due]
        places = [one[:3] for one in known]
        right = [one[:3] for one in known if one[3]]
        counts = {name: column[queue] for name, column in figures.counts.items()}
        assert counts["sent"] == len(due)
        assert counts["received"] == len(set(places))
        assert counts["duplicates"] == len(duplicates(places))
        assert counts["missing"] == len(loss(due, places))
        assert counts["corrupt"] == len(set(places) - set(right))
        assert counts["strangers"] == sum(one[0] == queue for one in receipts) - len(known)
        parts = [[s for _, p, s in places if p == partition] for partition in (1, 2)]
        out, displacement = zip(*(disorder(part) for part in parts), strict=True)
        sizes = [len(set(part)) for part in parts]
        assert counts["out_of_order"] == round(sum(share * size for share, size in zip(out, sizes, strict=True)))
        assert counts["displaced"] == round(sum(mean * size for mean, size in zip(displacement, sizes, strict=True)))
        way: dict[Sent, int] = {}
        for at, (q, p, s, _) in enumerate(receipts):
            if (q, p, s) in due:
                way.setdefault((q, p, s), 2000 + 3 * at - 1000 - 10 * s)
        if way:
            expected = percentiles(way.values(), list(RANKS.values()))
            assert [figures.percentiles[f"delivery_{name}"][queue] for name in RANKS] == list(expected.values())
        else:
            assert figures.percentiles["delivery_p50"][queue] == NO_TIME


def test_no_checksum_is_no_wrong_one() -> None:
    lines = lines_of([(0, 1, 1)], [(0, 1, 1, False)], 0)

    assert judge(lines).counts["corrupt"].tolist() == [1, 0, 0]
    lines.checksum[lines.received] = NO_CHECKSUM
    assert judge(lines).counts["corrupt"].tolist() == [0, 0, 0]


def rows_of(found: DataFrame) -> dict[str, dict[str, Any]]:
    return {row["queue"]: row.asDict() for row in found.collect()}


def test_the_worked_examples_of_the_paper_come_out_of_spark(spark: SparkSession) -> None:
    examples = {"swapped": (2, 1, 3, 4, 5), "late": (2, 3, 4, 5, 1), "backwards": (5, 4, 3, 2, 1), "kept": (1, 2, 3)}
    sent = [(queue, one) for queue, order in examples.items() for one in order]
    received = [(queue, one, T0 + at) for queue, order in examples.items() for at, one in enumerate(order)]
    random.Random(1).shuffle(received)

    found = report(
        spark.createDataFrame(sent, "queue string, sequence long"),
        spark.createDataFrame(received, "queue string, sequence long, received double"),
    )

    disorders = {queue: (row["out_of_order"], row["displacement"]) for queue, row in rows_of(found.queues).items()}
    assert disorders == {"swapped": (0.2, 0.4), "late": (0.2, 1.6), "backwards": (0.8, 2.4), "kept": (0.0, 0.0)}
    assert found.total["out_of_order"] == pytest.approx(0.3)
    assert found.total["displacement"] == pytest.approx(1.1)
    assert (found.total["queue"], found.total["sent"], found.total["loss"]) == (ALL, 18, 0.0)
    assert found.queues.columns == list(COLUMNS)
    found.close()


def hex_id(number: int, partition: int = 1) -> str:
    """Ids whose text is not in their order: the low bits of the time come first."""
    return MessageId(EPOCH_TICKS + 17_952_730_960_000_000 + number * 4_000_000_000, -partition).hex


def test_messages_known_by_their_ids_are_in_the_order_of_ids(spark: SparkSession) -> None:
    ids = [hex_id(number) for number in range(20)]
    assert ids != sorted(ids)
    sent = [("a", 1, one) for one in ids] + [("a", 2, hex_id(number, 2)) for number in range(5)]
    swapped = [*ids[:10], ids[11], ids[10], *ids[12:]]
    received = [("a", 1, one.upper() if at % 2 else one, T0 + at) for at, one in enumerate(swapped)]
    received += [("a", 2, hex_id(number, 2), T0 - number) for number in range(5)]
    columns = "queue string, partition int, message_id string"

    found = report(spark.createDataFrame(sent, columns), spark.createDataFrame(received, f"{columns}, received double"))

    (row,) = rows_of(found.queues).values()
    # One of the first partition; of the second, which is backwards, all but one, moved by 4, 2, 0, 2 and 4.
    assert row["out_of_order"] == (1 + 4) / 25
    assert row["displacement"] == (2 + 12) / 25
    assert row["loss"] == row["duplication"] == 0
    found.close()


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This process in a time zone with summer time, which ends on 25 October 2026 at one in UTC."""
    with monkeypatch.context() as changed:
        changed.setenv("TZ", "Europe/Berlin")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("berlin")
def test_times_of_the_total_are_right_in_the_hour_that_comes_twice(spark: SparkSession) -> None:
    when = datetime(2026, 10, 25, 0, 30, tzinfo=UTC)
    sent = spark.createDataFrame([("q", 1, when.timestamp())], "queue string, sequence int, sent double")
    found = report(sent, sent.withColumnRenamed("sent", "received"))

    times = {
        name: table.selectExpr("unix_seconds(first_sent)", "unix_seconds(last_received)").first()
        for name, table in found.tables.items()
    }
    found.close()

    assert times == dict.fromkeys(("queues", "total"), (when.timestamp(), when.timestamp()))
    assert found.total["first_sent"] == when


def test_the_last_step_over_time_has_its_end(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where all messages are of one second it is the only one."""
    figures: list[Any] = []
    monkeypatch.setattr(HtmlPage, "figure", lambda _self, figure, _caption: figures.append(figure))
    sent = spark.createDataFrame([("q", n, T0 + n / 4) for n in range(3)], "queue string, sequence int, sent double")
    found = report(sent, sent.withColumnRenamed("sent", "received"))

    page_of(found)
    found.close()

    lines = figures[-1].axes[0].get_lines()
    second = np.datetime64(int(T0), "s")
    assert [line.get_label() for line in lines] == ["sent", "received"]
    assert [[*line.get_xdata()] for line in lines] == [[second, second + 1]] * 2
    assert [[*line.get_ydata()] for line in lines] == [[3, 3]] * 2


def test_order_is_that_of_the_senders_numbers_where_only_they_are_told(spark: SparkSession) -> None:
    ids = [hex_id(number) for number in range(4)]
    sent = [("a", one, number) for number, one in zip((3, 1, 2, 0), ids, strict=True)]
    received = [("a", one, datetime(2026, 11, 21, tzinfo=UTC), at) for at, one in enumerate(ids)]

    found = report(
        spark.createDataFrame(sent, "queue string, message_id string, sequence int"),
        spark.createDataFrame(received, "queue string, message_id string, received timestamp, position int"),
    )

    assert (found.total["out_of_order"], found.total["displacement"]) == disorder([3, 1, 2, 0])
    found.close()


def write_json(path: Path, lines: Iterable[Line | str]) -> Path:
    path.write_text("".join((one if isinstance(one, str) else json.dumps(one)) + "\n" for one in lines))
    return path


def qdo(*words: object) -> Result:
    """Run in this process, whose Spark runs already."""
    return CliRunner().invoke(main, ["pipeline", *map(str, words)])


def planted(folder: Path) -> tuple[Path, Path]:
    """Two queues of 50 messages; of ``a<b>`` one is lost, one comes thrice, one is corrupt, two are swapped."""
    queues = ("a<b>", "quiet")
    sent: list[Line | str] = [
        {"queue": queue, "sequence": n, "checksum": n, "sent": T0 + n, "acknowledged": T0 + n + 0.002}
        for queue in queues
        for n in range(50)
    ]
    received: list[Line | str] = []
    for queue in queues:
        for n in range(50):
            late = 0.5 if (queue, n) != ("a<b>", 20) else 1.75
            at = (datetime.fromtimestamp(T0 + n, UTC) + timedelta(seconds=late)).isoformat()
            received.append({"queue": queue, "sequence": n, "checksum": n, "received": at})
    received.remove(next(one for one in received if isinstance(one, dict) and one["sequence"] == 7))
    corrupt = next(one for one in received if isinstance(one, dict) and one["sequence"] == 9)
    received[received.index(corrupt)] = {**corrupt, "checksum": 10}
    again = next(one for one in received if isinstance(one, dict) and one["sequence"] == 30)
    received += [again, again, {"queue": "a<b>", "sequence": 99, "received": T0}]
    cut = ['{"queue": "a<b>", "sequen', json.dumps({"queue": "quiet", "sequence": 3})]
    return write_json(folder / "sent.jsonl", sent), write_json(folder / "received.jsonl", [*received, *cut])


@pytest.mark.usefixtures("spark")
def test_what_was_planted_is_found_by_the_command(spark: SparkSession, tmp_path: Path) -> None:
    sent, received = planted(tmp_path)

    result = qdo(
        "report", "--sent", sent, "--received", received, "--out", tmp_path / "out", "--html", tmp_path / "r.html",
        "-o", "json",
    )  # fmt: skip

    assert result.exit_code == 0, result.output
    total, *queues = json.loads(result.stdout)
    assert "could not use 2 lines of --received" in result.stderr
    counts = ("sent", "received", "duplicates", "missing", "corrupt", "strangers")
    assert [total[name] for name in ("queue", *counts)] == [ALL, 100, 99, 2, 1, 1, 1]
    assert [[one[name] for name in ("queue", *counts)] for one in queues] == [
        ["a<b>", 50, 49, 2, 1, 1, 1],
        ["quiet", 50, 50, 0, 0, 0, 0],
    ]
    assert queues[0]["out_of_order"] == round(1 / 49, 6)
    assert queues[0]["displacement"] == round(2 / 49, 6)
    assert (queues[0]["delivery_p50_ms"], queues[0]["delivery_max_ms"]) == (500, 1750)
    stored = rows_of(spark.read.parquet(str(tmp_path / "out/queues")))
    assert stored["a<b>"]["loss"] == 2 / 50
    assert stored["a<b>"]["send_p99_ms"] == 2
    assert stored["quiet"]["last_received"] == datetime.fromtimestamp(T0 + 49.5)  # noqa: DTZ006 - as Spark gives it
    assert rows_of(spark.read.parquet(str(tmp_path / "out/total")))[ALL]["duplication"] == 0.02
    page = (tmp_path / "r.html").read_text()
    assert "a&lt;b&gt;" in page
    assert "<b>" not in page
    images = re.findall(r'src="data:image/svg\+xml;base64,([^"]+)"', page)
    assert len(images) == page.count("<img") == 3
    assert all(base64.b64decode(image).startswith(b"<?xml") for image in images)
    assert re.findall(r'(?:src|href)="(?!data:)', page) == []


@pytest.mark.usefixtures("spark")
def test_results_do_not_go_where_something_is(tmp_path: Path) -> None:
    sent, received = planted(tmp_path)

    result = qdo("report", "--sent", sent, "--received", received, "--out", tmp_path)

    assert result.exit_code == 2
    assert f"{tmp_path} is there already" in result.stderr


@pytest.mark.parametrize(
    ("sent", "received", "said"),
    [
        ("sequence int", "queue string, sequence int, received double", "log of sends has no column queue"),
        ("queue string, sequence int", "queue string, sequence int", "log of receipts has no column received"),
        ("queue string, sequence int", "queue string, message_id string, received double", "no name in common"),
    ],
)
def test_a_log_without_a_column_it_needs_is_refused(spark: SparkSession, sent: str, received: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        report(spark.createDataFrame([], sent), spark.createDataFrame([], received))


@pytest.mark.usefixtures("spark")
def test_a_log_that_is_not_there_is_refused(tmp_path: Path) -> None:
    result = qdo("report", "--sent", tmp_path / "none", "--received", tmp_path / "none")

    assert result.exit_code == 2
    assert f"log {tmp_path / 'none'}" in result.stderr


def test_a_time_that_no_calendar_has_is_none(spark: SparkSession, tmp_path: Path) -> None:
    """Such as one in milliseconds, or in nanoseconds."""
    times = [T0 * scale for scale in (1, 1000, -1000, 1e9)]
    sent = write_json(
        tmp_path / "sent.jsonl", [{"queue": "q", "sequence": n, "sent": at} for n, at in enumerate(times)]
    )
    received = [{"queue": "q", "sequence": n, "received": at} for n, at in enumerate(times)]

    result = qdo(
        "report", "--sent", sent, "--received", write_json(tmp_path / "received.jsonl", received), "-o", "json"
    )

    assert result.exit_code == 0, result.output
    total = json.loads(result.stdout)[0]
    assert [total[name] for name in ("sent", "received", "delivery_max_ms")] == [4, 1, 0]
    assert total["first_sent"] == total["last_sent"] == "2026-11-21T14:58:16.000Z"
    assert "could not use 3 lines of --received" in result.stderr


@pytest.mark.parametrize("kind", ["boolean", "date", "struct<seconds: int>"])
def test_a_column_that_has_no_times_is_refused_by_name(spark: SparkSession, kind: str) -> None:
    sent = spark.createDataFrame([], "queue string, sequence int")
    received = spark.createDataFrame([], f"queue string, sequence int, received {kind}")

    with pytest.raises(ConfigurationError, match=f"the column received is {kind[:6]}.*: times are"):
        report(sent, received)


@pytest.mark.parametrize("form", ["json", "parquet"])
def test_a_queue_that_a_folder_names_is_no_number(spark: SparkSession, tmp_path: Path, form: str) -> None:
    """As the folders of an archive do."""
    line = spark.createDataFrame([("007", 1, T0)], "queue string, sequence int, received double")
    line.write.partitionBy("queue").format(form).save(str(tmp_path / "log"))
    inferred = "spark.sql.sources.partitionColumnTypeInference.enabled"

    found = read_log(spark, [str(tmp_path / "log")])

    assert [row.queue for row in found.collect()] == ["007"]
    assert spark.conf.get(inferred) == "true"


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("text", ["", "\n"])
def test_where_nothing_was_received_all_is_lost(tmp_path: Path, text: str) -> None:
    """Receivers that got nothing write nothing: it was a log that is not there."""
    sent, _ = planted(tmp_path)
    empty = tmp_path / "empty.jsonl"
    empty.write_text(text)

    result = qdo("report", "--sent", sent, "--received", empty, "-o", "json")
    refused = qdo("report", "--sent", empty, "--received", empty)

    assert result.exit_code == 0, result.output
    total = json.loads(result.stdout)[0]
    assert [total[name] for name in ("sent", "received", "missing", "loss")] == [100, 0, 100, 1]
    assert (refused.exit_code, "there is no line in it" in refused.stderr) == (2, True), refused.stderr


def test_what_the_project_writes_itself_is_a_log(spark: SparkSession, client: Client, tmp_path: Path) -> None:
    """Sent: what ``queuey put`` prints. Received: what a job writes down, with the checksum of the body it got."""
    client.create_queue("orders", partitions=3)
    bodies = [f"order {number}".encode() for number in range(40)]
    placed = client.append_batch("orders", [NewMessage(body) for body in bodies])
    put = [
        {
            "partition": one.partition,
            "message_id": one.id.hex,
            "timestamp": one.id.timestamp,
            "checksum": zlib.crc32(body),
        }
        for one, body in zip(placed, bodies, strict=True)
    ]
    got = [
        {
            "partition": one.partition,
            "message_id": one.id.hex,
            "checksum": zlib.crc32(one.body),
            "received": time.time(),
        }
        for one in client.iterate("orders")
    ]

    result = qdo(
        "report", "--queue", "orders", "--sent", write_json(tmp_path / "put.jsonl", put),
        "--received", write_json(tmp_path / "got.jsonl", got), "-o", "jsonl",
    )  # fmt: skip

    assert result.exit_code == 0, result.output
    total = json.loads(result.stdout.splitlines()[0])
    assert (total["sent"], total["received"], total["corrupt"], total["out_of_order"]) == (40, 40, 0, 0)
    assert 0 < total["delivery_p50_ms"] < 60_000


def test_bodies_stand_in_for_checksums_as_in_an_archive(spark: SparkSession) -> None:
    sent = [("a", 1, bytearray(b"one")), ("a", 2, bytearray(b"two"))]
    received = [("a", 1, str(zlib.crc32(b"one")), T0), ("a", 2, str(zlib.crc32(b"other")), T0)]

    found = report(
        spark.createDataFrame(sent, "queue string, sequence int, body binary"),
        spark.createDataFrame(received, "queue string, sequence int, checksum string, received double"),
    )

    assert found.total["corrupt"] == 1
    found.close()


@pytest.mark.drawn
def test_spark_submit_runs_the_same_job(tmp_path: Path) -> None:
    sent, received = planted(tmp_path)
    command = [
        Path(sys.executable).with_name("spark-submit"), "--master", "local[1]", "--driver-memory", "512m",
        "--conf", "spark.driver.bindAddress=127.0.0.1", "--conf", "spark.driver.host=127.0.0.1",
        "--conf", "spark.ui.enabled=false", submit.__file__,
        "report", "--sent", sent, "--received", received, "-o", "jsonl", "--worst", "1",
    ]  # fmt: skip
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(Path(submit.__file__).parents[3])}

    done = subprocess.run(
        list(map(str, command)), env=environment, capture_output=True, text=True, timeout=120, check=False
    )

    assert done.returncode == 0, done.stderr[-2000:]
    # It puts what a program says on stderr to stdout.
    total, worst = (json.loads(line) for line in done.stdout.splitlines() if line.startswith("{"))
    assert (total["missing"], worst["queue"]) == (1, "a<b>")
