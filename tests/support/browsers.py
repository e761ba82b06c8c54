"""Debian's Chromium, driven by Playwright."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright


@contextmanager
def chromium() -> Iterator[Browser]:
    """One browser; it ends with the block."""
    found = shutil.which("chromium")
    assert found, "chromium is missing: 'make test' installs it"
    with sync_playwright() as playwright, playwright.chromium.launch(executable_path=found) as browser:
        yield browser
