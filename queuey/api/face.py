"""The face of v1: the wire contract of Queuey, and what it adds to it."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from functools import lru_cache

from queuey.api.errors import refusal
from queuey.api.routes import ROUTES
from queuey.errors import QueueyError
from queuey.http import access
from queuey.http.exchange import PROBLEM, Answer, Call
from queuey.http.face import Operation
from queuey.http.routing import Choice
from queuey.security.permissions import Identity
from queuey.service import Service

__all__ = ["V1"]


@lru_cache(maxsize=1024)
def _found(method: str, path: str) -> tuple[Choice, str, str, str]:
    """The choice of a path, and what the path names: application, queue, and ids or a group below the queue."""
    choice, names = ROUTES.find(method, path)
    below = names.get("ids") or names.get("group", "")
    return choice, names.get("application", ""), names.get("queue", ""), below


class V1:
    """See :class:`queuey.http.face.Face`. Callers prove who they are by the Authorization header alone."""

    def serves(self, call: Call) -> bool:
        """Every call: it stands last."""
        return True

    def resolve(self, call: Call) -> Operation:
        """By path and method; by query and headers where these choose among several operations."""
        choice, call.application, call.queue, call.below = _found(call.method, call.path)
        return choice if isinstance(choice, Operation) else choice(call)

    def at_hand(self, service: Service, call: Call) -> Identity | None:
        """What this header proved within the last second."""
        return service.recent.get(call.headers.get("authorization", ""))

    def payer(self, service: Service, call: Call) -> Identity:
        """What the header proved, or proved when it was last checked."""
        return access.seems_to_be(service, call)

    def identify(self, service: Service, call: Call) -> Identity:
        """By application keys, tokens of this server, or what other schemes prove."""
        return access.identify(service, call.headers.get("authorization", ""))

    def refusal(self, error: QueueyError, call: Call, challenge: str) -> Answer:
        """v1's JSON, or RFC 9457's."""
        return refusal(error, call, challenge)

    def form_of_refusal(self, headers: Mapping[str, str]) -> Hashable:
        """Whether the answer has the form of RFC 9457."""
        return PROBLEM in headers.get("accept", "") and Call("", "", "", headers).accepts(PROBLEM)
