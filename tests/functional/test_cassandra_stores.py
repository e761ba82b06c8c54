"""Which store keeps what: messages and metadata apart, a store that is full, and clusters that a server refuses."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support import on_cassandra, servers
from tests.support.client import Server
from tests.support.commands import Ended, done, run_in
from tests.support.on_cassandra import AT_ONCE
from tests.support.servers import eventually
from tests.support.services.cassandra import ROLE, Cassandra, session
from tests.support.services.certificates import Authority
from tests.support.services.fixtures import Keyspaces, Reached
from tests.support.services.proxy import Proxy


@contextmanager
def serving(folder: Path, settings: str) -> Iterator[Server]:
    """A server of one's own, started anew on what a former one in the folder left."""
    with servers.shipped(folder, settings=settings) as running, Server(running) as server:
        yield server


def everything_works(server: Server) -> str:
    """A queue that has one message, after all that can be done to one."""
    name, doomed = server.queue(partitions=3), server.queue()
    first, second = server.fill(name, "first", "second")
    server.call("PUT", name, first, data=b"changed")
    server.call("DELETE", name, second)
    server.call("PUT", name, data={"partitions": 4})
    server.call("DELETE", doomed)
    assert server.everything(name) == ["changed"]
    assert server.get(doomed).status_code == 404
    return name


def rows(node: Reached, keyspace: str, table: str) -> list[Any]:
    with session(node.address, node.port) as asked:
        asked.set_keyspace(keyspace)
        return list(asked.execute(f"SELECT * FROM {table}"))  # noqa: S608 - a name of this file


@pytest.fixture(scope="module")
def made(cassandra_node: Reached, module_keyspace: str) -> str:
    """A keyspace with its tables."""
    on_cassandra.init(cassandra_node, module_keyspace)
    return module_keyspace


@pytest.mark.parametrize(("storage", "metadata"), [("cassandra", "sqlite"), ("sqlite", "cassandra")])
def test_messages_and_metadata_in_different_stores(
    tmp_path: Path, cassandra_node: Reached, made: str, storage: str, metadata: str
) -> None:
    """One in Cassandra and one embedded, for a single server; both outlive it."""
    settings = on_cassandra.settings(cassandra_node, made, AT_ONCE, rest=f"[metadata]\nbackend = {metadata}\n")
    settings = settings.replace("[storage]\nbackend = cassandra", f"[storage]\nbackend = {storage}")
    messages_before = rows(cassandra_node, made, "messages")

    with serving(tmp_path, settings) as server:
        name = everything_works(server)
    with serving(tmp_path, settings) as server:
        assert server.everything(name) == ["changed"]
        assert server.settings(name)["partitions"] == 4

    queues = [row.name for row in rows(cassandra_node, made, "queues")]
    more_messages = len(rows(cassandra_node, made, "messages")) - len(messages_before)
    assert (more_messages, name in queues) == ((1, False) if storage == "cassandra" else (0, True))


@pytest.mark.drawn
def test_messages_in_one_keyspace_and_metadata_in_another(
    tmp_path: Path, cassandra_node: Reached, keyspaces: Keyspaces
) -> None:
    with keyspaces() as messages, keyspaces() as metadata:
        said = on_cassandra.init(cassandra_node, messages, metadata_keyspace=metadata).err
        settings = on_cassandra.settings(cassandra_node, messages, f"{AT_ONCE}metadata_keyspace = {metadata}\n")

        with serving(tmp_path, settings) as server:
            everything_works(server)

        assert [f"keyspace {name} is ready" in said for name in (messages, metadata)] == [True, True]
        assert len(rows(cassandra_node, messages, "messages")) == 1
        assert len(rows(cassandra_node, metadata, "queues")) == 1
        assert rows(cassandra_node, messages, "queues") == rows(cassandra_node, metadata, "messages") == []


def test_more_at_once_than_the_store_may_take_is_refused_and_nothing_of_it_stored(
    tmp_path: Path, cassandra_node: Reached, made: str
) -> None:
    with serving(tmp_path, on_cassandra.settings(cassandra_node, made, "max_calls = 1\n")) as server:
        name = server.queue()

        def append(_: int) -> list[int]:
            with Server(server.running) as writer:
                return [writer.post(name).status_code for _ in range(20)]

        with ThreadPoolExecutor(8) as threads:
            codes = [code for found in threads.map(append, range(8)) for code in found]

        assert set(codes) == {201, 503}
        assert server.info(name)["depth"] == codes.count(201)


# Clusters that are not as they should be.


@pytest.fixture
def refusal(tmp_path: Path, cassandra_node: Reached) -> Callable[..., str]:
    """Starts a server that must refuse to, with these settings of ``[cassandra]``: the sentence it ends with."""

    def refuse(keyspace: str = "queuey", **more: str) -> str:
        environment = on_cassandra.variables(cassandra_node, keyspace, **more)
        ended = run_in(environment, tmp_path, "serve", "--port", "0", QUEUEY_LOG_LEVEL="error")
        assert (ended.code, ended.text) == (2, "")
        sentence = str(json.loads(ended.err.splitlines()[-1])["event"])
        assert sentence.startswith("ConfigurationError: ")
        return sentence

    return refuse


def test_a_keyspace_that_is_not_there_is_refused(refusal: Callable[..., str]) -> None:
    assert "keyspace = nowhere lacks all of it: run 'queuey init' once" in refusal("nowhere")


def test_tables_that_are_not_there_or_of_another_form_are_refused(
    refusal: Callable[..., str], cassandra_node: Reached, keyspace: str
) -> None:
    on_cassandra.init(cassandra_node, keyspace)
    with session(cassandra_node.address, cassandra_node.port) as node:
        node.set_keyspace(keyspace)
        node.execute("UPDATE versions SET version = 7 WHERE part = 'tables'")
        assert f"{keyspace} have form 7, this version needs 1" in refusal(keyspace)
        node.execute("DROP TABLE idempotency")
        assert f"keyspace = {keyspace} lacks idempotency: run 'queuey init' once" in refusal(keyspace)


def test_one_copy_is_refused_where_durability_is_strict(refusal: Callable[..., str], made: str) -> None:
    told = refusal(made, strict_durability="true")

    assert f"[cassandra] strict_durability = true: keyspace {made} has 1 copy" in told


def test_a_server_that_reaches_no_node_ends_so_that_it_is_started_again(
    tmp_path: Path, cassandra_node: Reached
) -> None:
    """After a power cut the nodes may take longer than the server. The unit starts none that ended with 2."""
    environment = on_cassandra.variables(cassandra_node, "queuey", hosts="127.0.0.1:1")

    ended = run_in(environment, tmp_path, "serve", "--port", "0", QUEUEY_LOG_LEVEL="error")

    assert (ended.code, ended.text) == (5, "")
    said = str(json.loads(ended.err.splitlines()[-1])["event"])
    assert said.startswith("StorageUnavailable: [cassandra] hosts: no node of 127.0.0.1:1 answers")


@pytest.mark.drawn
def test_a_cluster_that_asks_who_one_is(tmp_path: Path) -> None:
    """The tables are made by a role that may; the server's own needs SELECT and MODIFY, and to see how nodes sync."""
    with ExitStack() as stack:
        cassandra = stack.enter_context(Cassandra(tmp_path / "cassandra", brittle=True, roles=True))
        node = Reached(cassandra.contact_points[0], cassandra.port)
        admin = stack.enter_context(session(node.address, node.port))

        def run(role: str, password: str, *command: str) -> Ended:
            environment = on_cassandra.variables(node, "guarded", username=role, password=password)
            return run_in(environment, tmp_path, *command, QUEUEY_LOG_LEVEL="error")

        def warnings() -> str:
            given = f"{AT_ONCE}username = server\npassword = swordfish\n"
            with serving(tmp_path, on_cassandra.settings(node, "guarded", given)) as server:
                everything_works(server)
                return server.request("GET", "/__heartbeat__").headers["Queuey-Warnings"]

        admin.execute("CREATE ROLE server WITH PASSWORD = 'swordfish' AND LOGIN = true")
        may_not = run("server", "swordfish", "init", "--replication", "1")
        done(run(ROLE, ROLE, "init", "--replication", "1"))
        for granted in ("SELECT ON KEYSPACE guarded", "MODIFY ON KEYSPACE guarded"):
            admin.execute(f"GRANT {granted} TO server")
        unknown = warnings()
        admin.execute("GRANT SELECT ON system_views.settings TO server")
        # Nodes remember for two seconds what a role may.
        assert eventually(lambda: "survives a crash" in warnings(), seconds=90)
        wrong = [run("server", "catfish", *command) for command in (("serve", "--port", "0"), ("init",), ("key", "ls"))]
        nobody = run("", "", "serve", "--port", "0")

    assert may_not.code == 2
    assert "[cassandra] server cannot make the keyspace guarded: " in may_not.err
    assert "commitlog_sync is unknown" in unknown
    for ended in (*wrong, nobody):
        assert ended.code == 2
        assert (
            "[cassandra] hosts: the nodes refuse these credentials: see [cassandra] username and password" in ended.err
        )
        assert "catfish" not in ended.err


@pytest.mark.drawn
def test_a_cluster_that_is_reached_by_tls(tmp_path: Path) -> None:
    """Each side has to be known to the other's authority, and a node has to be where its certificate says."""
    authority, stranger = Authority(tmp_path / "known"), Authority(tmp_path / "strange")
    nodes, server = authority.identity("nodes", "127.0.0.1"), authority.identity("server")
    with Cassandra(tmp_path / "cassandra", brittle=True, shows=nodes.both, trusts=authority.file) as cassandra:
        node = Reached(cassandra.contact_points[0], cassandra.port)
        closed = {"tls_ca": str(authority.file), "tls_cert": str(server.cert), "tls_key": str(server.key)}
        on_cassandra.init(node, "closed", **closed)
        lines = "".join(f"{key} = {value}\n" for key, value in closed.items())
        with serving(tmp_path, on_cassandra.settings(node, "closed", AT_ONCE + lines)) as asked:
            everything_works(asked)

        unknown = stranger.identity("unknown")
        shown = {"tls_cert": str(unknown.cert), "tls_key": str(unknown.key)}
        for wrong in (closed | shown, {"tls_ca": str(authority.file)}, {"tls_ca": str(stranger.file)}):
            environment = on_cassandra.variables(node, "closed", **wrong)
            ended = run_in(environment, tmp_path, "serve", "--port", "0", QUEUEY_LOG_LEVEL="error")
            assert (ended.code, ended.text) == (5, "")
            assert f"[cassandra] hosts: no node of {node.address} answers" in ended.err

        with Proxy(lambda: (node.address, node.port), listen=("127.0.0.2", 0)) as elsewhere:
            other = Reached(*elsewhere.address)
            ended = run_in(
                on_cassandra.variables(other, "closed", **closed),
                tmp_path,
                "serve",
                "--port",
                "0",
                QUEUEY_LOG_LEVEL="error",
            )
            assert (ended.code, ended.text) == (5, "")
            assert "IP address mismatch" in ended.err
            unchecked = AT_ONCE + lines + "tls_check_host = false\n"
            with serving(tmp_path, on_cassandra.settings(other, "closed", unchecked)) as asked:
                everything_works(asked)
