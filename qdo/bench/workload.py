"""Workloads: what is sent and received, at what rate, for how long, and what must hold.

The keys at the top are those of the OpenMessaging benchmark, with its meaning, so its files are taken unchanged. What it
has no word for stands in the section ``queuey``.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from qdo.bench import strict_yaml
from qdo.bench.arrivals import Arrivals, LoadPhase
from qdo.bench.bodies import NAME_BYTES
from qdo.bench.systems import SYSTEMS
from queuey.errors import ConfigurationError

Count = Annotated[int, msgspec.Meta(ge=1, le=10_000_000)]
Number = Annotated[float, msgspec.Meta(ge=0, le=1e9)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Most = Annotated[int, msgspec.Meta(ge=0)]
Mode = Literal["receive", "pop", "read", "follow"]

CLOSED_LOOP = "closed loop"
MOST_BYTES = 16 * 2**20
MOST_VARIANTS = 100
MOST_PARTIES = 1_000_000
"""Producers, or consumers, in all: each is an object of the generator."""
MOST_THREADS = 2000
"""Threads of all processes that receive."""
MOST_VIEWS = 65_535
MOST_DELAY_SECONDS = 4_000_000
"""46 days: what a body, and a row of the records, has room for."""
MOST_SECONDS = 1e9
"""Of the load: moments are 64 bits of nanoseconds."""
MOST_DRAWN = 50_000_000
"""Requests whose arrivals are drawn beforehand, in all: 8 bytes each."""


class SizeShare(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A share of the messages has this size."""

    bytes: Annotated[int, msgspec.Meta(ge=NAME_BYTES, le=MOST_BYTES)]
    weight: Annotated[float, msgspec.Meta(gt=0, le=1e9)] = 1.0


class KeyChoice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The keys of messages. Each producer has its own."""

    count: Count = 16
    noisy: Share = 0.0
    """Of the messages, with one of the keys; the others share the rest."""


class PhaseOfRun(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A part of the run with a rate of its own."""

    seconds: Annotated[float, msgspec.Meta(gt=0)]
    rate: Number


class Receiving(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the consumers do."""

    mode: Mode = "receive"
    """``receive`` takes leases and acknowledges; ``pop`` does both in one step; ``read`` asks for pages; ``follow`` is a stream."""
    batch: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 10
    """Messages of a request, at most."""
    visibility: Annotated[float, msgspec.Meta(ge=0.1, le=43_200)] = 30.0
    """Seconds of a lease."""
    wait: Annotated[float, msgspec.Meta(ge=0, le=20)] = 1.0
    """Seconds that a server may hold back an answer without messages."""
    loop: bool = False
    """One thread of each process serves all of its receivers, by an event loop. Otherwise each has a thread."""
    work: Number = 0.0
    """Seconds of work on each message."""
    crash: Share = 0.0
    """Of the requests: the receiver dies with its messages, so that their leases run out."""
    holders: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Consumers of each subscription that keep what they received until their leases run out."""
    poison: Share = 0.0
    """Of the messages: each receiver fails at them, and gives them back as failures."""


class Killing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A process that the run started is killed, and started again."""

    mttf: Annotated[float, msgspec.Meta(gt=0, le=1e9)]
    """Mean seconds between its start and its end, drawn from an exponential distribution."""
    mttr: Number = 1.0
    """Seconds until it is started again."""
    signal: Literal["kill", "pause"] = "kill"
    """``kill`` is SIGKILL; ``pause`` stops it with SIGSTOP, and lets it go on."""


class Dropping(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a proxy before the server loses, and how slow it is."""

    requests: Share = 0.0
    """Never reach the server."""
    answers: Share = 0.0
    """Never reach the client; the server did what was asked."""
    delay: Number = 0.0
    """Seconds that each request waits."""


class Faults(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What goes wrong while the load runs."""

    server: Killing | None = None
    network: Dropping | None = None


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How much of what may be found. None is any number. Nothing lost, and nothing of the rest, unless it is said here."""

    lost: Most | None = 0
    stranded: Most | None = 0
    duplicates: Most | None = 0
    out_of_order: Most | None = None
    key_out_of_order: Most | None = None
    overtaken: Most | None = None
    overlaps: Most | None = 0
    returned: Most | None = 0
    early: Most | None = 0
    late: Most | None = None
    late_seconds: Number = 1.0
    """A message is late if it comes this long after it was due to be delivered."""
    ghosts: Most | None = 0
    corrupt: Most | None = 0


class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``queuey``: what the OpenMessaging benchmark has no word for."""

    about: str = ""
    """What the workload shows, in a sentence."""
    driver: str = "queuey"
    options: dict[str, str] = {}
    """Of the driver."""
    seed: int = 1
    repeats: Annotated[int, msgspec.Meta(ge=1, le=100)] = 3
    seconds: Annotated[float, msgspec.Meta(gt=0)] | None = None
    """In place of ``testDurationMinutes``."""
    warmup: Number | None = None
    """Seconds, in place of ``warmupDurationMinutes``."""
    arrivals: Arrivals = "constant"
    phases: list[PhaseOfRun] = []
    """In place of one duration and ``producerRate``."""
    batch: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 1
    """Messages of a request to send; the rate counts messages."""
    sizes: list[SizeShare] = []
    """In place of ``messageSize``."""
    keys: KeyChoice | None = None
    delay: Annotated[float, msgspec.Meta(ge=0, le=MOST_DELAY_SECONDS)] = 0.0
    """Seconds from the sending of a message until it may be delivered."""
    messages: Count | None = None
    """A closed loop ends after this number of messages of each producer, if its time does not end before."""
    connections: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 64
    """The most that send at once. Producers share them."""
    receivers: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 256
    """The most that receive at once. Consumers share them."""
    processes: Annotated[int, msgspec.Meta(ge=1, le=64)] = 1
    """That send, and as many that receive."""
    receiving: Receiving = Receiving()
    group: dict[str, Any] = {}
    """Settings of the lease groups, by their names in the API."""
    consistency: Literal["weak", "strong", "very_strong"] | None = None
    """Of the queues."""
    drain: Number = 60.0
    """Seconds after the last message was sent in which all must have arrived."""
    linger: Number = 0.5
    """Seconds that consumers go on when all has arrived: what comes twice may come late."""
    start: str = ""
    """Start a system for the run, with data of its own: one of :data:`~qdo.bench.systems.SYSTEMS`."""
    faults: Faults = Faults()
    expect: Limits = Limits()
    vary: dict[str, Annotated[list[Any], msgspec.Meta(min_length=1, max_length=100)]] = {}
    """Places in the file, such as ``queuey.group.k``, and the values that each takes: every combination is run."""


class Workload(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """A file of the OpenMessaging benchmark, and the section ``queuey``."""

    name: str
    topics: Count = 1
    partitions_per_topic: Annotated[int, msgspec.Meta(ge=1, le=200)] = 1
    key_distributor: Literal["NO_KEY", "KEY_ROUND_ROBIN", "RANDOM_NANO"] = "NO_KEY"
    message_size: Annotated[int, msgspec.Meta(ge=NAME_BYTES, le=MOST_BYTES)] = 1024
    use_randomized_payloads: bool = False
    random_bytes_ratio: Share = 0.0
    randomized_payload_pool_size: Annotated[int, msgspec.Meta(ge=0, le=10_000)] = 0
    payload_file: str = ""
    subscriptions_per_topic: Count = 1
    producers_per_topic: Count = 1
    consumer_per_subscription: Count = 1
    producer_rate: Annotated[int, msgspec.Meta(ge=0)] = 0
    consumer_backlog_size_gb: Number = msgspec.field(default=0, name="consumerBacklogSizeGB")
    backlog_drain_ratio: Share = 1.0
    test_duration_minutes: Number = 1.0
    warmup_duration_minutes: Number = 1.0
    queuey: Section = Section()

    @property
    def phases(self) -> list[LoadPhase]:
        """The warm-up, then the parts that count. A rate of 0 is a closed loop. Rates are requests a second."""
        own = self.queuey
        seconds = own.seconds if own.seconds is not None else self.test_duration_minutes * 60
        counted = [(one.seconds, one.rate) for one in own.phases] or [(seconds, float(self.producer_rate))]
        warmup = [(self.warmup_seconds, counted[0][1])] if self.warmup_seconds else []
        return [LoadPhase(seconds, rate / own.batch) for seconds, rate in (*warmup, *counted)]

    @property
    def warmup_seconds(self) -> float:
        own = self.queuey
        return own.warmup if own.warmup is not None else self.warmup_duration_minutes * 60

    @property
    def seconds(self) -> float:
        """Of the load, the warm-up included."""
        return sum(phase.seconds for phase in self.phases)

    @property
    def loop(self) -> str:
        """How arrivals come, for the head of each table."""
        if self.is_closed:
            return CLOSED_LOOP
        return f"open loop, {self.queuey.arrivals} arrivals"

    @property
    def is_closed(self) -> bool:
        return not any(phase.rate for phase in self.phases)

    @property
    def producers(self) -> int:
        return self.topics * self.producers_per_topic

    @property
    def consumers(self) -> int:
        return self.topics * self.views * self.receivers_of_view

    @property
    def receivers_at_once(self) -> int:
        """Of all processes. Each is a connection, in most systems."""
        return min(self.consumers, self.queuey.receivers)

    def receivers_with(self, views: int) -> int:
        """How many of them a process has that serves this number of views, of those of all queues."""
        return min(views * self.receivers_of_view, -(-self.queuey.receivers * views // (self.topics * self.views)))

    @property
    def messages_in_all(self) -> int | None:
        """Messages that are sent; None if the time of the load decides."""
        return self.producers * self.queuey.messages if self.queuey.messages else None

    @property
    def keys(self) -> KeyChoice | None:
        """None sends messages without keys."""
        if self.queuey.keys or self.key_distributor == "NO_KEY":
            return self.queuey.keys
        return KeyChoice(10_000 if self.key_distributor == "RANDOM_NANO" else 16)

    @property
    def sizes(self) -> list[SizeShare]:
        return self.queuey.sizes or [SizeShare(self.message_size)]

    @property
    def backlog_messages(self) -> int:
        """Messages that must be stored before the consumers begin."""
        mean = sum(size.bytes * size.weight for size in self.sizes) / sum(size.weight for size in self.sizes)
        return int(self.consumer_backlog_size_gb * 2**30 / mean)

    @property
    def leases(self) -> bool:
        return self.queuey.receiving.mode == "receive"

    @property
    def views(self) -> int:
        """Subscriptions of a topic that each get all messages: readers do not share, so each reader is one."""
        return self.subscriptions_per_topic * (1 if self.shares else self.consumer_per_subscription)

    @property
    def shares(self) -> bool:
        """Consumers of a subscription share its messages."""
        return self.queuey.receiving.mode in ("receive", "pop")

    @property
    def receivers_of_view(self) -> int:
        return self.consumer_per_subscription if self.shares else 1

    def is_poison(self, number: int) -> bool:
        """Whether receivers fail at the message of this number."""
        share = self.queuey.receiving.poison
        return math.ceil(number * share) < math.ceil((number + 1) * share)

    def topic_of(self, stream: int) -> int:
        """The queue of a producer."""
        return stream // self.producers_per_topic

    def as_document(self) -> dict[str, Any]:
        """All that the workload says, its defaults included."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found


def load(path: Path) -> Workload:
    """The workload in a file.

    :raises ConfigurationError: with the file and the line.
    """
    return _checked(strict_yaml.read(path, Workload), str(path))


def changed(workload: Workload, **values: Any) -> Workload:
    """A copy of the workload with other values in its section ``queuey``.

    :raises ConfigurationError: a value does not fit, or its place varies.
    """
    document, place = workload.as_document(), f"workload {workload.name}"
    given = {name: value for name, value in values.items() if value is not None}
    _demand_same(workload, *(f"queuey.{name}" for name in given))
    document["queuey"] |= given
    return _checked(strict_yaml.convert(strict_yaml.Parsed(document, {}), Workload, place), place)


def scaled(workload: Workload, seconds: float) -> Workload:
    """A copy whose load takes this time; phases keep their shares of it. There is no warm-up longer than it.

    :raises ConfigurationError: the time of the load varies.
    """
    own = workload.queuey
    _demand_same(workload, "testDurationMinutes", "warmupDurationMinutes")
    counted = sum(phase.seconds for phase in own.phases)
    phases = [{"seconds": one.seconds * seconds / counted, "rate": one.rate} for one in own.phases]
    return changed(workload, seconds=seconds, phases=phases, warmup=min(workload.warmup_seconds, seconds))


def _demand_same(workload: Workload, *places: str) -> None:
    """:raises ConfigurationError: one varies: what replaces it would have no effect, or variants would not differ."""
    if varied := [place for place in places if place in workload.queuey.vary]:
        raise ConfigurationError(f"workload {workload.name}: {varied[0]} varies: nothing replaces it")


def variants(workload: Workload) -> list[tuple[dict[str, Any], Workload]]:
    """The workloads that ``vary`` makes of one, each with the values it has; one without values if nothing varies.

    :raises ConfigurationError: a place is none, or is of all variants, or a value does not fit.
    """
    name = f"workload {workload.name}, vary"
    document = workload.as_document()
    document["queuey"]["vary"] = {}
    found = []
    for values, varied in combinations(document, workload.queuey.vary, name):
        made = strict_yaml.convert(strict_yaml.Parsed(varied, {}), Workload, name)
        for one in ("driver", "repeats"):
            if getattr(made.queuey, one) != getattr(workload.queuey, one):
                raise ConfigurationError(f"{name}: queuey.{one} is that of all variants: --{one} replaces it")
        if made.queuey.vary:
            raise ConfigurationError(f"{name}: what varies does not vary itself")
        found.append((values, _checked(made, name)))
    return found


def combinations(
    document: Mapping[str, Any], vary: Mapping[str, Sequence[Any]], name: str
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Every combination of the values that some places take: the values by the last name of their place, and the document.

    >>> [(values, made["a"]["k"]) for values, made in combinations({"a": {"b": 1}}, {"a.k": [2, 3]}, "x")]
    [({'k': 2}, 2), ({'k': 3}, 3)]

    Places with the same last name have their whole names: each combination has values, and so files, of its own.

    :param name: of what varies, for the error: "workload smoke, vary".
    :raises ConfigurationError: there are more than :data:`MOST_VARIANTS`, or a place has a value twice.
    """
    count = math.prod(map(len, vary.values()))
    if count > MOST_VARIANTS:
        raise ConfigurationError(f"{name} makes {count} variants, at most {MOST_VARIANTS}")
    for place, some in vary.items():
        if any(value in some[:at] for at, value in enumerate(some)):
            raise ConfigurationError(f"{name}: {place} has a value twice")
    lasts = Counter(place.rpartition(".")[2] for place in vary)
    names = [last if lasts[last := place.rpartition(".")[2]] == 1 else place for place in vary]
    for chosen in itertools.product(*vary.values()):
        made = copy.deepcopy(dict(document))
        for place, value in zip(vary, chosen, strict=True):
            _put(made, place.split("."), value)
        yield dict(zip(names, chosen, strict=True)), made


def _put(document: dict[str, Any], place: list[str], value: Any) -> None:
    *above, last = place
    for name in above:
        if not isinstance(document.get(name), dict):
            document[name] = {}
        document = document[name]
    document[last] = value


def demand_room(workload: Workload) -> None:
    """:raises ConfigurationError: the arrivals of its requests, which are drawn beforehand, do not fit."""
    wanted = sum(phase.rate * phase.seconds for phase in workload.phases)
    if wanted > MOST_DRAWN:
        raise ConfigurationError(
            f"workload {workload.name}: {wanted:,.0f} requests are more than {MOST_DRAWN:,}: their arrivals are drawn "
            "beforehand and would not fit. --seconds makes the load shorter"
        )


def built_in() -> Mapping[str, Path]:
    """The workloads that come with the program, by name."""
    return shipped_files("workloads")


def find(name: str) -> Path:
    """A file, or a workload that comes with the program.

    :raises ConfigurationError: there is neither.
    """
    return find_file(name, built_in(), "no workload of this name: 'queuey bench ls' shows them")


def shipped_files(folder: str) -> Mapping[str, Path]:
    """The YAML files of a folder of this package, by name."""
    return {path.stem: path for path in sorted(Path(str(files("qdo.bench") / folder)).glob("*.yaml"))}


def find_file(name: str, shipped: Mapping[str, Path], otherwise: str) -> Path:
    """A file, or one that comes with the program.

    :param otherwise: what the error says where there is neither.
    :raises ConfigurationError: there is neither.
    """
    path = Path(name)
    if path.is_file():
        return path
    if found := shipped.get(name):
        return found
    raise ConfigurationError(f"{name}: no such file, and {otherwise}")


def _checked(workload: Workload, place: str) -> Workload:
    for problem in _problems(workload):
        raise ConfigurationError(f"{place}: {problem}")
    return workload


def _problems(workload: Workload) -> list[str]:
    own = workload.queuey
    found = []
    rates = {bool(phase.rate) for phase in workload.phases}
    if len(rates) > 1:
        found.append("a rate of 0 is a closed loop: the phases of a run are all closed loops, or none is")
    if workload.seconds > MOST_SECONDS:
        found.append(f"the load takes {workload.seconds:g} seconds: at most {MOST_SECONDS:g}")
    if own.messages and not workload.is_closed:
        found.append("messages: only a closed loop ends after a number of messages; set a rate of 0")
    if max(workload.producers, workload.consumers) > MOST_PARTIES:
        parties = f"{workload.producers:,} producers and {workload.consumers:,} consumers"
        found.append(f"topics, with all that each has, make {parties}: at most {MOST_PARTIES:,} of each")
    if workload.views > MOST_VIEWS:
        found.append(f"{workload.views:,} subscriptions of a topic, readers included: at most {MOST_VIEWS:,}")
    receiving = own.receiving
    if workload.receivers_at_once > MOST_THREADS and not receiving.loop:
        found.append(
            f"receivers: {workload.receivers_at_once:,} receive at once, and by threads {MOST_THREADS:,} at most: "
            "set receiving.loop: true, or lower receivers"
        )
    if receiving.holders >= workload.consumer_per_subscription and receiving.holders:
        found.append("receiving.holders: each subscription needs a consumer that does not hold its messages")
    if (receiving.crash or receiving.holders or receiving.poison) and not workload.leases:
        found.append("receiving: crash, holders and poison need leases: mode: receive")
    failures, backoff = own.group.get("max_failures", 0), own.group.get("backoff", {})
    if not isinstance(failures, int) or failures < 0:
        found.append("group: max_failures is a whole number from 0")
    numbers = backoff.values() if isinstance(backoff, dict) else [None]
    if not all(isinstance(one, int | float) and 0 <= one <= MOST_SECONDS for one in numbers):
        found.append("group: backoff has numbers from 0")
    if own.start and own.start not in SYSTEMS:
        found.append(f"start: no system {own.start}: there are {', '.join(SYSTEMS)}")
    if own.faults.network and not own.start.startswith("queuey"):
        found.append("faults.network: the proxy stands before a Queuey server that the run started: start: queuey")
    if own.faults.network and receiving.mode == "follow":
        found.append("faults.network: the proxy carries no streams, so all would be lost: another receiving.mode")
    if own.faults.server and not own.start:
        found.append("faults.server: only a process that the run started is killed: start: queuey")
    return found
