"""The face of v1: Queuey's wire contract, and its additions to it."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from queuey.api.errors import refusal
from queuey.api.routes import ROUTES
from queuey.errors import QueueyError
from queuey.http import access
from queuey.http.exchange import PROBLEM, Answer, Call
from queuey.http.face import Operation
from queuey.http.routing import Choice
from queuey.recent import Recent
from queuey.security.permissions import Identity
from queuey.service import Service

__all__ = ["V1"]


def _find(asked: tuple[str, str]) -> tuple[Choice, str, str, str]:
    """The choice for a path, and the names in it: application, queue, and ids, a group or a task below the queue."""
    choice, names = ROUTES.find(*asked)
    application, queue, below = [*names, "", "", ""][:3]
    return choice, application, queue, below


_found = Recent(_find, 1024)
"""By method and path."""


class V1:
    """See :class:`queuey.http.face.Face`.

    Only the Authorization header proves the caller.
    """

    def serves(self, call: Call) -> bool:
        """Always: this face stands last and takes every call."""
        return True

    def resolve(self, call: Call) -> Operation:
        """By path and method; also by query and headers if several operations share them."""
        choice, call.application, call.queue, call.below = _found[call.method, call.path]
        return choice if isinstance(choice, Operation) else choice(call)

    def at_hand(self, service: Service, call: Call) -> Identity | None:
        """The identity that this header proved within the last second."""
        return service.recent.get(call.headers.get("authorization", ""))

    def payer(self, service: Service, call: Call) -> Identity:
        """The identity that the header proves, or proved when it was last checked."""
        return access.seems_to_be(service, call)

    def proves_by_head(self, service: Service, call: Call) -> bool:
        """Always: the header is all that counts."""
        return True

    def identify(self, service: Service, call: Call) -> Identity:
        """By application keys, tokens of this server, or other configured schemes."""
        return access.identify(service, call.headers.get("authorization", ""), call)

    def refusal(self, error: QueueyError, call: Call, challenge: str) -> Answer:
        """In v1's JSON, or in RFC 9457's form."""
        return refusal(error, call, challenge)

    def form_of_refusal(self, headers: Mapping[str, str]) -> Hashable:
        """Whether the answer has RFC 9457's form."""
        return PROBLEM in headers.get("accept", "").lower() and Call("", "", "", headers).accepts(PROBLEM)
