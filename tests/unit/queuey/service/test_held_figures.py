"""What lease groups hold, as gauges of one server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from queuey.clock import ManualClock
from queuey.errors import StorageUnavailable
from queuey.future import Future, run
from queuey.ids import ZERO_ID, IdGenerator
from queuey.model import AppendRequest, Draft, Queue
from queuey.model.lease_groups import ORDER_BY_KEY, GroupSettings
from queuey.model.lease_requests import Action, ReceiveRequest, Settle
from queuey.model.lease_steps import GroupStep, LeaseOutcome, LeaseStep
from queuey.monitor.metrics import (
    LEASE_GROUPS,
    LEASE_GROUPS_CLOSED_KEYS,
    LEASE_GROUPS_HELD,
    LEASE_GROUPS_LEASED,
    LEASE_GROUPS_OLDEST,
)
from queuey.service import Service, held_figures
from queuey.service.queues import QueueSettings
from queuey.settings import load_settings
from queuey.storage.memory import MemoryStores


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def service(clock: ManualClock) -> Iterator[Service]:
    stores = MemoryStores(clock, IdGenerator(clock))
    opened = Service(load_settings(None, {}, {}), stores, clock=clock, waiters_by_hand=True)
    yield opened
    opened.close()


def queue_of(service: Service, name: str = "jobs", application: str = "demo") -> Queue:
    return run(service.queues.create(application, name, QueueSettings(partitions=2)))


def append(service: Service, queue: Queue, *keys: str | None) -> None:
    run(service.log.append(AppendRequest(queue, [Draft(1, b"x", 86_400, None, key) for key in keys])))


def step(service: Service, queue: Queue, most: int = 0, *, group: str = "workers", **how: object) -> LeaseOutcome:
    new = service.leases.new_group(GroupSettings(order=ORDER_BY_KEY), ZERO_ID)
    receive = ReceiveRequest(most) if most else None
    one = GroupStep(queue, group, new, receive_from=(1, 2) if most else (), **how)  # type: ignore[arg-type]
    service.held_figures.note(queue, group)
    return service.stores.leases.step(LeaseStep([one], receive=receive)).wait()


def reported(service: Service, application: str = "demo") -> list[float]:
    """Groups, held, leased, closed keys, and the age of the oldest message in seconds."""
    run(service.held_figures.turn())
    gauges = LEASE_GROUPS, LEASE_GROUPS_HELD, LEASE_GROUPS_LEASED, LEASE_GROUPS_CLOSED_KEYS, LEASE_GROUPS_OLDEST
    return [service.monitor.value(gauge, application) for gauge in gauges]


def test_what_groups_hold_is_reported_by_application(service: Service, clock: ManualClock) -> None:
    jobs, other = queue_of(service), queue_of(service, application="other")
    append(service, jobs, None, "a", "a", None)
    clock.advance(10)
    outcome = step(service, jobs, 2)
    assert len(outcome.handed) == 2
    clock.advance(5)
    append(service, other, None)
    step(service, other, 1, group="one")
    step(service, other, 1, group="two")
    clock.advance(1)
    assert [round(value) for value in reported(service)] == [1, 2, 2, 0, 16]
    assert [round(value) for value in reported(service, "other")] == [2, 2, 2, 0, 1]

    assert len(step(service, jobs, 9).handed) == 1
    assert [round(value) for value in reported(service)] == [1, 3, 3, 1, 16]
    settles = {1: [Settle(one.message.id, 1, Action.ACKNOWLEDGE) for one in outcome.handed]}
    step(service, jobs, settles=settles, token=outcome.tokens[0])
    append(service, jobs, None)
    clock.advance(100)
    assert [round(value) for value in reported(service)] == [1, 1, 1, 1, 116]


def test_a_group_without_receivers_is_reported(service: Service, clock: ManualClock) -> None:
    jobs = queue_of(service)
    step(service, jobs, 1)
    assert reported(service) == [1, 0, 0, 0, 0]
    append(service, jobs, None)
    clock.advance(60)
    assert [round(value) for value in reported(service)] == [1, 0, 0, 0, 60]
    run(service.leases.forget(jobs, "workers"))
    assert reported(service) == [0, 0, 0, 0, 0]


def test_groups_that_were_used_last_are_reported(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_figures, "MOST_GROUPS", 3)
    for at in range(5):
        step(service, queue_of(service, f"q{at}", f"app{at}"), 1)
        run(service.held_figures.turn())
    assert [reported(service, f"app{at}")[0] for at in range(5)] == [0, 0, 1, 1, 1]


def test_a_turn_looks_at_some_groups_and_the_next_at_others(
    service: Service, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held_figures, "MOST_PARTITIONS", 4)
    for at in range(6):
        queue = queue_of(service, f"q{at}", f"app{at}")
        append(service, queue, None)
        step(service, queue, 1)
    clock.advance(1)
    run(service.held_figures.turn())
    held = []
    for _ in range(3):
        held.append(sum(service.monitor.value(LEASE_GROUPS_HELD, f"app{at}") for at in range(6)))
        run(service.held_figures.turn())
    assert held == [2, 4, 6]


def test_a_store_that_is_away_leaves_what_was_seen_before(
    service: Service, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = queue_of(service)
    append(service, jobs, None)
    step(service, jobs, 1)
    before = reported(service)
    monkeypatch.setattr(service.stores.leases, "count", lambda *_: Future.failed(StorageUnavailable("away")))
    clock.advance(7)
    assert [round(value) for value in reported(service)] == [*map(round, before[:4]), 7]
