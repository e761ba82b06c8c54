"""The one pipeline: from a call to its answer, the same behind every door.

identity -> application and queue -> permission -> operation -> answer. Every error becomes its
answer here. Doors add nothing and leave nothing out.
"""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Mapping
from itertools import count
from time import perf_counter
from typing import NoReturn

from queuey.api.access import allowed, identify, refresh_keys
from queuey.api.calls import JSON, Answer, Call, Target
from queuey.api.cors import open_to, preflight
from queuey.api.messages import append, append_arrow
from queuey.api.reading import STREAM_HELD_BYTES
from queuey.api.refusals import refusal
from queuey.api.routes import Operation, resolve, variant
from queuey.errors import (
    ApplicationNotFound,
    InvalidParameter,
    LengthRequired,
    MessageTooLarge,
    QueueyError,
    Throttled,
    UnsupportedEncoding,
)
from queuey.service import Service

log = logging.getLogger(__name__)

_REQUEST_ID = re.compile(r"[A-Za-z0-9._:/+=-]{1,128}")
_LENGTH_DIGITS = 18
_process, _counter = secrets.token_hex(6), count(1)


def _new_request_id() -> str:
    return f"{_process}{next(_counter):x}"


_SMALL = 64 << 10
"""Answers up to this size are not counted: the number of requests bounds them well enough."""


class Desk:
    """Takes calls to their answers, for one service."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self._gate = service.gate
        self._origins: tuple[str, ...] = service.settings.cors_origins
        self._log_requests = service.settings.log_requests

    def open(
        self, method: str, path: str, query_string: str, headers: Mapping[str, str]
    ) -> tuple[Call, Operation | Answer]:
        """Begin a call: find its operation and let it in, before any of its body is read.

        The door must end it with :meth:`leave` once its answer is sent.

        :param path: with its escapes decoded, as :func:`~queuey.api.routes.decode_path` does.
        :returns: the call, and its operation or already its refusal.
        """
        call = Call(method, path, query_string, headers)
        given = headers.get("x-request-id")
        call.request_id = given if given and _REQUEST_ID.fullmatch(given) else _new_request_id()
        if self._origins and method == "OPTIONS":
            asked = preflight(call, self._origins)
            if asked is not None:
                return call, self._finish(call, "none", asked, perf_counter())
        try:
            operation, (call.application, call.queue, call.below) = resolve(method, path)
            if query_string:
                operation = variant(operation, call.query)
            length = self._announced_length(call, operation)
            if call.application:  # the server's own pages take no body, and are wanted most when it is full
                self._enter(call)
                call.length = length
        except QueueyError as error:
            return call, self._finish(call, "none", self._refuse(call, error), perf_counter())
        return call, operation

    def _announced_length(self, call: Call, operation: Operation) -> int:
        """How many bytes of body to read.

        A body without Content-Length could be cut on its way and look whole, so none is taken.
        """
        headers = call.headers
        text = headers.get("content-length")
        if headers.get("transfer-encoding") or (text is None and operation.takes_body):
            raise LengthRequired
        encoding = headers.get("content-encoding")
        if encoding and encoding.lower() != "identity":
            raise UnsupportedEncoding
        if not text:
            return 0
        if len(text) > _LENGTH_DIGITS or not text.isascii() or not text.isdecimal():
            raise InvalidParameter(problems={"Content-Length": "must be a plain decimal number"})
        batch = operation.function is append_arrow or (operation.function is append and call.media_type == JSON)
        one_message = operation.takes_body and not batch
        limits = self.service.settings
        limit = limits.limits_max_body_bytes if one_message else limits.limits_max_request_bytes
        length = int(text)
        if length > limit:
            raise MessageTooLarge(f"the request's body is {text} bytes; this server takes {limit}")
        return length

    async def answer(self, operation: Operation, call: Call) -> Answer:
        """Serve a call whose body was read."""
        began = perf_counter()
        try:
            answer = await self._serve(operation, call)
            size = len(answer.body) if answer.chunks is None else STREAM_HELD_BYTES
            if size > _SMALL:
                # A write that was carried out is never answered with a refusal (G10).
                self._hold(call, size, owed=call.method not in ("GET", "HEAD"))
        except QueueyError as error:
            if operation.function in (append, append_arrow):
                self.service.monitor.count("queuey_appends_refused", 1, error.code)
            answer = self._refuse(call, error)
        except Exception:
            log.exception("request %s failed", call.request_id)  # and go on: the others have done nothing wrong
            answer = self._refuse(call, QueueyError(f"the server failed; its log has more under {call.request_id}"))
        return self._finish(call, operation.route, answer, began)

    def _enter(self, call: Call) -> None:
        if not self._gate.enter():
            self._throttled()
        call.held = 0

    def receive(self, call: Call, size: int) -> Answer | None:
        """So many more bytes of a call's body are here: its refusal, if there is no room for them.

        An announced length takes no room: who announces much and sends little keeps nobody else out.
        """
        try:
            self._hold(call, size)
        except Throttled as error:
            return self._broken_off(call, error)
        return None

    def _hold(self, call: Call, size: int, *, owed: bool = False) -> None:
        if call.held < 0:
            return
        if not self._gate.hold(size, owed=owed):
            self._throttled()
        call.held += size

    def _throttled(self) -> NoReturn:
        self.service.monitor.count("queuey_throttled", 1, "in_flight")
        raise Throttled

    def leave(self, call: Call) -> None:
        """A call's answer is sent, or nobody waits for it any more. May be repeated."""
        if call.held >= 0:
            self._gate.leave(call.held)
            call.held = -1

    async def _serve(self, operation: Operation, call: Call) -> Answer:
        service, application = self.service, call.application
        if not application:
            return await operation.function(service, call, Target())
        if service.keys.stale:
            await refresh_keys(service)
        if not service.keys.knows(application):
            raise ApplicationNotFound
        call.identity = identify(service, call.headers.get("authorization", ""))
        queue = await allowed(service, call.identity, operation.permission, application, call.queue)
        return await operation.function(service, call, Target(application, queue))

    def cut_short(self, call: Call, got: int) -> Answer:
        """The body ended before its announced length: nothing of it is used (G6)."""
        return self._broken_off(
            call, InvalidParameter(problems={"body": f"the upload ended after {got} of {call.length} bytes"})
        )

    def turn_away(self, error: QueueyError) -> Answer:
        """The answer to what did not become a call: no HTTP, or one connection too many."""
        call = Call("", "", "", {})
        call.request_id = _new_request_id()
        if error.retriable:
            self.service.monitor.count("queuey_throttled", 1, "connections")
        return self._broken_off(call, error)

    def _broken_off(self, call: Call, error: QueueyError) -> Answer:
        """A refusal in the midst of an upload, or before it: what comes after it is no request."""
        answer = refusal(error, call, self.service.identifier.challenge)
        answer.headers.append(("connection", "close"))
        return self._finish(call, "none", answer, perf_counter())

    def _refuse(self, call: Call, error: QueueyError) -> Answer:
        if error.status >= 500:
            log.warning("refused %s %s: %s", call.method, call.request_id, error)
        return refusal(error, call, self.service.identifier.challenge)

    def _finish(self, call: Call, route: str, answer: Answer, began: float) -> Answer:
        """What every answer has, whatever it says."""
        if self._origins:
            open_to(answer, call, self._origins)
        answer.headers += (("x-request-id", call.request_id), ("x-content-type-options", "nosniff"))
        took = perf_counter() - began - call.waited_seconds
        self.service.monitor.request(route, call.method, answer.status, took)
        if self._log_requests:
            log.info(
                "%s %s %d",
                call.method,
                route,
                answer.status,
                extra={
                    "request_id": call.request_id,
                    "principals": sorted(call.identity.principals),
                    "app": call.application,
                    "route": route,
                    "status": answer.status,
                    "duration_ms": round(took * 1000, 3),
                },
            )
        return answer
