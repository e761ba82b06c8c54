"""Histories of receivers whose steps share commits: what they do together comes to the same as one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from itertools import chain

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from queuey.clock import ManualClock
from queuey.future import Future
from queuey.ids import ZERO_ID, MessageId
from queuey.model import Appended, AppendRequest
from queuey.model.lease_groups import GroupSettings, LeaseGroup
from queuey.model.lease_requests import Acknowledged, ReceiveRequest
from queuey.model.lease_steps import GroupStep, HandedOut, LeaseStep
from queuey.storage import Stores
from queuey.storage.contract.common import QueueLog, done, draft

__all__ = ["SharingHistory"]

KINDS = ("next", "first", "again", "nothing")
"""What a request settles: a message that no request before it does, one that others settle too, what is settled already."""
MOST_HELD = 9
PARTITIONS = 2
_NAME = "workers"


class SharingHistory(RuleBasedStateMachine):
    """Receivers whose requests share commits, each with what it has in mind."""

    appends_along = False
    """A commit of steps may have appends as well; what they append is handed out there or later."""

    def __init__(
        self,
        stores: Callable[[], Stores],
        clock: ManualClock,
        one_commit: Callable[[GroupStep], AbstractContextManager[None]],
        reopen: Callable[[], None],
    ) -> None:
        """:param stores: those that are open now.
        :param one_commit: steps of this group that begin in its block share a commit.
        :param reopen: open the stores anew, as after a kill.
        """
        super().__init__()
        self.stores, self.clock, self.one_commit, self.reopen = stores, clock, one_commit, reopen
        self.log = QueueLog(stores().messages, clock, partitions=PARTITIONS)
        self.token = self.log.queue.uuid.int >> 65
        self.new = LeaseGroup(self.token, settings=GroupSettings(max_held=MOST_HELD))
        self.held: list[HandedOut] = []
        """By the receivers."""
        self.settled: list[HandedOut] = []
        self.appended: dict[int, list[int]] = {number: [] for number in range(1, PARTITIONS + 1)}
        """By partition, the numbers in its messages that are not handed out yet."""
        self.number = 0
        done(stores().leases.step(LeaseStep([GroupStep(self.log.queue, _NAME, self.new)])))

    @rule(partitions=st.lists(st.integers(1, PARTITIONS), min_size=1, max_size=6))
    def append(self, partitions: list[int]) -> None:
        done(self._append(partitions))

    def _append(self, partitions: Sequence[int]) -> Future[Appended]:
        numbers = [*enumerate(partitions, self.number)]
        drafts = [draft(b"%d" % number, partition) for number, partition in numbers]
        for number, partition in numbers:
            self.appended[partition].append(number)
        self.number += len(numbers)
        return self.stores().messages.append(AppendRequest(self.log.queue, drafts))

    @rule(
        asked=st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 3)), min_size=2, max_size=6),
        brought=st.lists(st.lists(st.integers(1, PARTITIONS), min_size=1, max_size=2), max_size=2),
    )
    def share(self, asked: list[tuple[str, int]], brought: Sequence[Sequence[int]] = ()) -> None:
        """:param brought: partitions of messages that the commit appends, if the store can do that."""
        brought = brought if self.appends_along else ()
        self.log.watermark()
        oldest_brought = self.number
        before, others, wanted = len(self.held), list(self.held), list[tuple[list[HandedOut], int]]()
        for kind, most in asked:
            some = others[:2] if kind == "next" else self.held[:1] if kind == "first" else self.settled[-2:]
            others = [one for one in others if one not in some]
            wanted.append(([] if kind == "nothing" else some, most))
        steps = [self.step(*one) for one in wanted]
        with self.one_commit(steps[0].groups[0]):
            appends = [self._append(partitions) for partitions in brought]
            futures = [self.stores().leases.step(step) for step in steps]
        for append in appends:
            done(append)
        outcomes = [done(future) for future in futures]
        for (settles, most), outcome in zip(wanted, outcomes, strict=True):
            assert len(outcome.stale) == len([one for one in settles if one not in self.held])
            self.settled += [one for one in settles if one in self.held]
            self.held = [one for one in self.held if one not in settles]
            assert len(outcome.handed) <= most
        for one in (one for outcome in outcomes for one in outcome.handed):
            assert int(one.message.body) in self.appended[one.partition], "each once"
            self.held.append(one)
        for partition, numbers in self.appended.items():
            got = [
                int(one.message.body) for outcome in outcomes for one in outcome.handed if one.partition == partition
            ]
            assert sorted(got) == numbers[: len(got)], "the first come first"
            del numbers[: len(got)]
        may_be_full = before + sum(most for _, most in wanted) > MOST_HELD
        were_given_all = all(len(outcome.handed) == most for (_, most), outcome in zip(wanted, outcomes, strict=True))
        was_there = [one for one in chain.from_iterable(self.appended.values()) if one < oldest_brought]
        assert were_given_all or may_be_full or not was_there
        self.check()

    def step(self, settles: list[HandedOut], most: int) -> LeaseStep:
        given: dict[int, Acknowledged] = {}
        for number in {one.partition for one in settles}:
            some = [one for one in settles if one.partition == number]
            given[number] = Acknowledged([one.message.id for one in some], [one.hole.deliveries for one in some])
        receive = ReceiveRequest(most, None) if most else None
        token, from_ = self.token if settles else None, range(1, PARTITIONS + 1) if most else ()
        return LeaseStep([GroupStep(self.log.queue, _NAME, self.new, token, given, (), from_)], receive=receive)

    @rule()
    def open_again(self) -> None:
        self.reopen()
        self.log.store = self.stores().messages
        self.check()

    def check(self) -> None:
        held = sorted((one.partition, one.message.id) for one in self.held)
        assert held == [(number, id_) for number in range(1, PARTITIONS + 1) for id_ in self._holes(number)]

    def _holes(self, partition: int) -> list[MessageId]:
        leases = self.stores().leases
        _, holes, _ = done(leases.held(self.log.queue.uuid, _NAME, partition, after=ZERO_ID, limit=99))
        assert all(hole.deliveries == 1 for hole in holes)
        assert len(holes) <= MOST_HELD
        return [hole.id for hole in holes]
