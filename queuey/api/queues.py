"""The queues of an application."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import inf
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlencode

import orjson

from queuey.api.conditions import if_match, settings_tag
from queuey.api.fields import check_form, check_names, check_nothing, check_query
from queuey.api.json_fields import JsonFields
from queuey.api.lease_settings import (
    SETTINGS_MEMBERS,
    check_dead_letters,
    check_settings,
    named_settings,
    shown_settings,
)
from queuey.api.params import Problems, boolean, integer, new_queue_name, one_of, principals
from queuey.errors import InvalidParameter
from queuey.future import run
from queuey.http.exchange import JSON, Answer, Call, Chunk, Headers, MadeStream, Target, json_answer
from queuey.ids import EPOCH_TICKS, TICKS_PER_SECOND, MessageId, format_timestamp
from queuey.model import MAX_PARTITIONS, Consistency, Queue, QueueKind, Retention
from queuey.model.lease_groups import NO_DEFAULTS, LeaseDefaults
from queuey.security.permissions import Permission, permits
from queuey.service import Service
from queuey.service.queues import QueueSettings

LEASE_FIELDS = tuple(f"lease_{name}" for name in SETTINGS_MEMBERS)
"""What the lease groups of a queue begin with."""
SETTINGS = ("partitions", "type", "consistency", "principles", "retention", *LEASE_FIELDS)
"""Form fields of a queue."""
_LEASE_TEXTS = ("lease_order", "lease_dead_letter_queue", "lease_paused_reason", "lease_start")
"""Others are JSON, of which a number is a part."""
MAX_LIST = 1_000_000_000
_PAGE = 1000
_MOST_PIECE, _MOST_ENTRY = 1 << 20, 1 << 15
"""Bytes of a later piece of a long list, without its last entry, and of an entry."""
MAX_FIELDS = 100
"""Fields in a form."""
MAX_CONTENT_TYPE = 256
"""Characters of a form's Content-Type, which holds a boundary of up to 70."""


def form_pairs(call: Call) -> list[tuple[str, str]]:
    """Names and values of an urlencoded or multipart form; other bodies have none.

    :raises InvalidParameter: a broken form, or one with too many fields.
    """
    if not call.body:
        return []
    try:
        if call.media_type == "application/x-www-form-urlencoded":
            pairs = parse_qsl(call.body.decode(), keep_blank_values=True, max_num_fields=MAX_FIELDS, errors="strict")
        elif call.media_type == "multipart/form-data":
            pairs = list(_parts(call))
        else:
            pairs = []
    except UnicodeDecodeError as error:
        raise InvalidParameter(problems={"body": "is a form that is not UTF-8"}) from error
    except ValueError as error:
        text = f"is not a form of at most {MAX_FIELDS} fields: {error}"
        raise InvalidParameter(problems={"body": text}) from error
    return pairs


def _parts(call: Call) -> Iterator[tuple[str, str]]:
    """Names and values of a multipart form.

    :raises MultipartError: the form is broken; it is a ValueError.
    """
    from multipart import MultipartError, PushMultipartParser, parse_options_header

    content_type = call.headers["content-type"]
    if len(content_type) > MAX_CONTENT_TYPE:
        raise MultipartError(f"its Content-Type is longer than {MAX_CONTENT_TYPE} characters")
    _, options = parse_options_header(content_type)
    if "boundary" not in options:
        raise MultipartError("its Content-Type names no boundary")
    name, value = "", bytearray()
    with PushMultipartParser(
        options["boundary"], content_length=len(call.body), max_segment_count=MAX_FIELDS, strict=True
    ) as parser:
        for event in parser.parse(call.body):
            if event is None:
                yield name, value.decode()
            elif isinstance(event, bytes | bytearray):
                value += event
            elif event.header("Content-Transfer-Encoding"):
                raise MultipartError("a part has a Content-Transfer-Encoding: send its bytes as they are")
            else:
                name, value = event.name, bytearray()


def _fields(call: Call, known: Sequence[str], problems: Problems) -> dict[str, str]:
    """The form fields of a call that makes or changes a queue.

    An empty value counts as absent, but an empty ``principles`` clears the list, and an empty field of lease groups
    has its own default again.
    """
    pairs = form_pairs(call)
    check_form(call, pairs)
    check_names(pairs, known, problems)
    check_query(call, known, problems)
    return {name: value for name, value in pairs if value or name == "principles" or name in LEASE_FIELDS}


def _settings(service: Service, fields: dict[str, str], problems: Problems, leases: LeaseDefaults) -> QueueSettings:
    """:param leases: what the lease groups of the queue begin with now."""
    take = problems.take
    named = fields.get("principles")
    return QueueSettings(
        partitions=take("partitions", integer(1, MAX_PARTITIONS), fields.get("partitions"), None),
        kind=take("type", _kind, fields.get("type"), None),
        consistency=take("consistency", _consistency, fields.get("consistency"), None),
        principals=() if named is not None and not named.strip(" \t") else take("principles", principals, named, None),
        retention=take("retention", _retention, fields.get("retention"), None),
        leases=_lease_settings(service, fields, problems, leases),
    )


def _lease_settings(
    service: Service, fields: dict[str, str], problems: Problems, leases: LeaseDefaults
) -> Mapping[str, Any] | None:
    """What the lease groups of a queue begin with, if any of it is named."""
    named = {name: text for name, text in fields.items() if name in LEASE_FIELDS}
    given = {name[6:]: text if name in _LEASE_TEXTS else _as_json(text) for name, text in named.items() if text}
    document = JsonFields(given, SETTINGS_MEMBERS, problems, "lease_")
    found = {name[6:]: None for name, text in named.items() if not text} | named_settings(document)
    if found:
        check_settings(document, leases.changed(found).settings(service.leases.default_settings))
    return found or None


def _as_json(text: str) -> Any:
    """A value of JSON, or the text if it is none: that is refused by its field's name."""
    try:
        return orjson.loads(text)
    except ValueError:
        return text


def _shown_leases(service: Service, queue: Queue) -> dict[str, Any]:
    settings = queue.leases.settings(service.leases.default_settings)
    shown = shown_settings(queue.name, settings) | {"start": queue.leases.start}
    return {f"lease_{name}": value for name, value in shown.items()}


def _only_new(text: str) -> bool:
    if text != "*":
        raise ValueError("expected *, which refuses a queue that exists")
    return True


def _kind(text: str) -> QueueKind:
    return QueueKind(one_of(*QueueKind)(text))


def _retention(text: str) -> Retention:
    return Retention(one_of(*Retention)(text))


def _consistency(text: str) -> Consistency:
    return Consistency(one_of(*Consistency)(text))


async def create(service: Service, call: Call, target: Target) -> Answer:
    """Make a queue. Repeating the call gives the stored settings, to a caller that may change the queue."""
    problems = Problems()
    fields = _fields(call, ("queue_name", *SETTINGS), problems)
    name = problems.take("queue_name", new_queue_name, fields.get("queue_name"), None)
    settings = _settings(service, fields, problems, NO_DEFAULTS)
    only_new = problems.take("If-None-Match", _only_new, call.header("if-none-match"), default=False)
    problems.check()
    await _check_leases(service, call, name, settings)
    may_change = permits(Permission.CONFIGURE, call.identity, target.application, name or "", None)
    queue = await service.queues.create(
        target.application, name, settings, only_new=only_new or (name is not None and not may_change)
    )
    return json_answer(
        {
            "status": "ok",
            "queue_name": queue.name,
            "partitions": queue.partitions,
            "type": str(queue.kind),
            "consistency": str(queue.consistency),
            "principles": (queue.principals and fields.get("principles")) or ",".join(queue.principals) or None,
            **({} if settings.retention is None else {"retention": str(queue.retention)}),
            **({} if settings.leases is None else _shown_leases(service, queue)),
        },
        201,
    )


def _created(queue: Queue) -> float:
    return (queue.created_ticks - EPOCH_TICKS) / TICKS_PER_SECOND


async def update(service: Service, call: Call, target: Target) -> Answer:
    """Change the settings that are named, and keep the rest; with If-Match only those that the caller has seen."""
    problems = Problems()
    settings = _settings(service, _fields(call, SETTINGS, problems), problems, target.queue.leases)
    # An empty header names no settings: it does not count as absent.
    is_expected = problems.take("If-Match", if_match, call.headers.get("if-match"), None)
    problems.check()
    await _check_leases(service, call, target.queue.name, settings)
    queue = await service.queues.update(target.queue, settings, is_expected)
    return json_answer(
        {
            "status": "ok",
            "queue_name": queue.name,
            "partitions": queue.partitions,
            "type": str(queue.kind),
            "consistency": str(queue.consistency),
            "created": _created(queue),
            "principles": list(queue.principals),
            **({} if settings.retention is None else {"retention": str(queue.retention)}),
            **({} if settings.leases is None else _shown_leases(service, queue)),
        }
    )


async def _check_leases(service: Service, call: Call, queue: str | None, settings: QueueSettings) -> None:
    if settings.leases is not None:
        await check_dead_letters(
            service, call, queue, NO_DEFAULTS.changed(settings.leases).settings(service.leases.default_settings)
        )


async def delete(service: Service, call: Call, target: Target) -> Answer:
    """Remove a queue with all its messages."""
    check_nothing(call, "this removes the queue with all its messages; to remove some, name their ids in the path")
    await service.queues.delete(target.queue)
    return json_answer({"status": "ok"})


async def list_queues(service: Service, call: Call, target: Target) -> Answer:
    """An application's queues by name.

    Without a limit it gives all, as a stream if they are many.
    """
    query, problems = call.query, Problems()
    limit = problems.take("limit", integer(1, MAX_LIST), query.get("limit"), None)
    problems.check()
    count = boolean(query.get("include_count"))
    details = count or boolean(query.get("details"))
    most = MAX_LIST if limit is None else limit
    listing = _Listing(service, target.application, details, count)
    first = await listing.piece(query.get("offset", ""), min(most, _PAGE))
    if first.following is None or most <= _PAGE:
        headers = [("content-type", JSON), *next_link(call, first.following)]
        return Answer(200, b"".join((_LIST_BEGINS, first.shown, _LIST_ENDS)), headers)
    chunks = MadeStream(_chunks(listing, first, most - first.number))
    held_bytes = max(len(first.shown), _MOST_PIECE + _MOST_ENTRY)
    return Answer(200, b"", [("content-type", JSON)], chunks, held_bytes)


_LIST_BEGINS, _LIST_ENDS = b'{"status":"ok","queues":[', b"]}"


class _Piece(NamedTuple):
    """A part of a list of queues."""

    shown: bytes
    """As JSON, without the brackets."""
    number: int
    following: str | None
    """The name of the next queue, if there is one."""


class _Listing(NamedTuple):
    """The queues of an application, and what is shown of them."""

    service: Service
    application: str
    with_details: bool
    with_count: bool

    async def piece(self, start: str, most: int, most_bytes: float = inf) -> _Piece:
        """Up to ``most`` queues from a name on.

        :param most_bytes: no queue is added to this many bytes.
        """
        page = await _page(self.service, self.application, start, most)
        shown: list[bytes] = []
        size = 0
        for one in page.queues:
            if size >= most_bytes:
                return _Piece(b",".join(shown), len(shown), one.name)
            entry = await _listed(self.service, one, details=self.with_details, count=self.with_count)
            shown.append(orjson.dumps(entry))
            size += len(shown[-1]) + 1
        return _Piece(b",".join(shown), len(shown), page.following)


def _chunks(listing: _Listing, piece: _Piece, left: int) -> Iterator[Chunk]:
    """A list in pieces, as they are needed. While the client takes one, the server holds no other (G17).

    The brackets that close the list are its end mark.

    :param piece: the first one.
    :param left: the most queues behind it.
    """
    yield _LIST_BEGINS, piece.shown
    while piece.following is not None and left:
        most = min(left, _PAGE, 2 * piece.number)  # behind a piece that was cut, few are read in vain
        piece = run(listing.piece(piece.following, most, _MOST_PIECE))
        left -= piece.number
        if piece.number:
            yield b",", piece.shown
    yield _LIST_ENDS


async def list_mine(service: Service, call: Call, target: Target) -> Answer:
    """The queues that name the caller, by name.

    The answer does not say whom else they name.
    """
    query, problems = call.query, Problems()
    limit = problems.take("limit", integer(1, _PAGE), query.get("limit"), _PAGE)
    problems.check()
    details = boolean(query.get("details"))
    principals = call.identity.acting(Permission.MINE, target.application)
    start = query.get("offset", "")
    found = await service.queues.naming(target.application, principals, start=start, limit=limit + 1)
    queues = [queue._replace(principals=()) for queue in found[:limit]]
    following = found[limit].name if len(found) > limit else None
    listed = [await _listed(service, queue, details=details, count=False) for queue in queues]
    return json_answer({"status": "ok", "queues": listed}, headers=next_link(call, following))


async def list_arrivals(service: Service, call: Call, target: Target) -> Answer:
    """The queues with new messages since an earlier answer, for the owner."""
    query, problems = call.query, Problems()
    limit = problems.take("limit", integer(1, _PAGE), query.get("limit"), _PAGE)
    problems.check()
    changed = service.waiters.changed_queues.since(target.application, query.get("cursor"), limit)
    details = boolean(query.get("details"))
    found = [await service.queues.find(target.application, name) for name in changed.names]
    listed = [await _listed(service, queue, details=details, count=False) for queue in found if queue is not None]
    return json_answer(
        {"status": "ok", "queues": listed, "complete": changed.complete},
        headers=[("queuey-cursor", changed.cursor), ("queuey-more", "true" if changed.more else "false")],
    )


class _Page(NamedTuple):
    queues: Sequence[Queue]
    following: str | None
    """The name of the next queue, if there is one."""


async def _page(service: Service, application: str, start: str, limit: int) -> _Page:
    found = await service.queues.page(application, start=start, limit=limit + 1)
    return _Page(found[:limit], found[limit].name if len(found) > limit else None)


def next_link(call: Call, following: str | None) -> Headers:
    """The Link header to the rest of a list, if the list was cut.

    :param following: the name that comes next.
    """
    if following is None:
        return []
    return [("link", f'<{call.path}?{urlencode({**call.query, "offset": following})}>; rel="next"')]


async def _listed(service: Service, queue: Queue, *, details: bool, count: bool) -> dict[str, Any]:
    entry: dict[str, Any] = {"queue_name": queue.name}
    if details:
        entry |= {
            "application": queue.application,
            "created": _created(queue),
            "partitions": queue.partitions,
            "type": str(queue.kind),
            "consistency": str(queue.consistency),
        }
        if queue.principals:
            entry["principles"] = ",".join(queue.principals)
    if count:
        entry["count"] = sum([state.depth for state in await service.queues.inspect(queue)])
    return entry


async def information(service: Service, call: Call, target: Target) -> Answer:
    """One queue, for its owner: settings, and depth, bytes and ends of each partition.

    It is for the owner only, since it names the principals.
    """
    queue = target.queue
    states = await service.queues.inspect(queue)
    rates = service.waiters.append_rates.of_partitions(queue)
    return json_answer(
        {
            "status": "ok",
            "queue_name": queue.name,
            "application": queue.application,
            "uuid": queue.uuid.hex,
            "created": _created(queue),
            "type": str(queue.kind),
            "consistency": str(queue.consistency),
            "retention": str(queue.retention),
            "principles": list(queue.principals),
            "partitions": queue.partitions,
            **_shown_leases(service, queue),
            "depth": sum(state.depth for state in states),
            "scheduled": sum(state.scheduled for state in states),
            "bytes": sum(state.bytes for state in states),
            "watermark": format_timestamp(service.log.watermark(queue)),
            "partition_details": [
                {
                    "partition": number,
                    "depth": state.depth,
                    "scheduled": state.scheduled,
                    "bytes": state.bytes,
                    "rate": None if rates is None else round(rates.get(number, 0.0), 3),
                    **shown_end("oldest", state.oldest),
                    **shown_end("newest", state.newest),
                }
                for number, state in enumerate(states, 1)
            ],
        },
        headers=[("etag", settings_tag(queue))],
    )


def shown_end(name: str, message_id: MessageId | None) -> dict[str, str | None]:
    """A message at an end of something: its id, and its time."""
    return {
        name: message_id.hex if message_id else None,
        f"{name}_timestamp": message_id.timestamp if message_id else None,
    }
