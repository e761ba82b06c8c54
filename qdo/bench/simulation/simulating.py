"""A scenario from its file to its answer: where the first limit is, and what to change."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from qdo.bench.simulation.costs import CostTable
from qdo.bench.simulation.crowd import simulate_crowd
from qdo.bench.simulation.membership import simulate_members
from qdo.bench.simulation.outcome import LimitUse, SimulatedFigures
from qdo.bench.simulation.scenario import Scenario, scenario_variants
from qdo.bench.simulation.sizes import sizes_of
from qdo.bench.simulation.traffic import simulate_traffic

__all__ = ["Simulated", "simulate", "simulated_figures"]

FORMAT = 1

Simulated = dict[str, Any]
"""A document: the scenario, the costs, and for each variant its values, figures and limits, the most used first."""


def simulated_figures(scenario: Scenario, costs: CostTable) -> SimulatedFigures:
    """All parts of one scenario."""
    found = SimulatedFigures()
    if scenario.traffic:
        found.add(simulate_traffic(scenario, costs))
    if scenario.group:
        found.add(simulate_crowd(scenario, scenario.group, costs))
    if scenario.members:
        found.add(simulate_members(scenario, scenario.members, costs))
    if scenario.queues:
        found.add(sizes_of(scenario, scenario.queues))
    return found


def simulate(scenario: Scenario, costs: CostTable, tell: Callable[[str], None] = lambda text: None) -> Simulated:
    """All variants of a scenario, one after the other.

    The same scenario, costs and seed give the same document.
    """
    variants = []
    for values, variant in scenario_variants(scenario):
        tell(f"{scenario.name}: {shown(values)}" if values else scenario.name)
        began = time.perf_counter()
        found = simulated_figures(variant, costs)
        tell(f"  {time.perf_counter() - began:.1f} s")
        limits = sorted(found.limits, key=lambda limit: -limit.use)
        variants.append(
            {
                "values": values,
                "figures": found.figures,
                "limits": [limit._asdict() for limit in limits],
                "series": {name: [list(point) for point in points] for name, points in found.series.items()},
            }
        )
    return {
        "format": FORMAT,
        "scenario": scenario.as_document(),
        "costs": {"measured": costs.measured, "environment": costs.environment},
        "variants": variants,
    }


def first_limit(variant: Mapping[str, Any]) -> LimitUse:
    """The limit of a variant that is used most."""
    return LimitUse(**variant["limits"][0])


def shown(values: Mapping[str, Any]) -> str:
    """The values of a variant in a label.

    >>> shown({"count": 1000, "k": "auto"})
    'count=1,000 k=auto'
    """
    return " ".join(
        f"{name}={value:,}" if isinstance(value, int | float) and not isinstance(value, bool) else f"{name}={value}"
        for name, value in values.items()
    )
