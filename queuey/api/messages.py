"""The messages of a queue: append, read, and access by id."""

from __future__ import annotations

import re
from collections.abc import Sequence

import orjson

from queuey.api.batches import batch_drafts, batch_entries, check_json
from queuey.api.drafts import (
    check_batch,
    check_letters,
    check_partition,
    check_put,
    check_size,
    content_type_of,
    key_of_put,
    raw_draft,
    request_once,
    ttl_of,
)
from queuey.api.forms import append_answer, entries
from queuey.api.headers import has_headers, headers_of_call, http_headers
from queuey.api.json_pages import JsonPage
from queuey.api.live import reading as live
from queuey.api.params import Problems, boolean, latest_due, message_ids
from queuey.api.reading import known_to_reader, page_of, stream
from queuey.errors import InvalidMessageId, InvalidParameter, MessageNotFound, MessageTooLarge
from queuey.http.exchange import JSON, OCTETS, Answer, Call, Headers, Target, json_answer
from queuey.http.face import LARGE_BYTES
from queuey.http.tracing import trace_of, traced_drafts, traced_headers
from queuey.model import AppendRequest, Draft, Location, Message, Overwrite, Page, Queue, bytes_of
from queuey.service import Service
from queuey.service.log import PartitionPage, ReadAnswer
from queuey.settings import Settings

_CREATED: Headers = [("content-type", "application/json")]


async def append_one(service: Service, call: Call, target: Target) -> Answer:
    """Store one raw message, and answer once it is on disk."""
    drafts = [raw_draft(call, target.queue, service.settings, service.clock.now_ticks())]
    placed, headers = await _store(service, call, target.queue, drafts, batch=False)
    return Answer(201, append_answer(placed), headers)


async def append_json(service: Service, call: Call, target: Target) -> Answer:
    """Store one message that says it is JSON, if it is; see :func:`append_one`."""
    if call.body:
        check_json(call.body)
    return await append_one(service, call, target)


async def append_batch(service: Service, call: Call, target: Target) -> Answer:
    """Store a batch that came as JSON, and answer once it is on disk."""
    entries = await batch_entries(call, service.settings)
    if entries is None:
        return await append_one(service, call, target)
    check_batch(call)
    drafts = await batch_drafts(entries, target.queue, service.settings, service.clock.now_ticks())
    placed, headers = await _store(service, call, target.queue, drafts, batch=True)
    return Answer(201, append_answer(placed), headers)


async def append_arrow(service: Service, call: Call, target: Target) -> Answer:
    """Store an Arrow batch, and answer once it is on disk.

    With ``Prefer: return=minimal`` the answer has the number of messages in place of their locations.
    """
    from queuey.api.arrow.drafts import arrow_drafts  # few servers need it

    check_batch(call)
    drafts = arrow_drafts(call, target.queue, service.settings, service.clock.now_ticks())
    placed, headers = await _store(service, call, target.queue, drafts, batch=True)
    if _MINIMAL.search(call.headers.get("prefer", "")):
        headers.append(("preference-applied", "return=minimal"))
        return Answer(201, orjson.dumps({"status": "ok", "stored": len(placed)}), headers)
    return Answer(201, append_answer(placed), headers)


DRAFT_BYTES = 256
"""Bytes that a message of a batch takes until it is stored, beside its body."""
_MINIMAL = re.compile(r"(?:^|[\s,])return=minimal(?:$|[\s,;])")


async def _store(
    service: Service, call: Call, queue: Queue, drafts: Sequence[Draft], *, batch: bool
) -> tuple[Sequence[Location], Headers]:
    """Store the drafts.

    Returns their locations once they are on disk, and the answer's headers.
    """
    check_letters(call, (draft.headers for draft in drafts))
    once, headers = request_once(call), list(_CREATED)
    if service.log.least_ttl_seconds > 1:
        _check_ttls([draft.ttl_seconds for draft in drafts], service.log.least_ttl_seconds, batch=batch)
    if batch:
        call.body = b""  # the drafts hold all of it now
        call.ticket.hold(len(drafts) * DRAFT_BYTES)
    if not drafts:
        return [], headers
    if trace := trace_of(call):
        drafts = traced_drafts(drafts, trace, service.settings.limits.max_body_bytes)
    appended = await service.log.append(AppendRequest(queue, drafts, once, is_bulk=call.length > LARGE_BYTES))
    if appended.repeated:
        headers.append(("idempotency-replayed", "true"))
    else:
        service.monitor.appended(call.identity.counted_as(queue.application), len(drafts), bytes_of(drafts))
    return appended.placed, headers


def _check_ttls(ttls: Sequence[int], least: int, *, batch: bool) -> None:
    """:raises InvalidParameter: a message would expire before any reader may see it (G8)."""
    short = [index for index, ttl in enumerate(ttls) if ttl < least]
    if short:
        text = f"must be at least {least} seconds: readers stay behind the clock by the read delay of this server"
        raise InvalidParameter(problems={f"{index}.ttl" if batch else "ttl": text for index in short})


async def read_page(service: Service, call: Call, target: Target) -> Answer:
    """Messages of one queue in a span: one page as JSON."""
    return await page_of(service, call, await known_to_reader(service, call, target.queue))


async def read_stream(service: Service, call: Call, target: Target) -> Answer:
    """Messages of one queue in a span, as Arrow or lines of JSON.

    It reads the first page before it answers.
    """
    return stream(service, call, await known_to_reader(service, call, target.queue))


async def read_live(service: Service, call: Call, target: Target) -> Answer:
    """Messages of one queue, and those still to come."""
    return await live.read_one(service, call, await known_to_reader(service, call, target.queue))


async def fetch(service: Service, call: Call, target: Target) -> Answer:
    """Messages by id, in the order asked, as many as an answer has room for.

    Messages that do not exist are left out.
    """
    wanted = message_ids(call.below)
    queue = await service.queues.with_partitions(target.queue, max(number for number, _ in wanted))
    raw = call.accepts(OCTETS) or boolean(call.query.get("raw"))
    if raw and len(wanted) != 1:
        raise InvalidMessageId("a raw answer has one message: ask for one id")
    limits = service.settings.limits
    most, largest = limits.max_answer_bytes, limits.max_body_bytes
    with call.ticket.holding(min(len(wanted) * largest, 2 * most)):
        found, more = await service.log.fetch(queue, wanted, max_bytes=most, largest=largest)
    if not raw:
        return await _by_id(service, call, queue, found, more=more)
    if not found:
        raise MessageNotFound
    number, message = found[0]
    service.monitor.delivered(call.identity.counted_as(queue.application), "raw", 1, message.size)
    headers: Headers = [
        ("content-type", message.content_type or OCTETS),
        ("content-disposition", "attachment"),
        ("queuey-message-id", message.id.hex),
        ("queuey-partition", str(number)),
        ("queuey-timestamp", message.id.timestamp),
        *http_headers(message.headers),
    ]
    return Answer(200, message.body, headers)


async def _by_id(
    service: Service, call: Call, queue: Queue, found: Sequence[tuple[int, Message]], *, more: bool
) -> Answer:
    pages = [PartitionPage(number, Page([message], False)) for number, message in found]
    size = sum([message.size for _, message in found])
    with JsonPage(call, service.settings.limits.max_answer_bytes) as made:
        made.count(0, size)
        told = await made.add(ReadAnswer(pages, 0, size), entries)
        body = made.body()
    service.monitor.delivered(call.identity.counted_as(queue.application), "id", made.rows, told.size)
    more = more or made.rows < len(found)
    return Answer(200, body, [("content-type", JSON), ("queuey-more", "true" if more else "false")])


async def put(service: Service, call: Call, target: Target) -> Answer:
    """Write one body under each of these ids, in place of any message there."""
    queue, wanted, problems = target.queue, message_ids(call.below), Problems()
    latest = latest_due(service.clock.now_ticks())
    for number, id_ in wanted:
        if number > queue.partitions:
            raise InvalidMessageId(f"partition {number} is beyond the queue's {queue.partitions}")
        if id_.ticks > latest:
            raise InvalidMessageId(f"the moment of {id_.hex} is more than 366 days from now")
    if not call.body:
        problems.add("body", "Required")
    check_size(call.body, None, service.settings)
    _check_copies(len(call.body), len(wanted), service.settings)
    ttl, content_type = ttl_of(call, problems), content_type_of(call, problems)
    key = key_of_put(call, problems)
    check_put(call, [number for number, _ in wanted], problems)
    headers = headers_of_call(call, problems) if has_headers(call) else None
    problems.check()
    _check_ttls([ttl], service.log.least_ttl_seconds, batch=False)
    check_size(call.body, headers, service.settings)
    check_letters(call, [headers])
    if trace := trace_of(call):
        headers = traced_headers(headers, len(call.body), trace, service.settings.limits.max_body_bytes)
    late = await service.log.put(queue, wanted, Overwrite(call.body, ttl, content_type, key, headers))
    return json_answer({"status": "ok", "late": True} if late else {"status": "ok"})


def _check_copies(size: int, count: int, settings: Settings) -> None:
    """:raises MessageTooLarge: all copies together make the store write more than any other request may."""
    limit = settings.limits.max_request_bytes
    if size * count > limit:
        raise MessageTooLarge(
            f"{size} bytes under {count} ids are {size * count} bytes to store; this server takes {limit} in one request: "
            "name fewer ids"
        )


async def delete(service: Service, call: Call, target: Target) -> Answer:
    """Remove messages by id, whether they exist or not; a scheduled one is cancelled."""
    wanted, problems = message_ids(call.below), Problems()
    check_partition(call, [number for number, _ in wanted], problems)
    problems.check()
    await service.log.delete(target.queue, wanted)
    return json_answer({"status": "ok"})
