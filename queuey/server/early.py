"""Bytes that a client sends before their turn."""

from __future__ import annotations

from collections.abc import Sequence

from queuey.http.admission import Admission, Ticket

__all__ = ["FREE_BYTES", "EarlyBytes"]

FREE_BYTES = 2 << 10
"""What each client may have here for nothing; more counts."""


class EarlyBytes:
    """What was received and is not used yet: the rest of a head, a body that is not asked for yet, the next request."""

    __slots__ = ("_admission", "_ticket", "data")

    def __init__(self, admission: Admission) -> None:
        self.data = b""
        self._admission = admission
        self._ticket: Ticket | None = None
        """For a large :attr:`data`."""

    def keep(self, data: bytes, payers: Sequence[str]) -> bool:
        """Keep ``data`` in place of what is here; False, and then nothing is kept, if there is no room.

        :param payers: whose share it counts against if it is large.
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
        """What was kept; its turn has come."""
        data, self.data = self.data, b""
        if self._ticket is not None:
            self._ticket.close()
            self._ticket = None
        return data

    @property
    def is_large(self) -> bool:
        return len(self.data) > FREE_BYTES
