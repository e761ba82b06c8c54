"""``qdo offsets``, ``qdo check`` and ``qdo top``: commands that look at a group, and set it elsewhere."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from qdo.client import Client
from qdo.groups.assign import Partition
from qdo.groups.coordination import CommittedOffset
from qdo.groups.lag import Lag, lags
from queuey.ids import MessageId
from tests.support.client import Server
from tests.support.commands import command
from tests.support.loaded import Program
from tests.support.servers import RunningServer, eventually
from tests.support.work_processes import WAIT_SECONDS, WorkProcesses, fill, processes_in


@pytest.fixture
def processes(tmp_path: Path, shipped_server: RunningServer, next_fresh: Callable[[], str]) -> Iterator[WorkProcesses]:
    with Server(shipped_server, next_fresh()) as server, processes_in(tmp_path, server) as found:
        yield found


def test_lag_is_checked_by_messages_and_by_age(processes: WorkProcesses) -> None:
    queue, _ = fill(processes, 8)
    processes.work("note", queue)
    processes.server.fill(queue, "a", "b", partition=3)

    over = processes.run("check", "--max-lag", "1")

    assert (over.code, over.err) == (1, "1 of 4 partitions over\n")
    assert re.fullmatch(rf"{queue}:3: lag 2 messages, \d+\.\d s\n", over.text)
    assert processes.run("check", "--max-lag", "2").code == 0
    assert processes.run("check", "--max-lag-seconds", "3600").code == 0
    assert processes.run("check", "--max-lag-seconds", "0").code == 1
    assert processes.run("check", "--max-lag", "0", "--queue", "other-*").code == 3
    assert processes.run("check").code == 2


def test_offsets_are_set_only_with_yes_and_what_would_change_is_shown(processes: WorkProcesses) -> None:
    queue, _ = fill(processes, 8)
    processes.work("note", queue)

    shown = processes.run("offsets", "set", queue, "--to", "beginning", "--partition", "2")

    assert "1 offset would change; --yes sets them" in shown.err
    assert (shown.column("partition"), shown.column("lag_before"), shown.column("lag_after")) == ([2], [0], [2])
    assert processes.run("check", "--max-lag", "0").code == 0
    assert processes.run("offsets", "set", queue, "--to", "beginning", "--partition", "2", "--yes").code == 0
    assert processes.run("check", "--max-lag", "0").code == 1
    processes.work("note", queue)
    assert processes.notes[8:] == ["2 2-0", "2 2-1"]


def test_offsets_are_set_to_an_id_a_time_and_the_end(processes: WorkProcesses) -> None:
    queue = processes.server.queue(partitions=1)
    ids = processes.server.fill(queue, "a", "b", "c")

    def left(to: str) -> object:
        (found,) = processes.run("offsets", "set", queue, "--to", to, "--yes").column("lag_after")
        return found

    assert left(ids[0]) == 2
    assert left(MessageId.parse(ids[1]).timestamp) == 2
    assert left("1h") == 3
    assert left("end") == 0
    assert processes.run("offsets", "set", queue, "--to", "end", "--partition", "2").code == 2
    assert processes.run("offsets", "set", queue, "--to", "soon").code == 2
    assert processes.run("offsets", "set", "nowhere", "--to", "end").code == 3


def test_positions_of_qdo_0_1_are_imported_from_all_partitions(processes: WorkProcesses) -> None:
    queue = processes.server.queue(partitions=2)
    first, second = (processes.server.fill(queue, "a", "b", "c", partition=number) for number in (1, 2))
    processes.server.create("qdo_status", partitions=7)
    told = [
        (1, f"{queue}-1", first[0]),
        (1, f"{queue}-1", first[1]),
        (2, f"{queue}-2", second[0]),
        (3, "gone-1", first[0]),
    ]
    for partition, name, done in told:
        body = json.dumps({"partition": name, "processed": done, "last_worker": "w"})
        processes.server.fill("qdo_status", body, partition=partition)
    processes.server.fill("qdo_status", json.dumps({"partition": f"{queue}-2", "processed": ""}), partition=1)
    processes.server.fill(
        "qdo_status", "no position", json.dumps({"partition": f"{queue}-2", "processed": second[1]}), partition=7
    )

    shown = processes.run("offsets", "import")

    assert "gone:1 is gone" in shown.err
    assert shown.column("message_id") == [first[1], second[1]]
    assert processes.run("offsets", "show").code == 3
    assert processes.run("offsets", "import", "--yes").code == 0
    processes.work("note", queue)
    assert sorted(processes.notes) == ["1 c", "2 c"]
    assert processes.run("offsets", "import", "--from", "nowhere").code == 3


def test_many_messages_are_counted_only_so_far(processes: WorkProcesses) -> None:
    queue = processes.server.queue(partitions=1)
    ids = processes.server.fill(queue, *map(str, range(2100)))
    with Client(processes.server.url, processes.server.application, processes.server.key) as client:
        uuid = client.queue_info(queue).uuid
        partition = Partition(queue, 1)

        def lag(at: str | None, most: int) -> Lag:
            offsets = {partition: CommittedOffset(uuid, MessageId.parse(at))} if at else {}
            return lags(client, [partition], offsets, most=most)[partition]

        assert lag(None, 10)[::2] == (2100, True)
        assert lag(ids[0], 10)[::2] == (1000, False)
        assert lag(ids[0], 10_000)[::2] == (2099, True)
        assert lag(ids[-2], 10)[::2] == (1, True)
        assert lag(ids[-1], 10) == Lag(0, 0.0, exact=True)
        assert lags(client, [Partition("nowhere", 1)], {}) == {}


def on_a_terminal(processes: WorkProcesses, *arguments: str) -> tuple[subprocess.Popen[bytes], int]:
    """A command with a terminal, and that terminal's other end."""
    ours, theirs = pty.openpty()
    environment = os.environ | processes.environment | {"TERM": "xterm"}
    called = command(*arguments, module="qdo.cli")
    process = Program(called, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, cwd=processes.folder)
    os.close(theirs)
    return process, ours


@contextmanager
def live_view(processes: WorkProcesses, *options: str) -> Iterator[int]:
    """``qdo top`` on a terminal, whose other end this is; after the block ``q`` ends it."""
    process, ours = on_a_terminal(processes, "top", "--interval", "0.2", *options)
    try:
        yield ours
        os.write(ours, b"q")
        assert process.wait(WAIT_SECONDS) == 0
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def until_shown(ours: int, text: str) -> str:
    """What a terminal shows until this is on it."""
    found = b""

    def look() -> bool:
        nonlocal found
        if select.select([ours], [], [], 0.1)[0]:
            found += os.read(ours, 65536)
        return text.encode() in found

    eventually(look, seconds=WAIT_SECONDS)
    return found.decode(errors="replace")  # the last character may have come in part


def test_the_live_view_goes_on_until_q_is_typed(processes: WorkProcesses) -> None:
    queue, _ = fill(processes, 8)
    processes.work("note", queue)
    with live_view(processes) as ours:
        until_shown(ours, f"default of {processes.server.application}")
        processes.server.fill(queue, "new", partition=2)
        until_shown(ours, "lag 1 messages")


def test_the_live_view_shows_what_a_lease_group_holds(processes: WorkProcesses) -> None:
    server, (queue, _) = processes.server, fill(processes, 8)
    with Client(server.url, server.application, server.key) as client:
        client.receive(queue, "default", 5, visibility=600)
        with live_view(processes, "--lease") as ours:
            until_shown(ours, "1 queue; 5 messages held, 5 of them leased")
            client.receive(queue, "default", 1, visibility=600)
            until_shown(ours, "6 messages held")


def test_a_backlog_has_a_bar_on_a_terminal(processes: WorkProcesses) -> None:
    queue, _ = fill(processes, 8, partitions=2)
    process, ours = on_a_terminal(processes, "work", "jobs:wait", "-q", queue, "--exit-at-end")
    try:
        processes.until_noted("begun 1-0", "begun 2-0")
        until_shown(ours, "done here")
        (processes.folder / "go").touch()

        until_shown(ours, "8 done, 0 attempts failed")

        assert process.wait(WAIT_SECONDS) == 0
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def test_an_unknown_group_is_not_found(processes: WorkProcesses) -> None:
    for words in (("status",), ("check", "--max-lag", "1"), ("offsets", "show")):
        ended = processes.run(*words, "--group", "nobody")

        assert ended.code == 3
        assert "group nobody has no" in ended.err
