"""``queuey get`` over several queues and over several runs, ``show``, ``rm`` and ``group``, against the shipped server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.client import Server, new_name
from tests.support.commands import Ended, command, done
from tests.support.loaded import Program
from tests.support.servers import eventually

Run = Callable[..., "Ended"]


def bodies(ended: Ended) -> list[str]:
    return [str(body) for body in done(ended).column("body")]


@pytest.fixture
def three(seen: Server) -> list[str]:
    """Three queues whose names begin alike, with messages 0 to 29 in turn, over two partitions each."""
    begin = new_name()
    names = [f"{begin}-{number}" for number in range(3)]
    for name in names:
        seen.queue(name=name, partitions=2)
    for number in range(30):
        seen.add_batch(names[number % 3], {"body": str(number), "partition": number // 3 % 2 + 1})
    return names


# Several queues.


def test_several_queues_and_patterns_are_read_in_order_of_time(queuey: Run, three: list[str]) -> None:
    begin = three[0][:-1]

    every = done(queuey("get", f"{begin}*"))
    some = done(queuey("get", three[2], f"{begin}[12]", three[2]))

    assert bodies(every) == [str(number) for number in range(30)]
    assert every.column("queue") == three * 10
    assert bodies(some) == [str(number) for number in range(30) if number % 3]
    assert bodies(queuey("get", f"{begin}*", "--last", "2", "--order", "descending")) == ["29", "28"]
    assert done(queuey("get", f"{begin}*", "--first", "1", "--format", "{queue} {body}")).text == f"{three[0]} 0\n"
    assert done(queuey("get", *three, "-o", "table")).text.split()[:2] == ["QUEUE", "TIME"]


def test_a_pattern_that_fits_nothing_and_a_partition_that_is_none_are_told(queuey: Run, three: list[str]) -> None:
    nothing = queuey("get", f"{new_name()}*")
    missing = queuey("get", three[0], new_name())
    beyond = queuey("get", *three, "--partitions", "1,9")

    assert (nothing.code, "fits" in nothing.err) == (3, True)
    assert (missing.code, "'queuey queue add" in missing.err) == (3, True)
    assert (beyond.code, f"--partitions: queue {three[0]} has 2 partitions: there is no 9" in beyond.err) == (2, True)
    assert nothing.out == missing.out == beyond.out == b""


def test_several_queues_are_followed(environment: dict[str, str], seen: Server, three: list[str]) -> None:
    arguments = ("get", f"{three[0][:-1]}*", "--follow", "--last", "1", "--format", "{queue} {body}")
    with Program(
        command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ | environment
    ) as process:
        assert process.stdout is not None
        first = process.stdout.readline().decode()
        seen.add(three[1], "new")
        second = process.stdout.readline().decode()
        process.send_signal(signal.SIGINT)
        process.communicate()

    assert (first, second, process.returncode) == (f"{three[2]} 29\n", f"{three[1]} new\n", 0)


# Several runs.


def test_a_cursor_goes_on_behind_the_last_line(queuey: Run, seen: Server, three: list[str], tmp_path: Path) -> None:
    file = ("--cursor", str(tmp_path / "place"))

    runs = [bodies(queuey("get", *three, *file, "--first", "7")) for _ in range(3)]
    seen.add(three[0], "new")
    rest = bodies(queuey("get", *three, *file))
    seen.add(three[2], "newer")
    last = bodies(queuey("get", three[2], *file))

    assert [body for run in runs for body in run] + rest == [*map(str, range(30)), "new"]
    assert last == ["newer"]
    assert bodies(queuey("get", *three, *file)) == []


def test_where_a_cursor_begins_is_kept_from_the_first_run_on(queuey: Run, seen: Server, tmp_path: Path) -> None:
    name, file = seen.queue(partitions=3), ("--cursor", str(tmp_path / "place"))
    seen.add(name, "before")

    assert bodies(queuey("get", name, *file, "--since", "now")) == []
    seen.add(name, "after")
    assert bodies(queuey("get", name, *file, "--since", "now")) == ["after"]


def test_a_queue_made_anew_does_not_go_on_at_an_old_cursor(queuey: Run, seen: Server, tmp_path: Path) -> None:
    name, file = seen.queue(), tmp_path / "place"
    seen.add(name, "old")
    done(queuey("get", name, "--cursor", str(file)))
    seen.call("DELETE", name)
    seen.queue(name=name)
    seen.add(name, "new")
    kept = file.read_bytes()

    refused = queuey("get", name, "--cursor", str(file))

    assert (refused.code, refused.out, file.read_bytes()) == (1, b"", kept)
    assert "remove the file" in refused.err
    file.unlink()
    assert bodies(queuey("get", name, "--cursor", str(file))) == ["new"]


@pytest.mark.parametrize("text", ["", "[]", '{"queues": {"a": 1}}', '{"queues": {"a": {"places": {"1": "x"}}}}'])
def test_a_file_of_something_else_is_not_taken_for_a_cursor(
    queuey: Run, seen: Server, tmp_path: Path, text: str
) -> None:
    file = tmp_path / "notes.txt"
    file.write_text(text)

    refused = queuey("get", seen.queue(), "--cursor", str(file))

    assert (refused.code, "is no file of --cursor" in refused.err, file.read_text()) == (2, True, text)


def test_a_cursor_that_cannot_be_kept_is_named_as_it_was_typed(queuey: Run, seen: Server, tmp_path: Path) -> None:
    place = tmp_path / "nowhere/orders.place"

    refused = queuey("get", seen.queue(), "--cursor", str(place))

    assert (refused.code, refused.err) == (
        1,
        f"Error: cannot keep the place in {place}: No such file or directory\n",
    )


def test_what_a_program_did_not_do_comes_again(queuey: Run, three: list[str], tmp_path: Path) -> None:
    file, fails = ("--cursor", str(tmp_path / "place")), "sh -c 'test $(cat) != 4'"

    ended = queuey("get", *three, *file, "--exec", fails)

    assert (ended.code, "sh ended with 1" in ended.err) == (1, True)
    assert bodies(queuey("get", *three, *file)) == [str(number) for number in range(4, 30)]


def test_a_group_goes_on_wherever_it_is_read_and_is_shown_set_and_forgotten(
    queuey: Run, seen: Server, three: list[str]
) -> None:
    name = three[0]
    first = bodies(queuey("get", name, "--group", "printers", "--first", "4"))
    shown = done(queuey("group", "show", name, "printers")).rows
    second = bodies(queuey("get", *three, "-g", "printers"))
    listed = done(queuey("group", "ls", name)).rows
    preview = done(queuey("group", "reset", name, "printers", "--to", "beginning", "--dry-run"))
    done(queuey("group", "reset", name, "printers", "--to", "beginning", "--yes"))
    again = bodies(queuey("get", name, "-g", "printers", "--first", "1"))
    done(queuey("group", "rm", name, "printers", "--yes"))
    gone = queuey("group", "show", name, "printers")

    assert first == ["0", "3", "6", "9"]
    assert [row["partition"] for row in shown if row["message_id"]] == [1, 2]
    assert sorted(map(int, first + second)) == list(range(30))
    assert listed == [{"group": "printers", "kind": "offsets"}]
    assert [row["message_id"] for row in preview.rows] == [None, None]
    assert again == ["0"]
    assert (gone.code, "'queuey group ls" in gone.err) == (3, True)


def test_a_new_group_may_begin_later_and_keeps_to_it(queuey: Run, seen: Server) -> None:
    name = seen.queue(partitions=2)
    seen.add_batch(name, {"body": "old", "partition": 1}, {"body": "old", "partition": 2})

    assert bodies(queuey("get", name, "-g", "g", "--since", "now")) == []
    seen.add(name, "new")
    assert bodies(queuey("get", name, "-g", "g", "--since", "now")) == ["new"]


def test_a_second_reader_of_a_group_ends_the_first(queuey: Run, environment: dict[str, str], seen: Server) -> None:
    name = seen.queue()
    seen.add(name, "first")
    with Program(
        command("get", name, "-g", "g", "--follow", "--format", "{body}"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | environment,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"first\n"
        # Its commit follows the line.
        assert eventually(lambda: any(row["message_id"] for row in done(queuey("group", "show", name, "g")).rows))
        assert bodies(queuey("get", name, "-g", "g")) == []
        seen.add(name, "second")
        _, said = process.communicate(timeout=90)

    assert process.returncode == 1
    assert b"another reader of group g has begun" in said
    assert bodies(queuey("get", name, "-g", "g")) == ["second"]


# Single messages.


def test_messages_are_shown_and_removed_by_id(queuey: Run, seen: Server) -> None:
    name = seen.queue(partitions=3)
    rows = done(queuey("put", name, "--lines", "-H", "kind:order", given=b"a\nb\nc\n")).rows
    first, second, third = (str(row["message_id"]) for row in rows)

    one = json.loads(done(queuey("show", name, first, "-o", "json")).text)
    two = done(queuey("show", name, f"{rows[1]['partition']}:{second}", third))
    raw = done(queuey("show", name, "-", "--raw", given=json.dumps(rows[2]).encode()))
    removed = done(queuey("rm", name, first, third, "--yes"))
    again = queuey("rm", name, first, second, "--yes")

    assert one == {**rows[0], "body": "a", "headers": {"kind": "order"}}
    assert two.column("body") == ["b", "c"]
    assert raw.out == b"c"
    assert removed.err == "removed 2 messages\n"
    assert (again.code, f"no message {first}" in again.err) == (3, True)
    assert bodies(queuey("get", name)) == []
    assert queuey("show", name, first).code == 3
