"""Signing in and out: what a session proves, for how long, and how its cookie and its forms are guarded."""

from __future__ import annotations

import re
from html import unescape
from http.cookies import SimpleCookie

import pytest
import requests

from tests.support.client import Server
from tests.support.commands import done, run_in
from tests.support.servers import APPLICATIONS, eventually
from tests.support.visitors import OpenConsole, Visitor, signed_in

KEY = APPLICATIONS["queuey"][0]


def test_a_browser_hears_nothing_of_requests_and_headers(stranger: Visitor, owner: Visitor) -> None:
    wrong = stranger.request("POST", "/console/sign-in", data={"csrf": stranger.csrf(), "credential": "no-key"})
    nothing = owner.get("/console/a/queuey/there-is-none", status=404)

    assert "knows no such key" in wrong.text
    assert "no queue is named" in nothing
    assert not [word for word in ("Authorization", "POST") for page in (wrong.text, nothing) if word in page]


def test_a_stranger_is_led_to_the_sign_in_and_back(stranger: Visitor) -> None:
    answer = stranger.request("GET", "/console/a/queuey?prefix=x")

    assert (answer.status_code, answer.headers["location"]) == (
        303,
        "/console/sign-in?next=/console/a/queuey%3Fprefix%3Dx",
    )
    assert stranger.goes("/console/sign-in", credential=KEY, next="/console/a/queuey?prefix=x") == (
        "/console/a/queuey?prefix=x"
    )
    assert "Queues of queuey" in stranger.get("/console/a/queuey?prefix=x")


@pytest.mark.parametrize(
    "wanted",
    [
        "https://evil.example",
        "//evil.example",
        "/console.evil",
        "/v1",
        "/console/\\evil",
        "/console\r\nx: y",
        "console",
    ],
)
def test_after_signing_in_nobody_is_led_elsewhere(stranger: Visitor, wanted: str) -> None:
    assert stranger.goes("/console/sign-in", credential=KEY, next=wanted) == "/console"


def test_the_cookie_is_for_the_console_alone_and_no_script_reads_it(stranger: Visitor) -> None:
    answer = stranger.send("/console/sign-in", credential=KEY)

    (cookie,) = SimpleCookie(answer.headers["set-cookie"]).values()
    assert (cookie["httponly"], cookie["samesite"], cookie["path"], cookie["secure"]) == (True, "Lax", "/console", "")
    assert KEY not in cookie.value


@pytest.mark.parametrize("said", ["https", "HTTPS", "https, http", "https,https"])
def test_behind_tls_the_cookie_is_secure(open_console: OpenConsole, said: str) -> None:
    """Also where further proxies stand between the one that ends TLS and the server."""
    with Visitor(open_console.url, **{"X-Forwarded-Proto": said}) as visitor:
        answer = visitor.request("GET", "/console/sign-in")

    (cookie,) = SimpleCookie(answer.headers["set-cookie"]).values()
    assert cookie["secure"] is True


@pytest.mark.parametrize("credential", ["nobody's", "a.b.c", "x;Application y", "Application x", "ü", "x" * 9000])
def test_a_wrong_credential_gets_the_form_again_with_a_sentence(stranger: Visitor, credential: str) -> None:
    answer = stranger.send("/console/sign-in", status=401, credential=credential)

    assert 'role="alert"' in answer.text
    assert 'name="credential"' in answer.text
    assert credential not in answer.text
    stranger.request("GET", "/console/a/queuey").headers["location"]


def test_each_sign_in_leaves_a_line_in_the_log(open_console: OpenConsole, stranger: Visitor) -> None:
    stranger.send("/console/sign-in", credential=KEY)
    stranger.send("/console/sign-in", status=401, credential="nobody's")

    told = [(line["outcome"], line["principals"]) for line in open_console.log() if line.get("audit") == "SIGN-IN"]

    assert ("done", ["app:queuey"]) in told
    assert ("InvalidApplicationKey", []) in told
    assert KEY not in str(told)


def test_a_session_ends_with_its_key_and_with_signing_out(open_console: OpenConsole, owner: Visitor) -> None:
    key = done(run_in(open_console.environment, None, "key", "new", "queuey")).text.strip()
    label = (
        done(run_in(open_console.environment, None, "key", "ls", "queuey", "-o", "csv")).text.split()[-1].split(",")[2]
    )
    with Server(open_console.running, key=key) as server:
        eventually(lambda: server.call("GET").status_code == 200)

    with signed_in(open_console.url, key) as visitor:
        visitor.get("/console/a/queuey")
        done(run_in(open_console.environment, None, "key", "rm", "queuey", label, "--yes"))
        eventually(lambda: visitor.request("GET", "/console/a/queuey").status_code == 303)

    assert owner.goes("/console/sign-out") == "/console/sign-in"
    assert owner.request("GET", "/console/a/queuey").status_code == 303


def test_a_token_opens_what_it_may_and_no_more(open_console: OpenConsole, v1: Server) -> None:
    first, second = v1.queue(), v1.queue()
    for queue in (first, second):
        v1.post(queue, "two chairs")
    minted = v1.request("POST", "/tokens/queuey", data={"queues": first, "verbs": "read"})

    with signed_in(open_console.url, minted.json()["token"]) as visitor:
        assert "two chairs" in visitor.get(f"/console/a/queuey/{first}/messages")
        assert "You may not list the queues" in visitor.get("/console/a/queuey")
        assert visitor.request("GET", f"/console/a/queuey?queue={first}").headers["location"].endswith(first)
        visitor.get(f"/console/a/queuey/{second}/messages", status=403)
        visitor.get(f"/console/a/queuey/{first}/edit", status=403)
        visitor.send(f"/console/a/queuey/{first}/send", status=403, body="a table")


@pytest.mark.parametrize("csrf", ["", "x", "0" * 64, "ü"])
def test_a_form_from_elsewhere_changes_nothing(owner: Visitor, v1: Server, csrf: str) -> None:
    answer = owner.request("POST", "/console/new/queuey", data={"csrf": csrf, "queue_name": "from-elsewhere"})

    assert answer.status_code == 403
    assert v1.call("GET", "from-elsewhere", params={"info": "true"}).status_code == 404


def test_the_form_of_another_session_changes_nothing(owner: Visitor, neighbour: Visitor, v1: Server) -> None:
    answer = owner.request(
        "POST", "/console/new/queuey", data={"csrf": neighbour.csrf(), "queue_name": "from-elsewhere"}
    )

    assert answer.status_code == 403


def test_a_change_needs_a_form(owner: Visitor) -> None:
    path, csrf = "/console/new/queuey", owner.csrf()

    as_json = owner.request("POST", path, json={"csrf": csrf, "queue_name": "x"})
    in_parts = owner.request("POST", path, files={"csrf": (None, csrf), "queue_name": (None, "x")})
    too_many = owner.request("POST", path, data=[("csrf", csrf), *[(f"x{number}", "1") for number in range(101)]])

    assert [answer.status_code for answer in (as_json, in_parts, too_many)] == [400, 400, 400]
    assert owner.request("PUT", path).status_code == 405


@pytest.mark.parametrize("damage", ["cut", "other", "longer", "none"])
def test_a_cookie_that_was_changed_proves_nothing(open_console: OpenConsole, owner: Visitor, damage: str) -> None:
    (value,) = [cookie.value or "" for cookie in owner.session.cookies]
    payload, _, signature = value.partition(".")
    damaged = {
        "cut": value[:-1],
        "other": f"{payload[:-2]}AA.{signature}",
        "longer": value * 20,
        "none": f"{payload}.",
    }[damage]

    with Visitor(open_console.url, Cookie=f"queuey_console={damaged}") as visitor:
        assert visitor.request("GET", "/console/a/queuey").status_code == 303


def test_a_user_finds_no_way_to_what_is_the_owner_s(open_console: OpenConsole, v1: Server, owner: Visitor) -> None:
    queue = v1.queue(principles="bid:joe@example.org, app:queuey")
    v1.create(f"{queue}-dead", principles="bid:joe@example.org, app:queuey")
    minted = v1.request("POST", "/tokens/queuey", data={"principal": "bid:joe@example.org"})
    base = f"/console/a/queuey/{queue}"
    ways = ["/console/overview/queuey", "/console/access/queuey", f"{base}/send", f"{base}/scheduled"]

    with signed_in(open_console.url, minted.json()["token"]) as joe:
        pages = [one.get(base) for one in (joe, owner)]
        held = joe.request("POST", f"/v1/queuey/{queue}/leases/workers", json={"receive": {}}, headers=bearer(minted))
        groups = [one.get(f"{base}/l/workers") for one in (joe, owner)]
        letters = joe.get(f"{base}/l/workers/dead")

    assert [[f'href="{way}"' in page for way in ways] for page in pages] == [[False] * 4, [True] * 4]
    assert 'href="/console/a/queuey"' in pages[0]
    assert held.status_code == 200
    forms = [set(re.findall(rf'action="{base}/l/workers/(\w+)"', page)) for page in (*groups, letters)]
    assert forms == [set(), {"pause", "preview", "forget"}, set()]


def bearer(minted: requests.Response) -> dict[str, str]:
    return {"Authorization": f"Bearer {minted.json()['token']}"}


def test_a_user_s_list_keeps_to_the_beginning_of_names(open_console: OpenConsole, v1: Server) -> None:
    names = [f"chairs-{number:02}" for number in range(30)]
    for name in (*names, "chains", "chest"):
        v1.create(name, principles="bid:jane@example.org")
    minted = v1.request("POST", "/tokens/queuey", data={"principal": "bid:jane@example.org"})
    seen, query = list[str](), "?prefix=chair"

    with signed_in(open_console.url, minted.json()["token"]) as jane:
        while query:
            page = jane.get(f"/console/a/queuey{query}")
            seen += re.findall(r'<th scope="row"><a [^>]*>([^<]*)<', page)
            query = unescape("".join(re.findall(r'rel="next" href="([^"]*)"', page)))

    assert seen == names
