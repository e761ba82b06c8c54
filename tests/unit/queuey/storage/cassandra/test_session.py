"""The driver's errors told as ours (G10), calls under way, and how nodes are named."""

from __future__ import annotations

import gc
import ssl
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
from cassandra import (
    AuthenticationFailed,
    CDCWriteFailure,
    ConsistencyLevel,
    InvalidRequest,
    OperationTimedOut,
    ReadFailure,
    ReadTimeout,
    Unauthorized,
    Unavailable,
    WriteFailure,
    WriteTimeout,
)
from cassandra.cluster import NoHostAvailable
from cassandra.connection import ConnectionException, ConnectionShutdown
from cassandra.pool import NoConnectionsAvailable
from cassandra.protocol import ErrorMessage, OverloadedErrorMessage, ServerError, SyntaxException

from queuey.errors import ConfigurationError, OutcomeUnknown, QueueNotFound, QueueyError, StorageUnavailable
from queuey.future import Future
from queuey.model import Consistency
from queuey.storage.cassandra.cluster import Options, connect, contact, none_reached
from queuey.storage.cassandra.driver_errors import TooManyTombstones, our_error
from queuey.storage.cassandra.session import _ONE_CENTRE, _SEVERAL_CENTRES
from queuey.storage.cassandra.tables import CQL
from queuey.storage.cassandra.underway import Underway
from tests.support.services.certificates import Authority

CAS_WRITE_UNKNOWN = ErrorMessage(code=0x1700, message="CAS operation result is unknown", info=None)
"""A lightweight transaction of which nobody knows how it ended: the driver has no class of its own for it."""

HARMLESS = [
    Unavailable("too few replicas"),
    NoConnectionsAvailable("all busy"),
    OverloadedErrorMessage(code=0x1001, message="overloaded", info=None),
    InvalidRequest("no such table"),
    SyntaxException(code=0x2000, message="line 1", info=None),
    Unauthorized("no"),
    NoHostAvailable("none", {}),
    NoHostAvailable("none", {"a": ConnectionRefusedError(111, "refused"), "b": NoConnectionsAvailable("busy")}),
]
"""Nothing can have been written."""
UNKNOWN = [
    CAS_WRITE_UNKNOWN,
    WriteTimeout("too late", write_type=0),
    WriteFailure("one replica failed", write_type=0),
    CDCWriteFailure("full"),
    OperationTimedOut("no answer"),
    ServerError(code=0x0000, message="a fault", info=None),
    ConnectionShutdown("closed"),
    ConnectionException("broken"),
    NoHostAvailable("none", {"a": ConnectionRefusedError(111, "refused"), "b": ConnectionShutdown("closed")}),
    OSError("the network"),
    ValueError("a fault of ours"),
]
"""Some or all of it may be, or may come to be."""
READING = [ReadTimeout("too late"), ReadFailure("one replica failed")]


def name(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:60]


@pytest.mark.parametrize("error", HARMLESS, ids=name)
def test_a_write_that_nobody_took_is_refused(error: Exception) -> None:
    told = our_error(error, writes=True)

    assert type(told) is StorageUnavailable
    assert type(error).__name__ in str(told)
    assert "nothing was stored" in str(told)


@pytest.mark.parametrize("error", UNKNOWN, ids=name)
def test_a_write_that_somebody_may_have_taken_is_of_unknown_outcome(error: Exception) -> None:
    told = our_error(error, writes=True)

    assert type(told) is OutcomeUnknown
    assert type(error).__name__ in str(told)
    assert "repeat it only with the same" in str(told)


@pytest.mark.parametrize("error", HARMLESS, ids=name)
def test_a_refusal_tells_nothing_where_another_node_was_asked_as_well(error: Exception) -> None:
    """By speculation: the other may have taken it."""
    assert type(our_error(error, writes=True, alone=False)) is OutcomeUnknown


@pytest.mark.parametrize(
    ("error", "is_known"),
    [
        (Unavailable("too few", consistency=ConsistencyLevel.SERIAL), True),
        (Unavailable("too few", consistency=ConsistencyLevel.LOCAL_SERIAL), True),
        (Unavailable("too few", consistency=ConsistencyLevel.QUORUM), False),
        (OverloadedErrorMessage(code=0x1001, message="too many hints", info=None), False),
        (InvalidRequest("no such table"), True),
    ],
)
def test_a_transaction_that_is_refused_after_its_decision_is_of_unknown_outcome(
    error: Exception, is_known: bool
) -> None:
    """What is decided is written by the level of a write, and the next transaction completes it if it was not."""
    told = our_error(error, writes=True, decides=True)

    assert type(told) is (StorageUnavailable if is_known else OutcomeUnknown)


@pytest.mark.parametrize("error", [*HARMLESS, *UNKNOWN, *READING], ids=name)
def test_a_read_that_fails_is_unavailable_whatever_the_reason(error: Exception) -> None:
    assert type(our_error(error, writes=False)) is StorageUnavailable


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (NoHostAvailable("none", {}), "no node can be reached"),
        (Unavailable("too few replicas"), "too few of the nodes that have a copy are up"),
        (OperationTimedOut("no answer"), "no answer came in time"),
        (ReadTimeout("too late"), "too few nodes answered in time"),
        (ReadFailure("tombstones"), "a node could not read what was asked for, and its log says why"),
        (ConnectionShutdown("gone"), "the connection to the node ended"),
    ],
)
def test_a_refusal_says_in_words_what_the_nodes_lack(error: Exception, words: str) -> None:
    told = str(our_error(error, writes=False))

    assert told.startswith(f"Cassandra did not take the request ({words}, {type(error).__name__})")


@pytest.mark.parametrize("codes", [{"10.0.0.1": 1}, {"10.0.0.1": 0, "10.0.0.2": 1}])
def test_a_read_that_met_too_many_tombstones_may_be_asked_in_parts(codes: dict[str, int]) -> None:
    told = our_error(ReadFailure("failed", error_code_map=codes), writes=False)

    assert isinstance(told, TooManyTombstones)
    assert (told.code, told.status) == ("StorageUnavailable", 503)
    assert type(our_error(ReadFailure("failed", error_code_map={"10.0.0.1": 0}), writes=False)) is StorageUnavailable


@pytest.mark.parametrize("writes", [True, False])
def test_an_error_of_ours_stays_what_it_is(writes: bool) -> None:
    ours: QueueyError = QueueNotFound()

    assert our_error(ours, writes=writes) is ours


def test_errors_repeat_nothing_of_the_driver_but_the_name() -> None:
    """What it says may hold values of the statement."""
    assert "secret" not in str(our_error(WriteTimeout("secret", write_type=0), writes=True))
    assert "secret" not in str(our_error(InvalidRequest("secret"), writes=True))


# Consistency.


def test_each_level_of_a_queue_has_levels_of_cassandra_and_none_reads_what_cassandra_cannot() -> None:
    for table in (_ONE_CENTRE, _SEVERAL_CENTRES):
        assert set(table) == set(Consistency)
        assert ConsistencyLevel.EACH_QUORUM not in [reading for _, reading in table.values()]
    assert _SEVERAL_CENTRES[Consistency.VERY_STRONG] == (ConsistencyLevel.EACH_QUORUM, ConsistencyLevel.LOCAL_QUORUM)


# Calls under way.


async def kept(promise: Future[int]) -> int:
    return await promise


def test_calls_beyond_the_bound_are_refused_at_once_and_taken_again_when_one_ends() -> None:
    underway, first = Underway(1), Future[int]()
    begun = underway.start(kept(first))

    with pytest.raises(StorageUnavailable, match="1 calls of Cassandra are under way"):
        underway.start(kept(Future.of(2))).result()

    first.set_result(1)
    assert begun.result() == 1
    assert underway.start(kept(Future.of(3))).result() == 3


def test_a_store_that_ends_waits_for_calls_under_way_and_takes_no_more() -> None:
    underway, first = Underway(10), Future[int]()
    begun = underway.start(kept(first))
    ending = threading.Thread(target=underway.finish, args=(30,))
    ending.start()

    first.set_result(1)
    ending.join(30)

    assert not ending.is_alive()
    assert begun.result() == 1
    refused: Coroutine[Future[Any], None, int] = kept(Future.of(2))
    with pytest.raises(StorageUnavailable, match="the store is closed"):
        underway.start(refused).result()


def test_a_store_that_ends_does_not_wait_for_ever() -> None:
    underway = Underway(10)
    underway.start(kept(Future[int]()))

    underway.finish(0)

    with pytest.raises(StorageUnavailable):
        underway.start(kept(Future.of(2))).result()


def test_a_call_that_only_its_store_knows_is_not_ended_by_the_garbage_collector() -> None:
    """An end in the middle of :meth:`Underway.finish` would wait for the lock that this thread holds."""
    underway, ended = Underway(10), list[str]()

    async def call() -> None:
        try:
            await Future[int]()
        finally:
            ended.append("ended")

    underway.start(call())
    gc.collect()

    assert not ended
    underway.finish(0)


# Nodes.


@pytest.mark.parametrize(
    ("host", "reached"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("10.0.0.1:9043", ("10.0.0.1", 9043)),
        ("node.example.org:9043", ("node.example.org", 9043)),
        ("node.example.org", "node.example.org"),
        ("::1", "::1"),
        ("fe80::1:9043", "fe80::1:9043"),
        ("[fe80::1]:9043", ("fe80::1", 9043)),
    ],
)
def test_a_node_is_named_by_its_address_with_a_port_or_without(host: str, reached: object) -> None:
    assert contact(host, 9042) == reached


def test_nodes_that_refuse_the_credentials_are_told_apart_from_nodes_that_are_away() -> None:
    options = Options(hosts=["a", "b"])

    refused = none_reached(options, NoHostAvailable("", {"a": AuthenticationFailed("no"), "b": OSError("away")}))
    assert isinstance(refused, ConfigurationError)
    assert str(refused).endswith("the nodes refuse these credentials: see [cassandra] username and password")
    away = none_reached(options, NoHostAvailable("", {"a": OSError("away")}))
    assert isinstance(away, StorageUnavailable)
    assert str(away) == "[cassandra] hosts: no node of a, b answers (a: away)"


def test_a_file_of_tls_that_cannot_be_used_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"\[cassandra\] tls_ca, tls_cert, tls_key: "):
        connect(Options(tls_ca="/no/such/file"))


def test_a_certificate_must_name_its_node_unless_that_is_switched_off(tmp_path: Path) -> None:
    ca = str(Authority(tmp_path).file)

    usual = connect(Options(tls_ca=ca)).ssl_context
    lax = connect(Options(tls_ca=ca, tls_check_host=False)).ssl_context

    assert (usual.check_hostname, usual.verify_mode) == (True, ssl.CERT_REQUIRED)
    assert (lax.check_hostname, lax.verify_mode) == (False, ssl.CERT_REQUIRED)


def test_the_password_is_not_told() -> None:
    assert "swordfish" not in repr(Options(password="swordfish"))


def test_every_statement_names_its_keyspace_and_nothing_else_is_filled_in() -> None:
    names = {"keyspace": "ours", "replication": "{}", "gc_grace_seconds": 1, "listed": ""}

    filled = {key: text % names for key, text in CQL.items()}

    assert {key for key, text in filled.items() if "ours" not in text} == {"node_clock"}
    assert not [text for text in filled.values() if "%" in text]
