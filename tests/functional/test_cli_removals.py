"""What commands say that remove something: a sentence for people, and with -o a row for programs."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.client import Server, new_name
from tests.support.commands import Ended, done, run_in


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
