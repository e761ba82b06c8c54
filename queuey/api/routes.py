"""The table of v1: what each method of each path does, and where it runs."""

from __future__ import annotations

from queuey.api import (
    access,
    applications,
    lease_groups,
    leases,
    messages,
    offsets,
    queues,
    redrive,
    scheduled,
    site,
    stats,
    survey,
    tasks,
    tokens,
)
from queuey.api.arrow.answers import ArrowForm
from queuey.api.batches import is_batch
from queuey.api.live import reading as live
from queuey.api.params import boolean
from queuey.http.exchange import ARROW, BATCH_JSON, EVENTS, JSON, NDJSON, Call
from queuey.http.face import LARGE_BYTES, Body, Function, Operation, Runs
from queuey.http.routing import Choice, Route, Routes
from queuey.security.permissions import Permission
from queuey.service import Service

__all__ = ["ROUTES"]

_ANY = ("GET", "POST", "PUT", "DELETE", "OPTIONS", "PATCH")
"""The first Queuey's heartbeat answered every method."""

LOOP_ROWS = 100
"""Messages of a page that the event loop may read from each partition."""
LOOP_PARTITIONS = 16
"""Partitions of a page that the event loop may read. Reading one whose pages are not in memory waits for the disk."""


def _has_many(call: Call) -> bool:
    limit = call.query.get("limit", "")
    return len(limit) > 2 and limit != str(LOOP_ROWS)


def _is_of_few(service: Service, call: Call) -> bool:
    """Whether all partitions of a queue are few; its settings are at hand if it was asked for lately."""
    if call.query.get("partitions") != "all" or _has_many(call):
        return False
    queue = service.queues.cached(call.application, call.queue)
    return queue is not None and queue.partitions <= LOOP_PARTITIONS


READ_PAGE = Operation("queue", Permission.VIEW, messages.read_page, runs=Runs.LOOP)
READ_LARGE_PAGE = READ_PAGE._replace(runs=Runs.READER, is_light=_is_of_few)
READ_STREAM = Operation("queue", Permission.VIEW, messages.read_stream)
READ_LIVE = Operation("queue", Permission.VIEW, messages.read_live, runs=Runs.LOOP)
READ_SEVERAL = Operation("application", Permission.NONE, live.read_several, runs=Runs.LOOP)
"""The caller needs no permission here: each queue that the call names has its own."""
INFORMATION = Operation("queue", Permission.CONFIGURE, queues.information)
"""For the owner only, even if the caller may list queues."""
SCHEDULED = INFORMATION._replace(function=scheduled.list_scheduled)
SURVEY = Operation("queue", Permission.VIEW, survey.survey)
RIGHTS = Operation("queue", Permission.CONFIGURE, access.show_rights, runs=Runs.LOOP)

APPEND_ONE = Operation("queue", Permission.APPEND, messages.append_one, Body.MESSAGE, Runs.LOOP, counts_refusals=True)
APPEND_BATCH = Operation(
    "queue", Permission.APPEND, messages.append_batch, Body.BATCH, Runs.BATCH, counts_refusals=True
)
_APPEND_DOCUMENT = APPEND_ONE._replace(function=messages.append_json)
APPEND_JSON = APPEND_BATCH._replace(by_body=lambda call: APPEND_BATCH if is_batch(call.body) else _APPEND_DOCUMENT)
"""A batch in the form of 2012, or one message: only the body decides."""
APPEND_ARROW = Operation("queue", Permission.APPEND, messages.append_arrow, Body.BATCH, counts_refusals=True)

CREATE_QUEUE = Operation("application", Permission.CREATE, queues.create, runs=Runs.LOOP)
LIST_QUEUES = Operation("application", Permission.LIST, queues.list_queues)
LIST_MINE = Operation("application", Permission.MINE, queues.list_mine)
LIST_ARRIVALS = Operation("application", Permission.LIST, queues.list_arrivals)
SHOW_STATS = Operation("application", Permission.LIST, stats.of_application)
LIST_KEYS = Operation("application", Permission.CONFIGURE, access.list_keys, runs=Runs.LOOP)
FOLLOW_STATS = SHOW_STATS._replace(function=stats.live_of_application, runs=Runs.LOOP)
LIST_APPLICATIONS = Operation("applications", Permission.APPLICATIONS, applications.list_applications)
LIST_SETTINGS = LIST_APPLICATIONS._replace(function=access.list_settings)
LIST_REQUESTS = LIST_APPLICATIONS._replace(function=stats.last_requests, runs=Runs.LOOP)
SHOW_SERVER = LIST_APPLICATIONS._replace(function=stats.of_server)
FOLLOW_SERVER = LIST_APPLICATIONS._replace(function=stats.live_of_server, runs=Runs.LOOP)


def _asks_for(call: Call, parameter: str) -> bool:
    given = call.query.get(parameter)
    return given is not None and boolean(given)


def _read(call: Call) -> Operation:
    """The operation of a GET of a queue.

    It gives settings, spans, rights, what is not due yet, messages still to come, a stream, or one page.
    """
    if call.query_string:
        if _asks_for(call, "info"):
            return INFORMATION
        if _asks_for(call, "survey"):
            return SURVEY
        if "rights" in call.query:
            return RIGHTS
        if _asks_for(call, "scheduled"):
            return SCHEDULED
    if live.is_live(call):
        return READ_LIVE
    if call.accepts(ARROW) or call.accepts(NDJSON):
        return READ_STREAM
    return READ_LARGE_PAGE if call.query_string and _is_large(call) else READ_PAGE


def _is_large(call: Call) -> bool:
    """Whether a page may keep the event loop for long: it has many messages, or looks at many partitions."""
    partitions = call.query.get("partitions", "")
    return partitions == "all" or partitions.count(",") >= LOOP_PARTITIONS or _has_many(call)


_APPENDS = {BATCH_JSON: APPEND_BATCH, JSON: APPEND_JSON}


def _append(call: Call) -> Operation:
    """The operation of a POST to a queue.

    It appends an Arrow batch, a JSON batch, or one message.
    """
    if call.query_string and _asks_for(call, "batch"):
        return APPEND_ARROW
    return _APPENDS.get(call.media_type, APPEND_ONE)


def _list(call: Call) -> Operation:
    """The operation of a GET of an application.

    It gives messages of several queues, the caller's queues, arrivals, figures, keys, or all queues.
    """
    if not call.query_string:
        return LIST_QUEUES
    if _asks_for(call, "mine"):
        return LIST_MINE
    if _asks_for(call, "arrivals"):
        return LIST_ARRIVALS
    if _asks_for(call, "stats"):
        return FOLLOW_STATS if call.accepts(EVENTS) else SHOW_STATS
    if _asks_for(call, "keys"):
        return LIST_KEYS
    return READ_SEVERAL if "queues" in call.query else LIST_QUEUES


def _list_applications(call: Call) -> Operation:
    """The operation of a GET of ``/v1``: the applications, or figures, settings or last requests of the server."""
    if call.query_string and _asks_for(call, "stats"):
        return FOLLOW_SERVER if call.accepts(EVENTS) else SHOW_SERVER
    if call.query_string and _asks_for(call, "settings"):
        return LIST_SETTINGS
    if call.query_string and _asks_for(call, "requests"):
        return LIST_REQUESTS
    return LIST_APPLICATIONS


def _site(name: str, function: Function) -> Operation:
    """An operation of the server about itself.

    It never waits for a thread behind others.
    """
    return Operation(name, Permission.NONE, function, runs=Runs.LOOP, about_server=True)


_OFFSETS: dict[str, Choice] = {
    "GET": Operation("offsets", Permission.VIEW, offsets.show, runs=Runs.LOOP),
    "PUT": Operation("offsets", Permission.COMMIT, offsets.change, runs=Runs.LOOP),
    "DELETE": Operation("offsets", Permission.COMMIT, offsets.forget),
}
STEP_LEASES = Operation("leases", Permission.RECEIVE, leases.step, Body.BATCH, Runs.BATCH)
STEP_SEVERAL = STEP_LEASES._replace(permission=Permission.NONE, function=leases.step_several)
"""The caller needs no permission here: each queue that the body names has its own."""
_IN_ARROW = {
    step: step._replace(runs=Runs.THREAD, is_light=lambda _, call: ArrowForm.is_loaded and call.length <= LARGE_BYTES)
    for step in (STEP_LEASES, STEP_SEVERAL)
}
"""The same with an answer in Arrow. The first one loads Arrow, which takes longer than a turn of the event loop may."""


def _step_of(call: Call) -> Operation:
    """The operation that settles, appends and receives, in one queue or in several."""
    step = STEP_LEASES if call.queue else STEP_SEVERAL
    return _IN_ARROW[step] if call.accepts(ARROW) else step


LEASE_GROUP = Operation("leases", Permission.VIEW, lease_groups.show)
HELD_MESSAGES = Operation("leases", Permission.RECEIVE, lease_groups.show_held)
"""Not for all readers: it names the receivers."""
_LEASES: dict[str, Choice] = {
    "GET": lambda call: HELD_MESSAGES if _asks_for(call, "leased") else LEASE_GROUP,
    "POST": _step_of,
    "PUT": Operation("leases", Permission.CONFIGURE, lease_groups.change),
    "DELETE": Operation("leases", Permission.CONFIGURE, lease_groups.forget),
}
_MESSAGES: dict[str, Choice] = {
    "GET": Operation("messages", Permission.VIEW, messages.fetch),
    "PUT": Operation("messages", Permission.APPEND, messages.put, Body.MESSAGE),
    "DELETE": Operation("messages", Permission.DELETE, messages.delete, runs=Runs.LOOP),
}

ROUTES = Routes(
    (
        Route(
            "applications",
            "/v1",
            {"GET": _list_applications},
        ),
        Route(
            "application",
            "/v1/{application}",
            {"GET": _list, "POST": lambda call: _step_of(call) if "receive" in call.query else CREATE_QUEUE},
        ),
        Route(
            "queue",
            "/v1/{application}/{queue}",
            {
                "GET": _read,
                "POST": _append,
                "PUT": Operation("queue", Permission.CONFIGURE, queues.update),
                "DELETE": Operation("queue", Permission.CONFIGURE, queues.delete),
            },
        ),
        # "offsets" stands where message ids stand, and is none.
        Route(
            "groups",
            "/v1/{application}/{queue}/offsets",
            {"GET": Operation("groups", Permission.VIEW, offsets.list_groups)},
        ),
        Route("offsets", "/v1/{application}/{queue}/offsets/{group}", _OFFSETS),
        Route(
            "lease_groups",
            "/v1/{application}/{queue}/leases",
            {"GET": Operation("lease_groups", Permission.VIEW, lease_groups.list_groups)},
        ),
        Route("leases", "/v1/{application}/{queue}/leases/{group}", _LEASES),
        Route(
            "lease_reset",
            "/v1/{application}/{queue}/leases/{group}/reset",
            {"POST": Operation("lease_reset", Permission.CONFIGURE, lease_groups.reset)},
        ),
        Route(
            "redrive",
            "/v1/{application}/{queue}/leases/{group}/redrive",
            {
                "GET": Operation("redrive", Permission.CONFIGURE, redrive.show),
                "POST": Operation("redrive", Permission.CONFIGURE, redrive.redrive),
                "DELETE": Operation("redrive", Permission.CONFIGURE, redrive.cancel),
            },
        ),
        # "messages" and "tasks" stand where message ids stand too.
        Route(
            "purge",
            "/v1/{application}/{queue}/messages",
            {"DELETE": Operation("purge", Permission.CONFIGURE, tasks.purge)},
        ),
        Route(
            "tasks",
            "/v1/{application}/{queue}/tasks",
            {"GET": Operation("tasks", Permission.CONFIGURE, tasks.list_tasks)},
        ),
        Route(
            "task",
            "/v1/{application}/{queue}/tasks/{task}",
            {
                "GET": Operation("task", Permission.CONFIGURE, tasks.show),
                "DELETE": Operation("task", Permission.CONFIGURE, tasks.cancel),
            },
        ),
        Route("messages", "/v1/{application}/{queue}/{ids}", _MESSAGES),
        Route("tokens", "/tokens/{application}", {"POST": Operation("tokens", Permission.MINT, tokens.mint)}),
        Route("heartbeat", "/__heartbeat__", dict.fromkeys(_ANY, _site("heartbeat", site.heartbeat))),
        Route("lbheartbeat", "/__lbheartbeat__", {"GET": _site("lbheartbeat", site.alive)}),
        Route("version", "/__version__", {"GET": _site("version", site.version)}),
        Route("metrics", "/metrics", {"GET": _site("metrics", site.metrics)}),
        Route("openapi", "/openapi.json", {"GET": _site("openapi", site.openapi)}),
    )
)
