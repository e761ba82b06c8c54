"""What a worker does when somebody sets the offsets of its partitions."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from contextlib import closing
from pathlib import Path

from qdo import Client, Context, Message, Worker
from qdo.groups.assign import Partition
from qdo.groups.coordination import Claim, CommittedOffset
from qdo.groups.local import LocalCoordinator
from queuey.errors import CoordinatorUnavailable
from tests.support.client import new_name
from tests.support.servers import eventually


class HeldUp(LocalCoordinator):
    """Its commits do not get through at first."""

    def __init__(self, group: str, folder: Path) -> None:
        super().__init__(group, folder)
        self.may_commit = threading.Event()
        self.steps = 0
        """Of the member."""

    def commit(self, offsets: Mapping[Claim, CommittedOffset]) -> Collection[Claim]:
        if not self.may_commit.is_set():
            raise CoordinatorUnavailable("later")
        return super().commit(offsets)

    def resets(self) -> int:
        self.steps += 1
        return super().resets()


def test_offsets_set_by_hand_let_no_two_jobs_of_a_partition_run_at_once(
    tmp_path: Path, make_client: Callable[[], Client]
) -> None:
    """Also where what was done before the running job cannot be committed any more."""
    name = new_name()
    with make_client() as client:
        client.create_queue(name)
        client.append_batch(name, ["first", "second"])
    begun, go = threading.Event(), threading.Event()
    seen: list[str] = []

    def job(message: Message, context: Context) -> None:
        seen.append(f"begins {message.text}")
        if message.text == "second":
            begun.set()
            assert go.wait(120)
        seen.append(f"ends {message.text}")

    coordinator = HeldUp("g", tmp_path)
    found = Worker(job, [name], coordinator, make_client, exit_at_end=True, threads=2)
    thread = threading.Thread(target=found.run)
    thread.start()
    assert begun.wait(90)
    with closing(LocalCoordinator("g", tmp_path)) as by_hand:
        by_hand.reset({Partition(name, 1): None})
    coordinator.may_commit.set()
    eventually(lambda: found.counts.refused)
    with make_client() as client:
        client.append(name, "third")  # ends the request that waits at the server
    steps = coordinator.steps
    eventually(lambda: coordinator.steps > steps + 4)
    go.set()
    thread.join(90)

    texts = "first", "second", "first", "second", "third"
    assert seen == [f"{what} {text}" for text in texts for what in ("begins", "ends")]
    assert found.all_done
