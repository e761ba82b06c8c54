"""The cells of the table of promises find what is wrong, and nothing where nothing is."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from qdo.bench import promises
from qdo.bench.drivers import Consumer, DeadLetterDriver, Delivered, MeasuredSystem, OutgoingMessage, StepConsumer
from qdo.bench.drivers.memory import MemoryDriver, _MemoryConsumer, _Token
from qdo.bench.promises import Trial, TrialResult, beside, probes
from qdo.bench.promises.table import ROWS
from qdo.bench.workload import Workload
from queuey.errors import ConfigurationError, OutcomeUnknown, QueueNotFound, StaleReceipt


class NothingToKill:
    """The system in memory lives as long as its process."""

    def kill(self) -> None:
        """Nothing."""

    start = kill


@dataclass(frozen=True)
class TrialInMemory(Trial):
    """Of a system in this process."""

    kind: Callable[[MeasuredSystem], MemoryDriver] = MemoryDriver

    @contextmanager
    def running(self, workload: Workload) -> Iterator[tuple[Any, MemoryDriver]]:
        yield NothingToKill(), self.kind(MeasuredSystem(workload, 1, {}))


def trial(kind: Callable[[MeasuredSystem], MemoryDriver] = MemoryDriver) -> Trial:
    return TrialInMemory(ROWS["embedded"], {}, Path(), kind)


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leases of a tenth of a second: the system answers at once."""
    monkeypatch.setattr(probes, "HELD_SECONDS", 0.1)
    monkeypatch.setattr(probes, "QUIET_SECONDS", 0.4)
    monkeypatch.setattr(probes, "MESSAGES", 20)
    monkeypatch.setattr(probes, "STALE_ROUNDS", 2)
    monkeypatch.setattr(promises, "KILL_SECONDS", (0, 0.01))


class Steps(_MemoryConsumer, StepConsumer):
    """Settles and sends; each third time it sends nothing, if it is torn."""

    torn = False
    done = 0

    def step(self, tokens: Sequence[object], topic: int, messages: Sequence[OutgoingMessage]) -> None:
        if not all(self.acknowledge(tokens)):
            raise StaleReceipt("an earlier lease")
        Steps.done += 1
        if not self.torn or Steps.done % 3:
            self._driver.queues[topic].append(messages)


class TornSteps(Steps):
    torn = True


class WithSteps(MemoryDriver):
    def consumer(self, topic: int, subscription: int) -> Consumer:
        return Steps(self, topic, subscription)


class WithTornSteps(WithSteps):
    def consumer(self, topic: int, subscription: int) -> Consumer:
        return TornSteps(self, topic, subscription)


class Forgetful(MemoryDriver):
    """A deleted queue is gone."""

    def remove(self) -> None:
        self.queues = type(self)(self.target).queues


class Credulous(MemoryDriver):
    """Settles by a receipt of an earlier lease."""

    def consumer(self, topic: int, subscription: int) -> Consumer:
        return Believing(self, topic, subscription)


class Believing(_MemoryConsumer):
    def acknowledge(self, tokens: Sequence[object]) -> Sequence[bool]:
        line = self._queue._lines[self._subscription]
        now = [_Token(one.index, line.turns[one.index]) for one in tokens if isinstance(one, _Token)]
        return super().acknowledge(now)


@pytest.mark.parametrize(("kind", "torn"), [(WithSteps, False), (WithTornSteps, True)])
def test_a_torn_step_is_found(kind: type[MemoryDriver], torn: bool) -> None:
    found = probes.torn_step(trial(kind))

    assert (found.wrong, found.of) == (found.wrong if torn else 0, 20)
    assert bool(found.wrong) is torn


@pytest.mark.parametrize(("kind", "ghosts"), [(Forgetful, 0), (MemoryDriver, 18)])
def test_ghosts_are_found(kind: type[MemoryDriver], ghosts: int) -> None:
    assert probes.ghost_after_delete(trial(kind)).wrong == ghosts


@pytest.mark.parametrize(("kind", "accepted"), [(MemoryDriver, 0), (Credulous, 20)])
def test_a_stale_acknowledgement_is_found(kind: type[MemoryDriver], accepted: int) -> None:
    found = probes.stale_accepted(trial(kind))

    assert (found.wrong, found.of) == (accepted, 20)


class Gone(StepConsumer):
    """Of a queue that a kill has taken."""

    def receive(self, wait: float) -> Sequence[Delivered]:
        raise QueueNotFound("gone")

    def step(self, tokens: Sequence[object], topic: int, messages: Sequence[OutgoingMessage]) -> None:
        """Never asked for: nothing is received."""


class LosesResults(WithSteps):
    def consumer(self, topic: int, subscription: int) -> Consumer:
        return Gone() if topic else super().consumer(topic, subscription)


class LosesQueues(MemoryDriver, DeadLetterDriver):
    def consumer(self, topic: int, subscription: int) -> Consumer:
        return Gone()

    def letters(self, topic: int) -> Consumer:
        return Gone()


@pytest.mark.parametrize(
    ("probe", "kind"),
    [
        (probes.torn_step, LosesResults),
        (probes.torn_step, LosesQueues),
        (probes.two_dead_letters, LosesQueues),
    ],
)
def test_a_queue_that_a_kill_takes_has_lost_all_of_it(
    probe: Callable[[Trial], TrialResult], kind: type[MemoryDriver]
) -> None:
    found = probe(trial(kind))

    assert (found.wrong, found.of) == (20, 20)


class Silent(WithSteps):
    """Its acknowledgements have no answer, and are taken all the same."""

    def consumer(self, topic: int, subscription: int) -> Consumer:
        return Unanswering(self, topic, subscription) if topic else super().consumer(topic, subscription)


class Unanswering(Steps):
    def acknowledge(self, tokens: Sequence[object]) -> Sequence[bool]:
        super().acknowledge(tokens)
        raise OutcomeUnknown("no answer")


def test_what_came_and_was_settled_without_an_answer_is_there_once() -> None:
    assert probes.torn_step(trial(Silent)).wrong == 0


def test_what_a_thread_raises_beside_a_block_is_raised_there() -> None:
    def work(leave: threading.Event) -> None:
        leave.wait()
        raise ValueError("of the thread")

    with pytest.raises(ValueError, match="of the thread"), beside(work):
        """It waits."""
    with pytest.raises(KeyError, match="of the block"), beside(work):
        raise KeyError("of the block")


def test_what_a_system_lacks_is_said() -> None:
    with pytest.raises(ConfigurationError, match="no step that acknowledges and sends"):
        probes.torn_step(trial())
    with pytest.raises(ConfigurationError, match="moves no failing messages"):
        probes.two_dead_letters(trial())
