"""The bare driver: what a program could do without Queuey, in a process of its own.

``python -m tests.bench.on_cassandra.driver inserts|batches|pages|transactions|writes HOSTS PORT KEYSPACE QUEUE SECONDS`` writes to the
store's own table what the store would write, or reads pages of a thousand from it, and prints how many a second.
The driver is as it comes, but for TCP_NODELAY, token-aware routing to a quorum and plain tuples as rows.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from itertools import count
from uuid import UUID

from cassandra import ConsistencyLevel
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, Session
from cassandra.query import UNSET_VALUE, BatchStatement, BatchType, PreparedStatement, tuple_factory

from queuey.clock import SystemClock
from queuey.ids import EPOCH_TICKS, TICKS_PER_SECOND, IdGenerator, MessageId
from queuey.storage.cassandra.buckets import Bucket
from queuey.storage.cassandra.tables import CQL
from queuey.storage.checksums import checksum_of
from tests.bench.measure import BenchFailed
from tests.bench.on_cassandra.nodes import Nodes
from tests.bench.plan import BATCH, BODY, CONNECTIONS, PARTITIONS, TTL_SECONDS
from tests.bench.servers import ROOT

SINGLES_IN_FLIGHT = 100
BATCHES_IN_FLIGHT = 8
PAGE = 1000
_PATIENCE_SECONDS = 60
_FIRST_BUCKET = "select bucket from buckets where queue = %s and part = 1 limit 1"


def measured(nodes: Nodes, what: str, keyspace: str, queue: UUID, seconds: float) -> float:
    """Messages a second, in a process of its own, once the nodes rest.

    :raises BenchFailed: it could not.
    """
    nodes.rest()
    command = [sys.executable, "-m", "tests.bench.on_cassandra.driver", what, nodes.hosts, str(nodes.service.port)]
    done = subprocess.run(
        [*command, keyspace, queue.hex, str(seconds)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise BenchFailed(f"the bare driver ended with {done.returncode}: {done.stderr[-500:]}")
    return float(done.stdout)


class _Rows:
    """Makes rows like the store's: a fresh id each, an expiry, a checksum."""

    def __init__(self, queue: UUID) -> None:
        self._queue = queue
        self._clock = SystemClock()
        self._ids = IdGenerator(self._clock)
        self._body = BODY.encode()

    def next(self, partition: int) -> tuple[object, ...]:
        """Bindings of ``message_insert``."""
        at = self._ids.next_id()
        now = at.ticks
        expires = now + TTL_SECONDS * TICKS_PER_SECOND
        bucket = Bucket.at(0, now).number
        checksum = checksum_of(at, (None, None, None), self._body)
        rest = (UNSET_VALUE, UNSET_VALUE, self._body, UNSET_VALUE, TTL_SECONDS + 60, (now - EPOCH_TICKS) // 10)
        return (self._queue, partition, bucket, at.uuid, expires, checksum, *rest)


class _Flight:
    """A number of statements under way, each answer starting the next, until the time is up."""

    def __init__(self, session: Session, make: Callable[[], object], in_flight: int, seconds: float) -> None:
        self._session = session
        self._make = make
        self._until = time.perf_counter() + seconds
        self._left = in_flight
        self._done = 0
        self._failed: BaseException | None = None
        self._lock = threading.Lock()
        self._over = threading.Event()
        for _ in range(in_flight):
            self._start()

    def _start(self) -> None:
        self._session.execute_async(self._make()).add_callbacks(self._answered, self._refused)

    def _answered(self, _: object) -> None:
        self._done += 1
        if time.perf_counter() < self._until:
            self._start()
        else:
            self._end()

    def _refused(self, error: BaseException) -> None:
        self._failed = error
        self._end()

    def _end(self) -> None:
        with self._lock:
            self._left -= 1
            if not self._left:
                self._over.set()

    def finish(self) -> int:
        """Wait for all; how many were answered."""
        if not self._over.wait(_PATIENCE_SECONDS) or self._failed is not None:
            raise BenchFailed(f"the bare driver failed: {self._failed}")
        return self._done


def inserts(session: Session, insert: PreparedStatement, queue: UUID, seconds: float) -> int:
    """Single inserts, a hundred under way."""
    rows, turns = _Rows(queue), count()
    make = lambda: insert.bind(rows.next(next(turns) % PARTITIONS + 1))  # noqa: E731
    return _Flight(session, make, SINGLES_IN_FLIGHT, seconds).finish()


def batches(session: Session, insert: PreparedStatement, queue: UUID, seconds: float) -> int:
    """Unlogged batches of a hundred into one partition each, eight under way."""
    rows, turns = _Rows(queue), count()

    def make() -> BatchStatement:
        partition = next(turns) % PARTITIONS + 1
        batch = BatchStatement(BatchType.UNLOGGED)
        for _ in range(BATCH):
            batch.add(insert, rows.next(partition))
        return batch

    return BATCH * _Flight(session, make, BATCHES_IN_FLIGHT, seconds).finish()


def pages(session: Session, select: PreparedStatement, queue: UUID, bucket: int, seconds: float) -> int:
    """One page of a thousand after the other from the first partition, over and over."""
    place, first = (queue, 1, bucket), MessageId(0, 0).uuid
    select.fetch_size = PAGE
    done, until = 0, time.perf_counter() + seconds
    while time.perf_counter() < until:
        answer = session.execute(select, (*place, first, MessageId.last_of(SystemClock().now_ticks()).uuid, 1 << 30))
        while time.perf_counter() < until:
            done += len(answer.current_rows)
            if not answer.has_more_pages:
                break
            answer.fetch_next_page()
    return done


def transactions(session: Session, begin: PreparedStatement, queue: UUID, seconds: float) -> int:
    """Lightweight transactions, each on a Cassandra partition of its own.

    They store as many bytes as a request of ten would alone: its change, and the names of the last steps.
    """
    names, steps = count(), BODY.encode()
    begin.serial_consistency_level = ConsistencyLevel.SERIAL
    make = lambda: begin.bind((1, b"", BODY, 1, 1, steps, 0, 0, 0, queue, str(next(names)), None))  # noqa: E731
    return _Flight(session, make, CONNECTIONS, seconds).finish()


def writes(session: Session, keep: PreparedStatement, queue: UUID, seconds: float) -> int:
    """Plain writes of a row of 256 bytes to one Cassandra partition, by one replica."""
    numbers, data = count(), BODY.encode()
    keep.consistency_level = ConsistencyLevel.ONE
    make = lambda: keep.bind((queue, "g", 1, next(numbers), 1, 1, data))  # noqa: E731
    return _Flight(session, make, CONNECTIONS, seconds).finish()


_OTHERS = {"transactions": (transactions, "leases_begin"), "writes": (writes, "lease_lane_keep")}


def main(what: str, hosts: str, port: str, keyspace: str, queue_hex: str, seconds: str) -> None:
    profile = ExecutionProfile(consistency_level=ConsistencyLevel.QUORUM, row_factory=tuple_factory)
    nodelay = [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)]
    cluster = Cluster(
        hosts.split(","), port=int(port), execution_profiles={EXEC_PROFILE_DEFAULT: profile}, sockopts=nodelay
    )
    try:
        session, names = cluster.connect(keyspace), {"keyspace": keyspace}
        queue, wanted = UUID(queue_hex), float(seconds)
        began = time.perf_counter()
        if what == "pages":
            (bucket,) = session.execute(_FIRST_BUCKET, (queue,)).one()
            done = pages(session, session.prepare(CQL["read_ascending"] % names), queue, bucket, wanted)
        elif what in _OTHERS:
            work, statement = _OTHERS[what]
            done = work(session, session.prepare(CQL[statement] % names), queue, wanted)
        else:
            insert = session.prepare(CQL["message_insert"] % names)
            done = {"inserts": inserts, "batches": batches}[what](session, insert, queue, wanted)
        print(done / (time.perf_counter() - began))
    finally:
        cluster.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
