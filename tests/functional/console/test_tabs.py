"""In a real browser: streams of tabs that are hidden, lost or on a computer whose clock is wrong."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support import browsers
from tests.support.browsers import signed_in_page
from tests.support.client import Server
from tests.support.visitors import OpenConsole

expect.set_options(timeout=30_000)

_LOOK = """hidden => {
  Object.defineProperty(document, "hidden", {value: hidden, configurable: true});
  document.dispatchEvent(new Event("visibilitychange"));
}"""
_OFF = "window.off = %d; const now = Date.now.bind(Date); Date.now = () => now() + window.off"
JUST_NOW = re.compile(r"^(in )?\d+ s( ago)?$")
_FIRST_OPENED = """
const Source = window.EventSource;
window.sources = [];
window.EventSource = class extends Source { constructor(address) { super(address); window.sources.push(this); } };
"""


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browsers.chromium() as browser:
        yield browser


def tail(page: Page, url: str, queue: str) -> Page:
    page.add_init_script(_FIRST_OPENED)
    page.goto(f"{url}/console/a/queuey/{queue}/tail")
    expect(page.locator("[data-state]")).to_contain_text("Live")
    return page


def test_hidden_tabs_keep_no_connection_and_miss_no_message(
    chromium: Browser, open_console: OpenConsole, v1: Server
) -> None:
    context, queue = chromium.new_context(), v1.queue()
    first = tail(signed_in_page(context.new_page(), open_console.url), open_console.url, queue)
    v1.post(queue, "one")
    expect(first.locator("ol.messages li")).to_have_count(1)
    first.evaluate(_LOOK, True)
    for _ in range(6):  # as many as a browser opens connections to one server
        tail(context.new_page(), open_console.url, queue).evaluate(_LOOK, True)
    v1.post(queue, "two")

    first.evaluate(_LOOK, False)

    expect(first.locator("ol.messages pre")).to_have_text(["two", "one"])


def test_a_stream_that_is_tried_again_brings_no_message_twice(
    chromium: Browser, open_console: OpenConsole, v1: Server
) -> None:
    queue = v1.queue(partitions="2")
    page = tail(signed_in_page(chromium.new_context().new_page(), open_console.url), open_console.url, queue)
    v1.post(queue, "one")
    expect(page.locator("ol.messages li")).to_have_count(1)
    page.evaluate("window.sources[0].close(); window.sources[0].dispatchEvent(new Event('error'))")

    page.get_by_role("button", name="Try now").click()
    expect(page.locator(".lost")).to_be_hidden()
    v1.post(queue, "two")

    expect(page.locator("ol.messages pre")).to_have_text(["two", "one"])


@pytest.mark.parametrize("hours", [-3, 3])
def test_the_clock_of_the_browser_decides_nothing(
    chromium: Browser, open_console: OpenConsole, v1: Server, hours: int
) -> None:
    queue = v1.queue()
    v1.post(queue, "before")
    page = signed_in_page(chromium.new_context().new_page(), open_console.url)
    page.add_init_script(_OFF % (hours * 3_600_000))
    page.goto(f"{open_console.url}/console/a/queuey/{queue}/messages")
    page.evaluate("refreshTimes()")
    expect(page.locator("ol.messages time")).to_have_text(JUST_NOW)

    tail(page, open_console.url, queue)
    v1.post(queue, "news \u202e" + "x" * 5000)

    expect(page.locator("ol.messages time")).to_have_text(JUST_NOW)
    expect(page.locator("ol.messages pre")).to_have_text("news \\u202e" + "x" * 3994 + "…")


def test_a_pause_that_ends_says_nothing_of_a_lost_connection(
    chromium: Browser, open_console: OpenConsole, v1: Server
) -> None:
    page = signed_in_page(chromium.new_context().new_page(), open_console.url)
    tail(page, open_console.url, v1.queue())
    page.evaluate("window.sources[0].close(); window.sources[0].dispatchEvent(new Event('error'))")
    expect(page.locator("[data-state]")).to_have_text("")

    page.get_by_role("button", name="Pause").click()
    expect(page.locator("[data-state]")).to_have_text("Paused; waiting: 0.")
    page.get_by_role("button", name="Go on").click()

    expect(page.locator("[data-state]")).to_have_text("")


_SENT = """moments => {
  const form = document.querySelector("main form[method=post]");
  const sent = [];
  window.addEventListener("submit", (event) => { sent.push(!event.defaultPrevented); event.preventDefault(); });
  for (const moment of moments) {
    const event = new Event("submit", {bubbles: true, cancelable: true});
    Object.defineProperty(event, "timeStamp", {value: moment});
    form.dispatchEvent(event);
  }
  return sent;
}"""


def test_the_second_click_of_a_double_click_sends_no_form(
    chromium: Browser, open_console: OpenConsole, v1: Server
) -> None:
    page = signed_in_page(chromium.new_context().new_page(), open_console.url)
    page.goto(f"{open_console.url}/console/a/queuey/{v1.queue()}/send")

    assert page.evaluate(_SENT, [10, 200, 1009, 1011, 1500]) == [True, False, False, True, False]
