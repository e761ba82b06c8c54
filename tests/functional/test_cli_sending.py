"""``queuey put`` of files and forms, and ``queuey import``, against the shipped server."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.client import Server, new_name
from tests.support.commands import Ended, done

Run = Callable[..., "Ended"]


def read(ended: Ended) -> list[dict[str, object]]:
    """Messages without what a new one gets anew."""
    return [{name: row[name] for name in row if name not in ("message_id", "timestamp")} for row in done(ended).rows]


# put.


def test_files_are_messages_or_lines_of_them(queuey: Run, seen: Server, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_bytes(b"a\nb\n")
    second.write_bytes(b"c\n\nd")
    whole, lines = seen.queue(), seen.queue()

    done(queuey("put", whole, "--file", str(first), "--file", str(second)))
    done(queuey("put", lines, "--lines", "--file", str(first), "--file", str(second)))

    assert seen.bodies(whole) == ["a\nb\n", "c\n\nd"]
    assert seen.bodies(lines) == ["a", "b", "c", "d"]
    assert queuey("put", whole, "--file", str(tmp_path / "none")).code == 2


def test_lines_with_keys_and_headers_go_out_and_in_again(queuey: Run, seen: Server) -> None:
    name, other, form = seen.queue(partitions=5), seen.queue(partitions=5), r"{key}\t{header:kind}\t{body}"

    done(queuey("put", name, "--lines", "--format", form, given=b"k\torder\tone\ttwo\nk\t\tthree\n"))
    written = done(queuey("get", name, "--format", form)).out
    done(queuey("put", other, "--lines", "--format", form, given=written))

    assert written == b"k\torder\tone\ttwo\nk\t\tthree\n"
    assert read(queuey("get", other)) == read(queuey("get", name))
    assert [row["key"] for row in read(queuey("get", name))] == ["k", "k"]


def test_a_line_of_another_form_is_named_and_what_came_before_is_told(queuey: Run, seen: Server) -> None:
    refused = queuey("put", seen.queue(), "--lines", "--format", "{key} {body}", given=b"k one\nnone\n")

    assert (refused.code, "line 2 of the input" in refused.err) == (2, True)


def test_nothing_to_store_is_told(queuey: Run, seen: Server) -> None:
    name = new_name()

    put = queuey("put", name, "--lines", given=b"\n\n")
    imported = queuey("import", name, given=b"\n")

    assert (put.code, imported.code) == (3, 3)
    assert "nothing was stored" in put.err
    assert "nothing was imported" in imported.err
    assert seen.get(name).status_code == 404


# import.


def test_what_get_wrote_comes_in_as_it_was(queuey: Run, seen: Server, tmp_path: Path) -> None:
    name, other, file = seen.queue(partitions=3), new_name(), tmp_path / "messages.jsonl"
    done(queuey("put", name, "keyed", "--key", "k", "-H", "kind:order", "-H", "content-type:text/plain"))
    done(queuey("put", name, given=bytes(range(256))))
    seen.add_batch(name, {"body": "third", "partition": 3})
    file.write_bytes(done(queuey("get", name)).out)

    imported = done(queuey("import", other, "--file", str(file)))

    assert imported.rows == [{"queue": other, "imported": 3, "repeated": 0}]
    assert f"made queue {other}, 3 partitions" in imported.err
    assert read(queuey("get", other)) == read(queuey("get", name))


def test_an_import_is_repeated_without_storing_twice_unless_told(queuey: Run, seen: Server) -> None:
    name, other = seen.queue(), seen.queue()
    done(queuey("put", name, "--lines", given=b"a\nb\n"))
    lines = done(queuey("get", name)).out

    done(queuey("import", other, given=lines))
    again = done(queuey("import", other, given=lines))
    once = seen.bodies(other)
    done(queuey("import", other, "--again", given=lines))

    assert (once, again.column("repeated")) == (["a", "b"], [2])
    assert seen.bodies(other) == ["a", "b", "a", "b"]


def test_lines_of_several_queues_go_to_their_own(queuey: Run, seen: Server) -> None:
    begin = new_name()
    names = [seen.queue(name=f"{begin}-{number}") for number in range(2)]
    for name in names:
        seen.add(name, f"of {name}")
    lines = done(queuey("get", f"{begin}-*")).out
    for name in names:
        seen.call("DELETE", name)

    done(queuey("import", given=lines))

    assert [seen.bodies(name) for name in names] == [[f"of {name}"] for name in names]
    assert "it has no member 'queue'" in queuey("import", given=b'{"body": "x"}\n').err


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("no", "it is no JSON"),
        ('{"body": ' + "[" * 10_000, "it is no JSON"),
        ("[]", "it is no JSON object"),
        ("{}", "it has no member 'body'"),
        ('{"body": 1}', "its body is 1, which cannot be one"),
        ('{"body": "x", "headers": {"n": 1}}', "its header n is 1, and neither a text nor"),
        ('{"body": "x", "headers": {"n": {"base64": "%"}}}', 'its header n is {"base64": "%"}, and neither'),
        ('{"body": "x", "ttl": true}', "its ttl is true"),
        ('{"body": "x", "bdoy": "y"}', "a message has no member 'bdoy'"),
        ('{"body": "?", "encoding": "base64"}', "its body is not base64"),
        ('{"body": "x", "headers": {"a b": "c"}}', "headers"),
        ('{"body": "x", "headers": {"a": 1}}', ""),
    ],
)
def test_a_line_that_is_no_message_is_named(queuey: Run, seen: Server, line: str, why: str) -> None:
    name = seen.queue()

    refused = queuey("import", name, given=b'\n{"body": "fine"}\n' + line.encode() + b"\n")

    assert refused.code == 2, refused.err
    assert "line 3 of the input: " in refused.err
    assert why in refused.err
    assert seen.bodies(name) == []


def test_partitions_that_are_missing_are_told_with_what_to_do(queuey: Run, seen: Server) -> None:
    name, line = seen.queue(), json.dumps({"body": "x", "partition": 3}).encode()

    refused = queuey("import", name, given=line)
    done(queuey("import", name, "--spread", given=line))

    assert (refused.code, f"'queuey queue edit {name} --partitions 3' adds it" in refused.err) == (2, True)
    assert seen.bodies(name) == ["x"]
