"""Histories of a queue whose messages go once they are settled: nothing goes that some group has not settled."""

from __future__ import annotations

import random
from collections.abc import Callable

from queuey.future import run
from queuey.ids import ZERO_ID
from queuey.model import AppendRequest, Draft, Location, Queue, ReadRequest, Retention, Span
from queuey.model.lease_requests import Action, ReceiveRequest, Settle
from queuey.model.lease_steps import GroupStep, HandedOut, LeaseOutcome, LeaseStep
from queuey.service import Service
from queuey.service.queues import QueueSettings

GROUPS = ("one", "two")


class RetainedHistory:
    """One queue with two groups, and what each has not settled."""

    def __init__(self, service: Service, name: str, chance: random.Random, advance: Callable[[float], None]) -> None:
        self.service, self.chance, self.advance = service, chance, advance
        settings = QueueSettings(partitions=2, retention=Retention.ACKNOWLEDGED)
        self.queue: Queue = run(service.queues.create("demo", name, settings))
        self.unsettled: dict[str, set[Location]] = {group: set() for group in GROUPS}
        self.held: dict[str, list[HandedOut]] = {group: [] for group in GROUPS}
        self.tokens: dict[str, int] = {}
        for group in GROUPS:
            self.receive(group, 1)

    def _step(self, step: LeaseStep) -> LeaseOutcome:
        """A step whose queue is looked at later."""
        outcome = self.service.stores.leases.step(step).wait()
        self.service.retained.note(self.queue)
        return outcome

    def append(self, most: int) -> None:
        number, partition = self.chance.choice((1, self.chance.randint(1, most))), self.chance.randint(1, 2)
        appended = run(self.service.log.append(AppendRequest(self.queue, [Draft(partition, b"x", 3600)] * number)))
        for unsettled in self.unsettled.values():
            unsettled.update(appended.placed)

    def receive(self, group: str, most: int) -> None:
        new = self.service.leases.new_group(self.service.leases.default_settings, ZERO_ID)
        step = GroupStep(self.queue, group, new, receive_from=(1, 2))
        outcome = self._step(LeaseStep([step], receive=ReceiveRequest(most, 3600.0)))
        self.tokens[group] = outcome.tokens[0]
        self.held[group] += outcome.handed

    def settle(self, group: str, most: int) -> None:
        held, settles = self.held[group], dict[int, list[Settle]]()
        self.chance.shuffle(held)
        for one in [held.pop() for _ in range(min(len(held), most))]:
            action = self.chance.choices((Action.ACKNOWLEDGE, Action.RELEASE), (9, 1))[0]
            settle = Settle(one.message.id, one.hole.deliveries, action, 0.0, counts=False)
            settles.setdefault(one.partition, []).append(settle)
            if action is Action.ACKNOWLEDGE:
                self.unsettled[group].discard(Location(one.partition, one.message.id))
        if settles:
            assert not self._step(LeaseStep([GroupStep(self.queue, group, None, self.tokens[group], settles)])).stale

    def there(self) -> set[Location]:
        found: set[Location] = set()
        for number in (1, 2):
            span, more = Span(), True
            while more:
                request = ReadRequest(self.queue.partition(number), span, 1000, with_bodies=False)
                page = self.service.stores.messages.read(request, now_ticks=self.service.clock.now_ticks()).wait()
                found.update(Location(number, message.id) for message in page.messages)
                span, more = Span(page.messages[-1].id if page.more else span.after), page.more
        return found

    def check(self) -> None:
        """All that some group has not settled is there, and what is there is counted."""
        run(self.service.retained.turn())
        there = self.there()
        for unsettled in self.unsettled.values():
            assert unsettled <= there
        assert sum(state.depth for state in run(self.service.queues.inspect(self.queue))) == len(there)

    def run(self, steps: int, most: int = 700) -> None:
        for _ in range(steps):
            group, number = self.chance.choice(GROUPS), self.chance.randint(1, 60)
            what = self.chance.choice(("append", "receive", "settle", "settle"))
            if what == "append":
                self.append(most)
            elif what == "receive":
                self.receive(group, number)
            else:
                self.settle(group, number)
            self.advance(0.01)
            self.check()

    def finish(self, *groups: str) -> None:
        """Settle all messages of some groups."""
        while any(self.unsettled[group] for group in groups):
            for group in groups:
                self.receive(group, 1000)
                self.settle(group, 1000)
            self.advance(0.1)
        self.check()
