"""Fair groups: keys with many leases wait behind others, and never for nothing."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queuey.ids import MessageId
from queuey.model import Columns, Message
from queuey.model.holes import LEASED
from queuey.model.lease_requests import Action, Received, ReceiveRequest, Settle
from queuey.model.lease_rules import LeaseRules
from queuey.model.lease_state import LeaseState, changes_of, state_of
from queuey.model.leases import receive, renew, settle
from queuey.model.receiving import is_noisy

FAIR = LeaseRules(fair=True)
KEYS = st.sampled_from(["a", "b", "c", None])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), KEYS, st.integers(1, 60)),
        st.tuples(st.just("receive"), st.just(None), st.integers(1, 50)),
        st.tuples(st.just("settle"), KEYS, st.integers(1, 40)),
        st.tuples(st.just("release"), KEYS, st.integers(1, 40)),
        st.tuples(st.just("restart"), st.just(None), st.just(0)),
        st.tuples(st.just("unfair"), st.just(None), st.integers(1, 10)),
    ),
    min_size=10,
    max_size=60,
)


class Model:
    """The rule, and beside it a plain list of what may be given and what is leased."""

    def __init__(self) -> None:
        self.state = LeaseState()
        self.messages: list[Message] = []
        self.free: dict[MessageId, str | None] = {}
        self.leased: dict[MessageId, tuple[str | None, int]] = {}
        """With the number of the delivery."""
        self.now = 10**9

    def append(self, key: str | None, number: int) -> None:
        for _ in range(number):
            message = Message(len(self.messages) + 1, 0, 10**18, None, key, b"")
            self.messages.append(message)
            self.free[message.id] = key

    def receive(self, most: int, rules: LeaseRules = FAIR) -> list[MessageId]:
        self.now += 1
        ahead = Columns.of([one for one in self.messages if one.id > self.state.frontier])
        found = receive(self.state, ReceiveRequest(most, 1e6), rules, self.now, ahead)
        self.state.take(found.change)
        handed = self._ids(found, ahead)
        for message_id in handed:
            hole = self.state.holes.find(message_id)
            assert hole is not None
            self.leased[message_id] = (hole.key, hole.deliveries)
            del self.free[message_id]
        return handed

    @staticmethod
    def _ids(found: Received, ahead: Columns) -> list[MessageId]:
        return [*(hole.id for hole in found.again), *(ahead[at].id for at in found.fresh)]

    def end(self, key: str | None, number: int, action: Action) -> None:
        self.now += 1
        some = [message_id for message_id, (of, _) in self.leased.items() if of == key][:number]
        settles = [Settle(one, self.leased[one][1], action, 0.0, counts=False) for one in some]
        self.state.take(settle(self.state, settles, FAIR, self.now).change)
        for one in some:
            of, _ = self.leased.pop(one)
            if action is Action.RELEASE:
                self.free[one] = of

    def counts(self) -> Counter[str | None]:
        return Counter(key for key, _ in self.leased.values())

    def check(self) -> None:
        assert self.state.leased == len(self.leased)
        if self.state.leased_of is not None:
            assert self.state.leased_of == {key: number for key, number in self.counts().items() if key is not None}


@settings(max_examples=60)
@given(STEPS)
def test_quiet_keys_come_first_and_nobody_waits_for_nothing(steps: list[tuple[str, str | None, int]]) -> None:
    model = Model()
    for what, key, number in steps:
        if what == "append":
            model.append(key, number)
        elif what == "receive":
            free, before = {**model.free}, model.counts()
            handed = model.receive(number)
            after = model.counts()
            assert len({*handed}) == len(handed) == min(number, len(free))
            noisy = [one for one in handed if _waits(free[one], before, after)]
            left = [one for one in free if one not in handed]
            if any(_is_surely_noisy(free[one], before, after) for one in noisy):
                assert all(_waits(free[one], before, after) for one in left)
        elif what == "restart":
            model.state = state_of(changes_of(model.state))
        elif what == "unfair":
            free = {**model.free}
            assert len(model.receive(number, LeaseRules())) == min(number, len(free))
        else:
            model.end(key, number, Action.ACKNOWLEDGE if what == "settle" else Action.RELEASE)
        model.check()


def _waits(key: str | None, before: Counter[str | None], after: Counter[str | None]) -> bool:
    """Whether a key may have been noisy at some time of a receive."""
    return key is not None and is_noisy(after[key], before.total())


def _is_surely_noisy(key: str | None, before: Counter[str | None], after: Counter[str | None]) -> bool:
    """Whether a key was noisy during all of a receive."""
    return key is not None and is_noisy(before[key], after.total())


def test_a_noisy_key_waits_until_it_has_fewer_leases() -> None:
    model = Model()
    model.append("noisy", 100)
    assert len(model.receive(40)) == 40
    model.append("quiet", 3)
    assert sorted(str(model.leased[one][0]) for one in model.receive(4)) == ["noisy", "quiet", "quiet", "quiet"]
    model.end("noisy", 15, Action.ACKNOWLEDGE)
    model.append("quiet", 1)
    assert [model.leased[one][0] for one in model.receive(2)] == ["noisy", "noisy"], "26 leases are not noisy"


@pytest.mark.parametrize("looks_on", [True, False])
def test_a_receive_passes_over_what_is_ahead_only_if_there_is_more(looks_on: bool) -> None:
    model = Model()
    model.append("noisy", 90)
    model.receive(40)
    ahead = Columns.of([one for one in model.messages if one.id > model.state.frontier])
    found = receive(model.state, ReceiveRequest(5, looks_on=looks_on), FAIR, model.now + 1, ahead)
    assert found.number == (0 if looks_on else 5)
    model.state.take(found.change)
    held = [hole for hole in model.state.holes if not hole.flags & LEASED]
    assert len(held) == (50 if looks_on else 0)
    assert found.change.frontier == ahead[49 if looks_on else 4].id


@pytest.mark.parametrize("renewed", ["before", "meanwhile"])
def test_what_a_renewal_moves_while_it_is_held_back_is_handed_out(renewed: str) -> None:
    """A renewal that has ended is forgotten, and the leases that it made longer have ended earlier then."""
    model = Model()
    model.append("noisy", 40)
    handed = model.receive(40)
    model.now += 1
    if renewed == "before":
        model.state.take(renew(model.state, "", 2e6, model.now))
    model.now += 3 * 10**13  # behind the end of all leases
    model.append("quiet", 1)
    ahead = Columns.of(model.messages[40:])
    found = receive(model.state, ReceiveRequest(2, blames_each=True), FAIR, model.now, ahead)
    model.state.take(found.change)
    assert ([*found.fresh], len(found.again), len(model.state.held_back)) == ([0], 1, 39)

    if renewed == "meanwhile":
        model.state.take(renew(model.state, "", 2e6, model.now))
        assert not model.receive(50)
    model.now += 3 * 10**13
    model.state.forget_renewals(model.now)
    again: list[MessageId] = []
    while True:  # they come back in small receives
        found = receive(model.state, ReceiveRequest(50, 1e6), FAIR, model.now, Columns.of([]))
        model.state.take(found.change)
        if not found.again:
            break
        again += [hole.id for hole in found.again]
    assert sorted(again) == [*handed, ahead[0].id]


def test_what_was_extended_while_it_is_held_back_is_handed_out_once() -> None:
    model = Model()
    model.append("noisy", 40)

    def handed(most: int) -> list[MessageId]:
        ahead = Columns.of([one for one in model.messages if one.id > model.state.frontier])
        found = receive(model.state, ReceiveRequest(most, 1e6, blames_each=True), FAIR, model.now, ahead)
        model.state.take(found.change)
        return model._ids(found, ahead)

    *_, last = handed(40)
    model.append("quiet", 1)
    model.now += 2 * 10**13  # behind the end of all leases
    assert (len(handed(2)), len(model.state.held_back)) == (2, 39)
    model.state.take(settle(model.state, [Settle(last, 1, Action.EXTEND, 0.0)], FAIR, model.now).change)
    model.now += 1
    once = [*handed(38), *handed(50)]
    assert (len(once), len({*once})) == (39, 39)
