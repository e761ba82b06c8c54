"""Finds a path's route: one table per face, for the event loop and Pyramid."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

from queuey.errors import BadPath, MethodNotAllowed, NotFound, PathTooLong
from queuey.http.exchange import MAX_ESCAPES, Call
from queuey.http.face import Operation

__all__ = ["Choice", "Route", "Routes", "check_path", "decode_path"]

MAX_PATH = 4096
"""Bytes of a decoded path."""

Choice = Operation | Callable[[Call], Operation]
"""The operation of a method, or a function that chooses one by a call's query and headers."""


class Route(NamedTuple):
    """One resource. Every path works with and without a trailing slash."""

    name: str
    pattern: str
    """The path, with ``{name}`` for each variable part, as Pyramid writes it."""
    methods: Mapping[str, Choice]
    """By method. HEAD is not listed: it is GET without the body."""


class _Place:
    """Where a path has got to: what may come next, and the route if nothing does."""

    __slots__ = ("literal", "route", "variable")

    def __init__(self) -> None:
        self.literal: dict[str, _Place] = {}
        """Behind a part that a pattern has as it is."""
        self.variable: _Place | None = None
        """Behind any other part."""
        self.route: Route | None = None

    def behind(self, part: str) -> _Place:
        """The place behind a part of a pattern, from now on."""
        if not part.startswith("{"):
            return self.literal.setdefault(part, _Place())
        self.variable = self.variable or _Place()
        return self.variable


class Routes:
    """The routes of one face. A part that one pattern has as it is counts there, not for the variable part of another."""

    def __init__(self, table: Sequence[Route]) -> None:
        self.table = table
        self._begin = _Place()
        for route in table:
            place = self._begin
            for part in route.pattern.split("/"):
                place = place.behind(part)
            place.route = route

    def methods(self) -> Iterator[tuple[Route, str]]:
        """Every route with each of its methods, except HEAD."""
        return ((route, method) for route in self.table for method in route.methods)

    def find(self, method: str, path: str) -> tuple[Choice, Sequence[str]]:
        """The choice for a method and a decoded path, and what stands for the variable parts, in their order.

        :raises BadPath, PathTooLong: as :func:`check_path`.
        :raises NotFound: no route has this path.
        :raises MethodNotAllowed: with Allow.
        """
        check_path(path)
        place, variable = self._begin, []
        for part in path.removesuffix("/").split("/"):
            behind = place.literal.get(part)
            if behind is None:
                behind = place.variable
                if behind is None or not part:
                    raise NotFound
                variable.append(part)
            place = behind
        if place.route is None:
            raise NotFound
        methods = place.route.methods
        choice = methods.get("GET" if method == "HEAD" else method)
        if choice is None:
            allowed = sorted({*methods, *({"HEAD"} if "GET" in methods else ())})
            raise MethodNotAllowed(headers={"allow": ", ".join(allowed)})
        return choice, variable


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
