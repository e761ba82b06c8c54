"""The commands as processes, against the shipped server."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.client import Server, new_name
from tests.support.commands import Ended, command, done, run_in, run_on_terminal
from tests.support.loaded import Program
from tests.support.servers import RunningServer, eventually

Run = Callable[..., "Ended"]


# put and get.


def test_put_makes_the_queue_and_get_gives_the_message_back(queuey: Run, seen: Server) -> None:
    name = new_name()

    put = done(queuey("put", name, "héllo"))
    got = done(queuey("get", name))

    assert put.err == f"made queue {name}, 1 partition\n"
    assert got.rows == [{**put.rows[0], "body": "héllo"}]
    assert [message["body"] for message in seen.read(name)] == ["héllo"]


def test_what_a_terminal_cannot_show_is_escaped_and_json_stays_json(queuey: Run) -> None:
    name = new_name()
    done(queuey("put", name, "h\u00e9llo \u2192 \U0001f600"))

    got = done(queuey("get", name, PYTHONIOENCODING="ascii"))

    assert got.out.isascii()
    assert got.column("body") == ["h\u00e9llo \u2192 \U0001f600"]


def test_put_without_create_finds_no_queue(queuey: Run) -> None:
    ended = queuey("put", new_name(), "x", "--no-create")

    assert (ended.code, ended.text) == (3, "")
    assert ended.err.startswith("QueueNotFound: ")


@pytest.mark.parametrize("text", [(), ("-",)])
def test_any_bytes_go_through_stdin_and_raw(queuey: Run, text: tuple[str, ...]) -> None:
    name, body = new_name(), bytes(range(256)) * 100

    done(queuey("put", name, *text, given=body))

    assert done(queuey("get", name, "--raw")).out == body
    assert done(queuey("get", name)).rows[0]["encoding"] == "base64"


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    ("redirection", "code", "told"), [("> /dev/full", 1, "Error: No space left on device\n"), (">&-", 0, "")]
)
def test_a_place_that_takes_no_output_is_told_in_a_line(
    queuey: Run, environment: dict[str, str], redirection: str, code: int, told: str, unbuffered: str
) -> None:
    name = new_name()
    done(queuey("put", name, "hello"))

    ended = subprocess.run(
        ["/bin/sh", "-c", f'"$@" {redirection}', "sh", *command("get", name)],
        env={**os.environ, **environment, "PYTHONUNBUFFERED": unbuffered},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (ended.returncode, ended.stderr) == (code, told)


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("asked", ["--help", "--version", "put --help"])
@pytest.mark.parametrize(
    ("redirection", "code", "told"), [("> /dev/full", 1, "Error: No space left on device\n"), (">&-", 0, "")]
)
def test_help_for_a_place_that_takes_no_output_is_an_error_of_a_line(
    asked: str, redirection: str, code: int, told: str, unbuffered: str
) -> None:
    ended = subprocess.run(
        ["/bin/sh", "-c", f'"$@" {redirection}', "sh", *command(*asked.split())],
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (ended.returncode, ended.stderr) == (code, told)


@pytest.mark.parametrize(("program", "told"), [("sh -c 'cat", "no closing quotation"), ("", "names no program")])
def test_a_program_that_is_none_is_wrong_usage(queuey: Run, program: str, told: str) -> None:
    ended = queuey("get", new_name(), "--exec", program)

    assert (ended.code, told in ended.err, "Traceback" in ended.err) == (2, True, False)


def test_a_put_that_is_stopped_says_how_many_messages_are_stored(queuey: Run, environment: dict[str, str]) -> None:
    name = new_name()
    with started(environment, "put", name, "x", "--count", "100000000", "--quiet") as running:
        assert eventually(lambda: queuey("get", name, "--last", "1").text != "")
        running.send_signal(signal.SIGINT)
        told = running.communicate(timeout=90)[1].decode()

    stored = done(queuey("queue", "info", name)).rows[0]["depth"]
    assert isinstance(stored, int)
    (said,) = [
        int(words.replace(",", ""))
        for words in re.findall(r"^stored ([\d,]+) messages? before this:$", told, re.MULTILINE)
    ]
    # What was under way may be stored as well.
    assert (running.returncode, said <= stored <= said + 500) == (130, True)


def test_lines_become_messages_in_their_order(queuey: Run) -> None:
    name = new_name()
    lines = [f"line {number} ünï" for number in range(1203)]

    put = done(queuey("put", name, "--lines", given="\r\n".join([*lines, "", "last"]).encode()))
    got = done(queuey("get", name, "--format", "{body}"))

    assert len(put.rows) == 1204
    assert got.text.splitlines() == [*lines, "last"]


def test_lines_are_sent_as_they_come(environment: dict[str, str], seen: Server) -> None:
    name = new_name()
    with started(environment, "put", name, "--lines", "-q", stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(b"first\n")
        process.stdin.flush()
        # Only the first request makes the queue; until then there is none to read.
        eventually(lambda: seen.get(name).status_code == 200 and seen.bodies(name) == ["first"], seconds=90)
        process.stdin.write(b"second\nrest")
        process.stdin.close()
        process.stdin = None
        assert process.wait(90) == 0
    assert seen.bodies(name) == ["first", "second", "rest"]


def test_count_numbers_its_messages(queuey: Run) -> None:
    name = new_name()

    done(queuey("put", name, "{n}@{time}", "--count", "3", "-q"))
    bodies = [str(body) for body in done(queuey("get", name)).column("body")]

    assert [body.partition("@")[0] for body in bodies] == ["1", "2", "3"]
    assert all(body.endswith("Z") for body in bodies)


def test_a_put_repeated_under_its_id_stores_nothing_twice(queuey: Run) -> None:
    name = new_name()

    first = done(queuey("put", name, "--lines", "--id", "k", given=b"a\nb\nc\n"))
    second = done(queuey("put", name, "--lines", "--id", "k", given=b"a\nb\nc\n"))
    other = queuey("put", name, "other", "--id", "k")

    assert second.column("message_id") == first.column("message_id")
    assert second.column("repeated") == [True] * 3
    assert done(queuey("get", name)).column("body") == ["a", "b", "c"]
    assert (other.code, other.err.split(":")[0]) == (1, "KeyReused")


def test_the_options_of_put_reach_the_message(queuey: Run, seen: Server) -> None:
    name = seen.queue(partitions=5)

    header = ("-H", "content-type: application/json")
    there = done(queuey("put", name, "{}", "--partition", "4", "--ttl", "1h", *header)).rows[0]
    keyed = {done(queuey("put", name, "x", "--key", "k")).rows[0]["partition"] for _ in range(2)}
    done(queuey("put", name, "later", "--delay", "1h"))
    done(queuey("put", name, "on a day", "--at", "2027-01-01", QUEUEY_PUT_TTL="2w"))

    info = done(queuey("queue", "info", name)).rows[0]
    read = done(queuey("get", name, "--partitions", "4")).rows
    assert there["partition"] == 4
    assert len(keyed) == 1
    assert (info["depth"], info["scheduled"]) == (5, 2)
    assert {**there, "body": "{}", "content_type": "application/json"} in read


def test_headers_of_a_message_are_put_and_got(queuey: Run, seen: Server) -> None:
    name = seen.queue()

    done(queuey("put", name, "x", "-H", "Kind: order", "--header", "trace:00-1"))

    assert seen.read(name)[0]["headers"] == {"Kind": "order", "trace": "00-1"}
    (row,) = done(queuey("get", name)).rows
    assert row["headers"] == {"Kind": "order", "trace": "00-1"}
    refused = queuey("put", name, "x", "-H", "a b: c")
    assert (refused.code, "name of a header" in refused.err) == (2, True)


@pytest.mark.parametrize(("before", "told"), [(1, "1 message"), (500, "500 messages")])
def test_what_was_stored_before_an_error_is_told(queuey: Run, before: int, told: str) -> None:
    ended = queuey("put", new_name(), "--lines", given=b"small\n" * before + b"x" * (2 << 20) + b"\n")

    assert ended.code == 1
    assert f"stored {told} before this:\nMessageTooLarge: " in ended.err
    assert len(ended.rows) == before


@pytest.fixture
def filled(seen: Server) -> str:
    """A queue of three partitions whose messages 0 to 59 go round."""
    name = seen.queue(partitions=3)
    seen.add_batch(name, *({"body": str(number), "partition": number % 3 + 1} for number in range(60)))
    return name


def bodies(ended: Ended) -> list[int]:
    return [int(str(body)) for body in done(ended).column("body")]


def test_get_is_in_order_of_time_over_all_partitions(queuey: Run, filled: str) -> None:
    assert bodies(queuey("get", filled)) == list(range(60))
    assert bodies(queuey("get", filled, "--order", "descending")) == list(range(60))[::-1]
    assert bodies(queuey("get", filled, "--partitions", "3,1")) == [n for n in range(60) if n % 3 != 1]
    assert bodies(queuey("get", filled, "--exit-at-end")) == list(range(60))


def test_last_gives_the_newest_oldest_first(queuey: Run, filled: str) -> None:
    assert bodies(queuey("get", filled, "--last", "4")) == [56, 57, 58, 59]
    assert bodies(queuey("get", filled, "--last", "4", "--order", "descending")) == [59, 58, 57, 56]
    assert bodies(queuey("get", filled, "--last", "100")) == list(range(60))


def test_since_and_until_are_inclusive_in_both_orders(queuey: Run, filled: str) -> None:
    rows = done(queuey("get", filled)).rows
    span = ("--since", str(rows[10]["message_id"]), "--until", str(rows[20]["timestamp"]))

    assert bodies(queuey("get", filled, *span)) == list(range(10, 21))
    assert bodies(queuey("get", filled, *span, "--order", "descending")) == list(range(20, 9, -1))
    assert bodies(queuey("get", filled, *span, "--last", "2")) == [19, 20]
    assert bodies(queuey("get", filled, "--since", "1h")) == list(range(60))
    assert bodies(queuey("get", filled, "--until", "1h")) == []


def test_get_speaks_four_forms(queuey: Run, filled: str) -> None:
    as_json = json.loads(done(queuey("get", filled, "--last", "2", "-o", "json")).text)
    as_csv = list(csv.DictReader(io.StringIO(done(queuey("get", filled, "--last", "2", "-o", "csv")).text)))
    as_table = done(queuey("get", filled, "--last", "2", QUEUEY_OUTPUT="table")).text.splitlines()
    as_lines = done(queuey("get", filled, "--last", "2", "--format", r"{partition}\t{id}\t{body}")).text

    assert [row["body"] for row in as_json] == ["58", "59"]
    assert [(row["body"], row["message_id"]) for row in as_csv] == [(r["body"], r["message_id"]) for r in as_json]
    assert as_table[0].split() == ["TIME", "PARTITION", "MESSAGE", "ID", "BODY"]
    assert [line.split()[-1] for line in as_table[1:]] == ["58", "59"]
    assert as_lines.splitlines() == [f"{row['partition']}\t{row['message_id']}\t{row['body']}" for row in as_json]


def test_exec_gets_each_message_and_a_failure_stops_it(queuey: Run, filled: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    program = f"sh -c 'echo \"$MESSAGE_PARTITION $MESSAGE_QUEUE $(cat)\" >> {log}; test $(wc -l < {log}) -lt 3'"

    ended = queuey("get", filled, "--exec", program)

    assert (ended.code, ended.text) == (1, "")
    assert "sh ended with 1 at message" in ended.err
    assert log.read_text().splitlines() == [f"1 {filled} 0", f"2 {filled} 1", f"3 {filled} 2"]
    assert "cannot run /no/such" in queuey("get", filled, "--exec", "/no/such program").err


@contextmanager
def started(
    environment: dict[str, str], *arguments: str, stdin: int = subprocess.DEVNULL
) -> Iterator[subprocess.Popen[bytes]]:
    process = Program(
        command(*arguments),
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | environment,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()


@pytest.mark.parametrize(("options", "before"), [((), ["0", "1"]), (("--last", "1"), ["1"])])
def test_follow_goes_on_until_it_is_stopped(
    environment: dict[str, str], seen: Server, options: Sequence[str], before: list[str]
) -> None:
    name = seen.queue(partitions=2)
    seen.add_batch(name, {"body": "0"}, {"body": "1"})

    with started(environment, "get", name, "--follow", "--format", "{body}", *options) as process:
        assert process.stdout is not None
        there = [process.stdout.readline().decode().strip() for _ in before]
        seen.add(name, "2")
        came = process.stdout.readline().decode().strip()
        process.send_signal(signal.SIGINT)
        code = process.wait(90)

    assert (there, came, code) == (before, "2", 0)


def test_a_reader_who_is_not_the_owner_reads_all_the_same(environment: dict[str, str], seen: Server) -> None:
    name = seen.queue(partitions=3, type="public")
    seen.add_batch(name, *({"body": str(number)} for number in range(30)))

    got = run_in({**environment, "QUEUEY_KEY": ""}, None, "get", name)

    assert bodies(got) == list(range(30))


# Errors and their exit codes.


def test_errors_are_a_sentence_and_an_exit_code(queuey: Run, seen: Server) -> None:
    name = seen.queue()

    ended = {
        "missing": queuey("get", new_name()),
        "stranger": queuey("get", name, QUEUEY_KEY="0" * 32),
        "nobody": queuey("get", name, QUEUEY_KEY=""),
        "away": queuey("get", name, QUEUEY_URL="http://127.0.0.1:1"),
        "wrong": queuey("put", name, "x", "--ttl", "500d"),
        "fewer": queuey("queue", "edit", seen.queue(partitions=2), "--partitions", "1"),
    }

    assert {case: (end.code, end.err.split(":")[0]) for case, end in ended.items()} == {
        "missing": (3, "QueueNotFound"),
        "stranger": (4, "InvalidApplicationKey"),
        "nobody": (4, "Forbidden"),
        "away": (5, "ServerUnreachable"),
        "wrong": (2, "InvalidParameter"),
        "fewer": (1, "PartitionsCannotShrink"),
    }
    assert "set QUEUEY_KEY" in ended["nobody"].err
    assert all(end.out == b"" and end.err.count("\n") == 1 for end in ended.values())


# queue.


def test_fewer_partitions_than_there_are_are_not_taken_in_silence(queuey: Run, seen: Server) -> None:
    name = seen.queue(partitions=4)

    refused = queuey("queue", "add", name, "--partitions", "2", "--type", "public")

    assert (refused.code, refused.rows[0]["partitions"]) == (1, 4)
    assert f"queue {name} was there, and keeps its 4 partitions" in refused.err
    assert seen.settings(name)["type"] == "public"


def test_an_empty_name_is_no_random_one(queuey: Run) -> None:
    """It is a variable of a script that is not set."""
    refused = queuey("queue", "add", "")

    assert refused.code == 2
    assert "it is empty: leave it out for a random name" in refused.err


def test_an_empty_id_is_no_missing_one(queuey: Run, seen: Server) -> None:
    name = seen.queue()

    refused = queuey("put", name, "x", "--id", "")

    assert (refused.code, refused.err) == (2, "InvalidParameter: --id: must be 1 to 128 printable ASCII characters\n")
    assert seen.read(name) == []


def test_an_error_that_is_none_is_said_with_the_command_that_lists_them(queuey: Run) -> None:
    assert queuey("errors", "Nope").err == "Error: no error is called Nope: 'queuey errors' lists them\n"


def test_an_empty_principal_does_not_clear_the_list(queuey: Run, seen: Server) -> None:
    name = seen.queue(principles="bid:joe@example.org")

    refused = queuey("queue", "edit", name, "--principal", "")

    assert refused.code == 2
    assert "--no-principals" in refused.err
    assert seen.settings(name)["principles"] == "bid:joe@example.org"


def test_an_edit_with_the_tag_of_settings_changes_no_others(queuey: Run, seen: Server) -> None:
    name = seen.queue(partitions="2")
    (tag,) = done(queuey("queue", "info", name)).column("tag")
    done(queuey("queue", "edit", name, "--partitions", "3", "--if-match", str(tag)))

    refused = queuey("queue", "edit", name, "--partitions", "4", "--if-match", str(tag))

    assert (refused.code, refused.err.split(":")[0]) == (1, "SettingsChanged")
    assert seen.info(name)["partitions"] == 3


def test_a_queue_is_made_listed_changed_and_removed(queuey: Run, fresh_environment: dict[str, str]) -> None:
    def own(*arguments: str) -> Ended:
        return run_in(fresh_environment, None, *arguments)

    made = done(own("queue", "add", "alpha", "--partitions", "3", "--type", "public", "--principal", "app:a-b")).rows[0]
    done(own("queue", "add", "beta"))
    drawn = done(own("queue", "add")).rows[0]["queue_name"]
    done(own("put", "beta", "x"))
    exists = own("queue", "add", "alpha", "--new")
    changed = done(own("queue", "edit", "alpha", "--partitions", "4", "--no-principals")).rows[0]
    listed = done(own("queue", "ls", "--counts")).rows
    some = done(own("queue", "ls", "be")).column("queue_name")
    first = done(own("queue", "ls", "-n", "1")).rows
    removed = done(own("queue", "rm", "alpha", "--yes"))
    gone = own("queue", "rm", "alpha", "--yes")

    assert (made["partitions"], made["type"], made["principals"]) == (3, "public", ["app:a-b"])
    assert len(str(drawn)) == 32
    assert (exists.code, exists.err.split(":")[0]) == (1, "QueueExists")
    assert (changed["partitions"], changed["type"], changed["principals"]) == (4, "public", [])
    assert {row["queue_name"]: row["count"] for row in listed} == {"alpha": 0, "beta": 1, drawn: 0}
    assert (some, len(first)) == (["beta"], 1)
    assert (removed.out, removed.err) == (b"", "removed queue alpha\n")
    assert gone.code == 3


@pytest.fixture
def fresh_environment(shipped_server: RunningServer, next_fresh: Callable[[], str]) -> dict[str, str]:
    with Server(shipped_server, next_fresh()) as server:
        assert server.key is not None
        return {"QUEUEY_URL": server.url, "QUEUEY_APPLICATION": server.application, "QUEUEY_KEY": server.key}


def test_info_is_an_object_or_a_table_of_partitions(queuey: Run, filled: str) -> None:
    info = json.loads(done(queuey("queue", "info", filled, "-o", "json")).text)
    table = done(queuey("queue", "info", filled, "-o", "table")).text.splitlines()

    assert (info["depth"], [part["depth"] for part in info["partition_details"]]) == (60, [20, 20, 20])
    assert ["depth", "60"] in [line.split() for line in table]
    assert [line.split()[:3] for line in table[-3:]] == [["1", "20", "0"], ["2", "20", "0"], ["3", "20", "0"]]


def test_on_a_terminal_removal_is_asked_about_and_tables_are_printed(environment: dict[str, str], seen: Server) -> None:
    name = seen.queue()

    no, asked = run_on_terminal(environment, b"n\n", "queue", "rm", name)
    listed = run_on_terminal(environment, b"", "queue", "ls", name)[1]
    yes, _ = run_on_terminal(environment, b"y\n", "queue", "rm", name)

    assert (no, yes) == (1, 0)
    assert f"Remove queue {name} of queuey and all its messages?" in asked
    assert listed.split()[:2] == ["QUEUE", "NAME"]
    assert seen.get(name).status_code == 404
