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

from queuey.api.calls import Answer, Call, HeaderMap, Target
from queuey.api.params import is_queue_name
from queuey.api.refusals import refusal
from queuey.api.routes import Operation, decode_path, operation_of, route_of
from queuey.errors import (
    ApplicationNotFound,
    Forbidden,
    InvalidParameter,
    LengthRequired,
    MessageTooLarge,
    QueueNotFound,
    QueueyError,
    StorageUnavailable,
    UnsupportedEncoding,
)
from queuey.security.permissions import permits
from queuey.service import Service

log = logging.getLogger(__name__)

_REQUEST_ID = re.compile(r"[A-Za-z0-9._:/+=-]{1,128}")
_LENGTH = re.compile(r"[0-9]{1,18}")
_process, _counter = secrets.token_hex(6), count(1)


class Desk:
    """Takes calls to their answers, for one service."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self._in_flight = 0
        self._limit = service.settings.limits_max_in_flight
        self._log_requests = service.settings.log_requests

    def open(self, method: str, raw_path: str, query_string: str, headers: HeaderMap) -> tuple[Call, Operation | Answer]:
        """Begin a call: find its operation, before any of its body is read.

        :param raw_path: as it stood in the request line, escapes not decoded.
        :returns: the call, and its operation or already its refusal.
        """
        call = Call(method, raw_path, query_string, headers)
        given = headers.get("x-request-id")
        call.request_id = given if given and _REQUEST_ID.fullmatch(given) else f"{_process}{next(_counter):x}"
        try:
            route, names = route_of(decode_path(raw_path))
            self._name(call, names)
            operation = operation_of(route, method)
            call.length = self._announced_length(call, operation)
            return call, operation
        except QueueyError as error:
            return call, self._finish(call, "none", self._refuse(call, error), perf_counter())

    @staticmethod
    def _name(call: Call, names: Mapping[str, str]) -> None:
        call.application = names.get("application", "")
        call.queue = names.get("queue", "")
        call.ids = names.get("ids", "")

    def _announced_length(self, call: Call, operation: Operation) -> int:
        """How many bytes of body to read.

        A body without Content-Length could be cut on its way and look whole, so none is taken.
        """
        text = call.headers.get("content-length")
        if call.headers.get("transfer-encoding") or (text is None and operation.takes_body):
            raise LengthRequired
        encoding = call.header("content-encoding")
        if encoding is not None and encoding.lower() != "identity":
            raise UnsupportedEncoding
        if not text:
            return 0
        if not _LENGTH.fullmatch(text):
            raise InvalidParameter(problems={"Content-Length": "must be a plain decimal number"})
        limit = self.service.settings.limits_max_request_bytes
        if int(text) > limit:
            raise MessageTooLarge(f"the request's body is {text} bytes; this server takes {limit}")
        return int(text)

    async def answer(self, operation: Operation, call: Call) -> Answer:
        """Serve a call whose body was read."""
        began = perf_counter()
        if self._in_flight >= self._limit:
            self.service.monitor.throttled.labels(limit="in_flight").inc()
            busy = StorageUnavailable(f"{self._limit} requests are under way, as many as this server takes at once")
            return self._finish(call, operation.route, self._refuse(call, busy), began)
        self._in_flight += 1
        try:
            answer = await self._serve(operation, call)
        except QueueyError as error:
            answer = self._refuse(call, error)
        except Exception:  # the server must survive a fault of its own
            log.exception("request %s failed", call.request_id)
            answer = self._refuse(call, QueueyError(f"the server failed; its log has more under {call.request_id}"))
        finally:
            self._in_flight -= 1
        return self._finish(call, operation.route, answer, began)

    async def _serve(self, operation: Operation, call: Call) -> Answer:
        if not call.application:
            return await operation.function(self.service, call, Target())
        service, application = self.service, call.application
        if not await service.keys.knows(application):
            raise ApplicationNotFound
        call.principals = await service.identifier.identify(call.headers.get("authorization"))
        queue = None
        if call.queue and is_queue_name(call.queue):
            queue = await service.queues.find(application, call.queue)
        if not permits(operation.permission, call.principals, application, queue):
            raise Forbidden
        if call.queue and queue is None:
            raise QueueNotFound
        return await operation.function(service, call, Target(application, queue))

    def cut_short(self, call: Call, got: int) -> Answer:
        """The body ended before its announced length: nothing of it is used (G6)."""
        error = InvalidParameter(problems={"body": f"the upload ended after {got} of {call.length} bytes"})
        answer = self._refuse(call, error)
        answer.headers.append(("connection", "close"))
        return self._finish(call, "none", answer, perf_counter())

    def _refuse(self, call: Call, error: QueueyError) -> Answer:
        if error.status >= 500:
            log.warning("refused %s %s: %s", call.method, call.request_id, error)
        return refusal(error, call, self.service.identifier.challenge)

    def _finish(self, call: Call, route: str, answer: Answer, began: float) -> Answer:
        """What every answer has, whatever it says."""
        answer.headers.append(("x-request-id", call.request_id))
        answer.headers.append(("x-content-type-options", "nosniff"))
        took = perf_counter() - began
        self.service.monitor.request(route, call.method, answer.status, took)
        if self._log_requests:
            log.info(
                "%s %s %d",
                call.method,
                route,
                answer.status,
                extra={
                    "request_id": call.request_id,
                    "principals": sorted(call.principals),
                    "app": call.application,
                    "route": route,
                    "status": answer.status,
                    "duration_ms": round(took * 1000, 3),
                },
            )
        return answer
