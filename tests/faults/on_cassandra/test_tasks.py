"""G1, G25: tasks of queues on Cassandra go on after each death of their server, and a redrive moves each letter once."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from qdo.client import Client, NewMessage, QueueTask
from queuey.ids import TICKS_PER_SECOND, MessageId, parse_timestamp
from queuey.model.dead_letters import STORY_HEADER, Story, story_to_header
from tests.support.figures import Figures
from tests.support.fleet import LOOKS, Fleet, wait_until_readable
from tests.support.servers import eventually
from tests.support.services.fixtures import Reached

GROUP = "workers"


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory, cassandra_node: Reached) -> Iterator[Fleet]:
    """One server, whose readers ask only after writers were answered."""
    settings = {"write_budget_ms": 0, "read_delay_ms": 0, "clock_error_ms": 10_000}
    folder = tmp_path_factory.mktemp("tasks")
    with Fleet(folder, cassandra_node, servers=1, replication=1, settings=settings, fault="quick") as fleet:
        yield fleet


def bury(client: Client, dead: str, story: Story, number: int) -> None:
    """Store dead letters as a server does."""
    headers = {STORY_HEADER: story_to_header(story)}
    client.append_batch(dead, [NewMessage(f"{at}", headers=headers) for at in range(number)])


def bodies_of(client: Client, queue: str) -> Counter[bytes]:
    return Counter(message.body for message in client.stream_ndjson(queue, partitions="all"))


def to_its_end(client: Client, queue: str, name: str) -> QueueTask:
    *_, found = client.watch_task(queue, name)
    return found


def test_a_purge_removes_what_was_there_before_though_its_server_dies(
    fleet: Fleet, rounds: Callable[[int], range], chance: random.Random, figures: Figures
) -> None:
    queue, kills = "purged", len(rounds(2))
    (node,), client = fleet.nodes, fleet.client(0, retries=LOOKS)
    client.create_queue(queue, partitions=3)
    for _ in range(2 * kills):
        client.append_batch(queue, ["before"] * 1000)
    held = client.receive(queue, GROUP, 100, visibility=600)
    task = client.purge(queue)
    later = Counter[bytes]()
    for number in range(kills):
        body = b"later %d" % number
        last = client.append(queue, body)
        later[body] += 1
        time.sleep(chance.uniform(0, 0.3))
        node.kill()
        node.start()
    found = to_its_end(client, queue, "purge")
    wait_until_readable(client, queue, last.id)
    left, depth = bodies_of(client, queue), client.queue_info(queue).depth
    group = client.lease_group(queue, GROUP)

    figures("G1", store="cassandra", kills=kills, purged=2000 * kills, left=left.total())
    assert (found.id, found.state) == (task.id, "done")
    assert (left, depth) == (later, later.total())
    assert held
    assert [part.held for part in group.partitions] == [0] * 3


def test_a_redrive_moves_each_letter_once_though_its_server_dies(
    fleet: Fleet, rounds: Callable[[int], range], chance: random.Random, figures: Figures
) -> None:
    queue, kills = "redriven", len(rounds(1))
    (node,), client = fleet.nodes, fleet.client(0, retries=LOOKS)
    number, dead = 80 * kills + 20, f"{queue}-dead"
    for name in (queue, dead):
        client.create_queue(name, partitions=3)
    client.set_lease_group(queue, GROUP, visibility=30)
    bury(client, dead, Story(queue, 1, "0" * 32, GROUP, 3, "so"), number)
    task = client.redrive(queue, GROUP, rate=40)
    for at in range(1, kills + 1):
        eventually(lambda wanted=40 * at: client.task(queue, task.name).done >= wanted, seconds=60)  # type: ignore[misc]
        time.sleep(chance.uniform(0.7, 1.1))  # about when the next letters are moved
        node.kill()
        node.start()
    found = to_its_end(client, queue, task.name)
    assert found.finished
    wait_until_readable(client, queue, MessageId.last_of(parse_timestamp(found.finished) + TICKS_PER_SECOND))
    back, left = bodies_of(client, queue), client.queue_info(dead).depth

    twice = back.total() - len(back)
    figures("G25", store="cassandra", kills=kills, letters=number, back=back.total(), twice=twice, left=left)
    assert (found.id, found.state, found.failed, left) == (task.id, "done", 0, 0)
    assert back == Counter(b"%d" % at for at in range(number))
