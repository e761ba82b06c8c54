"""A connection to a Cassandra cluster: statements in, futures out.

The driver's errors become ours (G10).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from time import monotonic, perf_counter
from typing import Any, Final, NamedTuple

from cassandra import ConsistencyLevel
from cassandra.cluster import EXEC_PROFILE_DEFAULT, NoHostAvailable, Session
from cassandra.pool import Host
from cassandra.query import BatchStatement, BatchType, BoundStatement, PreparedStatement

from queuey.errors import OutcomeUnknown, StorageUnavailable
from queuey.future import Future
from queuey.model import Consistency
from queuey.storage.cassandra.cluster import LARGE, SPECULATIVE, Options, connect, none_reached, prepared
from queuey.storage.cassandra.copies import Copies
from queuey.storage.cassandra.driver_errors import is_of_tables, our_error
from queuey.storage.cassandra.large_answers import LARGE_BYTES, LargeAnswers
from queuey.storage.cassandra.raw_batches import EncodedBatch, EncodedHandler
from queuey.storage.cassandra.replication import Replication
from queuey.storage.cassandra.tables import CQL, Tables
from queuey.storage.observing import Observer, Unobserved

log = logging.getLogger(__name__)

Rows = Sequence[tuple[Any, ...]]
Change = tuple[str, Sequence[Any]]
"""A statement's name and values."""

LARGE_TIMES: Final = 3
"""The time limit of a large answer, in multiples of that of others. Only writes have to end within that (G3)."""
_SERIAL_TRIES, _SERIAL_PAUSE_SECONDS = 3, 0.1

_ONE_CENTRE = {
    Consistency.WEAK: (ConsistencyLevel.ONE, ConsistencyLevel.ONE),
    Consistency.STRONG: (ConsistencyLevel.QUORUM, ConsistencyLevel.QUORUM),
    Consistency.VERY_STRONG: (ConsistencyLevel.QUORUM, ConsistencyLevel.QUORUM),
}
_SEVERAL_CENTRES = {
    Consistency.WEAK: (ConsistencyLevel.LOCAL_ONE, ConsistencyLevel.LOCAL_ONE),
    Consistency.STRONG: (ConsistencyLevel.LOCAL_QUORUM, ConsistencyLevel.LOCAL_QUORUM),
    # Cassandra has no EACH_QUORUM reads, and needs none: a quorum in every centre has written, so a quorum
    # of the reader's own centre sees the write.
    Consistency.VERY_STRONG: (ConsistencyLevel.EACH_QUORUM, ConsistencyLevel.LOCAL_QUORUM),
}


ALL_CENTRES: Final = int(ConsistencyLevel.QUORUM)
"""A quorum of all copies, as for lightweight transactions: each centre must see what another has decided."""


_FORKED = (
    "this process was forked from one that is connected to Cassandra, and cannot use its connections; nothing was stored: start "
    "server processes that connect themselves, such as gunicorn without --preload"
)
_ADMINISTRATIVE = ("keyspace", "table_")
_NEVER_TWICE = (
    "idempotency_claim",
    "idempotency_change",
    "idempotency_release",
    "offset_",
    "lease_attempt_begin",
    "leases_",
    "task_",
    "queue_",
    "key_insert",
    "key_delete",
)
"""Lightweight transactions. Carried out twice, the second answers differently from the first."""


class _Limit(NamedTuple):
    """The time limit of a statement, in seconds, and the driver's profile: when it asks another node as well."""

    seconds: float
    profile: object


class CassandraSession:
    """One keyspace of one cluster, with every statement prepared. Thread-safe.

    It connects when it is made.

    :raises ConfigurationError: the credentials are refused, or the tables are missing.
    :raises StorageUnavailable: no node answers, or too few.
    """

    def __init__(self, options: Options, observer: Observer | None = None) -> None:
        self.options = options
        self.process = os.getpid()
        """The one that is connected."""
        self.cluster = connect(options)
        self._observer = observer or Unobserved()
        self._levels = _SEVERAL_CENTRES if options.multi_dc else _ONE_CENTRE
        try:
            self.driver: Session = self.cluster.connect()
            self.driver.client_protocol_handler = EncodedHandler
            self.driver.default_fetch_size = None  # or an answer ends after 5,000 rows, as if there were no more
            self._tables = Tables(self.driver, options.keyspace)
            self.replication = Replication(self.driver, options.keyspace)
            self._statements = self._prepare()
        except NoHostAvailable as error:
            self.cluster.shutdown()
            raise none_reached(options, error) from error
        except BaseException:
            self.cluster.shutdown()
            raise
        self.copies = Copies(self.cluster, options.keyspace)
        self._large = LargeAnswers(lambda: len(self.hosts()), monotonic)
        self._closed = False

    def _prepare(self) -> dict[str, PreparedStatement]:
        names = {"keyspace": self.options.keyspace}
        found = {}
        for name, text in CQL.items():
            if not name.startswith(_ADMINISTRATIVE):
                statement = prepared(self.driver, text % names)
                statement.is_idempotent = not (name.startswith(_NEVER_TWICE) and name != "queue_find")
                found[name] = statement
        return found

    # Levels

    def to_write(self, consistency: Consistency) -> int:
        return int(self._levels[consistency][0])

    def to_read(self, consistency: Consistency) -> int:
        return int(self._levels[consistency][1])

    def to_read_all(self, consistency: Consistency) -> int:
        """The level of a read that must see everything acknowledged.

        A weak write may be on one node only.
        """
        return int(ConsistencyLevel.ALL) if consistency is Consistency.WEAK else self.to_read(consistency)

    # Statements

    def ask(
        self, name: str, values: Sequence[Any], level: int, *, host: Host | None = None, most_bytes: int = 0
    ) -> Future[Rows]:
        """Read.

        :param most_bytes: that the answer may have. A large one waits for room, and then has more time.
        :raises StorageUnavailable: not enough nodes answered in time.
        """
        statement = self._statements[name].bind(values)
        if most_bytes < LARGE_BYTES:
            return self._send(name, statement, level, writes=False, host=host)
        limit = _Limit(LARGE_TIMES * self.options.timeout_seconds, LARGE)
        return self._large.ask(
            most_bytes, lambda: self._send(name, statement, level, writes=False, host=host, limit=limit)
        )

    def tell(self, name: str, values: Sequence[Any], level: int) -> Future[Rows]:
        """Write one row with a statement that may be repeated.

        :raises StorageUnavailable: nothing was written.
        :raises OutcomeUnknown: the row may be written now or later.
        """
        return self._send(name, self._statements[name].bind(values), level, writes=True)

    def tell_together(self, name: str, rows: Sequence[Sequence[Any]], level: int) -> Future[Rows]:
        """Write rows of one Cassandra partition, all or none."""
        if len(rows) == 1:
            return self.tell(name, rows[0], level)
        statement = self._statements[name]
        batch = BatchStatement(BatchType.UNLOGGED)
        for row in rows:
            batch.add(statement, row)
        batch.is_idempotent = True
        return self._send(name, batch, level, writes=True)

    def tell_several(self, changes: Sequence[Change], level: int) -> Future[Rows]:
        """The same for rows of several kinds, each with a statement that may be repeated."""
        if len(changes) == 1:
            return self.tell(*changes[0], level)
        batch = BatchStatement(BatchType.UNLOGGED)
        for name, values in changes:
            batch.add(self._statements[name], values)
        batch.is_idempotent = True
        return self._send(changes[-1][0], batch, level, writes=True)

    def tell_encoded(
        self, name: str, rows: Sequence[bytes], routing_key: bytes, level: int, *, seconds: float | None = None
    ) -> Future[Rows]:
        """Write encoded rows of one Cassandra partition, all or none.

        :param seconds: the time limit, if it differs from that of all statements.
        """
        batch = EncodedBatch(rows, routing_key, self.options.keyspace)
        limit = None if seconds is None else _Limit(seconds, SPECULATIVE)
        return self._send(name, batch, level, writes=True, limit=limit)

    def query_id(self, name: str) -> bytes:
        """The id by which the nodes know a statement."""
        return bytes(self._statements[name].query_id)

    def compare_and_set(self, name: str, values: Sequence[Any]) -> Future[Rows]:
        """A lightweight transaction of one row.

        The first value of the answer says whether it was applied.

        :raises OutcomeUnknown: it may have been applied.
        """
        return self.compare_and_set_together([(name, values)])

    def compare_and_set_together(self, changes: Sequence[Change]) -> Future[Rows]:
        """The same for several rows of one Cassandra partition, all or none."""
        bound = [self._statements[name].bind(values) for name, values in changes]
        statement: BoundStatement | BatchStatement = bound[0]
        if len(bound) > 1:
            statement = BatchStatement(BatchType.UNLOGGED)
            for one in bound:
                statement.add(one)
        statement.serial_consistency_level = ConsistencyLevel.SERIAL
        return self._send(changes[-1][0], statement, ALL_CENTRES, writes=True)

    async def decide(
        self, name: str, values: Sequence[Any], look: str, where: Sequence[Any], ours: Callable[[Rows], bool]
    ) -> bool:
        """:meth:`decide_together` for one row."""
        return await self.decide_together([(name, values)], look, where, ours)

    async def decide_together(
        self, changes: Sequence[Change], look: str, where: Sequence[Any], ours: Callable[[Rows], bool]
    ) -> bool:
        """A lightweight transaction that finds out its own outcome.

        If the answer is missing, the rows show the outcome. A transaction that got lost is repeated, most likely
        through another node. One that is only late does no harm when it arrives: it must require the rows as they were
        before.

        :param look: reads the rows serially, which also ends transactions under way; ``ours`` judges the result.
        :returns: whether it was applied.
        :raises StorageUnavailable: it was not.
        :raises OutcomeUnknown: that is not known.
        """
        for attempt in range(1, _SERIAL_TRIES + 1):
            refused = False
            try:
                if (await self.compare_and_set_together(changes))[0][0]:
                    return True
                refused = True
            except StorageUnavailable:
                if attempt == 1:
                    raise
            except OutcomeUnknown as error:
                log.debug("%s: %s", changes[-1][0], error)
            if refused and attempt == 1:
                return False
            try:
                if ours(await self.ask_serially(look, where)):
                    return True
                if refused:
                    return False
            except StorageUnavailable:
                await self.pause(_SERIAL_PAUSE_SECONDS * attempt)
        raise OutcomeUnknown

    def ask_serially(self, name: str, values: Sequence[Any]) -> Future[Rows]:
        """Read what lightweight transactions have decided, including those under way."""
        return self._send(name, self._statements[name].bind(values), ConsistencyLevel.SERIAL, writes=False)

    def _send(
        self,
        name: str,
        statement: Any,
        level: int,
        *,
        writes: bool,
        host: Host | None = None,
        limit: _Limit | None = None,
    ) -> Future[Rows]:
        if is_forked(self):
            return Future.failed(StorageUnavailable(_FORKED))
        future: Future[Rows] = Future()
        began = perf_counter()
        statement.consistency_level = level
        if limit is None:
            profile = SPECULATIVE if statement.is_idempotent else EXEC_PROFILE_DEFAULT
            limit = _Limit(self.options.timeout_seconds, profile)

        def failed(error: BaseException, asked: Sequence[Host] = ()) -> None:
            if future.done:
                return  # if two nodes were asked, the second answer changes nothing
            # What one node did not take, the other node that was asked may have taken.
            if is_of_tables(error):
                self._tables.doubt()
            decides = statement.serial_consistency_level is not None
            told = our_error(error, writes=writes, alone=len(asked) < 2, decides=decides)
            self._observer.failed(name, told.code)
            future.set_error(told)

        def answered(rows: Rows | None) -> None:
            if not future.done:
                self._observer.took(name, perf_counter() - began)
                future.set_result(rows or ())

        try:
            seconds, profile = limit
            sent = self.driver.execute_async(statement, execution_profile=profile, host=host, timeout=seconds)
        except Exception as error:  # noqa: BLE001 - what the driver could not send fails like the rest
            failed(error)
            return future
        sent.add_callbacks(answered, failed, errback_args=(sent.attempted_hosts,))
        return future

    def pause(self, seconds: float) -> Future[None]:
        """A future that completes after a while; no thread waits for it.

        :raises OutcomeUnknown: the store is closed before.
        """
        future, loop = Future[None](), self.cluster.loop

        def go_on() -> None:
            if loop.has_ended:
                future.set_error(OutcomeUnknown("the store is closed"))
            else:
                future.set_result(None)

        loop.later(seconds, go_on)
        return future

    def hosts(self) -> list[Host]:
        """The nodes that are believed to be up."""
        return [host for host in self.cluster.metadata.all_hosts() if host.is_up]

    def problems(self) -> Sequence[str]:
        """See :meth:`queuey.storage.MessageStore.problems`."""
        if is_forked(self):
            return (_FORKED,)
        self.replication.look()
        return [*self._tables.problems(), *self.copies.problems()]

    def close(self) -> None:
        """End the connections. May be called again."""
        if not self._closed:
            self._closed = True
            if not is_forked(self):
                self.cluster.shutdown()


def is_forked(session: CassandraSession) -> bool:
    """Whether this is the child of a fork: the driver's threads do not exist here, and its sockets are the parent's."""
    return session.process != os.getpid()
