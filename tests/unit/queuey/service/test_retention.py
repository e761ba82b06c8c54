"""Messages that go once every lease group has settled them, in memory and in a file."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from queuey.clock import ManualClock
from queuey.future import run
from queuey.ids import IdGenerator
from queuey.model import AppendRequest, Draft, Retention
from queuey.service import Service
from queuey.service.queues import QueueSettings
from queuey.settings import load_settings
from queuey.storage import Stores
from queuey.storage.memory import MemoryStores
from queuey.storage.sqlite import SqliteStores
from tests.support.retaining import GROUPS, RetainedHistory


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=["memory", "file"])
def service(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> Iterator[Service]:
    ids = IdGenerator(clock)
    stores: Stores = (
        MemoryStores(clock, ids) if request.param == "memory" else SqliteStores(tmp_path / "queuey.db", clock, ids)
    )
    opened = Service(load_settings(None, {}, {}), stores, clock=clock, waiters_by_hand=True)
    yield opened
    opened.close()


@pytest.mark.parametrize("seed", range(2))
def test_nothing_goes_that_some_group_has_not_settled(service: Service, clock: ManualClock, seed: int) -> None:
    history = RetainedHistory(service, "jobs", random.Random(seed), clock.advance)
    history.run(60)
    history.finish(*GROUPS)
    assert not history.there()


def test_a_group_that_has_settled_nothing_holds_all(service: Service, clock: ManualClock) -> None:
    history = RetainedHistory(service, "jobs", random.Random(1), clock.advance)
    for _ in range(5):
        history.append(700)
    whole = history.there()
    history.finish(GROUPS[0])
    assert history.there() == whole == history.unsettled[GROUPS[1]]


def test_a_queue_without_groups_keeps_all(service: Service) -> None:
    queue = run(service.queues.create("demo", "a", QueueSettings(retention=Retention.ACKNOWLEDGED)))
    run(service.log.append(AppendRequest(queue, [Draft(1, b"x", 3600)] * 5)))
    service.retained.note(queue)
    run(service.retained.turn())
    assert run(service.queues.inspect(queue))[0].depth == 5
