"""Whether a run is to be trusted, and what it found. A speed counts only if both are well."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from qdo.bench.judge import Findings
from qdo.bench.measuring import Times
from qdo.bench.planting import FIGURE_OF, Plant
from qdo.bench.workload import Limits

LAG_MS, LAG_SHARE = 1.0, 0.05
"""The generator may be late by this, or by this share of the response time: the larger one."""
PROCESSOR_SHARE = 0.85
"""Of a processor, that a process of the generator may use: Python runs on one of them."""
BUSY_SHARE = 0.15
"""Of all processors, before the load."""
STOLEN_SHARE = 0.02
REFUSED_SHARE = 0.01
"""Of the messages that were sent, while no fault was made."""
LEAST_SAMPLES = 1000
"""Ten values lie above the 99th percentile."""
SPREAD, RESPONSE_SPREAD, RESPONSE_MS = 0.15, 0.25, 0.25
"""Of the rates of repeats, and of their median response times: standard deviation over mean. Responses that differ by this
many milliseconds agree in any case."""
CLEAN, FOUND, BAD_INPUT, NOT_TRUSTED = 0, 1, 2, 3
"""Exit codes."""


class Check(NamedTuple):
    """One reason to trust a run, or not to."""

    name: str
    ok: bool
    said: str


@dataclass(frozen=True)
class Repeat:
    """All that is known of one run."""

    findings: Findings
    times: Times
    busy_before: float
    """Share of the processors that was in use before the load."""
    stolen: float
    """Share of the processors' time during the load that the host gave to others."""
    processor_shares: tuple[float, ...]
    """Of one processor, by the processes of the generator."""
    planted: int = 0
    unsent: int = 0
    """Requests that were due and never sent."""
    began: float = 0.0
    """Seconds since 1970."""
    refusals: tuple[tuple[str, int], ...] = ()
    faults: tuple[tuple[float, str], ...] = ()
    """Seconds after the warm-up, below 0 in it, and what was done then."""
    receivers_lag_ms: float = 0.0
    """The 99th percentile of the time that answers had to wait for an event loop that serves receivers, at most."""
    nice: int = 0
    """Of the processes of the generator, the largest: 0 is that of any process, and a lower one goes first."""
    memory_mib: float | None = None
    """The most memory that the system had, if the run has started it, and the machine says so."""


def checks(repeats: Sequence[Repeat], planned: int = 0) -> list[Check]:
    """Why the speeds of these runs are to be trusted, or are not.

    :param repeats: those that were made.
    :param planned: how many were to be made; 0 is as many as were.
    """
    found = [
        _lag(repeats),
        _sent(repeats),
        _taken(repeats),
        _processor(repeats),
        _quiet(repeats),
        _samples(repeats),
        _agreement(repeats),
    ]
    if len(repeats) < planned:
        said = f"the command ended after {len(repeats)} of {planned}: these are partial results"
        found.append(Check("all runs were made", ok=False, said=said))
    return found


def _lag(repeats: Sequence[Repeat]) -> Check:
    worst, allowed, whose = 0.0, LAG_MS, "its"
    for one in repeats:
        times = one.times
        senders, receivers = times.lag.percentile(99) / 1e6, one.receivers_lag_ms
        for lag, took, what in ((senders, times.response, "its"), (receivers, times.receive, "its event loop's")):
            limit = max(LAG_MS, LAG_SHARE * took.percentile(99) / 1e6)
            if lag / limit > worst / allowed:
                worst, allowed, whose = lag, limit, what
    said, ok = f"p99 of {whose} lag {worst:.3f} ms, allowed {allowed:.3f} ms", worst <= allowed
    if not ok and any(one.nice >= 0 for one in repeats):
        said += "; root's generator goes before other processes, and this one did not"
    return Check("the generator is on time", ok, said)


def _sent(repeats: Sequence[Repeat]) -> Check:
    most = max(one.unsent for one in repeats)
    said = f"{most:,} requests had not been sent when load and drain were over" if most else "nothing was left unsent"
    return Check("all that was due was sent", not most, said)


def _taken(repeats: Sequence[Repeat]) -> Check:
    """A refused request is in no time: where many are refused and no fault was made, the times are of a smaller load."""
    shares = [one.findings.refused / one.findings.sent for one in repeats if one.findings.sent and not one.faults]
    most = max(shares, default=0.0)
    said = f"{most:.1%} of the messages were refused, allowed {REFUSED_SHARE:.0%}"
    return Check("the system took the load", most <= REFUSED_SHARE, said)


def _processor(repeats: Sequence[Repeat]) -> Check:
    most = max((share for one in repeats for share in one.processor_shares), default=0.0)
    said = f"its busiest process used {most:.0%} of a processor, allowed {PROCESSOR_SHARE:.0%}"
    return Check("the generator is not the limit", most <= PROCESSOR_SHARE, said)


def _quiet(repeats: Sequence[Repeat]) -> Check:
    busy, stolen = max(one.busy_before for one in repeats), max(one.stolen for one in repeats)
    said = (
        f"{busy:.0%} of the processors busy before the load, allowed {BUSY_SHARE:.0%}; {stolen:.1%} stolen by the host"
    )
    return Check("the machine is quiet", busy <= BUSY_SHARE and stolen <= STOLEN_SHARE, said)


def _samples(repeats: Sequence[Repeat]) -> Check:
    least = min(one.times.response.count for one in repeats)
    return Check("there are enough samples", least >= LEAST_SAMPLES, f"{least:,} requests, needed {LEAST_SAMPLES:,}")


def _agreement(repeats: Sequence[Repeat]) -> Check:
    name = "repeats agree"
    if len(repeats) < 2:
        return Check(name, ok=False, said="there is one run only: nothing says whether it repeats")
    rate, _ = _spread([one.times.publish_rate for one in repeats])
    said, ok = f"rates differ by {rate:.1%}, allowed {SPREAD:.0%}", rate <= SPREAD
    if not any(one.times.is_closed for one in repeats):
        # The rate of an open loop is the workload's: it agrees as long as the system keeps up.
        response, deviation = _spread([one.times.response.percentile(50) / 1e6 for one in repeats])
        said += f"; median responses by {response:.1%}, allowed {RESPONSE_SPREAD:.0%} or {RESPONSE_MS:g} ms"
        ok = ok and (response <= RESPONSE_SPREAD or deviation <= RESPONSE_MS)
    return Check(name, ok, said)


def _spread(values: Sequence[float]) -> tuple[float, float]:
    """Their standard deviation, over their mean and by itself."""
    mean, deviation = statistics.mean(values), statistics.stdev(values)
    return deviation / mean if mean else 1.0, deviation


def violations(repeats: Sequence[Repeat], limits: Limits) -> list[str]:
    """What was found over its limit, in words."""
    found = []
    for at, one in enumerate(repeats, 1):
        for kind, (count, limit) in one.findings.over(limits).items():
            examples = "; ".join(one.findings.examples.get(kind, [])[:2])
            named = f" ({examples})" if examples else ""
            found.append(f"run {at}: {kind} {count:,}, allowed {limit:,}{named}")
    return found


def unfound(repeats: Sequence[Repeat], plant: Plant) -> list[str]:
    """Faults that were planted and that the judge did not find."""
    kind = FIGURE_OF[plant]
    found = []
    for at, one in enumerate(repeats, 1):
        count = one.findings.counts[kind]
        if not one.planted or count < one.planted:
            found.append(f"run {at}: {one.planted:,} faults were planted, the judge found {count:,} as {kind}")
    return found


def exit_code_of_all(codes: set[int], plant: Plant | None) -> int:
    """Of a command, by the codes of its drivers and variants: what was found counts most, but a judge that misses what was
    planted for one of them is not to be believed.

    >>> exit_code_of_all({0, 1, 3}, None), exit_code_of_all({1, 3}, "lose"), exit_code_of_all({0}, None)
    (1, 3, 0)
    """
    order = (FOUND, NOT_TRUSTED) if plant is None else (NOT_TRUSTED, FOUND)
    return next((code for code in order if code in codes), CLEAN)


def exit_code(repeats: Sequence[Repeat], limits: Limits, plant: Plant | None, planned: int = 0) -> int:
    """0 trusted and clean, 1 something was found, 3 not to be trusted.

    What was found counts also where the speed is not to be trusted.

    :param planned: as in :func:`checks`.
    """
    if plant is not None and unfound(repeats, plant):
        return NOT_TRUSTED
    if plant is not None or violations(repeats, limits):
        return FOUND
    return CLEAN if all(check.ok for check in checks(repeats, planned)) else NOT_TRUSTED
