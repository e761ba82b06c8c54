"""Weak groups: what servers know of each other's changes, however late or lost, loses no message."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queuey.ids import TICKS_PER_SECOND, ZERO_ID, MessageId
from queuey.model import Columns, Message, lease_merging
from queuey.model.lease_codec import encode_change
from queuey.model.lease_merging import LearnedChange, Merger, since_each
from queuey.model.lease_requests import Action, ReceiveRequest, Settle
from queuey.model.lease_rules import LeaseRules
from queuey.model.lease_state import Change, LeaseState
from queuey.model.leases import receive, settle

_MESSAGES = [Message(ticks, 0, 1 << 60, None, None, b"") for ticks in range(1, 41)]
_AHEAD = Columns.of(_MESSAGES)
_SECOND = TICKS_PER_SECOND


class _Server:
    """One server that hands out the messages of one partition."""

    def __init__(self) -> None:
        self.state, self.merger = LeaseState(), Merger()
        self.heard: list[LearnedChange] = []
        """What it may learn of."""
        self.duplicates = 0

    def carry_out(self, change: Change) -> LearnedChange:
        learned = LearnedChange(self.state.frontier, change)
        self.state.take(change)
        self.merger.made(encode_change(change))
        return learned

    def learn(self, at: int) -> None:
        self.duplicates += self.merger.learn(self.state, self.heard.pop(at), self.state.take)

    def misses(self, ended: set[MessageId]) -> list[MessageId]:
        """Messages that nobody has settled, and that this server would never hand out."""
        state = self.state
        return [
            message.id
            for message in _MESSAGES
            if message.id not in ended and message.id <= state.frontier and state.holes.find(message.id) is None
        ]


def _receive(server: _Server, most: int, now: int, k: int, receiver: str) -> tuple[LearnedChange, list[MessageId]]:
    state = server.state
    start = next((at for at, one in enumerate(_MESSAGES) if one.id > state.frontier), len(_MESSAGES))
    ahead = _AHEAD[start:]
    wanted = ReceiveRequest(most, 1.0, receiver=receiver)
    found = receive(state, wanted, LeaseRules(max_failures=0, k=k), now, ahead, lambda count: count - 1)
    ids = [hole.id for hole in found.again] + [ahead[at].id for at in found.fresh]
    return server.carry_out(found.change), ids


_STEPS = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from("rrallld"), st.integers(0, 30), st.integers(1, 4)), max_size=60
)


def _play(steps: list[tuple[int, str, int, int]]) -> None:
    servers = [_Server() for _ in range(3)]
    ended: set[MessageId] = set()
    now = 1000
    for number, (which, what, any_, size) in enumerate(steps):
        server, others = servers[which], [one for at, one in enumerate(servers) if at != which]
        now += _SECOND // 3
        if what == "r":
            said: LearnedChange | None
            said, _ = _receive(server, size, now, size, f"{which} {number}")
        elif what == "a" and len(server.state.holes):
            holes = list(server.state.holes)
            hole = holes[any_ % len(holes)]
            settled = settle(server.state, [Settle(hole.id, hole.deliveries, Action.ACKNOWLEDGE)], LeaseRules(), now)
            if not settled.stale:
                ended.add(hole.id)
            said = server.carry_out(settled.change)
        elif what == "l" and server.heard:
            server.learn(any_ % len(server.heard))
            said = None
        elif what == "d" and server.heard:
            server.heard.pop(any_ % len(server.heard))
            said = None
        else:
            continue
        for other in others:
            other.heard += [] if said is None else [said]
        assert not [one.misses(ended) for one in servers if one.misses(ended)]


@given(_STEPS)
@settings(max_examples=300, deadline=None)
def test_no_message_is_lost_whatever_is_late_or_lost(steps: list[tuple[int, str, int, int]]) -> None:
    _play(steps)


def test_a_planted_fault_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that takes the frontier of another without what lies before it."""

    def learn(merger: Merger, state: LeaseState, learned: LearnedChange, take: object) -> int:
        merged = Merger._merged(merger, state, learned._replace(since=ZERO_ID))
        if merged is not None:
            state.take(merged)
        return 0

    monkeypatch.setattr(Merger, "learn", learn)
    with pytest.raises(AssertionError):
        _play([(0, "r", 0, 2), (0, "r", 0, 2), (1, "d", 0, 1), (1, "l", 0, 1)])


def test_each_duplicate_is_counted_once() -> None:
    first, second = _Server(), _Server()
    said, (one,) = _receive(first, 1, 1000, 1, "a")
    also_said, (same,) = _receive(second, 1, 1000, 1, "b")
    assert one == same
    second.heard.append(said)
    second.learn(0)
    first.heard.append(also_said._replace(is_after=True))
    first.learn(0)
    extended = settle(first.state, [Settle(one, 1, Action.EXTEND, 5.0)], LeaseRules(), 1002)
    second.heard.append(first.carry_out(extended.change))
    second.learn(0)
    assert (first.duplicates, second.duplicates) == (0, 1)


def test_what_was_settled_stays_settled_when_its_lease_is_learned_of_late() -> None:
    first, second, third = _Server(), _Server(), _Server()
    leased, (one,) = _receive(first, 1, 1000, 1, "a")
    second.heard.append(leased)
    second.learn(0)
    done = second.carry_out(settle(second.state, [Settle(one, 1, Action.ACKNOWLEDGE)], LeaseRules(), 1001).change)
    third.heard = [done, leased]
    third.learn(0)
    third.learn(0)
    assert not len(third.state.holes)
    assert third.state.frontier == one


def test_changes_made_one_after_the_other_each_move_on_from_the_one_before() -> None:
    moves = [Change(MessageId(1, 0)), Change(), Change(MessageId(3, 0))]
    assert [one.since.ticks for one in since_each(MessageId(0, 0), moves, is_after=False)] == [0, 1, 1]


def test_of_what_a_server_made_alone_the_last_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_merging, "_MOST_MADE_BYTES", 300)
    first, second = _Server(), _Server()
    for _ in range(9):
        first.heard.append(_receive(second, 1, 1000, 1, "b")[0])
        _receive(first, 1, 1001, 1, "a")
    assert 0 < sum(map(len, first.merger._made)) <= 300
    for _ in range(9):
        first.learn(0)
    assert 0 < first.duplicates < 9
