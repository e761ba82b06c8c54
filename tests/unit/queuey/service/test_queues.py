"""Queues: numbers of several with one call of the store, and removals that an earlier process left."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any
from uuid import UUID

import pytest

from queuey.errors import (
    ClockUnsafe,
    OutcomeUnknown,
    QueueNotFound,
    QueueyError,
    SettingsChanged,
    StorageUnavailable,
)
from queuey.future import Future, run
from queuey.model import EMPTY_PARTITION, Consistency, PartitionId, PartitionState, Queue, QueueKind
from queuey.service import Service
from queuey.service import queues as queues_module
from queuey.service.queues import Queues, QueueSettings
from queuey.service.removals import Removals
from queuey.settings import load_settings
from queuey.storage.memory.metadata import MemoryMetadata
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


def test_removals_that_cannot_be_finished_hold_up_none_of_those_behind_them(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first hundred were tried, again and again."""
    monkeypatch.setattr(queues_module, "_REMOVALS", 2)
    queues = [run(service.queues.create("demo", name, QueueSettings())) for name in "abcdefghi"]
    drop = service.stores.messages.drop

    def cannot(_: UUID) -> Future[None]:
        return Future.failed(StorageUnavailable("its messages are on their way"))

    with monkeypatch.context() as away:
        away.setattr(service.stores.messages, "drop", cannot)
        for queue in queues:
            with pytest.raises(OutcomeUnknown):
                run(service.queues.delete(queue))
    held = {*service.stores.metadata.removed(5).wait()}

    monkeypatch.setattr(service.stores.messages, "drop", lambda queue: cannot(queue) if queue in held else drop(queue))
    assert run(service.queues.finish_removals())

    assert {*service.stores.metadata.removed().wait()} == held


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


class _Unknown:
    """Lets a change of a store be carried out, and nobody know of it."""

    def __init__(self, change: Callable[..., Future[bool]], meanwhile: Callable[[], object]) -> None:
        self._change, self._meanwhile = change, meanwhile

    def __call__(self, *given: Any) -> Future[bool]:
        self._meanwhile()
        self._change(*given).wait()
        return Future.failed(OutcomeUnknown())


def test_a_change_that_may_be_stored_leaves_no_settings_behind_that_were_read_before_it(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a store of one server such settings were used until it ended."""
    queue = run(service.queues.create("demo", "a", QueueSettings()))
    metadata = service.stores.metadata
    change = _Unknown(metadata.replace_queue, lambda: run(service.queues.find("demo", "a")))
    with monkeypatch.context() as unknown:
        unknown.setattr(metadata, "replace_queue", change)
        with pytest.raises(OutcomeUnknown):
            run(service.queues.update(queue, QueueSettings(partitions=7)))

    found = run(service.queues.find("demo", "a"))
    assert found is not None
    assert found.partitions == 7


def test_a_removal_that_may_be_decided_is_finished(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it left stayed until a server began anew."""
    queue = run(service.queues.create("demo", "a", QueueSettings()))
    metadata = service.stores.metadata
    change = _Unknown(metadata.remove_queue, lambda: run(service.queues.find("demo", "a")))
    monkeypatch.setattr(service.removals, "_rest_seconds", 0.01)
    service.removals.start()
    with monkeypatch.context() as unknown:
        unknown.setattr(metadata, "remove_queue", change)
        with pytest.raises(OutcomeUnknown):
            run(service.queues.delete(queue))

    assert run(service.queues.find("demo", "a")) is None
    assert eventually(lambda: not [*metadata.removed().wait()])


def test_where_servers_share_a_store_each_looks_again_for_removals_that_another_one_left(
    service: Service, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(service.stores.metadata, "trusted_seconds", 1.0)
    queues = Queues(service.stores, service.clock, service.monitor, service.waiters)
    removals = Removals(queues)
    monkeypatch.setattr(removals, "_rest_seconds", 0.01)
    looks = list[int]()

    def removed(limit: int = 100) -> Future[Sequence[UUID]]:
        looks.append(limit)
        return Future.of([]) if len(looks) != 2 else Future.failed(StorageUnavailable())

    monkeypatch.setattr(service.stores.metadata, "removed", removed)
    run(removals.turn())
    removals.start()
    assert eventually(lambda: len(looks) > 3)
    removals.stop()
    assert not [one for one in caplog.records if one.levelname == "ERROR"]


def test_while_the_clock_may_be_wrong_no_queue_is_made_or_removed(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that was removed by a clock that was ahead hid the same name that was added by a right one."""
    queue = run(service.queues.create("demo", "a", QueueSettings()))

    def unsafe(_: Consistency) -> int:
        raise ClockUnsafe

    with monkeypatch.context() as wrong:
        wrong.setattr(service.stores.messages, "watermark", unsafe)
        with pytest.raises(ClockUnsafe):
            run(service.queues.delete(queue))
        with pytest.raises(ClockUnsafe):
            run(service.queues.create("demo", "b", QueueSettings()))

    assert [one.name for one in run(service.queues.page("demo", start="", limit=9))] == ["a"]


def test_a_queue_that_another_server_has_removed_is_not_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemoryMetadata, "trusted_seconds", 0.0)
    service = Service.open(load_settings(None, {"QUEUEY_STORAGE_BACKEND": "memory"}, {}))
    queue = run(service.queues.create("demo", "a", QueueSettings()))
    assert run(service.queues.find("demo", "a")) == queue
    service.stores.metadata.remove_queue(queue).wait()
    assert service.queues.in_use("demo", 10) == [queue]

    assert run(service.queues.find("demo", "a")) is None

    assert service.queues.in_use("demo", 10) == []
    service.close()


def test_a_change_by_another_server_counts_for_a_condition(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether it came before the look at the settings, or between that and the change."""
    monkeypatch.setattr(MemoryMetadata, "trusted_seconds", 1e9)
    service = Service.open(load_settings(None, {"QUEUEY_STORAGE_BACKEND": "memory"}, {}))
    metadata = service.stores.metadata
    first = run(service.queues.create("demo", "a", QueueSettings()))
    second = first._replace(principals=("app:other",))
    cached = run(service.queues.find("demo", "a"))
    assert cached == first
    metadata.replace_queue(first, second).wait()

    with pytest.raises(SettingsChanged):
        run(service.queues.update(cached, QueueSettings(partitions=2), first.__eq__))
    third = run(service.queues.update(cached, QueueSettings(partitions=2), second.__eq__))
    assert third == second._replace(partitions=2)

    replace = metadata.replace_queue

    def too_late(old: Queue, new: Queue) -> Future[bool]:
        replace(old, old._replace(kind=QueueKind.PUBLIC)).wait()
        return replace(old, new)

    monkeypatch.setattr(metadata, "replace_queue", too_late)
    with pytest.raises(SettingsChanged):
        run(service.queues.update(cached, QueueSettings(partitions=3), third.__eq__))
    assert metadata.find_queue("demo", "a").wait() == third._replace(kind=QueueKind.PUBLIC)
    service.close()
