"""Gauges of named queues, of the disk and of keys."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from queuey.clock import ManualClock
from queuey.errors import StorageUnavailable
from queuey.future import Future, run
from queuey.ids import ZERO_ID, IdGenerator
from queuey.model import AppendRequest, Draft, OffsetChange, Queue
from queuey.model.lease_groups import GroupSettings
from queuey.model.lease_requests import ReceiveRequest
from queuey.model.lease_steps import GroupStep, LeaseStep
from queuey.monitor.declared import Gauge
from queuey.monitor.metrics import (
    DISK_FREE,
    DISK_RESERVE,
    KEY_CREATED,
    QUEUE_BYTES,
    QUEUE_DEPTH,
    QUEUE_GROUP_OLDEST,
    QUEUE_OLDEST,
    QUEUE_SCHEDULED,
)
from queuey.security.principals import app_principal
from queuey.service import Service, watched_figures
from queuey.service.queues import QueueSettings
from queuey.settings import load_settings
from queuey.storage.memory import MemoryStores

NAMED = "demo/jobs\ndemo/gone\nnobody/jobs"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def service(clock: ManualClock, tmp_path: Path) -> Iterator[Service]:
    stores = MemoryStores(clock, IdGenerator(clock))
    variables = {"QUEUEY_METRICS_QUEUES": NAMED, "QUEUEY_DATA": str(tmp_path)}
    opened = Service(load_settings(None, variables, {}), stores, clock=clock, waiters_by_hand=True)
    yield opened
    opened.close()


def queue_of(service: Service, name: str = "jobs") -> Queue:
    return run(service.queues.create("demo", name, QueueSettings(partitions=2)))


def append(service: Service, queue: Queue, body: bytes = b"x", partition: int = 1) -> None:
    run(service.log.append(AppendRequest(queue, [Draft(partition, body, 86_400)])))


def look(service: Service) -> None:
    run(service.watched_figures.turn())


def series(service: Service, gauge: Gauge) -> dict[tuple[str, ...], float]:
    found = dict(service.monitor.figures())[gauge]
    return {labels: value for labels, (value,) in found.items()}


def receive(service: Service, queue: Queue, group: str) -> None:
    new = service.leases.new_group(GroupSettings(), ZERO_ID)
    step = GroupStep(queue, group, new, receive_from=(1, 2))
    service.stores.leases.step(LeaseStep([step], receive=ReceiveRequest(1))).wait()


def test_a_named_queue_has_its_figures_and_no_other_queue_has(service: Service, clock: ManualClock) -> None:
    jobs, other = queue_of(service), queue_of(service, "other")
    for queue in (jobs, other):
        append(service, queue, b"abc")
        append(service, queue, b"de", partition=2)
    clock.advance(5)

    look(service)

    assert series(service, QUEUE_DEPTH) == {("demo", "jobs"): 2}
    assert series(service, QUEUE_SCHEDULED) == {("demo", "jobs"): 0}
    assert series(service, QUEUE_BYTES) == {("demo", "jobs"): 5}
    assert series(service, QUEUE_OLDEST)["demo", "jobs"] == pytest.approx(5, abs=0.1)


def test_a_group_shows_the_oldest_message_that_it_has_not_finished(service: Service, clock: ManualClock) -> None:
    jobs = queue_of(service)
    append(service, jobs)
    clock.advance(7)
    append(service, jobs, partition=2)
    clock.advance(3)
    receive(service, jobs, "workers")
    (first,) = run(service.queues.inspect(jobs))[:1]
    assert first.oldest is not None
    service.offsets.change(jobs, "readers", OffsetChange({1: first.oldest}, 0)).wait()

    look(service)

    found = series(service, QUEUE_GROUP_OLDEST)
    assert found["demo", "jobs", "workers", "lease"] == pytest.approx(10, abs=0.1)
    assert found["demo", "jobs", "readers", "offsets"] == pytest.approx(3, abs=0.1)


def test_a_queue_that_is_gone_leaves_the_metrics(service: Service) -> None:
    jobs = queue_of(service)
    append(service, jobs)
    receive(service, jobs, "workers")
    look(service)
    assert series(service, QUEUE_GROUP_OLDEST)

    run(service.queues.delete(jobs))
    look(service)

    assert series(service, QUEUE_DEPTH) == series(service, QUEUE_GROUP_OLDEST) == {}


def test_groups_are_shown_up_to_a_bound(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watched_figures, "MOST_GROUPS", 2)
    jobs = queue_of(service)
    append(service, jobs)
    for name in "dacb":
        receive(service, jobs, name)

    look(service)

    assert [labels[2] for labels in series(service, QUEUE_GROUP_OLDEST)] == ["a", "b"]


def test_a_store_that_fails_once_ends_nothing(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    append(service, queue_of(service))
    with monkeypatch.context() as patched:
        patched.setattr(service.stores.messages, "inspect", lambda *_, **__: Future.failed(StorageUnavailable()))
        look(service)
        assert series(service, QUEUE_DEPTH) == {}

    look(service)

    assert series(service, QUEUE_DEPTH) == {("demo", "jobs"): 1}


def test_the_oldest_key_in_force_has_its_date(service: Service, clock: ManualClock) -> None:
    run(service.keys.new("demo"))
    created = service.keys.of(app_principal("demo"))[0].created_ticks
    clock.advance(100)
    run(service.keys.new("demo"))
    run(service.keys.new("root", operator=True))

    look(service)

    found = series(service, KEY_CREATED)
    assert found.keys() == {("demo",), ("operator:root",)}
    assert found[("operator:root",)] - found[("demo",)] == pytest.approx(100, abs=0.1)
    assert service.keys.oldest()["demo"] == created


def test_the_disk_of_an_embedded_store_is_shown(service: Service) -> None:
    look(service)

    assert series(service, DISK_FREE)[()] > 0
    assert series(service, DISK_RESERVE) == {(): 64 << 20}
