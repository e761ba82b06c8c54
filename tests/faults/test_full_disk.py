"""G18: a full disk refuses what grows, loses nothing, and lets deletions make room; a read-only one still reads."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from qdo.client import Appended, Client, Settle
from qdo.measure import loss
from queuey.errors import StorageFull, StorageReadOnly
from tests.support.commands import run_in
from tests.support.disk import small_disk
from tests.support.effects import everything, place_of
from tests.support.figures import Figures
from tests.support.node import Node
from tests.support.servers import eventually

SETTINGS = "[storage]\nreserve_mb = 8\nwal_mb = 4\n"
BODY = b"x" * (64 << 10)


def append_some(client: Client, at_most: int = 10_000) -> list[Appended]:
    """:returns: what was acknowledged before the first refusal of a full disk."""
    placed: list[Appended] = []
    with contextlib.suppress(StorageFull):
        while len(placed) < at_most:
            placed.append(client.append("q", b"%d " % len(placed) + BODY))
    return placed


def heartbeat(node: Node) -> int:
    return node.get("/__heartbeat__").status_code


def stored(node: Node) -> set[object]:
    return {place_of(message) for message in everything(node.client(), "q")}


def test_a_full_disk_loses_nothing_and_deletions_make_room(tmp_path: Path, figures: Figures) -> None:
    with small_disk(tmp_path, 48) as disk, Node(tmp_path, settings=SETTINGS) as node:
        client = node.client()
        client.create_queue("q")
        placed = append_some(client)
        while heartbeat(node) != 503:  # the write-ahead log has given its room back since
            placed += append_some(client)
        free = disk.free_bytes
        assert node.get("/__lbheartbeat__").status_code == 200
        lost = loss(map(place_of, placed), stored(node))

        client.delete("q", placed[::2])
        kept = placed[1::2]
        assert stored(node) == {*map(place_of, kept)}
        more = eventually(lambda: append_some(client))
        lost += loss(map(place_of, [*kept, *more]), stored(node))
        node.kill()
        node.start()
        lost += loss(map(place_of, [*kept, *more]), stored(node))

    figures(
        "G18", full_acked=len(placed), acked_after_deletions=len(more), full_lost=len(lost), reserve_left_mib=free >> 20
    )
    assert lost == []
    assert more


def test_a_disk_filled_to_the_last_byte_by_somebody_else_loses_nothing(tmp_path: Path, figures: Figures) -> None:
    with small_disk(tmp_path, 48) as disk, Node(tmp_path, settings=SETTINGS) as node:
        client = node.client()
        client.create_queue("q")
        placed = [client.append("q", BODY) for _ in range(50)]
        ballast = disk.fill()
        placed += append_some(client)
        lost = loss(map(place_of, placed), stored(node))
        node.kill()
        node.start()
        lost += loss(map(place_of, placed), stored(node))
        with pytest.raises(StorageFull):
            node.client().append("q", BODY)

        ballast.unlink()
        client = node.client()
        placed += eventually(lambda: append_some(client, 1))
        client.delete("q", placed[:10])
        lost += loss(map(place_of, placed[10:]), stored(node))
        assert heartbeat(node) == 200

    figures("G18", no_byte_free_acked=len(placed), no_byte_free_lost=len(lost))
    assert lost == []


@pytest.mark.parametrize("ended", ["by SIGTERM", "by kill -9"])
def test_a_read_only_disk_reads_and_refuses_to_write(tmp_path: Path, figures: Figures, ended: str) -> None:
    """Whether its log was put away, or is full of what it was told last."""
    with small_disk(tmp_path, 48) as disk:
        with Node(tmp_path, settings=SETTINGS) as node:
            client = node.client()
            client.create_queue("q", partitions=2)
            placed = client.append_batch("q", [b"%d" % number for number in range(500)])
            leased = [one.id for one in client.receive("q", "g", 50, visibility=600)]
            if ended == "by kill -9":
                node.kill()
        disk.remount("ro")
        with Node(tmp_path, settings=SETTINGS) as node:
            client = node.client()
            found = stored(node)
            for write in (
                lambda: client.append("q", b"more"),
                lambda: client.delete("q", placed[0]),
                lambda: client.put("q", placed[0], b"other"),
                lambda: client.create_queue("other"),
                lambda: client.update_queue("q", partitions=3),
                lambda: client.delete_queue("q"),
                lambda: client.receive("q", "g"),
            ):
                with pytest.raises(StorageReadOnly):
                    write()
            again = stored(node)
            held = [one.id for one in client.leases("q", "g")]
            counted = [one.leased for one in client.lease_group("q", "g", backlog=True).partitions]
            status = heartbeat(node)
        disk.remount("rw")
        with Node(tmp_path, settings=SETTINGS) as node:
            healed = node.client().append("q", b"more")
            last = stored(node)

    figures("G18", after=ended.replace(" ", "_"), readable=len(found), of=len(placed), heartbeat=status)
    assert found == again == {*map(place_of, placed)}
    assert {*held} == {*leased}
    assert sum(counted) == len(leased)
    assert status == 503
    assert last == found | {place_of(healed)}


def test_a_disk_without_inodes_is_told_at_the_start_and_holds_up_no_server_that_runs(tmp_path: Path) -> None:
    with small_disk(tmp_path, 48, files=6) as disk:
        with Node(tmp_path, settings=SETTINGS) as node:
            for number in range(6):
                with contextlib.suppress(OSError):
                    (disk.path / str(number)).touch()
            node.client().create_queue("q")
            placed = [node.client().append("q", b"%d" % number) for number in range(10)]
            assert stored(node) == {*map(place_of, placed)}
        for number in range(6):
            with contextlib.suppress(OSError):
                (disk.path / str(number)).touch()

        ended = run_in({}, tmp_path, "serve", "--port", "0", "--data", str(disk.path))

    assert ended.code == 2
    assert "look with 'df' and 'df -i'" in ended.err


def test_a_purge_makes_room_on_a_full_disk(tmp_path: Path) -> None:
    """It begins where nothing may be appended, and leaves a store that takes messages again."""
    with small_disk(tmp_path, 48), Node(tmp_path, settings=SETTINGS) as node:
        client = node.client()
        client.create_queue("q")
        while heartbeat(node) != 503:
            append_some(client)
        client.purge("q")
        *_, ended = client.watch_task("q", "purge")
        assert (ended.state, stored(node)) == ("done", set())
        assert eventually(lambda: append_some(client, 1))


def test_what_makes_room_goes_on_where_others_left_no_byte(tmp_path: Path) -> None:
    """The log keeps some room on the disk: each time that it is copied, it begins anew in its own place."""
    with small_disk(tmp_path, 48) as disk, Node(tmp_path, settings=SETTINGS) as node:
        client = node.client()
        client.create_queue("q")
        placed = client.append_batch("q", [b"%d" % number for number in range(1000)])
        leased = client.receive("q", "g", 100, visibility=600)
        noted = node.database.with_name("queuey.db.lock")
        disk.fill(leave=7 << 20)
        for turn in range(12):
            mark = noted.read_bytes()
            client.settle("q", "g", Settle(acknowledge=[leased.pop()]))
            client.delete("q", placed.pop())
            client.receive("q", "g", 1)
            eventually(lambda mark=mark: noted.read_bytes() != mark)  # type: ignore[misc]
            if turn > 4:
                disk.fill()
        client.purge("q")
        *_, ended = client.watch_task("q", "purge")
        with pytest.raises(StorageFull):
            client.append("q", BODY)
    assert ended.state == "done"
