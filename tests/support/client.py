"""The wire in the words of the tests: plain requests, nothing of Queuey's own client."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Self
from urllib.parse import quote

import requests

from qdo.client import Client
from tests.support.servers import APPLICATIONS, RunningServer

TIMEOUT_SECONDS = 90
Json = dict[str, Any]


def new_name() -> str:
    """A queue name nobody has used."""
    return f"q-{uuid.uuid4().hex[:12]}"


def authorization(key: str | None) -> dict[str, str]:
    return {} if key is None else {"Authorization": f"Application {key}"}


BATCH = "application/vnd.queuey.batch+json"
"""The type of a batch as JSON."""


class Server:
    """One server, seen by one identity that works on one application's path."""

    def __init__(self, running: RunningServer, application: str = "queuey", key: str | None = "own") -> None:
        """:param key: ``own`` for the application's first key, None for no credentials."""
        self.running = running
        self.url = running.url
        self.application = application
        self.key = APPLICATIONS[application][0] if key == "own" else key
        self.session = requests.Session()
        self.session.trust_env = False
        self.session.headers.update(authorization(self.key))

    @property
    def variables(self) -> dict[str, str]:
        """The environment that names this server to programs and tasks."""
        return {"QUEUEY_URL": self.url, "QUEUEY_APPLICATION": self.application, "QUEUEY_KEY": self.key or ""}

    def close(self) -> None:
        self.session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def seen_by(self, key: str | None) -> Iterator[Server]:
        """The same path, asked with another key or none."""
        with Server(self.running, self.application, key) as other:
            yield other

    def request(self, method: str, path: str, **given: Any) -> requests.Response:
        """Any path of the server."""
        return self.session.request(method, self.url + path, timeout=TIMEOUT_SECONDS, allow_redirects=False, **given)

    def call(self, method: str, *below: str, **given: Any) -> requests.Response:
        """A path below ``/v1/<application>``; its parts are percent-encoded."""
        path = "".join("/" + quote(part, safe="") for part in ("v1", self.application, *below))
        return self.request(method, path, **given)

    def create(self, name: str | None = None, **fields: Any) -> requests.Response:
        return self.call("POST", data={"queue_name": name or new_name(), **fields})

    def queue(self, **fields: Any) -> str:
        """A new queue's name."""
        answer = self.create(**fields)
        assert answer.status_code == 201, answer.text
        name = answer.json()["queue_name"]
        assert isinstance(name, str)
        return name

    def post(self, queue: str, body: bytes | str = b"hello", **headers: Any) -> requests.Response:
        """Append one raw message; ``x_ttl=5`` is the header ``X-Ttl: 5``."""
        raw = body.encode() if isinstance(body, str) else body
        return self.call("POST", queue, data=raw, headers=_header_names(headers))

    def add(self, queue: str, body: bytes | str = b"hello", **headers: Any) -> Json:
        """Append one raw message: its key, timestamp and partition."""
        answer = self.post(queue, body, **headers)
        assert answer.status_code == 201, answer.text
        (message,) = answer.json()["messages"]
        assert isinstance(message, dict)
        return message

    def post_batch(self, queue: str, *entries: Any, **headers: Any) -> requests.Response:
        return self.call("POST", queue, json={"messages": list(entries)}, headers=_header_names(headers))

    def add_batch(self, queue: str, *entries: Json) -> list[Json]:
        answer = self.post_batch(queue, *entries)
        assert answer.status_code == 201, answer.text
        messages = answer.json()["messages"]
        assert isinstance(messages, list)
        return messages

    def fill(self, queue: str, *bodies: str, partition: int = 1) -> list[str]:
        """Append these bodies to one partition: their ids, rising."""
        added = self.add_batch(queue, *({"body": body, "partition": partition} for body in bodies))
        return [message["key"] for message in added]

    def get(self, queue: str, **params: Any) -> requests.Response:
        return self.call("GET", queue, params=params)

    def read(self, queue: str, **params: Any) -> list[Json]:
        answer = self.get(queue, **params)
        assert answer.status_code == 200, answer.text
        messages = answer.json()["messages"]
        assert isinstance(messages, list)
        return messages

    def bodies(self, queue: str, **params: Any) -> list[str]:
        return [message["body"] for message in self.read(queue, **params)]

    def fetch(self, queue: str, ids: str) -> list[Json]:
        answer = self.call("GET", queue, ids)
        assert answer.status_code == 200, answer.text
        messages = answer.json()["messages"]
        assert isinstance(messages, list)
        return messages

    def settings(self, queue: str) -> Json:
        """A queue's settings, asked for as the first Queuey's clients do."""
        answer = self.call("GET", params={"details": "true", "limit": 1, "offset": queue})
        assert answer.status_code == 200, answer.text
        (found,) = answer.json()["queues"]
        assert found["queue_name"] == queue
        assert isinstance(found, dict)
        return found

    def info(self, queue: str) -> Json:
        answer = self.get(queue, info="true")
        assert answer.status_code == 200, answer.text
        found = answer.json()
        assert isinstance(found, dict)
        return found

    def everything(self, queue: str) -> list[str]:
        """All bodies in all partitions, whatever is due only later left out."""
        return self.bodies(queue, partitions="all", limit=1000)


def _header_names(given: Mapping[str, Any]) -> dict[str, Any]:
    """``content_type`` to ``Content-Type``; numbers to text."""
    return {
        name.replace("_", "-").title(): value if isinstance(value, bytes) else str(value)
        for name, value in given.items()
    }


def refused(answer: requests.Response, status: int, *keys: str) -> Json:
    """Assert that this is a refusal of the v1 shape with exactly these keys; the texts by key."""
    assert answer.status_code == status, f"{answer.status_code} {answer.text}"
    assert answer.headers["Content-Type"].split(";")[0] == "application/json"
    told = answer.json()
    assert told["status"] == "error"
    texts = told["error_msg"]
    assert isinstance(texts, dict)
    assert all(isinstance(text, str) and text for text in texts.values())
    if keys:
        assert set(texts) == set(keys), texts
    return texts


@contextmanager
def emptied(server: Server) -> Iterator[Server]:
    """An application without queues. Those that the block makes are deleted at its end."""
    yield server
    with Client(server.url, server.application, server.key) as client:
        for queue in [*client.queues()]:
            client.delete_queue(queue.name)
