"""Crash reports, as the README of the example says: three workers, one of them killed, every report processed."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from qdo.client import Client
from qdo.worker.dead_letters import letters
from queuey.errors import QueueNotFound
from tests.support.figures import Figures
from tests.support.servers import eventually
from tests.support.services.ports import free_ports
from tests.support.shell import ROOT, Shell, answers, commands_of

REPORTS = 6000
BROKEN = 3
KEY = "c" * 32


def processed(client: Client) -> list[dict[str, str]]:
    try:
        return [json.loads(message.body) for message in client.iterate("crashes.processed")]
    except QueueNotFound:
        return []


@pytest.mark.drawn
def test_every_report_is_processed_though_a_worker_is_killed(tmp_path: Path, figures: Figures) -> None:
    key, serve, send, work, watch = commands_of(ROOT / "examples" / "crashes" / "README.md")
    assert key.startswith("export QUEUEY_KEY=")
    (port,) = free_ports(1, ["127.0.0.1"])
    url = f"http://127.0.0.1:{port}"
    shell = Shell(
        tmp_path, QUEUEY_KEY=KEY, QUEUEY_PORT=str(port), QUEUEY_URL=url, QDO_STATE=str(tmp_path / "state"), HOME="/root"
    )
    try:
        shell.type(serve)
        eventually(lambda: answers(f"{url}/__lbheartbeat__"), seconds=90)
        shell.type(send.replace("20000", f"{REPORTS} --broken {BROKEN}"))
        client = Client(url, "demo", KEY)
        eventually(lambda: "crashes" in [queue.name for queue in client.queues()], seconds=90)
        shell.type(work.replace("--group", "--session-seconds 3 --retries 1 --group"))
        eventually(lambda: len(processed(client)) > REPORTS / 20, seconds=90)
        shell.type("kill -9 %2")
        eventually(lambda: len(processed(client)) == REPORTS - BROKEN, seconds=90)
        eventually(lambda: len(list(letters(client, "crashes-dead"))) == BROKEN, seconds=90)
        dead = list(letters(client, "crashes-dead"))
        shell.type(watch)
        eventually(lambda: " | " in shell.said, seconds=90)
        results = processed(client)
    finally:
        shell.close()

    numbers = Counter(result["number"] for result in results)
    figures(
        "G16",
        jobs=len(results),
        lost=REPORTS - BROKEN - len(numbers),
        repeated=shell.said.count("had been processed"),
        stored_twice=len(results) - len(numbers),
    )
    assert len(numbers) == REPORTS - BROKEN
    assert max(numbers.values()) == 1
    assert {letter.story.reason.partition(":")[0] for _, letter in dead} == {"JSONDecodeError"}
    assert shell.said.count("joined") >= 3  # again, whose session a stall has ended
