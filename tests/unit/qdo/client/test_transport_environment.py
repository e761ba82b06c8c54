"""What the environment says about proxies and authorities holds for both clients."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from qdo.client import Client, QueueSettings
from queuey.errors import ConfigurationError, ServerUnreachable
from tests.support.client_answers import KEY, MADE
from tests.support.over_asyncio import CLIENTS, make_client
from tests.support.scripted_server import Say, Script, scripted_server
from tests.support.services.certificates import Authority

AWAY = "http://queuey.example:5000"
of_both = pytest.mark.parametrize("kind", CLIENTS)


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@of_both
def test_a_proxy_is_used(script: Script, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setenv("http_proxy", script.url)
    script.say(MADE)

    with make_client(kind, AWAY, "app", KEY) as client:
        client.create_queue("q")

    (asked,) = script.asked
    assert (asked.path, asked.headers["Authorization"]) == (f"{AWAY}/v1/app", f"Application {KEY}")


@of_both
def test_a_server_without_a_proxy_is_reached_without_it(
    script: Script, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    script.say(MADE)

    with make_client(kind, script.url, "app", KEY) as client:
        assert client.create_queue("q") == QueueSettings("q", 1, "user", "strong")


def test_a_proxy_that_asyncio_cannot_use_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "socks5://127.0.0.1:1")

    with make_client("asyncio", AWAY) as client, pytest.raises(ConfigurationError, match="socks5"):
        client.read("q")


@of_both
@pytest.mark.parametrize("proxy", ["http://ann:hunter2@[bad", "http://", "socks9://ann:hunter2@127.0.0.1:1"])
def test_a_proxy_that_is_none_is_refused_without_its_password(
    monkeypatch: pytest.MonkeyPatch, kind: str, proxy: str
) -> None:
    monkeypatch.setenv("http_proxy", proxy)

    with make_client(kind, AWAY) as client, pytest.raises(ConfigurationError, match="proxy") as caught:
        client.read("q")

    assert "hunter2" not in str(caught.value)


@of_both
def test_a_proxy_needs_no_scheme(script: Script, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setenv("http_proxy", script.url.removeprefix("http://"))
    script.say(MADE)

    with make_client(kind, AWAY, "app", KEY) as client:
        assert client.create_queue("q").name == "q"


@of_both
@pytest.mark.parametrize(("status", "times"), [(407, 1), (502, 3)])
def test_what_a_proxy_refuses_was_never_sent(
    script: Script, monkeypatch: pytest.MonkeyPatch, kind: str, status: int, times: int
) -> None:
    monkeypatch.setenv("https_proxy", script.url.replace("//", "//ann:hunter2@"))
    script.say(*[Say(status)] * times)

    with (
        make_client(kind, AWAY.replace("http", "https"), "app", KEY, retries=2, sleep=lambda _: None) as client,
        pytest.raises(ServerUnreachable, match="the proxy refuses: 407" if status == 407 else "no server") as caught,
    ):
        client.append("q", "hello")

    assert "hunter2" not in str(caught.value)
    assert [asked.method for asked in script.asked] == ["CONNECT"] * times


@of_both
def test_a_proxy_that_is_away_was_sent_nothing(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")

    with (
        make_client(kind, AWAY, "app", KEY, retries=0) as client,
        pytest.raises(ServerUnreachable, match=f"no server answers at {AWAY} through the proxy of the environment"),
    ):
        client.append("q", "hello")


@of_both
def test_authorities_that_cannot_be_read_are_no_lost_answer(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/nowhere/authority.pem")

    with make_client(kind, "https://127.0.0.1:1") as client, pytest.raises(ConfigurationError, match="nowhere"):
        client.append("q", "hello")


@of_both
def test_an_authority_is_trusted_if_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    authority = Authority(tmp_path)
    monkeypatch.delenv("REQUESTS_CA_BUNDLE", raising=False)
    with scripted_server(authority.identity("server", "127.0.0.1")) as script:
        with (
            make_client(kind, script.url, "app", KEY) as client,
            pytest.raises(ServerUnreachable, match=r"certificate.*; the variable REQUESTS_CA_BUNDLE names"),
        ):
            client.create_queue("q")
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(authority.file))
        script.say(MADE)
        with make_client(kind, script.url, "app", KEY) as client:
            assert client.create_queue("q").name == "q"
        assert len(script.asked) == 1


def test_a_process_that_was_forked_has_connections_of_its_own(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    """On one connection each of the two could read the answer to the other: messages that it never asked for."""
    script.say(MADE, MADE, MADE)
    with Client(script.url, "app", KEY) as client:
        client.create_queue("q")
        before = client._transport._session
        client.create_queue("q")
        assert client._transport._session is before

        with monkeypatch.context() as forked:
            forked.setattr(os, "getpid", lambda: -1)
            client.create_queue("q")

        assert client._transport._session is not before
