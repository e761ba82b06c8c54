"""What requests cost one server and one node of Cassandra, and whether the simulation predicts one, two and three servers.

The costs are measured with one server. Loads of one, two and three servers are measured in the same rounds, and each round
is predicted from its own costs: what slows the machine for some minutes is in both.
"""

from __future__ import annotations

import os
import time
import timeit
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from statistics import median
from typing import NamedTuple

import msgspec
from kazoo.client import KazooClient

from qdo.bench.machine import environment
from qdo.bench.simulation.costs import CostLevel, CostTable, OperationCost, ZooKeeperCosts
from qdo.bench.simulation.measured import MeasuredCost, measure_cost
from qdo.bench.simulation.scenario import Fleet, Machines, NodeFleet, ReceiverCrowd, Scenario, TrafficStream
from qdo.bench.simulation.simulating import simulated_figures
from qdo.bench.strict_yaml import Parsed, convert
from qdo.bench.tables import markdown_table
from qdo.bench.workload import Workload
from qdo.groups.assign import Partition
from qdo.groups.coordination import Plan as GroupPlan
from qdo.groups.coordination import plan_to_text
from queuey.storage.cassandra import peers
from tests.bench.on_cassandra.awake import awake_processors
from tests.bench.on_cassandra.nodes import Nodes, cluster
from tests.bench.plan import Plan
from tests.bench.servers import APPLICATION, KEY, Server, cpu_seconds
from tests.support.services.zookeeper import ZooKeeper

SERVERS = 3
SENDERS, RECEIVERS = 48, 18
"""Both are divisible by one, two and three servers."""
HALF = RECEIVERS // 2
"""Receivers whose requests say what handing over costs, at one server and at three."""
ALONE = (1, 2, 4, 8, 16)
"""Senders at one server: with few of them, each request has turns of its own."""
BATCH, HUNDRED = 10, 100
LIKELY = 15_000
"""Messages a second that receivers get from a warm node: enough for a first look."""
LEAST_EACH = 500
"""Messages of each of four producers that are received."""
COLD_QUEUES = 400
WARM_SECONDS = 2.0
MOST_OFF = 0.2
"""Of a rate: how far a prediction may be from the runs."""
NAMED = 1000
OPERATIONS = 3000
MEMBERS = 10_000


Found = Mapping[tuple[str, int, int], Sequence[MeasuredCost]]
"""By what was asked, the requests in flight and the servers: a run of each round."""


class Predicted(NamedTuple):
    """A load at some servers."""

    what: str
    servers: int
    runs: Sequence[float]
    """Requests a second."""
    predictions: Sequence[float]
    """For each run, from the costs of its round, with the share of the processors that other programs had meanwhile."""

    @property
    def off(self) -> float:
        """How far predictions are from their runs: the median."""
        return median(one / run for one, run in zip(self.predictions, self.runs, strict=True)) - 1

    @property
    def is_close(self) -> bool:
        return abs(self.off) <= MOST_OFF


def workload_of(name: str, seconds: float, **values: object) -> Workload:
    """A closed loop at several servers; what is left in the queues is not looked at."""
    top = {key: value for key, value in values.items() if key in Workload.__struct_encode_fields__}
    own = {key: value for key, value in values.items() if key not in top}
    document = {
        "name": name,
        "messageSize": 256,
        **top,
        "queuey": {
            "driver": "queuey-spread",
            "seconds": seconds + WARM_SECONDS,
            "warmup": WARM_SECONDS,
            "linger": 0,
            **own,
        },
    }
    return convert(Parsed(document, {}), Workload, name)


def sending(senders: int, seconds: float, *, batch: int = 1) -> Workload:
    """Nothing is received: the receivers would begin when all is sent, and then the run is over."""
    return workload_of(
        f"append by {senders}",
        seconds,
        producersPerTopic=senders,
        partitionsPerTopic=4,
        consumerBacklogSizeGB=1000,
        connections=senders,
        batch=batch,
        drain=0,
        expect={"lost": None},
    )


def first_sending(queues: int) -> Workload:
    """One message to each of very many queues, each of which is new to the server."""
    return workload_of(
        "append to new queues",
        120,
        warmup=0,
        messages=1,
        topics=queues,
        producersPerTopic=1,
        connections=1,
        receivers=1,
        consumerBacklogSizeGB=1000,
        drain=0,
        expect={"lost": None},
    )


def receiving(receivers: int, seconds: float, rate: float) -> Workload:
    """A backlog for some seconds, and then its receipt by tens."""
    return workload_of(
        f"receive by {receivers}",
        60,
        producersPerTopic=4,
        partitionsPerTopic=1,
        consumerPerSubscription=receivers,
        connections=4,
        receivers=receivers,
        warmup=0,
        consumerBacklogSizeGB=1000,
        batch=HUNDRED,
        messages=max(LEAST_EACH, round(rate * seconds / 4 / HUNDRED) * HUNDRED),
        drain=60,
        receiving={"batch": BATCH, "visibility": 600, "wait": 0},
    )


class Measuring:
    """Servers before one node, and what was measured of them."""

    def __init__(self, plan: Plan, nodes: Nodes, servers: Sequence[Server]) -> None:
        self._plan = plan
        self._nodes = nodes
        self._servers = servers

    def _servers_seconds(self) -> float:
        """Processor time of all servers: a lease group may be at home on one that no receiver asks."""
        return sum(one.cpu_seconds() for one in self._servers)

    def warm(self, workload: Callable[[float], Workload], servers: int, seconds: float) -> None:
        """One run whose figures do not count."""
        self.run(workload(seconds), servers, RECEIVERS)

    def run(self, workload: Workload, servers: int, in_flight: float) -> MeasuredCost:
        """One run with connections to the first of the servers."""
        some = self._servers[:servers]
        options = {"url": ",".join(one.url for one in some), "application": APPLICATION, "key": KEY}
        found = measure_cost(workload, options, self._servers_seconds, self._nodes.cpu_seconds, in_flight)
        level = found.level
        self._plan.tell(
            f"  {workload.name} at {servers}: {found.rate:,.0f} requests/s, processors {1e6 * level.server:,.0f} µs server, "
            f"{1e6 * level.node:,.0f} node, {1e6 * level.generator:,.0f} generator; others {found.others:.0%}"
        )
        return found

    def run_awake(self, workload: Workload, in_flight: int, servers: int = 1) -> MeasuredCost:
        """A run that leaves processors idle, which do not fall asleep: those of a busy machine do not, either."""
        with awake_processors():
            return self.run(workload, servers, in_flight)


def middle(runs: Sequence[MeasuredCost]) -> CostLevel:
    """Of some runs of one kind: the least processor times, since whatever else goes on adds to them, and the median response."""
    levels = [run.level for run in runs]
    server, node, generator = (
        min(getattr(level, name) for level in levels) for name in ("server", "node", "generator")
    )
    return CostLevel(levels[0].in_flight, server, node, generator, median(level.response for level in levels))


def measure(plan: Plan) -> tuple[CostTable, list[Predicted]]:
    """Costs, and predictions beside runs."""
    with cluster(plan) as nodes, ExitStack() as running:
        keyspace = nodes.keyspace()
        servers = [running.enter_context(nodes.server(plan, keyspace)) for _ in range(SERVERS)]
        measuring = Measuring(plan, nodes, servers)
        seconds = plan.seconds
        for workload in (partial(sending, SENDERS), partial(receiving, RECEIVERS, rate=LIKELY)):
            nodes.warm(plan.seconds, *(partial(measuring.warm, workload, count) for count in range(1, SERVERS + 1)))
        guess = measuring.run(receiving(RECEIVERS, seconds, LIKELY), 1, RECEIVERS).rate * BATCH / 2
        turns: dict[tuple[str, int, int], Callable[[], MeasuredCost]] = {}
        for senders in ALONE:
            turns["append", senders, 1] = lambda n=senders: measuring.run_awake(sending(n, seconds), n)  # type: ignore[misc]
        turns["append", SENDERS, 1] = lambda: measuring.run(sending(SENDERS, seconds), 1, SENDERS)
        for receivers in (1, RECEIVERS // 3, HALF):
            some = receiving(receivers, seconds, guess * (0.25 if receivers == 1 else 1))
            turns["receive", receivers, 1] = lambda n=receivers, w=some: measuring.run_awake(w, n)  # type: ignore[misc]
        turns["receive", RECEIVERS, 1] = lambda: measuring.run(receiving(RECEIVERS, seconds, guess), 1, RECEIVERS)
        for count in range(2, SERVERS + 1):
            turns["append", SENDERS, count] = lambda n=count: measuring.run(sending(SENDERS, seconds), n, SENDERS // n)  # type: ignore[misc]
            turns["receive", RECEIVERS, count] = lambda n=count: measuring.run(  # type: ignore[misc]
                receiving(RECEIVERS, seconds, guess), n, RECEIVERS // n
            )
        half = receiving(HALF, seconds, guess)
        turns["handed", HALF, SERVERS] = lambda: measuring.run_awake(half, HALF // SERVERS, SERVERS)
        turns["hundred", 1, 1] = lambda: measuring.run_awake(sending(1, seconds, batch=HUNDRED), 1)
        turns["cold", 1, 1] = lambda: measuring.run_awake(first_sending(COLD_QUEUES), 1)
        found: dict[tuple[str, int, int], list[MeasuredCost]] = {turn: [] for turn in turns}
        for round_ in range(plan.rounds):
            for name in reversed(turns) if round_ % 2 else turns:
                found[name].append(turns[name]())
    costs = _costs(found, notice_seconds(), zookeeper_costs(plan))
    rounds = [{name: [runs[at]] for name, runs in found.items()} for at in range(plan.rounds)]
    return costs, [*_appends(costs, rounds), *_receives(costs, rounds)]


def _costs(found: Found, notice: float, zookeeper: ZooKeeperCosts) -> CostTable:
    def levels(what: str) -> list[CostLevel]:
        return [middle(runs) for (name, _, servers), runs in found.items() if name == what and servers == 1]

    append, receive = levels("append"), levels("receive")
    (hundred,), (cold,) = levels("hundred"), levels("cold")
    return CostTable(
        measured=time.strftime("%Y-%m-%d"),
        environment=dict(environment()),
        processors=os.cpu_count() or 1,
        others=median(run.others for run in found["append", SENDERS, 1]),
        append=OperationCost(append, 1, *_further(append[0], hundred, HUNDRED - 1)),
        cold=OperationCost([cold]),
        # Of a request by tens; a further message costs what it costs an append.
        receive=OperationCost(receive, BATCH, *_further(append[0], hundred, HUNDRED - 1)),
        handed=_handed(found),
        notice=notice,
        zookeeper=zookeeper,
    )


def _handed(found: Found) -> float:
    """Of a request that is handed over: of as many receivers at each server, those of one server are at the home of the group."""
    apart, together = middle(found["handed", HALF, SERVERS]), middle(found["receive", HALF, 1])
    return max(0.0, apart.processors - together.processors) * SERVERS / (SERVERS - 1)


def _further(one: CostLevel, many: CostLevel, more: int) -> tuple[float, float]:
    return max(0.0, many.server - one.server) / more, max(0.0, many.node - one.node) / more


def _costs_of(round_: Found, costs: CostTable) -> CostTable:
    """The costs of one round; what no round measures is as in the costs of all."""
    return _costs(round_, costs.notice, costs.zookeeper)


def _appends(costs: CostTable, rounds: Sequence[Found]) -> Iterator[Predicted]:
    for count in range(1, SERVERS + 1):
        scenario = Scenario(
            name="predicted",
            seconds=10,
            warmup=1,
            machines=Machines(shared=costs.processors, network=0),
            servers=Fleet(count=count),
            nodes=NodeFleet(),
            traffic={"append": TrafficStream(connections=SENDERS)},
        )
        runs, predictions = [], []
        for round_ in rounds:
            (run,) = round_["append", SENDERS, count]
            meanwhile = msgspec.structs.replace(_costs_of(round_, costs), others=run.others)
            runs.append(run.rate)
            predictions.append(simulated_figures(scenario, meanwhile).figures["requests/s"])
        yield Predicted("append", count, runs, predictions)


def _receives(costs: CostTable, rounds: Sequence[Found]) -> Iterator[Predicted]:
    for count in range(1, SERVERS + 1):
        group = ReceiverCrowd(receivers=RECEIVERS, servers=count, messages=50_000, batch=BATCH)
        runs, predictions = [], []
        for round_ in rounds:
            (run,) = round_["receive", RECEIVERS, count]
            (one,) = round_["receive", RECEIVERS, 1]
            machines = Machines(shared=costs.processors, network=0, speed=(1 - run.others) / (1 - one.others))
            scenario = Scenario(name="predicted", machines=machines, group=group)
            runs.append(run.rate)
            predictions.append(simulated_figures(scenario, _costs_of(round_, costs)).figures["requests/s"])
        yield Predicted("receive", count, runs, predictions)


def notice_seconds() -> float:
    """To take apart a notice of other servers, for each partition in it."""
    packed = b"".join([peers._PARTITION.pack(number.to_bytes(16, "big"), 1) for number in range(NAMED)])
    return min(timeit.repeat(lambda: peers._partitions(packed), number=20, repeat=3)) / 20 / NAMED


def zookeeper_costs(plan: Plan) -> ZooKeeperCosts:
    """Of a server that stands alone."""
    with ZooKeeper(plan.fresh("zookeeper")) as service:
        pid = service.nodes[0].pid or 0
        client = KazooClient(",".join(service.contact_points))
        client.start()
        try:
            return _zookeeper(client, lambda: cpu_seconds(pid))
        finally:
            client.stop()
            client.close()


def _zookeeper(client: KazooClient, spent: Callable[[], float]) -> ZooKeeperCosts:
    def each(work: Callable[[int], object], count: int) -> float:
        """Processor seconds of one of many requests that are under way at once."""
        for counts in (count // 4, count):
            before = spent()
            for first in range(0, counts, 500):
                for answer in [work(at) for at in range(first, min(first + 500, counts))]:
                    answer.get()  # type: ignore[attr-defined]
        return (spent() - before) / count

    names = [f"web-0001-12345-1a2b3c4d.1-{at:010}" for at in range(MEMBERS)]
    client.create("/bench")
    for folder in ("small", "large", "many", "watched"):
        client.create(f"/bench/{folder}", b"x" * 100)
    write = each(
        lambda at: client.create_async(f"/bench/many/{names[at]}-{spent():.2f}", b"", sequence=True), OPERATIONS
    )
    client.set("/bench/large", b"x" * 500_000)
    listed = sum(len(name) + 4 for name in client.get_children("/bench/many"))
    read = each(lambda at: client.get_async("/bench/small"), OPERATIONS)
    events = each(lambda at: client.exists_async("/bench/watched", watch=lambda event: None), OPERATIONS)
    for at in range(OPERATIONS):
        client.create_async(f"/bench/watched/{at}")
    client.sync("/bench")
    before = spent()
    for first in range(0, OPERATIONS, 500):
        rows = range(first, min(first + 500, OPERATIONS))
        for answer in [client.exists_async(f"/bench/watched/{at}", watch=lambda event: None) for at in rows]:
            answer.get()
        for answer in [client.set_async(f"/bench/watched/{at}", b"y") for at in rows]:
            answer.get()
    watched = (spent() - before) / OPERATIONS
    return ZooKeeperCosts(
        sync=each(lambda at: client.sync_async("/bench"), OPERATIONS),
        read=read,
        read_mb=each(lambda at: client.get_async("/bench/large"), 200) / 0.5,
        children_mb=each(lambda at: client.get_children_async("/bench/many"), 200) / (listed / 1e6),
        write=write,
        event=max(0.0, watched - write - max(read, events)),
        name_bytes=len(names[0]) + 4.0,
        plan_bytes=plan_bytes(names),
    )


def plan_bytes(names: Sequence[str]) -> float:
    """Of a member with one partition, in the packed plan of all."""
    plan = GroupPlan(1, {name: [Partition(f"queue-{at // 200}", at % 200 + 1)] for at, name in enumerate(names)})
    return len(zlib.compress(plan_to_text(plan).encode())) / len(names)


def as_markdown(predictions: Sequence[Predicted]) -> str:
    """The table."""
    rows = [["requests", "servers", "measured, median (least..most)", "predicted, median", "off", "check"]]
    for one in predictions:
        runs = f"{median(one.runs):,.0f} /s ({min(one.runs):,.0f}..{max(one.runs):,.0f})"
        check = "within a fifth" if one.is_close else "NOT"
        rows.append([one.what, f"{one.servers}", runs, f"{median(one.predictions):,.0f} /s", f"{one.off:+.0%}", check])
    return markdown_table(rows)
