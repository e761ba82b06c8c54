"""Calls about a server and its figures: what the console shows, for programs.

They are a part of each client.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from qdo.client.endpoint import Endpoint
from qdo.client.steps import Steps, call

__all__ = ["ApplicationFigures", "FigureCalls", "QueueFigures", "ServerFigures"]

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class QueueFigures:
    """The numbers of one queue. They are None if the server's time for the page was over before it counted the queue."""

    name: str
    partitions: int
    kind: str
    depth: int | None
    scheduled: int | None
    bytes: int | None
    oldest_timestamp: str | None
    """Of the oldest live message, decimal seconds since 1970; None without one."""
    newest_timestamp: str | None

    @classmethod
    def from_wire(cls, entry: Json) -> QueueFigures:
        return cls(
            entry["queue_name"],
            entry["partitions"],
            entry["type"],
            entry["depth"],
            entry["scheduled"],
            entry["bytes"],
            entry["oldest_timestamp"],
            entry["newest_timestamp"],
        )


@dataclass(frozen=True, slots=True)
class ApplicationFigures:
    """What a server counted of an application, or of all together."""

    application: str
    """Empty for all together."""
    time: float
    """Of the answer, seconds since 1970, by the server's clock."""
    counters: Mapping[str, int] = field(hash=False)
    """Since the server began."""
    queues: tuple[QueueFigures, ...] = ()
    """A page of queues by name."""

    @classmethod
    def from_wire(cls, entry: Json) -> ApplicationFigures:
        queues = tuple(map(QueueFigures.from_wire, entry.get("queues", ())))
        return cls(entry.get("application", ""), entry["time"], entry["counters"], queues)


@dataclass(frozen=True, slots=True)
class ServerFigures:
    """A server as its operator sees it."""

    total: ApplicationFigures
    server: Mapping[str, Any] = field(hash=False)
    """Its state now, by the names on the wire."""
    samples: Sequence[Mapping[str, float]] = field(hash=False)
    """The newest seconds, oldest of them first. Rates are for each second."""
    applications: tuple[ApplicationFigures, ...]
    """A page of applications by name."""

    @classmethod
    def from_wire(cls, entry: Json) -> ServerFigures:
        fields, samples = entry["history"]["fields"], entry["history"]["samples"]
        return cls(
            ApplicationFigures.from_wire(entry),
            entry["server"],
            [dict(zip(fields, sample, strict=True)) for sample in samples],
            tuple(map(ApplicationFigures.from_wire, entry["applications"])),
        )


class FigureCalls:
    """ApplicationFigures of an application and of the server."""

    application: str
    _endpoint: Endpoint

    @call
    def figures(self, *, prefix: str = "", start: str = "", limit: int = 25) -> Steps[ApplicationFigures]:
        """What the server counted of the application, and a page of its queues with their numbers.

        :param prefix: only queues whose names begin like this.
        :param start: the first name of the page; it need not exist.
        :param limit: queues of the page, 1 to 100.
        """
        params = {"stats": "true", "limit": limit, "prefix": prefix, "offset": start}
        answer = yield from self._endpoint.ask("GET", "v1", self.application, params=params)
        return ApplicationFigures.from_wire(answer.json())

    @call
    def server_figures(self, *, start: str = "", limit: int = 25, history: int = 0) -> Steps[ServerFigures]:
        """What the server counted, its state, and a page of its applications. Only an operator's key may ask.

        :param start: the first application of the page.
        :param limit: applications of the page, 1 to 100.
        :param history: the newest seconds to give samples of, up to 3600. A server without the console has none.
        :raises Forbidden: the key is not an operator's.
        """
        params = {"stats": "true", "limit": limit, "history": history, "offset": start}
        answer = yield from self._endpoint.ask("GET", "v1", params=params)
        return ServerFigures.from_wire(answer.json())

    @call
    def heartbeat(self) -> Steps[list[str]]:
        """Ask whether the server can store.

        :returns: what makes its guarantees weaker, though it works; empty if nothing does.
        :raises StorageUnavailable: it cannot; the text has the problems.
        """
        answer = yield from self._endpoint.ask("GET", "__heartbeat__")
        if answer.body != b"OK":
            raise answer.is_foreign()
        return [one for one in answer.headers.get("Queuey-Warnings", "").split("; ") if one]
