"""One member's part in a group.

It joins, leads if it is the first, and owns what the plan says (docs/decisions/011).

::

    member      OUT ──join──► IN ──stop──► LEAVING ──► OUT
                 ▲             │
                 └─session lost┘           all claims are gone at once

    partition   WANTED ──claim──► HELD ──not in the plan──► DRAINING ──► released
                   ▲               │                           │
                   └───fenced──────┴───────────────────────────┘  somebody raised its generation

A session that is lost ends no job. A member that joins anew claims a partition again once the job there has ended.

A plan takes effect in two steps. A member that is to lose a partition stops, drains, commits and releases it. The member
that is to get the partition claims it once it is free. So no partition ever has two owners, and no step needs all members
to agree: a newer plan simply takes the place of the former one.

Everything happens in :meth:`GroupMember.step`, which one thread calls whenever something may have changed.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from qdo.groups.assign import Partition, Strategy, assign_sticky
from qdo.groups.coordination import Claim, CommittedOffset, Coordinator, Plan, tell_apart
from queuey.clock import Clock
from queuey.errors import ConfigurationError, CoordinatorUnavailable, SessionLost

__all__ = ["ClaimHandler", "GroupMember", "GroupRules"]

log = logging.getLogger(__name__)

IDLE_SECONDS = 5.0
"""Between two steps if no notice comes. Notices come as a rule, so this only bounds the harm of a lost one."""
CLAIM_AGAIN_SECONDS = 0.2
DRAIN_LOOK_SECONDS = 0.02
TROUBLE_SECONDS = 0.5
GATHER_SECONDS = 0.5
"""A new group waits this long for one more member before its first plan. Then partitions need not move again."""


class ClaimHandler(Protocol):
    """Works on what the member owns. The thread that steps the group calls it."""

    def gained(self, claims: Mapping[Claim, CommittedOffset | None]) -> None:
        """The member owns these now. Work may begin behind the offsets."""

    def losing(self, claims: Collection[Claim]) -> None:
        """Begin nothing more in these."""

    def drained(self, claims: Collection[Claim]) -> Collection[Claim]:
        """Those with nothing under way, and everything done committed."""

    def lost(self, claims: Collection[Claim]) -> None:
        """Somebody else owns these already. Forget them, and commit nothing."""


@dataclass(frozen=True)
class GroupRules:
    """How a member divides partitions, and how it gives them back."""

    strategy: Strategy = assign_sticky
    drain_seconds: float = 30.0
    """For a job under way when its partition is to go to another member. After that the job is fenced off."""
    accepts: Callable[[Partition], bool] = lambda partition: True
    """Whether this member can own a partition of this kind. Where others own what it cannot, it is of no use."""


class GroupMember:
    """A member. All methods but :meth:`fenced` belong to one thread."""

    def __init__(
        self,
        coordinator: Coordinator,
        handler: ClaimHandler,
        partitions: Callable[[], Collection[Partition] | None],
        *,
        clock: Clock,
        about: Mapping[str, Any],
        rules: GroupRules | None = None,
    ) -> None:
        """:param partitions: all that the group subscribes to, as it was found in this :attr:`term` of the member; None while
        that is not known. It is asked only while this member leads. A list of before might leave out what a former leader
        has divided since.
        """
        rules = rules or GroupRules()
        self._coordinator = coordinator
        self._handler = handler
        self._partitions = partitions
        self._clock = clock
        self._about = about
        self._strategy = rules.strategy
        self._drain_seconds = rules.drain_seconds
        self._accepts = rules.accepts
        self.name: str | None = None
        """In the group; None while it is no member."""
        self.term: int | None = None
        """While this member computes the plan, the number of the term in which it does; None while it does not lead."""
        self._terms = 0
        self.plan = Plan()
        self.rebalances = 0
        """How often the set of partitions that this member owns has changed."""
        self._resets = 0
        """Resets that this member has heard of."""
        self._held: dict[Partition, Claim] = {}
        self._draining: dict[Claim, float] = {}
        self._fenced: set[Claim] = set()
        self._unsure: set[Partition] = set()
        """Partitions that this member may own without knowing it: an answer to its claim was lost, or it was fenced."""
        self._gathered: tuple[list[str], float] = ([], 0.0)
        self._lock = threading.Lock()

    @property
    def leads(self) -> bool:
        """Whether this member computes the plan."""
        return self.term is not None

    @property
    def held(self) -> Collection[Claim]:
        """What this member owns and is not giving back."""
        return list(self._held.values())

    @property
    def settled(self) -> bool:
        """Whether it owns everything that the plan gives it, and nothing else."""
        if self.name is None or self.name not in self.plan.assignment or self._draining:
            return False  # a plan that was made before this member came says nothing about it
        return set(self._held) == set(self.plan.of(self.name))

    def fenced(self, claims: Collection[Claim]) -> None:
        """Commits of these claims were refused: the claims are gone.

        Any thread may call it.
        """
        with self._lock:
            self._fenced.update(claims)

    def step(self) -> float:
        """Do what can be done now.

        :returns: seconds after which to call again if no notice comes before.
        :raises ConfigurationError: the other members divide something else.
        """
        try:
            if self.name is None:
                self.name = self._coordinator.join(self._about)
                log.info("joined", extra={"member": self.name})
            self._forget_fenced()
            self._heed_resets()
            rest = self._lead()
            return min(rest, self._follow())
        except SessionLost as error:
            log.warning("%s: it joins anew", error)
            self._lose_session()
            return 0.0
        except CoordinatorUnavailable as error:
            log.warning("%s: nothing begins until it does", error)
            return TROUBLE_SECONDS

    def _lose_session(self) -> None:
        """All claims are gone. But jobs may be under way: these partitions are not claimed anew before they have ended."""
        self.name = self.term = None
        self._unsure.clear()
        if self._held:
            self._begin_draining(list(self._held))

    def _forget_fenced(self) -> None:
        with self._lock:
            fenced, self._fenced = self._fenced, set()
        if fenced:
            self._handler.lost(fenced)
            self._held = {partition: claim for partition, claim in self._held.items() if claim not in fenced}
            self._draining = {claim: until for claim, until in self._draining.items() if claim not in fenced}
            # An owner whose offset was set by hand is fenced and still has its partition. But a claim that was fenced long
            # ago says nothing about a partition that this member has claimed anew: it must not be given back for that.
            owned = self._held.keys() | {claim.partition for claim in self._draining}
            self._unsure |= {claim.partition for claim in fenced} - owned

    def _heed_resets(self) -> None:
        """Somebody set offsets by hand.

        Give back these partitions, and claim them anew from the new offsets.

        A member with something to commit would learn of it by a refusal. A member that waits for messages learns of it only
        here.
        """
        resets = self._coordinator.resets()
        if resets != self._resets and self._held:
            now = self._coordinator.claim(list(self._held))
            if changed := [claim.partition for claim in self.held if claim not in now]:
                self._begin_draining(changed)
        self._resets = resets

    # Leading

    def _lead(self) -> float:
        """:returns: seconds after which to look again."""
        members = self._members()
        self.plan = self._coordinator.plan()
        self._check_kind(members)
        self._note_leader(members[0])
        partitions = self._partitions() if self.leads else None
        if partitions is None:
            return IDLE_SECONDS
        if self._gathering(members):
            return GATHER_SECONDS / 4
        target = self._strategy(members, partitions, self.plan.assignment)
        if {name: list(owned) for name, owned in self.plan.assignment.items()} == target:
            return IDLE_SECONDS
        plan = Plan(self.plan.generation + 1, target)
        if self._coordinator.propose(plan):
            self.plan = plan
            log.info("planned", extra={"generation": plan.generation, "members": len(members)})
        return IDLE_SECONDS

    def _note_leader(self, leader: str) -> None:
        if leader != self.name:
            self.term = None
        elif self.term is None:
            self._terms += 1
            self.term = self._terms

    def _check_kind(self, members: Collection[str]) -> None:
        others = [partition for member in members if member != self.name for partition in self.plan.of(member)]
        if not all(map(self._accepts, others)):
            raise ConfigurationError(
                f"the others of this group divide {others[0].queue!r} and so on, and this worker cannot own that: "
                "all of them work with --slots, or none; end them first to change it"
            )

    def _members(self) -> list[str]:
        """The names of all members, this one among them.

        :raises SessionLost: the others hold this member for dead. If the plan gives it nothing, nothing else would tell it.
        """
        members = [member.name for member in self._coordinator.members()]
        if self.name not in members:
            raise SessionLost(f"{self.name} is no member any more")
        return members

    def _gathering(self, members: list[str]) -> bool:
        """Whether the group has just begun, and more members may be about to join."""
        if any(member in self.plan.assignment for member in members):
            return False
        now = self._clock.elapsed()
        if self._gathered[0] != members:
            self._gathered = members, now
        return now - self._gathered[1] < GATHER_SECONDS

    # Following

    def _follow(self) -> float:
        wanted = self.plan.of(self.name or "")
        draining = {claim.partition for claim in self._draining}
        gained, lost = tell_apart(wanted, self._held)
        if lost:
            self._begin_draining(lost)
        rest = self._drain()
        self._give_back(self._unsure.difference(wanted))
        free = [partition for partition in gained if partition not in draining]
        if free:
            self._unsure.update(free)
            claims = self._coordinator.claim(free)
            self._unsure -= {claim.partition for claim in claims}
            if claims:
                self._held |= {claim.partition: claim for claim in claims}
                self.rebalances += 1
                self._handler.gained(claims)
            if len(claims) < len(gained):
                rest = min(rest, CLAIM_AGAIN_SECONDS)
        return rest

    def _give_back(self, unsure: Collection[Partition]) -> None:
        """Release these.

        While this member lives nobody else could own them, and it would work on none of them.
        """
        if unsure:
            self._coordinator.release([Claim(partition, 0) for partition in unsure])
            self._unsure -= set(unsure)

    def _begin_draining(self, lost: Collection[Partition]) -> None:
        claims = [self._held.pop(partition) for partition in lost]
        self._draining |= dict.fromkeys(claims, self._clock.elapsed() + self._drain_seconds)
        self.rebalances += 1
        self._handler.losing(claims)

    def _drain(self) -> float:
        """Release partitions that are drained, and those that take too long.

        The next claim fences the job that hangs.
        """
        if not self._draining:
            return IDLE_SECONDS
        done = set(self._handler.drained(list(self._draining)))
        now = self._clock.elapsed()
        late = [claim for claim, until in self._draining.items() if until <= now and claim not in done]
        if late:
            log.error("jobs did not end in time", extra={"partitions": [str(claim.partition) for claim in late]})
            self._handler.lost(late)
        finished = [claim for claim in self._draining if claim in done or claim in late]
        if finished:
            self._coordinator.release(finished)
            for claim in finished:
                del self._draining[claim]
        return DRAIN_LOOK_SECONDS if self._draining else IDLE_SECONDS

    # Leaving

    def leave(self) -> float | None:
        """Give everything back, step by step.

        :returns: seconds after which to call again; None when it is done.
        """
        if self.name is None:
            return None
        try:
            self._members()
            self._forget_fenced()
            if self._held:
                self._begin_draining(list(self._held))
            rest = self._drain()
            if self._draining:
                return rest
        except CoordinatorUnavailable as error:
            log.warning("%s: what was not committed will be done again", error)
            self._handler.lost([*self._held.values(), *self._draining])
            self._held, self._draining = {}, {}
        self._coordinator.leave()
        self.name = None
        return None
