"""The rule of leases against a plain model of it: whatever happens, in whatever order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from queuey.ids import TICKS_PER_SECOND, ZERO_ID, MessageId
from queuey.model.columns import Columns
from queuey.model.holes import LEASED, Hole, most_beside, together_flags
from queuey.model.lease_codec import decode_changes, encode_change
from queuey.model.lease_requests import MOVE_AGAIN_SECONDS
from queuey.model.lease_state import Change, LeaseState, changes_of, merged, state_of
from queuey.model.leases import Action, Backoff, LeaseRules, Received, ReceiveRequest, Settle, receive, renew, settle
from queuey.model.messages import Message
from queuey.model.receiving import Receive, ReceiveByKey
from queuey.storage.contract.lease_receiver import as_columns

NEVER = 1 << 60
START = 1_000 * TICKS_PER_SECOND
LOOK_AHEAD = 7
USUAL_RULES = LeaseRules()
KEYS = [None, "a", "b", "c"]
SETTLES = [action for action in Action if action is not Action.MOVED]


@dataclass
class Fate:
    """What the plain model knows of one message."""

    key: str | None
    deliveries: int = 0
    failures: int = 0
    visible_at: int = 0
    receiver: str = ""
    is_leased: bool = False
    beside: int = 1
    """Messages of the receive that handed it out."""
    is_rejected: bool = False


@dataclass
class Log:
    """A partition, and a group's state in it."""

    rules: LeaseRules = USUAL_RULES
    now: int = START
    messages: list[Message] = field(default_factory=list)
    state: LeaseState = field(default_factory=LeaseState)
    changes: list[Change] = field(default_factory=list)
    """Those that made the state."""

    def take(self, change: Change) -> None:
        self.state.take(change)
        self.changes.append(change)

    def restart(self, *, folds: bool) -> None:
        """Read the state from its changes, or from those that make it anew."""
        stored = changes_of(self.state) if folds else merged(self.changes)
        self.changes = [*decode_changes(b"".join(map(encode_change, stored)))]
        self.state = state_of(self.changes)

    def append(self, *keys: str | None) -> list[MessageId]:
        for key in keys:
            self.now += 1
            self.messages.append(Message(self.now, 3, NEVER, None, key, b""))
        return [message.id for message in self.messages[-len(keys) :]]

    def pass_time(self, seconds: float) -> None:
        self.now += round(seconds * TICKS_PER_SECOND)

    def ahead(self, rows: int = LOOK_AHEAD) -> Columns:
        return Columns.of([one for one in self.messages if one.id > self.state.frontier][:rows])

    def receive(self, pick: Callable[[int], int] = lambda n: 0, **wanted: object) -> list[Hole]:
        """The holes that were handed out, as they are now."""
        return self.taken(self.look(pick, **wanted))

    def look(self, pick: Callable[[int], int] = lambda n: 0, **wanted: object) -> Received:
        while (span := self.state.to_look_up) is not None:
            found = [one for one in self.messages if span.after < one.id <= span.upto][:LOOK_AHEAD]
            upto = found[-1].id if len(found) == LOOK_AHEAD else span.upto
            self.state.look_up(Columns.of(found), upto)
        self._ahead = self.ahead()
        return receive(self.state, ReceiveRequest(**wanted), self.rules, self.now, self._ahead, pick)  # type: ignore[arg-type]

    def taken(self, received: Received) -> list[Hole]:
        self.take(received.change)
        ahead = self._ahead
        fresh = [MessageId(ahead.ticks[at], ahead.tails[at]) for at in received.fresh]
        return [*received.again, *(received.hole._replace(id=one) for one in fresh)]

    def settle(self, message_id: MessageId, delivery: int, action: Action, **more: object) -> bool:
        """Whether the lease counted."""
        settles = as_columns([Settle(message_id, delivery, action, **more)])  # type: ignore[arg-type]
        settled = settle(self.state, settles, self.rules, self.now)
        self.take(settled.change)
        return not settled.stale


class Model(RuleBasedStateMachine):
    """One history of a group in a partition."""

    def __init__(self, *, orders_keys: bool, stops: bool = False) -> None:
        """:param stops: the group orders keys no more, at some time."""
        super().__init__()
        self.orders_keys, self.stops = orders_keys, stops
        self.fates: dict[MessageId, Fate] = {}
        self.settled: set[MessageId] = set()
        self.receipts: list[tuple[MessageId, int]] = []
        self.renewed: dict[str, int] = {}
        """Until when each receiver's leases were extended."""

    @initialize(per_key=st.integers(1, 3), k=st.sampled_from([1, 1, 3]), most=st.sampled_from([0, 1, 3]))
    def begin(self, per_key: int, k: int, most: int) -> None:
        self.log = Log(LeaseRules(most, Backoff(), self.orders_keys, per_key, k, max_leased=9, max_held=12))

    @rule(keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=6))
    def append(self, keys: list[str | None]) -> None:
        for message_id, key in zip(self.log.append(*keys), keys, strict=True):
            self.fates[message_id] = Fate(key, visible_at=message_id.ticks)

    @rule(seconds=st.sampled_from([0.1, 3.0, 11.0, 70.0]))
    def time_passes(self, seconds: float) -> None:
        self.log.pass_time(seconds)

    @rule(
        most=st.integers(1, 5),
        visibility=st.sampled_from([0, 10, 60]),
        pop=st.booleans(),
        receiver=st.sampled_from("xy"),
        data=st.data(),
    )
    def receive(self, most: int, visibility: int, pop: bool, receiver: str, data: st.DataObject) -> None:
        pick = lambda n: data.draw(st.integers(0, n - 1)) if n > 1 else 0  # noqa: E731
        received = self.log.look(pick, most=most, visibility_seconds=visibility, pop=pop, receiver=receiver)
        before = {message_id: fate.visible_at for message_id, fate in self.fates.items()}
        handed = self.log.taken(received)
        assert len(handed) <= most
        assert len({hole.id for hole in handed}) == len(handed)
        for hole in handed:
            self._handed(hole, before, handed, visibility, receiver, pop=pop)
        for hole in received.given_up:
            fate = self.fates[hole.id]
            assert fate.is_rejected or self._failures(fate) >= self.log.rules.max_failures > 0
            assert fate.visible_at <= self.log.now
            del self.fates[hole.id]
            self.settled.add(hole.id)
            self.log.take(Change(closed=[hole.id], dead=1))
        if self.orders_keys:
            self._in_order([hole.id for hole in handed])

    def _failures(self, fate: Fate) -> int:
        return fate.failures + (fate.is_leased and fate.beside == 1)

    def _handed(
        self, hole: Hole, before: dict[MessageId, int], handed: list[Hole], visibility: int, receiver: str, *, pop: bool
    ) -> None:
        assert hole.id not in self.settled, "handed out after it was settled"
        assert before[hole.id] <= self.log.now, "handed out while somebody has it, or before its time"
        fate = self.fates[hole.id]
        may_have_ended = fate.is_leased and fate.beside > 1
        most = most_beside(together_flags(fate.beside))
        assert not may_have_ended or len(handed) <= most, "one that may have ended its receiver has many beside it"
        fate.failures, fate.deliveries = self._failures(fate), fate.deliveries + 1
        assert (hole.deliveries, hole.failures) == (fate.deliveries, fate.failures)
        assert not self.log.rules.max_failures or fate.failures < self.log.rules.max_failures
        if fate.failures and fate.failures == self.log.rules.max_failures - 1:
            assert len(handed) == 1, "a last try goes with others"
        fate.is_leased, fate.beside, fate.receiver = True, len(handed), receiver
        fate.visible_at = self.log.now + visibility * TICKS_PER_SECOND
        if pop:
            del self.fates[hole.id]
            self.settled.add(hole.id)
        else:
            self.receipts.append((hole.id, hole.deliveries))

    def _in_order(self, ids: list[MessageId]) -> None:
        """Of each key, what was handed out are its first messages, and nothing of it is out beside them."""
        of_keys: dict[str, list[MessageId]] = {}
        for message_id in ids:
            key = next(message.key for message in self.log.messages if message.id == message_id)
            if key is not None:
                of_keys.setdefault(key, []).append(message_id)
        for key, given in of_keys.items():
            assert given == sorted(given)
            assert len(given) <= self.log.rules.per_key
            others = [
                one for one, fate in self.fates.items() if fate.key == key and one not in given and not fate.is_rejected
            ]
            assert all(one > max(given) for one in others), "an earlier message of the key is not settled"

    @precondition(lambda self: self.receipts)
    @rule(
        data=st.data(),
        action=st.sampled_from(SETTLES),
        seconds=st.sampled_from([None, 0.0, 5.0, 40.0]),
        counts=st.booleans(),
    )
    def settle(self, data: st.DataObject, action: Action, seconds: float | None, counts: bool) -> None:
        message_id, delivery = data.draw(st.sampled_from(self.receipts))
        fate = self.fates.get(message_id)
        if action is Action.REMOVE:  # whoever has it
            assert self.log.settle(message_id, delivery, action)
            if self.fates.pop(message_id, None) is not None:
                self.settled.add(message_id)
            return
        is_fresh = fate is not None and fate.is_leased and fate.deliveries == delivery
        assert self.log.settle(message_id, delivery, action, seconds=seconds, counts=counts) == is_fresh
        if fate is None or not is_fresh:
            return
        if action is Action.ACKNOWLEDGE:
            del self.fates[message_id]
            self.settled.add(message_id)
        elif action is Action.EXTEND:
            fate.visible_at = self.log.now + round((seconds or 0.0) * TICKS_PER_SECOND)
        else:
            fate.is_leased, fate.is_rejected = False, action is Action.REJECT
            fate.failures += action is Action.RELEASE and counts
            hole = self.log.state.holes.find(message_id)
            assert hole is not None
            fate.visible_at = hole.visible_at
            waits = seconds if seconds is not None else 0.0 if not counts else None
            if action is Action.RELEASE and waits is not None:
                assert fate.visible_at == self.log.now + round(waits * TICKS_PER_SECOND)

    @rule(receiver=st.sampled_from("xy"), seconds=st.sampled_from([5.0, 60.0]))
    def renew(self, receiver: str, seconds: float) -> None:
        self.log.now += 1
        self.log.state.forget_renewals(self.log.now)
        self.log.take(renew(self.log.state, receiver, seconds, self.log.now))
        until = max(self.log.now + round(seconds * TICKS_PER_SECOND), self.renewed.get(receiver, 0))
        self.renewed[receiver] = until
        for fate in self.fates.values():
            if fate.is_leased and fate.receiver == receiver:
                fate.visible_at = max(fate.visible_at, until)

    @precondition(lambda self: self.stops and self.orders_keys)
    @rule()
    def order_no_more(self) -> None:
        self.orders_keys = False
        self.log.rules = self.log.rules._replace(orders_keys=False)

    @rule(folds=st.booleans())
    def restart(self, folds: bool) -> None:
        self.log.restart(folds=folds)

    @invariant()
    def holes_are_what_is_unsettled_behind_the_frontier(self) -> None:
        if not hasattr(self, "log"):
            return
        state = self.log.state
        unsettled = {message_id for message_id in self.fates if message_id <= state.frontier}
        holes = {hole.id for hole in state.holes}
        assert holes <= unsettled
        firsts = [(one.id, state.skipped.get(one.key)) for one in self.log.messages if one.key is not None]
        passed = {one for one, first in firsts if first is not None and first <= one <= state.frontier}
        assert holes | passed >= unsettled, "a message was passed over for good"
        assert passed == unsettled - holes, "a message is looked up that is settled or out"
        assert state.leased == sum([hole.flags & LEASED for hole in state.holes])
        assert all(one > state.done_up_to for one in self.fates)

    def teardown(self) -> None:
        """In the end each message is handed out and settled."""
        if not hasattr(self, "log"):
            return
        for _ in range(40 * (len(self.fates) + 1)):
            if not self.fates:
                break
            self.log.pass_time(4000)
            received = self.log.look(most=3)
            for hole in self.log.taken(received):
                assert self.log.settle(hole.id, hole.deliveries, Action.ACKNOWLEDGE)
                del self.fates[hole.id]
            for hole in received.given_up:
                assert self.log.settle(hole.id, hole.deliveries, Action.MOVED)
                del self.fates[hole.id]
        assert not self.fates, "a message is never handed out"
        assert not len(self.log.state.holes)


USUAL = settings(max_examples=60, stateful_step_count=40, deadline=None, report_multiple_bugs=False)


@pytest.mark.parametrize(("orders_keys", "stops"), [(False, False), (True, False), (True, True)])
def test_the_rule_holds_whatever_happens(orders_keys: bool, stops: bool) -> None:
    run_state_machine_as_test(lambda: Model(orders_keys=orders_keys, stops=stops), settings=USUAL)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("orders_keys", "where", "name", "fault"),
    [
        (False, LeaseState, "visible_at", lambda self, hole: min(hole.visible_at, START)),
        (True, LeaseState, "visible_at", lambda self, hole: min(hole.visible_at, START)),
        (False, Receive, "_failures", lambda self, hole: hole.failures),
        (False, Receive, "_most_with", lambda self, hole, failures: 99),
        (False, LeaseState, "_settle", lambda self, closed: None),
        (False, Receive, "_untouched", lambda self, at: Hole(MessageId(0, 0), 0)),
        (True, ReceiveByKey, "_is_passed", lambda self, key: False),
        (True, LeaseState, "_open", lambda self, key: None),
        (True, LeaseState, "of_key", lambda self, key: ()),
        (True, LeaseState, "look_up", lambda self, found, upto: self.passed.add((), upto)),
    ],
)
def test_a_rule_with_a_fault_is_found(
    monkeypatch: pytest.MonkeyPatch, orders_keys: bool, where: type, name: str, fault: Callable[..., object]
) -> None:
    monkeypatch.setattr(where, name, fault)
    until_found = settings(USUAL, max_examples=4000, database=None, phases=[Phase.generate])
    with pytest.raises((AssertionError, ValueError, KeyError)):
        run_state_machine_as_test(lambda: Model(orders_keys=orders_keys), settings=until_found)  # type: ignore[arg-type]


def test_no_settles_settle_nothing() -> None:
    change, stale, given_up = settle(LeaseState(), as_columns([]), USUAL_RULES, START)
    assert not any([*change.holes, *change.closed, *stale, *given_up])


def test_what_was_consumed_leaves_no_trace() -> None:
    log = Log()
    stuck = log.append(None)[0]
    log.receive(visibility_seconds=1e6)
    for _ in range(1000):
        log.append(None)
        ((hole),) = log.receive()
        log.settle(hole.id, 1, Action.ACKNOWLEDGE)
    assert [hole.id for hole in log.state.holes] == [stuck]
    assert log.state.done_up_to == stuck.before()
    due = log.state.next_due()
    assert due is not None
    assert due > log.now + 1e5 * TICKS_PER_SECOND, "the next lease that ends is that of the stuck message"


def test_a_message_that_ends_its_receivers_gains_failures_alone() -> None:
    """G28: ten messages are handed out together, and one of them ends whoever has it."""
    log = Log(LeaseRules(max_failures=3))
    poison = log.append(*[None] * 10)[4]
    given_up: list[Hole] = []
    for _ in range(40):
        received = log.look(most=10)
        given_up += received.given_up
        handed = log.taken(received)
        if poison in [hole.id for hole in handed]:
            log.pass_time(31)
            continue
        for hole in handed:
            assert hole.failures == 0
            assert log.settle(hole.id, hole.deliveries, Action.ACKNOWLEDGE)
    assert {(hole.id, hole.failures) for hole in given_up} == {(poison, 3)}
    assert [hole.id for hole in log.state.holes] == [poison]


def test_a_message_that_is_given_up_is_reported_until_it_is_moved() -> None:
    log = Log()
    log.append(None)
    (hole,) = log.receive()
    assert not log.settle(hole.id, 1, Action.MOVED)
    assert log.settle(hole.id, 1, Action.REJECT, reason="not JSON")
    for _ in range(3):
        assert not log.look().given_up
        log.pass_time(MOVE_AGAIN_SECONDS)
        received = log.look()
        assert [one.id for one in received.given_up] == [hole.id]
        assert not log.taken(received)
    assert log.state.reasons == {hole.id: "not JSON"}
    assert log.settle(hole.id, 1, Action.MOVED)
    assert (log.state.dead, len(log.state.holes), log.state.reasons) == (1, 0, {})


def test_what_is_handed_out_beside_other_partitions_is_handed_out_together() -> None:
    log = Log()
    log.append(None, None)
    (first,) = log.taken(log.look().with_others(2))
    assert log.settle(first.id, 1, Action.RELEASE, counts=False)
    second, again = log.taken(log.look(most=2, others=3).with_others(5))
    assert [one.flags for one in (first, second, again)] == [LEASED | together_flags(number) for number in (2, 5, 5)]
    assert [*log.state.holes] == sorted([second, again])
    log.pass_time(60)
    assert not log.look(others=1).number, "it goes alone, since it ran out together with others"
    assert log.look(most=9).number == 1


def test_at_most_as_many_are_held_as_the_group_may_and_due_ones_go_on() -> None:
    log = Log(LeaseRules(max_held=2))
    log.append(None, None, None)
    held = log.receive(most=3)
    assert len(held) == 2
    received = log.look()
    assert (received.is_full, log.taken(received)) == (True, [])
    log.pass_time(31)
    assert {hole.id for hole in log.receive() + log.receive()} == {hole.id for hole in held}


def test_due_messages_and_new_ones_come_by_the_time_from_which_they_may_be_given() -> None:
    log = Log()
    first, second = log.append(None, None)
    log.receive(visibility_seconds=10)
    log.pass_time(20)
    third = log.append(None)[0]
    assert [log.receive()[0].id for _ in range(3)] == [second, first, third]


def test_several_messages_of_a_key_come_together_and_in_order() -> None:
    log = Log(LeaseRules(orders_keys=True, per_key=2))
    ids = log.append("a", "a", "a", "b")
    given = [hole.id for hole in log.receive(most=10)]
    assert given == [ids[0], ids[1], ids[3]]
    assert log.settle(ids[0], 1, Action.ACKNOWLEDGE)
    assert not log.receive(most=10)
    assert log.settle(ids[1], 1, Action.ACKNOWLEDGE)
    assert [hole.id for hole in log.receive(most=10)] == [ids[2]]


def test_a_key_whose_passed_messages_are_gone_is_forgotten() -> None:
    log = Log(LeaseRules(orders_keys=True))
    first, second = log.append("a", "a")
    log.receive(most=2)
    assert log.settle(first, 1, Action.ACKNOWLEDGE)
    assert not log.state.without_message().skipped
    log.messages = [one for one in log.messages if one.id != second]
    log.restart(folds=True)
    assert not log.state.without_message().skipped, "the log was not looked at yet"
    log.look()
    assert log.state.without_message().skipped == {"a": None}
    log.state.take(log.state.without_message())
    assert log.state.done_up_to == second


def test_the_next_moment_at_which_something_falls_due_is_known() -> None:
    log = Log()
    assert log.state.next_due() is None
    log.append(None)
    (hole,) = log.receive(visibility_seconds=10)
    before = log.state.next_due()
    assert before is not None
    assert log.now < before <= hole.visible_at


def test_what_was_due_before_it_became_known_is_due() -> None:
    """A server learns a fold of another one, after it has looked at what was due then."""
    folded, state = LeaseState(), LeaseState()
    folded.take(Change(holes=[Hole(MessageId(tick, 0), 5) for tick in range(1, 9)]))
    state.take(Change(holes=[Hole(MessageId(99, 0), 5)]))
    assert state.has_due(6)

    state.take(Change(block=folded.holes.block(ZERO_ID)._replace(upto=MessageId(9, 0))))

    found = []
    while due := state.take_due(6):
        found.append(due.hole.id.ticks)
    assert sorted(found) == [*range(1, 9), 99]


def test_leases_of_one_receive_are_one_small_change() -> None:
    log = Log()
    log.append(*[None] * 5)
    received = log.look(most=5)
    (fresh,) = received.change.fresh
    assert (len(fresh.ticks), received.change.holes) == (5, ())
    assert received.hole.flags == LEASED | together_flags(5)
