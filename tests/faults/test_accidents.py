"""G18: a store whose file is taken away, that two processes want, that is ended, that is copied while it runs."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import apsw
import pytest

from qdo.client import Client
from qdo.measure import loss
from queuey.errors import OutcomeUnknown, QueueNotFound, StorageUnavailable
from queuey.storage.sqlite.backup import backup
from tests.support import raw
from tests.support.effects import Effects, Place, everything, place_of
from tests.support.figures import Figures
from tests.support.node import PAUSE_SECONDS, Node, wait_for_more
from tests.support.servers import QUEUEY, eventually
from tests.support.slow_clients import head


def unlink(file: Path) -> None:
    file.unlink()


def replace(file: Path) -> None:
    copy = file.with_name("copy")
    shutil.copyfile(file, copy)
    copy.replace(file)


def move_folder(file: Path) -> None:
    file.parent.rename(file.parent.with_name("elsewhere"))


DEADLINE_SECONDS = 90
ACCIDENTS = {"unlinked": unlink, "replaced": replace, "folder moved": move_folder}


@pytest.mark.parametrize("accident", ACCIDENTS)
@pytest.mark.parametrize("suffix", ["", "-wal"])
def test_a_file_taken_away_is_noticed_within_a_second(
    tmp_path: Path, figures: Figures, accident: str, suffix: str
) -> None:
    """What was acknowledged before the server could notice is counted here, not hidden."""
    taken, last_taken, sent = 0, 0.0, 0.0
    with Node(tmp_path) as node:
        client = node.client()
        client.create_queue("q")
        client.append("q", b"before")
        ACCIDENTS[accident](node.database.with_name(node.database.name + suffix))
        began = time.monotonic()
        while sent < DEADLINE_SECONDS:
            sent = time.monotonic() - began
            try:
                client.append("q", b"after")
            except OutcomeUnknown:
                continue
            except StorageUnavailable:
                break
            taken, last_taken = taken + 1, sent
        with pytest.raises(StorageUnavailable):
            client.delete("q", client.read("q").messages[0])
        assert eventually(lambda: node.get("/__heartbeat__").status_code == 503)
        assert node.get("/__lbheartbeat__").status_code == 200

    name = f"queuey.db{suffix}_{accident}".replace(" ", "_")
    figures("G18", taken_away=name, unlink_noticed_s=sent, acked_meanwhile=taken)
    assert last_taken < 1, "it is looked for as a commit begins: what is sent later is refused, however long that takes"


def test_a_second_process_is_refused_and_the_first_goes_on(tmp_path: Path, figures: Figures) -> None:
    with Node(tmp_path) as node:
        client = node.client()
        client.create_queue("q")
        command = [*QUEUEY, "serve", "--port", "0", "--data", str(node.database.parent)]
        second = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        client.append("q", b"still here")
        assert [message.body for message in everything(client, "q")] == [b"still here"]

    figures("G18", second_process="refused" if second.returncode == 2 else second.returncode)
    assert second.returncode == 2
    assert "StoreInUse" in second.stderr
    assert "Traceback" not in second.stderr


def test_after_kill_9_the_next_process_is_not_refused(tmp_path: Path) -> None:
    with Node(tmp_path) as node:
        node.kill()
        node.start()
        node.client().create_queue("q")


def test_sigterm_finishes_the_requests_under_way(
    tmp_path: Path, rounds: Callable[[int], range], figures: Figures
) -> None:
    """An upload that has begun is finished and acknowledged, and a busy server cuts nobody off in the midst of an answer."""
    codes, late, effects = [], [], [Effects(), Effects()]
    with Node(tmp_path) as node:
        node.client().create_queue("q")
        for number in rounds(2):
            body = b"late %d" % number
            steps = [partial(append_one, one) for one in effects]
            with socket.create_connection(("127.0.0.1", node.running.port), timeout=90) as upload, node.busy(*steps):
                upload.sendall(head(b"POST", b"/q", b"Content-Length: %d" % len(body)) + body[:3])
                wait_for_more(lambda: sum(one.ok for one in effects), 50)
                node.terminate()
                eventually(lambda: not accepts_connections(node.running.port))
                upload.sendall(body[3:])
                late += raw.replies(raw.drain(upload))
                codes.append(node.ended())
            node.start()
        found = everything(node.client(), "q")

    stored = {place_of(message) for message in found}
    acknowledged = [place for one in effects for place in one.values]
    figures(
        "G18",
        sigterms=len(codes),
        exit_codes=",".join(map(str, sorted(set(codes)))),
        uploads_finished=sum(reply.status == 201 for reply in late),
        acked=len(acknowledged),
        lost=len(loss(acknowledged, stored)),
        cut_off=sum(one.unknown for one in effects),
    )
    assert set(codes) == {0}
    assert [reply.status for reply in late] == [201] * len(codes)
    assert loss(acknowledged, stored) == []
    assert sum(message.body.startswith(b"late") for message in found) == len(codes)


def append_one(effects: Effects, client: Client) -> None:
    if not effects.append([b"x"], lambda: [client.append("q", b"x")]):
        time.sleep(PAUSE_SECONDS)


def accepts_connections(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=60).close()
    except ConnectionError:
        return False
    return True


def copied_with_cp(source: Path, target: Path) -> None:
    """The planted fault: the file without its log."""
    shutil.copyfile(source, target)


@pytest.mark.parametrize("copy", [backup, copied_with_cp])
def test_a_backup_under_load_has_all_that_was_acknowledged_before_it(
    tmp_path: Path, rounds: Callable[[int], range], figures: Figures, copy: Callable[[Path, Path], None]
) -> None:
    effects, missing, opened = [Effects(), Effects()], 0, 0
    with Node(tmp_path) as node:
        node.client().create_queue("q", partitions=3)
        with node.busy(*(partial(append_some, one) for one in effects)):
            for number in rounds(3):
                wait_for_more(lambda: sum(one.ok for one in effects), 40)
                before = [place for one in effects for place in list(one.values)]
                folder = tmp_path / f"copy-{number}"
                (folder / "data").mkdir(parents=True)
                copy(node.database, folder / "data" / "queuey.db")
                missing += len(loss(before, restored(folder)))
                opened += 1

    figures("G18", copied_by=copy.__name__, backups=opened, backup_missing=missing)
    assert (missing == 0) == (copy is backup)


def append_some(effects: Effects, client: Client) -> None:
    bodies = [os.urandom(300) for _ in range(20)]
    effects.append(bodies, lambda: client.append_batch("q", bodies))


def is_whole(database: Path) -> bool:
    """Whether nothing is wrong in it; a copy that was torn in the middle may be too far gone to be asked."""
    look = apsw.Connection(str(database), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return look.execute("pragma integrity_check").fetchall() == [("ok",)]
    except apsw.Error:
        return False
    finally:
        look.close()


def restored(folder: Path) -> list[Place]:
    """What a server finds in a copy; nothing counts in one that is not whole in itself."""
    if not is_whole(folder / "data" / "queuey.db"):
        return []
    with Node(folder) as node:
        try:
            return [place_of(message) for message in everything(node.client(), "q")]
        except QueueNotFound:
            return []
