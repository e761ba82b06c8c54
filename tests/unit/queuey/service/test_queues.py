"""Queues: numbers of several with one call of the store, and removals that an earlier process left."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from uuid import UUID

import pytest

from queuey.errors import OutcomeUnknown, QueueNotFound, QueueyError, StorageUnavailable
from queuey.future import Future, run
from queuey.model import EMPTY_PARTITION, PartitionId, PartitionState
from queuey.service import Service
from queuey.service.queues import QueueSettings
from queuey.settings import load_settings
from tests.support.servers import eventually


@pytest.fixture
def service() -> Iterator[Service]:
    service = Service.open(load_settings(None, {"QUEUEY_STORAGE_BACKEND": "memory"}, {}))
    yield service
    service.close()


@pytest.mark.parametrize(("counted", "whole"), [(6, 3), (5, 2), (3, 2), (2, 1), (0, 0)])
def test_a_queue_has_its_numbers_only_if_all_its_partitions_were_counted(
    service: Service, monkeypatch: pytest.MonkeyPatch, counted: int, whole: int
) -> None:
    queues = [
        run(service.queues.create("demo", f"q{partitions}", QueueSettings(partitions=partitions)))
        for partitions in (1, 2, 3)
    ]
    asked: list[Sequence[PartitionId]] = []

    def inspect(
        partitions: Sequence[PartitionId], *, now_ticks: int, seconds: float
    ) -> Future[Sequence[PartitionState]]:
        asked.append(partitions)
        return Future.of([EMPTY_PARTITION._replace(depth=number) for number in range(len(partitions))][:counted])

    monkeypatch.setattr(service.stores.messages, "inspect", inspect)

    found = run(service.queues.inspect_several(queues, 1.0))

    expected = [[0], [1, 2], [3, 4, 5]]
    assert [None if one is None else [state.depth for state in one] for one in found] == [
        numbers if place < whole else None for place, numbers in enumerate(expected)
    ]
    assert [len(partitions) for partitions in asked] == [6]


def test_no_queues_have_no_numbers(service: Service) -> None:
    assert run(service.queues.inspect_several([], 1.0)) == []


def test_a_removal_that_cannot_be_finished_keeps_no_other_from_it(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    queues = [run(service.queues.create("demo", name, QueueSettings())) for name in ("a", "b", "c")]
    drop, held = service.stores.messages.drop, queues[1].uuid

    def cannot(_: UUID) -> Future[None]:
        return Future.failed(StorageUnavailable("its messages are on their way"))

    def drop_others(queue: UUID) -> Future[None]:
        return cannot(queue) if queue == held else drop(queue)

    with monkeypatch.context() as away:
        away.setattr(service.stores.messages, "drop", cannot)
        for queue in queues:
            with pytest.raises(OutcomeUnknown):
                run(service.queues.delete(queue))
    with monkeypatch.context() as away:
        away.setattr(service.stores.messages, "drop", drop_others)
        assert run(service.queues.finish_removals())
        assert [*service.stores.metadata.removed().wait()] == [held]
    assert not run(service.queues.finish_removals())
    assert [*service.stores.metadata.removed().wait()] == []


@pytest.mark.parametrize("failure", [StorageUnavailable(), QueueNotFound()])
def test_a_removal_that_could_not_be_finished_goes_on_by_itself(
    service: Service, monkeypatch: pytest.MonkeyPatch, failure: QueueyError
) -> None:
    queue = run(service.queues.create("demo", "a", QueueSettings()))
    drop = service.stores.messages.drop
    failures: list[QueueyError] = [OutcomeUnknown(), StorageUnavailable(), QueueNotFound(), failure]

    def drop_later(incarnation: UUID) -> Future[None]:
        return Future.failed(failures.pop()) if failures else drop(incarnation)

    monkeypatch.setattr(service.stores.messages, "drop", drop_later)
    monkeypatch.setattr(service.removals, "_rest_seconds", 0.01)
    service.removals.start()
    with pytest.raises(OutcomeUnknown):
        run(service.queues.delete(queue))
    assert eventually(lambda: not [*service.stores.metadata.removed().wait()])
    assert not failures
