"""Where the driver's connections live: on a loop in a thread, or on the loop of the server that uses the store."""

from __future__ import annotations

import threading
from contextlib import closing
from dataclasses import replace
from uuid import uuid4

import pytest

from queuey.errors import OutcomeUnknown, StorageUnavailable
from queuey.future import Future
from queuey.storage.cassandra.cluster import Options
from queuey.storage.cassandra.session import ALL_CENTRES, CassandraSession, Rows
from tests.support.turning_loop import NAME, in_turn, turning_loop

_OWN = "cassandra-driver"
_PATIENCE_SECONDS = 60


def answered_in(session: CassandraSession) -> str:
    """The name of the thread in which a statement is answered."""
    while True:
        named: Future[str] = Future()
        asked = session.ask("offsets_life", (uuid4(), "mail"), ALL_CENTRES)
        asked.add_done_callback(lambda _, named=named: named.set_result(threading.current_thread().name))  # type: ignore[misc]
        name = named.wait(_PATIENCE_SECONDS)
        if name != threading.current_thread().name:  # or it was answered before anybody waited
            return name


def test_statements_are_answered_on_the_loop_that_uses_the_store_and_in_a_thread_before_and_after(
    session: CassandraSession,
) -> None:
    assert answered_in(session) == _OWN
    with turning_loop() as inbox:
        in_turn(inbox, lambda: session.cluster.loop.use(inbox))
        assert {answered_in(session) for _ in range(20)} == {NAME}
        in_turn(inbox, lambda: session.cluster.loop.use(None))
        assert answered_in(session) == _OWN
    assert answered_in(session) == _OWN, "the loop has ended"


def test_no_statement_is_lost_while_connections_move(session: CassandraSession) -> None:
    queue, asked = uuid4(), []
    with turning_loop() as inbox:
        for turn in range(40):
            for number in range(10):
                row = (1, 10 * turn + number, queue, "workers")
                asked.append(session.tell("lease_appender_keep", row, ALL_CENTRES))
            in_turn(inbox, lambda at=turn: session.cluster.loop.use(None if at % 2 else inbox))  # type: ignore[misc]
        for one in asked:
            one.wait(_PATIENCE_SECONDS)
    found = session.ask("lease_appender_list", (1, -1, queue, "", 1_000), ALL_CENTRES).wait(_PATIENCE_SECONDS)
    session.driver.execute(f"delete from {session.options.keyspace}.lease_appenders where shard = 1")  # noqa: S608
    assert [row[0] for row in found] == [*range(400)]


def test_a_loop_that_has_just_begun_may_end_at_once(session: CassandraSession) -> None:
    def begin_and_end() -> None:
        session.cluster.loop.use(inbox)
        session.cluster.loop.use(None)

    for _ in range(20):
        with turning_loop() as inbox:
            in_turn(inbox, begin_and_end)
        assert answered_in(session) == _OWN


def test_more_than_a_socket_takes_at_once_refuses_no_other_statement(session: CassandraSession) -> None:
    """The driver's own connections are overloaded, they say, while the socket has no room."""
    queue = uuid4()
    large = [
        session.tell("idempotency_stored", (queue, f"{number}" * 60_000, uuid4(), 60), ALL_CENTRES)
        for number in range(10)
    ]
    small = [session.ask("offsets_life", (queue, "mail"), ALL_CENTRES) for _ in range(500)]
    for one in (*large, *small):
        one.wait(_PATIENCE_SECONDS)


def test_a_statement_has_its_time_limit_wherever_the_connections_live(tables: Options) -> None:
    with closing(CassandraSession(tables)) as session, turning_loop() as inbox:
        session.options = replace(tables, timeout_seconds=0.0001)
        for where in (None, inbox):
            in_turn(inbox, lambda at=where: session.cluster.loop.use(at))  # type: ignore[misc]
            late = [session.ask("offsets_life", (uuid4(), "mail"), ALL_CENTRES) for _ in range(3_000)]
            refused = [one for one in late if _is_refused(one)]
            assert refused, "3,000 answers came within a tenth of a millisecond"
        in_turn(inbox, lambda: session.cluster.loop.use(None))


def _is_refused(asked: Future[Rows]) -> bool:
    try:
        asked.wait(_PATIENCE_SECONDS)
    except StorageUnavailable:
        return True
    return False


def test_a_closed_session_leaves_no_thread_and_answers_what_was_under_way(tables: Options) -> None:
    before = {one for one in threading.enumerate() if one.name == _OWN}
    session = CassandraSession(tables)
    asked = [session.tell("lease_appender_keep", (2, 1, uuid4(), "workers"), ALL_CENTRES) for _ in range(50)]
    session.close()
    session.close()
    for one in asked:
        try:
            one.wait(_PATIENCE_SECONDS)
        except (StorageUnavailable, OutcomeUnknown):
            continue
    assert {one for one in threading.enumerate() if one.name == _OWN} <= before
    with pytest.raises(StorageUnavailable):
        session.ask("offsets_life", (uuid4(), "mail"), ALL_CENTRES).wait(_PATIENCE_SECONDS)
