"""Lease groups: what is handed out, to one at a time, and settled with what is appended (G21 to G28)."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from queuey.clock import ManualClock
from queuey.errors import InvalidReceipt, KeyReused, LeaseGroupNotFound, QueueNotFound, StaleReceipt
from queuey.ids import ZERO_ID, MessageId
from queuey.model import AppendRequest, Draft, IdempotencyKey
from queuey.model import leases as model
from queuey.model.holes import GIVEN_UP, LEASED, UNCOUNTED
from queuey.model.lease_groups import NO_ORDER, GroupSettings, LeaseGroup
from queuey.model.lease_requests import Action, ReceiveRequest, Settle
from queuey.model.lease_rules import Backoff
from queuey.model.lease_state import LeaseState
from queuey.model.lease_steps import RenewAll
from queuey.storage import LeaseStore
from queuey.storage.contract.common import SECOND, QueueLog, done, draft
from queuey.storage.contract.lease_attempts import Attempts
from queuey.storage.contract.lease_order import OrderedByKey
from queuey.storage.contract.lease_passing import PassingOver
from queuey.storage.contract.lease_queues import SeveralQueues
from queuey.storage.contract.lease_receiver import TOKEN, Receiver, WithLeases, bodies, settle_of

__all__ = ["LeaseStoreContract"]


class HandingOut(WithLeases):
    """Which messages a receive hands out."""

    def test_a_message_has_one_receiver_until_its_lease_ends(
        self, jobs: Receiver, log: QueueLog, clock: ManualClock
    ) -> None:
        log.add(b"one")
        (first,) = jobs.receive(visibility_seconds=10.0, receiver="a")
        assert (first.message.body, first.hole.deliveries, first.hole.receiver) == (b"one", 1, "a")
        assert first.hole.visible_at == jobs.outcome.now + 10 * SECOND
        assert not jobs.receive()
        assert jobs.outcome.next_due is not None
        assert jobs.outcome.next_due <= first.hole.visible_at
        clock.advance(11)
        (second,) = jobs.receive()
        assert (second.message.body, second.hole.deliveries) == (b"one", 2)
        assert not jobs.settle(first)
        assert jobs.settle(second)
        assert not jobs.settle(second)
        clock.advance(100_000)
        assert not jobs.receive()

    def test_a_stepped_clock_makes_no_lease_shorter_or_longer(
        self, jobs: Receiver, log: QueueLog, clock: ManualClock
    ) -> None:
        log.add(b"one")
        assert jobs.receive(visibility_seconds=100.0)
        clock.step(500)
        assert not jobs.receive()
        clock.step(-1000)
        clock.advance(101)
        assert jobs.receive()

    def test_what_was_acknowledged_is_never_handed_out_again(
        self, jobs: Receiver, log: QueueLog, clock: ManualClock
    ) -> None:
        log.add(*[b"%d" % number for number in range(200)])
        for _ in range(20):
            handed = jobs.receive(10)
            assert not jobs.step({1: [settle_of(one) for one in handed]}).stale
        clock.advance(100_000)
        assert not jobs.receive(10)
        assert jobs.count()[2:6] == (0, 0, 0, 0)

    def test_a_message_is_settled_whoever_has_it(self, jobs: Receiver, log: QueueLog, clock: ManualClock) -> None:
        log.add(b"one", b"two")
        first, second = jobs.receive(2, visibility_seconds=10.0)
        clock.advance(11)
        (again,) = jobs.receive(1, visibility_seconds=100.0)
        assert again.message.id == first.message.id
        log.add(b"three")
        removed = [settle_of(one, Action.REMOVE) for one in (first, second)]

        assert not jobs.step({1: removed}).stale
        assert not jobs.settle(again)
        assert not jobs.step({1: removed}).stale  # they are settled already
        clock.advance(101)
        (third,) = jobs.receive(9)
        assert third.message.body == b"three"
        ahead = settle_of(third, Action.REMOVE)._replace(id=third.message.id.following())
        assert jobs.step({1: [ahead]}).stale  # it was never handed out

    def test_groups_are_apart(self, jobs: Receiver, leases: LeaseStore, log: QueueLog) -> None:
        log.add(b"one")
        others = Receiver(leases, log, "others")
        others.new = LeaseGroup(TOKEN + 1)
        assert bodies(jobs.receive()) == bodies(others.receive()) == [b"one"]
        assert done(leases.list_groups(log.queue.uuid)) == ["others", "workers"]
        assert done(leases.list_groups(log.queue.uuid, start="p", limit=1)) == ["workers"]

    def test_the_message_that_waits_longest_comes_first_from_all_partitions(
        self, jobs: Receiver, log: QueueLog, clock: ManualClock
    ) -> None:
        for number in (3, 1, 2, 1):
            log.add(b"%d" % number, partition=number)
            clock.advance(1)
        assert bodies(jobs.receive(1)) == [b"3"]
        assert bodies(jobs.receive(9, partitions=[1])) == [b"1", b"1"]
        assert bodies(jobs.receive(9)) == [b"2"]

    def test_what_is_scheduled_waits_and_what_expired_or_was_deleted_is_passed_over(
        self, jobs: Receiver, log: QueueLog, clock: ManualClock
    ) -> None:
        log.append(draft(b"later", due_ticks=clock.now_ticks() + 60 * SECOND), draft(b"short", ttl_seconds=5))
        (gone,) = log.add(b"gone")
        log.add(b"kept")
        assert bodies(jobs.receive()) == [b"short"]
        log.delete((1, gone))
        clock.advance(10)
        assert bodies(jobs.receive(9)) == [b"kept"]
        clock.advance(60)
        assert bodies(jobs.receive(9)) == [b"kept", b"later"]
        assert jobs.count().holes == 2

    def test_what_was_deleted_or_overwritten_after_it_was_read_ahead_is_seen(
        self, jobs: Receiver, log: QueueLog
    ) -> None:
        ids = log.add(b"0", b"1", b"2", b"3", b"4")
        assert bodies(jobs.receive()) == [b"0"]
        log.delete((1, ids[1]))
        log.put((1, ids[2]), body=b"new")
        assert bodies(jobs.receive(2)) == [b"new", b"3"]
        log.add(b"5")
        assert bodies(jobs.receive(9)) == [b"4", b"5"]


class Settling(WithLeases):
    """How leases end."""

    def test_a_release_comes_back_when_it_says(self, jobs: Receiver, log: QueueLog, clock: ManualClock) -> None:
        log.add(b"one")
        (handed,) = jobs.receive()
        assert jobs.settle(handed, Action.RELEASE, seconds=20.0, counts=False)
        assert not jobs.receive()
        clock.advance(21)
        (handed,) = jobs.receive()
        assert (handed.hole.failures, handed.hole.deliveries) == (0, 2)
        assert jobs.settle(handed, Action.RELEASE)
        clock.advance(2)
        (handed,) = jobs.receive()
        assert handed.hole.failures == 1

    def test_leases_are_extended_one_by_one_and_for_a_receiver(
        self, jobs: Receiver, log: QueueLog, clock: ManualClock
    ) -> None:
        log.add(b"0", b"1", b"2")
        (first,), (second,), (third,) = [jobs.receive(visibility_seconds=10.0, receiver=name) for name in "aab"]
        assert jobs.settle(first, Action.EXTEND, seconds=100.0)
        jobs.step(renewals=[RenewAll("a", 50.0)])
        clock.advance(20)
        assert bodies(jobs.receive(9, visibility_seconds=1000.0)) == [b"2"]
        clock.advance(40)
        assert bodies(jobs.receive(9, visibility_seconds=1000.0)) == [b"1"]
        now, holes, _ = done(jobs.store.held(jobs.queue.uuid, jobs.name, 1, after=ZERO_ID, limit=9))
        assert now >= jobs.outcome.now
        assert [hole.id for hole in holes] == [one.message.id for one in (first, second, third)]
        assert jobs.settle(first)

    def test_a_message_that_is_given_up_is_reported_until_it_is_moved(
        self, leases: LeaseStore, log: QueueLog, clock: ManualClock
    ) -> None:
        jobs = Receiver(leases, log, max_failures=2, backoff=Backoff(jitter=0.0))
        log.add(b"bad", b"good")
        for _ in range(2):
            (handed,) = jobs.receive()
            assert handed.message.body == b"bad"
            assert jobs.settle(handed, Action.RELEASE, seconds=0.0)
        assert bodies(jobs.receive(9)) == [b"good"]
        (given_up,) = jobs.outcome.given_up
        assert (given_up.hole.id, given_up.hole.failures, given_up.reason) == (handed.message.id, 2, None)
        assert not jobs.receive()
        assert not jobs.outcome.given_up
        clock.advance(6)
        jobs.receive()
        assert [one.hole.id for one in jobs.outcome.given_up] == [handed.message.id]
        moved = Settle(handed.message.id, 2, Action.MOVED)
        assert not jobs.step({1: [moved]}).stale
        assert jobs.step({1: [moved]}).stale
        assert jobs.count()[2:5] == (1, 1, 1)

    def test_a_rejected_message_is_reported_at_once(self, jobs: Receiver, log: QueueLog) -> None:
        log.add(b"bad")
        (handed,) = jobs.receive()
        assert jobs.settle(handed, Action.REJECT, reason="not JSON")
        assert [(one.hole.id, one.reason) for one in jobs.outcome.given_up] == [(handed.message.id, "not JSON")]

    def test_messages_of_all_partitions_that_run_out_together_gain_no_failure(
        self, leases: LeaseStore, log: QueueLog, clock: ManualClock
    ) -> None:
        """The receiver's death is the fault of one of them, and nobody knows of which (G28)."""
        jobs = Receiver(leases, log, max_failures=2)
        log.add(b"1", partition=1)
        log.add(b"2", partition=2)
        assert len(jobs.receive(2)) == 2
        clock.advance(31)
        alone = [jobs.receive(9), jobs.receive(9)]
        assert sorted(bodies([*alone[0], *alone[1]])) == [b"1", b"2"]
        assert [one.hole.failures for (one,) in alone] == [0, 0]
        assert jobs.settle(alone[1][0])
        clock.advance(31)
        (last,) = jobs.receive(9)
        assert last.hole.failures == 1


class Together(WithLeases):
    """Steps that do several things, once."""

    def test_a_receive_may_blame_each_of_its_messages(
        self, leases: LeaseStore, log: QueueLog, clock: ManualClock
    ) -> None:
        receiver = Receiver(leases, log, "blamed", max_failures=2)
        for number in (1, 1, 2, 3):
            log.add(b"%d" % number, partition=number)
        for _ in range(2):
            assert len(receiver.receive(9, visibility_seconds=5.0, blames_each=True)) == 4
            clock.advance(6)
        assert not receiver.receive(9, blames_each=True)
        assert len(receiver.outcome.given_up) == 4

    def test_a_step_settles_appends_and_receives(self, jobs: Receiver, log: QueueLog, leases: LeaseStore) -> None:
        log.add(b"0", b"1")
        results = QueueLog(log.store, log.clock)
        (handed,) = jobs.receive()
        outcome = jobs.step(
            {1: [settle_of(handed)]},
            appends=[AppendRequest(results.queue, [draft(b"result")])],
            receive=ReceiveRequest(),
        )
        assert bodies(outcome.handed) == [b"1"]
        assert [len(one.placed) for one in outcome.appended] == [1]
        assert results.bodies() == [b"result"]
        assert not jobs.settle(handed)

    def test_a_stale_lease_appends_nothing_and_settles_nothing(
        self, jobs: Receiver, log: QueueLog, clock: ManualClock
    ) -> None:
        log.add(b"0", b"1")
        (first,) = jobs.receive(visibility_seconds=1.0)
        clock.advance(2)
        (again,) = jobs.receive()
        (second,) = jobs.receive()
        settles = {1: [settle_of(first), settle_of(second)]}
        with pytest.raises(StaleReceipt):
            jobs.step(settles, appends=[AppendRequest(log.queue, [draft(b"result")])])
        assert log.bodies() == [b"0", b"1"]
        assert [(one.at, one.partition) for one in jobs.step(settles).stale] == [(0, 1)]
        assert not jobs.settle(second)
        assert jobs.settle(again)

    def test_appends_that_are_refused_settle_nothing(self, jobs: Receiver, log: QueueLog) -> None:
        log.add(b"0")
        (handed,) = jobs.receive()
        dropped = replace_queue(log)
        done(log.store.drop(dropped.uuid))
        appends = [AppendRequest(log.queue, [draft(b"a")]), AppendRequest(dropped, [draft(b"b")])]
        with pytest.raises(QueueNotFound):
            jobs.step({1: [settle_of(handed)]}, appends=appends)
        assert log.bodies() == [b"0"]
        assert jobs.settle(handed)

    def test_messages_whose_keys_stand_for_others_are_refused_and_settle_nothing(
        self, jobs: Receiver, log: QueueLog
    ) -> None:
        log.add(b"0")
        results = QueueLog(log.store, log.clock)
        results.append(draft(b"first", idempotency=IdempotencyKey("a", b"first")))
        (handed,) = jobs.receive()
        several = [IdempotencyKey("b", digest) for digest in (b"1", b"2")]
        for keys in ([IdempotencyKey("a", b"second")], several):
            drafts = [draft(b"second", idempotency=key) for key in keys]
            with pytest.raises(KeyReused):
                jobs.step({1: [settle_of(handed)]}, appends=[AppendRequest(results.queue, drafts)])
        again = [AppendRequest(results.queue, [draft(b"first", idempotency=IdempotencyKey("a", b"first"))])]
        assert jobs.step({1: [settle_of(handed)]}, appends=again).appended[0].repeated
        assert results.bodies() == [b"first"]


class Fair(WithLeases):
    """Fair groups: what has a noisy key waits behind others."""

    def test_a_fair_group_looks_past_a_noisy_key(self, leases: LeaseStore, log: QueueLog, clock: ManualClock) -> None:
        jobs = Receiver(leases, log, fair=True)
        log.append(*[Draft(1, b"noisy", 9_000, key="noisy") for _ in range(1_100)])
        assert len(jobs.receive(40, visibility_seconds=600.0)) == 40
        log.append(Draft(1, b"quiet", 9_000, key="quiet"))
        assert sorted(bodies(jobs.receive(3, visibility_seconds=600.0))) == [b"noisy", b"noisy", b"quiet"]
        assert bodies(jobs.receive(1, visibility_seconds=600.0)) == [b"noisy"]

    def test_a_group_becomes_fair_and_is_so_no_more(
        self, leases: LeaseStore, log: QueueLog, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """No receive counts the keys of a large state: it is read with its counts."""

        def count_keys(state: LeaseState, *, wanted: bool) -> None:
            assert (state.leased_of is not None) is wanted

        monkeypatch.setattr(model, "count_keys", count_keys)
        jobs = Receiver(leases, log, order=NO_ORDER)
        log.append(*[Draft(1, b"%d" % at, 9_000, key="a") for at in range(60)])
        handed = jobs.receive(10, visibility_seconds=600.0)
        for fair in (True, False, True):
            before = done(leases.find_group(log.queue.uuid, jobs.name))
            assert before is not None
            group = before._replace(settings=before.settings._replace(fair=fair))
            assert done(leases.keep_group(log.queue.uuid, jobs.name, group, before))
            handed += jobs.receive(10, visibility_seconds=600.0)
            assert jobs.settle(handed.pop(0))
        assert len(handed) == 37
        assert not jobs.step({1: [settle_of(one) for one in handed]}).stale
        assert jobs.count()[2:4] == (0, 0)


class Managing(WithLeases):
    """Settings, bounds, and what is held."""

    def test_at_most_as_many_are_held_as_the_group_may(self, leases: LeaseStore, log: QueueLog) -> None:
        jobs = Receiver(leases, log, max_held=2)
        log.add(b"0", b"1", b"2")
        handed = jobs.receive(9)
        assert (bodies(handed), jobs.outcome.is_full) == ([b"0", b"1"], True)
        assert not jobs.receive(9)
        assert jobs.outcome.is_full
        assert jobs.settle(handed[0])
        assert bodies(jobs.receive(9)) == [b"2"]

    def test_settings_are_changed_by_compare_and_set(
        self, jobs: Receiver, leases: LeaseStore, log: QueueLog, clock: ManualClock
    ) -> None:
        queue, name = log.queue.uuid, jobs.name
        assert done(leases.find_group(queue, name)) is None
        group = LeaseGroup(TOKEN, MessageId(1, 2), GroupSettings(visibility=7.0, dead_letter_queue="bad"))
        assert done(leases.keep_group(queue, name, group, None))
        assert not done(leases.keep_group(queue, name, group._replace(token=1), None))
        assert done(leases.find_group(queue, name)) == group
        log.add(b"0", b"1")
        (handed,) = jobs.receive()
        assert handed.hole.visible_at == jobs.outcome.now + 7 * SECOND
        changed = group._replace(settings=group.settings._replace(paused_until=4e9, paused_reason="so"))
        assert done(leases.keep_group(queue, name, changed, group))
        assert not done(leases.keep_group(queue, name, group, group))
        assert not jobs.receive()
        assert jobs.outcome.next_due is not None, "the end of the pause"
        assert jobs.settle(handed), "what was handed out is still out"

    def test_a_group_with_another_token_begins_anew(
        self, jobs: Receiver, leases: LeaseStore, log: QueueLog, clock: ManualClock
    ) -> None:
        first, *_ = log.add(b"0", b"1", b"2")
        handed = jobs.receive(9)
        log.watermark()
        attempt: dict[str, Any] = {"attempt": IdempotencyKey("a", b""), "receive": ReceiveRequest(9)}
        jobs.step(**attempt)
        before = done(leases.find_group(log.queue.uuid, jobs.name))
        assert before is not None
        reset = LeaseGroup(TOKEN + 1, first, before.settings)
        assert done(leases.keep_group(log.queue.uuid, jobs.name, reset, before))
        assert done(leases.find_group(log.queue.uuid, jobs.name)) == reset
        assert done(leases.list_groups(log.queue.uuid)) == [jobs.name]
        with pytest.raises(InvalidReceipt):
            jobs.settle(handed[0])
        assert bodies(jobs.step(**attempt).handed) == [b"1", b"2"]

    def test_a_group_may_start_at_the_end(self, jobs: Receiver, log: QueueLog, clock: ManualClock) -> None:
        log.add(b"before")
        clock.advance(1)
        jobs.new = LeaseGroup(TOKEN, MessageId.last_of(log.watermark()))
        clock.advance(1)
        log.add(b"after")
        assert bodies(jobs.receive(9)) == [b"after"]

    def test_a_group_that_is_forgotten_begins_anew(self, jobs: Receiver, leases: LeaseStore, log: QueueLog) -> None:
        log.add(b"0")
        (handed,) = jobs.receive()
        done(leases.forget_group(log.queue.uuid, jobs.name))
        done(leases.forget_group(log.queue.uuid, jobs.name))
        assert done(leases.list_groups(log.queue.uuid)) == []
        assert done(leases.count(log.queue.uuid, jobs.name, [1])) == {}
        with pytest.raises(InvalidReceipt):
            jobs.settle(handed)
        jobs.new = LeaseGroup(TOKEN + 1)
        assert bodies(jobs.receive()) == [b"0"]
        with pytest.raises(InvalidReceipt):
            jobs.settle(handed)
        jobs.new = None
        jobs.name = "nothing"
        with pytest.raises(LeaseGroupNotFound):
            jobs.receive()

    def test_a_dropped_queue_has_no_groups(self, jobs: Receiver, leases: LeaseStore, log: QueueLog) -> None:
        log.add(b"0")
        assert jobs.receive()
        done(log.store.drop(log.queue.uuid))
        assert done(leases.list_groups(log.queue.uuid)) == []
        assert done(leases.find_group(log.queue.uuid, jobs.name)) is None
        with pytest.raises(QueueNotFound):
            jobs.receive()
        with pytest.raises(QueueNotFound):
            done(leases.keep_group(log.queue.uuid, "new", LeaseGroup(1), None))

    def test_a_stuck_message_costs_one_hole(self, jobs: Receiver, log: QueueLog) -> None:
        (stuck, *_) = log.add(*[b"%d" % number for number in range(300)])
        jobs.receive(visibility_seconds=1000.0)
        while handed := jobs.receive(50):
            jobs.step({1: [settle_of(one) for one in handed]})
        counts = jobs.count()
        assert (counts.holes, counts.leased) == (1, 1)
        assert counts.done_up_to < stuck <= counts.frontier

    def test_only_what_a_receiver_has_is_leased(self, jobs: Receiver, log: QueueLog, clock: ManualClock) -> None:
        log.add(b"0", b"1", b"2")
        first, second, third = jobs.receive(3)
        jobs.settle(first, Action.RELEASE, seconds=100.0)
        jobs.settle(second, Action.REJECT, reason="not JSON")
        jobs.settle(third, Action.RELEASE, seconds=100.0, counts=False)
        _, holes, reasons = done(jobs.store.held(jobs.queue.uuid, jobs.name, 1, after=ZERO_ID, limit=9))
        assert [hole.flags & (LEASED | GIVEN_UP | UNCOUNTED) for hole in holes] == [0, GIVEN_UP, UNCOUNTED]
        assert reasons == {holes[1].id: "not JSON"}
        assert jobs.count().leased == 0
        _, behind, _ = done(jobs.store.held(jobs.queue.uuid, jobs.name, 1, after=holes[0].id, limit=9))
        assert behind == holes[1:]


class LeaseStoreContract(
    HandingOut, Settling, Together, Attempts, SeveralQueues, OrderedByKey, Fair, PassingOver, Managing
):
    """Every sentence of :class:`~queuey.storage.LeaseStore`."""


def replace_queue(log: QueueLog) -> Any:
    """Another queue of the same settings."""
    return log.queue._replace(uuid=uuid4(), name="dropped")
