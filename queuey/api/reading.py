"""Reads spans of a queue: pages as JSON, and streams as NDJSON or Arrow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from google_crc32c import value as crc32c

from queuey.api.arrow.answers import ARROW_COLUMNS, ArrowForm, check_arrow
from queuey.api.cursors import Cursor, format_cursor, highest_named, parse_cursor
from queuey.api.forms import COLUMNS, EndMark, NdjsonForm, entries_of
from queuey.api.json_pages import JsonPage
from queuey.api.params import Problems, boolean, integer, moment, one_of, partition_list, words
from queuey.future import Future, start
from queuey.http.exchange import ARROW, JSON, Answer, Call, Chunk, Headers, MadeStream
from queuey.ids import MAX_ID, ZERO_ID, MessageId, format_timestamp
from queuey.model import Queue, Span
from queuey.service import Service
from queuey.service.log import QueueRead, ReadAnswer

DEFAULT_LIMIT = 100
MAX_LIMIT = 1000
MAX_STREAM_LIMIT = 1_000_000_000
STREAM_ROWS = 4000
"""Rows of one page and one Arrow batch of a stream. Handing a page to the event loop costs as much as a thousand
ids."""
STREAM_BYTES = 1 << 20
"""Bytes of bodies in one page of a stream."""
STREAM_HELD_BYTES = 7 << 19
"""Bytes that a stream of any length holds in memory: a page, a piece made of it, and the next page."""
_AS_LINES = 7
"""How many times its bytes a page takes that is the last one: itself, and as JSON six times as much."""


class _Progress:
    """How far a stream has read."""

    def __init__(self, watermark: int) -> None:
        self.watermark = watermark
        """It reads what is up to here."""
        self.read_bytes = 0
        """Of bodies and headers."""
        self.is_at_end = False
        """Its last page was read."""

    def held_bytes(self, begun: Sequence[Chunk]) -> int:
        """Bytes that the stream holds until it is sent. One that is read already holds what it has, mostly little.

        :param begun: its first chunks.
        """
        if not self.is_at_end:
            return STREAM_HELD_BYTES
        made = sum(len(part) for chunk in begun for part in ([chunk] if isinstance(chunk, bytes) else chunk))
        return min(_AS_LINES * self.read_bytes + made, STREAM_HELD_BYTES)


class ReadQuery(NamedTuple):
    """A reader's parameters, parsed."""

    spans: Sequence[tuple[int, Span]]
    limit: int | None
    newest_first: bool
    columns: Sequence[str] | None
    skip_corrupt: bool
    every: bool = False
    """The reader reads all partitions, later ones included."""

    @classmethod
    def parse(
        cls,
        call: Call,
        queue: Queue,
        *,
        max_limit: int,
        with_cursor: bool = True,
        known_columns: Sequence[str] = COLUMNS,
        partitions: str = "1",
    ) -> ReadQuery:
        """:param with_cursor: False ignores a cursor.
        :param known_columns: the members that ``columns`` may name.
        :param partitions: read if the call names none.
        :raises InvalidParameter: it names every wrong field.
        :raises CursorLost: a cursor of another incarnation.
        """
        query = call.query
        if not query and partitions == "1":
            return _PLAIN
        if with_cursor and len(query) == 1 and (cursor := query.get("cursor")):  # a reader that continues
            spans, every = _behind(queue, cursor, Span(), newest_first=False)
            return cls(spans, None, False, None, False, every)
        problems, get = Problems(), query.get
        newest_first = (
            problems.take("order", one_of("ascending", "descending"), get("order"), "ascending") == "descending"
        )
        since = problems.take("since", moment, get("since"), None)
        until = problems.take("until", moment, get("until"), None)
        limit = problems.take("limit", integer(1, max_limit), get("limit"), None)
        columns = problems.take("columns", lambda text: words(text, known_columns), get("columns"), None)
        named = get("partitions", partitions)
        numbers = (
            [1]
            if named == "1"
            else problems.take("partitions", lambda text: partition_list(text, queue.partitions), named, [1])
        )
        cursor = get("cursor") if with_cursor else None
        if cursor is not None and ("since" in query or "partitions" in query):
            problems.add("cursor", "says where to go on in every partition: give no since and no partitions beside it")
        problems.check()
        span = _span(since, until, newest_first=newest_first)
        every = named == "all"
        spans = [(number, span) for number in numbers]
        if cursor is not None:
            spans, every = _behind(queue, cursor, span, newest_first=newest_first)
        return cls(spans, limit, newest_first, columns, boolean(get("skip_corrupt")), every)

    def request(self, spans: Sequence[tuple[int, Span]], limit: int, max_bytes: int) -> QueueRead:
        """What the log is asked for: the whole of it, or one page of a stream."""
        with_bodies = wants_bodies(self.columns)
        return QueueRead(spans, limit, self.newest_first, max_bytes, with_bodies, self.skip_corrupt)


_PLAIN = ReadQuery([(1, Span())], None, False, None, False)


async def known_to_reader(service: Service, call: Call, queue: Queue) -> Queue:
    """The queue, with all partitions that the call or its cursor names: those that are not known give no messages."""
    if service.queues.hears_of_changes:
        return queue
    cursors = call.query.get("cursor", ""), call.headers.get("last-event-id", "")  # a browser sends both again
    highest = max([highest_named(cursor).get(queue.uuid.hex, 0) for cursor in cursors])
    none: list[int] = []
    numbers = Problems().take("partitions", lambda text: partition_list(text, 0), call.query.get("partitions"), none)
    return await service.queues.with_partitions(queue, max([highest, *numbers]))


def low(point: MessageId | int | None) -> MessageId:
    """The ``after`` of a span that begins at this moment."""
    if point is None:
        return ZERO_ID
    return (point if isinstance(point, MessageId) else MessageId.first_of(point)).before()


def _high(point: MessageId | int | None) -> MessageId:
    """The ``upto`` of a span that ends at this moment."""
    if point is None:
        return MAX_ID
    return point if isinstance(point, MessageId) else MessageId.last_of(point)


def _span(since: MessageId | int | None, until: MessageId | int | None, *, newest_first: bool) -> Span:
    """v1's inclusive ends as a span.

    Newest first, ``since`` is where to start backwards.
    """
    return Span(low(until), _high(since)) if newest_first else Span(low(since), _high(until))


def _behind(queue: Queue, cursor: str, span: Span, *, newest_first: bool) -> tuple[list[tuple[int, Span]], bool]:
    """The rest of a span after a cursor, by partition.

    The second value says whether the cursor covers all partitions.
    """
    places, every = parse_cursor(queue, cursor)
    return [(number, _from(place, span, newest_first=newest_first)) for number, place in places.items()], every


def _from(place: MessageId, span: Span, *, newest_first: bool) -> Span:
    """The rest of a span after a cursor's position."""
    if not newest_first:
        return Span(max(place, span.after), span.upto)
    return Span(span.after, min(place.before(), span.upto) if place > ZERO_ID else ZERO_ID)


def _place(span: Span, last: MessageId | None, *, more: bool, newest_first: bool) -> MessageId:
    """The position from which to continue in a partition."""
    if last is not None and (more or not newest_first):
        return last
    if not newest_first:
        return max(ZERO_ID, span.after)
    return min(span.upto.following(), MAX_ID) if more else ZERO_ID


def _cursor(queue: Queue, params: ReadQuery, answer: ReadAnswer) -> str:
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


def wants_bodies(columns: Sequence[str] | None) -> bool:
    """Whether any of these members needs more than a message's id and partition."""
    return columns is None or not frozenset(columns).isdisjoint(("body", "content_type", "key", "headers"))


async def page_of(service: Service, call: Call, queue: Queue) -> Answer:
    """One page as JSON, as the call's parameters ask."""
    answer, _ = await page(service, call, queue, ReadQuery.parse(call, queue, max_limit=MAX_LIMIT))
    return answer


async def page(service: Service, call: Call, queue: Queue, params: ReadQuery) -> tuple[Answer, int]:
    """One page as JSON, and the number of its messages that are new to the reader."""
    wanted = params.request(params.spans, params.limit or DEFAULT_LIMIT, service.settings.limits.max_answer_bytes)
    with JsonPage(call, service.settings.limits.max_answer_bytes) as made:
        read = await service.log.read(queue, wanted, made)
        answer = await made.add(read, entries_of(params.columns, queue.name))
        body = made.body()
    service.monitor.delivered(call.identity.counted_as(queue.application), "json", made.rows, answer.size)
    more = any(found.more for _, found in answer.pages)
    corrupt = sum([found.corrupt for _, found in answer.pages])
    cursor = _cursor(queue, params, answer)
    return answer_page(call, body, made.rows, PageEnd(cursor, answer.watermark, more, corrupt))


class PageEnd(NamedTuple):
    """What the headers of a page say."""

    cursor: str
    """The cursor to continue from."""
    watermark: int | None
    """None if no queue was read."""
    more: bool
    """There are more messages than the page has."""
    corrupt: int = 0
    """Messages that were skipped because they do not match their checksum."""


def answer_page(call: Call, body: bytes, rows: int, end: PageEnd) -> tuple[Answer, int]:
    """A page with its headers, and its number of rows.

    If If-None-Match says that the reader has this page, the answer is 304, with no rows.
    """
    tag = f'"{crc32c(body):08x}{len(body):x}.{crc32c(end.cursor.encode()):08x}"'
    headers: Headers = [
        ("content-type", JSON),
        ("queuey-cursor", end.cursor),
        ("queuey-more", "true" if end.more else "false"),
        ("etag", f"W/{tag}"),
    ]
    if end.watermark is not None:
        headers.append(("queuey-watermark", format_timestamp(end.watermark)))
    if end.corrupt:
        headers.append(("queuey-corrupt", str(end.corrupt)))
    known = call.header("if-none-match")
    if known is not None and (known.strip() == "*" or tag in known):
        return Answer(304, b"", headers[1:]), 0
    return Answer(200, body, headers), rows


def stream(service: Service, call: Call, queue: Queue) -> Answer:
    """A stream in the form that Accept asks for.

    It reads the first page before the answer begins, so that an error there becomes a status.
    """
    known = ARROW_COLUMNS if call.accepts(ARROW) else COLUMNS
    params = ReadQuery.parse(call, queue, max_limit=MAX_STREAM_LIMIT, known_columns=known)
    form: ArrowForm | NdjsonForm
    if call.accepts(ARROW):
        check_arrow("accept application/x-ndjson")
        form = ArrowForm(params.columns, queue.name)
    else:
        form = NdjsonForm(params.columns, queue.name)
    watermark = service.log.watermark(queue)
    headers: Headers = [
        ("content-type", form.media_type),
        ("queuey-watermark", format_timestamp(watermark)),
        ("cache-control", "no-store"),
    ]
    progress = _Progress(watermark)
    chunks = _chunks(service, call, queue, params, form, progress)
    begun = [next(chunks), next(chunks)]
    return Answer(200, b"", headers, MadeStream(chain(begun, chunks)), held_bytes=progress.held_bytes(begun))


def _chunks(
    service: Service, call: Call, queue: Queue, params: ReadQuery, form: ArrowForm | NdjsonForm, progress: _Progress
) -> Iterator[Chunk]:
    """The stream, page by page. After an error it ends without its end mark."""
    watermark = progress.watermark
    places: dict[int, MessageId] = {}
    sent, more = 0, False
    yield form.start()
    spans = [(number, span) for number, span in params.spans if 1 <= number <= queue.partitions]
    progress.is_at_end = not spans
    for at, (number, wanted) in enumerate(spans, 1):
        left = params.limit if params.limit is not None else MAX_STREAM_LIMIT
        span = Span(wanted.after, min(wanted.upto, MessageId.last_of(watermark)))
        last: MessageId | None = None
        page_more = True
        ahead: Future[ReadAnswer] | None = None
        while page_more and left:
            answer = (ahead or _begin_page(service, queue, params, number, span, left)).wait()
            ((_, page),) = answer.pages
            page_more, ahead = page.more, None
            progress.read_bytes += answer.size
            progress.is_at_end = at == len(spans) and not (page_more and left > len(page.messages))
            if page.messages:
                last = page.messages[-1].id
                left -= len(page.messages)
                sent += len(page.messages)
                span = _from(last, span, newest_first=params.newest_first)
                service.monitor.delivered(
                    call.identity.counted_as(queue.application), form.media_type, len(page.messages), answer.size
                )
                if service.log.reads_elsewhere and page_more and left:
                    ahead = _begin_page(service, queue, params, number, span, left)
                rows: Iterator[Chunk] = form.rows(page.messages, number)
                del answer, page  # so that no row is held twice while the client is slow
                yield from rows
        more = more or page_more
        places[number] = _place(wanted, last, more=page_more, newest_first=params.newest_first)
    yield form.end(EndMark(sent, format_cursor(queue, Cursor(places, params.every)), more, format_timestamp(watermark)))


def _begin_page(
    service: Service, queue: Queue, params: ReadQuery, number: int, span: Span, left: int
) -> Future[ReadAnswer]:
    """Start reading a page of a stream.

    A store that reads elsewhere works on it while this thread does something else.
    """
    wanted = params.request([(number, span)], min(left, STREAM_ROWS), STREAM_BYTES)
    return start(service.log.read(queue, wanted))
