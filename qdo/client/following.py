"""Following queues: messages as they come, through connections that break.

Every message brings the cursor that goes on right behind it. A connection may break, a server may stop or be killed, a
line may be cut: the next connection begins behind the last whole line. So no message is missed or comes twice.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from math import inf
from random import random
from typing import Any, Self

from qdo.client.endpoint import Endpoint
from qdo.client.given import check_seconds
from qdo.client.steps import Items, Listing, NoAnswer, Pause, Reply, Step, Steps
from qdo.client.streams import NDJSON, next_lines
from qdo.client.values import Message, Page
from queuey.errors import BrokenStream, InvalidParameter, QueueyError, error_classes

__all__ = ["FollowLimits", "FollowedPages", "Following"]

log = logging.getLogger(__name__)

SILENCE_SECONDS = 40.0
"""A server sends something at least every 30 seconds. A connection that is silent for longer than this is given up."""
FIRST_PAUSE_SECONDS, LAST_PAUSE_SECONDS = 0.2, 10.0
"""Pauses before another connection grow from the first to the last. Chance makes each up to half as long."""
UNREADABLE_TIMES = 5
"""If a line at one place cannot be read this many times, it is no accident of one connection."""

Json = dict[str, Any]


@dataclass(frozen=True)
class FollowLimits:
    """When to stop waiting for messages."""

    end_after_seconds: float | None = None
    """End then; None for never."""
    idle_seconds: float | None = None
    """Without messages, give a page without any each time; None for never."""

    def __post_init__(self) -> None:
        """:raises InvalidParameter: a limit is no number, or below 0, or the idle time is 0."""
        for name in ("end_after_seconds", "idle_seconds"):
            if (seconds := getattr(self, name)) is not None:
                check_seconds(name, seconds)
        if self.end_after_seconds is not None and not self.end_after_seconds >= 0:
            raise InvalidParameter(problems={"end_after_seconds": f"is {self.end_after_seconds}: expected 0 or more"})
        if self.idle_seconds is not None and not self.idle_seconds > 0:
            raise InvalidParameter(problems={"idle_seconds": f"is {self.idle_seconds}: expected more than 0"})


class Following:
    """Follows one queue or several without end. Use :meth:`pages` once."""

    def __init__(
        self,
        endpoint: Endpoint,
        path: tuple[str, ...],
        params: Mapping[str, str],
        limits: FollowLimits,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """:param params: of the first request. With ``queues`` they follow several."""
        self._now = now
        self._end = inf if limits.end_after_seconds is None else now() + limits.end_after_seconds
        self._idle_seconds = limits.idle_seconds or inf
        self._idle_at = now() + self._idle_seconds
        self._is_closed = False
        self._answer: Reply | None = None
        self._endpoint = endpoint
        self._path = path
        self._params = dict(params)
        self._several = "queues" in params
        self._pause_seconds = FIRST_PAUSE_SECONDS
        self._watermark = ""
        self._cursor = ""
        self._stuck_at = ""
        """The cursor behind which a line could not be read."""
        self._unread = 0
        """How many times in a row."""
        self._refused: set[str] = set()
        """Queues that are not read: each connection says so again."""

    def close(self) -> None:
        """Let :meth:`pages` end. It may run in another thread or task, or be interrupted by the caller: this takes no lock."""
        self._is_closed = True
        answer = self._answer
        if answer is not None:
            answer.interrupt()

    def pages(self) -> Listing[Page]:
        """Messages as they come. Messages that arrive together share a page. A page without messages says that none came.

        :raises BrokenStream: at one place, something comes again and again that is no line of a stream.
        :raises QueueyError: an error that waiting does not mend; before the first line, any error except a broken
            connection.
        """
        while not self._is_over():
            trouble: Exception
            try:
                with closing((yield from self._while_open(self._connect()))) as self._answer:
                    trouble = (yield from self._read(self._answer)) or BrokenStream(
                        "the answer ended without its end mark"
                    )
            except _ClosedMeanwhile:
                return
            except BrokenStream as error:
                if not self._cursor or self._is_stuck():
                    raise
                trouble = error
            except QueueyError as error:
                if not self._cursor or not error.retriable:
                    raise
                trouble = error
            finally:
                self._answer = None
            if self._is_over():
                return
            log.warning("still following %s: %s", self._params.get("queues", self._path[-1]), trouble)
            yield self._rest()
            if self._is_idle():
                yield Items([self._tick()])

    def _is_over(self) -> bool:
        return self._is_closed or self._now() >= self._end

    def _is_idle(self) -> bool:
        return self._now() >= self._idle_at

    def _tick(self) -> Page:
        self._idle_at = self._now() + self._idle_seconds
        return Page((), self._cursor, self._watermark, more=False)

    def _patience(self) -> float | None:
        """Seconds to wait for the next bytes; None for as long as the connection lasts."""
        first = min(self._end, self._idle_at)
        return None if first == inf else max(first - self._now(), 0)

    def _is_stuck(self) -> bool:
        """Whether the line behind this cursor cannot be read, ever.

        The server has sent it several times.
        """
        self._unread = self._unread + 1 if self._cursor == self._stuck_at else 1
        self._stuck_at = self._cursor
        return self._unread >= UNREADABLE_TIMES

    def _connect(self) -> Steps[Reply]:
        lasting = {name: self._params[name] for name in ("columns", "queues") if name in self._params}
        params = lasting | ({"cursor": self._cursor} if self._cursor else self._params)
        return self._endpoint.ask(
            "GET",
            *self._path,
            params={**params, "follow": "true"},
            headers={"Accept": NDJSON, "Accept-Encoding": "identity"},
            stream_seconds=SILENCE_SECONDS,
        )

    def _read(self, answer: Reply) -> Generator[Step | Items[Page], Any, NoAnswer | None]:
        """The pages of one connection. It returns what broke the connection off, or None at its end."""
        rest = b""
        while not self._is_over():
            came = yield from next_lines(answer, rest, self._patience())
            if not isinstance(came, tuple):
                return came
            lines, rest = came
            runs: list[_Run] = []
            trouble = self._take_all(lines, runs)
            self._pause_seconds = FIRST_PAUSE_SECONDS
            if runs:
                self._idle_at = self._now() + self._idle_seconds
                yield Items([run.page(self._watermark) for run in runs])
            elif self._is_idle():
                yield Items([self._tick()])
            if trouble is not None:
                raise trouble
        return None

    def _take_all(self, lines: Sequence[bytes], runs: list[_Run]) -> QueueyError | None:
        """Process lines up to one that ends the connection, and say why it does."""
        for line in lines:
            try:
                self._take(json.loads(line), runs)
            except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
                return BrokenStream("the server sent a line that does not belong in a stream")
            except QueueyError as error:
                return error
        return None

    def _take(self, entry: Json, runs: list[_Run]) -> None:
        """Process one line.

        :raises QueueyError: the line says that nothing more comes.
        """
        if "message_id" in entry:
            message, queue = Message.from_wire(entry), entry["queue"] if self._several else ""
            self._cursor = entry["cursor"]
            self._refused.discard(queue)
            if not runs or runs[-1].queue != queue or runs[-1].refused is not None:
                runs.append(_Run(queue))
            runs[-1].messages.append(message)
            runs[-1].cursor = self._cursor
            return
        ((name, said),) = entry.items()
        self._watermark = said.get("watermark", self._watermark)
        self._cursor = said.get("cursor", self._cursor)
        if "code" not in said:
            return
        error = error_classes().get(said["code"], QueueyError)(said["detail"])
        if not self._several or name == "end":
            raise error
        if said["queue"] not in self._refused:
            self._refused.add(said["queue"])
            runs.append(_Run(said["queue"], self._cursor, refused=error))

    def _while_open(self, steps: Steps[Reply]) -> Steps[Reply]:
        """The answer to a call, which is not sent again once this is closed.

        :raises _ClosedMeanwhile: there is no answer, and this is closed.
        """
        outcome: Any = None
        while True:
            try:
                step = steps.send(outcome)
            except StopIteration as end:
                found: Reply = end.value
                return found
            # A long pause is waited for in parts, so it ends soon after close.
            while isinstance(step, Pause) and step.seconds > LAST_PAUSE_SECONDS:
                yield Pause(LAST_PAUSE_SECONDS)
                if self._is_closed:
                    raise _ClosedMeanwhile
                step = Pause(step.seconds - LAST_PAUSE_SECONDS)
            outcome = yield step
            if self._is_closed and not (isinstance(outcome, Reply) and outcome.status < 300):
                raise _ClosedMeanwhile

    def _rest(self) -> Pause:
        seconds = self._pause_seconds * (1 - random() / 2)  # noqa: S311 - spreads, hides nothing
        pause = Pause(max(min(seconds, self._end - self._now()), 0))
        self._pause_seconds = min(self._pause_seconds * 2, LAST_PAUSE_SECONDS)
        return pause


class _ClosedMeanwhile(Exception):
    """The follower was closed while it made a connection."""


@dataclass(slots=True)
class _Run:
    """Messages of one queue that came together, or why a queue is not read."""

    queue: str
    cursor: str = ""
    messages: list[Message] = field(default_factory=list)
    refused: QueueyError | None = None

    def page(self, watermark: str) -> Page:
        return Page(tuple(self.messages), self.cursor, watermark, more=False, queue=self.queue, refused=self.refused)


class FollowedPages:
    """Pages of :meth:`qdo.client.Client.follow`, in a loop. As a context manager it closes itself."""

    def __init__(self, following: Following, each: Callable[[Listing[Page]], Iterator[Page]]) -> None:
        self._following = following
        self._pages = each(following.pages())

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Page:
        """:raises QueueyError: an error that waiting does not mend."""
        return next(self._pages)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the loop. Another thread may call it, and a signal handler."""
        self._following.close()
        # The thread that runs it ends it by itself.
        with suppress(ValueError):
            self._pages.close()  # type: ignore[attr-defined]  # it is a generator
