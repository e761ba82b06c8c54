"""Three members and one partition, whatever they do in turn."""

from __future__ import annotations

from itertools import count

from hypothesis import strategies as st

from qdo.groups.assign import Partition
from qdo.groups.coordination import Claim, CommittedOffset
from tests.support.members import START, Member, MemberGroup

NUMBERS = count(1)
"""Each history has a partition of its own, in a group that all of them share."""
STEPS = st.tuples(st.sampled_from(["claim", "claim", "release", "commit", "commit", "reset"]), st.integers(0, 2))


class History:
    """Three members that claim, release and commit one partition in turn, and what must come of it."""

    def __init__(self, group: MemberGroup, members: list[Member]) -> None:
        self.group = group
        self.members = members
        self.partition = Partition("history", next(NUMBERS))
        self.believed: dict[int, Claim] = {}
        """The last claim each of them had, whatever became of it."""
        self.reached: dict[int, int] = {}
        """Where each of them believes to be."""
        self.owner: int | None = None
        self.generation = 0
        self.offset: CommittedOffset | None = None

    def do(self, what: str, who: int) -> None:
        getattr(self, what)(who)
        found = self.members[who].coordinator.offsets().get(self.partition)
        assert found == self.offset

    def claim(self, who: int) -> None:
        coordinator, found = self.members[who].coordinator, dict[Claim, CommittedOffset | None]()

        def look() -> object:
            found.update(coordinator.claim([self.partition]))
            return found

        if self.owner in (None, who):
            self.group.until(look)
        else:
            assert not look()
        for claim, offset in found.items():
            assert offset == self.offset
            assert claim.generation > self.generation or (self.owner, self.generation) == (who, claim.generation)
            self.owner, self.generation, self.believed[who] = who, claim.generation, claim
            self.reached[who] = 0 if offset is None else offset.message_id.ticks - START

    def release(self, who: int) -> None:
        if who in self.believed:
            self.members[who].coordinator.release([self.believed[who]])
            self.owner = None if self.owner == who else self.owner

    def commit(self, who: int) -> None:
        if who not in self.believed:
            return
        self.reached[who] += 1
        claim, offset = self.believed[who], self.group.place(self.reached[who], "history")
        recorded = self.members[who].commit(claim, offset)
        if self.owner == who:
            assert recorded
        else:
            # A member that gave it back may commit until another has claimed it; then no member knows less than before.
            assert not recorded or (self.owner is None and claim.generation == self.generation)
        if recorded:
            assert self.offset is None or self.offset < offset
            self.offset = offset

    def reset(self, who: int) -> None:
        """Goes where the owner is anyway, so that offsets still never fall; yet the owner is fenced."""
        self.members[who].coordinator.reset({self.partition: self.offset})
        owner, self.owner = self.owner, None
        if owner is not None:
            assert not self.members[owner].commit(self.believed[owner], self.group.place(0, "history"))
            self.claim(owner)
