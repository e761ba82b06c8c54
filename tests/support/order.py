"""Judges of order: ids that repeat, messages due at one tick, messages seen too early."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from qdo.client import Message
from qdo.measure import duplicates
from queuey.ids import MessageId


def ties(stored: list[Message]) -> int:
    """Neighbours in a partition that are due at the same tick."""
    return sum((a.partition, a.id.ticks) == (b.partition, b.id.ticks) for a, b in pairwise(stored))


def same_id(stored: list[Message]) -> list[tuple[int, MessageId]]:
    return duplicates([(message.partition, message.id) for message in stored])


def too_early(wanted: Mapping[str, int], seen: Mapping[str, int]) -> dict[str, int]:
    """Messages that were seen before the moment they were wanted at, and by how many ticks."""
    return {body: wanted[body] - moment for body, moment in seen.items() if moment < wanted[body]}
