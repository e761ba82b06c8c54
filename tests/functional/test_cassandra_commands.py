"""Commands that open the store themselves, over Cassandra: ``init``, ``key``, ``backup``, ``config``."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from queuey.security.app_keys import digest_of, label_of
from tests.support import on_cassandra
from tests.support.client import Server
from tests.support.commands import done, run_in
from tests.support.on_cassandra import Delayed
from tests.support.servers import eventually
from tests.support.services.cassandra import session
from tests.support.services.fixtures import Reached


def described(node: Reached, keyspace: str) -> dict[str, Any]:
    """What there is of a keyspace: its replication and its tables, each with its id."""
    with session(node.address, node.port) as asked:
        schema = "SELECT {} FROM system_schema.{} WHERE keyspace_name = %s"
        (replication,) = asked.execute(schema.format("replication", "keyspaces"), (keyspace,)).one()
        tables = asked.execute(schema.format("table_name, id", "tables"), (keyspace,))
        return {"replication": dict(replication), **dict(tables.all())}


def test_init_makes_a_keyspace_once_and_leaves_it_alone_when_repeated(cassandra_node: Reached, keyspace: str) -> None:
    environment = on_cassandra.variables(cassandra_node, keyspace)

    made = done(run_in(environment, None, "init", "--replication", "datacenter1:1"))
    before = described(cassandra_node, keyspace)
    repeated = done(run_in(environment, None, "init"))

    assert made.out == repeated.out == b""
    assert made.err == repeated.err == f"keyspace {keyspace} is ready on {cassandra_node.address}\n"
    assert described(cassandra_node, keyspace) == before
    assert before["replication"]["datacenter1"] == "1"
    assert {"messages", "buckets", "queues", "versions"} < set(before)


@pytest.mark.parametrize(
    ("options", "variables", "code", "said"),
    [
        (
            ("--replication", "many"),
            {},
            2,
            "replication 'many': expected a number of copies, or one for each data centre",
        ),
        ((), {"QUEUEY_STORAGE_BACKEND": "sqlite"}, 2, "[storage] backend is not cassandra"),
        ((), {"QUEUEY_CASSANDRA_HOSTS": "127.0.0.1:1"}, 5, "[cassandra] hosts: no node of 127.0.0.1:1 answers"),
        ((), {"QUEUEY_CASSANDRA_KEYSPACE": "no-name"}, 2, "no-name"),
        (("--copies", "3"), {}, 2, "No such option"),
    ],
)
def test_init_refuses_in_a_sentence(
    cassandra_node: Reached, keyspace: str, options: tuple[str, ...], variables: dict[str, str], code: int, said: str
) -> None:
    ended = run_in(on_cassandra.variables(cassandra_node, keyspace) | variables, None, "init", *options)

    assert (ended.code, ended.out) == (code, b"")
    assert said in ended.err


def test_init_says_what_it_does() -> None:
    said = done(run_in({}, None, "init", "--help")).text

    assert "Make the keyspaces and tables in Cassandra" in said
    assert "--replication COPIES" in said


def test_keys_made_and_removed_are_in_force_on_all_servers(delayed: Delayed) -> None:
    key = done(run_in(delayed.variables, None, "key", "new", "later")).text.strip()

    with Server(delayed.first, "later", key) as first, Server(delayed.second, "later", key) as second:
        assert eventually(lambda: first.create("made-on-one").status_code == 201, seconds=90)
        assert eventually(lambda: second.post("made-on-one").status_code == 201, seconds=90)
        listed = done(run_in(delayed.variables, None, "key", "ls", "later")).column("label")
        done(run_in(delayed.variables, None, "key", "rm", "later", str(listed[0]), "--yes"))
        assert eventually(lambda: first.post("made-on-one").status_code in (401, 404), seconds=90)
        assert eventually(lambda: second.post("made-on-one").status_code in (401, 404), seconds=90)

    assert listed == [label_of(digest_of(key))]


def test_a_command_does_not_take_the_port_of_the_server_beside_it(delayed: Delayed) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        variables = delayed.variables | {"QUEUEY_CASSANDRA_PEER_ADDRESS": address}
        done(run_in(variables, None, "key", "ls", "later"))
    assert done(run_in(delayed.variables, None, "key", "ls", "later")).rows == []


def test_a_key_that_is_not_there_is_not_removed(delayed: Delayed) -> None:
    ended = run_in(delayed.variables, None, "key", "rm", "queuey", "000000", "--yes")

    assert (ended.code, ended.err) == (
        3,
        "Error: queuey has no key with the label 000000: 'queuey key ls' lists the labels\n",
    )


def test_a_backup_is_left_to_cassandra(delayed: Delayed, tmp_path: Path) -> None:
    ended = run_in(delayed.variables, tmp_path, "backup", "copy.db")

    assert (ended.code, ended.out) == (2, b"")
    assert ended.err == "ConfigurationError: [storage] backend = cassandra: its nodes keep the files\n"
    assert list(tmp_path.iterdir()) == []


def test_the_password_is_not_shown(tmp_path: Path) -> None:
    (tmp_path / "queuey.ini").write_text("[cassandra]\nusername = joe\npassword = swordfish\n")

    shown = done(run_in({}, tmp_path, "config", "show", "-c", "queuey.ini"))

    values = {row["key"]: row["value"] for row in shown.rows if row["section"] == "cassandra"}
    assert values["username"] == "joe"
    assert values["password"]
    assert "swordfish" not in shown.text + shown.err


def test_a_read_delay_that_cannot_keep_the_promise_is_refused(tmp_path: Path) -> None:
    (tmp_path / "queuey.ini").write_text("[cassandra]\nread_delay_ms = 1999\n")

    ended = run_in({}, tmp_path, "config", "check", "-c", "queuey.ini")

    assert ended.code == 2
    assert (
        "[cassandra] read_delay_ms = 1999: expected at least write_budget_ms + 2 * clock_error_ms, which is 2000"
        in ended.err
    )
