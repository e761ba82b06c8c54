"""G1: what was acknowledged is still there after kill -9, and it was on disk before it was acknowledged."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import apsw
import pytest

from qdo.client import Client
from queuey.errors import BrokenStream, OutcomeUnknown, StorageUnavailable
from tests.support.effects import everything
from tests.support.figures import Figures
from tests.support.node import CARRIED, Node, wait_for_more
from tests.support.servers import QUEUEY, eventually
from tests.support.strace import answered_early, traced
from tests.support.writers import Batches, Singles


def read_in_bulk(client: Client) -> None:
    """Reads everything as a stream, after which the store packs what lies loose."""
    with suppress(BrokenStream, StorageUnavailable, OutcomeUnknown):
        for _ in client.stream_ndjson("q"):
            pass


def put_together(database: Path) -> tuple[int, int]:
    """How many messages lie in packs, and how many have copies in cached runs."""
    look = apsw.Connection(str(database), flags=apsw.SQLITE_OPEN_READONLY)
    asked = "select (select total(messages) from packs), (select total(messages) from cached_runs)"
    rows: Any = look.execute(asked).fetchall()
    look.close()
    return int(rows[0][0]), int(rows[0][1])


def test_kill_9_in_the_middle_of_writing_loses_nothing_acknowledged(
    tmp_path: Path, rounds: Callable[[int], range], chance: random.Random, figures: Figures
) -> None:
    singles, batches, reopened = Singles(chance), Batches(chance), []
    both = singles.effects, batches.effects
    with Node(tmp_path, settings=CARRIED[chance.choice([*CARRIED])]) as node:
        node.client().create_queue("q", partitions=3)
        for _ in rounds(8):
            with node.busy(singles.step, batches.step, read_in_bulk):
                wait_for_more(lambda: sum(effects.ok for effects in both), chance.randint(2, 120))
                node.kill()
            reopened.append(node.start())

        stored = everything(node.client(), "q")
        streams = [{message.id: message.body for message in node.client().stream_ndjson("q")} for _ in range(3)]
        in_packs, in_cached_runs = put_together(node.database)
        queues = [queue.name for queue in node.client().queues()]

    verdicts = [
        effects.judge([message for message in stored if (b"batch" in message.body) == (effects is batches.effects)])
        for effects in both
    ]
    lost = [missing for verdict in verdicts for missing in verdict.lost]
    figures(
        "G1",
        rounds=len(reopened),
        acked=sum(len(effects.certain) for effects in both),
        stored=len(stored),
        in_packs=in_packs,
        in_cached_runs=in_cached_runs,
        lost=len(lost),
        unknown=sum(effects.unknown for effects in both),
        unacked_but_stored=sum(len(verdict.unacknowledged) for verdict in verdicts),
        reopen_max_s=max(reopened),
    )
    assert all(effects.ok for effects in both)
    assert sum(effects.unknown for effects in both)
    assert in_packs
    assert streams == [{message.id: message.body for message in stored}] * 3
    assert lost == []
    assert [verdict.wrong + verdict.from_nowhere for verdict in verdicts] == [[], []]
    assert set(singles.made) <= set(queues)


MARKERS = [f"marker-{number:04d}" for number in range(20)]


def trace_of(folder: Path, settings: str) -> list[str]:
    """What strace saw while the markers were appended, one after the other."""
    program = traced(folder / "trace.txt", QUEUEY)
    with Node(folder, settings=settings, program=program) as node:
        client = node.client()
        client.create_queue("q")
        for marker in MARKERS:
            client.append("q", marker)
        node.kill()
    # The tracer writes its last line when the server is gone.
    eventually(lambda: "+++ killed by SIGKILL +++" in (folder / "trace.txt").read_text())
    lines = (folder / "trace.txt").read_text().splitlines()
    created = next(at for at, line in enumerate(lines) if "HTTP/1.1 201" in line)
    return lines[created + 1 :]


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is missing: apt-get install strace")
@pytest.mark.parametrize("carried", ["thread", "loop"])
def test_every_201_is_sent_after_the_log_was_synced(tmp_path: Path, figures: Figures, carried: str) -> None:
    early = answered_early(trace_of(tmp_path, CARRIED[carried]), MARKERS)

    figures("G1", appends_traced=len(MARKERS), answered_before_sync=len(early))
    assert early == []


def test_the_trace_of_a_server_that_does_not_sync_is_noticed(tmp_path: Path) -> None:
    """The planted fault: ``synchronous = normal`` promises less."""
    trace = trace_of(tmp_path, CARRIED["loop"] + "synchronous = normal\n")

    assert answered_early(trace, MARKERS) == MARKERS
