"""The example of notifications as people use it: two of them, each with a browser, and a server that is killed."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import requests
from playwright.sync_api import Browser, Page, expect

from tests.support import browsers
from tests.support.servers import eventually
from tests.support.services.ports import free_ports
from tests.support.shell import ROOT, Shell, answers, commands_of

README = ROOT / "examples/notifications/README.md"
PICTURE = ROOT / "docs/images/notifications.png"
MAKE_ISSUER, SERVE, RUN = commands_of(README)
START_SECONDS = 120
expect.set_options(timeout=60_000)

Visit = Callable[..., "Inbox"]


@dataclass(frozen=True)
class Running:
    """The example, and the server that it needs."""

    shell: Shell
    site: str
    queuey: str

    def serve(self) -> None:
        """The second command."""
        self.shell.type(SERVE.replace("http://127.0.0.1:8000", self.site), "queuey=$!")
        eventually(lambda: answers(f"{self.queuey}/__heartbeat__"), seconds=START_SECONDS)

    def kill_queuey(self) -> None:
        """kill -9; it is gone when this returns."""
        self.shell.type("kill -9 $queuey; wait $queuey")
        eventually(lambda: not answers(f"{self.queuey}/__heartbeat__"))


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """As the README says, but for the ports."""
    site, queuey = free_ports(2, ["127.0.0.1"])
    folder = tmp_path_factory.mktemp("notifications")
    variables = {"QUEUEY_PORT": str(queuey), "QUEUEY_URL": f"http://127.0.0.1:{queuey}", "HOME": str(folder)}
    with closing(Shell(folder, **variables)) as shell:
        example = Running(shell, f"http://127.0.0.1:{site}", f"http://127.0.0.1:{queuey}")
        shell.type(MAKE_ISSUER)
        example.serve()
        shell.type(f"{RUN} --port {site} &")
        eventually(lambda: answers(example.site), seconds=START_SECONDS)
        yield example


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browsers.chromium() as browser:
        yield browser


@dataclass(frozen=True)
class Inbox:
    """The page of a user that is signed in."""

    user: str
    page: Page

    def notify(self, other: Inbox, text: str) -> None:
        form = self.page.locator("#notify")
        form.get_by_label("To", exact=True).fill(other.user)
        form.get_by_label("Text", exact=True).fill(text)
        form.get_by_role("button", name="Send").click()
        expect(form.get_by_role("status")).to_have_text("Sent.")

    def mark_all(self) -> None:
        self.page.get_by_role("button", name="Mark all as read").click()

    def shows(self, *texts: str, unread: int) -> None:
        """These and no others, newest first; the newest ``unread`` of them are unread."""
        expect(self.page.get_by_role("listitem").locator("p")).to_have_text(list(texts))
        expect(self.page.locator("li.unread p")).to_have_text(list(texts[:unread]))
        expect(self.page.locator("#unread")).to_have_text(f"{unread} unread" if unread else "All read")

    def is_live(self) -> None:
        expect(self.page.locator("#state")).to_have_text("Live")

    def has_lost_its_connection(self) -> None:
        expect(self.page.locator("#state")).to_have_text("Connection lost, trying again")
        expect(self.page.locator("#next")).to_contain_text("Next try in")

    def tries_now(self) -> None:
        self.page.evaluate("document.getElementById('try').click()")  # it may have gone meanwhile


_turn = count(1)


@pytest.fixture
def visit(chromium: Browser, running: Running) -> Iterator[Visit]:
    """Sign a user in, in a browser of their own; the end of the test shows errors of the page's script."""
    turn, errors, opened = next(_turn), [], []

    def visit(name: str, *, address: str | None = None, **settings: Any) -> Inbox:
        context = chromium.new_context(**{"locale": "en-GB", "timezone_id": "Europe/Brussels", **settings})
        opened.append(context)
        context.on("weberror", lambda error: errors.append(str(error.error)))
        page = context.new_page()
        page.goto(running.site)
        inbox = Inbox(address or f"{name}-{turn}@example.org", page)
        page.get_by_label("Your address").fill(inbox.user)
        page.get_by_role("button", name="Sign in").click()
        inbox.is_live()
        return inbox

    yield visit
    for context in opened:
        context.close()
    assert errors == []


def test_each_of_two_users_sees_their_own_notifications_at_once_and_no_others(visit: Visit) -> None:
    joe, ada = visit("joe"), visit("ada")

    joe.notify(ada, "two chairs")
    ada.notify(joe, "<b>a table</b>")
    joe.notify(ada, "a lamp")

    ada.shows("a lamp", "two chairs", unread=2)
    joe.shows("<b>a table</b>", unread=1)
    assert "(2)" in ada.page.title()


def test_what_was_marked_as_read_stays_so_over_a_reload_and_in_another_browser(visit: Visit) -> None:
    joe, ada = visit("joe"), visit("ada")
    joe.notify(ada, "two chairs")
    ada.shows("two chairs", unread=1)

    ada.mark_all()
    ada.shows("two chairs", unread=0)
    joe.notify(ada, "a lamp")
    joe.notify(joe, "a table")
    ada.page.reload()
    again = visit("ada", address=ada.user)

    for shown in (ada, again):
        shown.shows("a lamp", "two chairs", unread=1)
    joe.shows("a table", unread=1)


def test_notifications_keep_coming_after_the_server_was_killed(running: Running, visit: Visit) -> None:
    joe, ada = visit("joe"), visit("ada")
    joe.notify(ada, "before")
    ada.shows("before", unread=1)
    ada.mark_all()
    ada.shows("before", unread=0)

    running.kill_queuey()
    for user in (joe, ada):
        user.has_lost_its_connection()
    running.serve()
    for user in (joe, ada):
        user.tries_now()
    joe.notify(ada, "after")
    ada.notify(joe, "after as well")

    ada.shows("after", "before", unread=1)
    joe.shows("after as well", unread=1)
    for user in (joe, ada):
        user.is_live()


def test_a_window_that_lags_behind_takes_the_position_of_the_other(running: Running, visit: Visit) -> None:
    ada = visit("ada")
    ada.notify(ada, "first")
    behind = visit("ada", address=ada.user)
    behind.shows("first", unread=1)
    behind.page.route("**/v1/demo/notifications-*", lambda route: route.abort())
    running.kill_queuey()
    running.serve()
    ada.notify(ada, "second")
    ada.shows("second", "first", unread=2)
    ada.mark_all()
    ada.shows("second", "first", unread=0)

    behind.mark_all()

    behind.shows("first", unread=0)
    behind.page.unroute_all()
    behind.shows("second", "first", unread=0)


def test_a_token_that_proves_nothing_any_more_leads_back_to_the_sign_in(visit: Visit) -> None:
    joe = visit("joe")

    joe.page.evaluate(
        "const s = JSON.parse(sessionStorage.session); sessionStorage.session = JSON.stringify({...s, token: 'x'})"
    )
    joe.page.reload()

    expect(joe.page.get_by_role("alert")).not_to_be_empty()
    expect(joe.page.get_by_role("button", name="Sign in")).to_be_visible()


def test_the_page_fits_a_phone(visit: Visit) -> None:
    ada = visit("ada", viewport={"width": 320, "height": 640})
    ada.notify(ada, "a-word-as-long-as-nobody-would-ever-write-but-somebody-will-send-" * 3)
    expect(ada.page.get_by_role("listitem")).to_have_count(1)

    assert ada.page.evaluate("document.documentElement.scrollWidth") == 320


def test_the_same_page_by_another_name_leads_to_the_one_that_queuey_knows(chromium: Browser, running: Running) -> None:
    with chromium.new_page() as page:
        page.goto(running.site.replace("127.0.0.1", "localhost"))

        assert page.url == f"{running.site}/"


@pytest.mark.parametrize(
    ("path", "given"),
    [
        ("/notify", {"data": {"address": "joe@example.org", "text": "from a form of another page"}}),
        ("/notify", {"json": {"address": "joe@example.org"}}),
        ("/sign-in", {"json": {"address": "joe@example.org,oidc:ada@example.org"}}),
        ("/sign-in", {"json": ["joe@example.org"]}),
        ("/elsewhere", {"json": {"address": "joe@example.org"}}),
    ],
)
def test_the_application_refuses_what_the_page_would_not_send(
    running: Running, path: str, given: dict[str, Any]
) -> None:
    answer = requests.post(running.site + path, timeout=60, **given)

    assert answer.status_code == 400
    assert answer.json()["detail"]


def test_the_picture_of_the_documentation(visit: Visit, chromium: Browser, request: pytest.FixtureRequest) -> None:
    """Written with --pictures; without it, that both looks differ and nothing else."""
    view = {"width": 450, "height": 640}
    joe = visit("joe", address="joe@example.org", viewport=view, color_scheme="light")
    ada = visit("ada", address="ada@example.org", viewport=view, color_scheme="dark")
    for text in ("Ada has asked you to review “Two chairs”", "“Two chairs” was published"):
        ada.notify(joe, text)
    joe.shows("“Two chairs” was published", "Ada has asked you to review “Two chairs”", unread=2)
    joe.notify(ada, "Joe has reviewed “Two chairs”")
    ada.shows("Joe has reviewed “Two chairs”", unread=1)
    ada.mark_all()
    joe.notify(ada, "Joe has sent you a table")
    ada.shows("Joe has sent you a table", "Joe has reviewed “Two chairs”", unread=1)

    pictures = [user.page.screenshot() for user in (joe, ada)]

    assert pictures[0] != pictures[1]
    if request.config.option.pictures:
        beside(chromium, pictures, PICTURE)


def beside(chromium: Browser, pictures: list[bytes], path: Path) -> None:
    """One picture of several, side by side."""
    sources = "".join(f'<img src="data:image/png;base64,{b64encode(picture).decode()}">' for picture in pictures)
    with chromium.new_page() as page:
        page.set_content(f'<body style="margin: 0"><div style="display: inline-flex; gap: 12px">{sources}</div>')
        page.locator("div").screenshot(path=path, omit_background=True)
