"""Workers that divide many small queues by hash slots: what their tests share."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from qdo import Client, Context, Message, Worker
from qdo.groups.assign import Partition
from qdo.groups.hash_slots import ALL, slot_of
from qdo.groups.offsets_in_queuey import OffsetsInQueuey
from qdo.worker.owners import SlotOwner
from tests.support.member_work import member_of
from tests.support.servers import eventually
from tests.support.work_processes import WAIT_SECONDS

Run = Callable[..., Worker]


both_stores = pytest.mark.parametrize(
    "server", ["shipped", pytest.param("delayed", marks=pytest.mark.drawn)], indirect=True
)


def make_queues(make_client: Callable[[], Client], count: int, prefix: str = "u") -> list[str]:
    names = [f"{prefix}{number:05d}" for number in range(count)]

    def make(some: list[str]) -> None:
        with make_client() as client:
            for name in some:
                client.create_queue(name, partitions=1)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(make, (names[at::8] for at in range(8))))
    return names


def owner_of(worker: Worker) -> SlotOwner:
    owner = member_of(worker)._owner
    assert isinstance(owner, SlotOwner)
    return owner


class NotingJob:
    """A job that notes what it got."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.places: dict[tuple[str, int], list[str]] = {}

    def __call__(self, message: Message, context: Context) -> None:
        self.texts.append(message.text)
        self.places.setdefault((context.queue, context.partition), []).append(message.text)

    def until(self, *texts: str) -> None:
        eventually(lambda: set(texts) <= set(self.texts), seconds=WAIT_SECONDS)


def moment(outside: OffsetsInQueuey, queue: str) -> int:
    at = outside.offsets().get(Partition(ALL, slot_of(queue)))
    return 0 if at is None else at.message_id.ticks
