"""Whole simulations: their documents, texts and pages."""

from __future__ import annotations

import json
from pathlib import Path

from qdo.bench.json_files import write_json
from qdo.bench.simulation.answers import answer, answer_markdown, answer_page, simulated_plots
from qdo.bench.simulation.scenario import scenario_variants, seeded
from qdo.bench.simulation.simulating import first_limit, simulate
from tests.support.simulated import costs, scenario

SMALL = scenario(
    about="Small & whole.",
    seconds=1,
    traffic={"appends": {"rate": 300, "queues": 1000}},
    group={"receivers": 4, "messages": 200},
    members={"members": 50},
    queues={"queues": 10**10},
    vary={"traffic.appends.rate": [100, 2000]},
)


def test_the_same_seed_gives_the_same_document() -> None:
    one, same, other = (simulate(each, costs()) for each in (SMALL, SMALL, seeded(SMALL, 2)))

    assert json.dumps(one) == json.dumps(same)
    assert one["variants"] != other["variants"]


def test_the_answer_says_the_first_limit_and_what_to_change() -> None:
    document = simulate(SMALL, costs())
    text = answer(document)

    assert [variant["values"] for variant in document["variants"]] == [{"rate": 100}, {"rate": 2000}]
    assert first_limit(document["variants"][0]).name == "lists of names"
    assert "rate=100: lists of names, passed: " in text
    assert "Change: more shards" in text


def test_the_documentation_has_the_figures_and_the_limits_that_are_passed() -> None:
    name, _, about, _, head, line, first, *_ = answer_markdown(simulate(SMALL, costs())).split("\n")

    assert (name, about) == (f"### {SMALL.name}", "Small & whole.")
    assert head.startswith("| rate | ")
    assert line.count("---") == first.count(" | ") + 1 == head.count(" | ") + 1
    assert "\n- rate=2,000: lists of names, passed: " in answer_markdown(simulate(SMALL, costs()))


def test_the_page_needs_nothing_else(tmp_path: Path) -> None:
    document = simulate(SMALL, costs())
    write_json(document, tmp_path / "a.json")
    page = answer_page(json.loads((tmp_path / "a.json").read_text()))

    assert "<svg" in page
    assert "Small &amp; whole." in page
    assert "http" not in page.replace("http-equiv", "")


def test_a_value_that_is_no_number_is_left_out_of_the_plot_and_a_figure_that_is_not_there_of_the_table() -> None:
    crowd = {"receivers": 4, "servers": 2, "exact": False, "messages": 50}
    some = scenario(group={**crowd, "k": 1}, vary={"group.k": ["auto", 1, 10], "queues": [None, {"queues": 10}]})

    document = simulate(some, costs())
    (plot, *_) = simulated_plots(document)
    head, _, *rows = answer_markdown(document).split("\n")[4:]

    assert {x for _, points in plot.lines for x, _ in points} == {1.0, 10.0}
    at = head.split(" | ").index("a shard of names, MB")
    assert [row.split(" | ")[at] == "-" for row in rows[:6]] == [True, False] * 3
    assert "<svg" in answer_page(document)


def test_variants_have_no_variants() -> None:
    assert all(not variant.vary for _, variant in scenario_variants(SMALL))
