"""What a power cut is found to have lost, with a system that lives in memory."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import pytest

from qdo.bench.drivers import Consumer, MeasuredSystem, OutgoingMessage, Producer
from qdo.bench.drivers.memory import MemoryDriver
from qdo.bench.promises import NotHere, Trial, power
from qdo.bench.promises.table import ROWS
from qdo.bench.systems import EndedAtStart
from qdo.bench.workload import Workload
from queuey.errors import QueueNotFound, StorageUnavailable


class NoDisk:
    """Loses nothing."""

    def __init__(self, folder: Path) -> None:
        self.path = folder

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing."""

    def cut(self) -> None:
        """Nothing."""


class StartsAgain:
    data_elsewhere = False

    def kill(self) -> None:
        """Nothing."""

    def start(self) -> None:
        """Nothing."""


class Ends(StartsAgain):
    """Its program ends when it sees its files."""

    def start(self) -> None:
        raise EndedAtStart("it did not start, and said: reading\nbad file\n")


class IsSlow(StartsAgain):
    def start(self) -> None:
        raise StorageUnavailable("it did not start in time")


class LosesQueues(MemoryDriver):
    def consumer(self, topic: int, subscription: int) -> Consumer:
        raise QueueNotFound


@dataclass(frozen=True)
class TrialInMemory(Trial):
    started: Any = None
    kind: type[MemoryDriver] = MemoryDriver

    @property
    def system_type(self) -> Any:
        return type(self.started)

    def system(self) -> Any:
        return self.started

    @contextmanager
    def running(self, workload: Workload) -> Iterator[tuple[Any, MemoryDriver]]:
        yield self.started, self.kind(MeasuredSystem(workload, 1, {}))


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(power, "LossyDisk", NoDisk)
    monkeypatch.setattr(power, "LOAD_SECONDS", 0.0)
    monkeypatch.setattr(power, "LEAST_MESSAGES", 30)
    monkeypatch.setattr(power, "QUIET_SECONDS", 0.1)


class IsSlowToSend(MemoryDriver):
    """Its messages take a hundredth of a second each."""

    def producer(self) -> Producer:
        producer = super().producer()
        send = producer.send

        def slowly(topic: int, messages: Sequence[OutgoingMessage]) -> None:
            time.sleep(0.01)
            send(topic, messages)

        producer.send = slowly  # type: ignore[method-assign]
        return producer


def trial(system: StartsAgain, folder: Path, kind: type[MemoryDriver] = MemoryDriver) -> Trial:
    return TrialInMemory(ROWS["embedded"], {}, folder, system, kind)


def test_a_system_that_keeps_everything_has_lost_nothing(tmp_path: Path) -> None:
    found = power.lost_at_power_cut(trial(StartsAgain(), tmp_path))

    assert (found.wrong, found.of > 0) == (0, True)


def test_a_slow_system_is_cut_when_it_has_enough_to_lose(tmp_path: Path) -> None:
    found = power.lost_at_power_cut(trial(StartsAgain(), tmp_path, IsSlowToSend))

    assert found.wrong == 0
    assert found.of >= power.CUTS * 30


def test_a_system_that_does_not_start_again_has_lost_all_of_it(tmp_path: Path) -> None:
    found = power.lost_at_power_cut(trial(Ends(), tmp_path))

    assert found.wrong == found.of > 0
    assert found.said.startswith("it does not start again after a power cut: ")
    assert found.said.endswith("said: reading bad file")


def test_a_system_whose_queue_is_gone_has_lost_all_of_it(tmp_path: Path) -> None:
    found = power.lost_at_power_cut(trial(StartsAgain(), tmp_path, LosesQueues))

    assert found.wrong == found.of > 0
    assert found.said == "the queue itself is gone after a power cut"


def test_a_system_that_is_slow_to_start_is_not_judged(tmp_path: Path) -> None:
    with pytest.raises(StorageUnavailable, match="in time"):
        power.lost_at_power_cut(trial(IsSlow(), tmp_path))


class IsElsewhere(StartsAgain):
    data_elsewhere = True


def test_no_power_is_cut_for_a_system_whose_data_are_on_another_disk(tmp_path: Path) -> None:
    with pytest.raises(NotHere, match="on another disk"):
        power.lost_at_power_cut(trial(IsElsewhere(), tmp_path))
