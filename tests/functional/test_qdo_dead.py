"""``qdo dead`` on what lease groups of the server gave up: letters of workers are in ``test_qdo_work``."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result

from qdo.cli import main
from qdo.client import Client, NewMessage
from qdo.groups.dead_letter_names import DEFAULT_DEAD_LETTERS, DeadLetterNames
from queuey.model.dead_letters import REDRIVEN_HEADER
from queuey.service.dead_letters import dead_letter_queue
from tests.support.client import Server, new_name
from tests.support.servers import RunningServer

Run = Callable[..., Result]
BODY = b"\x00\xff"


@pytest.fixture
def server(shipped_server: RunningServer) -> Iterator[Server]:
    with Server(shipped_server) as seen:
        yield seen


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with Client(server.url, server.application, server.key) as client:
        yield client


@pytest.fixture
def run(server: Server) -> Run:
    environment = {
        "QUEUEY_URL": server.url,
        "QUEUEY_APPLICATION": server.application,
        "QUEUEY_KEY": server.key or "",
    }
    return lambda *words: CliRunner().invoke(main, list(words), env=environment)


def rejected(server: Server, client: Client, queue: str, new: NewMessage, **reason: str) -> str:
    """The id of a message that a lease group received and rejected."""
    sent = client.append(queue, new)
    leased = server.call("POST", queue, "leases", "hands", json={"receive": {}}).json()["messages"]
    reject: list[Any] = [{"receipt": leased[0]["receipt"]} | reason]
    assert server.call("POST", queue, "leases", "hands", json={"reject": reject}).json()["settled"]["rejected"] == 1
    return sent.id.hex


def rows(result: Result) -> list[dict[str, Any]]:
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_a_letter_says_which_task_failed(server: Server, client: Client, run: Run) -> None:
    queue = server.queue()
    rejected(server, client, queue, NewMessage("{}", headers={"queuey-task": "shop.pack"}), reason="no")

    (letter,) = rows(run("dead", "ls", queue, "-o", "jsonl"))

    assert letter["task"] == "shop.pack"
    assert "shop.pack" in run("dead", "ls", queue, "-o", "table").stdout


def test_the_default_name_is_the_servers() -> None:
    assert DEFAULT_DEAD_LETTERS.format(queue="jobs") == dead_letter_queue("jobs")


def test_letters_of_a_lease_group_are_listed_shown_and_retried(server: Server, client: Client, run: Run) -> None:
    queue = server.queue(partitions=4)
    new = NewMessage(BODY, partition=3, content_type="image/png", headers={"trace": "t"})
    message_id = rejected(server, client, queue, new, reason="no picture: \u00fc")

    (letter,) = rows(run("dead", "ls", queue, "-o", "jsonl"))
    assert (letter["partition"], letter["message_id"], letter["group"]) == (3, message_id, "hands")
    assert (letter["failures"], letter["deliveries"], letter["reason"]) == (0, 1, "no picture: \u00fc")
    assert letter["task"] is None
    assert "TASK" not in run("dead", "ls", queue, "-o", "table").stdout
    assert rows(run("dead", "ls", queue, "-o", "jsonl", "-g", "others")) == []

    shown = json.loads(run("dead", "show", queue, message_id).stdout)
    assert float(shown["first_delivered"]) <= float(shown["given_up"])
    assert (shown["content_type"], shown["headers"], shown["size"]) == ("image/png", {"trace": "t"}, len(BODY))
    assert (shown["body"], shown["encoding"], shown["traceback"]) == ("AP8=", "base64", "")
    assert run("dead", "show", queue, letter["letter"], "--raw").stdout_bytes == BODY

    assert run("dead", "retry", queue, letter["letter"], "--yes").exit_code == 0
    first, again = client.iterate(queue)
    assert (again.partition, again.body, again.content_type) == (3, BODY, "image/png")
    assert first.headers == {"trace": b"t"}
    assert {**again.headers} == {**first.headers, REDRIVEN_HEADER: again.headers[REDRIVEN_HEADER]}
    assert json.loads(again.headers[REDRIVEN_HEADER])["message_id"] == message_id
    assert rows(run("dead", "ls", queue, "-o", "jsonl")) == []
    (leased,) = server.call("POST", queue, "leases", "hands", json={"receive": {}}).json()["messages"]
    assert (leased["message_id"], leased["deliveries"]) == (again.id.hex, 1)


def test_a_retried_message_keeps_its_key(server: Server, client: Client, run: Run) -> None:
    queue = server.queue(partitions=4)
    rejected(server, client, queue, NewMessage("x", key="customer 7"))

    assert run("dead", "retry", queue, "--all", "--yes").exit_code == 0

    first, again = client.iterate(queue)
    assert (again.key, again.partition) == ("customer 7", first.partition)


def test_the_letters_of_a_long_name_are_found_by_the_name_of_their_queue(
    server: Server, client: Client, run: Run
) -> None:
    """The server shortens such a name; a worker would be refused at start."""
    queue = server.queue().ljust(48, "x")
    client.create_queue(queue)
    rejected(server, client, queue, NewMessage("x"), reason="no")

    refused = run("dead", "ls", queue)
    assert (refused.exit_code, "--dead-letters NAME" in refused.stderr) == (2, True)
    (letter,) = rows(run("dead", "ls", queue, "--dead-letters", dead_letter_queue(queue), "-o", "jsonl"))
    assert letter["reason"] == "no"


def test_a_queue_that_is_none_is_not_said_to_have_no_letters(server: Server, run: Run) -> None:
    assert rows(run("dead", "ls", server.queue(), "-o", "jsonl")) == []

    missing = run("dead", "ls", new_name())

    assert (missing.exit_code, "QUEUE is the one that the messages came from" in missing.stderr) == (3, True)
    for asked in (("show", new_name(), "x"), ("retry", new_name(), "--all", "--yes")):
        assert "QUEUE is the one that the messages came from" in run("dead", *asked).stderr


def test_a_letter_that_is_none_is_said_to_be_none_with_the_command_that_lists_them(server: Server, run: Run) -> None:
    queue = server.queue()

    for asked in (("show", queue, "x"), ("retry", queue, "x", "--yes"), ("retry", queue, "--all", "--yes")):
        none = run("dead", *asked)
        assert (none.exit_code, f"of {queue}: 'qdo dead ls {queue}' lists" in none.stderr) == (3, True)


def test_letters_that_a_group_keeps_elsewhere_are_not_said_to_be_none(server: Server, client: Client, run: Run) -> None:
    queue, letters = server.queue(), server.queue()
    client.set_lease_group(queue, "hands", dead_letter_queue=letters)
    rejected(server, client, queue, NewMessage(BODY))

    listed = run("dead", "ls", queue, "-o", "jsonl")

    assert rows(listed) == []
    assert f"lease group hands keeps its dead letters in {letters}: --dead-letters {letters}" in listed.stderr
    assert len(rows(run("dead", "ls", queue, "-o", "jsonl", "--dead-letters", letters))) == 1
    assert "hands" not in run("dead", "ls", queue, "-g", "others").stderr


def test_letters_that_go_meanwhile_are_not_said_to_be_appended(
    server: Server, client: Client, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = server.queue()
    for body in (b"a", b"b", b"c"):
        rejected(server, client, queue, NewMessage(body), reason="bad")
    listed = rows(run("dead", "ls", queue, "-o", "jsonl", "--last", "2"))

    def confirm(question: str, *, yes: bool) -> None:
        """Meanwhile somebody else removes a letter, and another one is new."""
        assert yes, question
        letters_of = DeadLetterNames(DEFAULT_DEAD_LETTERS).queue_for(queue)
        client.delete(letters_of, f"{listed[0]['partition']}:{listed[0]['letter']}")
        rejected(server, client, queue, NewMessage(b"d"), reason="bad")

    monkeypatch.setattr("qdo.cli.dead.confirm", confirm)
    ended = run("dead", "retry", queue, "--all", "--yes", "-o", "jsonl")

    assert json.loads(ended.stdout) == {"queue": queue, "appended": 2, "gone": 0}
    assert "1 letter went before it was their turn" in ended.stderr
    assert len(rows(run("dead", "ls", queue, "-o", "jsonl"))) == 1
    assert sorted(one.body for one in client.iterate(queue)) == [b"a", b"a", b"b", b"c", b"c", b"d"]
