"""Servers let those go first whose last step is longest ago."""

from __future__ import annotations

from queuey.model.lease_groups import LeaseGroup
from queuey.storage.cassandra.lease_heads import GroupHead
from queuey.storage.cassandra.lease_turns import LeaseTurns


class Group:
    """A group that some servers use, each of which sees each step at once."""

    def __init__(self, servers: int) -> None:
        self.head = GroupHead(LeaseGroup(1), 0, 0, b"")
        self.servers = [LeaseTurns(at) for at in range(servers)]
        self.now = 100.0

    def step(self, server: int) -> None:
        turns = self.servers[server]
        turns.take(self.now)
        self.head = self.head.next(turns.name(1))
        for each in self.servers:
            each.note(self.head, self.now)

    def left(self) -> list[float]:
        return [turns.left(self.now) for turns in self.servers]


def test_one_server_waits_for_nobody() -> None:
    group = Group(1)
    for _ in range(3):
        group.step(0)
        assert group.left() == [0.0]


def test_the_one_whose_last_step_is_longest_ago_goes_first() -> None:
    group = Group(3)
    for server in (0, 1, 2, 1, 0):
        group.step(server)
    first, second, third = group.left()
    assert third == 0.0 < second < first <= 0.3
    group.step(2)
    first, second, third = group.left()
    assert second == 0.0 < first < third


def test_a_server_that_is_new_lets_one_go_first() -> None:
    group = Group(3)
    group.step(0)
    group.step(1)
    group.servers[2].ask(group.now)
    assert 0.0 < group.left()[2] <= 0.15
    group.step(0)
    assert group.left()[2] == 0.0


def test_who_does_not_take_its_turn_is_passed_over_until_its_next_step() -> None:
    group = Group(2)
    group.step(0)
    group.step(1)
    assert group.left()[1] > 0.0
    group.now += group.left()[1]
    group.step(1)
    assert group.left()[1] == 0.0
    group.step(0)
    group.step(1)
    assert group.left()[1] > 0.0


def test_nobody_waits_for_servers_that_are_gone() -> None:
    group = Group(2)
    group.step(0)
    group.step(1)
    group.now += 1.0
    assert group.left() == [0.0, 0.0]


def test_transactions_that_are_slow_or_lost_make_turns_longer() -> None:
    turns = LeaseTurns(1)
    before = turns.slot
    turns.took(0.02, is_lost=False)
    assert turns.slot > before
    for _ in range(10):
        turns.took(5.0, is_lost=True)
    assert before < turns.slot <= 0.15


def test_a_group_that_begins_anew_has_no_past() -> None:
    group = Group(2)
    for server in (0, 1, 0, 1):
        group.step(server)
    group.head = GroupHead(LeaseGroup(2), 0, 0, b"")
    group.step(0)
    assert group.left()[0] == 0.0


def test_servers_that_make_steps_at_once_have_met() -> None:
    group = Group(2)
    group.step(0)
    group.step(1)
    assert not group.servers[0].have_met(group.now), "a single step may be a change of the settings"
    group.step(1)
    assert group.servers[0].have_met(group.now)
    assert not group.servers[1].have_met(group.now)
    group.now += 3
    assert not group.servers[0].have_met(group.now)


def test_a_server_that_gets_no_step_done_has_met_those_that_do() -> None:
    """It had lost one transaction after the other, and gave up."""
    group = Group(3)
    group.step(0)
    late = group.servers[2]
    late.ask(group.now)
    group.step(0)
    group.step(1)
    assert late.have_met(group.now)


def test_steps_from_before_a_server_used_the_group_are_no_meeting() -> None:
    group = Group(2)
    for _ in range(3):
        group.step(0)
    restarted = LeaseTurns(9)
    restarted.ask(group.now)
    restarted.note(group.head, group.now)
    assert not restarted.have_met(group.now)
