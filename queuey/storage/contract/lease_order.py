"""Groups that keep the order of keys (G26)."""

from __future__ import annotations

from queuey.clock import ManualClock
from queuey.model import Draft
from queuey.model.lease_groups import NO_ORDER, ORDER_BY_KEY
from queuey.storage import LeaseStore
from queuey.storage.contract.common import QueueLog, done, draft
from queuey.storage.contract.lease_receiver import Receiver, WithLeases, bodies, settle_of

__all__ = ["OrderedByKey"]


class OrderedByKey(WithLeases):
    """Groups that keep the order of keys (G26)."""

    def test_messages_of_a_key_are_handed_out_in_order(self, leases: LeaseStore, log: QueueLog) -> None:
        jobs = Receiver(leases, log, order=ORDER_BY_KEY)
        log.append(*[Draft(1, b"%d" % at, 3600, None, key) for at, key in enumerate(["a", "a", "b", None, "a", "b"])])
        handed = jobs.receive(9)
        assert bodies(handed) == [b"0", b"2", b"3"]
        assert not jobs.receive(9)
        assert jobs.count().closed_keys == 2
        assert jobs.settle(handed[0])
        (second,) = jobs.receive(9)
        assert (second.message.body, second.message.key) == (b"1", "a")
        assert jobs.settle(handed[1])
        assert bodies(jobs.receive(9)) == [b"5"]
        assert jobs.settle(second)
        assert bodies(jobs.receive(9)) == [b"4"]

    def test_a_group_that_orders_keys_no_more_hands_out_what_waits_behind_them(
        self, leases: LeaseStore, log: QueueLog
    ) -> None:
        jobs = Receiver(leases, log, order=ORDER_BY_KEY)
        placed = log.append(*[Draft(1, b"%d" % at, 3600, None, "a") for at in range(4)]).placed
        (first,) = jobs.receive(9)
        log.delete(placed[2])
        before = done(leases.find_group(log.queue.uuid, jobs.name))
        assert before is not None
        group = before._replace(settings=before.settings._replace(order=NO_ORDER))
        assert done(leases.keep_group(log.queue.uuid, jobs.name, group, before))
        log.append(*[Draft(1, b"%d" % at, 3600, None, "a") for at in range(4, 6)])
        handed = jobs.receive(2) + jobs.receive(9)
        assert bodies(handed) == [b"1", b"3", b"4", b"5"]
        assert jobs.settle(first)
        assert not jobs.step({1: [settle_of(one) for one in handed]}).stale
        assert jobs.count()[2:6] == (0, 0, 0, 0)

    def test_what_is_deleted_behind_a_closed_key_takes_no_other_with_it(
        self, leases: LeaseStore, log: QueueLog
    ) -> None:
        jobs = Receiver(leases, log, order=ORDER_BY_KEY, per_key=10)
        log.append(draft(b"0", key="a"))
        (first,) = jobs.receive()
        placed = log.append(*[draft(b"%d" % at, key="a") for at in range(1, 6)]).placed
        assert not jobs.receive(9)
        log.delete(placed[1], placed[4])
        assert jobs.settle(first)
        handed = jobs.receive(9)
        assert bodies(handed) == [b"1", b"3", b"4"]
        assert not jobs.step({1: [settle_of(one) for one in handed]}).stale
        assert not jobs.receive(9)
        assert jobs.count().closed_keys == 0

    def test_what_waits_behind_a_key_that_falls_due_keeps_its_place(
        self, leases: LeaseStore, log: QueueLog, clock: ManualClock
    ) -> None:
        """New messages of it are passed over by the very receive that hands out all that waited before."""
        jobs = Receiver(leases, log, order=ORDER_BY_KEY, per_key=10)
        log.append(draft(b"0", key="a"))
        assert jobs.receive()
        log.append(draft(b"1", key="a"))
        assert [len(jobs.receive()) for _ in range(2)] == [0, 0]
        clock.advance(20)
        log.append(draft(b"2", key="a"))  # before the lease ends
        clock.advance(15)
        log.append(draft(b"3", key="a"))  # after it
        handed = jobs.receive(9, blames_each=True)
        assert bodies(handed) == [b"0", b"1"]
        assert jobs.count().closed_keys == 1, "it would be forgotten with this process"
        assert not jobs.step({1: [settle_of(one) for one in handed]}).stale
        assert bodies(jobs.receive(9)) == [b"2", b"3"]

    def test_a_closed_key_hides_no_other_however_much_waits_behind_it(self, leases: LeaseStore, log: QueueLog) -> None:
        jobs = Receiver(leases, log, order=ORDER_BY_KEY)
        log.append(*[Draft(1, b"", 3600, None, "a")] * 3000, Draft(1, b"other", 3600, None, "b"))
        assert [one.message.key for one in jobs.receive()] == ["a"]
        assert bodies(jobs.receive()) == [b"other"]
