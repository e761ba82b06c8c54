"""Access to the metrics, which name all applications and say how busy each is."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from queuey.http.addresses import is_from_here
from queuey.http.exchange import Call
from tests.support import servers
from tests.support.client import Server, refused
from tests.support.servers import APPLICATIONS, RunningServer

TOKEN = "0123456789abcdef" * 2


@pytest.fixture(scope="module")
def server_with_a_token(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    text = f"[metrics]\ntoken = {TOKEN}\n"
    with servers.shipped(tmp_path_factory.mktemp("metrics"), settings=text) as running:
        yield running


def test_this_machine_is_told_without_a_token(anonymous: Server) -> None:
    for path in ("/metrics", "/metrics/", "/metrics%2f"):
        assert anonymous.request("GET", path).status_code == 200


@pytest.mark.parametrize("header", ["X-Forwarded-For", "Forwarded", "X-Real-IP", "Via"])
def test_what_a_proxy_passes_on_is_not_this_machine(shipped_server: RunningServer, header: str) -> None:
    """Of the shipped server: waitress takes such headers away before Queuey sees them."""
    with Server(shipped_server, key=None) as anonymous:
        for method in ("GET", "HEAD"):
            assert anonymous.request(method, "/metrics", headers={header: "127.0.0.1"}).status_code == 403


@pytest.mark.parametrize("origin", ["https://app.example.org", "null"])
def test_a_page_in_a_browser_is_not_this_machine(running: RunningServer, origin: str) -> None:
    """With ``cors_origins = *`` any page that somebody looks at on the server's machine could read them."""
    with Server(running, key=None) as anonymous:
        assert anonymous.request("GET", "/metrics", headers={"Origin": origin}).status_code == 403


@pytest.mark.parametrize(
    ("peer", "here"),
    [
        ("127.0.0.1", True),
        ("127.8.9.1", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("10.0.0.7", False),
        ("::ffff:10.0.0.7", False),
        ("fe80::1%eth0", False),
        ("", False),
        ("/run/queuey.sock", False),
    ],
)
def test_which_addresses_are_of_this_machine(peer: str, here: bool) -> None:
    call = Call("GET", "/metrics", "", {})
    call.peer = peer

    assert is_from_here(call) is here


def test_with_a_token_it_is_told_from_anywhere_and_nobody_else(server_with_a_token: RunningServer) -> None:
    def answer(authorization: str | None) -> int:
        headers = {"X-Forwarded-For": "10.0.0.7"} | ({"Authorization": authorization} if authorization else {})
        return server.request("GET", "/metrics", headers=headers).status_code

    with Server(server_with_a_token, key=None) as server:
        assert answer(f"Bearer {TOKEN}") == answer(f"bearer  {TOKEN}") == 200
        for wrong in (None, TOKEN, f"Bearer {TOKEN[1:]}", "Bearer", f"Application {APPLICATIONS['queuey'][0]}"):
            assert answer(wrong) == 403
        said = refused(server.request("GET", "/metrics"), 403, "Forbidden")
        assert "[metrics] token" in said["Forbidden"]
        assert TOKEN not in said["Forbidden"]
