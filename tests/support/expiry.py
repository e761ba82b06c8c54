"""Compares what readers get with what a TTL promises."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from qdo.client import Client, Message, NewMessage
from queuey.ids import TICKS_PER_SECOND, MessageId
from tests.support.servers import eventually

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
