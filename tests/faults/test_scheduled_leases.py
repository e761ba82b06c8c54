"""G22: messages that are due later are handed out then, none early and none lost, while the server dies."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from qdo.client import NewMessage
from qdo.measure import loss, percentiles
from queuey.clock import SystemClock
from queuey.ids import TICKS_PER_SECOND, format_timestamp
from tests.support.figures import Figures
from tests.support.lease_receiver import AWAY, QUEUE, Receiver
from tests.support.node import PAUSE_SECONDS, Node, busy
from tests.support.order import too_early
from tests.support.servers import eventually

VISIBILITY = 2.0
now_ticks = SystemClock().now_ticks


@dataclass
class Worker:
    """Receives and acknowledges, and notes when it first got each message: not later than the moment noted."""

    receiver: Receiver
    seen: dict[str, int]
    receipts: list[str] = field(default_factory=list)

    def step(self) -> None:
        done, self.receipts = self.receipts, []
        try:
            found = self.receiver.step(acknowledge=done, receive={"max": 100, "visibility": VISIBILITY, "wait": 2})
        except AWAY:
            time.sleep(PAUSE_SECONDS)
            return
        now = now_ticks()
        for one in found["messages"]:
            self.seen.setdefault(one["body"], now)
            self.receipts.append(one["receipt"])


def schedule(node: Node, number: int, seconds: float, chance: random.Random) -> dict[str, int]:
    """Append messages that are due within a time from now on: when, in ticks, by body."""
    begin = now_ticks() + round((1 + number / 5_000) * TICKS_PER_SECOND)
    due = {str(at): begin + round(chance.random() * seconds * TICKS_PER_SECOND) for at in range(number)}
    names, client = [*due], node.client()
    for start in range(0, number, 100):
        some = [NewMessage(name, deliver_at=format_timestamp(due[name])) for name in names[start : start + 100]]
        client.append_batch(QUEUE, some)
    return due


@pytest.mark.drawn
@pytest.mark.parametrize(
    ("kills", "messages", "seconds"), [(2, 800, 8.0), pytest.param(10, 100_000, 120.0, marks=pytest.mark.long)]
)
def test_what_is_due_later_is_handed_out_then(
    tmp_path: Path, chance: random.Random, figures: Figures, kills: int, messages: int, seconds: float
) -> None:
    """An outage lasts until all that was due before its end has been handed out, and its leases are over."""
    seen: dict[str, int] = {}
    with Node(tmp_path) as node:
        node.client().create_queue(QUEUE, partitions=3)
        due = schedule(node, messages, seconds, chance)
        workers = [Worker(Receiver(node, f"w{number}"), seen) for number in range(4)]
        outages = [(0, now_ticks())]  # nobody received anything so far
        with busy(*(worker.step for worker in workers)):
            for kill in range(kills):
                enough = messages * (kill + chance.random()) / kills
                eventually(lambda enough=enough: len(seen) >= enough, seconds=seconds + 90)  # type: ignore[misc]
                began = now_ticks()
                node.kill()
                node.start()
                outages.append((began, now_ticks()))
            eventually(lambda: not loss(due, seen), seconds=seconds + 90)

    def caught_up(ended: int) -> int:
        late = [moment for body, moment in seen.items() if due[body] <= ended]
        return max([ended + round(VISIBILITY * TICKS_PER_SECOND), *late])

    disturbed = [(began, caught_up(ended)) for began, ended in outages]

    def is_disturbed(moment: int) -> bool:
        return any(began <= moment <= ended for began, ended in disturbed)

    late = [(moment - due[body]) / 10_000 for body, moment in seen.items() if not is_disturbed(due[body])]
    early = too_early(due, seen)
    figures(
        "G22",
        scheduled=len(due),
        kills=kills,
        early=len(early),
        lost=len(loss(due, seen)),
        outside_of_outages=len(late),
        late_p99_ms=round(percentiles(late)[99], 1),
    )
    assert early == {}
