"""Histories of a lease group: appends, deletes, expiry, receives and settles in any order, across restarts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from queuey.clock import ManualClock
from queuey.ids import MessageId
from queuey.model import AppendRequest, Draft, IdempotencyKey, encode_headers
from queuey.model.lease_groups import NO_ORDER, ORDER_BY_KEY
from queuey.model.lease_requests import MOVE_AGAIN_SECONDS, Action, ReceiveRequest, Settle
from queuey.model.lease_steps import HandedOut, LeaseOutcome, RenewAll
from queuey.model.only_groups import only_for
from queuey.storage import Stores
from queuey.storage.contract.common import SECOND, QueueLog, draft
from queuey.storage.contract.lease_receiver import Receiver, settle_of
from queuey.storage.leasing import ATTEMPT_SECONDS

__all__ = ["LeaseHistory"]

_PARTITIONS = st.integers(1, 2)
_ANY = st.integers(0, 1000)
"""Chooses one of those known so far; it wraps around."""
_ACTIONS = st.sampled_from([Action.ACKNOWLEDGE, Action.ACKNOWLEDGE, Action.RELEASE, Action.EXTEND, Action.REJECT])
_LEASE_SECONDS = 10.0
_MOST_FAILURES = 3
_SHORT_SECONDS, _LONG_SECONDS = 15, 10_000_000
"""How long messages live."""
_FOR_ANOTHER = encode_headers(only_for({}, "another"))
_AHEAD = SECOND
"""How far ids may run ahead of the clock after a restart, in ticks."""

Place = tuple[int, MessageId]


@dataclass
class _Fate:
    """What the model knows of one message."""

    body: bytes
    key: str | None
    expires: int
    due: int
    deliveries: int = 0
    is_leased: bool = False
    visible_at: int = 0
    """On the clock of leases."""
    is_given_up: bool = False


class _Model(RuleBasedStateMachine):
    """What is expected of each message."""

    def __init__(self, stores: Callable[[], Stores], clock: ManualClock, reopen: Callable[[], None] | None) -> None:
        """:param stores: those that are open now.
        :param reopen: open them anew, as after a kill; None if they do not outlive that.
        """
        super().__init__()
        clock.advance(100_000)  # beyond all times of an earlier history
        self.stores, self.clock, self.reopen = stores, clock, reopen
        self.fates: dict[Place, _Fate] = {}
        """Of messages that are neither settled nor deleted."""
        self.settled: set[Place] = set()
        self.receipts: list[HandedOut] = []
        self.appended = 0
        self.attempts: list[tuple[dict[str, object], LeaseOutcome, float]] = []
        """What was asked and answered, and when."""
        self.results: list[bytes] = []
        log = QueueLog(stores().messages, clock, partitions=2)
        self.queue = log.queue
        self.result_queue = QueueLog(stores().messages, clock).queue
        self.order, self.per_key = NO_ORDER, 1
        self.latest = clock.now_ticks()

    def _log(self) -> QueueLog:
        log = QueueLog(self.stores().messages, self.clock)
        log.queue = self.queue
        return log

    def _jobs(self) -> Receiver:
        rules: dict[str, Any] = {"order": self.order, "per_key": self.per_key, "max_failures": _MOST_FAILURES}
        jobs = Receiver(self.stores().leases, self._log(), **rules)
        jobs.token = self.queue.uuid.int >> 65  # the next history has a group of its own, beside this one
        jobs.new = None if jobs.new is None else jobs.new._replace(token=jobs.token)
        return jobs

    def _note(self, drafts: list[Draft], placed: object) -> None:
        self.appended += len(drafts)
        for one, (partition, id_) in zip(drafts, placed, strict=True):  # type: ignore[call-overload]
            expires = id_.ticks + one.ttl_seconds * SECOND
            self.fates[partition, id_] = _Fate(one.body, one.key, expires, id_.ticks)

    def _settles(self, chosen: list[tuple[int, Action]]) -> dict[int, list[Settle]]:
        found: dict[int, list[Settle]] = {}
        for any_, action in chosen if self.receipts else ():
            one = self.receipts[any_ % len(self.receipts)]
            if all(other.id != one.message.id for other in found.get(one.partition, ())):
                seconds = _LEASE_SECONDS if action is Action.EXTEND else 3.0
                found.setdefault(one.partition, []).append(settle_of(one, action, seconds=seconds))
        return found

    def _is_fresh(self, one: Settle, partition: int) -> bool | None:
        """None if nobody knows: what was deleted or expired keeps its lease until a receive looks."""
        place = (partition, one.id)
        fate = self.fates.get(place)
        if fate is None or fate.expires <= self._latest():
            return False if place in self.settled else None
        return fate.is_leased and fate.deliveries == one.delivery and not fate.is_given_up

    def _apply(self, partition: int, one: Settle, now: int) -> None:
        fate = self.fates.get((partition, one.id))
        if fate is None:
            return
        fate.visible_at = now + round((one.seconds or 0.0) * SECOND)
        if one.action is Action.ACKNOWLEDGE:
            del self.fates[partition, one.id]
            self.settled.add((partition, one.id))
        elif one.action is Action.REJECT:
            fate.is_leased, fate.is_given_up = False, True
        elif one.action is Action.RELEASE:
            fate.is_leased = False

    def _given_up(self, outcome: LeaseOutcome) -> None:
        for one in outcome.given_up:
            fate = self.fates.get((one.partition, one.hole.id))
            if fate is not None:
                assert fate.is_given_up or one.hole.failures >= _MOST_FAILURES
                fate.is_given_up, fate.is_leased = True, False

    def _handed(self, outcome: LeaseOutcome, *, pop: bool) -> None:
        for one in outcome.handed:
            place = (one.partition, one.message.id)
            assert place not in self.settled, "it was settled"
            assert place in self.fates, "it is for another group"
            fate = self.fates[place]
            assert one.message.body == fate.body
            assert fate.due <= self._latest() + _AHEAD
            assert self.clock.now_ticks() < fate.expires
            assert not fate.is_given_up
            assert not fate.is_leased or fate.visible_at <= outcome.now, "another receiver has it"
            assert fate.visible_at <= outcome.now
            fate.deliveries += 1
            assert one.hole.deliveries == fate.deliveries
            fate.is_leased, fate.visible_at = True, one.hole.visible_at
            if pop:
                del self.fates[place]
                self.settled.add(place)
            else:
                self.receipts.append(one)
        if self.order == ORDER_BY_KEY:
            self._check_keys(outcome)

    def _check_keys(self, outcome: LeaseOutcome) -> None:
        """No older message of a key that is due waits, unless it is given up (G26)."""
        before: set[Place] = set()
        for one in outcome.handed:
            place = (one.partition, one.message.id)
            if one.message.key is not None:
                for other, fate in self.fates.items():
                    is_older = other[0] == place[0] and other < place and fate.key == one.message.key
                    waits = other not in before and fate.due <= self.clock.now_ticks() < fate.expires
                    assert not (is_older and waits) or fate.is_given_up, "a younger message of a key overtook"
            before.add(place)

    def _latest(self) -> int:
        """The latest moment of the wall clock: ids never go back behind it."""
        self.latest = max(self.latest, self.clock.now_ticks())
        return self.latest


class LeaseHistory(_Model):
    """Any history of a group in two partitions: nobody has what another has, and nothing is passed over."""

    @initialize(order=st.sampled_from([NO_ORDER, ORDER_BY_KEY]), per_key=st.sampled_from([1, 3]))
    def begin(self, order: str, per_key: int) -> None:
        self.order, self.per_key = order, per_key if order == ORDER_BY_KEY else 1

    @rule(
        number=st.integers(1, 6),
        partition=_PARTITIONS,
        key=st.sampled_from([None, "a", "b"]),
        delay=st.integers(-9, 30),
    )
    def append(self, number: int, partition: int, key: str | None, delay: int) -> None:
        due = self.clock.now_ticks() + delay * SECOND if delay > 0 else None
        drafts = [Draft(partition, b"%d" % (self.appended + at), _LONG_SECONDS, None, key, due) for at in range(number)]
        self._note(drafts, self._log().append(*drafts).placed)

    @rule(partition=_PARTITIONS)
    def append_what_expires(self, partition: int) -> None:
        drafts = [Draft(partition, b"%d" % self.appended, _SHORT_SECONDS)]
        self._note(drafts, self._log().append(*drafts).placed)

    @rule(number=st.integers(1, 6), partition=_PARTITIONS, key=st.sampled_from([None, "a"]))
    def append_for_another_group(self, number: int, partition: int, key: str | None) -> None:
        self._log().append(*[Draft(partition, b"", _LONG_SECONDS, None, key, headers=_FOR_ANOTHER)] * number)

    def deleted(self) -> None:
        """A message was deleted: other servers of the same store come to know it."""

    @precondition(lambda self: self.fates)
    @rule(any_=_ANY)
    def delete(self, any_: int) -> None:
        place = sorted(self.fates)[any_ % len(self.fates)]
        self._log().delete(place)
        self.deleted()
        del self.fates[place]

    @precondition(lambda self: self.fates)
    @rule(any_=_ANY, seconds=st.sampled_from([_LONG_SECONDS, _LONG_SECONDS, _SHORT_SECONDS]), names_key=st.booleans())
    def overwrite(self, any_: int, seconds: int, names_key: bool) -> None:
        """The message stays where it is in the group, whatever it is there."""
        place = sorted(self.fates)[any_ % len(self.fates)]
        fate = self.fates[place]
        if fate.expires <= self._latest() + _AHEAD:
            return
        fate.body = b"%d again" % self.appended
        self.appended += 1
        key = fate.key if names_key else None
        log = self._log()
        log.put(place, body=fate.body, key=key, ttl_seconds=seconds, content_type="a/b")
        self.deleted()
        (stored,) = log.fetch(place)
        if stored is None:  # ids follow a clock that was stepped forward a moment later: its life was over
            assert seconds == _SHORT_SECONDS
            del self.fates[place]
        else:
            fate.expires = stored.expires_ticks

    @rule(
        most=st.integers(1, 5),
        partitions=st.sampled_from([(1,), (2,), (1, 2)]),
        pop=st.sampled_from([False, False, False, True]),
        seconds=st.sampled_from([_LEASE_SECONDS, _LEASE_SECONDS, 0.0]),
        settles=st.lists(st.tuples(_ANY, _ACTIONS), max_size=3),
        result=st.booleans(),
    )
    def step(
        self,
        most: int,
        partitions: tuple[int, ...],
        pop: bool,
        seconds: float,
        settles: list[tuple[int, Action]],
        result: bool,
    ) -> None:
        self._log().watermark()
        asked = self._settles(settles)
        fresh = all(self._is_fresh(one, partition) for partition, some in asked.items() for one in some)
        body = b"r%d" % len(self.results)
        appends = [AppendRequest(self.result_queue, [draft(body)])] if result and fresh else []
        wanted: dict[str, object] = {
            "settles": asked or None,
            "receive": ReceiveRequest(most, seconds, pop),
            "partitions": partitions,
            "appends": appends,
            "attempt": IdempotencyKey(f"{len(self.attempts)}", b"d"),
        }
        outcome = self._jobs().step(**wanted)  # type: ignore[arg-type]
        self.attempts.append((wanted, outcome, self.clock.elapsed()))
        self.results += [body] * len(appends)
        stale = {(one.partition, one.at) for one in outcome.stale}
        for partition, some in asked.items():
            for at, one in enumerate(some):
                is_fresh = self._is_fresh(one, partition)
                assert is_fresh in (None, (partition, at) not in stale), "a live lease is stale, or an ended one is not"
                if (partition, at) not in stale:
                    self._apply(partition, one, outcome.now)
        self._given_up(outcome)
        self._handed(outcome, pop=pop)

    @precondition(lambda self: self.attempts)
    @rule(any_=_ANY)
    def repeat(self, any_: int) -> None:
        wanted, before, elapsed = self.attempts[any_ % len(self.attempts)]
        jobs = self._jobs()
        if self.clock.elapsed() - elapsed >= ATTEMPT_SECONDS:
            return
        again = jobs.step(**wanted)  # type: ignore[arg-type]
        assert again.repeated
        found = [one for one in before.handed if (one.partition, one.message.id) in self.fates.keys() | self.settled]
        assert [one for one in again.handed if one in found] == [one for one in found if one in again.handed]
        assert again.stale == list(before.stale)

    @rule(seconds=st.sampled_from([5.0, 25.0]))
    def renew(self, seconds: float) -> None:
        outcome = self._jobs().step(renewals=[RenewAll("", seconds)])
        for fate in self.fates.values():
            if fate.is_leased:
                fate.visible_at = max(fate.visible_at, outcome.now + round(seconds * SECOND))

    @rule(seconds=st.sampled_from([1, 4, 12, 40]))
    def pass_time(self, seconds: int) -> None:
        self.clock.advance(seconds)

    @rule(seconds=st.sampled_from([-20, 15]))
    def step_clock(self, seconds: int) -> None:
        """Leases do not notice; messages become readable and expire by the wall clock."""
        self._latest()
        self.clock.step(seconds)

    @precondition(lambda self: self.reopen is not None)
    @rule()
    def restart(self) -> None:
        assert self.reopen is not None
        self.clock.advance(0.001)  # it takes time: no two steps before and after it have the same tick
        self.reopen()

    def teardown(self) -> None:
        """In the end each message that is alive is handed out, and settled."""
        self.clock.advance(_SHORT_SECONDS + 2000)  # beyond all steps back
        now = self.clock.now_ticks()
        self.fates = {place: fate for place, fate in self.fates.items() if fate.expires > now}
        for _ in range(20 * (len(self.fates) + 2)):
            if not self.fates:
                break
            self.clock.advance(max(MOVE_AGAIN_SECONDS, _LEASE_SECONDS) + 1)
            self._log().watermark()
            outcome = self._jobs().step(receive=ReceiveRequest(5, _LEASE_SECONDS))
            self._given_up(outcome)
            self._handed(outcome, pop=False)
            settles: dict[int, list[Settle]] = {}
            for one in outcome.handed:
                settles.setdefault(one.partition, []).append(settle_of(one))
                self.fates.pop((one.partition, one.message.id))
            for given in outcome.given_up:
                moved = Settle(given.hole.id, given.hole.deliveries, Action.MOVED)
                settles.setdefault(given.partition, []).append(moved)
                self.fates.pop((given.partition, given.hole.id), None)
            if settles:
                assert not self._jobs().step(settles).stale
        assert not self.fates, "a message is never handed out"
        results = self._log()
        results.queue = self.result_queue
        assert results.bodies() == self.results
