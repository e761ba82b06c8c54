"""Carries out the steps of calls in the calling thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import requests
from urllib3.exceptions import HTTPError, NewConnectionError

from qdo.client.steps import InThread, Items, Listing, NoAnswer, Pause, Read, Reply, Request, Step, Steps

__all__ = ["Transport"]

T = TypeVar("T")

_BROKEN = (
    requests.ConnectionError,
    requests.Timeout,
    requests.exceptions.ChunkedEncodingError,
    requests.exceptions.ContentDecodingError,
)
"""There was no answer, or only a part of one."""
_PIECE_BYTES = 1 << 16


class Transport:
    """One pool of connections, for one thread."""

    def __init__(self, sleep: Callable[[float], None] = time.sleep) -> None:
        self._sleep = sleep
        self._session = requests.Session()
        # requests lets a .netrc replace a plain header, but not an auth of our own.
        self._session.auth = _KeepHeaders()

    def close(self) -> None:
        self._session.close()

    def beside(self) -> Transport:
        """Another pool of connections, for another thread."""
        return Transport(self._sleep)

    def do(self, steps: Steps[T]) -> T:
        """Carry out a call."""
        outcome: Any = None
        try:
            while True:
                outcome = self._outcome(steps.send(outcome))
        except StopIteration as end:
            result: T = end.value
            return result

    def each(self, steps: Listing[T]) -> Iterator[T]:
        """Carry out a call whose results come one after the other."""
        outcome: Any = None
        try:
            while True:
                step = steps.send(outcome)
                outcome = None
                if isinstance(step, Items):
                    yield from step.items
                else:
                    outcome = self._outcome(step)
        except StopIteration:
            return
        finally:
            steps.close()

    def _outcome(self, step: Step) -> Any:
        match step:
            case Request():
                return self._attempt(step)
            case Pause(seconds):
                return self._sleep(seconds)
            case InThread(function):
                return function()
            case Read(answer):
                return answer.source.read() if isinstance(answer.source, _Source) else b""

    def _attempt(self, wanted: Request) -> Reply | NoAnswer:
        session = self._session
        request = requests.Request(wanted.method, wanted.url, wanted.headers, data=wanted.body)
        from_outside = session.merge_environment_settings(wanted.url, {}, wanted.is_stream, None, None)
        patience = (wanted.connect_seconds, wanted.silence_seconds)
        try:
            response = session.send(
                session.prepare_request(request), timeout=patience, allow_redirects=False, **from_outside
            )
            streams = wanted.is_stream and response.status_code < 300
            body, source = (b"", _Source(response)) if streams else (response.content, None)
        except _BROKEN as error:
            return _no_answer(error)
        return Reply(response.status_code, response.reason, response.headers, body, response.url, source)


@dataclass(frozen=True, slots=True)
class _Source:
    """The unread body of a response."""

    response: requests.Response

    def close(self) -> None:
        self.response.close()

    def file(self) -> Any:
        return self.response.raw

    def read(self) -> bytes | NoAnswer:
        try:
            piece: bytes = self.response.raw.read1(_PIECE_BYTES, decode_content=True)
        except (HTTPError, OSError) as error:
            return NoAnswer(error)
        return piece


class _KeepHeaders(requests.auth.AuthBase):
    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        return request


def _no_answer(error: requests.RequestException) -> NoAnswer:
    cause = getattr(error.args[0], "reason", error) if error.args else error
    never_sent = isinstance(error, requests.ConnectTimeout) or isinstance(cause, NewConnectionError)
    return NoAnswer(cause, never_sent=never_sent, is_final=isinstance(error, requests.exceptions.SSLError))
