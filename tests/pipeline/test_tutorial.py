"""The tutorial, typed line by line in an empty folder, with its page in a browser and its chart from Spark."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.support import browsers
from tests.support.servers import eventually
from tests.support.services.ports import free_ports
from tests.support.shell import ROOT, Shell

TUTORIAL = ROOT / "docs/tutorial.md"
KEY = "c0ffee" * 8
PAGE_MS = 60_000
BLOCK_SECONDS = 300
"""Spark starts in one of them, on a machine that may have other work."""
PROGRAM = "```sh\npython - > chart.txt <<'END'\n\\1END\n```"
"""The block of Python, as a reader runs it."""


class Typed:
    """What is typed of the page so far; each line of it succeeds."""

    def __init__(self, shell: Shell, text: str) -> None:
        self._shell, self._blocks = shell, re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        self._number = 0
        shell.type("set -euo pipefail")

    def next(self) -> str:
        """Type one block, and wait for its end.

        :returns: what it says.
        """
        self._number += 1
        before, end = len(self._shell.said), f"end of block {self._number}"
        self._shell.type(self._blocks.pop(0), f"echo '{end}'")
        eventually(lambda: end in self._shell.said or self._shell.is_over, seconds=BLOCK_SECONDS)
        said = self._shell.said[before:]
        assert end in said, said
        return said

    @property
    def is_done(self) -> bool:
        return not self._blocks


@pytest.mark.drawn
def test_each_line_of_the_tutorial_does_what_it_says(tmp_path: Path) -> None:
    queuey, site = free_ports(2, ["127.0.0.1"])
    text = TUTORIAL.read_text().replace("$(openssl rand -hex 24)", KEY).replace("/path/to/queuey", str(ROOT))
    text = text.replace("127.0.0.1:5000", f"127.0.0.1:{queuey}")
    text = re.sub(r"^```python\n(.*?)^```", PROGRAM, text, flags=re.MULTILINE | re.DOTALL)
    text = text.replace("127.0.0.1:8000", f"127.0.0.1:{site}").replace("http.server 8000", f"http.server {site}")
    variables = {"QUEUEY_PORT": str(queuey), "HOME": str(tmp_path), "PYTHONUNBUFFERED": ""}
    with closing(Shell(tmp_path, **variables)) as shell, browsers.chromium() as browser:
        typed = Typed(shell, text)
        typed.next()  # a server
        assert "two chairs, please" in typed.next()
        typed.next()  # packing.py
        typed.next()  # ten orders
        assert "the printer is out of paper" in typed.next()
        assert typed.next().count('\\"order\\"') == 9
        assert "order 10 has nothing to pack" in typed.next()
        assert "packing.report" in typed.next()
        typed.next()  # the page
        page = browser.new_page()
        page.goto(f"http://127.0.0.1:{site}")
        expect(page.get_by_role("listitem")).to_have_count(10, timeout=PAGE_MS)
        assert "'order': 11" in typed.next()
        expect(page.get_by_role("listitem").first).to_have_text("Order 11 to Gent: 4 items", timeout=PAGE_MS)
        typed.next()  # the chart
        assert (tmp_path / "chart.txt").read_text() == f"Gent    {'#' * 16}\nPorto   {'#' * 33}\n"
        typed.next()  # the end
        assert typed.is_done
