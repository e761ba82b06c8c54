"""Room in memory for the messages of an answer that hands them out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from queuey.http.admission import Ticket
from queuey.http.pipeline import SMALL
from queuey.model.lease_requests import ReceiveRequest

__all__ = ["CountedRoom"]

_AS_JSON = 6
"""How many times its bytes a body of control characters takes as JSON."""


class CountedRoom:
    """Room for the messages of an answer, while they are looked for; see :class:`~queuey.service.leases.AnswerRoom`.

    The least room is not counted: the limit on requests bounds it.
    """

    def __init__(self, ticket: Ticket, receive: ReceiveRequest | None) -> None:
        self._ticket = ticket
        self._counted = 0
        self.bytes = self._first = 0 if receive is None else receive.max_bytes

    def __enter__(self) -> Self:
        """:raises Throttled: there is no room; nothing is done."""
        if self.bytes > SMALL:
            self._counted = self.bytes - SMALL
            self._ticket.hold(self._counted * _AS_JSON)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._counted:
            self._ticket.give_back(self._counted * _AS_JSON)

    def grow(self, size: int) -> bool:
        if not self._ticket.try_hold(size * _AS_JSON):
            return False
        self._counted += size
        self.bytes += size
        return True

    @contextmanager
    def waiting(self) -> Iterator[None]:
        self.bytes = self._counted = 0
        with self._ticket.waiting():
            yield
        self.bytes = min(self._first, SMALL)
        self.grow(self._first - self.bytes)
