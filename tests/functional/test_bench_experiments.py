"""Each experiment of the load harness in small, on a real server: all is sent, then all is received and judged.

Time is counted and not waited for, so experiments that are about leases that run out are left to queues in memory
(``tests/unit/qdo/bench/test_workload.py``) and to the long form (``test_bench.py``).
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from qdo.bench.workload import Workload, built_in, changed, find, load, scaled, variants
from tests.support import servers
from tests.support.bench_by_clock import run_by_clock
from tests.support.servers import FIRST_KEY, RunningServer

MESSAGES = 60
HOUR = 3600


def is_about_time(name: str) -> bool:
    """Whether messages are to come later, or again: those that are scheduled, kept, or given back."""
    own = load(find(name)).queuey
    receiving = own.receiving
    return bool(own.delay or receiving.crash or receiving.holders or receiving.poison)


def small(name: str) -> Workload:
    """The first variant, for some dozens of messages at its own rate, in eight queues at most."""
    _, workload = variants(load(find(name)))[0]
    own = workload.queuey
    rate = max(workload.producer_rate, *(phase.rate for phase in own.phases), 1)
    fewer = replace(
        workload, topics=min(workload.topics, 8), consumer_per_subscription=min(workload.consumer_per_subscription, 4)
    )
    # The server's clock goes on: no lease of its own runs out, however slow this machine is.
    fewer = replace(fewer, queuey=replace(own, receiving=replace(own.receiving, visibility=HOUR)))
    if workload.is_closed:
        return changed(fewer, messages=MESSAGES // fewer.producers or 1, warmup=0)
    return scaled(fewer, MESSAGES / rate)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with servers.shipped(tmp_path_factory.mktemp("experiments")) as running:
        yield running


@pytest.mark.parametrize("name", [name for name in built_in() if not is_about_time(name)])
def test_each_experiment_in_small_loses_and_repeats_nothing(server: RunningServer, name: str) -> None:
    workload = small(name)

    found = run_by_clock(workload, "queuey", {"url": server.url, "application": "demo", "key": FIRST_KEY}).findings

    assert found.distinct == found.stored * workload.views > 0
    assert found.over(replace(workload.queuey.expect, late=None, early=None)) == {}
