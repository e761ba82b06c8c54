"""What lies in spans, for readers that plan to read them in parts."""

from __future__ import annotations

from typing import Any

from queuey.api.cursors import Cursor, format_cursor
from queuey.api.params import Problems, boolean, integer
from queuey.api.reading import ReadQuery, known_to_reader
from queuey.http.exchange import Answer, Call, Target, json_answer
from queuey.ids import ZERO_ID, MessageId, format_timestamp
from queuey.model import SpanCount
from queuey.service import Service

MAX_COUNT = 10_000_000
"""Messages of one partition that one request counts."""
MAX_MARKS = 10_000
"""Split points of one partition in one answer."""


async def survey(service: Service, call: Call, target: Target) -> Answer:
    """The last id of each span.

    On request also its message count and its split points.
    """
    queue, problems = await known_to_reader(service, call, target.queue), Problems()
    limit = problems.take("count", integer(0, MAX_COUNT), call.query.get("count"), 0)
    every = problems.take("every", integer(1, MAX_COUNT), call.query.get("every"), 0)
    if every and limit > every * MAX_MARKS:
        problems.add(
            "every", f"makes more than {MAX_MARKS} marks of {limit} messages: ask for {-(-limit // MAX_MARKS)} or more"
        )
    problems.check()
    params = ReadQuery.parse(call, queue, max_limit=1)
    watermark, found = await service.log.count_spans(
        queue, params.spans, limit=limit, step=every, unseen=boolean(call.query.get("unseen"))
    )
    places, readable = {number: span.after for number, span in params.spans}, MessageId.last_of(watermark)
    ends = {number: max(min(survey.newest or ZERO_ID, readable), places[number]) for number, survey in found}
    return json_answer(
        {
            "status": "ok",
            "partitions": queue.partitions,
            "spans": [_shown(number, survey, counted="count" in call.query) for number, survey in found],
        },
        headers=[
            ("queuey-watermark", format_timestamp(watermark)),
            (
                "queuey-cursor",
                format_cursor(queue, Cursor({at: max(id_, ZERO_ID) for at, id_ in ends.items()}, params.every)),
            ),
        ],
    )


def _shown(number: int, survey: SpanCount, *, counted: bool) -> dict[str, Any]:
    shown: dict[str, Any] = {"partition": number, "newest": survey.newest and survey.newest.hex}
    if counted:
        shown |= {"messages": survey.messages, "more": survey.more, "marks": [mark.hex for mark in survey.split_points]}
    return shown
