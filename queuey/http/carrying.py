"""Lets an operation serve a call; again, if the call names what another server has added to a queue meanwhile."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from queuey.errors import InvalidMessageId, InvalidParameter, InvalidReceipt
from queuey.http.exchange import Answer, Call, Target
from queuey.http.face import Function
from queuey.service import Service

__all__ = ["carry_out"]

_NAMING = (InvalidParameter, InvalidMessageId, InvalidReceipt)
"""Refusals of what a call names. They have changed nothing."""


def carry_out(service: Service, function: Function, call: Call, target: Target) -> Coroutine[Any, None, Answer]:
    """The work of an operation.

    Where other servers change queues too, what it refuses by cached settings may have been right for some moments: a
    receipt, an id or a number of a partition that another server has just added. So it refuses only by settings that
    still hold.
    """
    if service.queues.hears_of_changes:
        return function(service, call, target)
    return _carry_out(service, function, call, target)


async def _carry_out(service: Service, function: Function, call: Call, target: Target) -> Answer:
    try:
        return await function(service, call, target)
    except _NAMING:
        if call.length and not call.body:  # it was parsed, and let go: it names nothing that is not there
            raise
        found = await _grown(service, call, target)
        if found is None:
            raise
    return await function(service, call, found)


async def _grown(service: Service, call: Call, target: Target) -> Target | None:
    """The target, if a queue that the call names has got partitions that were not known here; else None."""
    grown: Target | None = None
    for queue in [*call.named, *([target.queue] if target.has_queue else ())]:
        found = await service.queues.with_partitions(queue, queue.partitions + 1)
        if found.partitions > queue.partitions:
            grown = Target(target.application, found) if target.has_queue and queue is target.queue else grown or target
    return grown
