"""Reading spans of a queue: parameters, one page as JSON, a stream as NDJSON or Arrow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from queuey.api.calls import ARROW, JSON, NDJSON, Answer, Call, Headers
from queuey.api.cursors import Cursor, format_cursor, parse_cursor
from queuey.api.forms import COLUMNS, ArrowForm, EndMark, NdjsonForm, entries_of, json_page
from queuey.api.params import Problems, boolean, integer, moment, one_of, partition_list, words
from queuey.errors import NotAcceptable
from queuey.ids import MAX_ID, ZERO_ID, MessageId, format_timestamp
from queuey.model import Queue, Span
from queuey.promise import run
from queuey.service import Service
from queuey.service.log import ReadAnswer, ReadRequest

DEFAULT_LIMIT = 100
MAX_LIMIT = 1000
MAX_STREAM_LIMIT = 1_000_000_000
STREAM_ROWS = 4000
"""Rows of one page, and one Arrow batch, of a stream."""
STREAM_BYTES = 1 << 20
"""Bodies of one page of a stream."""
STREAM_HELD_BYTES = 2 * STREAM_BYTES
"""What a stream holds in memory, however long it is: a page, and what became of the one before."""


class ReadParams(NamedTuple):
    """What a reader asked for, typed."""

    spans: Sequence[tuple[int, Span]]
    limit: int | None
    newest_first: bool
    columns: Sequence[str] | None
    skip_corrupt: bool
    every: bool = False
    """All partitions are read, those to come included."""

    @classmethod
    def parse(cls, call: Call, queue: Queue, *, max_limit: int) -> ReadParams:
        """:raises InvalidParameter: with every field that is wrong.
        :raises CursorLost: a cursor of another incarnation.
        """
        query = call.query
        if not query:
            return _PLAIN
        problems, get = Problems(), query.get
        newest_first = (
            problems.take("order", one_of("ascending", "descending"), get("order"), "ascending") == "descending"
        )
        since = problems.take("since", moment, get("since"), None)
        until = problems.take("until", moment, get("until"), None)
        limit = problems.take("limit", integer(1, max_limit), get("limit"), None)
        columns = problems.take("columns", lambda text: words(text, COLUMNS), get("columns"), None)
        numbers = problems.take(
            "partitions", lambda text: partition_list(text, queue.partitions), get("partitions"), [1]
        )
        cursor = get("cursor")
        if cursor is not None and ("since" in query or "partitions" in query):
            problems.add("cursor", "says where to go on in every partition: give no since and no partitions beside it")
        problems.check()
        span = _span(since, until, newest_first=newest_first)
        every = get("partitions") == "all"
        spans = [(number, span) for number in numbers]
        if cursor is not None:
            places, every = parse_cursor(queue, cursor)
            spans = [(number, _from(place, span, newest_first=newest_first)) for number, place in places.items()]
        return cls(spans, limit, newest_first, columns, boolean(get("skip_corrupt")), every)


_PLAIN = ReadParams([(1, Span())], None, False, None, False)


def _low(point: MessageId | int | None) -> MessageId:
    """The ``after`` of a span that begins with this moment."""
    if point is None:
        return ZERO_ID
    return (point if isinstance(point, MessageId) else MessageId.first_of(point)).before()


def _high(point: MessageId | int | None) -> MessageId:
    """The ``upto`` of a span that ends with this moment."""
    if point is None:
        return MAX_ID
    return point if isinstance(point, MessageId) else MessageId.last_of(point)


def _span(since: MessageId | int | None, until: MessageId | int | None, *, newest_first: bool) -> Span:
    """v1's inclusive ends as a span; newest first, ``since`` is where to start going backwards."""
    return Span(_low(until), _high(since)) if newest_first else Span(_low(since), _high(until))


def _from(place: MessageId, span: Span, *, newest_first: bool) -> Span:
    """What is left of a span behind a cursor's place."""
    if not newest_first:
        return Span(max(place, span.after), span.upto)
    return Span(span.after, min(place.before(), span.upto) if place > ZERO_ID else ZERO_ID)


def _place(span: Span, last: MessageId | None, *, more: bool, newest_first: bool) -> MessageId:
    """Where to go on in a partition."""
    if last is not None and (more or not newest_first):
        return last
    if not newest_first:
        return max(ZERO_ID, span.after)
    return min(span.upto.following(), MAX_ID) if more else ZERO_ID


def _cursor(queue: Queue, params: ReadParams, answer: ReadAnswer) -> str:
    pages = dict(answer.pages)
    places = {
        number: _place(
            span,
            pages[number].messages[-1].id if pages[number].messages else None,
            more=pages[number].more,
            newest_first=params.newest_first,
        )
        for number, span in params.spans
        if number in pages
    }
    return format_cursor(queue, Cursor(places, params.every))


async def read(service: Service, call: Call, queue: Queue) -> Answer:
    """One page as JSON, or a stream, as Accept says."""
    if call.accepts(ARROW) or call.accepts(NDJSON):
        return _stream(service, call, queue)
    params = ReadParams.parse(call, queue, max_limit=MAX_LIMIT)
    with_bodies = params.columns is None or not frozenset(params.columns).isdisjoint(("body", "content_type", "key"))
    answer = await service.log.read(
        queue,
        ReadRequest(
            params.spans,
            params.limit or DEFAULT_LIMIT,
            params.newest_first,
            service.settings.limits_max_answer_bytes,
            with_bodies,
            params.skip_corrupt,
        ),
    )
    present = entries_of(params.columns, queue.name)
    shown = [entry for number, page in answer.pages for entry in present(page.messages, number)]
    service.monitor.delivered(queue.application, "json", len(shown), answer.size)
    headers: Headers = [
        ("content-type", JSON),
        ("queuey-watermark", format_timestamp(answer.watermark)),
        ("queuey-cursor", _cursor(queue, params, answer)),
        ("queuey-more", "true" if any(page.more for _, page in answer.pages) else "false"),
    ]
    corrupt = sum([page.corrupt for _, page in answer.pages])
    if corrupt:
        headers.append(("queuey-corrupt", str(corrupt)))
    return Answer(200, json_page(shown), headers)


def _stream(service: Service, call: Call, queue: Queue) -> Answer:
    params = ReadParams.parse(call, queue, max_limit=MAX_STREAM_LIMIT)
    form: ArrowForm | NdjsonForm
    if call.accepts(ARROW):
        try:
            form = ArrowForm(params.columns, queue.name)
        except ImportError as error:
            raise NotAcceptable(
                "this server has no Arrow: install queuey[arrow] on it, or accept application/x-ndjson"
            ) from error
    else:
        form = NdjsonForm(params.columns, queue.name)
    watermark = service.log.watermark(queue)
    headers: Headers = [
        ("content-type", form.media_type),
        ("queuey-watermark", format_timestamp(watermark)),
        ("cache-control", "no-store"),
    ]
    chunks = _chunks(service, queue, params, form, watermark)
    # What the first page meets can still become a status: read it before the answer begins.
    begun = [next(chunks), next(chunks)]
    return Answer(200, b"", headers, chain(begun, chunks))


def _chunks(
    service: Service, queue: Queue, params: ReadParams, form: ArrowForm | NdjsonForm, watermark: int
) -> Iterator[bytes]:
    """The stream, a page at a time; an error in between leaves it without its end mark."""
    places: dict[int, MessageId] = {}
    sent, more = 0, False
    with_bodies = params.columns is None or not frozenset(params.columns).isdisjoint(("body", "content_type", "key"))
    yield form.start()
    for number, wanted in params.spans:
        if not 1 <= number <= queue.partitions:
            continue
        left = params.limit if params.limit is not None else MAX_STREAM_LIMIT
        span = Span(wanted.after, min(wanted.upto, MessageId.last_of(watermark)))
        last: MessageId | None = None
        page_more = True
        while page_more and left:
            request = ReadRequest(
                [(number, span)],
                min(left, STREAM_ROWS),
                params.newest_first,
                STREAM_BYTES,
                with_bodies,
                params.skip_corrupt,
            )
            answer = run(service.log.read(queue, request))
            ((_, page),) = answer.pages
            page_more = page.more
            if page.messages:
                last = page.messages[-1].id
                left -= len(page.messages)
                sent += len(page.messages)
                span = _from(last, span, newest_first=params.newest_first)
                service.monitor.delivered(queue.application, form.media_type, len(page.messages), answer.size)
                rows = form.rows(page.messages, number)
                del answer, page  # while the client takes its time, its rows are held once
                yield rows
        more = more or page_more
        places[number] = _place(wanted, last, more=page_more, newest_first=params.newest_first)
    yield form.end(EndMark(sent, format_cursor(queue, Cursor(places, params.every)), more, format_timestamp(watermark)))
