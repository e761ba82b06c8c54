"""In a real browser: what was typed is still there after a refusal."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support import browsers
from tests.support.browsers import signed_in_page
from tests.support.client import Server
from tests.support.visitors import OpenConsole

expect.set_options(timeout=30_000)

TYPED = {"body": "two chairs", "key": "ann", "content_type": "text/plain", "headers": "Kind: order", "delay": "soon"}


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browsers.chromium() as browser:
        yield browser


def sent(page: Page, address: str) -> None:
    page.goto(address)
    for name, text in TYPED.items():
        page.locator(f"[name={name}]").fill(text)
    page.get_by_role("button", name="Send the message").click()


def seen(page: Page) -> dict[str, str]:
    return {name: page.locator(f"[name={name}]").input_value() for name in TYPED}


def test_after_a_refusal_the_form_still_has_all_that_was_typed(
    chromium: Browser, open_console: OpenConsole, v1: Server
) -> None:
    page = signed_in_page(chromium.new_context().new_page(), open_console.url)
    sent(page, f"{open_console.url}/console/a/queuey/{v1.queue()}/send")
    expect(page.get_by_role("alert")).to_contain_text("delay: must be a number of seconds")

    page.go_back()

    assert seen(page) == TYPED


def test_a_session_that_ends_over_a_form_takes_nothing_away(
    chromium: Browser, open_console: OpenConsole, v1: Server
) -> None:
    context, queue = chromium.new_context(), v1.queue()
    page = signed_in_page(context.new_page(), open_console.url)
    page.goto(f"{open_console.url}/console/a/queuey/{queue}/send")
    context.clear_cookies()
    for name, text in (TYPED | {"delay": "0"}).items():
        page.locator(f"[name={name}]").fill(text)
    page.get_by_role("button", name="Send the message").click()
    with context.expect_page() as opened:
        page.get_by_role("link", name="Sign in in another tab").click()
    signed_in_page(opened.value, open_console.url)

    page.go_back()
    page.get_by_role("button", name="Send the message").click()

    expect(page.get_by_role("status")).to_have_text("The message was stored.")
    (stored,) = v1.call("GET", queue).json()["messages"]
    assert (stored["body"], stored["key"], stored["headers"]) == ("two chairs", "ann", {"Kind": "order"})
