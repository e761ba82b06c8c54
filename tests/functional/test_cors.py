"""Pages of other origins: none may ask, unless the settings name their origin."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import servers
from tests.support.client import Server, refused
from tests.support.live import read_live

PAGE = "https://app.example.org"
OTHER = "https://evil.example.org"
ASKS = {"Access-Control-Request-Method": "GET", "Access-Control-Request-Headers": "authorization,last-event-id"}


@pytest.fixture(scope="module")
def open_to_pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that pages of one origin may ask."""
    folder = tmp_path_factory.mktemp("cors")
    with servers.shipped(folder, settings=f"cors_origins = {PAGE}\n") as running, Server(running) as server:
        yield server


def allowed(headers: object) -> set[str]:
    """The headers that a browser looks for."""
    return {name.lower() for name in headers if name.lower().startswith("access-control-")}  # type: ignore[attr-defined]


def test_a_page_of_a_named_origin_may_ask_and_see_what_it_needs(open_to_pages: Server) -> None:
    name = open_to_pages.queue()

    asked = open_to_pages.call("OPTIONS", name, headers={"Origin": PAGE, **ASKS})
    answer = open_to_pages.call("GET", name, headers={"Origin": PAGE})

    assert (asked.status_code, asked.content) == (204, b"")
    assert "Content-Length" not in asked.headers, "RFC 9110, 8.6"
    assert asked.headers["Access-Control-Allow-Origin"] == answer.headers["Access-Control-Allow-Origin"] == PAGE
    assert {"authorization", "last-event-id", "prefer", "traceparent", "tracestate"} <= set(
        asked.headers["Access-Control-Allow-Headers"].split(", ")
    )
    assert "GET" in asked.headers["Access-Control-Allow-Methods"]
    assert {"queuey-cursor", "etag", "preference-applied"} <= set(
        answer.headers["Access-Control-Expose-Headers"].split(", ")
    )
    assert "origin" in answer.headers["Vary"]
    assert "Access-Control-Allow-Credentials" not in answer.headers


def test_a_page_sees_refusals_and_streams_as_well(open_to_pages: Server) -> None:
    missing = open_to_pages.call("GET", "absent", headers={"Origin": PAGE})
    with read_live(open_to_pages, open_to_pages.queue(), headers={"Origin": PAGE}) as stream:
        stream.next("open")

    assert missing.status_code == 404
    for answer in (missing, stream.answer):
        assert answer.headers["Access-Control-Allow-Origin"] == PAGE


def test_a_page_of_another_origin_may_not(open_to_pages: Server) -> None:
    name = open_to_pages.queue()

    asked = open_to_pages.call("OPTIONS", name, headers={"Origin": OTHER, **ASKS})
    answer = open_to_pages.call("GET", name, headers={"Origin": OTHER})

    refused(asked, 405, "MethodNotAllowed")
    assert allowed(asked.headers) == allowed(answer.headers) == set()
    assert "origin" in answer.headers["Vary"]


def test_without_the_setting_there_is_nothing_of_it(server: Server) -> None:
    name = server.queue()

    refused(server.call("OPTIONS", name, headers={"Origin": PAGE, **ASKS}), 405, "MethodNotAllowed")
    answer = server.call("GET", name, headers={"Origin": PAGE})
    assert allowed(answer.headers) == set()
    assert "Vary" not in answer.headers


def test_all_origins_can_be_named_at_once(tmp_path: Path) -> None:
    with servers.shipped(tmp_path, settings="cors_origins = *\n") as running, Server(running) as server:
        answer = server.call("GET", server.queue(), headers={"Origin": OTHER})

    assert answer.headers["Access-Control-Allow-Origin"] == "*"


@pytest.mark.parametrize("origin", ["app.example.org", "https://app.example.org/", "https://", "null", "https://a b"])
def test_what_is_no_origin_is_refused_at_start(tmp_path: Path, origin: str) -> None:
    with (
        pytest.raises(servers.EndedEarly) as caught,
        servers.shipped(tmp_path, settings=f"cors_origins = {origin}\n"),
    ):
        pass

    assert caught.value.code == 2
    assert "cors_origins" in caught.value.said
