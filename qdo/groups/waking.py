"""Waking a thread from anywhere, also from a signal handler in the middle of whatever it interrupts."""

from __future__ import annotations

from queue import Empty, SimpleQueue

__all__ = ["Waker"]


class Waker:
    """An event for one thread that waits.

    ``threading.Event`` takes a lock in each call. A signal handler that sets an event while its own thread holds that
    lock waits for itself. ``SimpleQueue.put`` takes no lock and is made to be called in signal handlers.
    """

    def __init__(self) -> None:
        self._woken: SimpleQueue[None] = SimpleQueue()

    def wake(self) -> None:
        """End the wait under way, or the next one."""
        if self._woken.empty():  # one entry is enough: the thread that takes it looks again at everything that changed
            self._woken.put(None)

    def wait(self, seconds: float) -> None:
        """Return when somebody calls :meth:`wake`, or after this time."""
        try:
            self._woken.get(timeout=seconds)
        except Empty:
            return
