"""One request, every way to serve, one answer."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import requests

from tests.support.client import Server, new_name

_NOT_COMPARED = {"date", "server", "connection", "keep-alive", "queuey-warnings"}
"""Headers that the HTTP server below the server writes; and what a store warns of, which is its own."""
_OF_A_STORE = {"etag", "queuey-cursor", "content-length"}
"""Headers that all have where one has, each a value of its own."""
_UNLIKE = (
    (re.compile(rb'"cursor": ?"[^"]*"'), b'"cursor":"<cursor>"'),
    (re.compile(rb'"[A-Za-z0-9_-]{60}"'), b'"<receipt>"'),
    (re.compile(rb"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"), b"<uuid>"),
    (re.compile(rb"[0-9a-f]{32}"), b"<id>"),
    (re.compile(rb"[0-9]{10}\.[0-9]+"), b"<time>"),
    (re.compile(rb'"oldest_age": ?[0-9.e-]+'), b'"oldest_age":"<seconds>"'),
    (re.compile(rb'"storage": ?"[a-z]+"'), b'"storage":"<store>"'),
    (re.compile(rb'"(lease_)?k": ?("auto"|1)'), b'"k":"<k of the store>"'),
)
"""What must differ between two stores, and what it is compared as."""


class Each(tuple[Any, ...]):
    """A value that differs between the ways, such as the id that each has given."""

    __slots__ = ()


class Everywhere:
    """The same identity at every server, each over its own store."""

    def __init__(self, servers: Sequence[Server]) -> None:
        self.servers = servers

    def call(self, method: str, *below: Any, **given: Any) -> Each:
        """Send to all and assert that the answers are one, byte for byte.

        :param below: as of ``Server.call``; a an :class:`Each` stands for a part that differs.
        """
        return self._compare(
            [
                server.call(method, *_at(list(below), index), **_at(given, index))
                for index, server in enumerate(self.servers)
            ]
        )

    def request(self, method: str, path: str, **given: Any) -> Each:
        """As :meth:`call`, for any path."""
        return self._compare(
            [server.request(method, path, **_at(given, index)) for index, server in enumerate(self.servers)]
        )

    def queue(self, **fields: Any) -> str:
        """A queue of one name at every server."""
        name = new_name()
        for server in self.servers:
            assert server.create(name, **fields).status_code == 201
        return name

    def fill(self, queue: str, *bodies: str, partition: int = 1) -> list[Each]:
        """As ``Server.fill``: for each body, the id at each server."""
        return [
            Each(ids)
            for ids in zip(*(server.fill(queue, *bodies, partition=partition) for server in self.servers), strict=True)
        ]

    def _compare(self, answers: list[requests.Response]) -> Each:
        first, *others = (comparable(answer) for answer in answers)
        for server, other in zip(self.servers[1:], others, strict=True):
            assert other == first, f"{server.running.name}: {other}, not {first}"
        return Each(answers)


def _at(value: Any, index: int) -> Any:
    """``value`` as one server is to get it."""
    if isinstance(value, Each):
        return value[index]
    if isinstance(value, dict):
        return {key: _at(each, index) for key, each in value.items()}
    if isinstance(value, list):
        return [_at(each, index) for each in value]
    return value


def comparable(answer: requests.Response) -> tuple[int, dict[str, bytes], bytes]:
    if "Content-Length" in answer.headers and answer.request.method != "HEAD":
        assert int(answer.headers["Content-Length"]) == len(answer.content)
    headers = {
        name.lower(): b"<its own>" if name.lower() in _OF_A_STORE else _alike(value.encode())
        for name, value in answer.headers.items()
        if name.lower() not in _NOT_COMPARED
    }
    return answer.status_code, headers, _alike(answer.content)


def _alike(content: bytes) -> bytes:
    for pattern, instead in _UNLIKE:
        content = pattern.sub(instead, content)
    return content
