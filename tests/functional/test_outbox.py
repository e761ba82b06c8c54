"""The outbox: what a committed transaction wrote is stored once, also if its relay is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from sqlalchemy import Engine, MetaData, create_engine, select, update
from sqlalchemy.orm import Session

from qdo import NewMessage
from qdo.adapters.outbox import OutboxRelay, relay
from qdo.adapters.outbox.__main__ import main as relay_command
from qdo.adapters.outbox.sqlalchemy import SqlOutbox
from qdo.client import Client
from queuey.errors import Forbidden, InvalidApplicationKey, InvalidParameter, ServerUnreachable
from tests.support.client import Server, emptied
from tests.support.servers import eventually

SECONDS = 60
metadata = MetaData()
outbox = SqlOutbox(metadata)


@pytest.fixture
def server(application: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """It is the one that the environment names."""
    with emptied(application) as found:
        for name, value in found.variables.items():
            monkeypatch.setenv(name, value)
        yield found


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with Client() as found:
        yield found


@pytest.fixture
def database(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'shop.db'}"


@pytest.fixture
def engine(database: str) -> Iterator[Engine]:
    made = create_engine(database, connect_args={"timeout": SECONDS})
    metadata.create_all(made)
    yield made
    made.dispose()


def add(engine: Engine, *messages: NewMessage | bytes | str, queue: str = "orders") -> list[str]:
    with Session(engine) as session:
        keys = [outbox.add(session, queue, message) for message in messages]
        session.commit()
    return keys


def bodies(client: Client, queue: str = "orders") -> list[bytes]:
    return [message.body for message in client.iterate(queue)]


def left(engine: Engine) -> list[tuple[str, str | None]]:
    with engine.connect() as connection:
        return [tuple(row) for row in connection.execute(select(outbox.table.c.queue, outbox.table.c.refused))]


def test_what_is_committed_is_sent_in_its_order_and_what_is_rolled_back_is_not(engine: Engine, client: Client) -> None:
    add(engine, *(str(number) for number in range(250)))
    with Session(engine) as session:
        outbox.add(session, "orders", "never")
        session.rollback()

    assert OutboxRelay(outbox.on(engine), client).send_waiting() == 250
    assert bodies(client) == [b"%d" % number for number in range(250)]
    assert left(engine) == []


def test_a_message_keeps_all_its_fields(engine: Engine, client: Client) -> None:
    add(
        engine,
        NewMessage(b"\x00\xff", 600, content_type="image/x", key="k", headers={"a": "text", "b": b"\xff"}),
        NewMessage.of_json({"messages": [1]}, partition=1, idempotency_key="mine"),
        NewMessage("later", delay_seconds=3600),
    )

    OutboxRelay(outbox.on(engine), client).send_waiting()

    first, second = client.iterate("orders")
    assert (first.body, first.content_type, first.key) == (b"\x00\xff", "image/x", "k")
    assert first.headers == {"a": b"text", "b": b"\xff"}
    assert second.text == '{"messages": [1]}'
    assert client.queue_info("orders").scheduled == 1


def test_a_relay_that_is_killed_between_append_and_delete_sends_once(
    engine: Engine, client: Client, database: str
) -> None:
    add(engine, "one", "two")

    killed = subprocess.run(
        [sys.executable, "-m", "tests.support.dying_relay", database],
        env=dict(os.environ),
        timeout=SECONDS,
        check=False,
    )
    stored = bodies(client)
    add(engine, "three")
    OutboxRelay(outbox.on(engine), client).send_waiting()

    assert killed.returncode == -signal.SIGKILL
    assert stored == [b"one", b"two"]
    assert bodies(client) == [b"one", b"two", b"three"]
    assert left(engine) == []


def test_several_relays_send_each_row_once(engine: Engine, client: Client, server: Server) -> None:
    add(engine, *(str(number) for number in range(300)))

    def relay() -> None:
        with Client() as own:
            OutboxRelay(outbox.on(engine), own).send_waiting()

    threads = [threading.Thread(target=relay) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)

    assert sorted(map(int, bodies(client))) == list(range(300))


def test_a_row_that_is_refused_stays_with_the_reason_and_stops_no_other(engine: Engine, client: Client) -> None:
    add(engine, "one", NewMessage("key", idempotency_key="k"))
    OutboxRelay(outbox.on(engine), client).send_waiting()
    with Session(engine) as session:
        outbox.add(session, "orders", NewMessage("another", idempotency_key="k"))
        outbox.add(session, "orders", "two")
        session.commit()

    assert OutboxRelay(outbox.on(engine), client).send_waiting() == 1
    assert bodies(client) == [b"one", b"key", b"two"]
    ((queue, refused),) = left(engine)
    assert queue == "orders"
    assert (refused or "").startswith("KeyReused")


@pytest.mark.parametrize(
    "fields",
    [
        "",
        "none",
        "[]",
        '{"headers": 1}',
        '{"headers": {"a": "a"}}',
        '{"colour": 1}',
        '{"body": "twice"}',
        '{"ttl_seconds": "x"}',
        "[" * 100_000,
    ],
)
def test_a_row_with_fields_of_no_message_stops_no_other(engine: Engine, client: Client, fields: str) -> None:
    add(engine, "one", "two", "three")
    with engine.begin() as connection:
        connection.execute(update(outbox.table).where(outbox.table.c.body == b"two").values(fields=fields))

    assert OutboxRelay(outbox.on(engine), client).send_waiting() == 2
    assert bodies(client) == [b"one", b"three"]
    ((_, refused),) = left(engine)
    assert (refused or "").startswith("InvalidParameter: ")


def test_a_server_that_is_away_or_refuses_the_key_loses_nothing(engine: Engine, server: Server) -> None:
    add(engine, "one")

    with Client("http://127.0.0.1:1", "demo", "key", retries=0) as away, pytest.raises(ServerUnreachable):
        OutboxRelay(outbox.on(engine), away).send_waiting()
    with Client(server.url, server.application, "f" * 32) as stranger, pytest.raises(InvalidApplicationKey):
        OutboxRelay(outbox.on(engine), stranger).send_waiting()

    assert left(engine) == [("orders", None)]


def test_a_relay_runs_until_it_is_stopped(engine: Engine, client: Client) -> None:
    relay = OutboxRelay(outbox.on(engine), client)
    thread = threading.Thread(target=relay.run, args=(0.01,))
    thread.start()
    try:
        add(engine, "one")
        eventually(lambda: not left(engine), seconds=SECONDS)
    finally:
        relay.stop()
        thread.join(SECONDS)

    assert not thread.is_alive()
    assert bodies(client) == [b"one"]


def test_a_relay_that_is_stopped_leaves_the_rest_to_the_next_one(
    engine: Engine, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many rows wait, and more come meanwhile."""
    add(engine, *(str(number) for number in range(5)))
    monkeypatch.setattr(relay, "MOST_ROWS", 2)
    sender, append = OutboxRelay(outbox.on(engine), client), client.append_batch

    def append_batch(queue: str, messages: Any) -> Any:
        sender.stop()
        return append(queue, messages)

    monkeypatch.setattr(client, "append_batch", append_batch)

    sender.run()

    assert bodies(client) == [b"0", b"1"]
    assert sender.send_waiting() == 3


def test_the_command_sends_once_and_ends(engine: Engine, client: Client, database: str) -> None:
    add(engine, "one")
    command = [sys.executable, "-m", "qdo.adapters.outbox", database, "--once"]

    done = subprocess.run(command, env=dict(os.environ), capture_output=True, text=True, timeout=SECONDS, check=False)

    assert (done.returncode, done.stdout) == (0, "1 sent\n"), done.stderr
    assert bodies(client) == [b"one"]


@pytest.mark.parametrize("once", [True, False])
@pytest.mark.parametrize(
    "wrong", ["sqlite:///nowhere/shop.db", "sqlite://", "no address", "oracle+none://x/y", "postgresql+nothing://x/y"]
)
def test_the_command_ends_where_there_is_no_table(client: Client, wrong: str, once: bool) -> None:
    done = CliRunner().invoke(relay_command, [wrong, *(["--once"] if once else [])])

    assert done.exit_code == 1
    assert "cannot read the table queuey_outbox: " in done.stderr
    assert "DATABASE and --table name it" in done.stderr


@pytest.mark.parametrize(
    ("queue", "body"), [("orders", {"a": 1}), ("", "text"), ("orders", NewMessage("x", idempotency_key=""))]
)
def test_what_no_message_can_be_is_refused_before_it_is_written(engine: Engine, queue: str, body: object) -> None:
    with Session(engine) as session, pytest.raises(InvalidParameter):
        outbox.add(session, queue, body)  # type: ignore[arg-type]
    assert left(engine) == []


def test_a_queue_that_the_key_may_not_use_stops_no_other(
    engine: Engine, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even if more of its rows come first than are sent together."""
    append, asked = client.append_batch, Counter[str]()

    def append_batch(queue: str, messages: Any) -> Any:
        asked[queue] += 1
        if queue == "closed":
            raise Forbidden("not with this key")
        return append(queue, messages)

    monkeypatch.setattr(client, "append_batch", append_batch)
    monkeypatch.setattr(relay, "MOST_ROWS", 2)
    with Session(engine) as session:
        for queue, body in (("orders", "one"), *[("closed", "two")] * 5, ("orders", "three")):
            outbox.add(session, queue, body)
        session.commit()
    sender = OutboxRelay(outbox.on(engine), client)

    assert sender.send_waiting() == 2
    assert asked["closed"] == 1
    assert [message.text for message in client.iterate("orders")] == ["one", "three"]
    with pytest.raises(Forbidden, match="not with this key"):
        sender.send_waiting()
