"""What a protocol gives the pipeline: its operations, callers and refusals.

A face resolves a call to an :class:`Operation` and shapes the answers to errors. Everything that the pipeline and the
servers need to know of an operation is a field of it, so they know no operation by name.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Hashable, Mapping
from enum import Enum
from typing import Any, NamedTuple, Protocol

from queuey.errors import QueueyError
from queuey.http.exchange import Answer, Call, Target
from queuey.security.permissions import Identity, Permission
from queuey.service import Service

__all__ = ["LARGE_BYTES", "Body", "Face", "Function", "Operation", "Runs"]

Function = Callable[[Service, Call, Target], Coroutine[Any, None, Answer]]
"""Serves a call. It awaits only futures; :attr:`Operation.runs` says if it blocks or computes for long."""

LARGE_BYTES = 128 << 10
"""Bytes of JSON. Parsing a larger batch takes several milliseconds, too long for the event loop."""


class Body(Enum):
    """What kind of body a request has. It decides how large the body may be."""

    FORM = "a form, a small JSON object, or nothing: at most 64 KiB, since the event loop parses it"
    MESSAGE = "one message: Content-Length is required, at most max_body_bytes"
    BATCH = "one message or several: Content-Length is required, at most max_request_bytes"


class Runs(Enum):
    """Where a server with an event loop runs an operation.

    A server without one runs all in its threads.
    """

    LOOP = "on the event loop: it takes a millisecond at most, and gives way where it may take more"
    READER = "in a thread, unless the store reads pages by other processes: then on the loop"
    BATCH = "in the one thread that takes batches apart; on the loop if the body has at most Operation.loop_bytes"
    THREAD = "in one of a few threads"


class Operation(NamedTuple):
    """What a call asks for."""

    name: str
    """Its name in metrics and logs."""
    permission: Permission
    function: Function
    body: Body = Body.FORM
    runs: Runs = Runs.THREAD
    counts_refusals: bool = False
    """Each refusal counts in ``queuey_appends_refused``, by the error's code."""
    is_light: Callable[[Service, Call], bool] | None = None
    """Whether this very call may run on the loop all the same; None: it may not."""
    by_body: Callable[[Call], Operation] | None = None
    """Chooses the operation by the body, if the head does not decide. It needs no other permission than this one.

    It is called once, when the caller is known and may do this."""
    loop_bytes: int = LARGE_BYTES
    """Bytes of body up to which :attr:`Runs.BATCH` stays on the loop."""
    about_server: bool = False
    """It takes no body and no place and asks for no permission, so that it works when the server is full."""


class Face(Protocol):
    """One protocol. The pipeline asks its faces in turn; the last takes the rest."""

    def serves(self, call: Call) -> bool:
        """Whether the call speaks this protocol, judged by its head alone."""

    def resolve(self, call: Call) -> Operation:
        """The operation that a call's head asks for.

        Sets the call's application and queue.

        :raises QueueyError: there is none; the call is refused in this protocol's form.
        """

    def at_hand(self, service: Service, call: Call) -> Identity | None:
        """The caller if it is remembered; None if :meth:`identify` has to check it."""

    def payer(self, service: Service, call: Call) -> Identity:
        """The apparent caller, checked or not.

        It decides whose share pays, and permits nothing.
        """

    def proves_by_head(self, service: Service, call: Call) -> bool:
        """Whether the head alone proves the caller. If not, the body is read first, and :attr:`payer` pays for it.

        :raises Unauthenticated: the head shows already that no body will prove anybody.
        """

    def identify(self, service: Service, call: Call) -> Identity:
        """The caller. Where the head alone does not prove it, ask this only once the body is here.

        :raises Unauthenticated, Throttled: the caller cannot be identified, or not now.
        """

    def refusal(self, error: QueueyError, call: Call, challenge: str) -> Answer:
        """The answer to a refused call.

        :param challenge: the value of WWW-Authenticate.
        """

    def form_of_refusal(self, headers: Mapping[str, str]) -> Hashable:
        """What the form of :meth:`refusal` depends on.

        It has few values, since one answer is stored for each.
        """
