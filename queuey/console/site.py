"""The Pyramid application of the console: its pages, and how they are drawn.

A page is a function from a visit to the values of its template. Each change has a page of its own, which a POST reaches;
:func:`_view` checks that its form comes from a page of the same session before anything else happens.
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Callable
from functools import partial
from io import BytesIO
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from pyramid.config import Configurator
from pyramid.request import Request
from pyramid.response import Response

from queuey._version import __version__
from queuey.console import cells, shown, static, words
from queuey.console.pages import PAGES
from queuey.console.pages.page import ConsolePage, PageAnswer
from queuey.console.providers import Providers
from queuey.console.sessions import COOKIE, Sessions, cookie_header
from queuey.console.visits import Visit
from queuey.errors import NotFound, QueueyError
from queuey.http.exchange import RETRY_AFTER_SECONDS, Answer, Call
from queuey.http.inside import Inside
from queuey.packaged import packaged
from queuey.security.claims import unix_now
from queuey.service import Service

__all__ = ["Site"]

_NONCE_BYTES = 16
_TEMPLATES = "templates/"


class Site:
    """All pages, for one service."""

    def __init__(self, service: Service, sessions: Sessions, inside: Inside) -> None:
        self._visit = partial(Visit, service, sessions, Providers(service, lambda: sessions.seals), inside)
        self._templates = templates(lambda: unix_now(service.clock))
        config = Configurator()
        for page in PAGES:
            config.add_route(page.route, page.path, request_method=page.method)
            config.add_view(partial(self._view, page), route_name=page.route)
        config.add_exception_view(self._refused, context=QueueyError)
        config.add_notfound_view(self._not_found)
        self._router = config.make_wsgi_app()

    def answer(self, call: Call) -> Answer:
        """The page that a call asks for, or a page that says why there is none."""
        with self._router.request_context(_environ(call)) as request:
            request.visit = self._visit(call)
            response = self._router.invoke_request(request)
        # A second Content-Length beside that of the server is an error to some proxies, of nginx from 1.23 on.
        headers = [(name.lower(), text) for name, text in response.headerlist if name != "Content-Length"]
        return Answer(response.status_int, response.body, headers)

    def _view(self, page: ConsolePage, request: Request) -> Response:
        visit: Visit = request.visit
        if page.method == "POST":
            visit.check_form()
        seen = page.show(visit, **request.matchdict)
        return self._drawn(visit, seen)

    def _refused(self, error: QueueyError, request: Request) -> Response:
        visit: Visit = request.visit
        headers = [*error.headers.items()]
        if error.retriable:
            headers.append(("retry-after", str(RETRY_AFTER_SECONDS)))
        return self._drawn(visit, PageAnswer("refused.html", {"error": error}, status=error.status, headers=headers))

    def _not_found(self, request: Request) -> Response:
        return self._refused(NotFound("There is no such page in the console."), request)

    def _drawn(self, visit: Visit, seen: PageAnswer) -> Response:
        nonce = secrets.token_urlsafe(_NONCE_BYTES)
        headers = [*static.page_headers(nonce), *seen.headers]
        if seen.location:
            headers.append(("location", seen.location))
        session = seen.session or (visit.session if visit.is_new else None)
        if session is not None:
            headers.append(("set-cookie", cookie_header(COOKIE, visit.sessions.seal(session), visit.call)))
        if seen.raw is not None:
            kept = [pair for pair in headers if pair[0] != "content-type"]
            return Response(seen.raw, status=seen.status, headerlist=[*kept, ("content-type", seen.media_type)])
        text = ""
        if seen.template:
            template = self._templates.get_template(seen.template)
            text = template.render(visit=visit, nonce=nonce, version=__version__, **seen.values)
        headers.append(("content-type", "text/html; charset=utf-8"))
        return Response(text.encode(), status=seen.status, headerlist=headers)


def templates(now: Callable[[], float]) -> Environment:
    """The templates; everything that a page shows is escaped."""
    made = Environment(
        loader=FunctionLoader(lambda name: packaged("queuey.console", _TEMPLATES + name).decode()),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters |= {
        "size": shown.as_size,
        "when": lambda timestamp: cells.when(timestamp, now()),
        "number": cells.number,
        "bytes": cells.size,
        "shorter": shown.shorter,
        "visibly": shown.visibly,
        "said": words.said,
    }
    made.globals |= {"static": static.address, "served": now}
    return made


def _environ(call: Call) -> dict[str, Any]:
    """What Pyramid finds its view by; the body is the visit's."""
    path = call.path.rstrip("/")
    return {
        "REQUEST_METHOD": call.method,
        "SCRIPT_NAME": "",
        "PATH_INFO": path.encode().decode("latin-1"),
        "QUERY_STRING": "",
        "SERVER_NAME": "console",
        "SERVER_PORT": "80",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.input": BytesIO(),
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
    }
