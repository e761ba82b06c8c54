"""Servers of one store, in one process."""

from __future__ import annotations

from collections.abc import Sequence

from queuey.future import Future
from queuey.storage import AppendNotice, Peers, ServerBeat


class Telephone(Peers):
    """Servers that hear each other at once, unless the line is out of order."""

    def __init__(self) -> None:
        self.published: list[AppendNotice] = []
        self.beats: dict[str, ServerBeat] = {}
        self.broken: Exception | None = None

    def publish(self, notice: AppendNotice) -> Future[None]:
        if self.broken:
            return Future.failed(self.broken)
        self.published.append(notice)
        return Future.of(None)

    def poll(self) -> Future[Sequence[AppendNotice]]:
        heard, self.published = self.published, []
        return Future.of(heard)

    def beat(self, beat: ServerBeat) -> Future[None]:
        if self.broken:
            return Future.failed(self.broken)
        self.beats[beat.name] = beat
        return Future.of(None)

    def servers(self) -> Future[Sequence[ServerBeat]]:
        return Future.failed(self.broken) if self.broken else Future.of(sorted(self.beats.values()))
