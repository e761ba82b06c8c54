"""What wakes a thread, and may be called anywhere: also in a signal handler, in the middle of whatever it interrupts."""

from __future__ import annotations

from queue import Empty, SimpleQueue

__all__ = ["Waker"]


class Waker:
    """An event for one thread that waits.

    ``threading.Event`` takes a lock in each call: a signal handler that sets one while its own thread holds that
    lock waits for itself. ``SimpleQueue.put`` takes none, and is made to be called in handlers.
    """

    def __init__(self) -> None:
        self._woken: SimpleQueue[None] = SimpleQueue()

    def wake(self) -> None:
        """End the wait under way, or the next one."""
        if self._woken.empty():  # one is enough: a thread that spends it looks again at whatever has changed
            self._woken.put(None)

    def wait(self, seconds: float) -> None:
        """Return when somebody wakes, or after this time."""
        try:
            self._woken.get(timeout=seconds)
        except Empty:
            return
