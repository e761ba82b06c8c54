"""Figures for people: what the console shows of an application and of the server."""

from __future__ import annotations

import heapq
import os
import resource
import shutil
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

import orjson

from queuey._version import __version__
from queuey.api.params import Problems, integer, one_of
from queuey.api.queues import next_link
from queuey.errors import ClockUnsafe, QueueyError
from queuey.http.access import allowed, identify_again
from queuey.http.exchange import EVENTS, Answer, Call, Headers, Target, json_answer
from queuey.ids import TICKS_PER_SECOND, MessageId
from queuey.model import Consistency, PartitionState, Queue
from queuey.monitor.history import FIELDS, KEPT_SECONDS, counted
from queuey.monitor.metrics import BYTES_IN_FLIGHT, REQUESTS_IN_PROGRESS, WAITERS
from queuey.monitor.notable import KEPT, SLOW_SECONDS, NotedCall
from queuey.security.claims import unix_now
from queuey.security.permissions import Permission
from queuey.security.principals import STRANGERS
from queuey.service import Service
from queuey.service.waiting.watch import Watch

__all__ = ["last_requests", "live_of_application", "live_of_server", "of_application", "of_server"]

MAX_ROWS = 100
ROWS = 25
"""Queues in an answer that names no limit."""
MOST_IN_USE = 1000
"""Queues that are looked at where the page is not by name: the last ones that somebody used."""
MAX_PREFIX = 80
BUDGET_SECONDS = 1.0
"""Seconds after which no further queue is counted. A queue that nobody asked for since the server began may have to be
counted message by message, once."""
CHECK_EVENTS = 30
"""Events after which a stream checks its reader again."""


def _prefix(text: str) -> str:
    if len(text) > MAX_PREFIX:
        raise ValueError(f"has more than {MAX_PREFIX} characters")
    return text


async def of_application(service: Service, call: Call, target: Target) -> Answer:
    """A page of queues with their numbers, and what the server counted of the application.

    By name only the queues of the page are looked at, so that an application may have any number of them. In another
    order those that are in use are.
    """
    query, problems = call.query, Problems()
    limit = problems.take("limit", integer(1, MAX_ROWS), query.get("limit"), ROWS)
    prefix = problems.take("prefix", _prefix, query.get("prefix"), "")
    order = problems.take("sort", one_of(*_ORDERS), query.get("sort"), "name")
    problems.check()
    if order == "name":
        found = await _by_name(service, call, target.application, prefix, limit)
    else:
        found = await _in_use(service, target.application, prefix, limit, order)
    content = {
        "status": "ok",
        **_figures(service, target.application),
        "queues": found.rows,
        "complete": found.complete,
        "budget_seconds": BUDGET_SECONDS,
    }
    return json_answer(content, headers=next_link(call, found.following))


class _Rows(NamedTuple):
    rows: Sequence[Mapping[str, Any]]
    complete: bool
    following: str | None = None
    """The first name of the next page."""


async def _by_name(service: Service, call: Call, application: str, prefix: str, limit: int) -> _Rows:
    start = max(call.query.get("offset", ""), prefix)
    found = await service.queues.page(application, start=start, limit=limit + 1)
    queues = [queue for queue in found if queue.name.startswith(prefix)]
    rows = await _rows(service, queues[:limit])
    following = queues[limit].name if len(queues) > limit else None
    return _Rows(rows, all(row["depth"] is not None for row in rows), following)


async def _in_use(service: Service, application: str, prefix: str, limit: int, order: str) -> _Rows:
    rates = service.waiters.append_rates.of(application)
    queues = [one for one in service.queues.in_use(application, MOST_IN_USE) if one.name.startswith(prefix)]
    if order == "rate":
        queues = heapq.nlargest(limit, queues, key=lambda queue: rates.get(queue.name, 0.0))
    rows = [{**row, "rate": round(rates.get(row["queue_name"], 0.0), 3)} for row in await _rows(service, queues)]
    return _Rows(heapq.nlargest(limit, rows, key=_ORDERS[order]), all(row["depth"] is not None for row in rows))


def _age(row: Mapping[str, Any]) -> float:
    """How old the oldest message is, for comparisons."""
    return -float(row["oldest_timestamp"] or "inf")


_ORDERS: Mapping[str, Callable[[Mapping[str, Any]], float]] = {
    "name": lambda row: 0.0,
    "depth": lambda row: row["depth"] or 0,
    "age": _age,
    "rate": lambda row: row["rate"],
}
"""The orders of queues, the greatest first; by name there are pages."""


async def _rows(service: Service, queues: Sequence[Queue]) -> list[dict[str, Any]]:
    """Queues with their numbers, as far as there is time to count."""
    states = await service.queues.inspect_several(queues, BUDGET_SECONDS)
    return [
        {"queue_name": queue.name, "partitions": queue.partitions, "type": str(queue.kind), **_numbers(one)}
        for queue, one in zip(queues, states, strict=True)
    ]


def _numbers(states: Sequence[PartitionState] | None) -> dict[str, Any]:
    if states is None:
        return dict.fromkeys(("depth", "scheduled", "bytes", "oldest_timestamp", "newest_timestamp"))
    return {
        "depth": sum([state.depth for state in states]),
        "scheduled": sum([state.scheduled for state in states]),
        "bytes": sum([state.bytes for state in states]),
        "oldest_timestamp": _timestamp(min([state.oldest for state in states if state.oldest], default=None)),
        "newest_timestamp": _timestamp(max([state.newest for state in states if state.newest], default=None)),
    }


def _timestamp(message_id: MessageId | None) -> str | None:
    return message_id.timestamp if message_id else None


async def of_server(service: Service, call: Call, target: Target) -> Answer:
    """The server as its operator sees it, with the samples of up to an hour, and a page of applications.

    If asked for, with the queues in use that have the most messages, or the oldest one.
    """
    query, problems = call.query, Problems()
    limit = problems.take("limit", integer(1, MAX_ROWS), query.get("limit"), ROWS)
    seconds = problems.take("history", integer(0, KEPT_SECONDS), query.get("history"), 0)
    order = problems.take("sort", one_of("depth", "age"), query.get("sort"), "")
    problems.check()
    names = service.keys.applications
    first = bisect_left(names, query.get("offset", ""))
    page, rest = names[first : first + limit], names[first + limit :]
    beats = await service.heartbeat.servers()
    content = {
        "status": "ok",
        **_figures(service),
        "server": {**_server(service), "disk_free_bytes": _disk_free(service), "name": service.heartbeat.name},
        "nodes": None if (nodes := service.stores.messages.nodes()) is None else [one._asdict() for one in nodes],
        "servers": None if beats is None else [beat._asdict() for beat in beats],
        "history": {"fields": FIELDS, "samples": service.history.last(seconds)},
        "applications": [_figures(service, name) for name in page],
        **(await _worst(service, order, limit) if order else {}),
    }
    return json_answer(content, headers=next_link(call, rest[0] if rest else None))


async def _worst(service: Service, order: str, limit: int) -> Mapping[str, Any]:
    """Queues of all applications, of those that are in use."""
    queues = service.queues.in_use(None, MOST_IN_USE)
    rows = await _rows(service, queues)
    named = [{"application": queue.application, **row} for queue, row in zip(queues, rows, strict=True)]
    is_complete = all(row["depth"] is not None for row in rows)
    return {"queues": heapq.nlargest(limit, named, key=_ORDERS[order]), "complete": is_complete}


async def last_requests(service: Service, call: Call, target: Target) -> Answer:
    """The last requests that were refused, and the last slow ones, newest first."""
    problems = Problems()
    limit = problems.take("limit", integer(1, KEPT), call.query.get("limit"), KEPT)
    problems.check()
    notable = service.notable
    content = {
        "status": "ok",
        "slow_seconds": SLOW_SECONDS,
        "refused": [
            {**_noted(one.call), "status": one.status, "code": one.code, "detail": one.detail}
            for one in islice(reversed([*notable.refused]), limit)
        ],
        "slow": [
            {**_noted(one.call), "status": one.status, "operation": one.operation, "seconds": round(one.seconds, 3)}
            for one in islice(reversed([*notable.slow]), limit)
        ],
    }
    return json_answer(content)


def _noted(call: NotedCall) -> dict[str, Any]:
    return {**call._asdict(), "time": round(call.time, 3)}


def _figures(service: Service, application: str = "") -> dict[str, Any]:
    """What was counted since the server began: of one application, or of all together."""
    named = {"application": application} if application else {}
    counters = counted(service.monitor, application)
    return {**named, "time": round(unix_now(service.clock), 3), "counters": counters}


def _server(service: Service) -> dict[str, Any]:
    """What the event loop may look at: no file system is asked, which may be slow."""
    monitor, messages = service.monitor, service.stores.messages
    try:
        behind = max(service.clock.now_ticks() - messages.watermark(Consistency.STRONG), 0) / TICKS_PER_SECOND
    except ClockUnsafe:
        behind = None
    return {
        "version": __version__,
        "storage": service.settings.storage.backend,
        "problems": service.problems(),
        "warnings": list(service.warnings()),
        "waiters": int(monitor.value(WAITERS)),
        "requests_in_progress": int(monitor.value(REQUESTS_IN_PROGRESS)),
        "bytes_in_flight": int(monitor.value(BYTES_IN_FLIGHT)),
        "watermark_age_seconds": behind,
        "clock_error_seconds": messages.clock_error_seconds(),
        "memory_bytes": _memory_bytes(),
        "processor_seconds": sum(resource.getrusage(resource.RUSAGE_SELF)[:2]),
    }


def _memory_bytes() -> int | None:
    """What the process holds now; None where the system does not say."""
    try:
        with open("/proc/self/statm", "rb") as file:  # noqa: PTH123 - a Path object costs more than the file
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None


def _disk_free(service: Service) -> int | None:
    """Where the embedded store is; None for any other."""
    if service.settings.storage.backend != "sqlite":
        return None
    try:
        return shutil.disk_usage(service.settings.server.data).free
    except OSError:
        return None


# Live


async def live_of_application(service: Service, call: Call, target: Target) -> Answer:
    """An event a second with what was counted of the application."""
    return _live(service, call, target.application)


async def live_of_server(service: Service, call: Call, target: Target) -> Answer:
    """An event a second with what was counted, and the newest sample."""
    return _live(service, call, "")


def _live(service: Service, call: Call, application: str) -> Answer:
    readers = tuple(sorted(call.identity.principals)) or (STRANGERS,)
    watch = service.waiters.watch([], readers, in_thread=call.in_thread)
    headers: Headers = [("content-type", EVENTS), ("cache-control", "no-store"), ("x-accel-buffering", "no")]
    return Answer(200, b"", headers, _FigureStream(service, call, application, watch))


class _FigureStream:
    """See :class:`queuey.http.exchange.BodyStream`. All streams of one name send the same bytes."""

    waits = True

    def __init__(self, service: Service, call: Call, application: str, watch: Watch) -> None:
        self._service, self._call, self._application, self._watch = service, call, application, watch
        self._events = 0

    async def more(self) -> bytes | None:
        """The next event; None once the server stops, or the reader may not read any more."""
        waiters, shared = self._service.waiters, self._service.shared_events
        if self._events:
            await waiters.wait(self._watch, shared.next_second(), whatever_comes=True)
        self._events += 1
        if waiters.ended or (self._events % CHECK_EVENTS == 0 and not await self._may_go_on()):
            return None
        return self._made() if self._events == 1 else shared.event(self._application, self._made)

    def _made(self) -> bytes:
        return b"data: %b\n\n" % orjson.dumps(self._event())

    def _event(self) -> dict[str, Any]:
        service = self._service
        if self._application:
            return _figures(service, self._application)
        newest = next(iter(service.history.last(1)), None)
        server = {name: value for name, value in _server(service).items() if name not in ("version", "storage")}
        sample = None if newest is None else dict(zip(FIELDS, newest, strict=True))
        now = {"time": round(unix_now(service.clock), 3), "counters": service.history.counters}
        return {**now, "server": server, "sample": sample}

    async def _may_go_on(self) -> bool:
        permission = Permission.LIST if self._application else Permission.APPLICATIONS
        try:
            await identify_again(self._service, self._call)
            await allowed(self._service, self._call.identity, permission, self._application, "")
        except QueueyError:
            return False
        return True

    def close(self) -> None:
        """See :class:`queuey.http.exchange.BodyStream`."""
        self._watch.close()
