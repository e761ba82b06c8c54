"""G13: a message with a delivery time is not read before it and is not lost, over kill -9 and without any recovery."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from qdo.client import Client, Message, NewMessage
from qdo.measure import duplicates, loss, percentiles
from queuey.clock import SystemClock
from queuey.errors import OutcomeUnknown, StorageUnavailable
from queuey.ids import TICKS_PER_SECOND, MessageId, format_timestamp
from tests.support.figures import Figures
from tests.support.node import PAUSE_SECONDS, Node, wait_for_more
from tests.support.order import too_early
from tests.support.readers import CursorReader
from tests.support.servers import eventually

PARTITIONS = range(1, 4)
now_ticks = SystemClock().now_ticks


@dataclass
class Scheduler:
    """Appends messages that are due a little later, now, or were due long ago; remembers what it asked for."""

    chance: random.Random
    wanted: dict[str, int] = field(default_factory=dict)
    """The moment asked for, in ticks, by body; also of those whose outcome is not known."""
    acknowledged: dict[str, MessageId] = field(default_factory=dict)
    numbers: count[int] = field(default_factory=count)

    def step(self, client: Client) -> None:
        new = [self._new() for _ in range(self.chance.randint(1, 20))]
        try:
            placed = client.append_batch("q", new)
        except (OutcomeUnknown, StorageUnavailable):
            time.sleep(PAUSE_SECONDS)
            return
        self.acknowledged |= {str(one.body): where.id for one, where in zip(new, placed, strict=True)}

    def _new(self) -> NewMessage:
        body = str(next(self.numbers))
        due = now_ticks() + round(self.chance.choice((-3600.0, 0.0, 0.01, 0.5, 2.0)) * TICKS_PER_SECOND)
        self.wanted[body] = due
        return NewMessage(body, deliver_at=format_timestamp(due))


@dataclass
class Sightings(CursorReader):
    """Follows the queue and notes when it first saw each message: not later than the moment noted."""

    seen: dict[str, int] = field(default_factory=dict)
    again: list[str] = field(default_factory=list)

    def follow(self, client: Client) -> None:
        page = self.step(client)
        now = now_ticks()
        for message in page.messages if page else ():
            if message.text in self.seen:
                self.again.append(message.text)
            self.seen[message.text] = now


def test_scheduled_messages_come_in_time_and_none_is_lost(
    tmp_path: Path, rounds: Callable[[int], range], chance: random.Random, figures: Figures
) -> None:
    scheduler, reader = Scheduler(chance), Sightings(PARTITIONS)
    with Node(tmp_path) as node:
        node.client().create_queue("q", partitions=len(PARTITIONS))
        for _ in rounds(3):
            with node.busy(scheduler.step, reader.follow):
                wait_for_more(lambda: len(scheduler.acknowledged), 500)
                node.kill()
            node.start()
        with node.busy(reader.follow):
            eventually(lambda: not loss(scheduler.acknowledged, reader.seen), seconds=90)

    early = too_early(scheduler.wanted, reader.seen)
    lost = loss(scheduler.acknowledged, reader.seen)
    lateness = [
        (reader.seen[body] - max(scheduler.wanted[body], message_id.ticks)) / 10_000
        for body, message_id in scheduler.acknowledged.items()
    ]
    figures(
        "G13",
        scheduled=len(scheduler.acknowledged),
        kills=len(rounds(3)),
        early=len(early),
        lost=len(lost),
        repeated=len(reader.again),
        late_p99_ms=percentiles(lateness)[99],
    )
    assert early == {}
    assert lost == []
    assert reader.again == []


def test_a_deleted_message_never_comes_also_after_kill_9(tmp_path: Path, figures: Figures) -> None:
    with Node(tmp_path) as node:
        client = node.client()
        client.create_queue("q")
        due = format_timestamp(now_ticks() + TICKS_PER_SECOND)
        placed = client.append_batch("q", [NewMessage(str(number), deliver_at=due) for number in range(100)])
        client.delete("q", placed[::2])
        node.kill()
        node.start()
        client = node.client()
        came: list[Message] = eventually(lambda: list(client.iterate("q")))

    cancelled = {where.id for where in placed[::2]}
    figures("G13", cancelled=len(cancelled), of_which_came=sum(message.id in cancelled for message in came))
    assert [message.id for message in came] == [where.id for where in placed[1::2]]
    assert duplicates(message.id for message in came) == []
