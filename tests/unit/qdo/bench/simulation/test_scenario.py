"""Scenario files: what they may say, and what is refused."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from qdo.bench.simulation.costs import CostLevel, OperationCost, default_costs, read_costs
from qdo.bench.simulation.scenario import built_in_scenarios, find_scenario, load_scenario, scenario_variants
from queuey.errors import ConfigurationError


@pytest.mark.parametrize("name", built_in_scenarios())
def test_the_built_in_ones_are_read(name: str) -> None:
    scenario = load_scenario(find_scenario(name))

    assert scenario.name == name
    assert scenario.about
    assert len(scenario_variants(scenario)) > 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name: x\nservers: {cont: 3}", "x.yaml:2: unknown key cont in servers"),
        ("name: x", "nothing to simulate"),
        ("name: x\ntraffic: {a: {rate: 1, connections: 2}}", "traffic.a: give it one of rate, share and connections"),
        ("name: x\nqueues: {queues: 1}\nseconds: 1\nwarmup: 1", "warmup: nothing is left"),
        ("name: x\nqueues: {queues: 1}\nnodes: {count: 2, replication: 3}", "fewer nodes than copies"),
        ("name: x\nqueues: {queues: 1}\nservers: {racks: 1}\nfaults: {rack: 1}", "one rack only"),
        ("name: x\ngroup: {receivers: 1, servers: 2}", "more servers than receivers"),
        ("name: x\nqueues: {queues: 1}\nvary: {queues.quues: [1]}", "unknown key quues in queues"),
        ("name: x\ngroup: {k: many}", "group.k"),
    ],
)
def test_what_is_wrong_is_refused_with_its_place(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(text)

    with pytest.raises(ConfigurationError) as refused:
        load_scenario(path)

    assert said in str(refused.value)


def test_a_scenario_that_is_nowhere_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="no scenario of this name"):
        find_scenario("none")


def test_the_costs_that_come_with_the_program_are_whole() -> None:
    costs = default_costs()

    assert [level.in_flight for level in costs.append.levels] == sorted(
        level.in_flight for level in costs.append.levels
    )
    assert all(part > 0 for level in costs.append.levels for part in (level.server, level.node, level.response))


@pytest.mark.parametrize("text", ["", "{}", '{"format":1}', "name: x"])
def test_other_files_are_no_costs(tmp_path: Path, text: str) -> None:
    path = tmp_path / "costs.json"
    path.write_text(text)

    with pytest.raises(ConfigurationError, match="no costs as"):
        read_costs(path)


@pytest.mark.parametrize(
    ("levels", "said"),
    [
        ([(1, 0.001), (1, 0.002)], "append: the levels are not by rising numbers"),
        ([(9, 0.001), (1, 0.002)], "append: the levels are not by rising numbers"),
        ([(1, 0.0)], "Expected `float` > 0.0"),
    ],
)
def test_levels_that_make_no_line_are_refused(tmp_path: Path, levels: list[tuple[float, float]], said: str) -> None:
    """A server that takes no time for a request could do any number of them."""
    path = tmp_path / "costs.json"
    some = [CostLevel(in_flight, server, 0.001, 0.001, 0.004) for in_flight, server in levels]
    path.write_bytes(msgspec.json.encode(msgspec.structs.replace(default_costs(), append=OperationCost(some))))

    with pytest.raises(ConfigurationError, match=said):
        read_costs(path)
