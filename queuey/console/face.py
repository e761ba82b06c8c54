"""The face of the console: pages under ``/console``, and a first page for browsers at ``/``.

Pages are Pyramid's, and run in threads. The program is loaded with the first page, so that a server whose console nobody
opens does without it. ``/console/v1/...`` reads v1 with the session of the browser in place of a key, for what pages load
themselves: a stream of figures, new messages.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Mapping
from functools import partial
from html import escape
from typing import TYPE_CHECKING
from urllib.parse import quote

from queuey.console import static
from queuey.console.calls import ROOT, is_console
from queuey.console.sessions import Sessions
from queuey.errors import Forbidden, MethodNotAllowed, NotFound, QueueyError, Unauthenticated
from queuey.http.exchange import EVENTS, JSON, RETRY_AFTER_SECONDS, Answer, Call, Headers, Target
from queuey.http.face import Body, Face, Operation, Runs
from queuey.http.inside import Inside
from queuey.http.routing import check_path
from queuey.security.permissions import ANONYMOUS, Grant, Identity, Permission
from queuey.service import Service

if TYPE_CHECKING:
    from queuey.console.site import Site

__all__ = ["Console"]

_STATIC = f"{ROOT}/static/"
_V1 = f"{ROOT}/v1"
_OPEN = (f"{ROOT}/sign-in", f"{ROOT}/sign-out")
"""Paths that need no session."""
HTML = "text/html; charset=utf-8"
_SHOWN_TYPES = (JSON, EVENTS)


class Console:
    """See :class:`queuey.http.face.Face`."""

    def __init__(self, service: Service, v1: Face) -> None:
        """:param v1: what the pages are made of."""
        self._sessions = Sessions(service)
        self._inside = Inside(service, v1)
        self._v1 = v1
        self._site: Site | None = None
        # Not a right of the table: each call of v1 that a page makes asks for its own.
        self._page = Operation("console", Permission.NONE, self._show)
        # A form takes up to three bytes for each of a message's; v1 looks at the message itself.
        self._change = self._page._replace(body=Body.BATCH)

    def serves(self, call: Call) -> bool:
        """See :func:`queuey.console.calls.is_console`."""
        return is_console(call)

    def resolve(self, call: Call) -> Operation:
        """A static file, a reading call of v1, or a page."""
        path = call.path
        check_path(path)
        reads = call.method in ("GET", "HEAD")
        if path == "/":
            return _WELCOME
        if path.startswith(_STATIC):
            static.check(path.removeprefix(_STATIC))
            return _FILE
        if _is_of_v1(path):
            if not reads:
                raise MethodNotAllowed(headers={"allow": "GET, HEAD"})
            inner, operation = self._inside.open("GET", *_inner_address(call))
            return Operation("console_v1", Permission.NONE, partial(self._read, inner, operation), runs=operation.runs)
        if not (reads or call.method == "POST"):
            raise MethodNotAllowed(headers={"allow": "GET, HEAD, POST"})
        return self._page if reads or path.startswith(_OPEN) else self._change

    def at_hand(self, service: Service, call: Call) -> Identity | None:
        """None: a session is looked at with each request."""
        return None

    def payer(self, service: Service, call: Call) -> Identity:
        """Whoever signed in."""
        if call.identity is not ANONYMOUS:
            return call.identity
        session = self._sessions.of(call.headers)
        if session is None:
            return ANONYMOUS
        if session.token:
            return service.identifier.recall(f"Bearer {session.token}")
        return Identity([Grant(session.principal)]) if session.principal else ANONYMOUS

    def proves_by_head(self, service: Service, call: Call) -> bool:
        """Always: the session is in a header."""
        return True

    def identify(self, service: Service, call: Call) -> Identity:
        """By the session.

        :raises Forbidden: there is none, or it has ended, and only the sign-in does without.
        """
        identity = self._sessions.identity(self._sessions.of(call.headers), call)
        if not (identity.principals or call.path.startswith(_OPEN)):
            raise Forbidden("Sign in first: there is no session, or it has ended.")
        return identity

    def refusal(self, error: QueueyError, call: Call, challenge: str) -> Answer:
        """A page; for a caller without a session the way to the sign-in; in v1's form below ``/console/v1``."""
        if _is_of_v1(call.path):
            return self._v1.refusal(error, call, challenge)
        is_stranger = isinstance(error, Forbidden | Unauthenticated) and not call.identity.principals
        if is_stranger and call.method in ("GET", "HEAD"):
            wanted = f"{call.path}?{call.query_string}" if call.query_string else call.path
            return Answer(303, b"", [("location", f"{ROOT}/sign-in?next={quote(wanted, safe='/')}")])
        headers: Headers = [("content-type", HTML), *static.page_headers(), *error.headers.items()]
        if error.retriable:
            headers.append(("retry-after", str(RETRY_AFTER_SECONDS)))
        return Answer(error.status, _refused(error, call.request_id, is_stranger=is_stranger), headers)

    def form_of_refusal(self, headers: Mapping[str, str]) -> Hashable:
        """It has one form."""
        return None

    async def _show(self, service: Service, call: Call, target: Target) -> Answer:
        """A page. Blocks."""
        return self._whole_site(service).answer(call)

    def _whole_site(self, service: Service) -> Site:
        if self._site is None:
            # Pyramid's own import, of a library that it pins; no news for whoever runs a server.
            warnings.filterwarnings("ignore", message="pkg_resources is deprecated", category=UserWarning)
            from queuey.console.site import Site

            self._site = Site(service, self._sessions, self._inside)
        return self._site

    async def _read(self, inner: Call, operation: Operation, service: Service, call: Call, target: Target) -> Answer:
        session = self._sessions.of(call.headers)
        renew = partial(self._sessions.identity, session, call, again=True)
        answer = await self._inside.serve(call, inner, operation, renew=renew)
        if dict(answer.headers).get("content-type", "").partition(";")[0] not in _SHOWN_TYPES:
            raise NotFound("The console reads JSON and events of v1: ask v1 itself for other forms.")
        answer.headers += [("content-security-policy", "default-src 'none'; frame-ancestors 'none'; sandbox")]
        if "cache-control" not in dict(answer.headers):
            # No header of the request tells a cache that this is for one reader.
            answer.headers.append(("cache-control", "no-store"))
        return answer


def _inner_address(call: Call) -> tuple[str, Mapping[str, str]]:
    """The address and the headers of the call of v1 that a call below ``/console/v1`` stands for."""
    headers = {"accept": EVENTS} if call.accepts(EVENTS) else {}
    if "last-event-id" in call.headers:
        headers["last-event-id"] = call.headers["last-event-id"]
    return f"{call.path.removeprefix(ROOT)}?{call.query_string}", headers


def _is_of_v1(path: str) -> bool:
    return path == _V1 or path.startswith(f"{_V1}/")


def _plain(title: str, content: str) -> bytes:
    """A page that is made without the templates: the server may be full, or nobody signed in."""
    return f"""<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="stylesheet" href="{static.address("console.css")}"><link rel="icon" href="{static.address("icon.svg")}"></head>
<body><main class="narrow"><h1>{title}</h1>{content}</main></body></html>""".encode()


def _refused(error: QueueyError, request_id: str, *, is_stranger: bool) -> bytes:
    """:param is_stranger: a form came without a session: its page still has what was typed, once there is a session."""
    said = f'<p>{escape(str(error))}</p><p class="quiet">Status {error.status}, request {escape(request_id)}.</p>'
    if is_stranger:
        said += (
            f'<p>Nothing was changed. <a href="{ROOT}/sign-in" target="_blank">Sign in in another tab</a>, then go back in '
            "this one: most browsers still have what you typed.</p>"
        )
    return _plain(error.code, f'{said}<p><a href="{ROOT}">To the console</a></p>')


async def _welcome(service: Service, call: Call, target: Target) -> Answer:
    said = f"""<p>This is a Queuey server: a log store over HTTP, with queues, leases and an SQS interface.</p>
<p><a class="button" href="{ROOT}">Open the console</a></p>
<ul><li><a href="/openapi.json">The API, for programs</a></li><li><a href="/__version__">Version</a></li>
<li><a href="/__heartbeat__">Health</a></li></ul>"""
    headers = [("content-type", HTML), ("vary", "accept"), *static.page_headers()]
    return Answer(200, _plain("Queuey", said), headers)


async def _file(service: Service, call: Call, target: Target) -> Answer:
    return static.answer(call.path.removeprefix(_STATIC))


_WELCOME = Operation("console_welcome", Permission.NONE, _welcome, runs=Runs.LOOP, about_server=True)
_FILE = Operation("console_file", Permission.NONE, _file, runs=Runs.LOOP, about_server=True)
