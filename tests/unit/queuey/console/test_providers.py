"""How many sign-ins may ask issuers at once: of all, at one issuer, and of one client; and what a flood does to them."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from queuey.clock import ManualClock
from queuey.console.providers import ATTEMPT_COOKIE, Exchanges, Providers
from queuey.console.seals import Seals
from queuey.errors import Throttled
from queuey.http.exchange import Call
from queuey.security.claims import unix_now
from queuey.security.code_flow import CodeFlow
from queuey.service import Service
from queuey.settings import load_settings
from tests.support.floods import flood
from tests.support.signers import Oidc, jwk, rsa_key

LOGIN = "https://login.example.org"
SETTINGS = f"""
[storage]
backend = memory

[console]
url = https://queuey.example.com

[issuer:staff]
issuer = {LOGIN}
audience = console
keys = %(here)s/keys.json
client_id = console
authorization_endpoint = {LOGIN}/authorize
token_endpoint = {LOGIN}/token
"""


def refused(exchanges: Exchanges, issuer: str, client: str) -> bool:
    try:
        with exchanges.begun(issuer, client):
            return False
    except Throttled:
        return True


def test_one_client_holds_up_no_other_one() -> None:
    exchanges = Exchanges(4)

    with exchanges.begun("staff", "192.0.2.1"):
        assert refused(exchanges, "staff", "192.0.2.1")
        assert refused(exchanges, "guests", "192.0.2.1")
        assert not refused(exchanges, "staff", "192.0.2.2")
    assert not refused(exchanges, "staff", "192.0.2.1")


def test_one_slow_issuer_holds_up_no_other_one() -> None:
    exchanges = Exchanges(4)

    with exchanges.begun("slow", "192.0.2.1"), exchanges.begun("slow", "192.0.2.2"):
        assert refused(exchanges, "slow", "192.0.2.3")
        assert not refused(exchanges, "staff", "192.0.2.3")


@pytest.mark.parametrize(("threads", "most"), [(1, 1), (2, 1), (3, 2), (4, 3), (64, 63)])
def test_a_thread_is_left_where_there_are_several(threads: int, most: int) -> None:
    exchanges = Exchanges(threads)

    with ExitStack() as stack:
        for number in range(most):
            stack.enter_context(exchanges.begun(f"issuer-{number}", f"192.0.2.{number}"))
        assert refused(exchanges, "another", "198.51.100.1")
    assert not refused(exchanges, "another", "198.51.100.1")


def test_an_exchange_that_fails_gives_its_place_back() -> None:
    exchanges = Exchanges(1)

    with pytest.raises(ValueError, match="no token"), exchanges.begun("staff", "192.0.2.1"):
        raise ValueError("no token")
    assert not refused(exchanges, "staff", "192.0.2.1")


def test_a_flood_of_bad_tokens_spends_no_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A code counts once: a browser that loads the page again would only be refused."""
    (tmp_path / "keys.json").write_text(json.dumps({"keys": [jwk(rsa_key("oidc"), "first")]}))
    (tmp_path / "queuey.ini").write_text(SETTINGS)
    clock = ManualClock()
    service = Service.open(load_settings(str(tmp_path / "queuey.ini"), {}, {}), clock=clock)
    service.trust.read_files()
    providers, seals = Providers(service, lambda: seals), Seals(())
    there, cookie = providers.begin("staff", "/console")
    asked = {name: texts[0] for name, texts in parse_qs(urlsplit(there).query).items()}
    token = Oidc(LOGIN, "console", int(unix_now(clock))).token(nonce=asked["nonce"])
    monkeypatch.setattr(CodeFlow, "exchange", lambda *_: token)
    back = urlencode({"state": asked["state"], "code": "once"})
    call = Call("GET", "/console/sign-in/from/staff", back, {"cookie": f"{ATTEMPT_COOKIE}={cookie}"})
    call.peer = "192.0.2.7"

    flood(service, call.peer)

    assert providers.finish("staff", call) == (token, "/console")
    service.close()
