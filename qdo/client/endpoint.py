"""Requests that are repeated only where that is safe.

A request without an answer may have been carried out. It is sent again if carrying it out twice is the same as once;
otherwise the caller gets :class:`~queuey.errors.OutcomeUnknown`. A request that was refused before anything was stored
(429, 503), or that never left this machine, is sent again in any case.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping
from numbers import Number
from typing import Any, NamedTuple, Self, TypeVar
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from urllib3.exceptions import InvalidHeader, LocationParseError, MaxRetryError, ProtocolError
from urllib3.util import parse_url
from urllib3.util.retry import Retry

from qdo.client.refusals import failure_of, last_word
from qdo.client.steps import Items, Listing, NoAnswer, Pause, Reply, Request, Steps
from qdo.client.wire import leads_elsewhere
from queuey.contexts import DEFAULT_APPLICATION, context_in_force
from queuey.errors import BadRequest, ConfigurationError, InvalidApplicationKey, InvalidParameter, InvalidToken

__all__ = ["MAX_PAUSE_SECONDS", "Addressed", "Endpoint", "Named"]

T = TypeVar("T")

MAX_PAUSE_SECONDS = 30.0
"""Of one pause, whatever Retry-After asks for."""

BROKEN_PAUSE_SECONDS = 0.02
"""The longest pause after a connection that broke: a network that loses answers loses single ones."""
_BREAKS = 3
"""Connections that break one after the other on a bad network. If more do, as at a proxy whose server has gone, the
pauses grow as they do where no connection is found."""

_URL = re.compile(r"https?://[^/?#\s@]+(/[^?#\s]*)?")
_NEXT = re.compile(r'<([^>]*)>\s*;\s*rel="?next"?')
MOST_TIMEOUT_SECONDS = 31_536_000
"""A year. Sockets take no time of any length."""
_UNSENDABLE = re.compile(r"[^\t\x20-\x7e]|^[ \t]|[ \t]$")
"""In the value of a header. Whatever reads it drops blanks at its ends."""
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


def _is_address(url: str) -> bool:
    """Whether the libraries below can ask there.

    >>> [_is_address(f"http://{host}") for host in ("a", "[::1]:80", "a:65535", "a:65536", "a:b", ":5000", "[::1", "a..b")]
    [True, True, True, False, False, False, False, False]
    """
    if not _URL.fullmatch(url):
        return False
    try:
        host = parse_url(url).host
        (host or "").encode("idna")
    except (ValueError, LocationParseError):
        return False
    return bool(host)


class Named(NamedTuple):
    """A server, an application, and the identity to ask with."""

    url: str
    application: str
    key: str | None
    token: str | None

    @classmethod
    def of(cls, url: str | None, application: str | None, key: str | None, token: str | None) -> Named:
        """What is given. Without a URL the rest is that of :func:`queuey.contexts.context_in_force`.

        With a URL no key of the environment or of a context is sent there.

        :raises ConfigurationError: no application can have this name: it is no text, or would make another path.
        """
        if not isinstance(application, str | None):
            raise ConfigurationError(f"application is a {type(application).__name__}: expected a text")
        if application and leads_elsewhere(application):
            raise ConfigurationError(f"{application!r} is no name of an application")
        if url is not None:
            return cls(url, application or DEFAULT_APPLICATION, key, token)
        found = context_in_force()
        if key is None and token is None:
            key, token = found.key, found.token
        return cls(found.url, application or found.application, key, token)


class Endpoint:
    """One server and one identity, and how requests to them are made and repeated."""

    def __init__(
        self, url: str, key: str | None, token: str | None = None, *, timeout_seconds: float, retries: int
    ) -> None:
        """:param token: takes the place of the key.
        :raises ConfigurationError: ``url`` is no address of a server, ``timeout_seconds`` is no time that can be waited, or
            ``retries`` is no number of times.
        :raises InvalidApplicationKey, InvalidToken: a header cannot carry it.
        """
        for name, text in (("url", url), ("key", key), ("token", token)):
            if not isinstance(text, str | None):
                raise ConfigurationError(f"{name} is a {type(text).__name__}: expected a text")
        if "@" in url:
            raise ConfigurationError("the address of a server has no user name in it: give a key or a token")
        if not _is_address(url):
            raise ConfigurationError(f"{url!r} is no address of a server: expected one such as http://127.0.0.1:5000")
        if key is not None and not (key.isascii() and key.isprintable()):
            raise InvalidApplicationKey("The application key has characters that no key has.")
        if token is not None and not (token.isascii() and token.isprintable()):
            raise InvalidToken("The token has characters that no token has.")
        is_number = isinstance(timeout_seconds, int | float)
        if not is_number or not 0 < timeout_seconds <= MOST_TIMEOUT_SECONDS:  # NaN is neither
            raise ConfigurationError(
                f"timeout_seconds is {timeout_seconds!r}: expected over 0 and up to {MOST_TIMEOUT_SECONDS:,}"
            )
        if type(retries) is not int or retries < 0:  # None would be without end
            raise ConfigurationError(f"retries is {retries!r}: expected a whole number, 0 or more")
        self.root = url.rstrip("/")
        self.timeout_seconds = timeout_seconds
        self._has_credential = bool(token or key)
        self._credential = f"Bearer {token}" if token else f"Application {key}" if key is not None else None
        self._retry = Retry(total=retries, allowed_methods=None, backoff_factor=0.1, backoff_jitter=0.2, backoff_max=5)

    def request(
        self,
        method: str,
        *path: str,
        params: Mapping[str, Any] | None = None,
        data: bytes | memoryview | Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        **how: Any,
    ) -> Request:
        """A request of this identity.

        :param path: its parts; they are quoted here.
        :param data: a mapping is sent as a form.
        :param how: ``repeats`` and ``withdraw``, as in :class:`Request`. ``stream_seconds`` leaves the body unread, and is the
            longest time without bytes of it. ``held_seconds``: how much longer than others the server may hold back this
            answer. ``patience_seconds``: in place of the client's own time limit, if it is shorter.
        :raises InvalidParameter: the value of a header is no text, or that of a parameter neither text nor number.
        :raises BadRequest: a header cannot be sent.
        """
        for name, value in (params or {}).items():
            if not isinstance(value, str | Number):
                raise InvalidParameter(problems={name: f"{value!r} is neither a text nor a number"})
        url = "/".join([self.root, *(quote(part, safe="", errors="surrogateescape") for part in path)])
        wanted = dict(headers or {})
        if isinstance(data, Mapping):
            data, wanted["Content-Type"] = urlencode(data).encode(), "application/x-www-form-urlencoded"
        for name, text in wanted.items():
            if not isinstance(text, str):
                raise InvalidParameter(problems={name: f"{text!r} is no text"})
            if _UNSENDABLE.search(text) or not _HEADER_NAME.fullmatch(name):
                raise BadRequest("This cannot be sent: headers are ASCII, and one line without blanks at its ends.")
        if self._credential is not None:
            wanted["Authorization"] = self._credential
        stream_seconds, held_seconds = how.pop("stream_seconds", None), how.pop("held_seconds", 0.0)
        patience = min(how.pop("patience_seconds", self.timeout_seconds), self.timeout_seconds)
        return Request(
            method,
            f"{url}?{urlencode(params)}" if params else url,
            wanted,
            data,
            patience,
            stream_seconds or patience + held_seconds,
            is_stream=stream_seconds is not None,
            **how,
        )

    def ask(self, method: str, *path: str, **given: Any) -> Steps[Reply]:
        """The successful answer to a request.

        :param given: as for :meth:`request`.
        :raises QueueyError: what the server says. OutcomeUnknown if an attempt may have been carried out and none was
            answered. ServerUnreachable if no attempt reached a server.
        """
        return self.answer(self.request(method, *path, **given))

    def answer(self, request: Request) -> Steps[Reply]:
        """As :meth:`ask`, of a request that was made."""
        retry, lost, broken, began, repeats = self._retry, False, 0, time.monotonic(), request.repeats
        while True:
            outcome = yield request
            if isinstance(outcome, Reply) and outcome.status < 300:
                _check_form(request, outcome)
                return outcome
            failure = failure_of(self.root, outcome, has_credential=self._has_credential)
            lost = lost or failure.unanswered
            if not failure.again or (failure.unanswered and not repeats.allowed):
                raise last_word(failure, request.method, lost=lost)
            try:
                retry = retry.increment(request.method, request.url, error=ProtocolError(str(failure.error)))
            except MaxRetryError:
                raise last_word(failure, request.method, lost=lost) from None
            pause = _pause_seconds(retry, failure.retry_after)
            broken = broken + 1 if failure.unanswered and isinstance(outcome, NoAnswer) else 0
            if 0 < broken <= _BREAKS:
                pause = min(pause, BROKEN_PAUSE_SECONDS)
            is_late = lost and time.monotonic() + pause - began > repeats.within_seconds
            if is_late or pause > repeats.longest_pause_seconds:
                raise last_word(failure, request.method, lost=lost)
            yield Pause(pause)

    def listed(self, *path: str, params: Mapping[str, Any], read: Callable[[Any], Iterable[T]]) -> Listing[T]:
        """The entries of a list. Each page is requested when the iteration reaches it.

        :param params: of the first page. Links in the answers lead to the other pages.
        :param read: the entries in the JSON of a page.
        """
        asked: Mapping[str, Any] | None = params
        while asked is not None:
            answer = yield from self.ask("GET", *path, params=asked)
            yield Items([*read(answer.json())])
            asked = _next_params(answer)


def _check_form(request: Request, answer: Reply) -> None:
    """:raises QueueyError: a change is answered by something else than a JSON object, or a stream by another form."""
    if request.is_stream:
        asked, found = request.headers.get("Accept", ""), answer.headers.get("Content-Type", "")
        if found and found.partition(";")[0].strip().lower() != asked:
            answer.close()
            raise answer.is_foreign()
    elif request.method != "GET" and not answer.body.startswith(b"{"):
        raise answer.is_foreign()


class Addressed:
    """What a client says of its server: part of each client."""

    application: str
    _endpoint: Endpoint

    def __repr__(self) -> str:
        """The server and the application; no credential."""
        return f"{type(self).__name__}({self.url!r}, {self.application!r})"

    @classmethod
    def from_env(cls, **options: Any) -> Self:
        """As a client without arguments, said aloud: server, application and credential are those of the environment.

        ``QUEUEY_URL``, ``QUEUEY_APPLICATION``, and ``QUEUEY_KEY`` or ``QUEUEY_TOKEN`` name them; else ``QUEUEY_CONTEXT``, or
        the context that ``queuey context use`` chose.

        :param options: ``timeout_seconds``, ``retries`` and ``sleep``.
        :raises ConfigurationError: there is no such context, or the file of contexts cannot be used.
        """
        return cls(**options)

    @property
    def url(self) -> str:
        """Of the server, without a slash at its end."""
        return self._endpoint.root


def _next_params(answer: Reply) -> dict[str, str] | None:
    """The query of the next page of a list; None after the last page.

    Only the query of a link is used: a link never decides which host gets the key.
    """
    found = _NEXT.search(answer.headers.get("Link", ""))
    return None if found is None else dict(parse_qsl(urlsplit(found[1]).query))


def _pause_seconds(retry: Retry, retry_after: str | None) -> float:
    try:
        asked = retry.parse_retry_after(retry_after) if retry_after else 0.0
    except (InvalidHeader, ValueError, OverflowError):  # the last two are of moments and numbers beyond all clocks
        asked = 0.0
    return min(asked, MAX_PAUSE_SECONDS) or retry.get_backoff_time()
