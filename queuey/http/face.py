"""What a protocol on top of HTTP gives the pipeline: its operations, its callers, its refusals.

A face resolves a call to an :class:`Operation` and shapes the answers to errors. What the pipeline and the servers have to
know of an operation is a field of it, so neither knows any operation by name.
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
"""Serves a call. It awaits futures and nothing else; what blocks or computes for long says so by :attr:`Operation.runs`."""

LARGE_BYTES = 128 << 10
"""A batch as JSON that is larger is no work for the event loop: to parse it takes more than some milliseconds."""


class Body(Enum):
    """What the body of a request is. It decides how large the body may be."""

    FORM = "a form, a small JSON object, or nothing: at most 64 KiB, since the event loop parses it"
    MESSAGE = "one message: Content-Length is required, at most max_body_bytes"
    BATCH = "one message or several: Content-Length is required, at most max_request_bytes"


class Runs(Enum):
    """Where a server with an event loop serves an operation. A server without one serves all in its threads."""

    LOOP = "on the event loop: it takes a millisecond at most, and gives way where it may take more"
    READER = "in a thread, unless the store reads pages by other processes: then on the loop"
    BATCH = "in the one thread that takes batches apart; on the loop if the body has at most LARGE_BYTES"
    THREAD = "in one of a few threads"


class Operation(NamedTuple):
    """What a call asks for."""

    name: str
    """In metrics and logs."""
    permission: Permission
    function: Function
    body: Body = Body.FORM
    runs: Runs = Runs.THREAD
    counts_refusals: bool = False
    """Each refusal counts in ``queuey_appends_refused``, by the error's code."""
    is_light: Callable[[Service, Call], bool] | None = None
    """Whether this very call may run on the loop all the same; None: it may not."""
    by_body: Callable[[Call], Operation] | None = None
    """The operation that is meant, where the head alone does not tell. It needs no other permission than this one."""


class Face(Protocol):
    """One protocol. The pipeline asks its faces in turn; the last one takes every call that no other takes."""

    def serves(self, call: Call) -> bool:
        """Whether the call speaks this protocol, by its head alone."""

    def resolve(self, call: Call) -> Operation:
        """The operation that a call's head asks for; sets the call's application and queue.

        :raises QueueyError: none; the call is refused in this protocol's form.
        """

    def at_hand(self, service: Service, call: Call) -> Identity | None:
        """The caller, if it was identified just now; None if :meth:`identify` has to look."""

    def payer(self, service: Service, call: Call) -> Identity:
        """Who seems to call, checked or not yet: this decides whose share pays, and permits nothing."""

    def identify(self, service: Service, call: Call) -> Identity:
        """The caller, from the head or, where the head tells no more than a digest, from the body too.

        :raises Unauthenticated, Throttled: nobody can be identified, or not now.
        """

    def refusal(self, error: QueueyError, call: Call, challenge: str) -> Answer:
        """The answer to a refused call.

        :param challenge: for WWW-Authenticate.
        """

    def form_of_refusal(self, headers: Mapping[str, str]) -> Hashable:
        """What the form of :meth:`refusal` depends on: few values, since one answer is kept for each."""
