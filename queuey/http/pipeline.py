"""The one pipeline from a call to its answer, the same for every server and face.

identity -> application and queue -> permission -> operation -> answer. Every error becomes its answer here. Servers add
no step and skip none. A face decides what a call means and what a refusal looks like.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import lru_cache
from time import perf_counter

from queuey.errors import (
    ApplicationNotFound,
    InvalidParameter,
    LengthRequired,
    MessageTooLarge,
    QueueyError,
    Throttled,
    UnsupportedEncoding,
)
from queuey.http.access import allowed, refresh_keys, target_at_hand
from queuey.http.admission import Admission, Ticket
from queuey.http.carrying import carry_out
from queuey.http.exchange import Answer, Call, Target
from queuey.http.face import Body, Face, Operation
from queuey.http.finishing import Finisher, request_id
from queuey.http.store_time import StoreTime
from queuey.model.trace_context import TRACEPARENT
from queuey.monitor.metrics import APPENDS_REFUSED, BYTES_IN_FLIGHT, REQUESTS_IN_PROGRESS, THROTTLED
from queuey.monitor.telemetry import CallSpan, Telemetry
from queuey.security.principals import payers
from queuey.service import Service

log = logging.getLogger(__name__)

_LENGTH_DIGITS = 18
SMALL = 16 << 10
"""Answers up to this size, and bodies that come with their head, are not counted: the limit on requests bounds them."""

MAX_FORM_BYTES = 64 << 10
"""Bytes of a body that is no message. The event loop parses it."""

_NO_TARGET = Target()
"""The target of a call about the server itself."""


class Pipeline:
    """Takes calls to their answers, for one service."""

    def __init__(self, service: Service, faces: Sequence[Face]) -> None:
        """:param faces: asked in this order; the last one takes every call that no other takes."""
        settings, monitor = service.settings, service.monitor
        self.service = service
        self.admission = Admission(
            settings.limits.max_in_flight,
            settings.limits.max_in_flight_mb << 20,
            refused=lambda: monitor.count(THROTTLED, 1, "in_flight"),
        )
        monitor.ask(REQUESTS_IN_PROGRESS, lambda: self.admission.calls)
        monitor.ask(BYTES_IN_FLIGHT, lambda: self.admission.bytes)
        self.finisher = Finisher(service, faces)
        """Ends calls that leave the pipeline early: refused, cut short, turned away."""
        self._face = self.finisher.face
        self._most_bytes = settings.limits

    def open(
        self, method: str, path: str, query_string: str, headers: Mapping[str, str]
    ) -> tuple[Call, Operation | Answer]:
        """Open a call: find its face and its operation from its head alone.

        The server then calls :meth:`ask` before it waits for a body, :meth:`receive` for each part of it,
        ``call.ticket.enter`` once the call is whole, and :meth:`answer` or :meth:`Finisher.full`. It ends the call with
        :meth:`leave` once the answer is sent.

        :param path: with its escapes decoded, as :func:`~queuey.http.routing.decode_path` does.
        :returns: the call, and its operation or its refusal.
        """
        call = Call(method, path, query_string, headers)
        call.request_id = request_id(headers.get("x-request-id"))
        if method == "OPTIONS":
            asked = self.finisher.preflight(call)
            if asked is not None:
                return call, asked
        try:
            operation = self._face(call).resolve(call)
            length = self._announced_length(call, operation)
            if not operation.about_server:
                call.ticket = Ticket(self.admission)
                if method not in ("GET", "HEAD"):
                    call.length = length
        except QueueyError as error:
            return call, self.finisher.finish(call, "none", self.finisher.refuse(call, error), perf_counter())
        return call, operation

    def _announced_length(self, call: Call, operation: Operation) -> int:
        """Bytes of body to read.

        A body without Content-Length is refused: cut short on its way, it would look whole.
        """
        headers = call.headers
        text = headers.get("content-length")
        if headers.get("transfer-encoding") or (text is None and operation.body is not Body.FORM):
            raise LengthRequired
        encoding = headers.get("content-encoding")
        if encoding and encoding.lower() != "identity":
            raise UnsupportedEncoding
        if not text:
            return 0
        length, limit = _length(text), self._limit(operation.body)
        if length > limit:
            raise MessageTooLarge(f"the request's body is {text} bytes; this server takes {limit}")
        return length

    def _limit(self, body: Body) -> int:
        """Bytes that a body of this kind may have."""
        if body is Body.MESSAGE:
            return self._most_bytes.max_body_bytes
        most = self._most_bytes.max_request_bytes
        return most if body is Body.BATCH else min(most, MAX_FORM_BYTES)

    async def answer(self, operation: Operation, call: Call) -> Answer:
        """Serve a call whose body was read."""
        began = perf_counter()
        in_store = StoreTime(self.service.monitor) if self.finisher.logs_requests else None
        telemetry = self.service.telemetry
        span = None if telemetry is None else _span(telemetry, operation, call)
        try:
            target = self._target_at_hand(operation, call) if call.application else None
            if target is None:
                target = _NO_TARGET if operation.about_server else await self._admit(operation, call)
            if operation.by_body is not None:  # only now: it may parse the body, and the caller is known
                operation = operation.by_body(call)
            work = carry_out(self.service, operation.function, call, target)
            answer = await (work if in_store is None else in_store.over(work))
            if answer.held_bytes > SMALL:
                # A write that was carried out is never answered with a refusal (G10).
                call.ticket.hold(answer.held_bytes, owed=call.method not in ("GET", "HEAD"))
        except Exception as error:  # noqa: BLE001 - one failed call must not end the server for the others
            answer = self._failed(operation, call, error)
        finished = self.finisher.finish(call, operation.name, answer, began, in_store=in_store)
        if span is not None:
            span.end(finished.status)
        return finished

    def need_not_ask(self, operation: Operation, call: Call) -> bool:
        """Whether :meth:`ask` would allow this call at once, from memory."""
        return self._target_at_hand(operation, call) is not None

    def _target_at_hand(self, operation: Operation, call: Call) -> Target | None:
        identity = (call.face or self._face(call)).at_hand(self.service, call)
        return None if identity is None else target_at_hand(self.service, call, identity, operation.permission)

    async def ask(self, operation: Operation, call: Call) -> Answer | None:
        """Identify the caller and check its permission from the head alone, as far as that goes.

        So the body of a refused call is not read. Where only the body proves the caller, its payer is settled. :meth:`answer` asks again, since a body may take long, and
        permissions can change in that time.

        :returns: the refusal; None if the call is allowed.
        """
        began, face, service = perf_counter(), self._face(call), self.service
        try:
            if service.keys.stale:
                await refresh_keys(service)
            if face.proves_by_head(service, call):
                await self._admit(operation, call)
            else:
                call.ticket.principals = face.payer(service, call).principals
        except Exception as error:  # noqa: BLE001 - as in answer
            return self.finisher.finish(call, operation.name, self._failed(operation, call, error), began)
        return None

    def receive(self, call: Call, size: int) -> Answer | None:
        """Count ``size`` more bytes of a call's body that have arrived.

        An announced length takes no room: a client that announces much and sends little locks nobody out.

        :returns: the refusal if there is no room for them; otherwise None.
        """
        try:
            call.ticket.hold(size)
        except Throttled as error:
            return self.finisher.broken_off(call, error)
        return None

    def hand_over(self, call: Call, size: int) -> bool:
        """Give back a call's place once its answer is made.

        From now on it holds only bytes.

        :param size: bytes of the body; :meth:`answer` has counted a large one.
        :returns: whether there is room for it.
        """
        small = size <= SMALL
        call.ticket.give_up_place()
        return not small or call.ticket.try_hold(size, owed=call.method not in ("GET", "HEAD"))

    def payers(self, call: Call) -> Sequence[str]:
        """The payers of a call.

        The strangers pay while only a signature check could tell.

        The last payer also pays for its time: an application, or all other callers together.
        """
        return payers(self._face(call).payer(self.service, call).principals)

    def leave(self, call: Call) -> None:
        """End a call: its answer is sent, or its client has gone. May be called again."""
        call.ticket.close()

    async def _admit(self, operation: Operation, call: Call) -> Target:
        """Identity, application, queue, permission."""
        service, application = self.service, call.application
        if service.keys.stale:
            await refresh_keys(service)
        # Without a name the call concerns all applications; then the permission alone decides.
        if application and not service.keys.knows(application):
            raise ApplicationNotFound
        call.known_as(self._face(call).identify(service, call))
        queue = await allowed(service, call.identity, operation.permission, application, call.queue)
        return Target(application, queue)

    def _failed(self, operation: Operation, call: Call, error: Exception) -> Answer:
        if not isinstance(error, QueueyError):
            log.error("request %s failed", call.request_id, exc_info=error)
            error = QueueyError(f"the server failed; its log has more under {call.request_id}")
        elif operation.counts_refusals:
            self.service.monitor.count(APPENDS_REFUSED, 1, error.code)
        return self.finisher.refuse(call, error)


@lru_cache(1024)
def _length(text: str) -> int:
    if len(text) > _LENGTH_DIGITS or not text.isascii() or not text.isdecimal():
        raise InvalidParameter(problems={"Content-Length": "must be a plain decimal number"})
    return int(text)


def _span(telemetry: Telemetry, operation: Operation, call: Call) -> CallSpan | None:
    """The span of an append, or of any call that is part of its client's trace; None of others.

    What the call stores is part of the span from now on.
    """
    if not (operation.counts_refusals or TRACEPARENT in call.headers):
        return None
    attributes = {
        "http.request.method": call.method,
        "http.route": operation.name,
        "messaging.system": "queuey",
        "messaging.destination.name": f"{call.application}/{call.queue}",
        "queuey.request_id": call.request_id,
    }
    span = telemetry.call_span(f"{call.method} {operation.name}", call.headers, attributes)
    if carried := span.carried:
        call.headers = {**call.headers, **carried}
    return span
