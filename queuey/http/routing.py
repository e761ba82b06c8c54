"""Finds a path's route: one table per face, for the event loop and Pyramid."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

from queuey.errors import BadPath, MethodNotAllowed, NotFound, PathTooLong
from queuey.http.exchange import MAX_ESCAPES, Call
from queuey.http.face import Operation

__all__ = ["Choice", "Names", "Route", "Routes", "check_path", "decode_path"]

MAX_PATH = 4096
"""Bytes of a decoded path."""

Choice = Operation | Callable[[Call], Operation]
"""The operation of a method, or a function that chooses one by a call's query and headers."""
Names = Mapping[str, str]
"""The parts of a path, under the names that the pattern gives them."""


class Route(NamedTuple):
    """One resource. Every path works with and without a trailing slash."""

    name: str
    pattern: str
    """The path, with ``{name}`` for each variable part, as Pyramid writes it."""
    methods: Mapping[str, Choice]
    """By method. HEAD is not listed: it is GET without the body."""


class Routes:
    """The routes of one face. The first pattern that matches a path counts."""

    def __init__(self, table: Sequence[Route]) -> None:
        self.table = table
        self._by_depth: dict[int, list[tuple[re.Pattern[str], Route]]] = {}
        """By the number of parts of a path."""
        for route in table:
            found = self._by_depth.setdefault(_depth(route.pattern), [])
            found.append((re.compile(_expression(route.pattern)), route))

    def route_of(self, path: str) -> tuple[Route, Names]:
        """The route of a decoded path, and the names in it.

        :raises BadPath, PathTooLong: as :func:`check_path`.
        :raises NotFound: no route has this path.
        """
        check_path(path)
        for expression, route in self._by_depth.get(_depth(path), ()):
            found = expression.fullmatch(path)
            if found is not None:
                return route, found.groupdict()
        raise NotFound

    def methods(self) -> Iterator[tuple[Route, str]]:
        """Every route with each of its methods, except HEAD."""
        return ((route, method) for route in self.table for method in route.methods)

    def find(self, method: str, path: str) -> tuple[Choice, Names]:
        """The choice for a method and a path.

        :raises MethodNotAllowed: with Allow; and as :meth:`route_of`.
        """
        route, names = self.route_of(path)
        choice = route.methods.get("GET" if method == "HEAD" else method)
        if choice is None:
            allowed = sorted({*route.methods, *({"HEAD"} if "GET" in route.methods else ())})
            raise MethodNotAllowed(headers={"allow": ", ".join(allowed)})
        return choice, names


def _depth(path: str) -> int:
    """Parts of a path, or of a pattern: no part has a slash."""
    return path.count("/") - path.endswith("/")


def _expression(pattern: str) -> str:
    """A pattern as a regular expression, with an optional slash at its end.

    >>> _expression("/v1/{application}")
    '/v1/(?P<application>[^/]+)/?'
    """
    return re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>[^/]+)", re.escape(pattern)) + "/?"


def decode_path(raw: str) -> str:
    """Decode percent-escapes.

    Broken escapes stay, and bytes that are not UTF-8 become U+FFFD.

    A path of more than 2000 escapes stays as it is. :func:`check_path` refuses it for them.
    """
    if raw.count("%") > MAX_ESCAPES:
        return raw
    return unquote_to_bytes(raw.encode("latin-1", "replace")).decode("utf-8", "replace")


def check_path(path: str) -> None:
    """Refuse a decoded path that no resource can have.

    :raises PathTooLong: over 4096 bytes.
    :raises BadPath: a percent sign (left over from a broken escape), a NUL, bytes that were not UTF-8.
    """
    if path.isascii():
        if len(path) > MAX_PATH:
            raise PathTooLong
        if "%" in path or "\0" in path:
            raise BadPath
    elif len(path.encode("utf-8", "replace")) > MAX_PATH:
        raise PathTooLong
    elif not {"%", "\0", "\ufffd"}.isdisjoint(path):
        raise BadPath
