"""What the tests of the pipeline do with a server: fill queues, wait until readers see it, read metrics."""

from __future__ import annotations

import time
from decimal import Decimal

import pytest
import requests
from prometheus_client.parser import text_string_to_metric_families

from qdo.client import Appended, Client, NewMessage
from tests.support.client import new_name
from tests.support.servers import APPLICATIONS, RunningServer, eventually

APPLICATION = "queuey"
KEY = APPLICATIONS[APPLICATION][0]
SHOWN_SECONDS = 90
"""A deadline: a message is shown after the read delay, unless the machine is slow."""

on_both_stores = pytest.mark.parametrize("running", ["embedded", "cassandra"], indirect=True)
"""For what may differ with the store: how it counts and cuts spans, what expires, how far readers stay behind the clock."""
on_both_stores_if_drawn = pytest.mark.parametrize(
    "running", ["embedded", pytest.param("cassandra", marks=pytest.mark.drawn)], indirect=True
)
"""The same, for what takes long over Cassandra."""


def append(client: Client, queue: str, *messages: NewMessage | bytes | str) -> list[Appended]:
    """Store messages, and come back when readers see them."""
    stored = client.append_batch(queue, messages)
    settle(client, queue)
    return stored


def settle(client: Client, queue: str) -> None:
    """Come back when readers see all that is stored by now, however far behind the clock the server keeps them."""
    # Of many messages at once ids are ahead of the clock, by a tick each.
    now = Decimal(time.time()) + Decimal("0.02")
    eventually(lambda: Decimal(client.survey(queue).watermark) >= now, seconds=SHOWN_SECONDS)


def fill(client: Client, *, partitions: int = 2, messages: int = 10, size: int = 0) -> str:
    """A new queue with ``messages`` messages in each partition, of bodies ``<partition>-<number>``, filled up to a size."""
    queue = new_name()
    client.create_queue(queue, partitions=partitions)
    for partition in range(1, partitions + 1):
        bodies = [f"{partition}-{number}".ljust(size) for number in range(messages)]
        for first in range(0, messages, 500):
            client.append_batch(queue, [NewMessage(body, partition=partition) for body in bodies[first : first + 500]])
    settle(client, queue)
    return queue


def counted(running: RunningServer, name: str, **labels: str) -> float:
    """A server's metric, summed over all labels but these."""
    text = requests.get(f"{running.url}/metrics", timeout=60).text
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return sum(each.value for each in samples if each.name == name and labels.items() <= each.labels.items())
