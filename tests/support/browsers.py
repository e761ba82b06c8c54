"""Debian's Chromium, driven by Playwright."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

from tests.support.servers import APPLICATIONS


@contextmanager
def chromium() -> Iterator[Browser]:
    """One browser; it ends with the block."""
    found = shutil.which("chromium")
    assert found, "chromium is missing: 'make test' installs it"
    with sync_playwright() as playwright, playwright.chromium.launch(executable_path=found) as browser:
        yield browser


def signed_in_page(page: Page, url: str) -> Page:
    """The page, signed in at a console with the first key of the application ``queuey``."""
    page.goto(f"{url}/console/sign-in")
    page.get_by_label("Key or token").fill(APPLICATIONS["queuey"][0])
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("button", name="Sign out").wait_for()
    return page


_AXE = (Path(__file__).parent / "axe" / "axe.min.js").read_text()
_BROKEN_RULES = """
async () => {
  const found = await axe.run(document, { resultTypes: ["violations"] });
  return found.violations.flatMap(rule => rule.nodes.map(node => `${rule.id}: ${node.html.slice(0, 200)}`));
}
"""


def broken_rules(page: Page) -> list[str]:
    """What axe finds on a page: rules for people that use a keyboard, a screen reader, or see little contrast."""
    page.evaluate(_AXE)
    found: list[str] = page.evaluate(_BROKEN_RULES)
    return found
