"""Scenarios: how much of what there is, and what is asked of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from qdo.bench import strict_yaml
from qdo.bench.workload import combinations, find_file, shipped_files
from queuey.errors import ConfigurationError

__all__ = [
    "Fleet",
    "Machines",
    "NodeFleet",
    "QueueCrowd",
    "ReceiverCrowd",
    "Restarting",
    "Scenario",
    "TrafficStream",
    "WorkerCrowd",
    "built_in_scenarios",
    "find_scenario",
    "load_scenario",
    "scenario_variants",
    "seeded",
]

Whole = Annotated[int, msgspec.Meta(ge=1, le=10**12)]
Positive = Annotated[float, msgspec.Meta(gt=0, le=1e15)]
NotNegative = Annotated[float, msgspec.Meta(ge=0, le=1e15)]
Portion = Annotated[float, msgspec.Meta(ge=0, le=1)]


class Machines(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What everything runs on."""

    shared: Annotated[int, msgspec.Meta(ge=0, le=10_000)] = 0
    """Processors of the one machine that servers, nodes and the generator share; 0 gives each a machine of its own."""
    speed: Positive = 1.0
    """Of a processor, in processors of the machine whose costs were measured."""
    network: NotNegative = 0.0002
    """Seconds from one machine to another."""
    bandwidth: Positive = 1.25e9
    """Bytes a second that a machine sends: 10 Gbit/s."""


class Fleet(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Servers: processes of ``queuey serve``."""

    count: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 1
    racks: Annotated[int, msgspec.Meta(ge=1, le=100)] = 3
    start: NotNegative = 2.0
    """Seconds from the start of a server to its first answer."""
    noticed: NotNegative = 5.0
    """Seconds until the balancer knows that a server is gone, or back."""
    patience: Positive = 5.0
    """Seconds after which a client whose server says nothing asks another one."""
    notices: bool = False
    """Readers wait at all servers, so each learns of the messages that all others take."""


class NodeFleet(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Nodes of Cassandra."""

    count: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 1
    processors: Annotated[int, msgspec.Meta(ge=1, le=1024)] = 16
    replication: Annotated[int, msgspec.Meta(ge=1, le=9)] = 1
    """Copies, each in a rack of its own."""


class TrafficStream(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Requests of one kind."""

    operation: Literal["append", "receive"] = "append"
    rate: NotNegative = 0.0
    """Requests a second, with Poisson arrivals."""
    share: Annotated[float, msgspec.Meta(ge=0, le=2)] = 0.0
    """In place of a rate: the share of what the interpreters of all servers can do."""
    connections: Annotated[int, msgspec.Meta(ge=0, le=100_000)] = 0
    """In place of a rate, a closed loop: each sends its next request after the answer."""
    messages: Whole = 1
    """Of a request."""
    queues: Whole = 1
    """Partitions of queues, rather: requests to one partition share writes at a server."""
    hot: Portion = 0.0
    """The share of the requests that goes to one partition."""
    cold: Portion = 0.0
    """The share of the requests to queues that the server has not used lately."""


class Restarting(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What goes wrong, or is done."""

    rack: NotNegative = 0.0
    """The moment at which one rack is gone, servers and nodes, for good; 0 is never."""
    rolling: NotNegative = 0.0
    """The moment at which servers begin to be restarted; 0 is never."""
    together: Whole = 1
    """Servers that are restarted at once."""
    drain: NotNegative = 5.0
    """Seconds from the moment at which the balancer sends a server nothing new until it is stopped."""


class ReceiverCrowd(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The receivers of one queue with one partition, and a backlog that they work off."""

    receivers: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 1000
    servers: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 1
    exact: bool = True
    k: Annotated[int, msgspec.Meta(ge=1, le=1000)] | Literal["auto"] = "auto"
    """Of a weak group."""
    batch: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 10
    work: NotNegative = 0.0
    """Seconds of work on each message."""
    messages: Annotated[int, msgspec.Meta(ge=1, le=10_000_000)] = 20_000
    keys: Annotated[int, msgspec.Meta(ge=0, le=10_000_000)] = 0
    """With order by key, this many keys; 0 is no order."""
    hot: Portion = 0.0
    """The share of the messages with one of the keys."""
    per_key: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 1
    """Messages of a key that one request gets."""


class WorkerCrowd(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Members of one worker group in ZooKeeper, with a partition each."""

    members: Whole = 1000
    ensemble: Annotated[int, msgspec.Meta(ge=1, le=99)] = 5
    processors: Annotated[int, msgspec.Meta(ge=1, le=1024)] = 16
    session: Positive = 10.0
    """Seconds of a session's timeout."""
    changes: NotNegative = 0.01
    """Members that come or go in a second."""


class QueueCrowd(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What grows with the number of queues."""

    queues: Whole
    applications: Whole = 1
    name_bytes: Positive = 60.0
    """Of a queue's row in the lists of names."""
    settings_bytes: Positive = 400.0
    """Of its row with settings, and of its marks."""
    disk: Positive = 2e12
    """Bytes of a node's disk."""


class Scenario(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A scenario; parts that it does not have are not simulated."""

    name: str
    about: str = ""
    seed: int = 1
    seconds: Positive = 2.0
    """Of the traffic, the warm-up included."""
    warmup: NotNegative = 0.5
    most_response: Positive = 0.2
    """Seconds within which 99 of 100 requests are to be answered."""
    machines: Machines = Machines()
    servers: Fleet = Fleet()
    nodes: NodeFleet = NodeFleet()
    traffic: dict[str, TrafficStream] = {}
    faults: Restarting = Restarting()
    group: ReceiverCrowd | None = None
    members: WorkerCrowd | None = None
    queues: QueueCrowd | None = None
    vary: dict[str, Annotated[list[Any], msgspec.Meta(min_length=1, max_length=100)]] = {}
    """Places in the file, such as ``servers.count``, and the values that each takes."""

    def as_document(self) -> dict[str, Any]:
        """All that it says, its defaults included."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found


def load_scenario(path: Path) -> Scenario:
    """The scenario in a file.

    :raises ConfigurationError: with the file and the line.
    """
    found = strict_yaml.read(path, Scenario)
    scenario_variants(found)
    return found


def seeded(scenario: Scenario, seed: int) -> Scenario:
    """The scenario with another seed."""
    return msgspec.structs.replace(scenario, seed=seed)


def scenario_variants(scenario: Scenario) -> list[tuple[dict[str, Any], Scenario]]:
    """The scenarios that ``vary`` makes of one, each with the values it has.

    :raises ConfigurationError: a place is none, or a value does not fit.
    """
    name = f"scenario {scenario.name}"
    document = scenario.as_document()
    vary, document["vary"] = scenario.vary, {}
    found = []
    for values, varied in combinations(document, vary, f"{name}, vary"):
        made = strict_yaml.convert(strict_yaml.Parsed(varied, {}), Scenario, name)
        for problem in _problems(made):
            raise ConfigurationError(f"{name}: {problem}")
        found.append((values, made))
    return found


def _problems(scenario: Scenario) -> list[str]:
    found = []
    if not (scenario.traffic or scenario.group or scenario.members or scenario.queues):
        found.append("it has none of traffic, group, members and queues: there is nothing to simulate")
    if scenario.warmup >= scenario.seconds:
        found.append("warmup: nothing is left of the seconds")
    if scenario.nodes.replication > scenario.nodes.count:
        found.append("nodes: fewer nodes than copies")
    if scenario.faults.rack and scenario.servers.racks < 2:
        found.append("faults.rack: there is one rack only")
    for name, one in scenario.traffic.items():
        if sum(map(bool, (one.rate, one.share, one.connections))) != 1:
            found.append(f"traffic.{name}: give it one of rate, share and connections")
    if (group := scenario.group) and group.servers > group.receivers:
        found.append("group: more servers than receivers")
    return found


def built_in_scenarios() -> Mapping[str, Path]:
    """The scenarios that come with the program, by name."""
    return shipped_files("simulation/scenarios")


def find_scenario(name: str) -> Path:
    """A file, or a scenario that comes with the program.

    :raises ConfigurationError: there is neither.
    """
    return find_file(name, built_in_scenarios(), "no scenario of this name: 'queuey bench scenarios' shows them")
