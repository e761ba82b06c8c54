"""Dead letters on Spark: grouped by their reason, with a command that finds them again."""

from __future__ import annotations

import base64
import json
import re
import shlex
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
import requests
from click.testing import CliRunner
from pyspark.sql import SparkSession

from qdo.cli import main
from qdo.client import Client, Message, NewMessage
from qdo.client.values import check_headers
from qdo.pipeline.jobs.dead_letters import COLUMNS, READ, DeadLetterReport, dead_letters, page
from qdo.worker.dead_letters import DeadLetter, write_letters
from qdo.worker.job import FailedMessages
from queuey.model.dead_letters import STORY_HEADER, Story
from tests.support.pipeline import APPLICATION, KEY
from tests.support.servers import RunningServer

T0 = datetime(2026, 11, 21, 10, 0)  # noqa: DTZ001 - Spark gives UTC without saying so


def letter(queue: str, reason: str, *, group: str = "mail", failures: int = 3, body: bytes = b"body") -> NewMessage:
    return DeadLetter(Story(queue, 1, f"{failures:032x}", group, failures, reason), body).to_message()


@pytest.fixture(scope="module")
def found(spark: SparkSession) -> Iterator[DeadLetterReport]:
    letters = [
        *(letter("orders", f"ValueError: no number {n}", failures=n, body=b"order %d" % n) for n in range(1, 6)),
        letter("orders", "TypedValueError: not <b>", body=b"\xff\xfe"),
        letter("orders", "KeyError"),
        letter("orders", "KeyError"),
        letter("orders", "ValueError: no number 1", group="stock"),
        letter("bills", "ValueError: late"),
        DeadLetter(Story("bills", 1, "a" * 32, "leases", 2, "not JSON", 3, size=9, sha256="0" * 64)).to_message(),
    ]
    strangers = [None, {"trace": b"t"}, {STORY_HEADER: b"hello"}, {STORY_HEADER: b'{"queue": "x"}'}]
    rows: list[tuple[Any, ...]] = [
        (
            f"{'bills' if b'bills' in new.headers[STORY_HEADER] else 'orders'}-dead",
            f"{n:032x}",
            T0 + timedelta(minutes=20 * n),
            bytearray(new.raw),
            {name: bytearray(value) for name, value in check_headers(new.headers).items()},
        )
        for n, new in enumerate(letters)
    ]
    rows += [
        (
            "orders-dead",
            f"{n:x}" * 32,
            T0,
            bytearray(b"hello"),
            headers and {k: bytearray(v) for k, v in headers.items()},
        )
        for n, headers in enumerate(strangers, 10)
    ]
    schema = "queue string, message_id string, timestamp timestamp, body binary, headers map<string,binary>"
    messages = spark.createDataFrame(rows, schema)
    report = dead_letters(messages.select(*READ), samples=2)
    yield report
    report.close()


def test_letters_are_grouped_by_queue_group_and_exception(found: DeadLetterReport) -> None:
    rows = [row.asDict() for row in found.groups.collect()]

    assert [(row["queue"], row["group"], row["error"], row["letters"]) for row in rows] == [
        ("orders", "mail", "ValueError", 5),
        ("orders", "mail", "KeyError", 2),
        ("bills", "leases", "not JSON", 1),
        ("bills", "mail", "ValueError", 1),
        ("orders", "mail", "TypedValueError", 1),
        ("orders", "stock", "ValueError", 1),
    ]
    first = rows[0]
    assert list(first) == list(COLUMNS)
    assert (first["fewest_failures"], first["most_failures"], first["reasons"]) == (1, 5, 5)
    assert (first["first_seen"], first["last_seen"]) == (T0, T0 + timedelta(minutes=80))
    assert sorted(sample["body"] for sample in first["samples"]) == ["order 4", "order 5"]
    assert [(sample["failures"], sample["deliveries"]) for sample in first["samples"]] == [(5, None), (4, None)]
    assert found.strangers == 4


def test_a_sample_has_a_body_if_it_is_text_and_the_letter_has_it(found: DeadLetterReport) -> None:
    rows = [row.asDict(recursive=True) for row in found.groups.collect()]
    samples = {(row["group"], row["error"]): row["samples"][0] for row in rows}

    assert samples["stock", "ValueError"]["body"] == "body"
    assert samples["mail", "TypedValueError"]["body"] is None
    alone = samples["leases", "not JSON"]
    assert (alone["body"], alone["failures"], alone["deliveries"]) == (None, 2, 3)


def test_a_command_says_how_many_letters_it_would_find(found: DeadLetterReport) -> None:
    rows = [row.asDict() for row in found.groups.collect()]
    commands = {(row["queue"], row["group"], row["error"]): (row["retry"], row["retried"]) for row in rows}

    # The class alone is in the name of another, so the command would take that as well, and says so.
    assert commands["orders", "mail", "ValueError"] == (
        "qdo dead retry orders --all --group mail --reason ValueError",
        6,
    )
    assert commands["bills", "mail", "ValueError"] == (
        "qdo dead retry bills --all --group mail --reason 'ValueError: late'",
        1,
    )
    assert commands["orders", "mail", "TypedValueError"][1] == 1
    assert shlex.split(commands["orders", "mail", "TypedValueError"][0])[-1] == "TypedValueError: not <b>"


def test_hours_tell_when_they_came(found: DeadLetterReport) -> None:
    hours = {(row["queue"], row["error"], row["hour"].hour): row["letters"] for row in found.hours.collect()}

    assert hours["orders", "ValueError", 10] == 3
    assert hours["orders", "ValueError", 11] == 2
    assert sum(hours.values()) == 11


def test_the_page_shows_reasons_as_text(found: DeadLetterReport) -> None:
    html = page(found).html(T0)

    assert "not &lt;b&gt;" in html
    assert "<b>" not in html
    assert html.count("<img") == 1
    assert "4 messages in these queues are no dead letters." in html


def test_a_plot_is_an_image_whatever_a_reason_has_in_it(spark: SparkSession) -> None:
    """Warnings, such as the one of a font that lacks a letter, are errors here."""
    reasons = ["\x1b[31mred: \x07", "\x01", "_Own: no", "日本語: だめ", "a $x$ $", ""]
    rows = [
        (
            "orders-dead",
            f"{n:032x}",
            T0,
            bytearray(new.raw),
            {k: bytearray(v) for k, v in check_headers(new.headers).items()},
        )
        for n, new in enumerate(letter("orders", reason) for reason in reasons)
    ]
    schema = "queue string, message_id string, timestamp timestamp, body binary, headers map<string,binary>"
    report = dead_letters(spark.createDataFrame(rows, schema))

    html = page(report).html(T0)
    report.close()

    (image,) = re.findall(r'src="data:image/svg\+xml;base64,([^"]+)"', html)
    drawn = ET.fromstring(base64.b64decode(image))  # noqa: S314 - matplotlib's
    texts = [each.text for each in drawn.iter() if each.text]
    assert {"\ufffd[31mred", "\ufffd", "日本語"} <= {text.strip() for text in texts}


def reject(running: RunningServer, queue: str, reason: str) -> None:
    """Reject the first message of a queue in a lease group of the server."""
    url, headers = f"{running.url}/v1/{APPLICATION}/{queue}/leases/hands", {"Authorization": f"Application {KEY}"}
    answer = requests.post(url, json={"receive": {}}, headers=headers, timeout=60)
    (message,) = answer.json()["messages"]
    settled = {"reject": [{"receipt": message["receipt"], "reason": reason}]}
    assert requests.post(url, json=settled, headers=headers, timeout=60).json()["settled"]["rejected"] == 1


def fail(client: Client, queue: str, message: Message, error: Exception) -> None:
    """As a worker does it after the last attempt."""
    write_letters(client, FailedMessages(queue, [message], 3, error), queue=f"{queue}-dead", group="mail")


@pytest.mark.usefixtures("spark")
@pytest.mark.drawn
def test_the_command_reads_what_workers_gave_up_and_its_command_brings_it_back(
    running: RunningServer, client: Client, tmp_path: Path
) -> None:
    client.create_queue("parcels")
    client.append_batch("parcels", [NewMessage(f"parcel {n}") for n in range(6)])
    for at, message in enumerate(client.iterate("parcels")):
        fail(client, "parcels", message, ValueError("too heavy") if at % 2 else LookupError(f"no street {at}"))
    reject(running, "parcels", "ValueError: of the server")
    environment = {"QUEUEY_URL": running.url, "QUEUEY_APPLICATION": APPLICATION, "QUEUEY_KEY": KEY}

    def run(*words: object) -> Any:
        return CliRunner().invoke(main, list(map(str, words)), env=environment)

    out, html = tmp_path / "out", tmp_path / "dead.html"
    result = run("pipeline", "dead-letters", "-q", "parcels", "--out", out, "--html", html, "-o", "jsonl")

    assert result.exit_code == 0, result.output
    groups = {(row["group"], row["error"]): row for row in map(json.loads, result.stdout.splitlines())}
    assert {name: row["letters"] for name, row in groups.items()} == {
        ("mail", "ValueError"): 3,
        ("mail", "LookupError"): 3,
        ("hands", "ValueError"): 1,
    }
    assert groups["mail", "LookupError"]["retried"] == 3
    assert "too heavy" in html.read_text()
    assert {path.name for path in out.iterdir()} == {"groups", "hours"}

    for name, number in ((("mail", "LookupError"), 3), (("hands", "ValueError"), 1)):
        again = run(*shlex.split(groups[name]["retry"])[1:], "--yes")

        assert f"{number} appended again" in again.stderr, again.output
    assert len(list(client.iterate("parcels"))) == 10
    assert len(list(client.iterate("parcels-dead"))) == 3
