"""G4: the order of ids is that of Cassandra's own ORDER BY, and processes that share a moment make no id twice."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count

import pytest
from cassandra.cluster import Session
from cassandra.concurrent import execute_concurrent_with_args
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from qdo.measure import disorder, duplicates
from queuey.clock import ManualClock
from queuey.ids import IdGenerator, MessageId, tail_from_low
from queuey.storage.cassandra.buckets import tail_for
from tests.support.figures import Figures
from tests.support.services.cassandra import session
from tests.support.services.fixtures import Reached

TICKS = st.integers(137_000_000_000_000_000, 137_000_000_000_000_003) | st.integers(1, (1 << 60) - 1)
LOWS = st.integers(0b10 << 62, (0b11 << 62) - 1)
IDS = st.builds(MessageId, TICKS, LOWS.map(tail_from_low))
STEPS = st.lists(st.sampled_from((-5.0, -0.001, -0.0000001, 0.0, 0.0000001, 0.001, 5.0)), min_size=1, max_size=12)
FORKS = """
import os, sys
from queuey.clock import ManualClock
from queuey.ids import IdGenerator
ids = IdGenerator(ManualClock())
for number in range(int(sys.argv[1])):
    if number and os.fork():
        os.wait()
    else:
        made = [ids.next_id().hex for _ in range(50)]
        print(*made, flush=True)
        if number:
            os._exit(0)
"""
"""Makes ids and forks; all processes have the same time, which stands still."""


@dataclass
class Table:
    """One Cassandra partition after the other, with nothing in it but ids."""

    node: Session
    numbers: Iterator[int]

    def __post_init__(self) -> None:
        self.node.execute("create table ids (part int, id timeuuid, primary key ((part), id))")
        self.insert = self.node.prepare("insert into ids (part, id) values (?, ?)")
        self.rising = self.node.prepare("select id from ids where part = ? order by id asc")
        self.falling = self.node.prepare("select id from ids where part = ? order by id desc")
        self.between = self.node.prepare("select id from ids where part = ? and id > ? and id <= ?")

    def keep(self, ids: Sequence[MessageId]) -> int:
        """Store ids in a partition of their own; its number."""
        part = next(self.numbers)
        execute_concurrent_with_args(self.node, self.insert, [(part, one.uuid) for one in ids])
        return part

    def ids(self, statement: object, *values: object) -> list[MessageId]:
        return [MessageId.from_uuid(row.id) for row in self.node.execute(statement, values)]


@pytest.fixture(scope="module")
def table(cassandra_node: Reached, module_keyspace: str) -> Iterator[Table]:
    replication = "{'class': 'SimpleStrategy', 'replication_factor': 1}"
    with session(cassandra_node.address, cassandra_node.port) as node:
        node.execute(f"create keyspace {module_keyspace} with replication = {replication}")
        node.set_keyspace(module_keyspace)
        yield Table(node, count(1))


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(IDS, min_size=1, max_size=12, unique=True))
def test_any_ids_have_the_order_of_cassandra(table: Table, ids: list[MessageId]) -> None:
    part = table.keep(ids)

    assert table.ids(table.rising, part) == sorted(ids)
    assert table.ids(table.falling, part) == sorted(ids, reverse=True)


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(IDS, min_size=1, max_size=12, unique=True), st.data())
def test_bounds_that_are_no_ids_divide_them_as_in_cassandra(
    table: Table, ids: list[MessageId], data: st.DataObject
) -> None:
    bounds = [bound for one in ids for bound in (one, one.before(), one.following())]
    bounds += [bound for one in ids for bound in (MessageId.first_of(one.ticks), MessageId.last_of(one.ticks))]
    after, upto = sorted(data.draw(st.tuples(st.sampled_from(bounds), st.sampled_from(bounds))))
    part = table.keep(ids)

    assert table.ids(table.between, part, after.uuid, upto.uuid) == sorted(one for one in ids if after < one <= upto)


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(STEPS, st.lists(st.integers(0, 3), min_size=12, max_size=12))
def test_what_a_process_makes_rises_in_cassandra_while_its_clock_is_stepped(
    table: Table, steps: list[float], levels: list[int]
) -> None:
    clock = ManualClock()
    ids = IdGenerator(clock)
    made = []
    for step, level in zip(steps, levels, strict=False):
        clock.step(step)
        ticks = ids.stamp(3)
        made += [MessageId(ticks + number, tail_for(level, ids.tail)) for number in range(3)]

    assert table.ids(table.rising, table.keep(made)) == made


def test_processes_that_fork_at_one_moment_share_ticks_and_no_ids(table: Table, figures: Figures) -> None:
    processes = 6
    said = subprocess.run(
        [sys.executable, "-c", FORKS, str(processes)], capture_output=True, text=True, check=True, timeout=60
    )
    made = [[MessageId.parse(text) for text in line.split()] for line in said.stdout.splitlines()]
    every = [one for ids in made for one in ids]
    stored = table.ids(table.rising, table.keep(every))

    figures(
        "G4",
        producers=len(made),
        disorder=max(disorder(ids)[0] for ids in made),
        ties=len(every) - len({one.ticks for one in every}),
        duplicates_of_id=len(duplicates(every)),
    )
    assert len(made) == processes
    assert duplicates(every) == []
    assert len(every) > len({one.ticks for one in every})
    assert stored == sorted(every)
    assert all(ids == sorted(ids) for ids in made)
