"""Owners of partitions that take over from each other without asking, and a judge of the outcome (G14)."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import NamedTuple

from qdo.client import Client, GroupOffset
from queuey.clock import SystemClock
from queuey.errors import OutcomeUnknown, StaleGeneration, StorageUnavailable
from queuey.ids import ZERO_ID, IdGenerator, MessageId
from tests.support.node import PAUSE_SECONDS

GROUP = "owners"
AWAY_SECONDS = 0.05
"""How long at most an owner stands still between finishing a message and committing it."""
TAKES_OVER = 0.05
"""Of the steps of an owner, whether it has the partition or not; the rest are commits, if it thinks that it has it."""


class Acknowledged(NamedTuple):
    """A request that was acknowledged, and between which moments it was under way."""

    generation: int
    id: MessageId
    """What was committed; or where an owner was told to go on."""
    began: float
    ended: float


@dataclass
class Record:
    """All that happened to one partition."""

    number: int
    generations: count[int] = field(default_factory=lambda: count(1))
    claims: list[Acknowledged] = field(default_factory=list)
    commits: list[Acknowledged] = field(default_factory=list)
    stale: int = 0
    unknown: int = 0

    def accepted_stale(self) -> list[Acknowledged]:
        """Commits that were accepted though they began after a claim of a greater generation was told to be done."""
        return [
            commit
            for commit in self.commits
            if any(claim.generation > commit.generation and claim.ended < commit.began for claim in self.claims)
        ]

    def lost(self, last: GroupOffset) -> list[Acknowledged]:
        """Commits that a later owner was not told of, or that are not there at the end."""
        ends = [*self.claims, Acknowledged(last.generation, last.id or ZERO_ID, time.monotonic(), time.monotonic())]
        return [
            commit for commit in self.commits if any(end.began > commit.ended and end.id < commit.id for end in ends)
        ]


@dataclass
class Owner:
    """Works on partitions through one server, taking over whichever it likes."""

    client: Client
    chance: random.Random
    records: Sequence[Record]
    ids: IdGenerator
    """Of all owners: what is drawn later lies behind."""
    held: dict[int, int] = field(default_factory=dict)
    """Generations by partition, as far as this owner knows."""

    def step(self) -> None:
        record = self.chance.choice(self.records)
        began = time.monotonic()
        try:
            if self.chance.random() < TAKES_OVER:
                self._claim(record, began)
            elif record.number in self.held:
                self._commit(record)
            else:
                time.sleep(PAUSE_SECONDS)
        except StaleGeneration:
            record.stale += 1
            self.held.pop(record.number, None)
        except (OutcomeUnknown, StorageUnavailable) as error:
            record.unknown += isinstance(error, OutcomeUnknown)
            time.sleep(PAUSE_SECONDS)

    def _claim(self, record: Record, began: float) -> None:
        generation = next(record.generations)
        (offset,) = self.client.take_over("q", GROUP, [record.number], generation)
        record.claims.append(Acknowledged(generation, offset.id or ZERO_ID, began, time.monotonic()))
        self.held[record.number] = generation

    def _commit(self, record: Record) -> None:
        generation, finished = self.held[record.number], self.ids.next_id()
        if self.chance.random() < 0.5:
            time.sleep(self.chance.uniform(0, AWAY_SECONDS))
        began = time.monotonic()
        self.client.commit_offsets("q", GROUP, {record.number: finished}, generation)
        record.commits.append(Acknowledged(generation, finished, began, time.monotonic()))


@dataclass
class Watcher:
    """Looks at the offsets again and again: neither an id nor a generation may fall."""

    client: Client
    last: dict[int, tuple[int, MessageId]] = field(default_factory=dict)
    looks: int = 0
    regressions: list[str] = field(default_factory=list)

    def step(self) -> None:
        try:
            self.look(self.client.offsets("q", GROUP))
        except StorageUnavailable:
            time.sleep(PAUSE_SECONDS)

    def look(self, offsets: Iterable[GroupOffset]) -> None:
        self.looks += 1
        for offset in offsets:
            now = (offset.generation, offset.id or ZERO_ID)
            before = self.last.get(offset.partition, now)
            if now[0] < before[0] or now[1] < before[1]:
                self.regressions.append(f"{offset.partition}: {before}, then {now}")
            self.last[offset.partition] = now


@dataclass
class Company:
    """Owners of the same partitions, and their observer."""

    owners: list[Owner]
    watcher: Watcher
    records: list[Record]

    @classmethod
    def of(cls, clients: Sequence[Client], watching: Client, chance: random.Random, partitions: int) -> Company:
        records = [Record(number) for number in range(1, partitions + 1)]
        ids = IdGenerator(SystemClock())
        return cls([Owner(client, chance, records, ids) for client in clients], Watcher(watching), records)

    def use(self, clients: Sequence[Client], watching: Client) -> None:
        """Go on through other servers."""
        for owner, client in zip(self.owners, clients, strict=True):
            owner.client = client
        self.watcher.client = watching

    def done(self) -> int:
        """How much was acknowledged."""
        return sum(len(record.claims) + len(record.commits) for record in self.records)

    def judge(self, offsets: Sequence[GroupOffset]) -> Verdict:
        """Compare with how it ended."""
        self.watcher.look(offsets)
        ends = zip(self.records, offsets, strict=True)
        return Verdict(
            takeovers=sum(len(record.claims) for record in self.records),
            commits=sum(len(record.commits) for record in self.records),
            stale_commits_tried=sum(record.stale for record in self.records),
            accepted=sum(len(record.accepted_stale()) for record in self.records),
            regressions=len(self.watcher.regressions),
            lost=sum(len(record.lost(end)) for record, end in ends),
            unknown=sum(record.unknown for record in self.records),
        )


class Verdict(NamedTuple):
    """The figures of G14."""

    takeovers: int
    commits: int
    stale_commits_tried: int
    accepted: int
    regressions: int
    lost: int
    unknown: int

    def check(self) -> None:
        assert (self.accepted, self.regressions, self.lost) == (0, 0, 0)
        assert self.takeovers
        assert self.commits
        assert self.stale_commits_tried
