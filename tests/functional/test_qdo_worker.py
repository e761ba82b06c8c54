"""``qdo-worker`` of 2012 as a process on a real server."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.client import Server
from tests.support.servers import RunningServer
from tests.support.services.fixtures import Reached
from tests.support.work_processes import Crew, crew_in


@pytest.fixture
def crew(tmp_path: Path, shipped_server: RunningServer, next_fresh: Callable[[], str]) -> Iterator[Crew]:
    with Server(shipped_server, next_fresh()) as server, crew_in(tmp_path, server) as found:
        yield found


OLD = """
from contextlib import contextmanager
from jobs import _note
from qdo.worker import StopWorker

@contextmanager
def context():
    _note("enter")
    yield []
    _note("leave")

def job(message, context):
    context.append(message["message_id"])
    if message["body"] == "bad":
        raise ValueError(message["body"])
    if message["body"] == "stop":
        raise StopWorker
    _note(message["partition"], message["body"], type(message["timestamp"]).__name__)

def failed(message, context, queue, exc, queuey_conn):
    _note("failed", queue.partition("-")[2][-2:], repr(exc), queuey_conn.application, len(context))
"""


class TestQdoWorker:
    """``qdo-worker -c FILE``, the contract of 2012 (queuey-api-v1 13)."""

    @staticmethod
    def conf(crew: Crew, *partitions: str, failure: str = "old:failed", more: str = "") -> str:
        (crew.folder / "old.py").write_text(OLD)
        ids = "".join(f"\n    {name}" for name in partitions)
        connection = f"{crew.server.url}/v1/{crew.server.application}/"
        (crew.folder / "old.conf").write_text(
            f"[qdo-worker]\njob = old:job\njob_context = old:context\njob_failure = {failure}\nwait_interval = 5\n"
            f"[queuey]\nconnection = {connection}\napp_key = ${{QUEUEY_KEY}}\n[partitions]\nids ={ids}\n{more}"
        )
        return str(crew.folder / "old.conf")

    def test_hooks_are_called_as_they_were(self, crew: Crew) -> None:
        queue = crew.server.queue(partitions=2)
        crew.server.fill(queue, "a", "bad", "stop", "never")
        crew.server.fill(queue, "not mine", partition=2)

        ended = crew.run("-c", self.conf(crew, f"{queue}-1"), module="qdo.compat.cli")

        assert ended.code == 0, ended.err
        name = crew.server.application
        assert crew.notes == ["enter", "1 a str", f"failed -1 ValueError('bad') {name} 2", "leave"]
        assert "notice: [qdo-worker] wait_interval is not needed any more" in ended.err
        (offset,) = crew.run("offsets", "show", "--group", "qdo-worker").rows
        assert (offset["partition"], offset["lag_messages"]) == (1, 2)

    def test_it_goes_on_where_qdo_0_1_was_and_works_on_all_but_its_own_queues(self, crew: Crew) -> None:
        queue = crew.server.queue(partitions=1)
        done = crew.server.fill(queue, "a", "b", "bad", "c")
        crew.server.create("qdo_status", partitions=7)
        body = json.dumps({"partition": f"{queue}-1", "processed": done[0]})
        crew.server.fill("qdo_status", body, partition=6)

        path = self.conf(crew, failure="qdo.worker:save_failed_message")
        worker = crew.start("-c", path, module="qdo.compat.cli")
        crew.until_noted("1 c str")

        assert crew.end(worker) == 0
        assert crew.notes == ["enter", "1 b str", "1 c str", "leave"]
        assert "1 positions of qdo 0.1 taken over" in crew.said(worker)
        (saved,) = crew.server.everything("qdo_error")
        told = json.loads(saved)
        assert (told["queue"], told["message_id"], told["body"]) == (f"{queue}-1", done[2], "bad")

    def test_policy_automatic_meets_in_zookeeper(self, crew: Crew, zookeeper: Reached) -> None:
        queue = crew.server.queue(partitions=1)
        crew.server.fill(queue, "a", "stop")
        path = self.conf(crew, more=f"policy = automatic\n[zookeeper]\nconnection = {zookeeper.hosts}/{queue}\n")

        ended = crew.run("-c", path, module="qdo.compat.cli")

        assert (ended.code, crew.notes) == (0, ["enter", "1 a str", "leave"])

    def test_three_that_start_at_once_move_positions_once(self, crew: Crew, zookeeper: Reached) -> None:
        queue = crew.server.queue(partitions=6)
        crew.server.create("qdo_status", partitions=7)
        for partition in range(1, 7):
            first, _ = crew.server.fill(queue, f"old {partition}", f"new {partition}", partition=partition)
            crew.server.fill("qdo_status", json.dumps({"partition": f"{queue}-{partition}", "processed": first}))
        path = self.conf(crew, more=f"policy = automatic\n[zookeeper]\nconnection = {zookeeper.hosts}/{queue}\n")

        workers = [crew.start("-c", path, module="qdo.compat.cli") for _ in range(3)]
        crew.until_noted(*(f"{partition} new {partition} str" for partition in range(1, 7)))

        assert [crew.end(worker) for worker in workers] == [0, 0, 0]
        assert not [note for note in crew.notes if " old " in note]
        taken = [re.search(r"(\d+) positions of qdo 0.1 taken over", crew.said(worker)) for worker in workers]
        assert sum(int(found[1]) for found in taken if found) == 6

    def test_a_missing_file_is_told(self, crew: Crew) -> None:
        ended = crew.run("-c", "nowhere.conf", module="qdo.compat.cli")

        assert (ended.code, ended.text) == (1, "Configuration file not found: nowhere.conf\n")
