"""Messages that are not due yet, for the owner of their queue."""

from __future__ import annotations

import heapq
from typing import Any

from queuey.api.params import Problems, integer, moment
from queuey.api.queues import next_link
from queuey.api.reading import low
from queuey.http.exchange import Answer, Call, Target, json_answer
from queuey.ids import MAX_ID, MessageId, format_timestamp
from queuey.model import Message, Span
from queuey.service import Service

__all__ = ["list_scheduled"]

MAX_SCHEDULED = 100
"""Messages in a page."""


async def list_scheduled(service: Service, call: Call, target: Target) -> Answer:
    """Where the messages are that no reader sees yet, of all partitions, by the moment at which they are due."""
    queue, query, problems = target.queue, call.query, Problems()
    limit = problems.take("limit", integer(1, MAX_SCHEDULED), query.get("limit"), MAX_SCHEDULED)
    offset = problems.take("offset", moment, query.get("offset"), None)
    problems.check()
    after = max(MessageId.last_of(service.log.watermark(queue)), low(offset))
    pages = [
        [(message.id, number, message) for message in page.messages]
        for number in range(1, queue.partitions + 1)
        for page in [await service.log.read_ids(queue, number, Span(after, MAX_ID), limit + 1)]
    ]
    found = [*heapq.merge(*pages)][: limit + 1]
    listed = [_entry(number, message) for _, number, message in found[:limit]]
    following = found[limit][0].hex if len(found) > limit else None
    return json_answer({"status": "ok", "messages": listed}, headers=next_link(call, following))


def _entry(number: int, message: Message) -> dict[str, Any]:
    return {
        "message_id": message.id.hex,
        "partition": number,
        "timestamp": message.id.timestamp,
        "expires": format_timestamp(message.expires_ticks),
    }
