"""Live reads on a clock that is moved by hand: a service, and a reader that takes what comes."""

from __future__ import annotations

import json
from typing import Any

from queuey.clock import ManualClock
from queuey.future import Future, run, start
from queuey.http.exchange import Answer, BodyStream, Chunk, joined
from queuey.ids import TICKS_PER_SECOND
from queuey.model import AppendRequest, Draft
from queuey.server.faces import open_pipeline
from queuey.service import Service
from queuey.service.queues import QueueSettings
from queuey.settings import load_settings

KEY = "k" * 32
LINES = {"accept": "application/x-ndjson"}
Json = dict[str, Any]


class House:
    """A service over a store in memory, whose time is moved by hand."""

    def __init__(self, **given: Any) -> None:
        self.clock = ManualClock()
        options = {"storage": {"backend": "memory"}, "tokens": {"keys": ("s" * 40,)}, **given}
        self.service = Service.open(load_settings(None, {}, options), clock=self.clock, waiters_by_hand=True)
        run(self.service.start(KEY))
        self.pipeline = open_pipeline(self.service)
        self.headers = {"authorization": f"Application {KEY}"}

    def ask(self, path: str, query: str = "", **headers: str) -> Answer:
        """The answer to a GET."""
        call, operation = self.pipeline.open("GET", path, query, {**self.headers, **headers})
        answer = operation if isinstance(operation, Answer) else run(self.pipeline.answer(operation, call))
        self.pipeline.leave(call)
        return answer

    def token(self, seconds: int) -> str:
        """One of the server's own, of the application."""
        own = self.service.trust.tokens
        assert own is not None
        return own.mint("app:demo", "demo", life_seconds=seconds).text

    def queue(self, name: str, partitions: int = 1) -> None:
        run(self.service.queues.create("demo", name, QueueSettings(partitions=partitions)))

    def append(self, name: str, body: str, partition: int = 1, delay_seconds: float = 0) -> None:
        queue = run(self.service.queues.find("demo", name))
        assert queue is not None
        due = self.clock.now_ticks() + round(delay_seconds * TICKS_PER_SECOND) if delay_seconds else None
        run(self.service.log.append(AppendRequest(queue, [Draft(partition, body.encode(), 10_000, due_ticks=due)])))

    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.service.waiters.tick()

    def reader(self, query: str, path: str = "/v1/demo") -> Reader:
        answer = self.ask(path, query, **LINES)
        assert answer.status == 200, answer.body
        assert answer.stream is not None
        return Reader(answer.stream)


class Reader:
    """Takes what comes, as soon as it comes."""

    def __init__(self, stream: BodyStream) -> None:
        self.stream = stream
        self.lines: list[Json] = []
        self.over = False
        self._wait: Future[Chunk | None] | None = None
        self.take()

    def take(self) -> Reader:
        """All that has come by now."""
        while not self.over:
            if self._wait is None:
                self._wait = start(self.stream.more())
            if not self._wait.done:
                return self
            piece, self._wait = self._wait.result(), None
            if piece is None:
                self.over = True
                self.stream.close()
            else:
                self.lines += map(json.loads, joined(piece).splitlines())
        return self

    @property
    def messages(self) -> list[Json]:
        return [line for line in self.lines if "message_id" in line]

    @property
    def notes(self) -> list[str]:
        return [name for line in self.lines if "message_id" not in line for name in line]

    @property
    def cursors(self) -> list[str]:
        """Where to go on after each line that says so."""
        said = [line if "message_id" in line else next(iter(line.values())) for line in self.lines]
        return [entry["cursor"] for entry in said if "cursor" in entry]
