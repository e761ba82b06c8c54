"""Calls of one face from inside a call of another.

A face that shows what another one serves asks it as a client would: it names a method and an address, and gets the
answer or the refusal. The permission of each operation is checked as for any other call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from queuey.errors import ApplicationNotFound
from queuey.http.access import allowed
from queuey.http.carrying import carry_out
from queuey.http.exchange import Answer, Call, Target
from queuey.http.face import Face, Operation
from queuey.security.permissions import Identity
from queuey.service import Service

__all__ = ["Inside"]


class Inside:
    """Asks one face."""

    def __init__(self, service: Service, face: Face) -> None:
        self._service = service
        self._face = face

    def open(self, method: str, address: str, headers: Mapping[str, str]) -> tuple[Call, Operation]:
        """Find the operation of a call.

        :param address: a decoded path, and behind a question mark an encoded query.
        :raises QueueyError: there is no such operation.
        """
        path, _, query = address.partition("?")
        call = Call(method, path, query, headers)
        return call, self._face.resolve(call)

    async def serve(
        self,
        outer: Call,
        call: Call,
        operation: Operation,
        body: bytes = b"",
        renew: Callable[[], Identity] | None = None,
    ) -> Answer:
        """Serve an opened call, with the caller, the place and the request id of ``outer``.

        :param renew: as :attr:`Call.renew`.
        :raises QueueyError: it is refused.
        """
        call.identity, call.ticket, call.request_id = outer.identity, outer.ticket, outer.request_id
        call.peer, call.in_thread = outer.peer, outer.in_thread
        call.body, call.length, call.renew = body, len(body), renew
        if call.application and not self._service.keys.knows(call.application):
            raise ApplicationNotFound
        queue = await allowed(self._service, call.identity, operation.permission, call.application, call.queue)
        if operation.by_body is not None:
            operation = operation.by_body(call)
        return await carry_out(self._service, operation.function, call, Target(call.application, queue))
