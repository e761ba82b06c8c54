"""What a job can know of the lease that it works under."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from qdo.client.tracing import traced_message
from qdo.client.values import NewMessage
from qdo.groups.assign import Partition
from qdo.groups.coordination import Claim
from qdo.worker.job import Context
from qdo.worker.leases.values import HeldMessage, lease_until
from qdo.worker.options import WorkerOptions
from queuey.clock import Clock

__all__ = ["LeaseContext", "by_queue"]

_NONE = Claim(Partition("", 0), 0)
"""Before the first call."""


def by_queue(results: Iterable[tuple[str, NewMessage]]) -> dict[str, list[NewMessage]]:
    """Messages, each with its queue, as :attr:`~qdo.worker.leases.values.Ended.results`."""
    found: dict[str, list[NewMessage]] = {}
    for queue, message in results:
        found.setdefault(queue, []).append(message)
    return found


class LeaseContext(Context):
    """What a job of leased messages can know and do beside them. Each thread has one, and uses it again for each call.

    ``attempt`` is the number of failures and one more. ``generation`` is the number of the delivery: it rises each time that
    the message is handed out.
    """

    __slots__ = ("_held", "_until", "instead", "results")

    can_append = True

    def __init__(self, options: WorkerOptions, member: str, clock: Clock) -> None:
        super().__init__(_NONE, member=member, group=options.group, clock=clock, value=options.context_value)
        self._held: Sequence[HeldMessage] = ()
        self._until: float | None = None
        self.results: dict[str, list[NewMessage]] = {}
        self.instead: Mapping[str, Sequence[NewMessage]] | None = None
        """As :attr:`~qdo.worker.leases.values.Ended.instead`."""

    def begin(self, held: Sequence[HeldMessage]) -> None:
        """The job is called for these messages."""
        first = held[0].delivery
        self.queue, self.partition, self.generation = first.queue, first.partition, first.deliveries
        self.attempt, self.message = first.failures + 1, first
        self._held = held
        if self.results or self.instead is not None:
            self.results, self.instead = {}, None

    @property
    def is_lost(self) -> bool:
        """The lease may have ended: the server was out of reach for too long, or this machine slept.

        Another worker may have the message, so what this job does will not count.
        """
        until = lease_until(self._held) if self._until is None else self._until
        return until <= self.clock.elapsed()

    def append(self, queue: str, message: NewMessage | bytes | str) -> None:
        new = message if isinstance(message, NewMessage) else NewMessage(message)
        self.results.setdefault(queue, []).append(traced_message(new))

    def reject_if_refused(self, instead: Sequence[tuple[str, NewMessage]]) -> None:
        self.instead = by_queue(instead)

    def plain(self) -> LeaseContext:
        """A copy for another process, which hears of no extension."""
        copy = LeaseContext.__new__(LeaseContext)
        claim = Claim(Partition(self.queue, self.partition), self.generation)
        Context.__init__(copy, claim, member=self.member, group=self.group, clock=self.clock, value=None)
        copy.attempt, copy.message, copy.results, copy.instead = self.attempt, self.message, {}, None
        copy._held, copy._until = (), lease_until(self._held)  # noqa: SLF001 -- its own class
        return copy

    def outcome(self) -> Any:
        return self.results, self.instead

    def take_over(self, outcome: Any) -> None:
        self.results, self.instead = outcome
