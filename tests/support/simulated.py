"""Costs and scenarios for small simulations, and what queueing theory says of them."""

from __future__ import annotations

import math
from typing import Any

from qdo.bench.simulation.costs import CostLevel, CostTable, OperationCost, ZooKeeperCosts
from qdo.bench.simulation.scenario import Scenario
from qdo.bench.strict_yaml import Parsed, convert


def costs(*, server: float = 0.001, node: float = 0.0, response: float = 0.0, **changes: Any) -> CostTable:
    """The same for each kind of request."""
    one = OperationCost([CostLevel(1, server, node, 0.0, response)])
    table: dict[str, Any] = {
        "measured": "2026-11-26",
        "environment": {},
        "processors": 2,
        "others": 0.0,
        "append": one,
        "cold": one,
        "receive": one,
        "handed": 0.0,
        "notice": 1e-6,
        "zookeeper": ZooKeeperCosts(1e-5, 1e-5, 1e-3, 5e-3, 1e-4, 1e-5, 40.0, 25.0),
    }
    return CostTable(**(table | changes))


def scenario(**values: Any) -> Scenario:
    return convert(Parsed({"name": "small", **values}, {}), Scenario, "small")


def mean_wait(rate: float, service: float, processors: int) -> float:
    """Seconds that a request waits in M/M/c: Erlang's C formula."""
    load = rate * service
    full = load**processors / math.factorial(processors) * processors / (processors - load)
    waits = full / (sum(load**at / math.factorial(at) for at in range(processors)) + full)
    return waits * service / (processors - load)


def interval(values: list[float]) -> tuple[float, float]:
    """The mean of independent runs, and what it may be off 999 times in 1,000 (Student's distribution, 19 degrees)."""
    count = len(values)
    mean = sum(values) / count
    spread = math.sqrt(sum((value - mean) ** 2 for value in values) / (count - 1))
    return mean, 3.88 * spread / math.sqrt(count)
