"""A way to a server on which answers are lost: the request arrives and is carried out, its answer does not come."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tests.support.servers import RunningServer
from tests.support.services.proxy import RESET_WHEN_CLOSED


class Losing:
    """Counts the answers to lose, and those that were lost."""

    def __init__(self) -> None:
        self.url = ""
        self.lost = 0
        self._to_lose = 0
        self._lock = threading.Lock()

    def lose(self, answers: int = 1) -> None:
        """Lose the next answers."""
        with self._lock:
            self._to_lose += answers

    def loses_this(self) -> bool:
        with self._lock:
            lost = self._to_lose > 0
            self._to_lose -= lost
            self.lost += lost
        return lost


@contextmanager
def losing_answers(running: RunningServer) -> Iterator[Losing]:
    """Stands before a server. An answer is lost when its first bytes have come from there."""
    losing = Losing()
    ends: list[socket.socket] = []

    def accept() -> None:
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                return
            away = socket.create_connection(("127.0.0.1", running.port))
            ends.extend((near, away))
            threading.Thread(target=pass_on, args=(near, away), daemon=True).start()
            threading.Thread(target=answer, args=(near, away), daemon=True).start()

    def pass_on(near: socket.socket, away: socket.socket) -> None:
        with suppress(OSError):
            while piece := near.recv(1 << 16):
                away.sendall(piece)

    def answer(near: socket.socket, away: socket.socket) -> None:
        with near, away, suppress(OSError):
            while piece := away.recv(1 << 20):
                if losing.loses_this():
                    near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_WHEN_CLOSED)
                    near.shutdown(socket.SHUT_RD)  # ends the other thread, so that the descriptor closes
                    return
                near.sendall(piece)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        losing.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield losing
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            for end in ends:
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
            thread.join(30)
