"""What ``queuey doctor`` learns from a running server, and from the proxy before it. It sends only reading requests."""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Iterator, Mapping
from email.message import Message
from email.utils import parsedate_to_datetime
from http.client import HTTPException
from typing import NamedTuple
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlsplit
from urllib.request import (
    BaseHandler,
    HTTPRedirectHandler,
    HTTPSHandler,
    OpenerDirector,
    ProxyHandler,
    Request,
    build_opener,
)

from queuey._version import __version__
from queuey.cli.doctor_machine import Diagnosis, FindingLevel
from queuey.errors import QueueyError
from queuey.settings.issuers import is_this_machine
from queuey.terminal.options import Server

__all__ = ["server_findings"]

MOST_CLOCK_SECONDS = 2.0
"""The Date header has whole seconds, and an answer takes a moment."""
MOST_BYTES = 1 << 20
STREAM_SECONDS = 20.0
"""An answer that takes longer is none, and an event that takes longer was gathered by a proxy: it is there at once."""


class _Stay(HTTPRedirectHandler):
    """Follows no redirect: the key is for one server."""

    def redirect_request(self, *_: object) -> None:
        return None


class _Reply(NamedTuple):
    status: int
    headers: Mapping[str, str]
    """By lower-case name."""
    body: bytes


class _Asker:
    """Asks one server, by no proxy of the environment. It trusts the authorities that clients trust."""

    def __init__(self, server: Server) -> None:
        from qdo.client.surroundings import trusted_context

        self._server = server
        handlers: list[BaseHandler] = [ProxyHandler({}), _Stay()]
        if server.url.startswith("https:"):
            handlers.append(HTTPSHandler(context=trusted_context(server.url)))
        self._opener: OpenerDirector = build_opener(*handlers)

    def get(self, path: str, headers: Mapping[str, str] | None = None, *, most: int = MOST_BYTES) -> _Reply:
        """:param most: bytes of the body to wait for.
        :raises OSError: no answer, or no whole one.
        """
        # The address is the caller's own, and begins with http or https: Server.client has checked it.
        request = Request(f"{self._server.url.rstrip('/')}{path}", headers=dict(headers or {}))  # noqa: S310
        try:
            return self._reply(request, most)
        except HTTPException as error:
            raise OSError(f"not HTTP: {type(error).__name__}") from error

    def _reply(self, request: Request, most: int) -> _Reply:
        try:
            with self._opener.open(request, timeout=STREAM_SECONDS) as answer:
                return _Reply(answer.status, _by_lower(answer.headers), answer.read(most))
        except HTTPError as error:
            with error:
                return _Reply(error.code, _by_lower(error.headers), error.read(most))


def _by_lower(headers: Message) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def server_findings(server: Server, *, is_expected: bool) -> Iterator[Diagnosis]:
    """What a server at this address, and whatever lies before it, shows.

    :param is_expected: it should run: somebody named its address, or a process serves the store of these settings.
    """
    try:
        server.client().close()
        yield from _way_findings(server.url)
        asker = _Asker(server)
        version = asker.get("/__version__")
        beat = asker.get("/__heartbeat__")
    except QueueyError as error:  # no request can be sent there, or with this key
        mend = "mend --url, --application, --app-key or --token, or the variable that it names"
        yield Diagnosis(FindingLevel.WRONG, "server", str(error), mend)
        return
    except OSError as error:
        yield _unreachable(server.url, error, is_expected=is_expected)
        return
    url = urlsplit(server.url)
    yield from _version_findings(version)
    yield from _heartbeat_findings(beat)
    yield from _time_findings(version)
    is_here = is_this_machine(url.hostname or "")
    if url.scheme == "http" and not is_here:
        yield Diagnosis(
            FindingLevel.WRONG,
            "network",
            f"{server.url} has no TLS: anybody on the network between can read keys and messages",
            "give the server a certificate ([server] tls_cert), or put a proxy with TLS before it (etc/nginx.conf)",
        )
    yield from _proxy_findings(asker, is_here=is_here, is_tls=url.scheme == "https")
    if server.key or server.token:
        yield from _stream_findings(asker, server)


def _way_findings(url: str) -> Iterator[Diagnosis]:
    from qdo.client.surroundings import proxy_for

    if proxy_for(url):
        yield Diagnosis(
            FindingLevel.NOTICE,
            "network",
            f"clients reach {url} through a proxy that the environment names; this command asks without it",
            "let the variable no_proxy name the host, if clients should do so as well",
        )


def _unreachable(url: str, error: Exception, *, is_expected: bool) -> Diagnosis:
    from qdo.client.surroundings import TLS_HINT

    reason = error.reason if isinstance(error, URLError) else error
    if not is_expected and isinstance(reason, ConnectionRefusedError):
        return Diagnosis(FindingLevel.NOTICE, "server", f"no server answers at {url}", "start one: queuey serve")
    if isinstance(reason, ssl.SSLError):
        mend = f"give --url the name that the certificate has, or renew it; {TLS_HINT}"
    else:
        mend = "look at its log, at --url, and at the network between"
    return Diagnosis(FindingLevel.WRONG, "server", f"{url} gives no answer: {reason}", mend)


def _version_findings(answer: _Reply) -> Iterator[Diagnosis]:
    try:
        told = json.loads(answer.body)
        name, version = told["name"], told["version"]
    except (ValueError, LookupError, TypeError, RecursionError):
        yield Diagnosis(
            FindingLevel.WRONG, "server", f"what answers is no Queuey (status {answer.status})", "mend --url"
        )
        return
    if name == "queuey" and version != __version__:
        yield Diagnosis(
            FindingLevel.NOTICE,
            "server",
            f"version {version} runs, and {__version__} is installed here",
            "restart the server, or run the command of its own environment",
        )
    else:
        yield Diagnosis(FindingLevel.OK, "server", f"{name} {version} answers")


def _heartbeat_findings(answer: _Reply) -> Iterator[Diagnosis]:
    if answer.status != 200:
        text = answer.body.decode(errors="replace")[:500]
        yield Diagnosis(FindingLevel.WRONG, "server", f"it cannot store: {text}", "its log has the cause")
    for warning in filter(None, (answer.headers.get("queuey-warnings") or "").split("; ")):
        yield Diagnosis(FindingLevel.NOTICE, "server", warning, "see docs/operations.md")


def _time_findings(answer: _Reply) -> Iterator[Diagnosis]:
    try:
        there = parsedate_to_datetime(answer.headers["date"]).timestamp()
    except (KeyError, TypeError, ValueError):
        return
    off = abs(time.time() - there)
    if off > MOST_CLOCK_SECONDS:
        yield Diagnosis(
            FindingLevel.WRONG,
            "clock",
            f"the server's clock and this machine's differ by {off:.0f} s",
            "run chrony or another NTP service on both",
        )


def _proxy_findings(asker: _Asker, *, is_here: bool, is_tls: bool) -> Iterator[Diagnosis]:
    """What a proxy before the server lets through."""
    try:
        metrics = asker.get("/metrics", most=1)
        cookie = asker.get("/console/sign-in", most=1).headers.get("set-cookie", "") if is_tls else ""
    except OSError as error:
        yield Diagnosis(
            FindingLevel.WRONG, "proxy", f"a request got no answer: {error}", "look at the log of the proxy"
        )
        return
    if metrics.status == 200 and not is_here:
        yield Diagnosis(
            FindingLevel.WRONG,
            "proxy",
            "/metrics answers everybody: it names all applications and their load",
            "set [metrics] token, and refuse /metrics in the proxy (etc/nginx.conf)",
        )
    if cookie and "; secure" not in cookie.lower():
        yield Diagnosis(
            FindingLevel.WRONG,
            "proxy",
            "the console does not know that browsers come by TLS: its cookie may travel without",
            "let the proxy send X-Forwarded-Proto: https (etc/nginx.conf)",
        )


def _stream_findings(asker: _Asker, server: Server) -> Iterator[Diagnosis]:
    """Whether the first event of a stream comes at once: a proxy may gather it."""
    path = f"/v1/{quote(server.application, safe='')}?stats=true"
    credential = f"Bearer {server.token}" if server.token else f"Application {server.key}"
    headers = {"Authorization": credential, "Accept": "text/event-stream"}
    try:
        answer = asker.get(path, headers, most=1)
    except TimeoutError:
        yield Diagnosis(
            FindingLevel.WRONG,
            "proxy",
            f"no event of a stream came within {STREAM_SECONDS:g} s: live readers get nothing, then everything at once",
            "do not let the proxy gather answers (docs/live.md, etc/nginx.conf)",
        )
        return
    except OSError as error:
        yield Diagnosis(FindingLevel.WRONG, "proxy", f"a stream broke: {error}", "look at the log of the proxy")
        return
    if answer.status == 200:
        yield Diagnosis(FindingLevel.OK, "keys", f"the key is good for {server.application}, and streams come through")
    else:
        yield Diagnosis(
            FindingLevel.WRONG,
            "keys",
            f"the key or token is refused for {server.application} with status {answer.status}",
            "look at QUEUEY_APPLICATION and QUEUEY_KEY; 'queuey key ls' lists keys by their labels",
        )
