"""G8: a message does not vanish before its expiry, and is not given after it. TTL counts from the due time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from qdo.client import Client, Message, NewMessage
from queuey.clock import SystemClock
from queuey.ids import TICKS_PER_SECOND, MessageId
from queuey.model import MAX_TTL_SECONDS
from tests.conftest import Figures
from tests.support.node import Node
from tests.support.servers import eventually
from tests.support.skewed import program
from tests.support.wall_clock import Offset

Road = Callable[[], Iterable[Message]]


@dataclass
class Watch:
    """Compares answers with what was to be expected at the time; a read counts for what was so all the while."""

    now_ticks: Callable[[], int]
    due: Mapping[MessageId, int]
    """Expiry in ticks, by id; the id says from when on a message is due."""
    early: int = 0
    late_ticks: list[int] = field(default_factory=list)
    seen: set[MessageId] = field(default_factory=set)

    def look(self, road: Road) -> set[MessageId]:
        began = self.now_ticks()
        found = {message.id for message in road()}
        ended = self.now_ticks()
        for message_id, expires in self.due.items():
            if message_id in found:
                self.late_ticks.append(max(began - expires, 0))
            elif message_id in self.seen and ended < expires:
                self.early += 1
        self.seen |= found
        return found


def roads(client: Client, places: list[str]) -> list[Road]:
    """Every way to read."""
    return [
        lambda: client.iterate("q"),
        lambda: client.iterate("q", newest_first=True, limit=50),
        lambda: client.get("q", places),
        lambda: client.stream_ndjson("q"),
    ]


def fill(client: Client, ttl_seconds: int, count: int) -> tuple[dict[MessageId, int], list[str]]:
    """Messages with this TTL, half of them due a little later; their expiries and their places."""
    new = [NewMessage("x", ttl_seconds=ttl_seconds, delay_seconds=0.3 * (number % 2)) for number in range(count)]
    placed = client.append_batch("q", new)
    expiries = {where.id: where.id.ticks + ttl_seconds * TICKS_PER_SECOND for where in placed}
    return expiries, [f"{where.partition}:{where.id.hex}" for where in placed]


def live_and_die(watch: Watch, ways: list[Road], halfway: Callable[[], None] = lambda: None) -> bool:
    """Probe until all messages are there on every road, and then until none is there on any.

    :returns: whether all were there: a machine may be too busy to have walked every road before the first one expires.
    """
    first = min(watch.due.values())

    def all_there() -> bool:
        return all(len(watch.look(road)) == len(watch.due) for road in ways)

    lived = eventually(lambda: "lived" if all_there() else "over" if watch.now_ticks() > first else "") == "lived"
    halfway()
    eventually(lambda: not any(watch.look(road) for road in ways))
    return lived


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
