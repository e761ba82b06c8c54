"""What a worker can be told: one frozen value, checked when it is made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from qdo.groups.assign import STRATEGIES, Partition
from qdo.groups.dead_letter_names import DEFAULT_DEAD_LETTERS
from qdo.groups.names import check_group, check_member
from qdo.worker.checking import check_number, check_options
from qdo.worker.job import FailedMessages, RetryPolicy, check_job
from queuey.clock import Clock
from queuey.errors import ConfigurationError

__all__ = ["NOT_WITH_LEASE", "WorkerOptions"]

MOST_WEIGHT = 1000
"""Of a queue."""

_KINDS: tuple[tuple[str, Any, str], ...] = (
    ("weights", Mapping, "numbers by queue"),
    ("strategy", str, "a text"),
    ("retry", RetryPolicy | None, "a RetryPolicy"),
    ("wants", Callable | None, "a function of a partition"),
    *(
        (name, bool, "True or False")
        for name in ("at_most_once", "from_end", "exit_at_end", "slots", "in_order", "lease")
    ),
)
"""Types of options that are no numbers and no names."""
_LEAST: Mapping[str, float] = {
    "threads": 1,
    "processes": 0,
    "batch": 1,
    "by_key": 1,
    "commit_seconds": 0,
    "drain_seconds": 0,
    "hung_seconds": 0,
    "prefetch_messages": 1,
    "prefetch_bytes": 1,
}
"""The least value of each option that is a number."""
NOT_WITH_LEASE: Mapping[str, str] = {
    "retry": "the group's max_failures and backoff say whether and when a message comes again",
    "dead_letters": "the group's dead_letter_queue names the queue for them",
    "at_most_once": "a lease is settled when its job has ended",
    "from_end": "the group's start says where a new group begins",
    "by_key": "messages are worked on at once anyway, and with the group's order key those of one key follow each other",
    "strategy": "there are no partitions to divide",
    "slots": "there are no queues to divide",
    "wants": "there are no partitions to divide",
    "commit_seconds": "there are no offsets to commit",
    "on_failure": "the group moves messages to the dead letters",
}
"""Options of workers that own partitions, and what leases have in their place."""


@dataclass(frozen=True, kw_only=True)
class WorkerOptions:
    """The options of a :class:`~qdo.worker.Worker`.

    >>> WorkerOptions(threads=0)
    Traceback (most recent call last):
    queuey.errors.ConfigurationError: threads is 0: expected 1 or more

    :raises ConfigurationError: a value is out of range, or two options contradict each other.
    """

    group: str = "default"
    name: str | None = None
    """What the member's name begins with, 1 to 100 printable ASCII characters and no slash; None for the name of the
    machine."""
    threads: int = 4
    """Jobs at once at most. Each partition runs one job at a time."""
    processes: int = 0
    """If not 0, jobs run in this many processes, and the threads wait for them. Job and messages must be picklable."""
    batch: int = 1
    """If not 1, the job is called with a list of up to ``batch`` messages of one partition."""
    by_key: int = 1
    """If not 1, up to ``by_key`` messages of one partition run at once. Messages of one key still follow each other;
    messages without a key have no order."""
    retry: RetryPolicy | None = None
    """How often a failed job is tried again; None for the policy's defaults. At most once, no job is tried again, and
    the policy only bounds the pauses between attempts to store a dead letter."""
    dead_letters: str | None = DEFAULT_DEAD_LETTERS
    """Name of the queue for messages that are given up; ``{queue}`` stands for the queue they came from. With None the
    worker passes over such a message and logs an error."""
    at_most_once: bool = False
    """Commit before the job begins: a crash loses the message under way instead of repeating it."""
    from_end: bool = False
    """A new group begins with messages to come. Of queues and partitions that come later it gets every message."""
    exit_at_end: bool = False
    """End when nothing is left to do, what jobs send to these queues included;
    :attr:`~qdo.worker.Worker.all_done` says whether all of it is done."""
    strategy: str = "sticky"
    """How the group divides partitions: a name of :data:`~qdo.groups.assign.STRATEGIES`."""
    slots: bool = False
    """Divide queues by hash slots instead of partitions: for very many queues. Their offsets are kept in Queuey."""
    wants: Callable[[Partition], bool] | None = None
    """Says of a partition whether the group works on it; None for all partitions of the queues."""
    in_order: bool = False
    """With ``lease``: of several queues the first one gives what it has, then the next one. Those of patterns come last."""
    weights: Mapping[str, int] = field(default_factory=dict, hash=False)
    """With ``lease``: weights of queues, 1 to 1,000; 1 for others. A queue of weight 3 is asked first three times of four
    before one of weight 1."""
    lease: bool = False
    """Work on messages that a lease group hands out, one by one, to any number of workers. Nobody owns partitions then."""
    commit_seconds: float = 0.25
    """Between two commits. Each commit records all partitions that moved."""
    drain_seconds: float = 30.0
    """For jobs under way when the worker ends, or when their partition goes to another worker."""
    hung_seconds: float = 300.0
    """The worker logs a job that takes longer. Other jobs go on."""
    prefetch_messages: int = 2000
    """Messages fetched ahead in one partition, at most; with ``lease`` in all queues together. They come in portions of half of
    it, 1,000 at most, so a larger ``batch`` is not filled."""
    prefetch_bytes: int = 32 << 20
    """Bytes of the bodies that are fetched ahead, over all partitions."""
    context_value: Any = None
    """What jobs find as ``context.value``."""
    on_failure: Callable[[FailedMessages, Any], None] | None = None
    """Called with the failure and the context value, in place of writing a dead letter."""
    clock: Clock | None = None
    """None for the system's."""

    def __post_init__(self) -> None:
        check_group(self.group)
        if self.name is not None:
            check_member(self.name)
        for what, least in _LEAST.items():
            check_number(what, getattr(self, what), least, whole=not what.endswith("_seconds"))
        for what, kind, expected in _KINDS:
            if not isinstance(value := getattr(self, what), kind):
                raise ConfigurationError(f"{what} is {value!r}: expected {expected}")
        for one in fields(self) if self.lease else ():
            if one.name in NOT_WITH_LEASE and getattr(self, one.name) != one.default:
                raise ConfigurationError(f"{one.name} has no meaning with lease: {NOT_WITH_LEASE[one.name]}")
        if (self.in_order or self.weights) and not self.lease:
            raise ConfigurationError("in_order and weights are for queues that workers lease from: set lease")
        if self.in_order and self.weights:
            raise ConfigurationError("in_order leaves nothing to draw by weights: leave one of them out")
        for name, weight in self.weights.items():
            check_number(f"weight of queue {name}", weight, 1, MOST_WEIGHT)
        if self.strategy not in STRATEGIES:
            raise ConfigurationError(f"strategy {self.strategy!r}: expected one of {', '.join(STRATEGIES)}")
        if self.at_most_once and self.by_key > 1:
            raise ConfigurationError("at_most_once records before the job begins, and so goes one by one: no by_key")
        if self.slots and self.wants is not None:
            raise ConfigurationError("wants chooses partitions, and slots divide whole queues: leave one of them out")
        if self.on_failure is not None:
            check_job(self.on_failure, "failed", "context_value")

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> WorkerOptions:
        """Options by their names.

        >>> WorkerOptions.of({"thread": 8})
        Traceback (most recent call last):
        queuey.errors.ConfigurationError: a worker has no option 'thread': is it threads?

        :raises ConfigurationError: there is no such option.
        """
        check_options(cls, given, "a worker")
        return cls(**given)

    @property
    def partitions_begin_at_end(self) -> bool:
        """Whether a partition without an offset begins with messages to come.

        By slots the slot itself begins at the end, and its queues begin behind the slot's moment.
        """
        return self.from_end and not self.slots
