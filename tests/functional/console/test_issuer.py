"""Signing in at an issuer's own page: what comes back is believed only if it belongs to this browser and this sign-in."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http.cookies import SimpleCookie
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest
import requests
from playwright.sync_api import ConsoleMessage, expect

from tests.support import browsers, servers
from tests.support.client import Server
from tests.support.oidc_provider import JOE, OTHER_CLIENT, Provider, provider
from tests.support.servers import eventually
from tests.support.services.ports import free_ports
from tests.support.visitors import TIMEOUT_SECONDS, OpenConsole, Visitor

WANTED = "/console/a/queuey?prefix=j"
START = f"/console/sign-in/at/staff?{urlencode({'next': WANTED})}"


@dataclass(frozen=True)
class TrustingServer:
    """A server that trusts a provider, and the provider."""

    console: OpenConsole
    issuer: Provider


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TrustingServer]:
    folder = tmp_path_factory.mktemp("issuer")
    (port,) = free_ports(1, ["127.0.0.1"])
    url = f"http://127.0.0.1:{port}"
    with provider() as issuer:
        issuer.redirect = f"{url}/console/sign-in/from/staff"
        settings = f"trusted_proxies = 127.0.0.1\n[console]\nurl = {url}\n{issuer.settings()}"
        with servers.shipped(folder, settings=settings, name="issuer", port=port) as running:
            yield TrustingServer(OpenConsole(running, folder), issuer)


@pytest.fixture
def issuer(place: TrustingServer) -> Iterator[Provider]:
    yield place.issuer
    place.issuer.claims, place.issuer.answer, place.issuer.signer = {}, None, "oidc"


@pytest.fixture
def joe(place: TrustingServer, issuer: Provider) -> Iterator[Visitor]:
    """Nobody is signed in yet."""
    with Visitor(place.console.url) as visitor:
        yield visitor


def returned(visitor: Visitor, start: str = START) -> str:
    """Somebody signs in at the issuer: the path with which the browser comes back."""
    there = visitor.request("GET", start).headers["location"]
    assert requests.get(there, timeout=TIMEOUT_SECONDS).status_code == 200, there
    there = there.replace("/authorize?", "/allow?")
    back = requests.get(there, timeout=TIMEOUT_SECONDS, allow_redirects=False).headers["location"]
    assert back.startswith(visitor.url)
    return back.removeprefix(visitor.url)


def with_fields(path: str, **changes: str | None) -> str:
    parts = urlsplit(path)
    fields = {**dict(parse_qsl(parts.query)), **changes}
    return f"{parts.path}?{urlencode({name: text for name, text in fields.items() if text is not None})}"


def refused(visitor: Visitor, path: str, said: str) -> None:
    """It ends at the form again, with a sentence, and nobody is signed in."""
    page = visitor.get(path, status=401)
    assert 'role="alert"' in page
    assert said in page
    assert visitor.request("GET", "/console").headers["location"] == "/console/sign-in?next=/console"


def test_somebody_signs_in_and_sees_what_names_them(place: TrustingServer, joe: Visitor) -> None:
    with Server(place.console.running) as v1:
        queue = v1.queue(principles=f"oidc:{JOE}")
    assert "Sign in at staff" in joe.get("/console/sign-in")

    answer = joe.request("GET", returned(joe))

    assert (answer.status_code, answer.headers["location"]) == (303, WANTED)
    assert f"oidc:{JOE}" in joe.get("/console")
    assert queue in joe.get(f"/console/a/queuey?prefix={queue}")
    said = [line for line in place.console.log() if line.get("audit") == "SIGN-IN"]
    assert (said[-1]["outcome"], said[-1]["principals"]) == ("done", [f"oidc:{JOE}"])


def test_the_cookie_on_the_way_is_for_the_sign_in_alone_and_shows_no_secret(joe: Visitor, issuer: Provider) -> None:
    answer = joe.request("GET", START)

    (given,) = [one for one in answer.raw.headers.getlist("set-cookie") if one.startswith("queuey_sign_in=")]
    kept = SimpleCookie(given)["queuey_sign_in"]
    asked = dict(parse_qsl(urlsplit(answer.headers["location"]).query))
    assert (kept["httponly"], kept["samesite"], kept["path"]) == (True, "Lax", "/console/sign-in")
    assert kept["max-age"] == "600"
    assert asked["code_challenge_method"] == "S256"
    assert len({asked["state"], asked["nonce"], asked["code_challenge"]}) == 3
    assert not [text for text in (asked["state"], asked["nonce"]) if text in kept.value]
    joe.request("GET", returned(joe))
    (_, fields) = issuer.exchanges[-1]
    assert fields["code_verifier"] not in kept.value
    assert "queuey_sign_in" not in joe.session.cookies


@pytest.mark.parametrize("state", [None, "", "0" * 64, "ü"])
def test_a_wrong_state_is_refused_before_the_issuer_is_asked(joe: Visitor, issuer: Provider, state: str | None) -> None:
    path, asked = with_fields(returned(joe), state=state), len(issuer.exchanges)

    refused(joe, path, "This browser began no sign-in")
    assert len(issuer.exchanges) == asked


def test_what_another_browser_began_is_refused(place: TrustingServer, joe: Visitor, issuer: Provider) -> None:
    path, asked = returned(joe), len(issuer.exchanges)

    with Visitor(place.console.url) as other:
        refused(other, path, "This browser began no sign-in")
        own = returned(other)
        mixed = with_fields(path, state=dict(parse_qsl(urlsplit(own).query))["state"])
        refused(other, mixed, "invalid_grant")  # their state with another's code: the verifier is not the code's
    assert len(issuer.exchanges) == asked + 1


def test_a_code_counts_once(joe: Visitor) -> None:
    path = returned(joe)
    kept = joe.session.cookies["queuey_sign_in"]
    assert joe.request("GET", path).status_code == 303
    joe.goes("/console/sign-out")

    refused(joe, path, "This browser began no sign-in")
    joe.session.cookies.set("queuey_sign_in", kept, path="/console/sign-in", domain="127.0.0.1")
    refused(joe, path, "invalid_grant")


@pytest.mark.parametrize(
    ("claims", "said"),
    [
        ({"nonce": "another"}, "the token of another sign-in"),
        ({"nonce": ["a"]}, "the token of another sign-in"),
        ({"exp": 1_000_000_000}, "It has expired."),
        ({"iss": "https://elsewhere.example"}, "Its issuer is not one that this server trusts."),
        ({"aud": OTHER_CLIENT}, "for somebody else"),
        ({"azp": OTHER_CLIENT}, "for somebody else"),
        ({"aud": ["queuey-console", OTHER_CLIENT]}, "for somebody else"),
        ({"email_verified": False}, "Its address is not verified."),
    ],
)
def test_a_token_that_is_not_the_answer_to_this_sign_in_proves_nothing(
    joe: Visitor, issuer: Provider, claims: dict[str, object], said: str
) -> None:
    issuer.claims = claims

    refused(joe, returned(joe), said)


def test_a_token_of_another_key_proves_nothing(joe: Visitor, issuer: Provider) -> None:
    issuer.signer = "forger"

    refused(joe, returned(joe), "The token proves nothing here.")


@pytest.mark.parametrize(
    "answer", [b"", b"[]", b"{}", b'{"id_token": 1}', b'{"id_token": "a b.c.d"}', b"x" * 70_000, b"[" * 60_000]
)
def test_an_issuer_that_answers_with_something_else_lets_nobody_in(
    joe: Visitor, issuer: Provider, answer: bytes
) -> None:
    issuer.answer = answer or b" "

    refused(joe, returned(joe), "token")


def test_a_token_with_a_second_credential_behind_it_is_none(joe: Visitor, issuer: Provider) -> None:
    key = servers.APPLICATIONS["queuey"][0]
    issuer.answer = f'{{"id_token": "{issuer.token()};Application {key}"}}'.encode()

    refused(joe, returned(joe), "gave no token")


def test_an_issuer_that_lets_nobody_in_leads_back_to_the_form(joe: Visitor, issuer: Provider) -> None:
    path, asked = returned(joe), len(issuer.exchanges)

    refused(joe, with_fields(path, code=None, error="<b>access_denied</b>"), "let nobody in")
    assert len(issuer.exchanges) == asked


def test_an_answer_of_another_issuer_is_refused(joe: Visitor, issuer: Provider) -> None:
    refused(joe, with_fields(returned(joe), iss="https://elsewhere.example"), "another issuer")


@pytest.mark.parametrize(
    "wanted", ["https://evil.example", "//evil.example", "/\\evil", "/v1", "/console/" + "x" * 600]
)
def test_nobody_is_led_elsewhere(joe: Visitor, wanted: str) -> None:
    path = returned(joe, f"/console/sign-in/at/staff?{urlencode({'next': wanted})}")

    assert joe.request("GET", path).headers["location"] == "/console"


def test_the_way_back_cannot_be_chosen(joe: Visitor, issuer: Provider) -> None:
    """Neither by the address, nor by the Host header."""
    answers = [
        joe.request("GET", f"{START}&redirect_uri=https://evil.example"),
        joe.request("GET", START, headers={"Host": "evil.example", "X-Forwarded-Host": "evil.example"}),
    ]

    for answer in answers:
        asked = dict(parse_qsl(urlsplit(answer.headers["location"]).query))
        assert (answer.status_code, asked["redirect_uri"]) == (303, issuer.redirect)


@pytest.mark.parametrize("name", ["nobody", "staff%00", "staff/x"])
def test_there_are_no_other_issuers(joe: Visitor, name: str) -> None:
    for road in ("at", "from"):
        answer = joe.request("GET", f"/console/sign-in/{road}/{name}")
        assert answer.status_code in (303, 400, 404)
        assert not answer.headers.get("location", "/console").startswith("http")


def test_a_sign_in_that_takes_long_holds_up_nobody_elsewhere(place: TrustingServer, issuer: Provider) -> None:
    gate = threading.Event()
    with (
        Visitor(place.console.url, **{"X-Forwarded-For": "192.0.2.1"}) as slow,
        Visitor(place.console.url, **{"X-Forwarded-For": "192.0.2.2"}) as other,
        ThreadPoolExecutor() as threads,
    ):
        path = returned(slow)
        issuer.gates[code := dict(parse_qsl(urlsplit(path).query))["code"]] = gate
        under_way = threads.submit(slow.request, "GET", path)
        eventually(lambda: code in issuer.waiting)

        answer = other.request("GET", returned(other))

        gate.set()
        under_way.result()
    assert (answer.status_code, answer.headers["location"]) == (303, WANTED)


def test_a_browser_signs_in_without_a_report_of_its_policy(place: TrustingServer, issuer: Provider) -> None:
    trouble: list[str] = []
    url = place.console.url

    def is_trouble(said: ConsoleMessage) -> bool:
        return said.type in ("error", "warning") and said.location["url"].startswith(url)

    with browsers.chromium() as chromium:
        page = chromium.new_context().new_page()
        page.on("console", lambda said: trouble.append(said.text) if is_trouble(said) else None)
        page.on("pageerror", lambda error: trouble.append(str(error)))
        page.goto(f"{url}/console/a/queuey")
        page.get_by_role("link", name="Sign in at staff").click()
        page.get_by_role("link", name=f"Sign in as {JOE}").click()

        expect(page.get_by_role("button", name="Sign out")).to_be_visible(timeout=30_000)
        expect(page.locator("header")).to_contain_text(f"oidc:{JOE}")
        expect(page).to_have_url(f"{url}/console/a/queuey")
    assert trouble == []
