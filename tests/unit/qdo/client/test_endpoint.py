"""Where a client takes its server, its application and its credential from."""

from __future__ import annotations

from typing import Any

import pytest

from qdo import Client
from qdo.aio import AsyncClient
from qdo.client.endpoint import Named
from queuey.errors import ConfigurationError

VARIABLES = {
    "QUEUEY_URL": "http://queuey.example:5000",
    "QUEUEY_APPLICATION": "shop",
    "QUEUEY_KEY": "a-key",
    "QUEUEY_TOKEN": "",
}


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)


def test_a_client_without_arguments_is_that_of_the_environment() -> None:
    assert Named.of(None, None, None, None) == ("http://queuey.example:5000", "shop", "a-key", None)
    with Client() as client:
        assert (client.url, client.application) == ("http://queuey.example:5000", "shop")


def test_what_is_given_comes_before_the_environment() -> None:
    assert Named.of(None, "demo", "mine", None)[1:3] == ("demo", "mine")
    assert Named.of(None, None, None, "token") == ("http://queuey.example:5000", "shop", None, "token")


def test_no_key_of_the_environment_goes_to_a_server_that_is_named() -> None:
    assert Named.of("http://elsewhere.example", None, None, None) == ("http://elsewhere.example", "demo", None, None)


def test_without_variables_it_is_the_server_of_the_quick_start(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name)

    assert Named.of(None, None, None, None) == ("http://127.0.0.1:5000", "demo", None, None)


@pytest.mark.parametrize("kind", [Client, AsyncClient])
@pytest.mark.parametrize("application", [".", "..", "shop/orders"])
def test_an_application_is_no_path(kind: Any, application: str) -> None:
    with pytest.raises(ConfigurationError, match="no name of an application"):
        kind("http://queuey.example:5000", application)


@pytest.mark.parametrize("kind", [Client, AsyncClient])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("retries", value) for value in (None, "5", -1, True, 2.5)],
        *[("timeout_seconds", value) for value in (None, "30")],
        *[(name, value) for name in ("url", "key", "token") for value in (5, b"text")],
    ],
)
def test_an_option_of_another_kind_is_refused_by_its_name(kind: Any, name: str, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=f"^{name} is "):
        kind(**{"url": "http://queuey.example:5000", name: value})
