"""The traffic of servers and nodes, in models small enough for theory to know the answer."""

from __future__ import annotations

import pytest

from qdo.bench.simulation.costs import CostLevel, OperationCost
from qdo.bench.simulation.outcome import LimitUse, SimulatedFigures
from qdo.bench.simulation.simulating import simulated_figures
from tests.support.simulated import costs, interval, scenario

STREAM = {"queues": 10**9}


def used(found: SimulatedFigures, name: str) -> LimitUse:
    return next(limit for limit in found.limits if limit.name == name)


def test_a_server_is_an_m_d_1_queue() -> None:
    """Each request takes the same time: by Pollaczek and Khinchine it waits half of what it would in M/M/1."""
    service, load = 0.01, 0.7
    runs = [
        simulated_figures(
            scenario(
                seed=seed,
                seconds=20,
                warmup=2,
                machines={"network": 0},
                traffic={"appends": {"rate": load / service, **STREAM}},
            ),
            costs(server=service),
        )
        for seed in range(20)
    ]

    mean, off = interval([run.figures["response mean, ms"] / 1e3 for run in runs])
    busy, busy_off = interval([used(run, "interpreters of servers").use for run in runs])

    assert abs(mean - service * (1 + load / 2 / (1 - load))) < off < 0.2 * mean
    assert abs(busy - load) < busy_off < 0.1


@pytest.mark.parametrize("servers", [1, 2, 3])
def test_servers_that_share_processors_are_no_faster_than_these(servers: int) -> None:
    """A closed loop: with one server its event loop is the limit, with more of them the two processors."""
    level = CostLevel(1, 0.002, 0.001, 0.0005, 0.0035)
    found = simulated_figures(
        scenario(
            seconds=6,
            warmup=1,
            machines={"shared": 2, "network": 0},
            servers={"count": servers},
            traffic={"appends": {"connections": 30}},
        ),
        costs(append=OperationCost([level])),
    )

    bound = min(servers / level.server, 2 / level.processors)
    # While a single server works off what has come, the nodes may have nothing to do.
    assert (0.8 if servers == 1 else 0.95) * bound < found.figures["requests/s"] < 1.02 * bound


def test_requests_of_a_busy_server_share_its_turns_and_those_of_idle_servers_do_not() -> None:
    """The nodes are busier than each of three servers, so the servers take each request at once, and pay for a turn."""
    levels = [
        CostLevel(n, 0.001 + 0.0005 * min(2, 4 / n), 0.0015 + 0.001 * min(1, 4 / n), 0.0001, 0) for n in (1, 8, 64)
    ]

    def rate(servers: int) -> float:
        small = scenario(
            seconds=5,
            warmup=1,
            machines={"shared": 2, "network": 0},
            servers={"count": servers},
            traffic={"appends": {"connections": 48}},
        )
        return simulated_figures(small, costs(append=OperationCost(levels))).figures["requests/s"]

    alone, at_three = 2 / 0.0046, 2 / (0.001 + 0.0015 + 0.0001)
    assert rate(1) > 1.1 * alone, "many share a turn"
    assert rate(1) < 0.9 * at_three, "a processor is idle at times"
    assert rate(3) == pytest.approx(alone, rel=0.1), "each pays for its turns"


def test_a_faster_machine_and_other_programs_change_what_it_can_do() -> None:
    def rate(others: float, speed: float) -> float:
        machines = {"shared": 2, "network": 0, "speed": speed}
        small = scenario(seconds=3, machines=machines, traffic={"appends": {"connections": 10}})
        return simulated_figures(small, costs(server=0.002, others=others)).figures["requests/s"]

    assert rate(0.0, 1.0) == pytest.approx(500, rel=0.02)
    assert rate(0.5, 1.0) == pytest.approx(250, rel=0.02)
    assert rate(0.0, 2.0) == pytest.approx(1000, rel=0.02)


def test_further_messages_of_a_request_cost_their_own() -> None:
    one = OperationCost([CostLevel(1, 0.001, 0.0, 0.0, 0.0)], server_each=0.0001)
    small = scenario(traffic={"appends": {"rate": 100, "messages": 11, **STREAM}})

    found = simulated_figures(small, costs(append=one))

    assert used(found, "interpreters of servers").use == pytest.approx(100 * 0.002, rel=0.3)


def test_a_hot_partition_lies_on_its_own_nodes_alone() -> None:
    small = scenario(
        nodes={"count": 6, "processors": 1, "replication": 3},
        servers={"count": 4},
        traffic={"appends": {"rate": 800, "hot": 0.5, **STREAM}},
    )

    nodes = used(simulated_figures(small, costs(server=0.0001, node=0.001)), "processors of nodes")

    # Three nodes have all of the hot half, and half of the rest.
    assert nodes.use == pytest.approx(800 * 0.75 * 0.001, rel=0.1)
    assert "more partitions" in nodes.change or nodes.use < 1.5 * 0.4


def test_requests_to_a_lost_rack_wait_until_the_balancer_notices() -> None:
    small = scenario(
        seconds=12,
        warmup=1,
        servers={"count": 3, "noticed": 2, "patience": 1},
        nodes={"count": 3, "processors": 2, "replication": 3},
        traffic={"appends": {"rate": 200, **STREAM}},
        faults={"rack": 4},
    )

    found = simulated_figures(small, costs())
    slow = [second for second, p99 in found.series["response p99, ms"] if p99 > 500]

    assert found.figures["attempts without a good answer"] > 100
    assert min(slow) >= 4
    assert max(slow) <= 4 + 2 + 1 + 1, "later requests go to servers that are there"
    assert used(found, "response time").use > 1


def test_servers_of_a_lost_rack_do_not_come_back_by_a_restart() -> None:
    small = scenario(
        seconds=10,
        warmup=0.5,
        servers={"count": 3, "start": 0.5, "noticed": 0.5, "patience": 0.5},
        nodes={"count": 3, "processors": 2, "replication": 3},
        traffic={"appends": {"rate": 100, **STREAM}},
        faults={"rack": 1, "rolling": 3, "drain": 0.2},
    )

    found = simulated_figures(small, costs())
    slow = [second for second, p99 in found.series["response p99, ms"] if p99 > 400]

    assert slow, "it takes the balancer a while"
    assert max(slow) < 3, "no request goes to the rack that is gone"


def test_copies_in_one_rack_alone_cannot_store_without_it() -> None:
    small = scenario(
        seconds=3,
        servers={"count": 3, "noticed": 0.1, "patience": 0.1},
        nodes={"count": 2, "replication": 2},
        traffic={"appends": {"rate": 50, **STREAM}},
        faults={"rack": 1},
    )

    found = simulated_figures(small, costs())

    assert found.figures["requests/s"] < 50 * 0.5


@pytest.mark.parametrize(
    "faults", [{"rack": 1}, {"rolling": 1, "together": 3, "drain": 0.5}], ids=["a rack", "a restart of all"]
)
def test_requests_that_nobody_answers_are_over_the_bound(faults: dict[str, float]) -> None:
    """Nothing is left that answers. The requests before were answered at once, and would be all that is seen."""
    small = scenario(
        seconds=4,
        warmup=0.5,
        servers={"count": 1, "start": 60},
        traffic={"appends": {"rate": 50, **STREAM}},
        faults=faults,
    )

    found = simulated_figures(small, costs())

    assert found.figures["requests/s"] < 50 * 0.5
    assert found.figures["seconds over the bound"] == 1
    assert used(found, "response time").use > 10


def test_a_closed_loop_takes_a_refusal_for_no_answer() -> None:
    """One of two servers is restarted after the other. Meanwhile half of the connections can do nothing but ask again."""
    values = {"seconds": 9, "warmup": 1, "servers": {"count": 2, "start": 2, "noticed": 1}}
    some = [
        simulated_figures(
            scenario(**values, traffic={"appends": {"connections": 4}}, faults=faults), costs(server=0.01)
        ).figures
        for faults in ({}, {"rolling": 2, "drain": 0.5})
    ]

    assert some[1]["requests/s"] < some[0]["requests/s"]
    assert some[1]["attempts without a good answer"] > 0


def test_servers_are_restarted_without_a_failed_request() -> None:
    values = {
        "seconds": 12,
        "warmup": 1,
        "servers": {"count": 3, "start": 1, "noticed": 0.5},
        "traffic": {"appends": {"share": 0.5, **STREAM}},
    }
    some = [
        simulated_figures(
            scenario(**values, faults={"rolling": 2, "drain": 0.5, "together": together}), costs(server=0.01)
        )
        for together in (1, 2)
    ]

    assert [one.figures["attempts without a good answer"] for one in some] == [0, 0]
    one, two = (found.figures["response p99, ms"] for found in some)
    # With one of three out, the others are busy for three quarters of the time; one alone cannot do it.
    assert one < 200 < two


def test_notices_grow_with_the_square_of_the_servers() -> None:
    def notices(servers: int, **stream: float) -> float:
        small = scenario(
            seconds=0.2,
            warmup=0.1,
            servers={"count": servers, "notices": True},
            traffic={"appends": {**(stream or {"rate": 10 * servers}), **STREAM}},
        )
        return used(simulated_figures(small, costs(server=0.01)), "notices, nodes").use

    assert notices(40) == pytest.approx(16 * notices(10), rel=0.01)
    # A tenth of the hundred that a server can do in a second; as many of a closed loop's connections have more.
    assert notices(10, share=0.1) == pytest.approx(notices(10))
    assert notices(10, connections=10) > notices(10)
