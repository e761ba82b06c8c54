"""G18: a disk that stops taking writes. Readiness says so, writes are refused before they are tried, and go on by themselves."""

from __future__ import annotations

import contextlib
from collections import Counter
from pathlib import Path

import pytest

from qdo.client import Appended, Client
from qdo.measure import loss
from queuey.errors import OutcomeUnknown, QueueyError, StorageFull, StorageReadOnly, StorageUnavailable
from tests.support.disk import small_disk
from tests.support.effects import everything, place_of
from tests.support.figures import Figures
from tests.support.node import CARRIED, Node
from tests.support.servers import eventually
from tests.support.strace import failing, slowed

SYNCS = "fsync,fdatasync"


def heartbeat(node: Node) -> int:
    return node.get("/__heartbeat__").status_code


def append_until(client: Client, refusal: type[QueueyError], told: Counter[str]) -> list[Appended]:
    """:returns: what was acknowledged before an append was refused in this way."""
    placed: list[Appended] = []

    def is_refused() -> bool:
        try:
            placed.append(client.append("q", b"%d" % len(placed)))
        except QueueyError as error:
            told[error.code] += 1
            return type(error) is refusal
        return False

    eventually(is_refused)
    return placed


@pytest.mark.parametrize("carried", ["thread", "loop"])
@pytest.mark.parametrize(
    ("calls", "error", "refusal", "unknown"),
    [(SYNCS, "EIO", StorageUnavailable, 3), ("pwrite64", "EROFS", StorageReadOnly, 1)],
    ids=["syncs fail", "read-only"],
)
def test_a_log_that_cannot_be_written_is_told_and_writing_goes_on_by_itself(
    tmp_path: Path, figures: Figures, calls: str, error: str, refusal: type[QueueyError], unknown: int, carried: str
) -> None:
    """A commit that failed has an unknown outcome. From then on none is tried, and refusals are what they say: nothing was stored."""
    told: Counter[str] = Counter()
    with Node(tmp_path, settings=CARRIED[carried]) as node:
        client = node.client()
        client.create_queue("q")
        placed = [client.append("q", b"before")]
        client.receive("q", "g", visibility=600)
        with failing(node.running.pid, node.database.with_name("queuey.db-wal"), calls, error):
            assert append_until(client, refusal, told) == []
            for _ in range(20):
                with pytest.raises(refusal):
                    client.append("q", b"refused")
            status = heartbeat(node)
            held = [part.leased for part in client.lease_group("q", "g").partitions]
            found = {message.body for message in everything(client, "q")}
        eventually(lambda: heartbeat(node) == 200)
        placed.append(client.append("q", b"after"))
        last = everything(node.client(), "q")

    lost = loss(map(place_of, placed), set(map(place_of, last)))
    figures("G18", failing=f"{calls}_{error}", unknown=told["OutcomeUnknown"], lost=len(lost), heartbeat=status)
    assert status == 503
    assert told["OutcomeUnknown"] <= unknown
    assert b"before" in found
    assert held == [1], "reads of lease groups go on, too"
    assert lost == []
    assert b"refused" not in {message.body for message in last}


def test_a_disk_that_becomes_slow_gets_its_commits_from_a_thread(tmp_path: Path) -> None:
    """The loop waits for one sync that takes half a second, and not for those that follow."""
    with Node(tmp_path) as node:
        client = node.client()
        client.create_queue("q")
        with slowed(node.running.pid, node.database.with_name("queuey.db-wal"), SYNCS, 0.5):
            placed = [client.append("q", b"slow") for _ in range(3)]
        placed.append(client.append("q", b"after"))
        switches = node.get("/metrics").text
        assert [message.id for message in everything(client, "q")] == [one.id for one in placed]
    assert 'queuey_commit_switches_total{to="thread"} 1.0' in switches
    assert 'queuey_commit_switches_total{to="loop"}' not in switches


def test_a_log_that_cannot_be_copied_into_the_file_is_told(tmp_path: Path) -> None:
    """It would grow until the disk is full."""
    with Node(tmp_path, settings="[storage]\nwal_mb = 4\n") as node:
        client = node.client()
        client.create_queue("q")

        def is_told() -> bool:
            client.append("q", b"x" * 500_000)
            answer = node.get("/__heartbeat__")
            return answer.status_code == 503 and "write-ahead log" in answer.text

        with failing(node.running.pid, node.database, SYNCS, "EIO"):
            eventually(is_told)
        eventually(lambda: heartbeat(node) == 200)


def test_without_a_reserve_a_full_disk_is_told(tmp_path: Path) -> None:
    with small_disk(tmp_path, 48) as disk, Node(tmp_path, settings="[storage]\nreserve_mb = 0\nwal_mb = 4\n") as node:
        client = node.client()
        client.create_queue("q")
        ballast = disk.fill()

        def is_full() -> bool:
            with contextlib.suppress(OutcomeUnknown):
                client.append("q", b"x" * 500_000)
            return False

        with pytest.raises(StorageFull):
            eventually(is_full)
        assert heartbeat(node) == 503

        ballast.unlink()
        client.append("q", b"more")
        assert heartbeat(node) == 200
