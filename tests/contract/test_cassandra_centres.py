"""How many copies answer with several data centres, as the statements leave for the node."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from cassandra import ConsistencyLevel

from queuey.clock import ManualClock
from queuey.ids import MAX_ID, IdGenerator
from queuey.model import AppendRequest, Consistency, PrincipalKey, Queue, ReadRequest, Span
from queuey.storage.cassandra.cluster import Options
from queuey.storage.cassandra.metadata import CassandraMetadata
from queuey.storage.cassandra.schema import make_tables
from queuey.storage.cassandra.server import Timing
from queuey.storage.cassandra.session import CassandraSession
from queuey.storage.contract.common import done, draft
from tests.support.cassandra_stores import messages_of
from tests.support.services.fixtures import TIMEOUT_SECONDS, Reached

CENTRE = "datacenter1"
"""Of a node that was told no other."""
_TABLE = re.compile(r"(?:from|into|update) \w+\.(\w+)")


@pytest.fixture(scope="module")
def session(cassandra_node: Reached, module_keyspace: str) -> Iterator[CassandraSession]:
    """A keyspace replicated by data centre, as several need it."""
    node = cassandra_node
    options = Options(node.contact_points, node.port, module_keyspace, CENTRE, timeout_seconds=TIMEOUT_SECONDS)
    make_tables(options, f"{CENTRE}:1")
    session = CassandraSession(replace(options, multi_dc=True))
    yield session
    session.close()


@pytest.fixture
def asked(session: CassandraSession) -> Iterator[set[tuple[str, str]]]:
    """Tables and levels of what was sent."""
    found = set[tuple[str, str]]()

    def note(sent: Any) -> None:
        prepared = getattr(sent.query, "prepared_statement", None)
        table = _TABLE.search(prepared.query_string) if prepared else None
        level = ConsistencyLevel.value_to_name[sent.message.consistency_level]
        found.add((table[1] if table else "messages", level))

    session.driver.add_request_init_listener(note)
    yield found
    session.driver.remove_request_init_listener(note)


@pytest.mark.parametrize(
    ("consistency", "write", "read"),
    [
        (Consistency.WEAK, "LOCAL_ONE", "LOCAL_ONE"),
        (Consistency.STRONG, "LOCAL_QUORUM", "LOCAL_QUORUM"),
        (Consistency.VERY_STRONG, "EACH_QUORUM", "LOCAL_QUORUM"),
    ],
)
def test_messages_need_the_own_centre_and_very_strong_writes_all(
    session: CassandraSession, asked: set[tuple[str, str]], consistency: Consistency, write: str, read: str
) -> None:
    clock = ManualClock()
    store = messages_of(session, clock, IdGenerator(clock), Timing())
    queue = Queue("app", "q", uuid4(), clock.now_ticks(), 1, consistency=consistency)

    done(store.append(AppendRequest(queue, [draft()])))
    written = asked.copy()
    asked.clear()
    page = done(store.read(ReadRequest(queue.partition(1), Span(upto=MAX_ID), 1), now_ticks=0, consistency=consistency))

    assert len(page.messages) == 1
    assert written == {("messages", write), ("buckets", write)}
    assert asked == {("messages", read), ("buckets", read)}


def test_queues_and_keys_need_a_quorum_of_all_centres(session: CassandraSession, asked: set[tuple[str, str]]) -> None:
    """Or a centre would go on with a queue that another one has deleted (G9)."""
    clock = ManualClock()
    store = CassandraMetadata(session, clock, trusted_seconds=0.0, settle_seconds=0.0)
    queue = Queue("app", "q", uuid4(), clock.now_ticks(), 1, principals=("bid:somebody@example.org",))
    more = queue._replace(partitions=2)

    done(store.create_queue(queue))
    done(store.replace_queue(queue, more))
    assert [one.name for one in done(store.list_queues("app"))] == ["q"]
    assert [one.name for one in done(store.list_named("app", "bid:somebody@example.org"))] == ["q"]
    done(store.remove_queue(more))
    assert done(store.removed()) == [queue.uuid]
    done(store.forget_removed(queue.uuid))
    done(store.add_key(PrincipalKey("app", b"d" * 32, "label", 0)))
    assert len(done(store.keys())) == 1
    assert done(store.remove_key("app", "label")) == 1

    assert {table for table, _ in asked} == {"queues", "names", "removals", "app_keys"}
    assert {level for _, level in asked} == {"QUORUM"}
