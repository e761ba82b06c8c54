"""Probes: which of many queues got a message since a moment, asked for a hundred queues at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from qdo.client import Client

__all__ = ["PARTITIONS_IN_A_BATCH", "QUEUES_IN_A_BATCH", "Probe", "probe_batches", "with_new_messages"]

QUEUES_IN_A_BATCH = 100
"""Queues that a server reads for one request."""
PARTITIONS_IN_A_BATCH = 200
"""Their partitions, all together."""


class Probe(NamedTuple):
    """Did a queue get a message at this moment or later?"""

    queue: str
    partitions: int
    since: int
    """Ticks."""


def probe_batches(probes: Sequence[Probe]) -> list[list[Probe]]:
    """Batches of the size that one request may read. Probes with close moments share a batch, oldest first."""
    batches: list[list[Probe]] = []
    partitions = PARTITIONS_IN_A_BATCH
    for probe in sorted(probes, key=lambda each: each.since):
        partitions += probe.partitions
        if partitions > PARTITIONS_IN_A_BATCH or len(batches[-1]) == QUEUES_IN_A_BATCH:
            batches.append([])
            partitions = probe.partitions
        batches[-1].append(probe)
    return batches


def with_new_messages(client: Client, batch: Sequence[Probe]) -> list[Probe]:
    """The probes of one batch whose queues got a message. One request."""
    # The request has one moment for all queues: the oldest. So it may find a message that a later probe does not ask for.
    found, _ = client.news([probe.queue for probe in batch], min(probe.since for probe in batch))
    return [probe for probe in batch if probe.queue in found]
