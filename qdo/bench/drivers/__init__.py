"""What a system must do to be measured: the contract, and where implementations are found.

An implementation is one module with a subclass of :class:`Driver`: one of :data:`BUILT_IN`, or of another distribution,
which names it in the entry points ``queuey.bench.drivers``. One suite, ``tests/functional/test_bench_drivers.py``, runs over
all that are built in.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from typing import ClassVar, NamedTuple

from qdo.bench.clock import LoadClock, MonotonicClock
from qdo.bench.workload import Mode, Workload
from queuey.errors import ConfigurationError

GROUP = "queuey.bench.drivers"
BUILT_IN: Mapping[str, str] = {
    "memory": "qdo.bench.drivers.memory:MemoryDriver",
    "faulty": "qdo.bench.drivers.faulty:FaultyDriver",
    "queuey": "qdo.bench.drivers.queuey_v1:QueueyDriver",
    "sqs": "qdo.bench.drivers.sqs:SqsDriver",
    "redis-streams": "qdo.bench.drivers.redis_streams:RedisStreamsDriver",
    "redis-lists": "qdo.bench.drivers.redis_lists:RedisListsDriver",
    "rabbitmq-classic": "qdo.bench.drivers.rabbitmq:RabbitClassicDriver",
    "rabbitmq-quorum": "qdo.bench.drivers.rabbitmq:RabbitQuorumDriver",
    "nats": "qdo.bench.drivers.nats:NatsDriver",
    "kafka": "qdo.bench.drivers.kafka:KafkaDriver",
}


@dataclass(frozen=True)
class MeasuredSystem:
    """A system to be measured, as every process of the generator gets it."""

    workload: Workload
    run: int
    """Number of the run; queues and messages carry it."""
    options: Mapping[str, str] = field(default_factory=dict)
    clock: LoadClock = field(default_factory=MonotonicClock)

    def queue(self, topic: int) -> str:
        """The name of a queue, unique to this run."""
        return f"bench-{self.run:08x}-{topic}"


class OutgoingMessage(NamedTuple):
    """A message to send."""

    body: bytes
    key: str | None = None
    delay: float = 0.0
    """Seconds until it may be delivered."""


class Delivered(NamedTuple):
    """A message that a receiver got."""

    body: bytes
    token: object = None
    """To acknowledge it with; None where nothing is acknowledged."""


class Producer(ABC):
    """Sends to the queues, from one thread."""

    @abstractmethod
    def send(self, topic: int, messages: Sequence[OutgoingMessage]) -> None:
        """Store the messages in their order. What is repeated after a lost answer must be stored once.

        :raises OutcomeUnknown: they may be stored, all, some or none.
        :raises QueueyError: any other says that none is stored.
        """

    def close(self) -> None:  # noqa: B027 -- some have nothing to do
        """End its connections."""


class Consumer(ABC):
    """Receives for one subscription of one queue, in one thread."""

    __slots__ = ()

    @abstractmethod
    def receive(self, wait: float) -> Sequence[Delivered]:
        """Messages, or none after up to ``wait`` seconds. ``pop`` and reads are settled by this alone.

        :raises QueueyError: there was no answer; what was handed out comes again when its leases run out.
        """

    def acknowledge(self, tokens: Sequence[object]) -> Sequence[bool]:
        """Settle these for good; for each, whether it was still held.

        :raises QueueyError: nothing is known of them.
        """
        return [True] * len(tokens)

    def fail(self, tokens: Sequence[object]) -> None:  # noqa: B027 -- some have nothing to do
        """Give these back as failures.

        :raises QueueyError: nothing is known of them.
        """

    def close(self) -> None:  # noqa: B027 -- some have nothing to do
        """End its connections."""


class LoopConsumer(ABC):
    """As a :class:`Consumer`, in a task of an event loop: other tasks go on while it waits."""

    __slots__ = ()

    @abstractmethod
    async def receive(self, wait: float) -> Sequence[Delivered]:
        """As :meth:`Consumer.receive`."""

    @abstractmethod
    async def acknowledge(self, tokens: Sequence[object]) -> Sequence[bool]:
        """As :meth:`Consumer.acknowledge`."""

    @abstractmethod
    async def fail(self, tokens: Sequence[object]) -> None:
        """As :meth:`Consumer.fail`."""

    @abstractmethod
    def close(self) -> None:
        """End its connections."""


class BlockingConsumer(LoopConsumer):
    """A consumer of a thread in this form: its coroutines are over when they return, for :func:`~qdo.bench.pace.at_once`."""

    __slots__ = ("_consumer",)

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer

    async def receive(self, wait: float) -> Sequence[Delivered]:
        return self._consumer.receive(wait)

    async def acknowledge(self, tokens: Sequence[object]) -> Sequence[bool]:
        return self._consumer.acknowledge(tokens)

    async def fail(self, tokens: Sequence[object]) -> None:
        self._consumer.fail(tokens)

    def close(self) -> None:
        self._consumer.close()


class StepConsumer(Consumer):
    """A consumer of a system that settles and sends in one step."""

    __slots__ = ()

    @abstractmethod
    def step(self, tokens: Sequence[object], topic: int, messages: Sequence[OutgoingMessage]) -> None:
        """Settle these and send the messages, all or nothing.

        :raises QueueyError: it is not done, or nothing is known of it; what is not done comes again.
        """


class Driver(ABC):
    """One system. Each process of the generator makes its own."""

    modes: ClassVar[frozenset[Mode]] = frozenset(["receive"])
    delays: ClassVar[bool] = False
    """Messages can be delayed."""
    keys: ClassVar[bool] = False
    """Messages can have keys, in whose order they are delivered."""
    option_names: ClassVar[Mapping[str, str]] = {}
    """Options, and what each is."""
    loop_modes: ClassVar[frozenset[Mode]] = frozenset()
    """Those whose receivers an event loop can serve; a driver that has some is a :class:`LoopDriver`."""
    in_process: ClassVar[bool] = False
    """The system lives in the process that uses it, so there is one."""

    def __init__(self, target: MeasuredSystem) -> None:
        """:raises ConfigurationError: an option is unknown, or the system cannot do what the workload asks for."""
        self.target = target
        self.note: Callable[[int], None] = lambda made: None
        """Called again and again by :meth:`prepare` with the number of queues that are made."""
        known = self.option_names
        if unknown := sorted(set(target.options) - set(known)):
            names = ", ".join(sorted(known)) or "none"
            raise ConfigurationError(f"the driver has no option {', '.join(unknown)}; it knows {names}")
        own = target.workload.queuey
        if own.receiving.mode not in self.modes:
            modes = ", ".join(sorted(self.modes))
            raise ConfigurationError(f"receiving.mode {own.receiving.mode}: this driver knows {modes}")
        if own.receiving.loop and own.receiving.mode not in self.loop_modes:
            raise ConfigurationError(
                f"receiving.loop: this driver has no receivers of mode {own.receiving.mode} for an event loop: leave it out, "
                "and each receiver has a thread"
            )
        if own.delay and not self.delays:
            raise ConfigurationError("delay: the system of this driver delays no messages")

    def option(self, name: str, default: float) -> float:
        """A number among the options.

        :raises ConfigurationError: it is none, or below 0.
        """
        text = self.target.options.get(name)
        try:
            found = default if text is None else float(text)
        except ValueError:
            found = -1.0
        if not 0 <= found < float("inf"):
            raise ConfigurationError(f"option {name}: {text!r} is no number from 0")
        return found

    def each_topic(self) -> Iterator[int]:
        """The number of each queue that is to be made; it is made when the next one is asked for."""
        for topic in range(self.target.workload.topics):
            yield topic
            self.note(topic + 1)

    @abstractmethod
    def prepare(self) -> None:
        """Make the queues and subscriptions, once, before any producer or consumer is made.

        :raises QueueyError: the system is away, or refuses.
        """

    @abstractmethod
    def producer(self) -> Producer:
        """A sender for one thread."""

    @abstractmethod
    def consumer(self, topic: int, subscription: int) -> Consumer:
        """A receiver for one thread."""

    def remove(self) -> None:  # noqa: B027 -- some have nothing to do
        """Remove the queues. Nothing is done about those that are left."""

    def versions(self) -> Mapping[str, str]:
        """Names and versions of what is measured, for the report."""
        return {}


class LoopDriver(Driver):
    """A system whose receivers need no threads: thousands of them wait in one event loop."""

    @abstractmethod
    def loop_consumer(self, topic: int, subscription: int) -> LoopConsumer:
        """A receiver for one task of an event loop, that in which it is used first."""


class DeadLetterDriver(Driver):
    """A system that moves what failed ``max_failures`` times, a setting of the group, to a queue of its own."""

    @property
    def max_failures(self) -> int | None:
        """Of a message, before it is a dead letter; None is the system's own number, also where the workload says never."""
        found: int | None = self.target.workload.queuey.group.get("max_failures")
        return found or None

    @abstractmethod
    def letters(self, topic: int) -> Consumer:
        """A receiver of the dead letters of a queue."""


def driver_names() -> list[str]:
    """Names of all drivers: those built in first."""
    return [*BUILT_IN, *sorted({one.name for one in entry_points(group=GROUP)} - set(BUILT_IN))]


def driver_class(name: str) -> type[Driver]:
    """The implementation of this name.

    :raises ConfigurationError: there is none, or what it imports is not installed.
    """
    found = next(iter(entry_points(group=GROUP, name=name)), None)
    if name in BUILT_IN:
        found = EntryPoint(name, BUILT_IN[name], GROUP)
    if found is None:
        raise ConfigurationError(f"no driver {name}: there are {', '.join(driver_names())}")
    try:
        loaded: type[Driver] = found.load()
    except ImportError as error:
        raise ConfigurationError(f"driver {name}: {error.name or error} is not installed") from error
    return loaded
