"""The one pipeline: from a call to its answer, the same in every server and for every face.

identity -> application and queue -> permission -> operation -> answer. Every error becomes its
answer here. Servers add nothing and leave nothing out; a face decides what a call means and what a
refusal looks like.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
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
from queuey.http.admission import EXEMPT, Admission, Ticket
from queuey.http.exchange import Answer, Call, Target
from queuey.http.face import Body, Face, Operation
from queuey.http.finishing import Finisher, request_id
from queuey.monitor.metrics import APPENDS_REFUSED, BYTES_IN_FLIGHT, REQUESTS_IN_PROGRESS, THROTTLED
from queuey.security.permissions import Permission
from queuey.security.principals import payers
from queuey.service import Service

log = logging.getLogger(__name__)

_LENGTH_DIGITS = 18
SMALL = 16 << 10
"""Answers, and bodies that come with their head, are not counted up to this size: the number of requests bounds them."""

MAX_FORM_BYTES = 64 << 10
"""Of a body that is no message. The event loop parses it."""

_NO_TARGET = Target()
"""Of a call about the server itself."""


def _is_own(operation: Operation, call: Call) -> bool:
    """Whether a call is about the server itself, and anybody may make it."""
    return operation.permission is Permission.NONE and not call.application


class Pipeline:
    """Takes calls to their answers, for one service."""

    def __init__(self, service: Service, faces: Sequence[Face]) -> None:
        """:param faces: asked in this order; the last one takes every call that no other takes."""
        settings, monitor = service.settings, service.monitor
        self.service = service
        self.admission = Admission(
            settings.limits.max_in_flight,
            settings.limits.max_in_flight_mb << 20,
            elapsed=service.clock.elapsed,
            refused=lambda: monitor.count(THROTTLED, 1, "in_flight"),
        )
        monitor.ask(REQUESTS_IN_PROGRESS, lambda: self.admission.calls)
        monitor.ask(BYTES_IN_FLIGHT, lambda: self.admission.bytes)
        self.finisher = Finisher(service, faces)
        """Ends calls that are no call of this pipeline any more: refused, cut short, turned away."""
        self._face = self.finisher.face
        self._only_face = faces[0] if len(faces) == 1 else None
        """Spares each call the question."""
        self._most_bytes = settings.limits

    def open(
        self, method: str, path: str, query_string: str, headers: Mapping[str, str]
    ) -> tuple[Call, Operation | Answer]:
        """Begin a call: find its face and its operation from its head alone.

        Then the server calls :meth:`ask` before it waits for a body, :meth:`receive` for what comes of it,
        ``call.ticket.enter`` once the call is whole, and :meth:`answer` or :meth:`Finisher.full`. It ends the call with :meth:`leave`
        once the answer is sent.

        :param path: with its escapes decoded, as :func:`~queuey.http.routing.decode_path` does.
        :returns: the call, and its operation or already its refusal.
        """
        call = Call(method, path, query_string, headers)
        call.request_id = request_id(headers.get("x-request-id"))
        if method == "OPTIONS":
            asked = self.finisher.preflight(call)
            if asked is not None:
                return call, asked
        try:
            operation = (self._only_face or self._face(call)).resolve(call)
            length = self._announced_length(call, operation)
            if call.application or not _is_own(
                operation, call
            ):  # those take no body, and are wanted most when the server is full
                call.ticket = Ticket(self.admission)
                if method not in ("GET", "HEAD"):
                    call.length = length
        except QueueyError as error:
            return call, self.finisher.finish(call, "none", self.finisher.refuse(call, error), perf_counter())
        return call, operation

    def _announced_length(self, call: Call, operation: Operation) -> int:
        """How many bytes of body to read.

        A body without Content-Length could be cut on its way and look whole, so none is taken.
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
        if len(text) > _LENGTH_DIGITS or not text.isascii() or not text.isdecimal():
            raise InvalidParameter(problems={"Content-Length": "must be a plain decimal number"})
        length, limit = int(text), self._limit(operation.body)
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
        try:
            if operation.by_body is not None:
                operation = operation.by_body(call)
            target = self._target_at_hand(operation, call) if call.application else None
            if target is None:
                target = _NO_TARGET if _is_own(operation, call) else await self._admit(operation, call)
            answer = await operation.function(self.service, call, target)
            if answer.held_bytes > SMALL:
                # A write that was carried out is never answered with a refusal (G10).
                call.ticket.hold(answer.held_bytes, owed=call.method not in ("GET", "HEAD"))
        except Exception as error:  # noqa: BLE001 - and go on: the others have done nothing wrong
            answer = self._failed(operation, call, error)
        return self.finisher.finish(call, operation.name, answer, began)

    def need_not_ask(self, operation: Operation, call: Call) -> bool:
        """Whether :meth:`ask` would find at once that this call is allowed."""
        return self._target_at_hand(operation, call) is not None

    def _target_at_hand(self, operation: Operation, call: Call) -> Target | None:
        identity = (self._only_face or self._face(call)).at_hand(self.service, call)
        return None if identity is None else target_at_hand(self.service, call, identity, operation.permission)

    async def ask(self, operation: Operation, call: Call) -> Answer | None:
        """Find the caller and the caller's permission from the head alone: the body of a refused call is not taken.

        :meth:`answer` asks again, for a body may take long and much can change meanwhile.

        :returns: the refusal, if it is refused.
        """
        began = perf_counter()
        try:
            await self._admit(operation, call)
        except Exception as error:  # noqa: BLE001 - as in answer
            return self.finisher.finish(call, operation.name, self._failed(operation, call, error), began)
        return None

    def receive(self, call: Call, size: int) -> Answer | None:
        """Count ``size`` more bytes of a call's body that are here.

        An announced length takes no room: a client that announces much and sends little keeps nobody else out.

        :returns: the refusal, if there is no room for them.
        """
        try:
            call.ticket.hold(size)
        except Throttled as error:
            return self.finisher.broken_off(call, error)
        return None

    def hand_over(self, call: Call, size: int) -> bool:
        """A call's answer is made, and its client has yet to take it: from now on it takes no place, only its bytes.

        :param size: of the body, which was counted by :meth:`answer` if it is large.
        :returns: whether there is room for it.
        """
        small = size <= SMALL
        if call.ticket is EXEMPT and not small:  # the server's own pages can be large as well
            call.ticket = Ticket(self.admission, payers(call.identity.principals))
        call.ticket.give_up_place()
        return not small or call.ticket.try_hold(size, owed=call.method not in ("GET", "HEAD"))

    def payers(self, call: Call) -> Sequence[str]:
        """Whose share a call counts against; the strangers' while a signature has to be checked to know.

        The last of them pays for its time: an application, or all others together.
        """
        return payers(self._face(call).payer(self.service, call).principals)

    def leave(self, call: Call) -> None:
        """A call's answer is sent, or nobody waits for it any more. May be repeated."""
        call.ticket.close()

    async def _admit(self, operation: Operation, call: Call) -> Target:
        """Identity, application, queue, permission."""
        service, application = self.service, call.application
        if service.keys.stale:
            await refresh_keys(service)
        # Without a name the call is about all applications; only the permission decides then.
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
