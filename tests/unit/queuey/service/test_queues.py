"""Numbers of several queues, with one call of the store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from queuey.future import Future, run
from queuey.model import EMPTY_PARTITION, PartitionId, PartitionState
from queuey.service import Service
from queuey.service.queues import QueueSettings
from queuey.settings import load_settings


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
