"""``queuey bench simulate``: what no machine here can run, from what requests were measured to cost."""

from __future__ import annotations

from pathlib import Path

import click

from queuey.terminal.options import WRITTEN
from queuey.terminal.output import output_option, say, write_rows
from queuey.whole_files import write_whole


@click.command("simulate")
@click.argument("file")
@click.option("--seed", type=int, help="Of arrivals, picks and keys, in place of the file's.")
@click.option(
    "--costs",
    "costs_path",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="What requests cost, as 'python -m tests.bench predict --costs' writes it.  [default: the program's own]",
)
@click.option("--json", "json_path", type=WRITTEN, help="Write the answer there.")
@click.option("--html", "html_path", type=WRITTEN, help="Write a page with plots there.")
@click.option("--markdown", is_flag=True, help="Print the answer as the documentation has it.")
def simulate_command(
    file: str,
    seed: int | None,
    costs_path: Path | None,
    json_path: Path | None,
    html_path: Path | None,
    *,
    markdown: bool,
) -> None:
    """Simulate the scenario in FILE, or the built-in one of that name.

    The answer says how much of each limit is used: processors of servers and nodes, transactions of a group, a
    ZooKeeper's leader, sizes. The largest is the first limit; where it is passed, the answer says what to change.
    The same file, costs and seed give the same answer. 'queuey bench scenarios' shows those that come with the
    program.

    \b
    Examples:
        queuey bench simulate thousand-receivers
        queuey bench simulate plan.yaml --json plan.json --html plan.html
    """  # noqa: D301 -- click reads the character
    from qdo.bench.json_files import write_json
    from qdo.bench.simulation.answers import answer, answer_markdown, answer_page
    from qdo.bench.simulation.costs import default_costs, read_costs
    from qdo.bench.simulation.scenario import find_scenario, load_scenario, seeded
    from qdo.bench.simulation.simulating import simulate

    scenario = load_scenario(find_scenario(file))
    if seed is not None:
        scenario = seeded(scenario, seed)
    document = simulate(scenario, read_costs(costs_path) if costs_path else default_costs(), say)
    click.echo((answer_markdown if markdown else answer)(document))
    if json_path is not None:
        write_json(document, json_path)
    if html_path is not None:
        write_whole(html_path, answer_page(document).encode())


@click.command("scenarios")
@output_option
def scenarios_command(output: str | None) -> None:
    """The scenarios that come with the program, and what each asks.

    Example: queuey bench scenarios
    """
    from qdo.bench.simulation.scenario import built_in_scenarios, load_scenario

    rows = [{"name": name, "about": load_scenario(path).about} for name, path in built_in_scenarios().items()]
    write_rows(rows, ["name", "about"], output)
