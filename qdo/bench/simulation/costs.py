"""What operations cost, as the harness measured it on real servers, nodes of Cassandra and a ZooKeeper.

The times are seconds of processor time for one request, for servers, nodes and the generator. They depend on how many requests a server has
in flight, since requests that wait share writes and transactions. So each operation has several levels.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec

from queuey.errors import ConfigurationError

__all__ = [
    "CostLevel",
    "CostTable",
    "OperationCost",
    "RequestParts",
    "ZooKeeperCosts",
    "default_costs",
    "read_costs",
]

FORMAT = 2
Seconds = Annotated[float, msgspec.Meta(ge=0)]


class CostLevel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An operation, with this number of requests in flight at one server."""

    in_flight: Annotated[float, msgspec.Meta(gt=0)]
    server: Annotated[float, msgspec.Meta(gt=0)]
    node: Seconds
    """Of all nodes of the store together."""
    generator: Seconds
    response: Seconds
    """From the request to its answer, on the clock."""

    @property
    def processors(self) -> float:
        return self.server + self.node + self.generator


class RequestParts(NamedTuple):
    """What a request costs by itself, and what those share that a server takes in one turn of its event loop."""

    server: float
    turn: float
    """Of a server, for each turn."""
    node: float
    burst: float
    """Of the nodes, for all that a server sends in one turn."""


class OperationCost(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One kind of request."""

    levels: Annotated[list[CostLevel], msgspec.Meta(min_length=1)]
    """By rising numbers of requests in flight."""
    messages: Annotated[int, msgspec.Meta(ge=1)] = 1
    """Of the request that was measured."""
    server_each: Seconds = 0.0
    """Of each further message of a request."""
    node_each: Seconds = 0.0

    @property
    def pause(self) -> float:
        """Seconds of a lone request that no processor spends: the disk, timers, and hand-overs."""
        alone = self.levels[0]
        return max(0.0, alone.response - alone.processors)

    def at(self, in_flight: float) -> CostLevel:
        """The cost with this number in flight: between two levels in proportion, beyond them as at the last one.

        >>> one, two = CostLevel(1, 4.0, 2.0, 1.0, 9.0), CostLevel(3, 2.0, 1.0, 1.0, 9.0)
        >>> cost = OperationCost([one, two])
        >>> cost.at(2).server, cost.at(2).node, cost.at(9).server, cost.pause
        (3.0, 1.5, 2.0, 2.0)
        """
        below = self.levels[0]
        for above in self.levels:
            if in_flight <= above.in_flight:
                break
            below = above
        else:
            return below
        if above is below or above.in_flight == below.in_flight:
            return above
        share = max(0.0, (in_flight - below.in_flight) / (above.in_flight - below.in_flight))
        mixed = (
            getattr(below, name) + share * (getattr(above, name) - getattr(below, name))
            for name in ("server", "node", "generator", "response")
        )
        return CostLevel(in_flight, *mixed)

    def transaction(self) -> tuple[float, float]:
        """What a transaction of a lease group takes at one server, where calls that wait share the next one.

        All requests in flight go round together, so a round of n takes ``fixed + n * each``: the line of least squares
        through the levels, with neither below 0.

        >>> levels = [CostLevel(n, 0, 0, 0, 0.010 + n * 0.002) for n in (1, 8, 16)]
        >>> [round(part, 6) for part in OperationCost(levels).transaction()]
        [0.01, 0.002]
        """
        return _line([(level.in_flight, level.response) for level in self.levels])

    @property
    def parts(self) -> RequestParts:
        """The parts of a request: lines of least squares through the levels.

        Half of the requests in flight are at the server, as requests or as answers, and half at the store. So a turn takes n/2
        of them, or one where there are fewer. A request is taken in one turn, and its answer in another.

        >>> levels = [CostLevel(n, 1 + 3 * min(2, 4 / n), 5 + 7 * min(1, 4 / n), 0, 0) for n in (1, 8, 40)]
        >>> [round(part, 6) for part in OperationCost(levels).parts]
        [1.0, 3.0, 5.0, 7.0]
        """
        server, turn = _line([(min(2.0, 4 / level.in_flight), level.server) for level in self.levels])
        node, burst = _line([(min(1.0, 4 / level.in_flight), level.node) for level in self.levels])
        return RequestParts(server, turn, node, burst)


def _line(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """The line of least squares: its height at 0, and its rise, neither below 0."""
    count = len(points)
    mean_x, mean_y = sum(x for x, _ in points) / count, sum(y for _, y in points) / count
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    rise = max(0.0, sum((x - mean_x) * (y - mean_y) for x, y in points) / spread) if spread else 0.0
    return max(0.0, mean_y - rise * mean_x), rise


class ZooKeeperCosts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Seconds of one server's processors."""

    sync: Seconds
    read: Seconds
    """Of a small node."""
    read_mb: Seconds
    """Beyond that, of a megabyte."""
    children_mb: Seconds
    """Of a megabyte of names."""
    write: Seconds
    event: Seconds
    """A notice to one session."""
    name_bytes: float
    """Of a member, in the list of members."""
    plan_bytes: float
    """Of a member with one partition, in the packed plan."""


class CostTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The file."""

    format: int = FORMAT
    measured: str
    """The day."""
    environment: dict[str, str]
    processors: Annotated[int, msgspec.Meta(ge=1)]
    """Of the machine on which servers, nodes and the generator shared them."""
    others: Annotated[float, msgspec.Meta(ge=0, lt=1)]
    """The share of the processors that other programs and the host took meanwhile."""
    append: OperationCost
    cold: OperationCost
    """An append to a queue that the server has not used before: it looks its settings up, and marks its bucket."""
    receive: OperationCost
    """A request that settles, or receives, ten messages of an exact group."""
    handed: Seconds
    """Of processors, what such a request costs more if its server hands it over to the home of the group: both servers
    together, less what the home saves."""
    notice: Seconds
    """Of a server, to hear that a partition has new messages at another server."""
    zookeeper: ZooKeeperCosts


def read_costs(path: Path) -> CostTable:
    """The costs in a file.

    :raises ConfigurationError: it is no file of costs, or of another format, or its levels are in no order.
    """
    try:
        found = msgspec.json.decode(path.read_bytes(), type=CostTable)
    except (msgspec.DecodeError, OSError) as error:
        raise ConfigurationError(
            f"{path}: no costs as 'python -m tests.bench predict --costs' writes them: {error}"
        ) from error
    if found.format != FORMAT:
        raise ConfigurationError(f"{path}: format {found.format}; this program reads {FORMAT}")
    for name in ("append", "cold", "receive"):
        levels = [level.in_flight for level in getattr(found, name).levels]
        if levels != sorted({*levels}):
            raise ConfigurationError(f"{path}: {name}: the levels are not by rising numbers of requests in flight")
    return found


def default_costs() -> CostTable:
    """Those that come with the program."""
    return read_costs(Path(str(files("qdo.bench.simulation") / "costs.json")))
