"""The one pipeline: from a call to its answer, the same behind every door.

identity -> application and queue -> permission -> operation -> answer. Every error becomes its
answer here. Doors add nothing and leave nothing out.
"""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Mapping, Sequence
from itertools import count
from time import perf_counter

from queuey.api.errors import refusal
from queuey.api.messages import append, append_arrow
from queuey.api.reading import STREAM_HELD_BYTES
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
from queuey.http.access import allowed, at_hand, identify, refresh_keys, target_at_hand
from queuey.http.admission import Ticket
from queuey.http.cors import allowed_origin, open_to, preflight
from queuey.http.exchange import JSON, PROBLEM, Answer, Call, Target
from queuey.http.holding import hold
from queuey.monitor.metrics import APPENDS_REFUSED, THROTTLED
from queuey.security.permissions import Permission
from queuey.security.principals import payers
from queuey.service import Service

log = logging.getLogger(__name__)

_REQUEST_ID = re.compile(r"[A-Za-z0-9._:/+=-]{1,128}")
_LENGTH_DIGITS = 18
_process, _counter = secrets.token_hex(6), count(1)


def _new_request_id() -> str:
    return f"{_process}{next(_counter):x}"


_NOSNIFF = ("x-content-type-options", "nosniff")
ANY_ID = "{id}"
"""In place of a request's id where one answer is made for many requests."""
ANY_PATH = "{path}"
"""As :data:`ANY_ID`."""
SMALL = 16 << 10
"""Answers, and bodies that come with their head, are not counted up to this size: the number of requests bounds them."""


MAX_FORM_BYTES = 64 << 10
"""Of a body that is no message: a form, offsets, or one that nobody asked for. It is parsed on the event loop."""


_NO_TARGET = Target()
"""Of a call about the server itself."""


class Pipeline:
    """Takes calls to their answers, for one service."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self._gate = service.gate
        self._origins: tuple[str, ...] = service.settings.server.cors_origins
        self._log_requests = service.settings.log.requests

    def open(
        self, method: str, path: str, query_string: str, headers: Mapping[str, str]
    ) -> tuple[Call, Operation | Answer]:
        """Begin a call: find its operation from its head alone.

        Then the door calls :meth:`ask` before it waits for a body, :meth:`receive` for what comes of it,
        :meth:`Call.enters` once the call is whole, and :meth:`answer` or :meth:`full`. It must end the call with :meth:`leave` once the
        answer is sent.

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
                call.ticket = Ticket(self._gate)
                if method not in ("GET", "HEAD"):
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
        limits = self.service.settings.limits
        limit = limits.max_request_bytes
        if not batch:
            limit = limits.max_body_bytes if operation.takes_body else min(limit, MAX_FORM_BYTES)
        length = int(text)
        if length > limit:
            raise MessageTooLarge(f"the request's body is {text} bytes; this server takes {limit}")
        return length

    async def answer(self, operation: Operation, call: Call) -> Answer:
        """Serve a call whose body was read."""
        began = perf_counter()
        try:
            anyone = not call.application and operation.permission is Permission.NONE
            target = _NO_TARGET if anyone else target_at_hand(self.service, call, operation.permission)
            answer = await operation.function(self.service, call, target or await self._admit(operation, call))
            size = len(answer.body) if answer.chunks is None else STREAM_HELD_BYTES
            if size > SMALL:
                # A write that was carried out is never answered with a refusal (G10).
                hold(self.service, call, size, owed=call.method not in ("GET", "HEAD"))
        except Exception as error:  # noqa: BLE001 - and go on: the others have done nothing wrong
            answer = self._failed(operation, call, error)
        return self._finish(call, operation.route, answer, began)

    def need_not_ask(self, operation: Operation, call: Call) -> bool:
        """Whether :meth:`ask` would find at once that this call is allowed."""
        return target_at_hand(self.service, call, operation.permission) is not None

    async def ask(self, operation: Operation, call: Call) -> Answer | None:
        """Find the caller and the caller's permission from the head alone: the body of a refused call is not taken.

        :meth:`answer` asks again, for a body may take long and much can change meanwhile.

        :returns: the refusal, if it is refused.
        """
        began = perf_counter()
        try:
            await self._admit(operation, call)
        except Exception as error:  # noqa: BLE001 - as in answer
            return self._finish(call, operation.route, self._failed(operation, call, error), began)
        return None

    def full(self, call: Call, *, logged: bool = True) -> Answer:
        """The refusal of a call that found no place: see :meth:`Call.enters`.

        :param logged: log it as other requests; else the door counts it.
        """
        self.service.monitor.count(THROTTLED, 1, "in_flight")
        return self._finish(call, "none", self._refuse(call, Throttled()), perf_counter(), logged=logged)

    def form_of_refusal(self, headers: Mapping[str, str]) -> tuple[str | None, bool]:
        """What :meth:`refused_alike` depends on: the origin that its answer names, and whether it has the form of RFC 9457."""
        origin = allowed_origin(headers.get("origin"), self._origins) if self._origins else None
        return origin, PROBLEM in headers.get("accept", "") and Call("", "", "", headers).accepts(PROBLEM)

    def refused_alike(self, headers: Mapping[str, str]) -> Answer:
        """The refusal of a call that comes while the server is full, made once for all of one :meth:`form_of_refusal`.

        Its request id is :data:`ANY_ID`, its path :data:`ANY_PATH`.
        """
        call = Call("", ANY_PATH, "", headers)
        call.request_id = ANY_ID
        return self._complete(call, self._refuse(call, Throttled()))

    def refused_at_once(self, method: str, request_id: str | None) -> str:
        """A call was refused by :meth:`refused_alike`; its request id."""
        self.service.monitor.refused(method, Throttled.status)
        return request_id if request_id and _REQUEST_ID.fullmatch(request_id) else _new_request_id()

    def receive(self, call: Call, size: int) -> Answer | None:
        """Count ``size`` more bytes of a call's body that are here.

        An announced length takes no room: a client that announces much and sends little keeps nobody else out.

        :returns: the refusal, if there is no room for them.
        """
        try:
            hold(self.service, call, size)
        except Throttled as error:
            return self._broken_off(call, error)
        return None

    def hand_over(self, call: Call, size: int) -> bool:
        """A call's answer is made, and its client has yet to take it: from now on it takes no place, only its bytes.

        :param size: of the body, which was counted by :meth:`answer` if it is large.
        :returns: whether there is room for it.
        """
        small = call.ticket is None or size <= SMALL
        ticket = call.ticket = call.ticket or Ticket(self._gate)  # the server's own pages can be large as well
        ticket.give_up_place()
        return not small or ticket.hold(size, payers(call.identity.principals), owed=call.method not in ("GET", "HEAD"))

    def payers(self, call: Call) -> Sequence[str]:
        """Whose share a call counts against; the strangers' while a signature has to be checked to know.

        The last of them pays for its time: an application, or all others together.
        """
        return payers(at_hand(self.service, call).principals)

    def leave(self, call: Call) -> None:
        """A call's answer is sent, or nobody waits for it any more. May be repeated."""
        if call.ticket is not None:
            call.ticket.close()

    async def _admit(self, operation: Operation, call: Call) -> Target:
        """Identity, application, queue, permission."""
        service, application = self.service, call.application
        if service.keys.stale:
            await refresh_keys(service)
        # Without a name the call is about all applications; only the permission decides then.
        if application and not service.keys.knows(application):
            raise ApplicationNotFound
        call.identity = identify(service, call.headers.get("authorization", ""))
        queue = await allowed(service, call.identity, operation.permission, application, call.queue)
        return Target(application, queue)

    def _failed(self, operation: Operation, call: Call, error: Exception) -> Answer:
        if not isinstance(error, QueueyError):
            log.error("request %s failed", call.request_id, exc_info=error)
            error = QueueyError(f"the server failed; its log has more under {call.request_id}")
        elif operation.function in (append, append_arrow):
            self.service.monitor.count(APPENDS_REFUSED, 1, error.code)
        return self._refuse(call, error)

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
            limit = "in_flight" if isinstance(error, Throttled) else "connections"
            self.service.monitor.count(THROTTLED, 1, limit)
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

    def _complete(self, call: Call, answer: Answer) -> Answer:
        """What every answer has, whatever it says."""
        if self._origins:
            open_to(answer, call, self._origins)
        answer.headers += (("x-request-id", call.request_id), _NOSNIFF)
        return answer

    def _finish(self, call: Call, route: str, answer: Answer, began: float, *, logged: bool = True) -> Answer:
        self._complete(call, answer)
        took = perf_counter() - began - call.waited_seconds
        self.service.monitor.request(route, call.method, answer.status, took)
        if self._log_requests and logged:
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
