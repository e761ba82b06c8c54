"""Results as JSON: what the report shows, and what two runs are compared by.

Each run has the names of the OpenMessaging benchmark's results, so that its tools read them; milliseconds are theirs as
well. What it has no name for stands in ``queuey``.
"""

from __future__ import annotations

import io
import math
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any

from qdo.bench.histogram import TimeHistogram, write_log
from qdo.bench.json_files import read_json
from qdo.bench.judge import KINDS
from qdo.bench.measuring import PhaseTimes, Times
from qdo.bench.planting import Plant
from qdo.bench.verdict import Repeat, checks, exit_code, unfound, violations
from qdo.bench.workload import Workload
from queuey.errors import ConfigurationError
from queuey.whole_files import write_whole

FORMAT = 1
RANKS = {
    "50pct": 50.0,
    "75pct": 75.0,
    "95pct": 95.0,
    "99pct": 99.0,
    "999pct": 99.9,
    "9999pct": 99.99,
    "99999pct": 99.999,
}
_SECRETS = {"key", "secret_key"}
"""Last names of options of drivers."""
_NOT_SHOWN = "(not shown)"
_USER_OF_ADDRESS = re.compile(r"(?<=://)[^/\s]+(?=@)")
_MOST_POINTS = 400
"""Of a curve, in a document."""
_COMPARED = {"workload", "environment", "verdict"}
_COMPARED_OF_RUN = {"began", "publish_rate", "consume_rate", "response_ms", "service_ms", "receive_ms", "end_to_end_ms"}
"""What a file must have to be compared."""

Document = dict[str, Any]


@dataclass(frozen=True)
class Subject:
    """What one document is about."""

    workload: Workload
    driver: str
    values: Mapping[str, Any] = field(default_factory=dict)
    """What the workload has of that which varies."""

    @property
    def shown_values(self) -> Mapping[str, Any]:
        """The values without their secrets."""
        return without_secrets(self.values)

    @property
    def label(self) -> str:
        """The driver, and the values."""
        return " ".join([self.driver, *(f"{name}={_shown(value)}" for name, value in self.shown_values.items())])


def _shown(value: Any) -> str:
    """A value in a label.

    >>> _shown(3), _shown({"requests": 0.1, "answers": 0.1})
    ('3', 'requests:0.1,answers:0.1')
    """
    if isinstance(value, Mapping):
        return ",".join(f"{name}:{_shown(one)}" for name, one in value.items())
    return str(value)


def _shown_workload(workload: Workload) -> Document:
    """All that the workload says but for secrets among the options of its drivers: results are passed on."""
    found = workload.as_document()
    found["queuey"]["options"] = without_secrets(found["queuey"]["options"])
    return found


def without_secrets(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values by their names, as results show them.

    >>> without_secrets({"options": {"nats.key": "abc", "stall": "1"}, "k": 3})
    {'options': {'nats.key': '(not shown)', 'stall': '1'}, 'k': 3}
    """
    return {name: _without_secret(name, value) for name, value in values.items()}


def _without_secret(name: str, value: Any) -> Any:
    if isinstance(value, Mapping):
        return without_secrets(value)
    return _shown_option(name, value) if isinstance(value, str) else value


def _shown_option(name: str, text: str) -> str:
    """An option without its secret.

    >>> _shown_option("sqs.secret_key", "abc"), _shown_option("url", "redis://joe:abc@127.0.0.1:6379/0")
    ('(not shown)', 'redis://(not shown)@127.0.0.1:6379/0')
    """
    is_secret = name.rpartition(".")[2] in _SECRETS
    return _NOT_SHOWN if is_secret else _USER_OF_ADDRESS.sub(_NOT_SHOWN, text)


def document_of(
    subject: Subject,
    repeats: Sequence[Repeat],
    about: Mapping[str, Mapping[str, str]],
    plant: Plant | None,
    planned: int = 0,
) -> Document:
    """The results of one subject.

    :param about: ``environment`` and ``versions``.
    :param planned: runs that were to be made; 0 is as many as were.
    """
    workload, driver = subject.workload, subject.driver
    limits = workload.queuey.expect
    return {
        "format": FORMAT,
        "workload": _shown_workload(workload),
        "driver": driver,
        "label": subject.label,
        "values": subject.shown_values,
        "loop": workload.loop,
        "plant": plant,
        "environment": dict(about["environment"]),
        "versions": without_secrets(about["versions"]),
        "verdict": {
            "exit": exit_code(repeats, limits, plant, planned),
            "checks": [{"name": one.name, "ok": one.ok, "said": one.said} for one in checks(repeats, planned)],
            "violations": violations(repeats, limits),
            "not_found": unfound(repeats, plant) if plant else [],
        },
        "runs": [_run(workload, driver, one) for one in repeats],
    }


def _run(workload: Workload, driver: str, repeat: Repeat) -> Document:
    times, findings = repeat.times, repeat.findings
    due = range(math.ceil(times.seconds / times.period))
    answers = (second // times.period for second in (*times.stored_by_second, *times.refused_by_second))
    sending = range(max([*due, *answers], default=-1) + 1)
    receiving = range(max([*sending, *times.by_period], default=-1) + 1)
    stored, received = (
        _sums(times.stored_by_second, receiving, times),
        _sums(times.received_by_second, receiving, times),
    )
    return {
        "workload": workload.name,
        "driver": driver,
        "messageSize": workload.message_size,
        "topics": workload.topics,
        "partitions": workload.partitions_per_topic,
        "producersPerTopic": workload.producers_per_topic,
        "consumersPerTopic": workload.consumer_per_subscription * workload.subscriptions_per_topic,
        "publishRate": [count / times.period for count in stored[: len(sending)]],
        "publishErrorRate": [count / times.period for count in _sums(times.refused_by_second, sending, times)],
        "consumeRate": [count / times.period for count in received],
        "backlog": [
            max(0, workload.views * sent - got)
            for sent, got in zip(accumulate(stored), accumulate(received), strict=True)
        ],
        **_latency_over_time("publishLatency", [times.by_period[at].service for at in due], 1e6),
        **_latency_over_time("publishDelayLatency", [times.by_period[at].delay for at in due], 1e3),
        **_latency_over_time("endToEndLatency", [times.by_period[at].end_to_end for at in receiving], 1e6),
        **_latency("aggregatedPublishLatency", times.service, 1e6),
        **_latency("aggregatedPublishDelayLatency", times.delay, 1e3),
        **_latency("aggregatedEndToEndLatency", times.end_to_end, 1e6),
        "queuey": {
            "began": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(repeat.began)),
            "period": times.period,
            "publish_rate": times.publish_rate,
            "consume_rate": times.consume_rate,
            "response_ms": _percentiles(times.response),
            "service_ms": _percentiles(times.service),
            "end_to_end_ms": _percentiles(times.end_to_end),
            "receive_ms": _percentiles(times.receive),
            "quiet_end_to_end_ms": _percentiles(times.quiet) if times.quiet.count else None,
            "lag_ms": _percentiles(times.lag),
            "receivers_lag_ms": repeat.receivers_lag_ms,
            "waited": times.waited,
            "requests": times.response.count,
            "phases": [_phase(one) for one in times.phases],
            "curves": {"response": _curve(times.response), "end_to_end": _curve(times.end_to_end)},
            "found": {kind: findings.counts[kind] for kind in KINDS},
            "examples": {kind: some for kind, some in findings.examples.items() if some},
            "sent": findings.sent,
            "stored": findings.stored,
            "unknown": findings.unknown,
            "refused": findings.refused,
            "unsent": repeat.unsent,
            "received": findings.received,
            "distinct": findings.distinct,
            "unanswered": findings.unanswered,
            "redelivered": findings.redelivered,
            "duplication": findings.duplication,
            "disorder": findings.disorder,
            "displacement": findings.displacement,
            "planted": repeat.planted,
            "busy_before": repeat.busy_before,
            "stolen": repeat.stolen,
            "processor_shares": list(repeat.processor_shares),
            "nice": repeat.nice,
            "refusals": dict(repeat.refusals),
            "memory_mib": repeat.memory_mib,
            "faults": [{"second": second, "what": what} for second, what in repeat.faults],
        },
    }


def _sums(by_second: Mapping[int, int], periods: Sequence[int], times: Times) -> list[int]:
    """Of these periods."""
    length = times.period
    return [sum(by_second.get(second, 0) for second in range(at * length, (at + 1) * length)) for at in periods]


def _latency(name: str, times: TimeHistogram, unit: float) -> Document:
    quantiles = {f"{share * 100:.6g}": milliseconds * 1e6 / unit for milliseconds, share in _curve(times)}
    return {**_latency_values(name, times, unit), f"{name}Quantiles": quantiles}


def _latency_over_time(name: str, periods: Sequence[TimeHistogram], unit: float) -> dict[str, list[float]]:
    values = [_latency_values(name, one, unit) for one in periods]
    return {key: [one[key] for one in values] for key in _latency_values(name, TimeHistogram(), unit)}


def _latency_values(name: str, times: TimeHistogram, unit: float) -> dict[str, float]:
    found = {f"{name}{suffix}": times.percentile(rank) / unit for suffix, rank in RANKS.items()}
    return {f"{name}Avg": times.mean / unit, **found, f"{name}Max": times.most / unit}


def _percentiles(times: TimeHistogram) -> dict[str, float]:
    """By rank, in milliseconds; a rank is given if ten values lie above it. Nothing without values."""
    if not times.count:
        return {}
    ranks = [rank for rank in RANKS.values() if round(times.count * (100 - rank) / 100, 6) >= 10 or rank == 50]
    found = {f"p{rank:g}": times.percentile(rank) / 1e6 for rank in ranks}
    return {"mean": times.mean / 1e6, **found, "max": times.most / 1e6}


def _phase(phase: PhaseTimes) -> Document:
    return {
        "seconds": phase.seconds,
        "target": phase.target,
        "requests": phase.requests,
        "rate": phase.rate,
        "response_ms": _percentiles(phase.response),
        "service_ms": _percentiles(phase.service),
        "end_to_end_ms": _percentiles(phase.end_to_end),
    }


def _curve(times: TimeHistogram) -> list[tuple[float, float]]:
    """Up to some 400 points, the last one always among them."""
    points = times.curve()
    step = -(-len(points) // _MOST_POINTS)
    return points[::-step][::-1] if points else []


def save_log(repeats: Sequence[Repeat], path: Path) -> None:
    """Write the histograms of all runs as an ``.hlog``."""
    rows = []
    for at, one in enumerate(repeats, 1):
        named: Mapping[str, TimeHistogram] = _histograms(one.times)
        rows += [(f"run{at}-{name}", one.began, one.times.seconds, times) for name, times in named.items()]
    out = io.StringIO()
    write_log(out, rows, "queuey bench; values are nanoseconds")
    write_whole(path, out.getvalue().encode("ascii"))


def _histograms(times: Times) -> Mapping[str, TimeHistogram]:
    return {
        "response": times.response,
        "service": times.service,
        "end_to_end": times.end_to_end,
        "receive": times.receive,
        "lag": times.lag,
    }


def read(path: Path) -> Document:
    """The results in a file.

    :raises ConfigurationError: it holds no results of this program, or of another version of their format.
    """
    found = read_json(path)
    runs = found.get("runs")
    parts = [run.get("queuey") if isinstance(run, dict) else None for run in runs] if isinstance(runs, list) else []
    is_whole = found.keys() >= _COMPARED and all(
        isinstance(one, dict) and one.keys() >= _COMPARED_OF_RUN for one in parts
    )
    if found.get("format") != FORMAT or not parts or not is_whole:
        raise ConfigurationError(f"{path}: no results of 'queuey bench run --json', or of another version")
    return found
