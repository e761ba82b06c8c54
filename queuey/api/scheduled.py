"""Messages that are not due yet, for the owner of their queue."""

from __future__ import annotations

import heapq
from typing import Any

from queuey.api.params import Problems, integer, moment, one_place
from queuey.api.queues import next_link
from queuey.http.exchange import Answer, Call, Target, json_answer
from queuey.ids import MAX_ID, ZERO_ID, MessageId, format_timestamp
from queuey.model import Location, Message, Span
from queuey.service import Service

__all__ = ["list_scheduled"]

MAX_SCHEDULED = 100
"""Messages in a page."""


async def list_scheduled(service: Service, call: Call, target: Target) -> Answer:
    """Where the messages are that no reader sees yet, of all partitions, by the moment at which they are due."""
    queue, query, problems = target.queue, call.query, Problems()
    limit = problems.take("limit", integer(1, MAX_SCHEDULED), query.get("limit"), MAX_SCHEDULED)
    start = problems.take("offset", _start, query.get("offset"), Location(1, ZERO_ID))
    problems.check()
    watermark = MessageId.last_of(service.log.watermark(queue))
    pages = [
        [(message.id, number, message) for message in page.messages]
        for number in range(1, queue.partitions + 1)
        for after in [max(watermark, start.id if number < start.partition else start.id.before())]
        for page in [await service.log.read_ids(queue, number, Span(after, MAX_ID), limit + 1)]
    ]
    found = [*heapq.merge(*pages)][: limit + 1]
    listed = [_entry(number, message) for _, number, message in found[:limit]]
    following = f"{found[limit][1]}:{found[limit][0].hex}" if len(found) > limit else None
    return json_answer({"status": "ok", "messages": listed}, headers=next_link(call, following))


def _start(text: str) -> Location:
    """Where to start: at a moment or an id in all partitions, or at one message.

    Several partitions may have a message of one id, and they come by partition.
    """
    if ":" in text:
        return one_place(text)
    point = moment(text)
    return Location(1, point if isinstance(point, MessageId) else MessageId.first_of(point))


def _entry(number: int, message: Message) -> dict[str, Any]:
    return {
        "message_id": message.id.hex,
        "partition": number,
        "timestamp": message.id.timestamp,
        "expires": format_timestamp(message.expires_ticks),
    }
