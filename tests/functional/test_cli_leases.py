"""The commands of leases as processes, against the shipped server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from qdo.client import Client
from queuey.model.dead_letters import STORY_HEADER, Story, story_to_header
from tests.support.client import Server
from tests.support.commands import Ended, command, done
from tests.support.loaded import Program
from tests.support.servers import eventually

Run = Callable[..., "Ended"]


@pytest.fixture
def client(seen: Server) -> Iterator[Client]:
    with Client(seen.url, seen.application, seen.key) as client:
        yield client


@pytest.fixture
def queue(seen: Server) -> str:
    """A queue of one partition with the messages a to d."""
    name = seen.queue()
    seen.fill(name, *"abcd")
    return name


def receipts(ended: Ended) -> list[str]:
    return [str(receipt) for receipt in done(ended).column("receipt")]


def states(client: Client, queue: str, group: str = "default") -> dict[str, tuple[str, int, int]]:
    """What a group holds, by body: state, deliveries and failures."""
    bodies = {message.id: message.text for message in client.iterate(queue)}
    return {bodies[one.id]: (one.state, one.deliveries, one.failures) for one in client.leases(queue, group)}


def given_back(client: Client, queue: str) -> list[tuple[str, int, int]]:
    """What is received once more: body, deliveries and failures."""
    found = client.receive(queue, "default", 10)
    return [(one.text, one.deliveries, one.failures) for one in found if one.deliveries > 1]


# receive and pop.


def test_messages_are_received_with_their_receipts(queuey: Run, seen: Server) -> None:
    name = seen.queue()
    done(queuey("put", name, "x", "-q", "--key", "k", "-H", "content-type: text/plain", "-H", "kind: order"))

    got = done(queuey("receive", name, "--max", "5", "--visibility", "1h"))
    nothing = done(queuey("receive", name))
    other = done(queuey("receive", name, "--group", "others", QUEUEY_RECEIVE_MAX="2"))

    (row,) = got.rows
    assert (row["body"], row["key"], row["content_type"], row["headers"]) == ("x", "k", "text/plain", {"kind": "order"})
    assert (row["deliveries"], row["failures"], len(str(row["receipt"]))) == (1, 0, 60)
    assert float(str(row["visible_at"])) - float(str(row["first_delivered"])) == pytest.approx(3600)
    assert (nothing.out, nothing.err) == (b"", "")
    assert other.column("body") == ["x"]


def test_a_group_that_holds_as_much_as_it_may_is_told_from_an_empty_queue(
    queuey: Run, client: Client, queue: str
) -> None:
    client.set_lease_group(queue, "default", max_leased=2)

    got, refused = (done(queuey("receive", queue, "--max", "3")) for _ in range(2))

    assert (got.column("body"), got.err) == (["a", "b"], "")
    assert refused.out == b""
    assert "The lease group default holds as many messages as its max_leased or max_held allows" in refused.err


def test_receive_prints_a_table_or_lines_of_json(queuey: Run, queue: str) -> None:
    table = done(queuey("receive", queue, "--max", "2", "-o", "table")).text.splitlines()
    lines = done(queuey("receive", queue, "--max", "2", "--json", QUEUEY_OUTPUT="table")).rows

    assert table[0].split() == ["PARTITION", "DELIVERIES", "RECEIPT", "BODY"]
    assert [line.split()[-1] for line in table[1:]] == ["a", "b"]
    assert [row["body"] for row in lines] == ["c", "d"]


def test_several_queues_are_received_from_and_settled_together(queuey: Run, seen: Server, queue: str) -> None:
    other = seen.queue()
    seen.fill(other, "x")

    got = done(queuey("receive", f"{other},{queue}", "--max", "3"))
    drawn = done(queuey("receive", f"{other}=2,{queue}=1", "--max", "9", "-o", "table")).text.splitlines()
    ended = done(queuey("ack", f"{queue},{other}", "-", "-o", "json", given=got.out))

    assert [(row["queue"], row["body"]) for row in got.rows] == [(other, "x"), (queue, "a"), (queue, "b")]
    assert drawn[0].split() == ["QUEUE", "PARTITION", "DELIVERIES", "RECEIPT", "BODY"]
    assert [line.split()[0::4] for line in drawn[1:]] == [[queue, "c"], [queue, "d"]]
    assert (json.loads(ended.text), ended.err) == ({"settled": 3, "stale": []}, "settled 3 messages\n")
    assert done(queuey("pop", f"{queue}=1,{other}")).rows == []
    for wrong in (f"{queue},{queue}", f"{queue},", "=1", f"{queue}=1,{queue}"):
        assert queuey("receive", wrong).code == 2, wrong
    assert "QUEUE: 0 is less than minimum value 1" in queuey("receive", f"{queue}=0").err
    assert "nothing-here" in queuey("receive", f"{queue},nothing-here").err


def test_what_is_popped_comes_once(queuey: Run, queue: str) -> None:
    first = done(queuey("pop", queue))
    rest = done(queuey("receive", queue, "--pop", "--max", "10"))

    assert (first.column("body"), rest.column("body")) == (["a"], ["b", "c", "d"])
    assert all("receipt" not in row and "visible_at" not in row for row in first.rows + rest.rows)
    assert done(queuey("pop", queue)).out == b""


def test_receive_waits_for_a_message(environment: dict[str, str], seen: Server) -> None:
    name = seen.queue()
    with Program(command("pop", name, "--wait", "60"), stdout=subprocess.PIPE, env=os.environ | environment) as process:
        eventually(lambda: seen.call("GET", name, "leases").json()["groups"] != [])
        seen.add(name, "came")
        out = process.communicate(timeout=90)[0]

    assert json.loads(out)["body"] == "came"


def test_wrong_usage_is_refused(queuey: Run, queue: str) -> None:
    for wrong in (
        ("receive", queue, "--pop", "--visibility", "1"),
        ("receive", queue, "--pop", "--exec", "true"),
        ("receive", queue, "--json", "--exec", "true"),
        ("receive", queue, "--max", "0"),
        ("receive", queue, "--max", "1001"),
        ("receive", queue, "--wait", "61"),
        ("receive", queue, "--group", "no name"),
        ("ack", queue),
        ("ack", queue, "nonsense"),
        ("lease", "set", queue, "g", "--resume", "--pause-until", "2050-01-01"),
        ("receive", f"{queue}=x"),
        ("receive", f"{queue}=1,mail=x"),
        ("queue", "rm", queue),
    ):
        ended = queuey(*wrong)
        assert (ended.code, ended.out) == (2, b""), wrong


# receive --exec.


def test_a_program_settles_each_message_by_its_exit_status(
    queuey: Run, client: Client, queue: str, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    program = f"sh -c 'body=$(cat); echo $body $MESSAGE_DELIVERIES $MESSAGE_GROUP >> {log}; test $body != b'"

    ended = queuey("receive", queue, "--max", "3", "--exec", program)

    assert (ended.code, ended.out) == (1, b"")
    assert "sh ended with 1 at message" in ended.err
    assert log.read_text().splitlines() == ["a 1 default", "b 1 default", "c 1 default"]
    assert states(client, queue) == {"b": ("waits", 1, 1)}
    assert queuey("receive", queue, "--max", "10", "--exec", "true").code == 0
    assert "d" not in states(client, queue)


def test_a_program_gets_the_message_in_its_environment(queuey: Run, seen: Server, tmp_path: Path) -> None:
    name = seen.queue()
    sent = done(queuey("put", name, "x", "--key", "k", "-H", "kind: order", "-H", "content-type: text/plain")).rows[0]
    log = tmp_path / "log"

    done(queuey("receive", name, "--exec", f"sh -c 'env | grep ^MESSAGE_ > {log}'"))

    given = dict(line.split("=", 1) for line in log.read_text().splitlines())
    assert len(given.pop("MESSAGE_RECEIPT")) == 60
    assert given == {
        "MESSAGE_ID": sent["message_id"],
        "MESSAGE_PARTITION": "1",
        "MESSAGE_TIMESTAMP": sent["timestamp"],
        "MESSAGE_QUEUE": name,
        "MESSAGE_CONTENT_TYPE": "text/plain",
        "MESSAGE_KEY": "k",
        "MESSAGE_GROUP": "default",
        "MESSAGE_DELIVERIES": "1",
        "MESSAGE_FAILURES": "0",
        "MESSAGE_HEADERS": '{"kind": "order"}',
    }


def test_a_lease_is_extended_while_its_program_runs(
    environment: dict[str, str], client: Client, queue: str, tmp_path: Path
) -> None:
    begun, go = tmp_path / "begun", tmp_path / "go"
    runs = f"sh -c 'touch {begun}; until [ -e {go} ]; do sleep 0.05; done'"

    def ends() -> list[float]:
        return [float(lease.visible_at) for lease in client.leases(queue, "default")]

    with Program(
        command("receive", queue, "--visibility", "4.5", "--exec", runs), env=os.environ | environment
    ) as process:
        try:
            eventually(begun.exists)
            first = ends()
            eventually(lambda: ends() > first)
        finally:
            go.touch()
        assert process.wait(90) == 0

    assert states(client, queue) == {}
    (following,) = client.receive(queue, "default")
    assert following.text == "b"


def test_a_program_that_is_none_blames_no_message(queuey: Run, client: Client, queue: str) -> None:
    ended = queuey("receive", queue, "--max", "3", "--exec", "/no/such program")

    assert (ended.code, "cannot run /no/such" in ended.err) == (1, True)
    assert given_back(client, queue) == [("a", 2, 0)]


def test_a_receiver_that_is_stopped_gives_its_message_back(
    environment: dict[str, str], client: Client, queue: str, tmp_path: Path
) -> None:
    begun = tmp_path / "begun"
    with Program(
        command("receive", queue, "--visibility", "1h", "--exec", f"sh -c 'touch {begun}; exec sleep 60'"),
        env=os.environ | environment,
        stderr=subprocess.DEVNULL,
    ) as process:
        eventually(begun.exists)
        process.send_signal(signal.SIGINT)
        assert process.wait(90) == 130

    assert given_back(client, queue) == [("a", 2, 0)]


# ack, release and reject.


def test_receipts_settle_their_leases(queuey: Run, client: Client, queue: str) -> None:
    a, b, c, d = receipts(queuey("receive", queue, "--max", "4", "--visibility", "1h"))

    acknowledged = done(queuey("ack", queue, a))
    released = done(queuey("release", queue, b, c, "--delay", "1h", "--no-count"))
    rejected = done(queuey("reject", queue, d, "--reason", "not JSON"))

    said = ["settled 1 message\n", "settled 2 messages\n", "settled 1 message\n"]
    assert [ended.err for ended in (acknowledged, released, rejected)] == said
    assert states(client, queue) == {"b": ("waits", 1, 0), "c": ("waits", 1, 0)}
    assert done(queuey("get", f"{queue}-dead")).column("body") == ["d"]


def test_a_release_counts_unless_told_otherwise(queuey: Run, client: Client, queue: str) -> None:
    client.set_lease_group(queue, "default", backoff={"first": 600})
    a, b = receipts(queuey("receive", queue, "--max", "2"))

    done(queuey("release", queue, a))
    done(queuey("release", queue, b, "--no-count"))

    assert states(client, queue)["a"] == ("waits", 1, 1)
    assert states(client, queue)["b"] == ("due", 1, 0)


def test_stale_receipts_are_named_and_the_others_settled(queuey: Run, client: Client, queue: str) -> None:
    a, b = receipts(queuey("receive", queue, "--max", "2"))
    done(queuey("ack", queue, a))

    for verb in ("ack", "release", "reject"):
        ended = queuey(verb, queue, a, *([b] if verb == "ack" else []))
        assert (ended.code, ended.out) == (1, b"")
        assert f"StaleReceipt: {a}" in ended.err
    assert states(client, queue) == {}


def test_receipts_come_from_a_pipe(queuey: Run, seen: Server, client: Client) -> None:
    name = seen.queue()
    seen.fill(name, *map(str, range(1200)))
    received = b"".join(done(queuey("receive", name, "--max", "600")).out for _ in range(2))
    lines = received.splitlines()
    assert len(lines) == 1200
    alone = "\n".join(json.loads(line)["receipt"] for line in lines[:3]).encode()

    done(queuey("release", name, "-", "--no-count", "--delay", "1h", given=alone + b"\n\n"))
    ended = done(queuey("ack", name, "-", given=b"\n".join(lines[3:])))

    assert ended.err == "settled 1,197 messages\n"
    assert {state for state, _, _ in states(client, name).values()} == {"waits"}
    assert len(states(client, name)) == 3
    for line in (b'{"body": "x"}', b'{"receipt": ' + b"[" * 100_000):
        assert queuey("ack", name, "-", given=line + b"\n").code == 2


def test_a_receipt_may_begin_with_a_hyphen(queuey: Run, seen: Server, client: Client) -> None:
    for _ in range(2000):
        name = seen.queue()
        seen.add(name)
        (delivery,) = client.receive(name, "default")
        receipt = delivery.receipt or ""
        if receipt.startswith("-"):
            break
    else:
        pytest.fail("of 2,000 queues, one in 64 has such receipts, and none was found")

    assert done(queuey("ack", name, receipt)).err == "settled 1 message\n"


# lease.


def test_groups_are_listed_set_looked_at_and_forgotten(queuey: Run, seen: Server) -> None:
    name = seen.queue(partitions=2)
    changes = ("--visibility", "5m", "--max-failures", "3", "--order", "key", "--backoff-first", "10s", "--k", "1")

    made = done(queuey("lease", "set", name, "g", *changes, "--start", "end")).rows[0]
    seen.add_batch(name, {"body": "x", "key": "k"})
    paused = done(queuey("lease", "set", name, "g", "--pause-until", "2050-01-01", "--reason", "night")).rows[0]
    nothing = done(queuey("receive", name, "-g", "g"))
    done(queuey("lease", "set", name, "g", "--resume"))
    done(queuey("receive", name, "-g", "g"))
    done(queuey("receive", name))
    listed = done(queuey("lease", "ls", name))
    info = done(queuey("lease", "info", name, "g")).rows[0]
    table = done(queuey("lease", "info", name, "g", "-o", "table")).text.splitlines()
    backlog = done(queuey("lease", "info", name, "g", "--backlog")).rows[0]
    counted = done(queuey("lease", "info", name, "g", "--backlog", "-o", "table")).text.splitlines()
    leased = done(queuey("lease", "info", name, "g", "--leased")).rows
    forgotten = done(queuey("lease", "rm", name, "g", "--yes"))
    gone = queuey("lease", "info", name, "g")
    again = queuey("lease", "rm", name, "g", "--yes")

    assert (made["visibility"], made["max_failures"], made["order"]) == (300, 3, "key")
    assert made["backoff"] == {"first": 10, "factor": 2, "most": 30, "jitter": 0.1}
    assert (paused["paused_reason"], paused["visibility"]) == ("night", 300)
    assert nothing.out == b""
    assert (again.code, f"'queuey lease ls {name}' lists those there are" in again.err) == (3, True)
    assert listed.column("group") == ["default", "g"]
    assert info["group"] == "g"
    assert isinstance(info["partitions"], list)
    assert sum(one["leased"] for one in info["partitions"]) == 1
    assert any(line.split() == ["backoff_first", "10.0"] for line in table)
    assert all(one["done_up_to"] for one in info["partitions"])
    assert table[-3].split()[:3] == ["PARTITION", "HELD", "LEASED"]
    assert table[-3].split()[-1] == "MORE"
    assert counted[-3].split()[-3:] == ["VISIBLE", "HIDDEN", "DELAYED"]
    assert isinstance(backlog["partitions"], list)
    assert sum(one["hidden"] for one in backlog["partitions"]) == 1
    assert "hidden" not in info["partitions"][0]
    assert [(row["state"], row["deliveries"], row["key"]) for row in leased] == [("leased", 1, "k")]
    assert (forgotten.out, forgotten.err) == (b"", f"forgot lease group g of {name}\n")
    assert (gone.code, gone.err.split(":")[0]) == (3, "LeaseGroupNotFound")


def test_a_queue_has_what_its_groups_begin_with(queuey: Run, seen: Server) -> None:
    name = seen.queue()
    leases = ("--lease", "visibility=5", "--lease", 'backoff={"first":9}', "--lease", "order=key")
    done(queuey("queue", "edit", name, *leases))
    done(queuey("receive", name))
    (row,) = done(queuey("lease", "info", name, "default")).rows
    assert (row["visibility"], row["order"]) == (5.0, "key")
    (info,) = done(queuey("queue", "info", name)).rows
    assert info["lease_backoff"] == {"first": 9.0, "factor": 2.0, "most": 30.0, "jitter": 0.1}
    assert "lease_backoff_first" in done(queuey("queue", "info", name, "-o", "table")).text
    done(queuey("queue", "add", name, "--lease", "visibility="))
    assert done(queuey("queue", "info", name)).rows[0]["lease_visibility"] == 30.0
    assert queuey("queue", "edit", name, "--lease", "visibility").code == 2
    assert "lease_colour" in queuey("queue", "edit", name, "--lease", "colour=1").err


def test_a_breaker_is_set_and_its_pause_ended(queuey: Run, queue: str) -> None:
    done(queuey("lease", "set", queue, "default", "--breaker", "1/10m"))
    got = receipts(queuey("receive", queue, "--max", "3"))
    done(queuey("reject", queue, *got))
    (paused,) = done(queuey("lease", "info", queue, "default")).rows
    assert paused["paused_reason"] == "breaker: more than 1 dead letters within 600 seconds"
    (resumed,) = done(queuey("lease", "set", queue, "default", "--resume", "--breaker", "none")).rows
    assert (resumed["paused_until"], resumed["paused_reason"], resumed["breaker"]) == (0.0, None, None)
    assert queuey("lease", "set", queue, "default", "--breaker", "1").code == 2


def test_a_group_is_reset_and_shows_what_it_held(queuey: Run, queue: str) -> None:
    ids = done(queuey("get", queue)).column("message_id")
    done(queuey("receive", queue, "-g", "g", "--max", "2"))

    shown = done(queuey("lease", "reset", queue, "g", "--to", str(ids[1]), "--dry-run"))
    reset = done(queuey("lease", "reset", queue, "g", "--to", str(ids[1]), "--yes"))
    got = done(queuey("pop", queue, "-g", "g", "--max", "9")).column("body")

    assert shown.column("held") == reset.column("held")
    assert "would begin anew" in shown.err
    assert "anew at 20" in queuey("lease", "reset", queue, "g", "--to", "1h", "--dry-run").err
    assert got == ["c", "d"]
    assert queuey("lease", "reset", queue, "g", "--to", "sometime", "--yes").code == 2


def test_a_group_begins_at_a_word_a_time_or_an_id(queuey: Run, queue: str) -> None:
    ids = done(queuey("get", queue)).column("message_id")

    for group, start in (("all", "beginning"), ("recent", "1h"), ("from-c", str(ids[1])), ("none", "end")):
        done(queuey("lease", "set", queue, group, "--start", start))

    got = [
        done(queuey("pop", queue, "-g", group, "--max", "9")).column("body") for group in ("all", "recent", "from-c")
    ]
    assert got == [["a", "b", "c", "d"], ["a", "b", "c", "d"], ["c", "d"]]
    assert done(queuey("pop", queue, "-g", "none")).out == b""
    assert queuey("lease", "set", queue, "bad", "--start", "sometime").code == 2
    assert queuey("lease", "set", queue, "all", "--start", "end").code == 2


def test_a_queue_is_purged(queuey: Run, client: Client, queue: str) -> None:
    assert queuey("purge", queue).code != 0  # nobody can be asked
    assert queuey("purge", queue, "--status").code == 3
    (row,) = done(queuey("purge", queue, "--yes")).rows
    assert (row["name"], row["state"], row["removed"], row["left"]) == ("purge", "done", 4, 0)
    assert client.queue_info(queue).depth == 0
    (status,) = done(queuey("purge", queue, "--status")).rows
    assert status == row
    (cancelled,) = done(queuey("purge", queue, "--cancel")).rows
    assert cancelled["state"] == "done"
    assert queuey("purge", queue, "--cancel", "--status").code == 2
    started = queuey("purge", queue, "--yes", "--no-wait")
    assert done(started).rows[0]["name"] == "purge"
    assert "--status" in started.err


def test_dead_letters_are_redriven(queuey: Run, client: Client, queue: str) -> None:
    for one in client.receive(queue, "default", 4):
        one.reject("no good" if one.text == "a" else "bad")
    assert eventually(lambda: client.queue_info(f"{queue}-dead").depth == 4)
    (preview,) = done(queuey("redrive", queue, "default", "--reason", "bad", "--since", "1h", "--dry-run")).rows
    assert preview == {"matching": 3, "looked": 4, "more": False}
    assert queuey("redrive", queue, "default").code != 0  # nobody can be asked

    (row,) = done(queuey("redrive", queue, "default", "--reason", "no", "--group-only", "--rate", "100", "--yes")).rows

    assert (row["name"], row["state"], row["moved"], row["failed"]) == ("redrive:default", "done", 1, 0)
    assert row["filter"] == {"reason": "no"}
    assert done(queuey("redrive", queue, "default", "--status")).rows == [row]
    assert done(queuey("redrive", queue, "default", "--cancel")).rows == [row]
    assert [one.text for one in client.receive(queue, "default", 9)] == ["a"]
    assert queuey("redrive", queue, "absent", "--yes").code == 3
    assert queuey("redrive", queue, "default", "--header", "a", "--yes").code == 2
    assert done(queuey("redrive", queue, "default", "--header", "x:y", "--yes")).rows[0]["moved"] == 0


def test_a_redrive_that_leaves_letters_says_so(queuey: Run, seen: Server, client: Client, queue: str) -> None:
    client.receive(queue, "default")[0].reject("bad")
    dead = f"{queue}-dead"
    assert eventually(lambda: client.queue_info(dead).depth == 1)
    story = Story(queue, 1, "0" * 32, "default", 1, "forged").alone(b"message")
    seen.add_batch(dead, {"body": "forged", "headers": {STORY_HEADER: story_to_header(story).decode()}})

    ended = queuey("redrive", queue, "default", "--yes")

    (row,) = ended.rows
    assert (row["state"], row["moved"], row["failed"]) == ("done", 1, 1)
    assert (ended.code, f"1 dead letter could not be moved and stays: {row['reason']}" in ended.err) == (1, True)
    assert queuey("redrive", queue, "default", "--status").code == 0


def test_a_number_that_the_server_refuses_is_named_by_its_option(queuey: Run, queue: str) -> None:
    most = queuey("receive", queue, "--max", "2000")
    backoff = queuey("lease", "set", queue, "g", "--backoff-most", "400d")
    breaker = queuey("lease", "set", queue, "g", "--breaker", "2000/1m")

    assert (most.code, most.err) == (2, "InvalidParameter: --max: 2000 is greater than maximum value 1000\n")
    place = queuey("lease", "reset", queue, "g", "--to", "nonsense", "--yes")
    assert (place.code, "; nor is it beginning or end" in place.err) == (2, True)
    assert (backoff.code, backoff.err) == (
        2,
        "InvalidParameter: --backoff-most: 34560000 is not from 0 to 31622400, in seconds\n",
    )
    assert (breaker.code, breaker.err) == (2, "InvalidParameter: --breaker: 2000 is greater than maximum value 1000\n")
