"""Messages that go once every lease group has settled them, in memory and in a file."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from queuey.clock import ManualClock
from queuey.future import run
from queuey.ids import IdGenerator, MessageId
from queuey.model import AppendRequest, Draft, Queue, Retention
from queuey.model.lease_state import LeaseState
from queuey.service import Service
from queuey.service.leases import Leases
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


async def _by_the_first_group(leases: Leases, queue: Queue) -> Mapping[int, MessageId]:
    counts = await leases.count(queue, GROUPS[0])
    return {number: one.done_up_to for number, one in counts.items()}


PLANTED: dict[str, tuple[type, str, object]] = {
    "what was handed out counts as settled": (LeaseState, "done_up_to", property(lambda state: state.frontier)),
    "one group decides": (Leases, "settled_by_all", _by_the_first_group),
}


@pytest.mark.parametrize("fault", PLANTED)
def test_a_history_finds(fault: str, service: Service, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*PLANTED[fault])
    history = RetainedHistory(service, "jobs", random.Random(1), clock.advance)
    with pytest.raises(AssertionError):  # noqa: PT012 - a store that removes whole packs shows it later
        history.run(60)
        history.finish(GROUPS[0])


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
