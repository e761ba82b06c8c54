"""Results as JSON, as tables and as a page; and two of them compared."""

from __future__ import annotations

import json
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from qdo.bench.comparing import compared, doubts
from qdo.bench.document import Document, Subject, document_of, read, save_log
from qdo.bench.json_files import write_json
from qdo.bench.measuring import Meter, PhaseTimes, Times
from qdo.bench.page import page
from qdo.bench.planting import Plant
from qdo.bench.records import CORRUPT, FOREIGN, ReceivedRow
from qdo.bench.tables import overview, report
from qdo.bench.verdict import Repeat
from qdo.bench.workload import changed
from queuey.errors import ConfigurationError
from tests.support.bench_by_clock import run_by_clock, workload_of

WORKLOAD = workload_of(phases=[{"seconds": 1, "rate": 1000}, {"seconds": 1, "rate": 2000}], about="A <test>.")
ABOUT = {"environment": {"python": "3"}, "versions": {"server": "<1>"}}


def document(*repeats: Repeat, driver: str = "memory", plant: Plant | None = None) -> Document:
    return document_of(Subject(WORKLOAD, driver), repeats, ABOUT, plant)


@pytest.fixture(scope="module")
def good() -> Repeat:
    return run_by_clock(WORKLOAD)


@pytest.fixture(scope="module")
def faulty() -> Repeat:
    return run_by_clock(WORKLOAD, "faulty", {"lose": "0.01"})


class Elements(HTMLParser):
    """What a page is made of; it may fetch nothing."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.fetched: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.fetched += [value or "" for name, value in attrs if name in ("src", "href")]


def test_a_document_has_the_names_of_the_openmessaging_benchmark(good: Repeat) -> None:
    (run,) = document(good)["runs"]

    assert run["publishRate"] == [1000, 2000]
    assert sum(run["consumeRate"]) == 3000
    assert 0 < run["aggregatedPublishLatency50pct"] <= run["aggregatedPublishLatencyMax"]
    assert run["backlog"][-1] == 0
    assert run["publishLatencyMax"] == [pytest.approx(run["aggregatedPublishLatencyMax"], rel=0.5)] * 2
    suffixes = ("Avg", "50pct", "75pct", "95pct", "99pct", "999pct", "9999pct", "99999pct", "Max")
    of_periods = {f"{name}{suffix}" for name in ("publishLatency", "publishDelayLatency") for suffix in suffixes}
    received = {f"endToEndLatency{suffix}" for suffix in suffixes}
    assert {name for name in of_periods if len(run[name]) != 2} == set()
    assert {name for name in received if len(run[name]) != len(run["consumeRate"])} == set()
    whole = {f"aggregated{name[0].upper()}{name[1:]}" for name in of_periods | received}
    quantiles = {f"aggregated{name}LatencyQuantiles" for name in ("Publish", "PublishDelay", "EndToEnd")}
    known = {"messageSize", "topics", "partitions", "producersPerTopic", "consumersPerTopic", "publishErrorRate"}
    assert (whole | quantiles | known) - run.keys() == set()
    assert [*run["aggregatedPublishLatencyQuantiles"]][-1] == "100"


def test_a_long_run_has_points_of_several_seconds() -> None:
    assert [Times([PhaseTimes(seconds, 1)]).period for seconds in (0.5, 400, 401, 3600)] == [1, 1, 2, 9]


def test_a_document_comes_back_from_its_file(tmp_path: Path, good: Repeat) -> None:
    path = tmp_path / "found.json"

    write_json(document(good), path)

    assert read(path)["runs"][0]["queuey"]["found"]["lost"] == 0
    assert read(path)["workload"]["queuey"]["phases"][1] == {"seconds": 1.0, "rate": 2000.0}
    assert [one.name for one in tmp_path.iterdir()] == ["found.json"]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 9, "runs": [1]}', '{"format": 1, "runs": []}'])
def test_a_file_without_results_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "found.json"
    path.write_text(text)

    with pytest.raises(ConfigurationError, match=r"found\.json"):
        read(path)


def test_a_receive_does_not_count_the_wait_for_a_message(good: Repeat) -> None:
    """Whichever came last: the question, or the message."""
    first = ReceivedRow(
        0, 0, 0, 0, 0, 0, due=0, sent=0, not_before=0, asked=0, arrived=0, held_until=0, settled=0, settling=0
    )
    meter = Meter(workload_of(seconds=1), 0)
    for asked, sent, arrived in ((100, 700, 705), (300, 100, 305), (500, 500, 505)):
        meter.take_received(first._replace(asked=asked, due=sent, sent=sent, arrived=arrived))

    assert (meter.times.receive.count, meter.times.receive.most) == (3, 5)
    assert document(good)["runs"][0]["queuey"]["receive_ms"]["p99"] >= 0


@pytest.mark.parametrize("flag", [CORRUPT, FOREIGN])
def test_a_receipt_of_nothing_that_was_sent_is_in_no_time(flag: int) -> None:
    meter = Meter(workload_of(seconds=1), 0)

    meter.take_received(ReceivedRow(0, 0, 0, 0, 0, flag, *[5] * 8))

    assert (meter.times.received, meter.times.end_to_end.count, meter.times.receive.count) == (0, 0, 0)


def test_a_report_says_the_memory_of_a_system_that_was_started(good: Repeat) -> None:
    assert "memory of the system" not in report(document(good))
    (line,) = [one for one in report(document(replace(good, memory_mib=41.5))).splitlines() if "most memory" in one]
    assert line.split() == ["most", "memory", "of", "the", "system,", "MiB", "41.5"]


def test_a_system_that_died_has_no_memory_and_takes_no_report_with_it(good: Repeat) -> None:
    of_runs = report(document(replace(good, memory_mib=41.5), replace(good, memory_mib=None)))

    (line,) = [one for one in of_runs.splitlines() if "most memory" in one]
    assert line.split()[-2:] == ["41.5", "-"]


def test_quiet_keys_of_which_nothing_came_take_no_report_with_them() -> None:
    workload = workload_of(producerRate=500, seconds=1, keys={"count": 4, "noisy": 0.5})
    run = run_by_clock(workload)
    nothing = replace(run, times=Times(run.times.phases))

    said = report(document_of(Subject(workload, "memory"), [run, nothing], ABOUT, None))

    (line,) = [one for one in said.splitlines() if "quiet keys, end to end p50" in one]
    assert line.split()[-1] == "-"


def test_what_was_not_measured_is_no_time_of_0() -> None:
    workload = workload_of(seconds=1)
    nothing = replace(run_by_clock(workload), times=Times([PhaseTimes(1, 0)]))

    made = document_of(Subject(workload, "memory"), [nothing], ABOUT, None)

    assert made["runs"][0]["queuey"]["response_ms"] == {}
    (line,) = [one for one in report(made).splitlines() if one.startswith("run 1")]
    assert {*line.split()[4:]} == {"-"}


def test_a_report_says_the_loop_the_counts_and_the_verdict(good: Repeat, faulty: Repeat) -> None:
    clean, found = report(document(good, good)), report(document(good, faulty))

    assert "open loop, constant arrivals" in clean
    assert "Verdict: trusted and clean." in clean
    assert f"FOUND run 2: lost {faulty.findings.counts['lost']}, allowed 0" in found
    assert "this run has no speed" in found


def test_a_closed_loop_carries_the_word_in_every_table() -> None:
    workload = workload_of(seconds=1, messages=1500)
    closed = document_of(Subject(workload, "memory"), [run_by_clock(workload)], ABOUT, None)

    assert "closed loop" in report(closed).splitlines()[0]
    assert "closed loop" in overview([closed, closed])
    assert page([closed]).count("closed loop") >= 4


def test_a_percentile_needs_ten_values_above_it() -> None:
    few = document(run_by_clock(workload_of(producerRate=500, seconds=1)))["runs"][0]["queuey"]

    assert set(few["response_ms"]) == {"mean", "p50", "p75", "p95", "max"}


@pytest.mark.parametrize(("count", "rank"), [(1000, "p99"), (10_000, "p99.9"), (100_000, "p99.99")])
def test_ten_values_above_a_percentile_are_enough(count: int, rank: str) -> None:
    for values, is_given in ((count, True), (count - 1, False)):
        times = Times([PhaseTimes(1, 0)])
        for value in range(values):
            times.response.record(value)
        repeat = replace(run_by_clock(workload_of(seconds=1, messages=10)), times=times)
        assert (rank in document(repeat)["runs"][0]["queuey"]["response_ms"]) is is_given


def test_a_page_stands_alone_and_escapes_what_it_shows(good: Repeat, faulty: Repeat) -> None:
    text = page([document(good, faulty), document(good, good, driver="<other>")])

    elements = Elements(text)
    assert elements.fetched == []
    assert elements.names.count("svg") == 10
    assert "&lt;other&gt;" in text
    assert "A &lt;test&gt;." in text
    assert "<other>" not in text


def test_results_keep_the_secrets_of_options_to_themselves(good: Repeat) -> None:
    options = {"sqs.secret_key": "s3cret-1", "key": "s3cret-2", "url": "redis://joe:s3cret-3@127.0.0.1:6379/0"}

    made = document_of(Subject(changed(WORKLOAD, options=options), "memory"), [good], ABOUT, None)

    assert "s3cret" not in json.dumps(made) + page([made])
    assert made["workload"]["queuey"]["options"]["url"] == "redis://(not shown)@127.0.0.1:6379/0"


def test_results_keep_the_secrets_of_what_varies_and_of_addresses_of_servers_to_themselves(good: Repeat) -> None:
    values = {"url": "redis://joe:s3cret-1@127.0.0.1:6379/0", "options": {"key": "s3cret-2", "url": "http://a"}}
    versions = {"queuey": "1", "url": "http://joe:s3cret-3@127.0.0.1:5000"}

    made = document_of(Subject(WORKLOAD, "memory", values), [good], {**ABOUT, "versions": versions}, None)

    assert "s3cret" not in json.dumps(made) + page([made, made]) + report(made)
    assert made["label"] == "memory url=redis://(not shown)@127.0.0.1:6379/0 options=key:(not shown),url:http://a"


def test_what_varies_has_plots_over_it_and_stands_in_the_overview(good: Repeat, faulty: Repeat) -> None:
    documents = [
        document_of(Subject(WORKLOAD, "memory", {"k": k, "mode": mode}), [repeat], ABOUT, None)
        for mode in ("pop", "read")
        for k, repeat in ((1, good), (2, faulty))
    ]

    text = page(documents)

    assert "disorder over k" in text
    assert "memory mode=read" in text
    assert "memory k=2 mode=pop" in overview(documents)


@pytest.mark.parametrize("others", [["auto", None], [None], ["auto"]])
def test_a_value_that_is_no_number_has_no_place_beside_those_that_are(good: Repeat, others: list[object]) -> None:
    documents = [
        document_of(Subject(WORKLOAD, "memory", {"k": k}), [good], ABOUT, None) for k in [*others[:1], 1, 2, *others]
    ]

    (duplication, *_) = [plot for plot in page(documents).split("<svg") if "duplication over k" in plot]

    assert duplication.count("<circle") == 2


def test_faults_are_marked_in_the_plot_of_throughput(good: Repeat) -> None:
    marked = replace(good, faults=((0.5, "the server is killed"),))

    assert "<title>the server is killed</title>" in page([document(marked)])


def test_a_log_has_five_histograms_a_run(tmp_path: Path, good: Repeat) -> None:
    path = tmp_path / "found.hlog"

    save_log([good, good], path)

    tags = [line.partition(",")[0] for line in path.read_text().splitlines() if line.startswith("Tag=")]
    names = ("response", "service", "end_to_end", "receive", "lag")
    assert tags == [f"Tag=run{at}-{name}" for at in (1, 2) for name in names]


def in_turn(first: Document, second: Document) -> None:
    """As if their runs had begun one after the other."""
    for at, (one, other) in enumerate(zip(first["runs"], second["runs"], strict=True)):
        one["queuey"]["began"], other["queuey"]["began"] = f"2026-01-01T00:0{at}:00Z", f"2026-01-01T00:0{at}:30Z"


def scaled(found: Document, factors: list[float]) -> Document:
    for run, factor in zip(found["runs"], factors, strict=True):
        run["queuey"]["publish_rate"] *= factor
    return found


def test_a_difference_is_shown_with_its_interval(good: Repeat) -> None:
    first = document(good, good, good)
    second = scaled(document(good, good, good), [1.2, 1.25, 1.22])
    in_turn(first, second)

    rate: Any = next(one for one in compared(first, second) if one.name == "sent a second")

    assert rate.low < 1.22 < rate.high
    assert rate.low > 1
    assert rate.said.startswith("more by 22")
    assert doubts(first, second) == []


def test_a_figure_that_is_0_in_a_run_is_not_compared_and_that_is_said(good: Repeat) -> None:
    first, second = document(good, good, good), scaled(document(good, good, good), [1, 0, 1])
    in_turn(first, second)

    assert "sent a second" not in [one.name for one in compared(first, second)]
    assert "received a second" in [one.name for one in compared(first, second)]
    assert doubts(first, second) == ["what is 0 in a run has no ratio: sent a second"]


def test_runs_that_say_nothing_are_doubted(good: Repeat, faulty: Repeat) -> None:
    first, second = document(good), document(faulty)
    second["workload"]["messageSize"] = 5
    second["environment"]["python"] = "4"

    said = " ".join(doubts(first, second))

    assert "the workloads differ: messageSize" in said
    assert "the machines or programs differ" in said
    assert "fewer than three runs" in said
    assert "the second is not both trusted and clean" in said


def test_runs_that_were_not_in_turn_are_doubted(good: Repeat) -> None:
    first, second = document(good, good, good), document(good, good, good)
    for at, run in enumerate((*first["runs"], *second["runs"])):
        run["queuey"]["began"] = f"2026-01-01T00:0{at}:00Z"

    assert doubts(first, second) == [
        "the runs were not made in turn: give both drivers to one 'queuey bench run' for that"
    ]


@pytest.mark.parametrize(
    "changes",
    [
        {"runs": []},
        {"runs": 1},
        {"runs": [1]},
        {"runs": [{}]},
        {"runs": [{"queuey": {}}]},
        {"format": 99},
        {"verdict": None},
    ],
)
def test_a_file_that_lacks_what_is_compared_is_refused(good: Repeat, tmp_path: Path, changes: dict[str, Any]) -> None:
    path = tmp_path / "a.json"
    changed = document(good) | changes
    write_json({name: value for name, value in changed.items() if value is not None}, path)

    with pytest.raises(ConfigurationError, match="no results of 'queuey bench run --json'"):
        read(path)
