"""G14: through several servers, over nodes and networks that fail, a former owner moves no offset, and none is lost."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.figures import Figures
from tests.support.fleet import LOOKS, Fleet
from tests.support.mishaps import Mishaps
from tests.support.node import busy, wait_for_more
from tests.support.owners import GROUP, Company
from tests.support.services.cassandra import Cassandra

PARTITIONS = 3
SHORT = ("node_stopped", "network_silent")
LONG = (*SHORT, "network_slow", "network_cut", "server_stopped", "clock_stepped")


@pytest.mark.parametrize("kinds", [SHORT, pytest.param(LONG, marks=pytest.mark.long)], ids=["short", "long"])
def test_who_was_replaced_commits_nothing(
    tmp_path: Path,
    cassandra_cluster: Cassandra,
    rounds: Callable[[int], range],
    chance: random.Random,
    figures: Figures,
    kinds: tuple[str, ...],
) -> None:
    with Fleet(tmp_path, cassandra_cluster) as fleet:
        fleet.client(0).create_queue("q", partitions=PARTITIONS)
        company = Company.of([*fleet.clients(), *fleet.clients()], fleet.client(0), chance, PARTITIONS)
        mishaps = Mishaps(fleet, cassandra_cluster, chance)
        with busy(company.watcher.step, *(owner.step for owner in company.owners)):
            for _ in rounds(1):
                for kind in kinds:
                    wait_for_more(company.done, 30, seconds=60)
                    mishaps.happen(kind)
            wait_for_more(company.done, 30, seconds=60)
        verdict = company.judge(fleet.client(0, retries=LOOKS).offsets("q", GROUP))

    figures("G14", **mishaps.happened, **verdict._asdict())
    verdict.check()
