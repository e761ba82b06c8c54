"""What a server logs of each request, and when it stops."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import requests

from qdo.client import Client
from tests.support import servers
from tests.support.client import new_name
from tests.support.raw import TIMEOUT_SECONDS
from tests.support.servers import APPLICATIONS, RunningServer, eventually

KEY = APPLICATIONS["queuey"][0]
SETTINGS = """
[log]
requests = true
format = json
"""


def lines(folder: Path) -> list[dict[str, Any]]:
    """Whole lines of the log."""
    text = (folder / "said.txt").read_text().splitlines(keepends=True)
    return [json.loads(line) for line in text if line.startswith("{") and line.endswith("\n")]


def line_of(folder: Path, request_id: str) -> dict[str, Any]:
    return eventually(lambda: next((one for one in lines(folder) if one.get("request_id") == request_id), {}))


def ask(running: RunningServer, method: str, path: str, **given: Any) -> requests.Response:
    given["headers"] = {"Authorization": f"Application {KEY}", **given.pop("headers", {})}
    return requests.request(method, running.url + path, timeout=TIMEOUT_SECONDS, **given)


def test_a_line_has_who_asked_what_from_where_and_how_long(tmp_path: Path) -> None:
    name, body = new_name(), "a body that no log has"
    with servers.shipped(tmp_path, settings=SETTINGS, name="logged") as running:
        ask(running, "POST", "/v1/queuey", data={"queue_name": name})
        ask(running, "POST", f"/v1/queuey/{name}", data=body, headers={"X-Request-Id": "append-1"})
        claimed = {"X-Request-Id": "read-1", "X-Forwarded-For": "192.0.2.7"}
        ask(running, "GET", f"/v1/queuey/{name}?limit=5&since=123", headers=claimed)
        ask(running, "GET", f"/v1/queuey/{name}", headers={"X-Request-Id": "bad-1", "Authorization": "Application no"})
        append, read, refused = (line_of(tmp_path, one) for one in ("append-1", "read-1", "bad-1"))

    assert {name: append[name] for name in ("event", "app", "queue", "route", "status", "principals", "address")} == {
        "event": "POST queue 201",
        "app": "queuey",
        "queue": name,
        "route": "queue",
        "status": 201,
        "principals": ["app:queuey"],
        "address": "127.0.0.1",
    }
    assert 0 < append["store_ms"] <= append["duration_ms"]
    assert 0 < read["store_ms"] <= read["duration_ms"]
    assert (read["address"], read["queue"]) == ("127.0.0.1", name)
    assert (refused["status"], refused["principals"], refused["store_ms"]) == (401, [], 0)
    text = (tmp_path / "said.txt").read_text()
    assert [secret for secret in (KEY, body, "since=123") if secret in text] == []


def test_behind_a_trusted_proxy_the_client_has_its_own_address(tmp_path: Path) -> None:
    settings = f"trusted_proxies = 127.0.0.1\n{SETTINGS}"
    with servers.shipped(tmp_path, settings=settings, name="proxied") as running:
        headers = {"X-Request-Id": "one", "X-Forwarded-For": "198.51.100.9, 192.0.2.7"}
        ask(running, "GET", "/v1/queuey", headers=headers)
        assert line_of(tmp_path, "one")["address"] == "192.0.2.7"


def test_a_long_poll_waits_for_messages_and_not_for_the_store(tmp_path: Path) -> None:
    with servers.shipped(tmp_path, settings=SETTINGS, name="waiting") as running:
        with Client(running.url, "queuey", KEY) as client:
            queue = client.create_queue(new_name()).name
        ask(running, "GET", f"/v1/queuey/{queue}?wait=1", headers={"X-Request-Id": "poll"})
        line = line_of(tmp_path, "poll")

    assert line["store_ms"] <= line["duration_ms"]


def test_a_stop_says_what_was_done(tmp_path: Path) -> None:
    with servers.shipped(tmp_path, settings="[log]\nformat = json\n", name="stopped") as running:
        with Client(running.url, "queuey", KEY) as client:
            queue = client.create_queue(new_name()).name
            client.append_batch(queue, [b"abc", b"de"])
            client.read(queue)

    last = lines(tmp_path)[-1]
    assert last["event"].startswith("stopped: ")
    assert {name: last[name] for name in ("appended", "read", "bytes_in", "bytes_out", "errors")} == {
        "appended": 2,
        "read": 2,
        "bytes_in": 5,
        "bytes_out": 5,
        "errors": 0,
    }
    assert last["requests"] >= 3
    assert last["seconds"] > 0
    assert not any(one["event"].startswith("POST") for one in lines(tmp_path))  # no line a request, unless asked for
