"""How statements reach the nodes: at once, by prepared statements, to a copy of the row, and twice only where that does no harm."""

from __future__ import annotations

import re
import socket
from uuid import uuid4

from cassandra.cluster import EXEC_PROFILE_DEFAULT
from cassandra.policies import NoSpeculativeExecutionPolicy, TokenAwarePolicy
from cassandra.query import PreparedStatement

from queuey.ids import MessageId
from queuey.storage.cassandra_session import CQL, CassandraSession

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
    """By the routing key that the driver draws from what is bound."""
    queue, places = uuid4(), [1, 2]
    bound = [session.bind("message_find", (queue, part, 7, MessageId(1, 1).uuid)) for part in places]

    assert len({bytes(one.routing_key) for one in bound}) == len(places)
