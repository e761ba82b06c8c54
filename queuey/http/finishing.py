"""Refusals, and what every answer has: headers, metrics, a line in the log."""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Hashable, Mapping, Sequence
from itertools import count, islice
from time import perf_counter

from queuey.errors import InvalidParameter, QueueyError, Throttled
from queuey.http.addresses import address_of
from queuey.http.cors import allowed_origin, open_to, preflight
from queuey.http.exchange import Answer, Call
from queuey.http.face import Face
from queuey.http.store_time import StoreTime
from queuey.model.trace_context import TRACEPARENT
from queuey.monitor.metrics import THROTTLED
from queuey.monitor.notable import SLOW_SECONDS, NotedCall, RefusedRequest, SlowRequest
from queuey.security.claims import unix_now
from queuey.service import Service
from queuey.sparing import SparingLog

__all__ = ["ANY_ID", "ANY_PATH", "Finisher"]

log = logging.getLogger(__name__)

_REQUEST_ID = re.compile(r"[A-Za-z0-9._:/+=-]{1,128}")
_process, _counter = secrets.token_hex(6), count(1)
MAX_METHOD, MAX_NAME, MAX_DETAIL, MAX_PRINCIPALS = 20, 80, 300, 4
"""Characters, and principals, of a request that is noted."""
_NOSNIFF = ("x-content-type-options", "nosniff")
ANY_ID = "{id}"
"""Stands for the request id in an answer that is made for many requests."""
ANY_PATH = "{path}"
"""As :data:`ANY_ID`."""


def request_id(given: str | None) -> str:
    """The id of a request: its own, if that is fit for a log, or a new one."""
    return given if given and _REQUEST_ID.fullmatch(given) else f"{_process}{next(_counter):x}"


class Finisher:
    """Ends calls.

    It shapes refusals as their face wants them, and completes, counts and logs answers.
    """

    def __init__(self, service: Service, faces: Sequence[Face]) -> None:
        """:param faces: asked in this order; the last one takes every call that no other takes."""
        self._service = service
        *self._faces, self._default = faces
        self._origins: tuple[str, ...] = service.settings.server.cors_origins
        self._trusted_proxies: tuple[str, ...] = service.settings.server.trusted_proxies
        self._sparing = SparingLog(log, service.clock.elapsed)
        self.logs_requests = False
        """Whether each request has a line in the log."""
        self.log_requests(on=service.settings.log.requests)

    def log_requests(self, *, on: bool) -> None:
        """Log a line for each request from now on, or none."""
        self.logs_requests = self._service.monitor.times_calls = on

    def face(self, call: Call) -> Face:
        """The face that serves a call."""
        found: Face | None = call.face
        if found is None:
            found = self._default
            for face in self._faces:
                if face.serves(call):
                    found = face
                    break
            call.face = found
        return found

    def preflight(self, call: Call) -> Answer | None:
        """The answer to a browser's preflight request; None for any other call."""
        answer = preflight(call, self._origins) if self._origins else None
        return None if answer is None else self.finish(call, "none", answer, perf_counter())

    def full(self, call: Call, *, logged: bool = True) -> Answer:
        """The refusal of a call that found no place.

        :param logged: log it like other requests; otherwise the server counts it.
        """
        self._service.monitor.count(THROTTLED, 1, "in_flight")
        return self.finish(call, "none", self.refuse(call, Throttled()), perf_counter(), logged=logged)

    def form(self, path: str, headers: Mapping[str, str]) -> Hashable:
        """What :meth:`alike` depends on: the face, its form, the origin in the answer."""
        origin = allowed_origin(headers.get("origin"), self._origins) if self._origins else None
        face = self.face(Call("", path, "", headers)) if self._faces else self._default
        return origin, id(face), face.form_of_refusal(headers)

    def alike(self, path: str, headers: Mapping[str, str]) -> Answer:
        """The refusal by a full server, made once for all calls of one :meth:`form`.

        Its request id is :data:`ANY_ID`, its path :data:`ANY_PATH`.
        """
        face = self.face(Call("", path, "", headers))
        call = Call("", ANY_PATH, "", headers)
        call.request_id = ANY_ID
        return self._complete(call, self.refuse(call, Throttled(), face))

    def at_once(self, method: str, given_id: str | None) -> str:
        """Count a call that :meth:`alike` refused; returns its request id."""
        self._service.monitor.refused(method, Throttled.status)
        return request_id(given_id)

    def cut_short(self, call: Call, got: int) -> Answer:
        """The refusal of a body that ended too early. No part of it is used (G6)."""
        return self.broken_off(
            call, InvalidParameter(problems={"body": f"the upload ended after {got} of {call.length} bytes"})
        )

    def turn_away(self, error: QueueyError) -> Answer:
        """The answer to input that is no call: no HTTP, or one connection too many."""
        call = Call("", "", "", {})
        call.request_id = request_id(None)
        if error.retriable:
            limit = "in_flight" if isinstance(error, Throttled) else "connections"
            self._service.monitor.count(THROTTLED, 1, limit)
        return self.broken_off(call, error)

    def broken_off(self, call: Call, error: QueueyError) -> Answer:
        """A refusal before or during an upload. The bytes that follow are no request."""
        self._note_refused(call, error)
        answer = self.face(call).refusal(error, call, self._service.identifier.challenge)
        answer.headers.append(("connection", "close"))
        return self.finish(call, "none", answer, perf_counter())

    def refuse(self, call: Call, error: QueueyError, face: Face | None = None) -> Answer:
        if error.status >= 500:
            self._sparing.write(error.code, logging.WARNING, "refused %s %s: %s", call.method, call.request_id, error)
        self._note_refused(call, error)
        return (face or self.face(call)).refusal(error, call, self._service.identifier.challenge)

    def _complete(self, call: Call, answer: Answer) -> Answer:
        """Add what every answer has."""
        if self._origins:
            open_to(answer, call, self._origins)
        answer.headers += (("x-request-id", call.request_id), _NOSNIFF)
        return answer

    def finish(
        self,
        call: Call,
        name: str,
        answer: Answer,
        began: float,
        *,
        logged: bool = True,
        in_store: StoreTime | None = None,
    ) -> Answer:
        self._complete(call, answer)
        took = perf_counter() - began - call.ticket.waited_seconds
        self._service.monitor.request(
            name, call.method, answer.status, took, call.request_id, call.headers.get(TRACEPARENT)
        )
        if took > SLOW_SECONDS:
            self._service.notable.slow.append(SlowRequest(self._who(call), name, answer.status, took))
        if self.logs_requests and logged:
            self._log(call, name, answer.status, took, in_store)
        return answer

    def _note_refused(self, call: Call, error: QueueyError) -> None:
        if type(error) is not Throttled:  # those of a full server are only counted: they would drive out all others
            detail = str(error)[:MAX_DETAIL]
            self._service.notable.refused.append(RefusedRequest(self._who(call), error.status, error.code, detail))

    def _who(self, call: Call) -> NotedCall:
        return NotedCall(
            unix_now(self._service.clock),
            call.request_id,
            call.method[:MAX_METHOD],
            call.application[:MAX_NAME],
            call.queue[:MAX_NAME],
            tuple(islice(call.identity.principals, MAX_PRINCIPALS)),
        )

    def _log(self, call: Call, name: str, status: int, took: float, in_store: StoreTime | None) -> None:
        """Log a line of a request: names, sizes of time, and no header, body or query."""
        waited = 0.0 if in_store is None else max(in_store.seconds - call.ticket.waited_seconds, 0.0)
        log.info(
            "%s %s %d",
            call.method,
            name,
            status,
            extra={
                "request_id": call.request_id,
                "principals": sorted(call.identity.principals),
                "address": address_of(call, self._trusted_proxies),
                "app": call.application,
                "queue": call.queue,
                "route": name,
                "status": status,
                "duration_ms": round(took * 1000, 3),
                "store_ms": round(waited * 1000, 3),
            },
        )
