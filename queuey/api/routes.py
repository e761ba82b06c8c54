"""The table of operations, and the way from a path to one. Both doors read it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import unquote_to_bytes

from queuey.api import applications, messages, offsets, queues, site, survey, tokens
from queuey.api.live import reading as live
from queuey.api.params import boolean
from queuey.errors import BadPath, MethodNotAllowed, NotFound, PathTooLong
from queuey.http.exchange import MAX_ESCAPES, Answer, Call, Target
from queuey.security.permissions import Permission
from queuey.service import Service

MAX_PATH = 4096

Function = Callable[[Service, Call, Target], Coroutine[Any, None, Answer]]


class Operation(NamedTuple):
    """One method of one resource."""

    route: str
    method: str
    permission: Permission
    function: Function
    takes_body: bool = False
    """The body is a message: Content-Length is required."""
    hot: bool = False
    """Served on the event loop where there is one; everything else there by a few threads."""


class Route(NamedTuple):
    """One resource. Every path answers with and without a trailing slash."""

    name: str
    pattern: str


ROUTES = (
    Route("applications", "/v1"),
    Route("application", "/v1/{application}"),
    Route("queue", "/v1/{application}/{queue}"),
    Route("groups", "/v1/{application}/{queue}/offsets"),
    Route("offsets", "/v1/{application}/{queue}/offsets/{group}"),
    Route("messages", "/v1/{application}/{queue}/{ids}"),
    Route("tokens", "/tokens/{application}"),
    Route("heartbeat", "/__heartbeat__"),
    Route("lbheartbeat", "/__lbheartbeat__"),
    Route("version", "/__version__"),
    Route("metrics", "/metrics"),
    Route("openapi", "/openapi.json"),
)
ANY = ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH")
"""The first Queuey's heartbeat answered every method."""

OPERATIONS = (
    Operation("applications", "GET", Permission.APPLICATIONS, applications.list_applications),
    Operation("application", "GET", Permission.LIST, queues.list_queues),
    Operation("application", "POST", Permission.CREATE, queues.create, hot=True),
    Operation("queue", "GET", Permission.VIEW, messages.read_messages, hot=True),
    Operation("queue", "POST", Permission.APPEND, messages.append, takes_body=True, hot=True),
    Operation("queue", "PUT", Permission.CONFIGURE, queues.update),
    Operation("queue", "DELETE", Permission.CONFIGURE, queues.delete),
    Operation("messages", "GET", Permission.VIEW, messages.fetch),
    Operation("messages", "PUT", Permission.APPEND, messages.put, takes_body=True),
    Operation("messages", "DELETE", Permission.DELETE, messages.delete, hot=True),
    Operation("groups", "GET", Permission.VIEW, offsets.list_groups),
    Operation("offsets", "GET", Permission.VIEW, offsets.show, hot=True),
    Operation("offsets", "PUT", Permission.COMMIT, offsets.change, hot=True),
    Operation("offsets", "DELETE", Permission.COMMIT, offsets.forget),
    Operation("tokens", "POST", Permission.MINT, tokens.mint),
    *(Operation("heartbeat", method, Permission.NONE, site.heartbeat) for method in ANY if method != "HEAD"),
    Operation("lbheartbeat", "GET", Permission.NONE, site.alive),
    Operation("version", "GET", Permission.NONE, site.version),
    Operation("metrics", "GET", Permission.NONE, site.metrics),
    Operation("openapi", "GET", Permission.NONE, site.openapi),
)

VARIANTS: Mapping[Function, Mapping[str, Operation]] = {
    messages.read_messages: {
        "info": Operation("queue", "GET", Permission.CONFIGURE, queues.information),
        "survey": Operation("queue", "GET", Permission.VIEW, survey.survey),
    },
    messages.append: {"batch": Operation("queue", "POST", Permission.APPEND, messages.append_arrow, takes_body=True)},
    queues.list_queues: {
        "mine": Operation("application", "GET", Permission.MINE, queues.list_mine),
        "arrivals": Operation("application", "GET", Permission.LIST, queues.list_arrivals),
        "queues": Operation("application", "GET", Permission.NONE, live.read_several, hot=True),
    },
}
"""What a true parameter makes of an operation: ``?info`` asks a queue for its settings in place of its messages, for the
owner, listed or not; ``?survey`` what lies in the spans that a reader asks for; ``?batch`` takes many
messages as Arrow; ``?mine`` an application for the queues that name the caller; ``?arrivals`` for those that got messages; ``?queues=a,b`` for the messages of
these, each of which has its own permissions."""

_BY_ROUTE: dict[str, dict[str, Operation]] = {}
for _operation in OPERATIONS:
    _BY_ROUTE.setdefault(_operation.route, {})[_operation.method] = _operation
_SITE = {route.pattern.strip("/"): route.name for route in ROUTES if "{" not in route.pattern}
_V1 = {1: "application", 2: "queue", 3: "messages"}
_OFFSETS = "offsets"
"""In the place of message ids, of which it is none."""


def decode_path(raw: str) -> str:
    """Percent-escapes decoded: what is no escape stays, bytes that are not UTF-8 become U+FFFD.

    A path of more than 2000 escapes stays as it is, and is refused for them.
    """
    if raw.count("%") > MAX_ESCAPES:
        return raw
    return unquote_to_bytes(raw.encode("latin-1", "replace")).decode("utf-8", "replace")


def check_path(path: str) -> None:
    """Refuse what no resource's path has, once decoded.

    :raises PathTooLong: over 4096 bytes.
    :raises BadPath: a percent sign (left over from a broken escape), a NUL, bytes that were not UTF-8.
    """
    if path.isascii():
        if len(path) > MAX_PATH:
            raise PathTooLong
        if "%" in path or "\0" in path:
            raise BadPath
    elif len(path.encode("utf-8", "replace")) > MAX_PATH:
        raise PathTooLong
    elif not {"%", "\0", "\ufffd"}.isdisjoint(path):
        raise BadPath


def route_of(path: str) -> tuple[str, tuple[str, str, str]]:
    """The route of a decoded path; its application, queue and what it names below it, each empty if there is none.

    :raises NotFound: no resource has this path.

    >>> route_of("/v1/demo/alerts/")
    ('queue', ('demo', 'alerts', ''))
    >>> route_of("/v1/demo/alerts/offsets/mail")
    ('offsets', ('demo', 'alerts', 'mail'))
    """
    first, *names = path[1:].removesuffix("/").split("/")
    if first == "tokens" and len(names) == 1 and names[0]:
        return "tokens", (names[0], "", "")
    if first == "v1" and names[2:3] == [_OFFSETS] and len(names) < 5 and all(names):
        return "groups" if len(names) == 3 else "offsets", (names[0], names[1], "".join(names[3:]))
    if first == "v1" and len(names) in _V1 and all(names):
        application, queue, ids = (*names, "", "")[:3]
        return _V1[len(names)], (application, queue, ids)
    name = _SITE.get("/".join([first, *names]))
    if name is None or not path.startswith("/"):
        raise NotFound
    return name, ("", "", "")


def operation_of(route: str, method: str) -> Operation:
    """The operation of a method; HEAD is GET without the body.

    :raises MethodNotAllowed: with Allow.
    """
    methods = _BY_ROUTE[route]
    operation = methods.get("GET" if method == "HEAD" else method)
    if operation is None:
        allowed = sorted({*methods, *({"HEAD"} if "GET" in methods else ())})
        raise MethodNotAllowed(headers={"allow": ", ".join(allowed)})
    return operation


def variant(operation: Operation, query: Mapping[str, str]) -> Operation:
    """The operation that a call's parameters ask for in place of ``operation``."""
    for parameter, other in VARIANTS.get(operation.function, {}).items():
        given = query.get(parameter)
        if given is not None and (parameter == "queues" or boolean(given)):
            return other
    return operation


@lru_cache(maxsize=1024)
def resolve(method: str, path: str) -> tuple[Operation, tuple[str, str, str]]:
    """From a decoded path to its operation, application, queue and what it names below it.

    :raises BadPath, PathTooLong, NotFound, MethodNotAllowed: as the functions above.
    """
    check_path(path)
    route, names = route_of(path)
    return operation_of(route, method), names
