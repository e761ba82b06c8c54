"""What commands say that remove something: a sentence for people, and with -o a row for programs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.client import Server, new_name
from tests.support.commands import Ended, done, run_in, run_on_terminal


def row(ended: Ended) -> dict[str, object]:
    found: dict[str, object] = json.loads(done(ended).text)
    return found


def test_what_is_removed_is_said_and_told_to_programs(
    environment: dict[str, str], seen: Server, tmp_path: Path
) -> None:
    queue = seen.queue(name=new_name())
    contexts = {**environment, "QUEUEY_CONTEXTS": str(tmp_path / "contexts.json")}

    def queuey(*arguments: str) -> Ended:
        return run_in(contexts, tmp_path, *arguments)

    (stored,) = done(queuey("put", queue, "x")).column("message_id")
    done(queuey("get", queue, "-g", "readers"))
    done(queuey("receive", queue, "-g", "workers"))
    name = f"s{queue}"
    done(queuey("schedule", "add", name, "x", "--cron", "0 6 * * *", "--queue", queue))

    assert row(queuey("group", "rm", queue, "readers", "--yes", "-o", "json")) == {
        "queue": queue,
        "group": "readers",
        "kind": "offsets",
    }
    assert row(queuey("lease", "rm", queue, "workers", "--yes", "-o", "jsonl"))["kind"] == "leases"
    assert row(queuey("rm", queue, str(stored), "--yes", "-o", "json")) == {"queue": queue, "removed": 1}
    scheduled = done(queuey("schedule", "rm", name, "--yes"))
    assert (scheduled.text, scheduled.err) == ("", f"removed schedule {name}\n")
    assert row(queuey("queue", "rm", queue, "--yes", "-o", "json"))["queue_name"] == queue
    assert row(queuey("context", "add", "work", "-o", "json"))["current"] is True
    assert row(queuey("context", "use", "work", "-o", "json"))["credential"] == "key"
    assert row(queuey("context", "rm", "work", "--yes", "-o", "json")) == {"context": "work"}


@pytest.mark.parametrize(
    "arguments",
    [
        ("queue", "rm", "none"),
        ("purge", "none"),
        ("redrive", "none", "default"),
        ("lease", "rm", "none", "default"),
        ("lease", "reset", "none", "default", "--to", "end"),
        ("group", "rm", "none", "readers"),
        ("group", "reset", "none", "readers", "--to", "end"),
        ("rm", "none", "1f9f6640e56711f189bf02fc00000001"),
        ("schedule", "rm", "none"),
        ("context", "rm", "none"),
    ],
    ids=" ".join,
)
def test_nobody_is_asked_about_what_is_not_there(
    environment: dict[str, str], seen: Server, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    here = {**environment, "NO_COLOR": "1", "QUEUEY_CONTEXTS": str(tmp_path / "contexts.json")}

    code, said = run_on_terminal(here, b"", *arguments)

    assert (code, "[y/N]" in said) == (2 if arguments[0] == "context" else 3, False), said
    assert "NotFound: " in said or "there is no context none" in said


def test_nobody_is_asked_about_a_key_that_is_not_there(tmp_path: Path) -> None:
    data = tmp_path / "data"
    environment = {"QUEUEY_DATA": str(data)}
    done(run_in(environment, tmp_path, "key", "new", "shop"))

    code, said = run_on_terminal(environment, b"", "key", "rm", "shop", "000000")

    assert (code, "[y/N]" in said) == (3, False)
    assert "shop has no key with the label 000000: 'queuey key ls' lists the labels" in said


def test_with_yes_a_removal_needs_no_look_before_it(environment: dict[str, str], seen: Server) -> None:
    ended = run_in(environment, None, "purge", "none", "--yes")

    assert (ended.code, ended.err.split(":")[0]) == (3, "QueueNotFound")
