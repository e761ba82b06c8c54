"""Paths of the service itself: heartbeats, version, metrics, the description of the API."""

from __future__ import annotations

import json
import re

import pytest

import queuey
from tests.support.client import Server


@pytest.mark.parametrize("path", ["/__heartbeat__", "/__heartbeat__/", "/__lbheartbeat__"])
def test_a_heartbeat_needs_no_credentials(anonymous: Server, path: str) -> None:
    answer = anonymous.request("GET", path)

    assert answer.status_code == 200
    assert answer.text.strip() == "OK"
    assert answer.headers["Content-Type"].startswith("text/plain")


def test_head_of_the_heartbeat_is_200_without_a_body(anonymous: Server) -> None:
    answer = anonymous.request("HEAD", "/__heartbeat__")

    assert (answer.status_code, answer.content) == (200, b"")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_the_heartbeat_answers_any_method(anonymous: Server, method: str) -> None:
    assert anonymous.request(method, "/__heartbeat__").status_code == 200


def test_the_heartbeat_looks_at_no_credential(server: Server) -> None:
    answer = server.request("GET", "/__heartbeat__", headers={"Authorization": "Application wrong"})

    assert answer.status_code == 200


def test_the_version_is_told(anonymous: Server) -> None:
    answer = anonymous.request("GET", "/__version__")

    assert answer.status_code == 200
    assert answer.json()["version"] == queuey.__version__


def samples(server: Server) -> dict[str, float]:
    """What /metrics says, by name with labels."""
    answer = server.request("GET", "/metrics")
    assert answer.status_code == 200
    assert answer.headers["Content-Type"].startswith("text/plain")
    lines = [line for line in answer.text.splitlines() if line and not line.startswith("#")]
    return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in lines}


def test_metrics_count_what_was_appended_and_delivered(fresh: Server) -> None:
    name = fresh.queue()
    fresh.fill(name, "abc", "de")
    fresh.read(name)
    fresh.post(name, b"")

    found = samples(fresh)

    assert found[f'queuey_messages_appended_total{{app="{fresh.application}"}}'] == 2
    delivered = [value for key, value in found.items() if "delivered_total" in key and fresh.application in key]
    assert delivered == [2]
    bytes_seen = {
        key: value for key, value in found.items() if "message_bytes_total" in key and fresh.application in key
    }
    assert list(bytes_seen.values()) == [5, 5]


def test_metrics_time_requests_by_route_method_and_code(server: Server) -> None:
    server.queue()
    server.get("absent")

    found = [key for key in samples(server) if key.startswith("queuey_http_request_duration_seconds_count")]

    assert any('method="POST"' in key and 'code="201"' in key for key in found)
    assert any('method="GET"' in key and 'code="404"' in key for key in found)


def test_metrics_have_no_label_of_a_queue_a_message_or_a_path(server: Server) -> None:
    name = server.queue()
    key = server.add(name)["key"]
    server.fetch(name, key)
    server.request("GET", "/some/odd/path")
    server.request("ODD", "/v1/queuey")

    text = server.request("GET", "/metrics").text

    for secret in (name, key, "odd", "ODD"):
        assert secret not in text
    for application in re.findall(r'app="([^"]*)"', text):
        assert application.isascii()


def test_an_unknown_application_gets_no_label(server: Server) -> None:
    with server.seen_by(None) as nobody:
        nobody.application = "no-such-application"
        nobody.call("GET", "x")

    assert "no-such-application" not in server.request("GET", "/metrics").text


def test_the_description_of_the_api_names_every_path(anonymous: Server) -> None:
    answer = anonymous.request("GET", "/openapi.json")

    assert answer.status_code == 200
    assert answer.headers["Content-Type"].startswith("application/json")
    told = json.loads(answer.text)
    assert told["openapi"].startswith("3.1")
    assert {path.count("{") for path in told["paths"]} >= {0, 1, 2, 3}
    for path in ("/__heartbeat__", "/__lbheartbeat__", "/__version__", "/metrics"):
        assert path in told["paths"]
