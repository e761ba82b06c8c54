"""Bytes that a client sends before the server asks for them."""

from __future__ import annotations

from collections.abc import Sequence

from queuey.http.admission import Admission, Ticket

__all__ = ["FREE_BYTES", "EarlyBytes"]

FREE_BYTES = 2 << 10
"""Bytes that each client may have here for free; more are counted."""


class EarlyBytes:
    """Bytes that are not used yet: part of a head, an early body, the next request."""

    __slots__ = ("_admission", "_ticket", "data")

    def __init__(self, admission: Admission) -> None:
        self.data = b""
        self._admission = admission
        self._ticket: Ticket | None = None
        """Holds a large :attr:`data`."""

    def keep(self, data: bytes, payers: Sequence[str]) -> bool:
        """Store ``data`` in place of what is here.

        Without room it stores nothing and returns False.

        :param payers: whose share the bytes count against if they are many.
        """
        if len(data) > FREE_BYTES:
            if self._ticket is not None:
                self._ticket.close()
            self._ticket = Ticket(self._admission, payers)
            if not self._ticket.try_hold(len(data)):
                self.data = b""
                return False
        self.data = data
        return True

    def take(self) -> bytes:
        """The stored bytes, whose turn has come."""
        data, self.data = self.data, b""
        if self._ticket is not None:
            self._ticket.close()
            self._ticket = None
        return data

    @property
    def is_large(self) -> bool:
        return len(self.data) > FREE_BYTES
