"""The drill of docs/operations.md: a backup beside writers, the loss of the store, and back."""

from __future__ import annotations

import shutil
from pathlib import Path

from qdo.client import Client
from tests.support import servers
from tests.support.client import new_name
from tests.support.commands import done, run_in
from tests.support.servers import APPLICATIONS

KEY = APPLICATIONS["queuey"][0]


def test_a_lost_store_comes_back_from_its_backup(tmp_path: Path) -> None:
    data, objects = tmp_path / "data", tmp_path / "objects"
    environment = {"QUEUEY_CONFIG": str(tmp_path / "queuey.ini"), "QUEUEY_DATA": str(data)}
    with servers.shipped(tmp_path, name="lost") as running, Client(running.url, "queuey", KEY) as client:
        queue = client.create_queue(new_name(), partitions=2).name
        client.append_batch(queue, [b"kept %d" % number for number in range(300)])
        leased = client.receive(queue, "workers", max_messages=10)
        done(run_in(environment, None, "backup", f"file://{objects}/"))
        client.append(queue, b"after the backup")
    (copy,) = objects.iterdir()

    # Somewhere else first: a drill that touches nothing.
    trial = {"QUEUEY_DATA": str(tmp_path / "trial")}
    done(run_in(trial, None, "restore", f"file://{copy}"))
    done(run_in(trial, None, "verify"))

    shutil.rmtree(data)
    done(run_in(environment, None, "restore", f"file://{copy}"))
    done(run_in(environment, None, "verify"))

    with servers.shipped(tmp_path, name="back") as running, Client(running.url, "queuey", KEY) as client:
        read = sorted(message.body for message in client.read(queue, limit=1000).messages)
        held = client.lease_group(queue, "workers").partitions
        (tmp_path / "queuey.ini").chmod(0o600)
        assert done(run_in(environment, None, "doctor", "--url", running.url, "-o", "jsonl")).rows
    assert read == sorted(b"kept %d" % number for number in range(300))
    assert sum(one.held for one in held) == len(leased) == 10
