"""G3: through several servers no reader passes an acknowledged message, whatever stops a server, a node or the network.

Writers append through every server; readers go from server to server. Where nothing measures an append and nothing ends
it, the same stops must lead to skips, or the run proves nothing.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.figures import Figures
from tests.support.fleet import Fleet
from tests.support.mishaps import ALL, Mishaps
from tests.support.node import wait_for_more
from tests.support.services.cassandra import Cassandra
from tests.support.traffic import Traffic

PARTITIONS = range(1, 3)
MOST_STOPS = 30
SOME = 2
"""Of the mishaps, drawn anew for each run."""


@pytest.mark.parametrize("mishaps_a_round", [SOME, pytest.param(len(ALL), marks=pytest.mark.long)])
def test_no_reader_skips_an_acknowledged_message(
    tmp_path: Path,
    cassandra_cluster: Cassandra,
    rounds: Callable[[int], range],
    chance: random.Random,
    figures: Figures,
    mishaps_a_round: int,
) -> None:
    with Fleet(tmp_path, cassandra_cluster) as fleet:
        traffic, mishaps = Traffic(fleet, PARTITIONS, chance), Mishaps(fleet, cassandra_cluster, chance)
        with traffic.flowing():
            for _ in rounds(1):
                for kind in chance.sample(ALL, mishaps_a_round):
                    mishaps.happen(kind)
                    wait_for_more(traffic.appends, 20, seconds=60)
        traffic.catch_up()
        gone, came_again = traffic.read_and_gone()
        restamped = fleet.counted("queuey_appends_restamped_total")

    figures(
        "G3",
        acked=sum(len(ids) for ids in traffic.acknowledged.values()),
        skipped=traffic.skips(),
        restamped=restamped,
        refused_clock=sum(writer.refused_clock for writer in traffic.writers),
        delay_p99_ms=traffic.delay_ms(),
        unknown=sum(writer.effects.unknown for writer in traffic.writers),
        read_and_gone=gone,
        of_which_came_again=came_again,
        **mishaps.happened,
    )
    assert all(writer.effects.ok for writer in traffic.writers)
    assert all(follower.seen for follower in traffic.followers)
    assert traffic.skips() == 0


def test_appends_that_nothing_measures_are_skipped(
    tmp_path: Path, cassandra_cluster: Cassandra, chance: random.Random, figures: Figures
) -> None:
    """The planted fault, under the settings as shipped: the read delay alone is no protection."""
    with Fleet(tmp_path, cassandra_cluster, fault="unmeasured") as fleet:
        traffic, mishaps = Traffic(fleet, PARTITIONS, chance), Mishaps(fleet, cassandra_cluster, chance)
        while not traffic.skips() and mishaps.happened.total() < MOST_STOPS:
            with traffic.flowing():
                wait_for_more(traffic.appends, 20, seconds=60)
                mishaps.happen("server_stopped_as_it_sends")
                wait_for_more(traffic.appends, 20, seconds=60)

    figures(
        "G3",
        control="unmeasured",
        acked=sum(len(ids) for ids in traffic.acknowledged.values()),
        skipped=traffic.skips(),
        **mishaps.happened,
    )
    assert traffic.skips() > 0
