"""What keeps a server from taking more at once than it can hold."""

from __future__ import annotations

import threading


class Gate:
    """How many requests, and how many bytes of their bodies and answers, may be under way at once (G17)."""

    def __init__(self, most_calls: int, most_bytes: int) -> None:
        self.calls = 0
        self._bytes = 0
        self._most_calls = most_calls
        self._most_bytes = most_bytes
        self._lock = threading.Lock()

    def enter(self) -> bool:
        """Let a call in, if there is room."""
        with self._lock:
            if self.calls >= self._most_calls:
                return False
            self.calls += 1
            return True

    def hold(self, size: int, *, owed: bool = False) -> bool:
        """Let a call that is in hold more bytes, if there is room; one alone always finds room.

        :param owed: room or not, for what the call asked for is done.
        """
        with self._lock:
            if not owed and self.calls > 1 and self._bytes + size > self._most_bytes:
                return False
            self._bytes += size
            return True

    def return_to(self) -> None:
        """Let a call in again that had left to wait: its place is owed."""
        with self._lock:
            self.calls += 1

    def give_back(self, size: int) -> None:
        """So many bytes are held no longer."""
        with self._lock:
            self._bytes -= size

    def leave(self, size: int) -> None:
        """A call ends and gives back what it held."""
        with self._lock:
            self.calls -= 1
            self._bytes -= size
