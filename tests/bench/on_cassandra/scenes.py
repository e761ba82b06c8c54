"""Loads on Cassandra for the profile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from time import perf_counter

from tests.bench.drivers import append_one, drive, in_turn
from tests.bench.on_cassandra.appends import QUEUE, appending, batch_into
from tests.bench.on_cassandra.driver import BATCHES_IN_FLIGHT, SINGLES_IN_FLIGHT
from tests.bench.on_cassandra.reads import pages_script, reading
from tests.bench.plan import PARTITIONS, Plan
from tests.bench.profile import Scene
from tests.bench.reads import stream_raw


@contextmanager
def _appending(plan: Plan, script: str, connections: int) -> Iterator[Scene]:
    with appending(plan) as there:
        yield Scene(there.server, lambda seconds: drive(there.server, script, connections, seconds))


@contextmanager
def _reading(plan: Plan) -> Iterator[Scene]:
    with reading(plan) as there:
        yield Scene(there.server, lambda seconds: drive(there.server, pages_script(there), 1, seconds))


@contextmanager
def _streaming(plan: Plan) -> Iterator[Scene]:
    def load(seconds: float) -> None:
        began = perf_counter()
        while perf_counter() - began < seconds:
            stream_raw(there.server)

    with reading(plan) as there:
        yield Scene(there.server, load)


_BATCHES = [batch_into([partition], QUEUE) for partition in range(1, PARTITIONS + 1)]

SCENES: dict[str, Callable[[Plan], AbstractContextManager[Scene]]] = {
    "append": lambda plan: _appending(plan, in_turn([append_one(QUEUE)]), SINGLES_IN_FLIGHT),
    "batch": lambda plan: _appending(plan, in_turn(_BATCHES), BATCHES_IN_FLIGHT),
    "read": _reading,
    "arrow": _streaming,
}
