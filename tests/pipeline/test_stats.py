"""Statistics of queues: every figure against one worked out by hand, and the command on a real server."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from qdo.cli import main
from qdo.client import Client, NewMessage
from qdo.pipeline.jobs.pages import HtmlPage
from qdo.pipeline.jobs.stats import COLUMNS, READ, Stats, page, stats
from tests.support.pipeline import APPLICATION, KEY
from tests.support.servers import RunningServer

START = datetime(2026, 11, 21, 8, 50, tzinfo=UTC)
NOW = datetime(2026, 11, 21, 13, tzinfo=UTC)
HOUR = timedelta(hours=1)

Message = tuple[str, str, datetime, bytes, str | None]


def messages() -> list[Message]:
    """Two queues over four hours, one of which has nothing of ``orders``, and one message alone."""
    chance = random.Random(7)
    found: list[Message] = [("alone", "0" * 32, START, b"x", None)]
    for queue in ("orders", "mail"):
        for number in range(300):
            at = START + timedelta(microseconds=chance.randrange(3 * 3_600_000_000))
            if queue == "orders" and at.hour == 10:
                continue
            key = chance.choice(["a", "a", "a", "b", "b", "c", None])
            found.append((queue, f"{number:032x}", at, bytes(chance.randrange(1, 2000)), key))
    return found


@pytest.fixture(scope="module")
def found(spark: SparkSession) -> Iterator[Stats]:
    rows = [(queue, name, at, bytearray(body), key) for queue, name, at, body, key in messages()]
    frame = spark.createDataFrame(
        rows, "queue string, message_id string, timestamp timestamp, body binary, key string"
    ).select(*READ)
    report = stats(frame, now=NOW, top_keys=2)
    yield report
    report.close()


def expected(chosen: list[Message], before: datetime | None, seconds: float | None) -> dict[str, Any]:
    """:param before: time of the message before these."""
    times = sorted(at for _, _, at, _, _ in chosen)
    gaps = [(later - earlier).total_seconds() for earlier, later in pairwise([*([before] if before else []), *times])]
    size, name = max((len(body), name) for _, name, _, body, _ in chosen)
    total = sum(len(body) for _, _, _, body, _ in chosen)
    keys = Counter(key for *_, key in chosen if key)
    top = sorted(keys.items(), key=lambda pair: (-pair[1], pair[0]))[:2]
    return {
        "messages": len(chosen),
        "bytes": total,
        "messages_per_second": seconds and pytest.approx(len(chosen) / seconds),
        "bytes_per_second": seconds and pytest.approx(total / seconds),
        "longest_gap_seconds": pytest.approx(max(gaps)) if gaps else None,
        "largest_bytes": size,
        "largest_message_id": name,
        "age_max_seconds": pytest.approx((NOW - times[0]).total_seconds()),
        "first": times[0],
        "last": times[-1],
        "top_keys": [{"key": key, "messages": count} for key, count in top] or None,
    }


def told(row: Any) -> dict[str, Any]:
    values: dict[str, Any] = row.asDict(recursive=True)
    return values | {name: values[name].astimezone(UTC) for name in ("first", "last")}


def ages(chosen: list[Message]) -> list[float]:
    """The value that half, nine in ten and 99 of 100 do not exceed, ascending."""
    ordered = sorted((NOW - at).total_seconds() for _, _, at, _, _ in chosen)
    return [ordered[-(-len(ordered) * percent // 100) - 1] for percent in (50, 90, 99)]


def test_every_hour_of_a_queue_is_told(found: Stats) -> None:
    rows = [told(row) for row in found.hours.collect()]
    given = messages()
    hours = sorted({(queue, at.replace(minute=0, second=0, microsecond=0)) for queue, _, at, _, _ in given})

    assert [(row["queue"], row["hour"].astimezone(UTC)) for row in rows] == hours
    assert found.hours.columns == list(COLUMNS)
    for row, (queue, hour) in zip(rows, hours, strict=True):
        chosen = [one for one in given if one[0] == queue and hour <= one[2] < hour + HOUR]
        before = max((one[2] for one in given if one[0] == queue and one[2] < hour), default=None)
        wanted = expected(chosen, before, 3600)
        assert {name: row[name] for name in wanted} == wanted
        assert [row[f"age_{name}_seconds"] for name in ("p50", "p90", "p99")] == pytest.approx(ages(chosen))


def test_every_queue_is_told_as_a_whole(found: Stats) -> None:
    rows = {row["queue"]: told(row) for row in found.queues.collect()}

    assert list(rows) == ["mail", "orders", "alone"]
    for queue, row in rows.items():
        chosen = [one for one in messages() if one[0] == queue]
        times = [one[2] for one in chosen]
        wanted = expected(chosen, None, (max(times) - min(times)).total_seconds() or None)
        assert {name: row[name] for name in wanted} == wanted
    assert rows["orders"]["longest_gap_seconds"] > 3600
    assert rows["alone"]["messages_per_second"] is rows["alone"]["longest_gap_seconds"] is None


def test_the_page_has_its_plots(found: Stats) -> None:
    html = page(found).html(NOW)

    assert html.count("<img") == 3
    assert "a (1" in html


def test_every_line_of_a_plot_has_its_name_beside_it(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """And a plot of one hour shows that hour, and one on each side."""
    figures: list[Any] = []
    monkeypatch.setattr(HtmlPage, "figure", lambda _self, figure, _caption: figures.append(figure))
    rows = [(queue, "0" * 32, START, bytearray(b"x"), None) for queue in ("_hidden", "orders")]
    frame = spark.createDataFrame(rows, "queue string, message_id string, timestamp timestamp, body binary, key string")
    report = stats(frame, now=NOW)

    page(report)
    report.close()

    axes = figures[0].axes[0]
    assert [text.get_text().strip() for text in axes.get_legend().get_texts()] == ["_hidden", "orders"]
    ends = [axes.convert_xunits(START.replace(minute=0) + gap) for gap in (-HOUR, HOUR)]
    assert [*axes.get_xlim()] == ends


def test_nothing_is_no_error(spark: SparkSession) -> None:
    nothing = stats(
        spark.createDataFrame([], "queue string, message_id string, timestamp timestamp, body binary"), now=NOW
    )

    assert nothing.hours.count() == nothing.queues.count() == 0
    assert "<img" not in page(nothing).html(NOW)
    nothing.close()


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["stats", "-q", "no-such-*"], "has no queue that fits no-such-*: is a name"),
        (["stats", "-q", "empty"], "there are no messages to count"),
        (["dead-letters", "-q", "empty"], "there are no dead letters"),
    ],
)
def test_of_nothing_the_commands_say_so(running: RunningServer, client: Client, words: list[str], said: str) -> None:
    client.create_queue("empty")
    environment = {"QUEUEY_URL": running.url, "QUEUEY_APPLICATION": APPLICATION, "QUEUEY_KEY": KEY}

    result = CliRunner().invoke(main, ["pipeline", *words, "-o", "jsonl"], env=environment)

    assert (result.exit_code, result.stdout) == (0, "")
    assert said in result.stderr


@pytest.mark.usefixtures("spark")
def test_the_command_reads_the_queues_that_are_named(running: RunningServer, client: Client, tmp_path: Path) -> None:
    for queue in ("web-1", "web-2", "batch"):
        client.create_queue(queue, partitions=2)
        client.append_batch(queue, [NewMessage(b"x" * size, key=f"key-{size % 2}") for size in range(1, 31)])
    environment = {"QUEUEY_URL": running.url, "QUEUEY_APPLICATION": APPLICATION, "QUEUEY_KEY": KEY}
    out, html = tmp_path / "out", tmp_path / "stats.html"
    words = ["pipeline", "stats", "-q", "web-*", "--since", "1h", "--out", str(out), "--html", str(html), "-o", "jsonl"]

    result = CliRunner().invoke(main, words, env=environment)

    assert result.exit_code == 0, result.output
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(row["queue"], row["messages"], row["bytes"], row["largest_bytes"]) for row in rows] == [
        ("web-1", 30, 465, 30),
        ("web-2", 30, 465, 30),
    ]
    assert rows[0]["top_keys"] == [{"key": "key-0", "messages": 15}, {"key": "key-1", "messages": 15}]
    assert {path.name for path in out.iterdir()} == {"queues", "hours"}
    assert "web-1" in html.read_text()


def test_hours_are_those_of_utc_in_a_session_of_any_zone(spark: SparkSession) -> None:
    rows = [("orders", "0" * 32, START, bytearray(b"x"), None)]
    frame = spark.createDataFrame(rows, "queue string, message_id string, timestamp timestamp, body binary, key string")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Kolkata")  # half an hour off
    try:
        report = stats(frame.select(*READ), now=NOW)
        (row,) = report.hours.selectExpr("unix_seconds(hour) as hour").collect()
        report.close()
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")

    assert row.hour == START.replace(minute=0).timestamp()
