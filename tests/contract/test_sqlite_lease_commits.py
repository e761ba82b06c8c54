"""Lease groups in the embedded store: steps that share a commit, and what outlives a restart."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from queuey.clock import ManualClock
from queuey.ids import TICKS_PER_SECOND
from queuey.model import AppendRequest, IdempotencyKey
from queuey.model.lease_groups import NO_ORDER, ORDER_BY_KEY
from queuey.model.lease_requests import ReceiveRequest
from queuey.model.lease_steps import GroupStep, LeaseStep, RenewAll
from queuey.storage.contract.common import done, draft
from queuey.storage.contract.lease_receiver import bodies, settle_of
from queuey.storage.leasing import partition_book
from tests.support.opened_leases import Opened

DAY = 86_400
MONTH = 30 * DAY


def _together(opened: Opened, *begin: Callable[[], Any]) -> list[Any]:
    """Ask for these while the committer is at something else, so that one commit has all of them."""
    committer, futures = opened.stores.file.committer, list[Any]()

    def hold() -> None:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(committer.turns, "takes", lambda write: False)  # or the event loop might commit some
            futures.extend([one() for one in begin])

    done(committer.run_between(hold))
    return [done(one) for one in futures]


@pytest.mark.parametrize("how", ["seen", "leased under an attempt", "popped under an attempt"])
def test_a_message_is_handed_out_again_in_the_commit_that_appends_it(opened: Opened, how: str) -> None:
    """No reader sees it yet: it must not be taken for one that is gone."""
    opened.jobs().receive()
    group = GroupStep(opened.log.queue, "workers", None, receive_from=(1,))
    receive = ReceiveRequest(1, 0.0 if how == "seen" else 30.0, how.startswith("popped"))
    step = LeaseStep([group], (), receive, None if how == "seen" else IdempotencyKey("a1", b""))
    append = AppendRequest(opened.log.queue, [draft(b"0")])
    messages, leases = opened.stores.messages, opened.stores.leases
    _, *outcomes = _together(
        opened, lambda: messages.append(append), lambda: leases.step(step), lambda: leases.step(step)
    )
    assert [bodies(one.handed) for one in outcomes] == [[b"0"], [b"0"]]
    opened.clock.advance(31)
    assert bodies(opened.jobs().receive()) == [] if how.startswith("popped") else [b"0"]


def test_a_message_that_waited_for_its_key_is_handed_out_in_the_commit_that_appends_it(opened: Opened) -> None:
    opened.log.append(draft(b"0", key="a"))
    (first,) = opened.jobs(order=ORDER_BY_KEY).receive()
    group = GroupStep(opened.log.queue, "workers", None, receive_from=(1,))
    receives = LeaseStep([group], receive=ReceiveRequest())
    settles = receives._replace(groups=[group._replace(token=77, settles={1: [settle_of(first)]})])
    append = AppendRequest(opened.log.queue, [draft(b"1", key="a")])
    messages, leases = opened.stores.messages, opened.stores.leases
    _, *outcomes = _together(
        opened, lambda: messages.append(append), lambda: leases.step(receives), lambda: leases.step(settles)
    )
    assert [bodies(one.handed) for one in outcomes] == [[], [b"1"]]


def test_what_is_appended_while_a_receive_looks_up_a_key_is_looked_up_too(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition_book, "MOST_AHEAD", 2)
    opened.log.append(draft(b"0", key="a"))
    (first,) = opened.jobs(order=ORDER_BY_KEY).receive()
    opened.log.append(*[draft(b"%d" % at, key="a") for at in range(1, 5)])
    assert not opened.jobs().receive(9)
    opened.again()
    step = LeaseStep([GroupStep(opened.log.queue, "workers", None, receive_from=(1,))], receive=ReceiveRequest())
    append = AppendRequest(opened.log.queue, [draft(b"5", key="a")])
    messages, leases = opened.stores.messages, opened.stores.leases
    _together(opened, lambda: messages.append(append), *[lambda: leases.step(step)] * 3)
    assert opened.jobs().settle(first)
    for at in range(1, 6):
        (one,) = opened.jobs().receive()
        assert one.message.body == b"%d" % at
        assert opened.jobs().settle(one)


def test_what_waits_behind_a_key_that_falls_due_outlives_a_restart(opened: Opened) -> None:
    opened.log.append(draft(b"0", key="a"))
    assert opened.jobs(order=ORDER_BY_KEY, per_key=10).receive()
    opened.log.append(draft(b"1", key="a"))
    assert [len(opened.jobs().receive()) for _ in range(2)] == [0, 0]
    opened.clock.advance(20)
    opened.log.append(draft(b"2", key="a"))
    opened.clock.advance(11)
    handed = opened.jobs().receive(9, blames_each=True)
    opened.again()
    assert bodies(handed) == [b"0", b"1"]
    assert not opened.jobs().step({1: [settle_of(one) for one in handed]}).stale
    assert bodies(opened.jobs().receive(9)) == [b"2"]


def test_a_group_that_orders_keys_no_more_hands_out_nothing_again_after_a_restart(opened: Opened) -> None:
    jobs = opened.jobs(order=ORDER_BY_KEY)
    opened.log.append(draft(b"0", key="a"), draft(b"1", key="a"))
    (first,) = jobs.receive(9)
    queue, leases = opened.log.queue.uuid, opened.stores.leases
    before = done(leases.find_group(queue, "workers"))
    assert before is not None
    group = before._replace(settings=before.settings._replace(order=NO_ORDER))
    assert done(leases.keep_group(queue, "workers", group, before))
    opened.log.append(draft(b"2", key="a"))
    handed = jobs.receive(9)
    assert bodies(handed) == [b"1", b"2"]
    assert not jobs.step({1: [settle_of(one) for one in handed]}).stale
    opened.again()
    assert opened.jobs().settle(first)
    assert not opened.jobs().receive(9)


@pytest.mark.parametrize("end", ["forgotten", "dropped"])
def test_a_group_that_ends_in_the_commit_of_a_step_leaves_nothing(opened: Opened, end: str) -> None:
    opened.log.add(b"0")
    queue, leases = opened.log.queue, opened.stores.leases
    renews = [RenewAll("another", 1.0)]  # so it is carried out before the drop, and not with others at the end
    group = GroupStep(
        queue, "workers", opened.jobs().new, receive_from=(1,), renewals=renews if end == "dropped" else ()
    )
    step = LeaseStep([group], receive=ReceiveRequest(), attempt=IdempotencyKey("a1", b""))
    drop, forget = opened.stores.messages.drop, leases.forget_group
    ends = partial(drop, queue.uuid) if end == "dropped" else partial(forget, queue.uuid, "workers")
    outcome, _ = _together(opened, lambda: leases.step(step), ends)
    assert len(outcome.handed) == 1
    assert opened.rows("lease_changes") == 0
    assert opened.stores.file.lease_book._holes == 0, "it would be taken for memory in use"


class _OtherBoot(ManualClock):
    def boot(self) -> str:
        return "another"


def test_a_lease_of_a_former_boot_ends_in_its_time_though_the_wall_clock_is_behind(opened: Opened) -> None:
    """The former boot lasted for a month, and its wall clock was a year ahead; or that of the new one is behind."""
    opened.log.append(draft(b"0", ttl_seconds=MONTH + DAY))
    opened.clock.advance(MONTH)
    (one,) = opened.jobs().receive(visibility_seconds=60.0)
    opened.stores.close()
    opened.clock = _OtherBoot(opened.clock.now_ticks() - 12 * MONTH * TICKS_PER_SECOND)
    opened.again()
    jobs = opened.jobs()

    assert jobs.receive() == []
    opened.clock.advance(61)
    assert bodies(jobs.receive()) == [one.message.body]
