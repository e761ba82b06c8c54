"""Work that a server does by itself, in a thread, after something was noted."""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod

from queuey.future import run

__all__ = ["BackgroundWork"]

log = logging.getLogger(__name__)


class BackgroundWork(ABC):
    """A thread that takes turns. It sleeps until it is woken, and rests after each turn."""

    def __init__(self, name: str, rest_seconds: float, *, rests_first: bool = False) -> None:
        """:param name: of the thread.
        :param rests_first: whoever starts it has taken its first turn.
        """
        self._name, self._rest_seconds, self._rests_first = name, rest_seconds, rests_first
        self._woken = threading.Event()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    @abstractmethod
    async def turn(self) -> None:
        """Do what is to be done now. If it raises, another turn follows."""

    @property
    def stopping(self) -> bool:
        """Whether a turn has to end soon."""
        return self._stopped.is_set()

    def wake(self) -> None:
        """Let a turn follow. It costs little if one follows anyway."""
        if not self._woken.is_set():
            self._woken.set()

    @property
    def has_begun(self) -> bool:
        """Whether the thread was started."""
        return self._thread is not None

    def start(self) -> None:
        """Take turns in a thread."""
        self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop after the turn under way. May be called again."""
        self._stopped.set()
        self._woken.set()
        if self._thread is not None:
            self._thread.join()

    def _work(self) -> None:
        if self._rests_first:
            self._stopped.wait(self._rest_seconds)
        while True:
            self._woken.wait()
            if self.stopping:
                return
            self._woken.clear()
            try:
                run(self.turn())
            except Exception:
                log.exception("a turn of %s failed", self._name)
                self.wake()  # the next one may work
            self._stopped.wait(self._rest_seconds)
