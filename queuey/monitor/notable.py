"""The last requests that the server refused, and the last ones that took long, for its operators.

An operator that was told a request id looks for it here. They lie in memory: a fixed number of each.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

__all__ = ["KEPT", "SLOW_SECONDS", "NotableRequests", "NotedCall", "RefusedRequest", "SlowRequest"]

KEPT = 100
"""Of each kind. They take some 100 KB together."""
SLOW_SECONDS = 1.0
"""A request that takes longer is slow. Waiting for messages does not count."""


class NotedCall(NamedTuple):
    """Whose request it was, and about what, as far as that was known."""

    time: float
    """When it was answered, in seconds since 1970."""
    request_id: str
    method: str
    application: str
    queue: str
    principals: tuple[str, ...]


class RefusedRequest(NamedTuple):
    """A request that was refused."""

    call: NotedCall
    status: int
    code: str
    detail: str
    """What the refusal said. It never has a credential or a body."""


class SlowRequest(NamedTuple):
    """A request that took long."""

    call: NotedCall
    operation: str
    """Its name in metrics."""
    status: int
    seconds: float


class NotableRequests:
    """What happened last. Thread-safe: a deque is."""

    def __init__(self) -> None:
        self.refused: deque[RefusedRequest] = deque(maxlen=KEPT)
        """Without those of a full server, which are only counted."""
        self.slow: deque[SlowRequest] = deque(maxlen=KEPT)
