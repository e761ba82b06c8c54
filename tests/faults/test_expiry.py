"""G8: a message does not vanish before its expiry, and is not given after it. TTL counts from the due time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from queuey.clock import SystemClock
from queuey.ids import TICKS_PER_SECOND
from queuey.model import MAX_TTL_SECONDS
from tests.support.expiry import Watch, fill, live_and_die, roads
from tests.support.figures import Figures
from tests.support.node import Node
from tests.support.servers import eventually
from tests.support.skewed import program
from tests.support.wall_clock import Offset


def test_messages_with_a_ttl_of_a_second_go_when_it_is_over(
    tmp_path: Path, rounds: Callable[[int], range], figures: Figures
) -> None:
    watches = []
    with Node(tmp_path) as node:
        client = node.client()
        client.create_queue("q", partitions=3)

        def lived() -> bool:
            expiries, places = fill(client, 1, 100)
            watches.append(Watch(SystemClock().now_ticks, expiries))
            return live_and_die(watches[-1], roads(client, places))

        for _ in rounds(2):
            eventually(lived, seconds=120)
        eventually(lambda: client.queue_info("q").depth == 0)

    early, late = sum(watch.early for watch in watches), max(tick for watch in watches for tick in watch.late_ticks)
    figures("G8", messages=sum(len(watch.due) for watch in watches), early=early, late_max_ms=late / 10_000)
    assert early == 0
    assert late <= TICKS_PER_SECOND


def test_the_longest_ttl_ends_when_it_should(tmp_path: Path, figures: Figures) -> None:
    """The wall clock is stepped to just before the expiries, and goes through them by itself."""
    offset = Offset(tmp_path / "offset")
    with Node(tmp_path, program=program(offset)) as node:
        client = node.client()
        client.create_queue("q", partitions=3)
        expiries, places = fill(client, MAX_TTL_SECONDS, 40)
        watch = Watch(lambda: SystemClock().now_ticks() + offset.ticks, expiries)
        assert live_and_die(watch, roads(client, places), lambda: offset.step(MAX_TTL_SECONDS - 1.5))

    figures("G8", ttl_days=MAX_TTL_SECONDS // 86400, early=watch.early, late_max_ms=max(watch.late_ticks) / 10_000)
    assert watch.early == 0
    assert max(watch.late_ticks) <= TICKS_PER_SECOND
