"""The WSGI application: every route, complete by itself on any WSGI server.

Pyramid maps paths and methods to views, and composes with other Pyramid applications
(``config.include("queuey.server.wsgi")``). Each view calls the pipeline of :mod:`queuey.http.pipeline`, as the shipped
server does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from pyramid.config import Configurator
from pyramid.request import Request
from pyramid.response import Response

from queuey.errors import QueueyError
from queuey.future import run
from queuey.http.exchange import NOT_ASCII, Answer, BodyStream, Call, joined
from queuey.http.face import Operation
from queuey.http.pipeline import Pipeline
from queuey.http.routing import check_path, decode_path
from queuey.server.faces import open_pipeline, routes
from queuey.service import Service
from queuey.service.keys import chosen_key

Environ = dict[str, Any]
StartResponse = Callable[..., Any]


def includeme(config: Configurator) -> None:
    """Routes and views; ``config.registry["queuey.pipeline"]`` must be set."""
    for route in routes():
        methods = (*route.methods, *(("HEAD",) if "GET" in route.methods else ()))
        for suffix in ("", "/"):
            config.add_route(route.name + suffix, route.pattern + suffix)
            config.add_view(serve, route_name=route.name + suffix, request_method=methods)
    config.add_notfound_view(serve)


def serve(request: Request) -> Response:
    """Serve any call, whatever view it was given to. The pipeline refuses what no operation serves."""
    return _served(request.registry["queuey.pipeline"], request.environ)


def _served(pipeline: Pipeline, environ: Environ) -> Response:
    """Open a call, read its body, return its answer."""
    call, opened = open_call(pipeline, environ)
    call.in_thread = True
    call.peer = str(environ.get("REMOTE_ADDR") or "")
    try:
        return _response(_answer(pipeline, call, opened, environ))
    finally:
        pipeline.leave(call)


def _answer(pipeline: Pipeline, call: Call, opened: Operation | Answer, environ: Environ) -> Answer:
    if isinstance(opened, Answer):
        return opened
    if call.length:
        refused = run(pipeline.ask(opened, call)) or pipeline.receive(call, call.length)
        if refused is not None:
            return refused
        call.body = environ["wsgi.input"].read(call.length)
        if len(call.body) < call.length:
            return pipeline.finisher.cut_short(call, len(call.body))
    return run(pipeline.answer(opened, call)) if call.ticket.enter() else pipeline.finisher.full(call)


_OWN_KEYS = frozenset({"CONTENT_TYPE", "CONTENT_LENGTH"})
"""Headers that WSGI names without a prefix."""


def headers_of(environ: Environ) -> dict[str, str]:
    """Request headers of a WSGI environ, by lower-case name.

    Where the WSGI server ends TLS, or knows that a proxy does, they say so as the shipped server's do.
    """
    by_tls = {"x-forwarded-proto": "https"} if environ.get("wsgi.url_scheme") == "https" else {}
    return {
        key.removeprefix("HTTP_").lower().replace("_", "-"): value if value.isascii() else NOT_ASCII
        for key, value in environ.items()
        if key.startswith("HTTP_") or key in _OWN_KEYS
    } | by_tls


def decoded_path(environ: Environ) -> str:
    """The path below the application, decoded here if the server passes the raw one.

    PATH_INFO hides broken escapes. The raw path begins with SCRIPT_NAME, below which the application lies.
    """
    raw = environ.get("RAW_URI") or environ.get("REQUEST_URI")
    if raw:
        path = str(raw).partition("?")[0]
        whole = decode_path(path if path.startswith("/") else "/" + path.partition("://")[2].partition("/")[2])
        return whole.removeprefix(_text(environ, "SCRIPT_NAME"))
    return _text(environ, "PATH_INFO")


def _text(environ: Environ, name: str) -> str:
    """A part of the path, whose bytes WSGI gives as Latin-1."""
    return str(environ.get(name, "")).encode("latin-1", "replace").decode("utf-8", "replace")


def open_call(pipeline: Pipeline, environ: Environ) -> tuple[Call, Operation | Answer]:
    """Open the call of a WSGI request, before its body is read."""
    return pipeline.open(
        environ["REQUEST_METHOD"], decoded_path(environ), environ.get("QUERY_STRING", ""), headers_of(environ)
    )


def _response(answer: Answer) -> Response:
    chunks: Any = [answer.body]
    if answer.stream is not None:
        chunks = WsgiChunks(answer.stream)
    # The WSGI server owns the connection: one that follows PEP 3333 fails if an application sets its headers.
    headers = [(name, value) for name, value in answer.headers if name != "connection"]
    response = _AsItIs(status=answer.status, headerlist=headers, app_iter=chunks)
    response.content_length = answer.length
    return response


class _AsItIs(Response):  # type: ignore[misc]  # Pyramid has no types
    """A response with the headers of its answer.

    WebOb's own makes Location absolute, with the Host header and the scheme that the WSGI server sees. Behind a proxy with
    TLS that is http.
    """

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        start_response(self.status, self.headerlist)
        if environ["REQUEST_METHOD"] != "HEAD":
            body: Iterable[bytes] = self.app_iter
            return body
        if isinstance(self.app_iter, WsgiChunks):
            self.app_iter.close()
        return ()


class WsgiChunks:
    """A stream for WSGI: the thread waits for each chunk, and joins it to one piece.

    The shipped server sends them unjoined.
    """

    def __init__(self, stream: BodyStream) -> None:
        self._stream = stream

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        chunk = run(self._stream.more())
        if chunk is None:
            raise StopIteration
        return joined(chunk)

    def close(self) -> None:
        self._stream.close()


class PathGuard:
    """Serves calls whose path is not UTF-8.

    It stands in front of Pyramid, which fails on them. Most are refused for their path, but an SQS client may ask at any path.
    """

    def __init__(self, application: Callable[[Environ, StartResponse], Iterable[bytes]], pipeline: Pipeline) -> None:
        self._application = application
        self._pipeline = pipeline

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        try:
            check_path(decoded_path(environ))
        except QueueyError:
            served: Iterable[bytes] = _served(self._pipeline, environ)(environ, start_response)
            return served
        return self._application(environ, start_response)


def wsgi_application(pipeline: Pipeline) -> PathGuard:
    """The WSGI application of one pipeline."""
    config = Configurator()
    config.registry["queuey.pipeline"] = pipeline
    config.include(includeme)
    return PathGuard(config.make_wsgi_app(), pipeline)


def make_wsgi_app(global_config: Mapping[str, str], **settings: str) -> PathGuard:
    """Open the service that an ini file or the environment configures.

    For WSGI servers. They show nobody a key, so none is drawn: it comes from the settings, from QUEUEY_KEY or from
    ``queuey key new``.

    :raises ConfigurationError: a setting is wrong, or a store cannot be opened.
    """
    import atexit
    import os

    from queuey.settings import load_settings

    path = global_config.get("__file__") or os.environ.get("QUEUEY_CONFIG")
    first_key = chosen_key(os.environ)
    service = Service.open(load_settings(path, os.environ, {}))
    atexit.register(service.close)
    run(service.start(first_key))
    return wsgi_application(open_pipeline(service))
