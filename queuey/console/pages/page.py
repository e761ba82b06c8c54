"""What a page is, and what it gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from queuey.console.sessions import Session
from queuey.http.exchange import Headers

__all__ = ["ConsolePage", "PageAnswer", "address", "goes_to"]


@dataclass(frozen=True, slots=True)
class PageAnswer:
    """What a browser gets."""

    template: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)
    """The names of the template."""
    status: int = 200
    location: str = ""
    """Where the browser goes on."""
    session: Session | None = None
    """A new session, or one in place of the former."""
    headers: Headers = field(default_factory=list)
    raw: bytes | None = None
    """Bytes of :attr:`media_type` in place of a template."""
    media_type: str = ""


class ConsolePage(NamedTuple):
    """A page, or a change that a form of one asks for."""

    path: str
    """As Pyramid writes it."""
    show: Callable[..., PageAnswer]
    """Takes the visit, and the names in the path."""
    method: str = "GET"

    @property
    def route(self) -> str:
        """Its name in Pyramid's table."""
        return f"{self.method} {self.path}"


def address(*names: str, **query: object) -> str:
    """The address of a page below ``/console``.

    >>> address("a", "demo", prefix="x y", at=None)
    '/console/a/demo?prefix=x+y'
    """
    path = "/".join(["/console", *[quote(name, safe="") for name in names]])
    given = {name: str(value) for name, value in query.items() if value is not None}
    return f"{path}?{urlencode(given)}" if given else path


def goes_to(*names: str, **query: object) -> PageAnswer:
    """Send the browser to another page, after a change."""
    return PageAnswer(status=303, location=address(*names, **query))
