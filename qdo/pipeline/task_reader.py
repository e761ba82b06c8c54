"""Reading spans from a server, to the end or with an error.

It never silently reads less.

An answer that breaks off is continued behind the last message that came, since spans join (G5). A message that existed at
planning time ends each span. If that message does not come, it is gone, and others may be gone with it.
"""

from __future__ import annotations

import gc
import logging
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, Literal, NamedTuple, Self

import requests

from qdo.client import Client, Message, SpanCounts
from qdo.client.wire import cursor_at
from qdo.pipeline.checkpoint import QueueOffset
from qdo.pipeline.options import Reach, ReadOptions, Subscription
from qdo.pipeline.rows import Rows, last_id
from qdo.pipeline.spans import Part, until_text
from queuey.errors import (
    BrokenStream,
    CursorLost,
    DataLost,
    Forbidden,
    NotAcceptable,
    QueueNotFound,
    ServerUnreachable,
    StorageUnavailable,
)
from queuey.ids import EPOCH_TICKS, MessageId, parse_timestamp

log = logging.getLogger("qdo.pipeline")

_ALIVE_SECONDS = 5.0
_FIRST_PAUSE_SECONDS, _LAST_PAUSE_SECONDS = 0.1, 5.0
"""Between looks at several servers none of which answers: as long as a client pauses between repeats of a request."""
_BEHIND_SECONDS = 0.1
"""Between looks at a server whose watermark is behind that of the server that was asked for the plan."""
_AGAIN = (BrokenStream, ServerUnreachable, StorageUnavailable)
JSON_ROWS = 4_000


def connect(reach: Reach) -> Client:
    """A client of the first server that answers. A single server is not tried before.

    :raises ServerUnreachable: none of several servers answers for as long as the retries take.
    """
    url = reach.urls[0] if len(reach.urls) == 1 else _first_alive(reach)
    return Client(
        url, reach.application, timeout_seconds=reach.timeout_seconds, retries=reach.retries, **_secret(reach)
    )


def _first_alive(reach: Reach) -> str:
    for failures in range(reach.retries + 1):
        if failures:
            time.sleep(min(_FIRST_PAUSE_SECONDS * 2.0 ** (failures - 1), _LAST_PAUSE_SECONDS))
        found = next((url for url in reach.urls if _alive(url)), None)
        if found is not None:
            return found
    raise ServerUnreachable(f"no server answers at {', '.join(reach.urls)}")


def _secret(reach: Reach) -> dict[str, Any]:
    """A token has three parts with dots between them, and begins with a JSON object in Base64.

    A key that somebody has chosen may have dots as well.
    """
    secret = reach.secret
    is_token = secret.startswith("eyJ") and secret.count(".") == 2
    return {} if not secret else {"token" if is_token else "key": secret}


def _alive(url: str) -> bool:
    try:
        return requests.get(f"{url.rstrip('/')}/__lbheartbeat__", timeout=_ALIVE_SECONDS).ok
    except requests.RequestException:
        return False


@contextmanager
def doing(what: str) -> Iterator[None]:
    """Say in a refusal what was refused: the server's words are the same for every queue."""
    try:
        yield
    except Forbidden as error:
        raise Forbidden(f"{what}: {error}") from error


def subscribed(client: Client, subscription: Subscription) -> Sequence[str]:
    """Names of queues: those that match the pattern, or those that are named.

    A named queue need not exist.
    """
    if subscription.pattern is None:
        return subscription.names
    with doing(f"a pattern needs the list of queues of {client.application}"):
        return fitting((queue.name for queue in client.queues()), subscription)


def fitting(names: Iterable[str], subscription: Subscription) -> Sequence[str]:
    """The names that match the pattern."""
    wanted = re.compile(subscription.pattern or "")
    return [name for name in names if wanted.fullmatch(name)]


class Counting(NamedTuple):
    """How far a survey counts the messages of a partition."""

    most: int
    step: int | None = None
    """Also ask for the id of every ``step``-th message."""


def survey(
    client: Client,
    queue: str,
    behind: QueueOffset | None = None,
    *,
    partitions: Sequence[int] | Literal["named", "all"] = "named",
    upto: MessageId | None = None,
    counting: Counting | None = None,
) -> SpanCounts:
    """What lies behind an offset, up to ``upto`` or the watermark.

    :param behind: where partitions of this incarnation begin; None for the beginning of all.
    :param partitions: those that the offset names; all, the others from their beginning; or these alone. Without an offset
        none is named, and all count.
    :param counting: None counts no messages.
    """
    alone = None if isinstance(partitions, str) else partitions
    where: dict[str, Any] = {"partitions": "all" if alone is None else alone}
    if behind is not None:
        ids = behind.ids if alone is None else {number: behind.at(number) for number in alone}
        where = {"cursor": cursor_at(behind.incarnation, ids, every=partitions == "all")}
    count, step = counting or (None, None)
    until = until_text(upto) if upto is not None else None
    with doing(f"reading queue {queue}"):
        return client.survey(queue, until=until, count=count, step=step, **where)


class SpanReader:
    """Reads parts in a task."""

    def __init__(self, reach: Reach, rows: Rows, *, fail_on_data_loss: bool, by_json: bool) -> None:
        self._reach = reach
        self._rows = rows
        self._fails = fail_on_data_loss
        self._by_json = by_json

    @classmethod
    def of(cls, options: ReadOptions, rows: Rows) -> Self:
        return cls(options.reach, rows, fail_on_data_loss=options.fail_on_data_loss, by_json=options.by_json)

    def batches(self, parts: Sequence[Part]) -> Iterator[Any]:
        """Spark's batches, one part after the other.

        :raises DataLost: messages are gone, unless ``failOnDataLoss`` is false.
        :raises QueueyError: the server refuses, or no server answers for as long as the retries take.
        """
        return (batch for _, batch in self.by_part(parts))

    def by_part(self, parts: Sequence[Part]) -> Iterator[tuple[Part, Any]]:
        """The same batches, each with its part."""
        _quiet_collector()
        with connect(self._reach) as client:
            for part in parts:
                try:
                    with doing(f"reading queue {part.queue}"):
                        for batch in self._rows.batches(self._sent(client, part), part.queue, part.partition):
                            yield part, batch
                except (CursorLost, QueueNotFound) as error:
                    self._lost(part, f"the queue {part.queue} was deleted, or made anew: {error}", error)

    def _sent(self, client: Client, part: Part) -> Iterator[Any]:
        """The server's batches of a span. Each message comes once."""
        place, rows, failures, behind = part.after, 0, 0, 0.0
        while place < part.upto:
            try:
                with self._stream(client, part, place) as stream:
                    for batch in stream:
                        place, rows, failures = MessageId.from_bytes(last_id(batch)), rows + batch.num_rows, 0
                        yield batch
                if stream.end.more or place == part.upto:
                    continue
                if not _is_before(stream.end.watermark, part.upto):
                    break
            except NotAcceptable:
                if self._by_json:
                    raise
                log.warning("%s has no Arrow: reading by JSON", client.application)
                self._by_json = True
            except _AGAIN:
                failures += 1
                if failures > self._reach.retries:
                    raise
            else:
                behind = self._waited(client, behind)
        self._check(part, place, rows)

    def _waited(self, client: Client, seconds: float) -> float:
        """Wait a moment for a server that is behind the plan.

        :param seconds: that it was waited for before.
        :returns: the same and this moment.
        :raises StorageUnavailable: that is longer than a request may take.
        """
        if seconds >= self._reach.timeout_seconds:
            raise StorageUnavailable(
                f"{client.url} does not show what another server showed at planning: do their clocks differ?"
            )
        time.sleep(_BEHIND_SECONDS)
        return seconds + _BEHIND_SECONDS

    def _stream(self, client: Client, part: Part, place: MessageId) -> Any:
        how: dict[str, Any] = {
            "cursor": cursor_at(part.incarnation, {part.partition: place}),
            "until": part.upto.hex,
        }
        if self._by_json:
            names = [name for name in self._rows.sent if name != "id"]
            return _JsonBatches(client.stream_ndjson(part.queue, columns=names, **how), self._rows.sent)
        return client.read_arrow(part.queue, columns=self._rows.sent, **how)

    def _check(self, part: Part, place: MessageId, rows: int) -> None:
        # More than were counted: some were stored by their ids meanwhile, and none is gone for that.
        missing = None if part.messages is None else max(0, part.messages - rows)
        if place == part.upto and not missing:
            return
        many = "messages" if missing is None else f"{missing} of {part.messages} messages"
        self._lost(
            part,
            f"{many} of queue {part.queue}, partition {part.partition} expired or were deleted before they were read",
        )

    def _lost(self, part: Part, what: str, cause: Exception | None = None) -> None:
        where = f"{what} (after {part.after.hex}, up to {part.upto.hex})"
        if self._fails:
            raise DataLost(f"{where}: failOnDataLoss=false goes on without them") from cause
        log.warning("%s: going on without them, as failOnDataLoss=false says", where)


class _JsonBatches:
    """Messages from JSON lines, in batches such as Arrow would have brought."""

    def __init__(self, stream: Any, sent: Sequence[str]) -> None:
        self._stream = stream
        self._sent = sent

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()

    @property
    def end(self) -> Any:
        return self._stream.end

    def __iter__(self) -> Iterator[Any]:
        held: list[Message] = []
        broken: BrokenStream | None = None
        try:
            for message in self._stream:
                held.append(message)
                if len(held) == JSON_ROWS:
                    yield self._batch(held)
                    held = []
        except BrokenStream as error:
            broken = error
        if held:
            yield self._batch(held)  # messages before the break are good, and are not requested again
        if broken is not None:
            raise broken

    def _batch(self, messages: Sequence[Any]) -> Any:
        import pyarrow as pa

        made = {
            "id": lambda: pa.array([message.id.bytes for message in messages], pa.binary(16)),
            "body": lambda: pa.array([message.body for message in messages], pa.binary()),
            "content_type": lambda: pa.array([message.content_type for message in messages], pa.string()),
            "key": lambda: pa.array([message.key for message in messages], pa.string()),
            "expires": lambda: pa.array(
                [(parse_timestamp(message.expires) - EPOCH_TICKS) // 10 for message in messages], pa.int64()
            ).cast(pa.timestamp("us", tz="UTC")),
            "headers": lambda: pa.array(
                [[*message.headers.items()] or None for message in messages], pa.map_(pa.string(), pa.binary())
            ),
        }
        return pa.record_batch([made[name]() for name in self._sent], names=list(self._sent))


def _is_before(watermark: str, upto: MessageId) -> bool:
    """Whether a server does not show yet what another one showed at planning.

    Their clocks differ a little.
    """
    return parse_timestamp(watermark) < upto.ticks


@cache
def _quiet_collector() -> None:
    """Once in a process: nothing that was imported is ever garbage.

    Spark's daemon collects after each task, for 35 ms.
    """
    gc.collect()
    gc.freeze()
