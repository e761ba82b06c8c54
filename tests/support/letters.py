"""A dead-letter queue with letters of several queues, and a server that moves them back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from queuey.clock import ManualClock
from queuey.future import run
from queuey.ids import ZERO_ID
from queuey.model import AppendRequest, Draft, Message, Queue, ReadRequest, Retention, Span, encode_headers
from queuey.model.dead_letters import Story, with_story
from queuey.model.lease_groups import GroupSettings
from queuey.model.lease_requests import ReceiveRequest
from queuey.model.lease_steps import GroupStep, HandedOut, LeaseStep
from queuey.model.tasks import StoredTask
from queuey.service import Service
from queuey.service.queues import QueueSettings
from queuey.service.tasks import MOVE
from queuey.settings import load_settings
from tests.support.dying_stores import DyingStores

GROUP = "sqs"
LETTERS = 7
SOURCES = ("jobs", "mails")
ALL = Counter({b"%d" % number: 1 for number in range(LETTERS)})


class World:
    """A server, queues of which messages were given up, and their dead-letter queue."""

    def __init__(self, stores: DyingStores, clock: ManualClock) -> None:
        self.stores, self.clock = stores, clock
        self.service = Service(load_settings(None, {}, {}), stores, clock=clock, waiters_by_hand=True)

    def make(self, name: str) -> Queue:
        settings = QueueSettings(partitions=2, retention=Retention.ACKNOWLEDGED)
        queue = run(self.service.queues.create("demo", name, settings))
        group = self.service.leases.new_group(GroupSettings(), ZERO_ID)
        run(self.service.leases.keep(queue, GROUP, group, None))
        return queue

    def queue(self, name: str) -> Queue:
        found = run(self.service.queues.find("demo", name))
        assert found is not None
        return found

    def bury(self, *sources: str, key: str | None = None, begin: int = 0) -> None:
        """Store a letter for each of some sources."""
        told = Story("", 1, "0" * 32, GROUP, 3, "failed too often", ttl=86_400)
        drafts = [
            Draft(1, b"%d" % number, 86_400, key=key, headers=with_story(None, told._replace(queue=source)))
            for number, source in enumerate(sources, begin)
        ]
        run(self.service.log.append(AppendRequest(self.queue("dead"), drafts)))

    def send(self, body: bytes) -> None:
        """A message that nobody gave up."""
        draft = Draft(1, body, 86_400, headers=encode_headers({"n": b"1"}))
        run(self.service.log.append(AppendRequest(self.queue("dead"), [draft])))

    def receive(self, most: int = 10, seconds: float = 30.0) -> Sequence[HandedOut]:
        new = self.service.leases.new_group(GroupSettings(), ZERO_ID)
        group = GroupStep(self.queue("dead"), GROUP, new, receive_from=[1, 2])
        step = LeaseStep([group], receive=ReceiveRequest(most, seconds, receiver="other"))
        return [*self.stores.leases.step(step).wait().handed]

    def begin(self, **asked: Any) -> StoredTask:
        dead = self.queue("dead")
        wanted = {"group": GROUP, "rate": 0, "upto": self.service.log.newest_ticks(dead), **asked}
        return run(self.service.tasks.begin(dead, MOVE, wanted, total=LETTERS))

    def to_its_end(self) -> StoredTask:
        for _ in range(200):
            self.clock.advance(min(run(self.service.tasks.turn()), 60))
            task = run(self.service.tasks.find(self.queue("dead"), MOVE))
            if not task.is_open:
                return task
        raise AssertionError(f"still open: {task}")

    def messages(self, *names: str) -> list[Message]:
        found: list[Message] = []
        for queue in map(self.queue, names):
            for number in (1, 2):
                request = ReadRequest(queue.partition(number), Span(), 1000)
                found += self.stores.messages.read(request, now_ticks=self.clock.now_ticks()).wait().messages
        return found

    def bodies(self, *names: str) -> Counter[bytes]:
        return Counter(message.body for message in self.messages(*names))

    def has_leases(self) -> bool:
        pages = [
            self.service.leases.held(self.queue("dead"), GROUP, at, after=ZERO_ID, limit=100).wait() for at in (1, 2)
        ]
        return any(hole.visible_at > page.now for page in pages for hole in page.holes)


def new_world() -> World:
    clock = ManualClock()
    world = World(DyingStores(clock), clock)
    for name in (*SOURCES, "dead"):
        world.make(name)
    return world
