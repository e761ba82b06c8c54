"""G8: on Cassandra a message does not vanish before its expiry, and is not given after it; no TTL is taken that cannot be kept."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from cassandra.cluster import Session

from qdo.client import NewMessage
from queuey.clock import SystemClock
from queuey.errors import InvalidParameter
from queuey.ids import TICKS_PER_SECOND, format_timestamp
from queuey.model import MAX_TTL_SECONDS
from tests.support.expiry import Watch, fill, live_and_die, roads
from tests.support.figures import Figures
from tests.support.fleet import READ_DELAY, Fleet, wait_until_readable
from tests.support.node import APPLICATION
from tests.support.servers import eventually
from tests.support.services.cassandra import session
from tests.support.services.fixtures import Reached

TTL_SECONDS = 6
"""Short, but mostly long enough for all roads to be walked while a message is there and readable."""
TWENTY_YEARS_SECONDS = 630_720_000
"""Cassandra takes no longer TTL."""


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory, cassandra_node: Reached) -> Iterator[Fleet]:
    """One server; each test has a queue of its own."""
    with Fleet(tmp_path_factory.mktemp("fleet"), cassandra_node, servers=1, replication=1) as fleet:
        yield fleet


def test_messages_live_as_long_as_they_should(fleet: Fleet, figures: Figures) -> None:
    client = fleet.client(0)
    client.create_queue("q", partitions=3)
    watches = []

    def lived() -> bool:
        expiries, places = fill(client, TTL_SECONDS, 100)
        watches.append(Watch(SystemClock().now_ticks, expiries))
        return live_and_die(watches[-1], roads(client, places))

    eventually(lived, seconds=120)

    early, late = sum(watch.early for watch in watches), max(tick for watch in watches for tick in watch.late_ticks)
    figures("G8", messages=sum(len(watch.due) for watch in watches), early=early, late_max_ms=late / 10_000)
    assert early == 0
    assert late <= TICKS_PER_SECOND


def rows(node: Session, keyspace: str, name: str) -> list[tuple[int, int]]:
    """How long Cassandra will keep each message of a queue, and when the message expires."""
    node.set_keyspace(keyspace)
    (uuid,) = node.execute("select uuid from queues where application = %s and name = %s", (APPLICATION, name)).one()
    found = node.execute("select ttl(body), expires from messages where queue = %s allow filtering", (uuid,))
    return [(row[0], row[1]) for row in found]


def test_the_longest_ttl_is_within_what_cassandra_can_hold(
    fleet: Fleet, cassandra_node: Reached, figures: Figures
) -> None:
    """Due in a year, and living for another one: Cassandra must neither refuse it nor drop it early."""
    now = SystemClock().now_ticks()
    due = format_timestamp(now + 365 * 86400 * TICKS_PER_SECOND)
    client = fleet.client(0)
    client.create_queue("longest")
    last = client.append_batch("longest", [NewMessage("x", ttl_seconds=MAX_TTL_SECONDS)] * 20)[-1]
    client.append("longest", NewMessage("x", ttl_seconds=MAX_TTL_SECONDS, deliver_at=due))
    wait_until_readable(client, "longest", last.id)
    seen = len(list(client.iterate("longest")))
    with session(cassandra_node.address, cassandra_node.port) as node:
        kept = rows(node, fleet.keyspace, "longest")

    short = sum(now // TICKS_PER_SECOND + ttl < expires // TICKS_PER_SECOND for ttl, expires in kept)
    figures("G8", ttl_days=MAX_TTL_SECONDS // 86400, messages=len(kept), dropped_early=short)
    assert (seen, len(kept)) == (20, 21)
    assert short == 0


@pytest.mark.parametrize("ttl_seconds", [1, int(READ_DELAY), TWENTY_YEARS_SECONDS, TWENTY_YEARS_SECONDS + 1])
def test_a_ttl_that_cannot_be_kept_is_refused(fleet: Fleet, ttl_seconds: int) -> None:
    """Shorter than readers wait, or longer than Cassandra can count."""
    client = fleet.client(0)
    client.create_queue("refused")

    with pytest.raises(InvalidParameter) as refusal:
        client.append("refused", NewMessage("x", ttl_seconds=ttl_seconds))

    problems: dict[str, Any] = dict(refusal.value.problems)
    assert list(problems) == ["ttl"]
