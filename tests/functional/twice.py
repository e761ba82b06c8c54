"""One request, both doors, one answer."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import requests

from tests.functional.client import Server

_NOT_OURS = {"date", "server", "connection", "keep-alive", "transfer-encoding", "content-length"}
"""Headers that the HTTP server below the door writes."""
_UNLIKE = (
    (re.compile(rb'"cursor": ?"[^"]*"'), b'"cursor":"<cursor>"'),
    (re.compile(rb"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"), b"<uuid>"),
    (re.compile(rb"[0-9a-f]{32}"), b"<id>"),
    (re.compile(rb"[0-9]{10}\.[0-9]+"), b"<time>"),
)
"""What must differ between two stores, and what it is compared as."""


class Pair(NamedTuple):
    """A value that differs between the doors, such as the id that each has given."""

    shipped: Any
    pyramid: Any


class Both:
    """The same identity at both doors, each over its own store."""

    def __init__(self, shipped: Server, pyramid: Server) -> None:
        self.servers = (shipped, pyramid)

    def call(self, method: str, *below: Any, **given: Any) -> Pair:
        """Send to both and assert that the answers are one, byte for byte.

        :param below: as of ``Server.call``; a :class:`Pair` stands for a part that differs.
        """
        return self._compare(
            [
                server.call(method, *_at(list(below), index), **_at(given, index))
                for index, server in enumerate(self.servers)
            ]
        )

    def request(self, method: str, path: str, **given: Any) -> Pair:
        """As :meth:`call`, for any path."""
        return self._compare(
            [server.request(method, path, **_at(given, index)) for index, server in enumerate(self.servers)]
        )

    def queue(self, **fields: Any) -> str:
        """A queue of one name at both doors."""
        name = self.servers[0].queue(**fields)
        assert self.servers[1].create(name, **fields).status_code == 201
        return name

    def fill(self, queue: str, *bodies: str, partition: int = 1) -> list[Pair]:
        """As ``Server.fill``: a pair of ids for each body."""
        return [
            Pair(*ids)
            for ids in zip(*(server.fill(queue, *bodies, partition=partition) for server in self.servers), strict=True)
        ]

    def _compare(self, answers: list[requests.Response]) -> Pair:
        first, second = (_comparable(answer) for answer in answers)
        assert first == second
        return Pair(*answers)


def _at(value: Any, index: int) -> Any:
    """``value`` as one door is to get it."""
    if isinstance(value, Pair):
        return value[index]
    if isinstance(value, dict):
        return {key: _at(each, index) for key, each in value.items()}
    if isinstance(value, list):
        return [_at(each, index) for each in value]
    return value


def _comparable(answer: requests.Response) -> tuple[int, dict[str, bytes], bytes]:
    if "Content-Length" in answer.headers and answer.request.method != "HEAD":
        assert int(answer.headers["Content-Length"]) == len(answer.content)
    headers = {
        name.lower(): b"<cursor>" if name.lower() == "queuey-cursor" else _alike(value.encode())
        for name, value in answer.headers.items()
        if name.lower() not in _NOT_OURS
    }
    return answer.status_code, headers, _alike(answer.content)


def _alike(content: bytes) -> bytes:
    for pattern, instead in _UNLIKE:
        content = pattern.sub(instead, content)
    return content
