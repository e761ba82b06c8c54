"""The page of ``queuey bench run --html``, in a browser: on any screen, in the dark, and with no network."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from qdo.bench.document import Subject, document_of
from qdo.bench.page import page
from tests.support.bench_by_clock import run_by_clock, workload_of
from tests.support.browsers import broken_rules, chromium

WORKLOAD = workload_of(phases=[{"seconds": 1, "rate": 500}, {"seconds": 1, "rate": 900}], about="A test.")


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    runs = [run_by_clock(WORKLOAD), run_by_clock(WORKLOAD)]
    documents = [
        document_of(Subject(WORKLOAD, "memory", {"k": k}), runs, {"environment": {"python": "3"}, "versions": {}}, None)
        for k in (1, 2)
    ]
    found = tmp_path_factory.mktemp("page") / "a.html"
    found.write_text(page(documents), encoding="utf-8")
    return found


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_is_read_by_everybody_and_anywhere(path: Path, scheme: Literal["light", "dark"]) -> None:
    asked: list[str] = []
    with chromium() as browser:
        context = browser.new_context(color_scheme=scheme, viewport={"width": 390, "height": 800}, offline=True)
        shown = context.new_page()
        shown.on("request", lambda request: asked.append(request.url))
        shown.goto(path.as_uri())

        assert broken_rules(shown) == []
        assert shown.evaluate("document.documentElement.scrollWidth") == 390
    assert asked == [path.as_uri()]
