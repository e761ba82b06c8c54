"""The console in a real browser: every page opens without a report of its policy, an error or a foreign request."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support import browsers, servers
from tests.support.client import BATCH, Server
from tests.support.servers import APPLICATIONS
from tests.support.services.ports import free_ports
from tests.support.source import ROOT
from tests.support.visitors import OpenConsole

expect.set_options(timeout=30_000)

PICTURE = ROOT / "docs/images/console.png"
EVIL = '<img src=x onerror="window.ran = 1"><script>window.ran = 1</script>'
_WATCH = """
window.reports = [];
document.addEventListener("securitypolicyviolation", event => window.reports.push(event.violatedDirective + " " + event.blockedURI));
"""
_OVERFLOWS = "document.documentElement.scrollWidth > document.documentElement.clientWidth"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browsers.chromium() as browser:
        yield browser


@dataclass
class Window:
    """A page, and all that it complained of."""

    page: Page
    url: str
    trouble: list[str] = field(default_factory=list)

    def opens(self, path: str) -> None:
        answer = self.page.goto(self.url + path)
        assert answer is not None
        if answer.status != 200:
            self.trouble.append(f"{path}: {answer.status}")
        self.trouble += [f"{path}: {report}" for report in self.page.evaluate("window.reports")]
        self.trouble += [f"{path}: {one}" for one in browsers.broken_rules(self.page)]
        if self.page.evaluate("window.ran"):
            self.trouble.append(f"{path}: a script ran")
        if self.page.evaluate(_OVERFLOWS):
            self.trouble.append(f"{path}: is wider than the window")

    def signs_in(self, credential: str) -> None:
        self.page.goto(f"{self.url}/console/sign-in")
        self.page.get_by_label("Key or token").fill(credential)
        self.page.get_by_role("button", name="Sign in").click()
        self.page.get_by_role("button", name="Sign out").wait_for()


def opened(chromium: Browser, url: str, **settings: Any) -> Window:
    page = chromium.new_context(**settings).new_page()
    window = Window(page, url)
    page.add_init_script(_WATCH)
    page.on("console", lambda said: window.trouble.append(said.text) if said.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: window.trouble.append(str(error)))
    page.on("request", lambda asked: None if asked.url.startswith(url) else window.trouble.append(asked.url))
    return window


@pytest.fixture(scope="module")
def filled(open_console: OpenConsole) -> str:
    """A queue with something on each of its pages, some of it hostile."""
    with Server(open_console.running) as v1:
        queue = v1.queue(partitions="2")
        entries: list[dict[str, Any]] = [{"body": EVIL, "key": EVIL, "content_type": EVIL, "headers": {"Kind": EVIL}}]
        entries += [{"body": json.dumps({EVIL: [EVIL, 1, None, {"a": True}]})} for _ in range(3)]
        entries += [{"body": "iVBORw0KGgo=", "encoding": "base64", "content_type": "image/png"}]
        v1.call("POST", queue, data=json.dumps({"messages": entries}).encode(), headers={"Content-Type": BATCH})
        held = v1.call("POST", queue, "leases", "workers", json={"receiver": EVIL, "receive": {"max": 4}}).json()
        v1.call("POST", queue, data=EVIL.encode(), headers={"X-Delay": "3600"})
        text = next(one for one in held["messages"] if "encoding" not in one)
        rejected = [{"receipt": text["receipt"], "reason": EVIL}]
        v1.call("POST", queue, "leases", "workers", json={"reject": rejected})
        v1.call("POST", queue, "leases", "workers", "redrive", json={"filter": {"reason": "nothing of this"}})
        offset = {"partition": 1, "message_id": held["messages"][0]["message_id"]}
        v1.call("PUT", queue, "offsets", "mail", json={"offsets": [offset], "generation": 1})
    return queue


def pages(queue: str, place: str, letter: str, again: str) -> list[str]:
    base = f"/console/a/queuey/{queue}"
    below = [
        "",
        "/messages",
        "/messages?from=oldest",
        f"/m/{place}",
        "/send",
        "/edit",
        "/confirm/purge",
        "/confirm/delete",
    ]
    below += ["/tail", "/scheduled", "/g/mail", "/l/workers", f"/l/workers/release?{urlencode({'receiver': EVIL})}"]
    below += ["/l/workers/dead", f"/l/workers/dead/edit/{letter}", f"-dead/m/{letter}", f"/m/{again}"]
    above = ["/", "/console", "/console/overview/queuey", "/console/a/queuey", "/console/a/queuey?sort=depth"]
    above += ["/console/new/queuey", "/console/schedules/queuey", "/console/workers/queuey"]
    return [*above, f"/console/access/queuey?queue={queue}&principal=anyone", *(base + one for one in below)]


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({"color_scheme": "light"}, id="desk", marks=pytest.mark.long),
        pytest.param(
            {"color_scheme": "dark", "viewport": {"width": 360, "height": 740}, "is_mobile": True},
            id="phone in the dark",
        ),
    ],
)
def test_every_page_opens_without_trouble(
    chromium: Browser, open_console: OpenConsole, filled: str, settings: dict[str, Any]
) -> None:
    with Server(open_console.running) as v1:
        (first, *_) = v1.call("GET", filled, params={"partitions": "all"}).json()["messages"]
        (letter, *_) = v1.call("GET", f"{filled}-dead").json()["messages"]
        story = letter["headers"]["queuey-dead-letter"]
        again = {**v1.add(filled, "again", **{"Queuey-Header-queuey-redriven": story})}
        again["message_id"] = again["key"]
    window = opened(chromium, open_console.url, **settings)
    window.opens("/console/sign-in")
    window.signs_in(APPLICATIONS["queuey"][0])

    for path in pages(filled, *(f"{one['partition']}:{one['message_id']}" for one in (first, letter, again))):
        window.opens(path)

    assert window.trouble == []


def test_a_long_name_pushes_no_column_out_of_the_window(
    chromium: Browser, open_console: OpenConsole, v1: Server
) -> None:
    queue = v1.queue()
    key = v1.post(queue, "x").json()["messages"][0]["key"]
    v1.call("POST", queue, "leases", "workers", json={"receiver": "r" * 128, "receive": {}})
    window = opened(chromium, open_console.url, viewport={"width": 1280, "height": 800})
    window.signs_in(APPLICATIONS["queuey"][0])

    for path in (f"a/queuey/{queue}/l/workers", f"a/queuey/{queue}/m/1:{key}", "workers/queuey"):
        window.opens(f"/console/{path}")
        window.page.get_by_text("r" * 128).first.wait_for()
        hidden = "[...document.querySelectorAll('.wide')].filter(one => one.scrollWidth > one.clientWidth).length"
        assert window.page.evaluate(hidden) == 0, path

    assert window.trouble == []


def test_an_operator_s_pages_open_and_figures_move(
    chromium: Browser, open_console: OpenConsole, operator_key: str
) -> None:
    window = opened(chromium, open_console.url)
    window.signs_in(operator_key)
    for path in ("/console", "/console/server", "/console/overview"):
        window.opens(path)

    expect(window.page.locator("[data-rate=appended]")).not_to_have_text("-")
    expect(window.page.locator("[data-chart=requests] polyline")).to_have_attribute("points", re.compile(r"\d,\d+ \d"))
    assert window.trouble == []


def test_new_messages_appear_and_a_pause_holds_them_back(
    chromium: Browser, open_console: OpenConsole, filled: str
) -> None:
    window = opened(chromium, open_console.url)
    window.signs_in(APPLICATIONS["queuey"][0])
    window.opens(f"/console/a/queuey/{filled}/tail")
    expect(window.page.locator("[data-state]")).to_contain_text("Live")
    messages = window.page.locator("ol.messages li")

    with Server(open_console.running) as v1:
        v1.post(filled, EVIL.encode())
        expect(messages).to_have_count(1)
        window.page.get_by_role("button", name="Pause").click()
        v1.post(filled, "held back")
        expect(window.page.locator("[data-state]")).to_contain_text("waiting: 1")
        expect(messages).to_have_count(1)
        window.page.get_by_role("button", name="Go on").click()
        expect(messages).to_have_count(2)

    expect(messages.first.locator("pre")).to_have_text("held back")
    expect(messages.last.locator("pre")).to_have_text(EVIL)
    assert window.page.evaluate("window.ran") is None
    assert window.trouble == []


def test_without_a_script_pages_can_be_read_and_queues_made(
    chromium: Browser, open_console: OpenConsole, filled: str
) -> None:
    page = chromium.new_context(java_script_enabled=False).new_page()
    page.goto(f"{open_console.url}/console/a/queuey/{filled}/messages")
    page.get_by_label("Key or token").fill(APPLICATIONS["queuey"][0])
    page.keyboard.press("Enter")

    expect(page.locator("ol.messages li").first).to_be_visible()
    page.goto(f"{open_console.url}/console/new/queuey")
    page.get_by_label("Name").fill("made-without-a-script")
    page.get_by_role("button", name="Make the queue").click()
    expect(page.get_by_role("status")).to_have_text("The queue was made.")


@pytest.mark.long
def test_a_page_says_that_its_connection_is_lost_and_finds_the_server_again(chromium: Browser, tmp_path: Path) -> None:
    (port,) = free_ports(1, ["127.0.0.1"])
    settings = f"[console]\nsecrets = {'5ec4e7' * 8}\n"
    with servers.shipped(tmp_path, settings=settings, port=port) as running:
        window = opened(chromium, running.url)
        window.signs_in(APPLICATIONS["queuey"][0])
        window.opens("/console/overview/queuey")
        lost = window.page.locator(".lost")
        expect(window.page.locator("[data-rate=appended]")).not_to_have_text("-")
        expect(lost).to_be_hidden()
        os.kill(running.pid, signal.SIGKILL)
        expect(lost).to_contain_text("No connection since")
    with servers.shipped(tmp_path, settings=settings, port=port):
        window.page.get_by_role("button", name="Try now").click()
        expect(lost).to_be_hidden()


def test_the_picture_of_the_documentation(
    chromium: Browser, open_console: OpenConsole, pytestconfig: pytest.Config
) -> None:
    """Written with --pictures; without it, that a page can be drawn."""
    with Server(open_console.running, "mirror") as v1:
        for name, partitions, messages in (("alerts", 3, 40), ("jobs", 4, 540), ("mail", 1, 12), ("orders", 8, 1540)):
            v1.create(name, partitions=str(partitions))
            entries = [{"body": f"message {number}"} for number in range(messages)]
            v1.call("POST", name, data=json.dumps({"messages": entries}).encode(), headers={"Content-Type": BATCH})
    window = opened(chromium, open_console.url, viewport={"width": 900, "height": 420})
    window.signs_in(APPLICATIONS["mirror"][0])
    window.opens("/console/a/mirror")

    picture = window.page.screenshot()

    assert window.trouble == []
    if pytestconfig.getoption("--pictures"):
        PICTURE.write_bytes(picture)


def test_what_is_hard_to_read_for_some_is_found(chromium: Browser) -> None:
    page = chromium.new_context().new_page()
    page.set_content('<html lang="en"><title>x</title><main><h1>x</h1><img src="data:,"><input name="x"></main></html>')

    assert {found.partition(":")[0] for found in browsers.broken_rules(page)} == {"image-alt", "label"}
