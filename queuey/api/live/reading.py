"""Reads of messages still to come, from one queue or several.

The answer is a long poll, events or lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from queuey.api.cursors import Cursor, format_several, highest_named, parse_cursor, parse_several
from queuey.api.forms import COLUMNS, Presenter, entries_of
from queuey.api.json_pages import JsonPage
from queuey.api.live.forms import EventForm, LineForm, LiveForm
from queuey.api.live.stream import LiveRead, LiveStream
from queuey.api.params import Problems, boolean, integer, moment, queue_name, words
from queuey.api.reading import DEFAULT_LIMIT, MAX_LIMIT, PageEnd, ReadQuery, answer_page, low, page, wants_bodies
from queuey.errors import CursorLost, Forbidden, InvalidParameter, NotAcceptable, QueueNotFound, TooManyWaiters
from queuey.http.access import allowed, identify_again, queue_again
from queuey.http.exchange import ARROW, EVENTS, NDJSON, Answer, Call, Headers, Target
from queuey.ids import ZERO_ID, MessageId
from queuey.model import PartitionId, Queue, Span
from queuey.security.permissions import Permission
from queuey.security.principals import STRANGERS
from queuey.service import Service
from queuey.service.follow import Follower, Progress
from queuey.service.log import QueueRead
from queuey.service.turns import LOOK_ROWS, Turns
from queuey.service.waiting.watch import Watch

MAX_WAIT_SECONDS = 20
MAX_QUEUES = 100
"""Queues in one request."""
MAX_PARTITIONS_OF_ALL = 200
"""Partitions of all queues in one request together."""


def is_live(call: Call) -> bool:
    """Whether a read asks for messages still to come.

    Its answer may take long, and must hold nothing meanwhile.
    """
    query = call.query
    return "wait" in query or boolean(query.get("follow")) or "queues" in query or call.accepts(EVENTS)


async def read_one(service: Service, call: Call, queue: Queue) -> Answer:
    """One queue."""
    asked = Asked.parse(call)
    if asked.form is None:
        return await _poll(service, call, queue, asked.wait_seconds)
    follower = Follower(
        service.log, Progress(), with_bodies=wants_bodies(asked.columns), skip_corrupt=asked.skip_corrupt
    )
    notes, cursor = b"", None
    if asked.cursor is not None:
        try:
            cursor = parse_cursor(queue, asked.cursor)
        except CursorLost as error:
            said = {"queue": queue.name, "code": error.code, "detail": str(error)}
            notes = asked.form.note("reset", said)
    numbers: Sequence[int] | None
    if cursor is not None:
        numbers = None if cursor.every else list(cursor.places)
        follower.progress = _progress(queue, cursor)
    else:
        params = ReadQuery.parse(call, queue, max_limit=MAX_LIMIT, with_cursor=False, partitions="all")
        numbers = (
            None if params.every else list(dict.fromkeys([n for n, _ in params.spans if 1 <= n <= queue.partitions]))
        )
        follower.progress = Progress(low(asked.since))
    if numbers is not None and not numbers:
        raise InvalidParameter(problems={"partitions": "names none that the queue has: there is nothing to wait for"})
    follower.add(queue, range(1, queue.partitions + 1) if numbers is None else numbers)
    return _stream(service, call, LiveRead(follower, asked.form, numbers, False, asked.until(service), notes))


async def read_several(service: Service, call: Call, target: Target) -> Answer:
    """Several queues of an application in one answer.

    A queue that cannot be read is reported; the others are read.
    """
    asked = Asked.parse(call, several=True)
    found, refused = await _readable(service, call, asked)
    if sum(queue.partitions for queue in found) > MAX_PARTITIONS_OF_ALL:
        raise InvalidParameter(problems={"queues": f"have more than {MAX_PARTITIONS_OF_ALL} partitions together"})
    progress = Progress(low(asked.since)) if asked.cursor is None else parse_several(asked.cursor, found)
    if asked.form is not None and not found:
        return _nothing_to_follow(asked.form, refused)
    if asked.form is None:
        return await _poll_several(service, call, asked, found, refused, progress)
    follower = Follower(service.log, progress, with_bodies=wants_bodies(asked.columns), skip_corrupt=asked.skip_corrupt)
    for queue in found:
        follower.add(queue, range(1, queue.partitions + 1))
    notes = _refused(asked.form, refused)
    return _stream(service, call, LiveRead(follower, asked.form, None, True, asked.until(service), notes))


async def _readable(service: Service, call: Call, asked: Asked) -> tuple[list[Queue], list[dict[str, Any]]]:
    """The queues of a request that its caller may read, and what is said of the others."""
    found: list[Queue] = []
    refused: list[dict[str, Any]] = []
    named, turns = highest_named(asked.cursor or ""), Turns()
    for name in asked.queues:
        await turns.give()
        turns.count(LOOK_ROWS)
        try:
            queue = await allowed(service, call.identity, Permission.VIEW, call.application, name)
        except (Forbidden, QueueNotFound) as error:
            refused.append({"queue": name, "code": error.code, "detail": str(error)})
        else:
            if queue is not None:
                found.append(await service.queues.with_partitions(queue, named.get(queue.uuid.hex, 0)))
    return found, refused


def _refused(form: LiveForm, refused: Sequence[dict[str, Any]]) -> bytes:
    return b"".join([form.note("refused", said) for said in refused])


def _nothing_to_follow(form: LiveForm, refused: Sequence[dict[str, Any]]) -> Answer:
    end = {"rows": 0, "more": False, "retriable": False}
    for said in refused[:1]:
        end |= {"code": said["code"], "detail": said["detail"]}
    return Answer(200, _refused(form, refused) + form.note("end", end), _headers(form))


def _headers(form: LiveForm) -> Headers:
    return [("content-type", form.media_type), ("cache-control", "no-store"), ("x-accel-buffering", "no")]


class Asked(NamedTuple):
    """A live reader's request, parsed."""

    form: LiveForm | None
    """How the answer is written; None for a page of JSON."""
    wait_seconds: int
    """The most messages of a page, and of lines that end with the first messages."""
    ends: bool
    """Lines end with the first messages, or when the time is up."""
    queues: Sequence[str]
    cursor: str | None
    since: MessageId | int | None
    columns: Sequence[str] | None
    limit: int
    skip_corrupt: bool

    def until(self, service: Service) -> float | None:
        """The elapsed time at which the lines end; None if they go on."""
        return service.clock.elapsed() + self.wait_seconds if self.ends else None

    @classmethod
    def parse(cls, call: Call, *, several: bool = False) -> Asked:
        """:raises InvalidParameter: it names every wrong field."""
        query, problems = call.query, Problems()
        take, get = problems.take, query.get
        wait = take("wait", integer(0, MAX_WAIT_SECONDS), get("wait"), 0)
        follow = boolean(get("follow"))
        columns = take("columns", lambda text: words(text, COLUMNS), get("columns"), None)
        no_names: list[str] = []
        queues = take("queues", _names, get("queues"), no_names) if several else no_names
        form: LiveForm | None = None
        if call.accepts(EVENTS):
            form = EventForm(columns, several=several)
        elif call.accepts(NDJSON):
            form = LineForm(columns, several=several)
        elif call.accepts(ARROW):
            raise NotAcceptable("Arrow has no live form: accept application/x-ndjson or text/event-stream")
        endless = isinstance(form, EventForm) or follow
        _check_together(call, problems, endless=endless, has_form=form is not None, several=several)
        limit = take("limit", integer(1, MAX_LIMIT if several else DEFAULT_LIMIT), get("limit"), DEFAULT_LIMIT)
        last = call.header("last-event-id") if isinstance(form, EventForm) else None
        since = take("since", moment, get("since"), None)
        problems.check()
        if last is not None:  # a browser sends Last-Event-ID along with its first parameters
            return cls(form, wait, not endless, queues, last, None, columns, limit, boolean(get("skip_corrupt")))
        return cls(form, wait, not endless, queues, get("cursor"), since, columns, limit, boolean(get("skip_corrupt")))


def _check_together(call: Call, problems: Problems, *, endless: bool, has_form: bool, several: bool) -> None:
    """Note parameters that do not fit a read of messages still to come."""
    query = call.query
    if query.get("order", "ascending") != "ascending":
        problems.add("order", "what is still to come is read ascending")
    if "until" in query:
        problems.add("until", "what is still to come has no end: give none")
    if endless and not has_form:
        problems.add("follow", "a stream without end is text/event-stream or application/x-ndjson: accept one of them")
    if endless and "wait" in query:
        problems.add("wait", "a stream without end waits by itself: give none")
    if has_form and "limit" in query:
        problems.add("limit", "a live stream has none: end it when you have enough")
    if several and query.get("partitions", "all") != "all":
        problems.add("partitions", "several queues are read in all of their partitions: give none")
    if "cursor" in query and ("since" in query or (not several and "partitions" in query)):
        problems.add("cursor", "says where to go on in every partition: give no since and no partitions beside it")


def _names(text: str) -> list[str]:
    names = list(dict.fromkeys(text.split(",")))
    if len(names) > MAX_QUEUES:
        raise ValueError(f"more than {MAX_QUEUES} queues")
    return [queue_name(name) for name in names]


def _progress(queue: Queue, cursor: Cursor) -> Progress:
    base = min(cursor.places.values(), default=ZERO_ID)
    return Progress(base, {queue.partition(number): at for number, at in cursor.places.items() if at > base})


def _stream(service: Service, call: Call, following: LiveRead) -> Answer:
    places = [(queue, number) for (_, number), queue in following.follower.partitions.items()]
    stream = LiveStream(service, call, _watch(service, call, places), following)
    return Answer(200, b"", _headers(following.form), stream)


# Long polls


def _watch(service: Service, call: Call, places: Sequence[tuple[Queue, int]]) -> Watch:
    queue = places[0][0]
    proven = call.identity.acting(Permission.VIEW, queue.application, queue.name)
    readers = tuple(sorted(proven)) or (STRANGERS,)
    return service.waiters.watch(places, readers, in_thread=call.in_thread)


def _not_waited(answer: Answer) -> Answer:
    answer.headers += [("queuey-wait", "refused"), ("retry-after", "1")]
    return answer


async def _poll(service: Service, call: Call, queue: Queue, seconds: int) -> Answer:
    params = ReadQuery.parse(call, queue, max_limit=DEFAULT_LIMIT, partitions="all")
    answer, rows = await page(service, call, queue, params)
    if rows or not seconds:
        return answer
    numbers = range(1, queue.partitions + 1) if params.every else [number for number, _ in params.spans]
    places = [(queue, number) for number in numbers if 1 <= number <= queue.partitions]
    if not places:
        return answer
    try:
        watch = _watch(service, call, places)
    except TooManyWaiters as refused:
        if refused.whose not in ("server", "threads"):
            raise
        return _not_waited(answer)
    until = service.clock.elapsed() + seconds
    with watch:
        while True:
            watch.take_events()
            await identify_again(service, call)
            before, queue = queue.partitions, await queue_again(service, call, queue, Permission.VIEW)
            if params.every and queue.partitions > before:
                params = ReadQuery.parse(call, queue, max_limit=DEFAULT_LIMIT, partitions="all")
                for number in range(before + 1, queue.partitions + 1):
                    service.waiters.add(watch, queue, number)
            answer, rows = await page(service, call, queue, params)
            if rows or service.waiters.ended or call.is_left or service.clock.elapsed() >= until:
                return answer
            with call.ticket.waiting():
                await watch.wait(until)


async def _poll_several(
    service: Service,
    call: Call,
    asked: Asked,
    queues: Sequence[Queue],
    refused: Sequence[dict[str, Any]],
    progress: Progress,
) -> Answer:
    answer, rows = await _page_of_several(service, call, asked, queues, refused, progress)
    if rows or not asked.wait_seconds or not queues or refused:
        return answer  # a refusal is reported at once
    try:
        watch = _watch(service, call, [(queue, n) for queue in queues for n in range(1, queue.partitions + 1)])
    except TooManyWaiters as error:
        if error.whose not in ("server", "threads"):
            raise
        return _not_waited(answer)
    until, watched = service.clock.elapsed() + asked.wait_seconds, {queue.uuid for queue in queues}
    with watch:
        while True:
            _, invalidated = watch.take_events()
            await identify_again(service, call)
            found, refused = await _readable(service, call, asked)
            queues = [queue for queue in found if queue.uuid in watched]
            answer, rows = await _page_of_several(service, call, asked, queues, refused, progress)
            is_over = service.waiters.ended or call.is_left or service.clock.elapsed() >= until
            if rows or refused or invalidated or is_over:
                return answer  # the next request reads a queue that was made anew
            with call.ticket.waiting():
                await watch.wait(until)


async def _page_of_several(
    service: Service,
    call: Call,
    asked: Asked,
    queues: Sequence[Queue],
    refused: Sequence[dict[str, Any]],
    since: Progress,
) -> tuple[Answer, int]:
    """A page of each partition, as far as there is room."""
    progress = Progress(since.base, since.apart)
    more = False
    watermark: int | None = None
    columns = None if asked.columns is None else (*asked.columns, "queue")
    with JsonPage(call, service.settings.limits.max_answer_bytes) as made:
        for queue in queues:
            if made.room <= 0:
                more = True
                break
            spans = [(number, Span(progress.at(queue.partition(number)))) for number in range(1, queue.partitions + 1)]
            request = QueueRead(
                spans,
                asked.limit,
                max_bytes=made.room,
                with_bodies=wants_bodies(asked.columns),
                skip_corrupt=asked.skip_corrupt,
            )
            answer = await made.add(await service.log.read(queue, request, made), _named(queue, columns))
            watermark = answer.watermark if watermark is None else min(watermark, answer.watermark)
            for number, found in answer.pages:
                more = more or found.more
                if found.messages:
                    progress.set(PartitionId(queue.uuid, number), found.messages[-1].id)
            rows = sum([len(found.messages) for _, found in answer.pages])
            service.monitor.delivered(call.identity.counted_as(queue.application), "json", rows, answer.size)
        body = made.body(refused=list(refused))
    if watermark is not None and not more:
        progress.complete(MessageId.last_of(watermark))
    return answer_page(call, body, made.rows, PageEnd(format_several(queues, progress), watermark, more))


def _named(queue: Queue, columns: Sequence[str] | None) -> Presenter:
    """A presenter whose entries name their queue."""
    present = entries_of(columns, queue.name)
    return lambda messages, number: [{"queue": queue.name, **entry} for entry in present(messages, number)]
