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
from tests.support.work_processes import WorkProcesses, processes_in


@pytest.fixture
def processes(tmp_path: Path, shipped_server: RunningServer, next_fresh: Callable[[], str]) -> Iterator[WorkProcesses]:
    with Server(shipped_server, next_fresh()) as server, processes_in(tmp_path, server) as found:
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
    def conf(processes: WorkProcesses, *partitions: str, failure: str = "old:failed", more: str = "") -> str:
        (processes.folder / "old.py").write_text(OLD)
        ids = "".join(f"\n    {name}" for name in partitions)
        connection = f"{processes.server.url}/v1/{processes.server.application}/"
        (processes.folder / "old.conf").write_text(
            f"[qdo-worker]\njob = old:job\njob_context = old:context\njob_failure = {failure}\nwait_interval = 5\n"
            f"[queuey]\nconnection = {connection}\napp_key = ${{QUEUEY_KEY}}\n[partitions]\nids ={ids}\n{more}"
        )
        return str(processes.folder / "old.conf")

    def test_hooks_are_called_as_they_were(self, processes: WorkProcesses) -> None:
        queue = processes.server.queue(partitions=2)
        processes.server.fill(queue, "a", "bad", "stop", "never")
        processes.server.fill(queue, "not mine", partition=2)

        ended = processes.run("-c", self.conf(processes, f"{queue}-1"), module="qdo.compat.cli")

        assert ended.code == 0, ended.err
        name = processes.server.application
        assert processes.notes == ["enter", "1 a str", f"failed -1 ValueError('bad') {name} 2", "leave"]
        assert "notice: [qdo-worker] wait_interval is not needed any more" in ended.err
        (offset,) = processes.run("offsets", "show", "--group", "qdo-worker").rows
        assert (offset["partition"], offset["lag_messages"]) == (1, 2)

    def test_it_goes_on_where_qdo_0_1_was_and_works_on_all_but_its_own_queues(self, processes: WorkProcesses) -> None:
        queue = processes.server.queue(partitions=1)
        done = processes.server.fill(queue, "a", "b", "bad", "c")
        processes.server.create("qdo_status", partitions=7)
        body = json.dumps({"partition": f"{queue}-1", "processed": done[0]})
        processes.server.fill("qdo_status", body, partition=6)

        path = self.conf(processes, failure="qdo.worker:save_failed_message")
        worker = processes.start("-c", path, module="qdo.compat.cli")
        processes.until_noted("1 c str")

        assert processes.end(worker) == 0
        assert processes.notes == ["enter", "1 b str", "1 c str", "leave"]
        assert "1 position of qdo 0.1 taken over" in processes.said(worker)
        (saved,) = processes.server.everything("qdo_error")
        told = json.loads(saved)
        assert (told["queue"], told["message_id"], told["body"]) == (f"{queue}-1", done[2], "bad")

    def test_policy_automatic_meets_in_zookeeper(self, processes: WorkProcesses, zookeeper: Reached) -> None:
        queue = processes.server.queue(partitions=1)
        processes.server.fill(queue, "a", "stop")
        path = self.conf(processes, more=f"policy = automatic\n[zookeeper]\nconnection = {zookeeper.hosts}/{queue}\n")

        ended = processes.run("-c", path, module="qdo.compat.cli")

        assert (ended.code, processes.notes) == (0, ["enter", "1 a str", "leave"])

    def test_three_that_start_at_once_move_positions_once(self, processes: WorkProcesses, zookeeper: Reached) -> None:
        queue = processes.server.queue(partitions=6)
        processes.server.create("qdo_status", partitions=7)
        for partition in range(1, 7):
            first, _ = processes.server.fill(queue, f"old {partition}", f"new {partition}", partition=partition)
            processes.server.fill("qdo_status", json.dumps({"partition": f"{queue}-{partition}", "processed": first}))
        path = self.conf(processes, more=f"policy = automatic\n[zookeeper]\nconnection = {zookeeper.hosts}/{queue}\n")

        workers = [processes.start("-c", path, module="qdo.compat.cli") for _ in range(3)]
        processes.until_noted(*(f"{partition} new {partition} str" for partition in range(1, 7)))

        assert [processes.end(worker) for worker in workers] == [0, 0, 0]
        assert not [note for note in processes.notes if " old " in note]
        taken = [re.search(r"([\d,]+) positions? of qdo 0.1 taken over", processes.said(worker)) for worker in workers]
        assert sum(int(found[1]) for found in taken if found) == 6

    def test_a_missing_file_is_told(self, processes: WorkProcesses) -> None:
        ended = processes.run("-c", "nowhere.conf", module="qdo.compat.cli")

        assert (ended.code, ended.text) == (1, "Configuration file not found: nowhere.conf\n")
