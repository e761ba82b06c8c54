"""Every sentence of :class:`qdo.groups.coordination.Coordinator`, for whoever keeps it."""

from __future__ import annotations

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from qdo.groups.assign import Partition, assign_sticky
from qdo.groups.coordination import TRUSTED_SHARE, Claim, Plan
from queuey.errors import SessionLost
from tests.support.group_histories import STEPS, History
from tests.support.members import SESSION_SECONDS, MemberGroup, partitions_of, parts

ONE, TWO, THREE = parts(1, 2, 3)


class CoordinatorContract:
    """Subclasses give the fixture ``group``."""

    # Members

    def test_members_stand_in_the_order_of_joining(self, group: MemberGroup) -> None:
        assert group.coordinator().members() == []

        names = [group.member().name for _ in range(3)]

        assert [member.name for member in group.coordinator().members()] == names

    def test_members_tell_of_themselves(self, group: MemberGroup) -> None:
        group.coordinator().join({"name": "here", "pid": 7, "host": "ä.example"})

        (member,) = group.coordinator().members()

        assert member.about == {"name": "here", "pid": 7, "host": "ä.example"}

    def test_who_looks_from_outside_sees_what_members_say_now(self, group: MemberGroup) -> None:
        member, outside = group.member(), group.coordinator()
        assert "done" not in outside.members()[0].about

        for done in (1, 2):
            member.coordinator.tell({"done": done})
            assert outside.members()[0].about == {"done": done}

    def test_who_comes_back_is_somebody_else_at_the_end_of_the_line(self, group: MemberGroup) -> None:
        first, second = group.member(), group.member()
        first.coordinator.leave()
        again = first.coordinator.join({"name": "m1"})

        assert again != first.name
        assert [member.name for member in second.coordinator.members()] == [second.name, again]

    def test_who_leaves_is_no_member_and_owns_nothing(self, group: MemberGroup) -> None:
        gone, other = group.member(), group.member()
        gone.claim(ONE)

        gone.coordinator.leave()
        gone.coordinator.leave()

        assert [member.name for member in other.coordinator.members()] == [other.name]
        assert other.coordinator.owners() == {}
        assert other.claim(ONE)

    def test_who_has_left_may_do_nothing_until_it_joins(self, group: MemberGroup) -> None:
        member = group.member()
        member.coordinator.leave()

        with pytest.raises(SessionLost):
            member.claim(ONE)
        with pytest.raises(SessionLost):
            member.coordinator.propose(Plan(1, {}))

    # Which member is to have what

    def test_the_first_plan_is_empty(self, group: MemberGroup) -> None:
        assert group.coordinator().plan() == Plan(0, {})

    def test_a_plan_is_there_for_all(self, group: MemberGroup) -> None:
        leader, other = group.member(), group.member()
        plan = Plan(1, {leader.name: parts(1, 3), other.name: parts(2, queue="a-b"), "without": []})

        assert leader.coordinator.propose(plan)

        assert other.coordinator.plan() == plan

    def test_a_plan_that_does_not_follow_the_latest_is_refused(self, group: MemberGroup) -> None:
        leader, late = group.member(), group.member()
        plans = [Plan(generation, {leader.name: parts(generation)}) for generation in (1, 2)]
        assert all(leader.coordinator.propose(plan) for plan in plans)

        refused = [late.coordinator.propose(Plan(generation, {late.name: [ONE]})) for generation in (1, 2, 4)]

        assert refused == [False, False, False]
        assert late.coordinator.plan() == plans[-1]

    def test_a_plan_of_ten_thousand_partitions_fits(self, group: MemberGroup) -> None:
        leader = group.member()
        many = [Partition(f"queue-{queue}", number) for queue in range(50) for number in range(1, 201)]
        plan = Plan(1, assign_sticky([f"worker-{number:08x}" for number in range(20)], many, {}))

        assert leader.coordinator.propose(plan)

        assert leader.coordinator.plan().partitions() == set(many)

    # Which member has what

    def test_of_two_members_one_gets_the_claim(self, group: MemberGroup) -> None:
        first, second = group.member(), group.member()
        got = first.claim(ONE, TWO)

        assert partitions_of(got.values()) == [ONE, TWO]
        assert partitions_of(second.claim(ONE, TWO, THREE).values()) == [THREE]
        assert second.coordinator.owners() == {
            ONE: (first.name, got[ONE].generation),
            TWO: (first.name, got[TWO].generation),
            THREE: (second.name, 1),
        }

    def test_claiming_again_gives_the_same_claim(self, group: MemberGroup) -> None:
        member = group.member()
        first = member.claim(ONE)

        assert member.claim(ONE) == first
        assert member.claim(ONE, TWO)[ONE] == first[ONE]

    def test_groups_know_nothing_of_each_other(self, group: MemberGroup, other_group: MemberGroup) -> None:
        mine, theirs = group.member(), other_group.member()

        assert mine.claim(ONE)
        assert theirs.claim(ONE)
        assert [member.name for member in theirs.coordinator.members()] == [theirs.name]

    def test_the_generation_rises_with_each_owner(self, group: MemberGroup) -> None:
        members = [group.member() for _ in range(3)]
        generations = []
        for member in members * 2:
            claim = member.claim_one(ONE)
            generations.append(claim.generation)
            member.coordinator.release([claim])

        assert generations[0] == 1
        assert generations == sorted(set(generations))

    def test_what_is_released_is_free(self, group: MemberGroup) -> None:
        first, second = group.member(), group.member()
        claims = first.claim(ONE, TWO)

        first.coordinator.release([claims[ONE]])

        assert partitions_of(second.claim(ONE, TWO).values()) == [ONE]

    def test_releasing_what_is_lost_frees_nobody_elses(self, group: MemberGroup) -> None:
        first, second, third = (group.member() for _ in range(3))
        old = first.claim_one(ONE)
        first.coordinator.release([old])
        new = second.claim_one(ONE)

        first.coordinator.release([old])

        assert third.claim(ONE) == {}
        assert second.commit(new, group.place(1))

    # How far the group has got

    def test_a_new_partition_has_no_offset(self, group: MemberGroup) -> None:
        member = group.member()

        assert member.coordinator.claim([ONE]) == {Claim(ONE, 1): None}
        assert member.coordinator.offsets() == {}

    def test_who_claims_is_told_where_to_go_on(self, group: MemberGroup) -> None:
        first, second = group.member(), group.member()
        claims = first.claim(ONE, TWO)
        assert first.commit(claims[ONE], group.place(7))
        assert first.commit(claims[ONE], group.place(8))
        first.coordinator.release(claims.values())

        found = second.coordinator.claim([ONE, TWO])

        assert {claim.partition: offset for claim, offset in found.items()} == {ONE: group.place(8), TWO: None}
        assert group.coordinator().offsets() == {ONE: group.place(8)}

    def test_a_former_owner_commits_nothing_and_the_rest_is_recorded(self, group: MemberGroup) -> None:
        """Whatever it believes: its own claim, one of a lower generation, or one that it never had (G14)."""
        former, owner = group.member(), group.member()
        claims = former.claim(ONE, TWO, THREE)
        former.commit(claims[TWO], group.place(500))
        former.coordinator.release([claims[TWO]])
        new = owner.claim_one(TWO)
        wrong = [claims[TWO], Claim(TWO, new.generation + 1)]

        for believed in wrong:
            offsets = {claims[ONE]: group.place(10), believed: group.place(120), claims[THREE]: group.place(30)}
            assert list(former.coordinator.commit(offsets)) == [believed]

        assert owner.coordinator.offsets() == {ONE: group.place(10), TWO: group.place(500), THREE: group.place(30)}
        assert owner.commit(new, group.place(501))

    def test_many_commits_at_once_are_recorded_but_for_the_lost(self, group: MemberGroup) -> None:
        former, owner = group.member(), group.member()
        claims = former.claim(*parts(*range(1, 201)), *parts(*range(1, 201), queue="r"))
        taken = [ONE, *parts(1, 100, 200, queue="r")]
        lost = [claims[partition] for partition in taken]
        former.coordinator.release(lost)
        owner.claim(*taken)
        places = {partition: group.place(partition.number, partition.queue) for partition in claims}

        refused = former.coordinator.commit({claim: places[partition] for partition, claim in claims.items()})

        assert sorted(refused) == sorted(lost)
        assert former.coordinator.offsets() == {part: at for part, at in places.items() if part not in taken}

    def test_resetting_fences_the_owner(self, group: MemberGroup) -> None:
        owner = group.member()
        claims = owner.claim(ONE, TWO, THREE)
        for claim in claims.values():
            owner.commit(claim, group.place(9))

        group.coordinator().reset({ONE: group.place(3), TWO: None})

        assert [owner.commit(claims[partition], group.place(10)) for partition in (ONE, TWO, THREE)] == [
            False,
            False,
            True,
        ]
        assert owner.coordinator.offsets() == {ONE: group.place(3), THREE: group.place(10)}
        again = owner.coordinator.claim([ONE, TWO])
        assert {claim.partition: offset for claim, offset in again.items()} == {ONE: group.place(3), TWO: None}
        assert all(claim.generation > claims[claim.partition].generation for claim in again)
        assert owner.coordinator.commit(dict.fromkeys(again, group.place(4))) == []

    def test_a_partition_nobody_had_can_be_reset(self, group: MemberGroup) -> None:
        group.coordinator().reset({ONE: group.place(3), TWO: None})

        found = group.member().coordinator.claim([ONE, TWO])

        assert {claim.partition: offset for claim, offset in found.items()} == {ONE: group.place(3), TWO: None}

    def test_a_first_offset_is_given_once_and_never_set_back(self, group: MemberGroup) -> None:
        """Several may try at once; one that is slow comes when the group has gone on."""
        first, second = group.coordinator(), group.coordinator()

        assert first.begin({ONE: group.place(1), TWO: group.place(1)}) == [ONE, TWO]
        assert second.begin({ONE: group.place(1), THREE: group.place(3)}) == [THREE]

        owner = group.member()
        claim = owner.claim_one(ONE)
        assert owner.commit(claim, group.place(5))
        owner.coordinator.release([claim])
        assert second.begin({ONE: group.place(1)}) == []
        assert second.offsets() == {ONE: group.place(5), TWO: group.place(1), THREE: group.place(3)}

    def test_who_owns_a_partition_is_given_no_offset_by_others(self, group: MemberGroup) -> None:
        owner, late = group.member(), group.coordinator()
        claim = owner.claim_one(ONE)

        assert late.begin({ONE: group.place(4)}) == []

        assert owner.commit(claim, group.place(1))
        assert late.offsets() == {ONE: group.place(1)}

    def test_a_look_at_a_group_that_is_not_there_makes_nothing(self, group: MemberGroup) -> None:
        before = group.everything()
        outside = group.coordinator()

        assert (outside.members(), outside.plan(), outside.resets()) == ([], Plan(), 0)
        assert (outside.owners(), outside.offsets(), list(outside.known())) == ({}, {}, [])

        assert group.everything() == before
        group.member()
        assert len(outside.members()) == 1
        assert group.everything() != before

    def test_a_queue_made_anew_begins_lower(self, group: MemberGroup) -> None:
        member = group.member()
        claim = member.claim_one(ONE)
        assert member.commit(claim, group.place(9))
        before = group.place(9).incarnation

        group.make_anew("q")

        assert group.place(1).incarnation != before
        assert member.commit(claim, group.place(1))
        assert member.coordinator.offsets() == {ONE: group.place(1)}

    def test_who_owns_hears_of_a_reset_and_finds_another_claim(self, group: MemberGroup) -> None:
        """Also a member that has nothing to commit, and so would not be refused."""
        owner = group.member()
        claims = owner.claim(ONE, TWO)
        resets, told = owner.coordinator.resets(), owner.told

        group.coordinator().reset({ONE: group.place(3)})

        group.until(lambda: owner.told > told)
        assert owner.coordinator.resets() > resets
        again = owner.coordinator.claim([ONE, TWO])
        assert again[claims[TWO]] is None
        assert claims[ONE] not in again
        assert group.place(3) in again.values()

    def test_who_looks_finds_all_partitions_that_ever_had_an_owner_or_a_place(self, group: MemberGroup) -> None:
        """Also those that no plan has: an offset is never out of sight."""
        member, outside = group.member(), group.coordinator()
        assert list(outside.known()) == []

        assert member.commit(member.claim_one(ONE), group.place(1))
        outside.reset({TWO: group.place(2)})
        member.coordinator.leave()

        assert sorted(outside.known()) == [ONE, TWO]
        assert outside.offsets() == {ONE: group.place(1), TWO: group.place(2)}

    def test_a_reset_takes_nothing_from_its_owner_but_the_place(self, group: MemberGroup) -> None:
        """A job may be under way: nobody else begins before its owner has given the partition back (G15)."""
        owner, other = group.member(), group.member()
        claim = owner.claim_one(ONE)

        group.coordinator().reset({ONE: group.place(3)})

        assert other.claim(ONE) == {}
        owner.coordinator.release([claim])
        group.until(lambda: other.claim(ONE))
        ((_, offset),) = other.coordinator.claim([ONE]).items()
        assert offset == group.place(3)

    def test_whatever_happens_only_the_latest_claim_moves_the_offset(self, group: MemberGroup) -> None:
        members = [group.member() for _ in range(3)]

        @settings(max_examples=15, phases=[Phase.generate])
        @given(steps=st.lists(STEPS, max_size=25))
        def histories(steps: list[tuple[str, int]]) -> None:
            history = History(group, members)
            for what, who in steps:
                history.do(what, who)

        histories()

    # Death

    def test_the_claims_of_the_dead_are_free(self, group: MemberGroup) -> None:
        dead, other = group.member(), group.member()
        old = dead.claim_one(ONE)
        dead.commit(old, group.place(7))

        group.end_session(dead)

        assert [member.name for member in other.coordinator.members()] == [other.name]
        assert other.coordinator.owners() == {}
        ((new, offset),) = other.coordinator.claim([ONE]).items()
        assert new.generation > old.generation
        assert offset == group.place(7)

    def test_the_dead_hear_of_it_and_can_do_nothing(self, group: MemberGroup) -> None:
        dead, other = group.member(), group.member()
        old = dead.claim_one(ONE)
        group.end_session(dead)
        new = other.claim_one(ONE)
        told = dead.told

        group.until(lambda: dead.told > told and not dead.coordinator.trusted())
        group.until(dead.is_lost)

        with pytest.raises(SessionLost):
            dead.claim(ONE, TWO)
        with pytest.raises(SessionLost):
            dead.coordinator.propose(Plan(1, {}))
        assert not group.again(lambda: dead.commit(old, group.place(9)))
        assert other.commit(new, group.place(1))

    def test_who_was_dead_joins_anew_and_its_old_claims_are_worth_nothing(self, group: MemberGroup) -> None:
        dead, other = group.member(), group.member()
        old = dead.claim_one(ONE)
        group.end_session(dead)
        new = other.claim_one(ONE)
        group.until(dead.is_lost)

        again = group.again(lambda: dead.coordinator.join({"name": "again"}))

        assert [member.name for member in other.coordinator.members()] == [other.name, again]
        assert dead.claim(ONE) == {}
        assert not dead.commit(old, group.place(9))
        assert other.commit(new, group.place(1))

    # Trust, and being told

    def test_who_hears_nothing_is_not_trusted_before_anybody_can_take_over(self, group: MemberGroup) -> None:
        member = group.member()
        assert member.coordinator.trusted()

        group.pass_unheard(member.coordinator, SESSION_SECONDS * TRUSTED_SHARE + 0.01)

        assert not member.coordinator.trusted()
        assert [one.name for one in group.coordinator().members()] == [member.name]
        group.until(member.coordinator.trusted)

    def test_who_is_no_member_is_not_trusted(self, group: MemberGroup) -> None:
        coordinator = group.coordinator()
        assert not coordinator.trusted()
        coordinator.join({})
        coordinator.leave()

        assert not coordinator.trusted()

    def test_who_looked_is_told_when_it_changes(self, group: MemberGroup) -> None:
        watching, other = group.member(), group.member()
        claim = other.claim_one(ONE)

        def look() -> int:
            watching.coordinator.members()
            watching.coordinator.plan()
            watching.claim(ONE)
            return watching.told

        told = look()
        third = group.member()
        group.until(lambda: watching.told > told)
        told = look()
        other.coordinator.propose(Plan(1, {}))
        group.until(lambda: watching.told > told)
        told = look()
        other.coordinator.release([claim])
        group.until(lambda: watching.told > told)
        told = look()
        third.coordinator.leave()
        group.until(lambda: watching.told > told)
