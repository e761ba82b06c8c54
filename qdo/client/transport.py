"""Requests that are repeated only where that is safe.

Errors are found by their code.

A request without an answer may have been carried out. It is sent again if carrying it out twice is the same as once;
otherwise the caller gets :class:`~queuey.errors.OutcomeUnknown`. A request that was refused before anything was stored
(429, 503), or that never left this machine, is sent again in any case.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from copy import copy
from dataclasses import dataclass
from math import inf
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, quote, urlsplit

import requests
from urllib3.exceptions import InvalidHeader, MaxRetryError, NewConnectionError, ProtocolError
from urllib3.util.retry import Retry

from queuey.errors import (
    BadRequest,
    ConfigurationError,
    Conflict,
    Forbidden,
    InProgress,
    InvalidApplicationKey,
    InvalidParameter,
    InvalidToken,
    MessageTooLarge,
    NotFound,
    OutcomeUnknown,
    QueueyError,
    ServerUnreachable,
    StorageUnavailable,
    Throttled,
    Unauthenticated,
    error_classes,
)

MAX_PAUSE_SECONDS = 30.0
"""Of one pause, whatever Retry-After asks for."""

_URL = re.compile(r"https?://[^/?#\s]+(/[^?#\s]*)?")
_FAMILIES: Mapping[int, type[QueueyError]] = {
    401: Unauthenticated,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    413: MessageTooLarge,
    429: Throttled,
    502: OutcomeUnknown,
    503: StorageUnavailable,
    504: OutcomeUnknown,
}
"""The class for an answer with an unknown code, or for one of a proxy."""


_BROKEN = (
    requests.ConnectionError,
    requests.Timeout,
    requests.exceptions.ChunkedEncodingError,
    requests.exceptions.ContentDecodingError,
)
"""There was no answer, or only a part of one."""


class _Failure(NamedTuple):
    """What went wrong with one attempt."""

    error: QueueyError
    again: bool
    """Another attempt may succeed."""
    unanswered: bool
    """The request may have been carried out."""
    retry_after: str | None = None


@dataclass(frozen=True)
class Repeats:
    """Whether a request that may have been carried out is sent again."""

    allowed: bool = True
    """Carrying it out twice is the same as once."""
    done: Collection[int] = ()
    """Statuses that mean success if an earlier answer was lost."""
    within_seconds: float = inf
    """A repeat that is sent later than this is not the same request to the server."""


ALLOWED, FORBIDDEN = Repeats(), Repeats(allowed=False)


class Transport:
    """One server, one identity, one pool of connections."""

    def __init__(
        self,
        url: str,
        key: str | None,
        token: str | None = None,
        *,
        timeout_seconds: float,
        retries: int,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """:param token: takes the place of the key.
        :raises ConfigurationError: ``url`` is no address of a server.
        :raises InvalidApplicationKey, InvalidToken: a header cannot carry it.
        """
        if not _URL.fullmatch(url):
            raise ConfigurationError(f"{url!r} is no address of a server: expected one such as http://127.0.0.1:5000")
        if key is not None and not (key.isascii() and key.isprintable()):
            raise InvalidApplicationKey("The application key has characters that no key has.")
        if token is not None and not (token.isascii() and token.isprintable()):
            raise InvalidToken("The token has characters that no token has.")
        self._root = url.rstrip("/")
        self.timeout_seconds = timeout_seconds
        self._retry = Retry(total=retries, allowed_methods=None, backoff_factor=0.1, backoff_jitter=0.2, backoff_max=5)
        self._sleep = sleep
        self._session = requests.Session()
        # requests lets a .netrc replace a plain header, but not an auth of our own.
        self._session.auth = _Auth(f"Bearer {token}" if token else f"Application {key}" if key is not None else None)

    def close(self) -> None:
        self._session.close()

    def beside(self) -> Transport:
        """The same server and identity with another pool of connections, for another thread."""
        other = copy(self)
        other._session = requests.Session()  # noqa: SLF001 -- its own class
        other._session.auth = self._session.auth  # noqa: SLF001
        return other

    def send(
        self,
        method: str,
        *path: str,
        params: Mapping[str, Any] | None = None,
        data: Any = None,
        headers: Mapping[str, str] | None = None,
        repeats: Repeats = ALLOWED,
        stream_seconds: float | None = None,
        held_seconds: float = 0.0,
    ) -> requests.Response:
        """The successful answer to a request.

        :param path: its parts; they are quoted here.
        :param repeats: whether a request that may have been carried out is sent again.
        :param stream_seconds: leave the body unread; this is the longest time without bytes of it. None reads the body.
        :param held_seconds: how much longer than others the server may hold back this answer.
        :raises QueueyError: what the server says. OutcomeUnknown if an attempt may have been carried out and none was
            answered. ServerUnreachable if no attempt reached a server.
        """
        url = "/".join([self._root, *(quote(part, safe="", errors="surrogateescape") for part in path)])
        if not all(f"{name}{value}".isascii() for name, value in (headers or {}).items()):
            raise BadRequest("This cannot be sent: headers are ASCII.")
        try:
            wanted = self._session.prepare_request(requests.Request(method, url, headers, data=data, params=params))
        except requests.exceptions.InvalidHeader as error:
            raise BadRequest(f"This cannot be sent: {error}") from error
        retry, lost, began = self._retry, False, time.monotonic()
        patience = (self.timeout_seconds, stream_seconds or self.timeout_seconds + held_seconds)
        while True:
            outcome = self._attempt(wanted, patience, stream=stream_seconds is not None)
            if isinstance(outcome, requests.Response):
                if outcome.status_code < 300 or (lost and outcome.status_code in repeats.done):
                    return outcome
                failure = _refusal(outcome)
            else:
                failure = _no_answer(self._root, outcome)
            lost = lost or failure.unanswered
            if not failure.again or (failure.unanswered and not repeats.allowed):
                raise _last_word(failure, method, lost=lost)
            try:
                retry = retry.increment(method, url, error=ProtocolError(str(failure.error)))
            except MaxRetryError:
                raise _last_word(failure, method, lost=lost) from None
            pause = _pause_seconds(retry, failure.retry_after)
            if lost and time.monotonic() + pause - began > repeats.within_seconds:
                raise _last_word(failure, method, lost=lost)
            self._sleep(pause)

    def listed(self, *path: str, params: Mapping[str, Any]) -> Iterator[Any]:
        """The pages of a list, as the server answers them.

        Each is requested when the iteration reaches it.

        :param params: of the first page. Links in the answers lead to the other pages.
        """
        while True:
            answer = self.send("GET", *path, params=params)
            yield json_of(answer)
            if "next" not in answer.links:
                return
            # Only the query of a link is used: a link never decides which host gets the key.
            params = dict(parse_qsl(urlsplit(answer.links["next"]["url"]).query))

    def _attempt(
        self, wanted: requests.PreparedRequest, patience: tuple[float, float], *, stream: bool
    ) -> requests.Response | requests.RequestException:
        session = self._session
        from_outside = session.merge_environment_settings(wanted.url or "", {}, stream, None, None)
        try:
            response = session.send(wanted, timeout=patience, allow_redirects=False, **from_outside)
            if response.status_code >= 300:
                _ = response.content
        except _BROKEN as error:
            return error
        return response


def json_of(response: requests.Response) -> Any:
    """The JSON of a successful answer.

    :raises QueueyError: the answer is not what a Queuey server would send.
    """
    try:
        return response.json()
    except ValueError as error:
        raise QueueyError(f"What answers at {response.url.partition('?')[0]} is not Queuey.") from error


class _Auth(requests.auth.AuthBase):
    def __init__(self, credential: str | None) -> None:
        self._credential = credential

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        if self._credential is not None:
            request.headers["Authorization"] = self._credential
        return request


def error_from(response: requests.Response) -> QueueyError:
    """The error in an answer, of the class that the server raised.

    If this version does not know the code, the text of the family's error shows it.
    """
    headers = {name: response.headers[name] for name in ("Retry-After",) if name in response.headers}
    try:
        told = response.json()
        texts = {str(field): str(text) for field, text in told["error_msg"].items()}
    except (ValueError, LookupError, TypeError, AttributeError):
        family = _family(response.status_code)
        return family(f"HTTP {response.status_code} {response.reason}".rstrip(), headers=headers)
    said = told.get("detail") or "; ".join(f"{field}: {text}" for field, text in texts.items())
    code = told.get("code", "")
    found = error_classes().get(code)
    if found is None:
        return _family(response.status_code)(f"{code}: {said}" if code else said, headers=headers)
    if issubclass(found, InvalidParameter):
        return found(problems=texts)
    return found(said, headers=headers)


def may_pass(error: QueueyError) -> bool:
    """Whether the same request may succeed later without anybody changing it.

    Other errors are not worth a repeat.

    >>> may_pass(Throttled()), may_pass(OutcomeUnknown()), may_pass(Forbidden())
    (True, True, False)
    """
    # An error without a known class is a fault of the server, or of something in front of it.
    return error.retriable or isinstance(error, OutcomeUnknown | InProgress) or type(error) is QueueyError


def _family(status: int) -> type[QueueyError]:
    return _FAMILIES.get(status, BadRequest if 400 <= status < 500 else QueueyError)


def _refusal(response: requests.Response) -> _Failure:
    error = error_from(response)
    unanswered = isinstance(error, OutcomeUnknown)
    again = unanswered or response.status_code in {429, 503} or isinstance(error, InProgress)
    return _Failure(error, again, unanswered, response.headers.get("Retry-After"))


def _no_answer(root: str, error: requests.RequestException) -> _Failure:
    cause = getattr(error.args[0], "reason", error) if error.args else error
    never_sent = isinstance(error, requests.ConnectTimeout) or isinstance(cause, NewConnectionError)
    if never_sent:
        return _Failure(ServerUnreachable(f"no server answers at {root}"), again=True, unanswered=False)
    if isinstance(error, requests.exceptions.SSLError):
        return _Failure(ServerUnreachable(f"{root}: {cause}"), again=False, unanswered=False)
    return _Failure(ServerUnreachable(f"no answer from {root}: {cause}"), again=True, unanswered=True)


def _last_word(failure: _Failure, method: str, *, lost: bool) -> QueueyError:
    """What is true after all attempts (G10).

    The refusal of the last one does not undo what an earlier one stored.
    """
    if method == "GET":
        unanswered = isinstance(failure.error, OutcomeUnknown)
        return StorageUnavailable(str(failure.error)) if unanswered else failure.error
    if lost and failure.again and not isinstance(failure.error, OutcomeUnknown):
        return OutcomeUnknown(f"{failure.error}; the write may or may not be stored")
    return failure.error


def _pause_seconds(retry: Retry, retry_after: str | None) -> float:
    try:
        asked = retry.parse_retry_after(retry_after) if retry_after else 0.0
    except InvalidHeader:
        asked = 0.0
    return min(asked, MAX_PAUSE_SECONDS) or retry.get_backoff_time()
