"""How statements reach the nodes: at once, by prepared statements, to a copy of the row, and twice only where that does no harm."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from functools import partial
from uuid import uuid4

import pytest
from cassandra.cluster import EXEC_PROFILE_DEFAULT
from cassandra.policies import NoSpeculativeExecutionPolicy, TokenAwarePolicy
from cassandra.query import PreparedStatement

from queuey.errors import ConfigurationError, OutcomeUnknown, StorageUnavailable
from queuey.ids import MessageId
from queuey.model import Consistency
from queuey.storage.cassandra.cluster import Options
from queuey.storage.cassandra.schema import make_tables
from queuey.storage.cassandra.session import ALL_CENTRES, CassandraSession
from queuey.storage.cassandra.tables import CQL
from tests.support.servers import eventually
from tests.support.services.fixtures import TIMEOUT_SECONDS, Keyspaces

_CONDITION = re.compile(r"\bif (not )?(exists|\w+ = )")
"""What makes a lightweight transaction of a statement."""


def prepared(session: CassandraSession) -> dict[str, PreparedStatement]:
    return {name: session._statements[name] for name in CQL if name in session._statements}


def test_small_writes_do_not_wait_for_more(session: CassandraSession) -> None:
    """A lone batch took 43 ms without, 2 ms with it."""
    connections = [one for holder in session.cluster.get_connection_holders() for one in holder.get_connections()]

    assert connections
    assert all(one._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) for one in connections)


def test_all_but_what_makes_tables_is_prepared(session: CassandraSession) -> None:
    others = CQL.keys() - prepared(session).keys()

    assert {name.partition("_")[0] for name in others} == {"keyspace", "table"}


def test_no_transaction_is_sent_to_a_second_node_and_everything_else_may_be(session: CassandraSession) -> None:
    transactions = {name for name in prepared(session) if _CONDITION.search(CQL[name])}

    once = {name for name, statement in prepared(session).items() if not statement.is_idempotent}

    assert len(transactions) > 10
    assert once - transactions <= {"offset_clear"}, "this goes together with one"
    assert transactions <= once


def test_only_what_may_be_repeated_is_speculated_with(session: CassandraSession) -> None:
    usual, speculative = (session.driver.get_execution_profile(name) for name in (EXEC_PROFILE_DEFAULT, "speculative"))

    assert isinstance(usual.speculative_execution_policy, NoSpeculativeExecutionPolicy)
    assert speculative.speculative_execution_policy.max_attempts == 1
    assert isinstance(usual.load_balancing_policy, TokenAwarePolicy)
    assert isinstance(speculative.load_balancing_policy, TokenAwarePolicy)


def test_a_statement_of_one_row_is_sent_to_a_copy_of_it(session: CassandraSession) -> None:
    """By the routing key that the driver draws from what is bound, and the nodes that it knows to have such rows."""
    queue, places = uuid4(), [1, 2]
    bound = [session._statements["message_find"].bind((queue, part, 7, MessageId(1, 1).uuid)) for part in places]
    keys = {bytes(one.routing_key) for one in bound}

    assert len(keys) == len(places)
    for key in keys:
        assert session.cluster.metadata.get_replicas(session.options.keyspace, key) == session.hosts()


def test_an_answer_has_all_of_its_rows(session: CassandraSession) -> None:
    """The driver would give 5,000 of them."""
    queue, shard = uuid4(), 1
    rows = [(shard, number, queue, "workers") for number in range(5_100)]
    for first in range(0, len(rows), 1_000):
        session.tell_together("lease_appender_keep", rows[first : first + 1_000], ALL_CENTRES).wait(60)
    found = session.ask("lease_appender_list", (shard, -1, queue, "", 10_000), ALL_CENTRES).wait(60)
    session.driver.execute(f"delete from {session.options.keyspace}.lease_appenders where shard = {shard}")  # noqa: S608
    assert [row[0] for row in found] == [*range(5_100)]


def test_nothing_is_read_of_other_keyspaces(session: CassandraSession) -> None:
    """A cluster may have many of them, with many tables."""
    assert [*session.cluster.metadata.keyspaces] == [session.options.keyspace]


FORKED = """
import json, os, sys
from functools import partial
from uuid import uuid4
from queuey.clock import SystemClock
from queuey.errors import StorageUnavailable
from queuey.ids import IdGenerator
from queuey.storage import Stores
from queuey.storage.cassandra import Options, Timing, open_messages, open_metadata
from queuey.storage.cassandra.links import Link, NotTaken

options, clock = Options(**json.loads(sys.argv[1])), SystemClock()
messages, offsets, leases, tasks = open_messages(options, Timing(), clock, IdGenerator(clock))
stores = Stores(messages, offsets, open_metadata(options, Timing(), clock, trusted_seconds=1), leases, tasks)
keys = stores.metadata.keys().wait(20)
child = os.fork()
if not child:
    try:
        stores.metadata.keys().wait(20)
    except StorageUnavailable as error:
        assert "forked" in str(error)
    else:
        os._exit(1)
    try:
        stores.leases.count(uuid4(), "workers", [1]).wait(20)
    except StorageUnavailable as error:
        assert "forked" in str(error)
    else:
        os._exit(1)
    (problem,) = stores.problems()
    assert "forked" in problem
    stores.close()
    sys.exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
assert stores.metadata.keys().wait(20) == keys
assert not stores.problems()
link = Link(leases.homes._links.contact, uuid4(), 20, messages._session.cluster.loop)
try:
    link.call(b"no step").wait(20)
except NotTaken:
    assert not link.has_ended, "the child has ended the connections"
stores.close()
"""


def test_a_process_that_is_forked_from_a_server_refuses_and_takes_no_connection_along(
    session: CassandraSession,
) -> None:
    """Its requests hung: the threads that would hear the answers are the parent's."""
    given = session.options
    options = {"hosts": list(given.hosts), "port": given.port, "keyspace": given.keyspace, "timeout_seconds": 10}
    options["peer_address"] = "127.0.0.1"
    command = [sys.executable, "-c", FORKED, json.dumps(options)]

    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert ended.returncode == 0, ended.stderr


def test_what_is_due_later_is_done_though_nothing_is_sent(session: CassandraSession) -> None:
    session.pause(0.001).wait(60)


def test_a_pause_ends_with_the_store(tables: Options) -> None:
    session = CassandraSession(tables)
    pause = session.pause(1000.0)
    session.close()
    for one in (pause, session.pause(1000.0)):
        with pytest.raises(OutcomeUnknown):
            one.wait(60)


def test_the_time_limit_of_an_answered_statement_does_not_keep_its_rows(session: CassandraSession) -> None:
    limit = session.driver.execute_async("select release_version from system.local", timeout=1000.0)
    limit.result()
    assert getattr(limit._timer.callback, "__self__", None) is not limit


def test_a_table_that_is_dropped_is_told_until_it_is_there_again(keyspaces: Keyspaces, tables: Options) -> None:
    with keyspaces() as name:
        options = replace(tables, keyspace=name)
        make_tables(options, "1")
        session = CassandraSession(options)
        with closing(session):
            for dropped, lacking in (
                (f"table {name}.offsets", "lacks offsets:"),
                (f"keyspace {name}", "lacks all of it:"),
            ):
                session.driver.execute(f"drop {dropped}", timeout=TIMEOUT_SECONDS)
                with pytest.raises(StorageUnavailable, match="/__heartbeat__ and its log say which"):
                    session.ask("offsets_life", (uuid4(), "mail"), session.to_read(Consistency.STRONG)).wait(60)
                eventually(partial(_says, session, lacking), seconds=60)

                make_tables(options, "1")

                eventually(lambda: not session.problems(), seconds=60)
                eventually(lambda: _is_answered(session), seconds=60)


def test_a_column_that_is_dropped_is_told_at_a_start_and_while_a_server_runs(
    keyspaces: Keyspaces, tables: Options
) -> None:
    """A column of a later version is passed over: servers of both may run meanwhile."""
    with keyspaces() as name:
        options = replace(tables, keyspace=name)
        make_tables(options, "1")
        session = CassandraSession(options)
        with closing(session):
            session.driver.execute(f"alter table {name}.offsets add more text", timeout=TIMEOUT_SECONDS)
            CassandraSession(options).close()
            session.driver.execute(f"alter table {name}.offsets drop set_ticks", timeout=TIMEOUT_SECONDS)

            with pytest.raises(StorageUnavailable, match="/__heartbeat__ and its log say which"):
                session.ask("offsets_find", (uuid4(), "mail"), session.to_read(Consistency.STRONG)).wait(60)
            assert eventually(partial(_says, session, "lacks offsets.set_ticks (bigint): restore it"), seconds=60)
            for start in (CassandraSession, partial(make_tables, replication="1")):
                with pytest.raises(
                    ConfigurationError, match=r"lacks offsets\.set_ticks \(bigint\): its tables are not"
                ):
                    start(options)

            session.driver.execute(f"alter table {name}.offsets add set_ticks bigint", timeout=TIMEOUT_SECONDS)
            assert eventually(lambda: not session.problems(), seconds=60)


def test_a_replication_that_is_changed_is_known_without_a_restart(keyspaces: Keyspaces, tables: Options) -> None:
    with keyspaces() as name:
        options = replace(tables, keyspace=name)
        make_tables(options, "1")
        with closing(CassandraSession(options)) as session:
            replication = "{'class': 'SimpleStrategy', 'replication_factor': 2}"
            session.driver.execute(f"alter keyspace {name} with replication = {replication}", timeout=TIMEOUT_SECONDS)
            assert eventually(partial(_has_copies, session, 2), seconds=60)


def _has_copies(session: CassandraSession, number: int) -> bool:
    """Whether warnings and the driver's map say so, after a look."""
    session.replication._next = 0.0
    assert not session.problems()
    (said,) = session.replication.weaknesses()
    mapped = session.cluster.metadata.keyspaces[session.options.keyspace].replication_strategy
    return f"has {number} copies" in said and mapped.replication_factor == number


def _says(session: CassandraSession, text: str) -> bool:
    return any(text in problem for problem in session.problems())


def _is_answered(session: CassandraSession) -> bool:
    try:
        session.ask("offsets_life", (uuid4(), "mail"), session.to_read(Consistency.STRONG)).wait(60)
    except StorageUnavailable:  # a node prepares its statements anew
        return False
    return True
