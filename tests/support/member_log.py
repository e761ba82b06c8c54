"""What worker processes wrote down, and judges of it (G14, G15, G16)."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, cast

from qdo.groups.assign import Assignment, Partition, moved
from qdo.measure import Held, loss, overlap
from queuey.ids import ZERO_ID, MessageId

FOREVER = float("inf")


class Job(NamedTuple):
    """A message that a worker began, from when it looked whether it may."""

    pid: int
    part: str
    generation: int
    id: MessageId
    began: float
    ended: float
    """:data:`FOREVER` if it did not end."""


class Owned(NamedTuple):
    """A claim, and where its owner was told to go on."""

    pid: int
    part: str
    generation: int
    id: MessageId
    """:data:`ZERO_ID` for the beginning."""
    began: float
    at: float


class Commit(NamedTuple):
    """A commit, between the moments in which it was asked for and answered."""

    pid: int
    part: str
    generation: int
    id: MessageId
    began: float
    at: float


class Stop(NamedTuple):
    """A process stood still, or was dead from then on."""

    pid: int
    began: float
    ended: float = FOREVER


class Change(NamedTuple):
    """A plan, and the one that its leader saw before: that one is not among the plans if no process lived to write it down."""

    before: Assignment
    after: Assignment


@dataclass
class MemberLog:
    """All that happened, in the order of the file."""

    jobs: list[Job] = field(default_factory=list)
    claims: list[Owned] = field(default_factory=list)
    commits: list[Commit] = field(default_factory=list)
    refused: list[Commit] = field(default_factory=list)
    released: dict[tuple[int, str, int], float] = field(default_factory=dict)
    """When, by process, partition and generation."""
    plans: dict[int, Change] = field(default_factory=dict)
    """By generation."""

    @classmethod
    def read(cls, path: Path) -> MemberLog:
        """What is whole: a line may be on its way just now, and kill -9 may cut one where a page of the file ends."""
        lines = path.read_text().splitlines() if path.exists() else []
        return cls.of(said for line in lines if (said := _said(line)) is not None)

    @classmethod
    def of(cls, lines: Iterable[Mapping[str, Any]]) -> MemberLog:
        log, begun = cls(), dict[tuple[Any, ...], list[int]]()
        for said in lines:
            what = said["what"]
            if what == "plan":
                log.plans[said["generation"]] = Change(_parsed(said["before"]), _parsed(said["assignment"]))
                continue
            who = (said["pid"], said["part"], said["generation"])
            if what == "release":
                log.released[who] = said["at"]
                continue
            message_id = MessageId(*said["id"]) if said["id"] else ZERO_ID
            if what == "begin":
                begun.setdefault((*who, message_id), []).append(len(log.jobs))
                log.jobs.append(Job(*who, message_id, said["at"], FOREVER))
            elif what == "end":
                at = begun[*who, message_id].pop()
                log.jobs[at] = log.jobs[at]._replace(ended=said["at"])
            elif what == "claim":
                log.claims.append(Owned(*who, message_id, said["began"], said["at"]))
            else:
                kind = {"commit": log.commits, "refused": log.refused}[what]
                kind.append(Commit(*who, message_id, said["began"], said["at"]))
        return log

    # G14

    def takeovers(self) -> int:
        """How often a partition got another owner."""
        return len({(one.part, one.generation) for one in self.claims}) - len({one.part for one in self.claims})

    def accepted_stale(self) -> list[Commit]:
        """Recorded though a claim of a greater generation was made before they were asked for."""
        return [
            commit
            for commit in self.commits
            if any(
                claim.part == commit.part and claim.generation > commit.generation and claim.at < commit.began
                for claim in self.claims
            )
        ]

    def fallen(self) -> list[Owned]:
        """Claims whose owners were not told of what was recorded before."""
        return [
            claim
            for claim in self.claims
            if any(one.part == claim.part and one.at < claim.began and one.id > claim.id for one in self.commits)
        ]

    # G15

    def overlaps(self, stops: Collection[Stop], excused_seconds: float) -> list[tuple[Job, Job]]:
        """Jobs of one partition at the same time, unless the earlier owner's process stood still within its job.

        :param excused_seconds: it must have stood still at least so long.
        """
        held = [
            Held(job.part, job, job.began, min([job.ended, *(stop.began for stop in stops if _died_in(stop, job))]))
            for job in self.jobs
        ]
        pairs = [(cast("Job", one.holder), cast("Job", other.holder)) for one, other in overlap(held)]
        return [
            pair
            for pair in pairs
            if not any(_stood_still_in(stop, min(pair, key=generation_of), excused_seconds) for stop in stops)
        ]

    def unowned_seconds(self, stops: Collection[Stop]) -> float:
        """The longest time in which a partition had no owner, from its first one on."""
        longest = 0.0
        for part in {claim.part for claim in self.claims}:
            claims = sorted((claim for claim in self.claims if claim.part == part), key=generation_of)
            for earlier, later in pairwise(claims):
                ends = [self.released.get(earlier[:3], FOREVER)]
                ends += [stop.began for stop in stops if stop.pid == earlier.pid and stop.began >= earlier.at]
                longest = max(longest, later.at - min([*ends, later.at]))
        return longest

    def moves(self) -> tuple[int, int]:
        """How many partitions plans gave to somebody else, and how many they had to."""
        changes = self.plans.values()
        return sum(moved(*change) for change in changes), sum(least_moves(*change) for change in changes)

    # G16

    def out_of_order(self, stored: Mapping[str, Sequence[MessageId]]) -> list[str]:
        """Owners that did not process exactly what follows where they were told to go on, one after the other."""
        wrong = []
        starts = {(one.pid, one.part, one.generation): one.id for one in self.claims}
        by_owner: dict[tuple[int, str, int], list[Job]] = defaultdict(list)
        for job in self.jobs:
            by_owner[job[:3]].append(job)
        for owner, jobs in by_owner.items():
            ids = stored[owner[1]]
            first = bisect_right(ids, starts[owner])
            in_turn = all(earlier.ended <= later.began for earlier, later in pairwise(jobs))
            if not in_turn or [job.id for job in jobs] != list(ids[first : first + len(jobs)]):
                wrong.append(f"{owner} from {starts[owner]!r}")
        return wrong

    def lost(self, stored: Mapping[str, Sequence[MessageId]]) -> list[tuple[str, MessageId]]:
        """Messages that nobody has finished."""
        finished = [(job.part, job.id) for job in self.jobs if job.ended < FOREVER]
        return loss([(part, one) for part, ids in stored.items() for one in ids], finished)

    def repeated(self) -> Counter[int]:
        """Messages begun more than once, by the process whose work somebody else did again."""
        latest: dict[tuple[str, MessageId], Job] = {}
        by_pid: Counter[int] = Counter()
        for job in sorted(self.jobs, key=generation_of):
            earlier = latest.get((job.part, job.id))
            if earlier is not None:
                by_pid[earlier.pid] += 1
            latest[job.part, job.id] = job
        return by_pid


def generation_of(one: Job | Owned) -> int:
    return one.generation


def _died_in(stop: Stop, job: Job) -> bool:
    return stop.pid == job.pid and stop.ended == job.ended == FOREVER


def _stood_still_in(stop: Stop, job: Job, seconds: float) -> bool:
    """A dead member does not go on."""
    inside = stop.began <= job.ended and job.began <= stop.ended < FOREVER
    return stop.pid == job.pid and inside and stop.ended - stop.began >= seconds


def least_moves(before: Assignment, after: Assignment) -> int:
    """How many of the partitions that are in both must go elsewhere, so that the members of ``after`` have equal shares."""
    there = {part for owned in after.values() for part in owned}
    has = sorted((len(there & set(before.get(member, ()))) for member in after), reverse=True)
    all_before = sum(len(there & set(owned)) for owned in before.values())
    if not has:
        return 0
    least, more = divmod(len(there), len(has))
    stay = sum(min(one, least + (at < more)) for at, one in enumerate(has))
    return all_before - stay


def _parsed(assignment: Mapping[str, Sequence[str]]) -> Assignment:
    return {member: [Partition.parse(part) for part in owned] for member, owned in assignment.items()}


def _said(line: str) -> Mapping[str, Any] | None:
    try:
        said: Mapping[str, Any] = json.loads(line)
    except ValueError:
        return None
    return said
