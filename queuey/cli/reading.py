"""The messages of queues, in order of time over all of their partitions."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from queuey.cli.kept_places import KeptPlaces, ReadQueue
from queuey.errors import InvalidParameter, QueueNotFound
from queuey.ids import MessageId, parse_timestamp
from queuey.terminal.output import NothingFound, many, say

if TYPE_CHECKING:
    from qdo.client import Client, Message

__all__ = ["QueueMessage", "QueueReader", "QueueSelection", "queues_to_read"]

PAGE = 1000
"""Messages asked for at once, over all partitions."""
MOST_QUEUES = 1000
"""Each is read by itself."""


class QueueMessage(NamedTuple):
    """A message and its queue."""

    queue: str
    message: Message


@dataclass(frozen=True)
class QueueSelection:
    """What is to be read."""

    queues: Sequence[str]
    """Names, and patterns with ``*``, ``?`` or ``[``."""
    partitions: Sequence[int] | None = None
    """None for all."""
    since: str | None = None
    until: str | None = None

    @property
    def has_several(self) -> bool:
        """Whether messages of more than one queue may come."""
        return len(self.queues) > 1 or _is_pattern(self.queues[0])


def _is_pattern(text: str) -> bool:
    from qdo.groups.subscription import is_pattern

    return is_pattern(text)


def queues_to_read(client: Client, wanted: QueueSelection) -> list[ReadQueue]:
    """The queues that exist now, each once, in the order named.

    :raises NothingFound: a pattern fits no queue.
    :raises QueueNotFound: a name is none of a queue.
    :raises InvalidParameter: a queue lacks a partition, or they are too many.
    """
    names: dict[str, None] = {}
    for text in wanted.queues:
        found = _fitting(client, text) if _is_pattern(text) else [text]
        if not found:
            raise NothingFound(f"no queue of application {client.application} fits {text}")
        names |= dict.fromkeys(found)
        if len(names) > MOST_QUEUES:
            raise InvalidParameter(problems={"queue": f"these are more than {MOST_QUEUES} queues: name fewer"})
    return [_read_queue(client, name, wanted) for name in names]


def _fitting(client: Client, pattern: str) -> list[str]:
    from qdo.groups.subscription import each_queue

    return [queue.name for queue in islice(each_queue(client, [pattern]), MOST_QUEUES + 1)]


def _read_queue(client: Client, name: str, wanted: QueueSelection) -> ReadQueue:
    try:
        found = client.survey(name, partitions=[1])
    except QueueNotFound as error:
        raise QueueNotFound(f"no queue is named {name!r}") from error
    if beyond := [number for number in wanted.partitions or () if number > found.partitions]:
        has = many(found.partitions, "partition")
        raise InvalidParameter(problems={"partitions": f"queue {name} has {has}: there is no {beyond[0]}"})
    numbers = wanted.partitions or range(1, found.partitions + 1)
    return ReadQueue(name, found.incarnation, wanted.until or found.watermark, numbers, wanted.since)


class QueueReader:
    """Reads queues in pages, in order of time over all of their partitions."""

    def __init__(
        self,
        client: Client,
        queues: Sequence[ReadQueue],
        kept: KeptPlaces | None = None,
        *,
        follows_all: bool = True,
    ) -> None:
        """:param follows_all: partitions that a queue gets later are followed, too."""
        self._client = client
        self._queues = queues
        self._by_name = {queue.name: queue for queue in queues}
        self._kept = kept
        self._follows_all = follows_all
        if kept is not None:
            for queue in queues:
                kept.begin(queue)
            kept.keep(queues)

    def past(
        self, *, first: int | None = None, last: int | None = None, newest_first: bool = False
    ) -> Iterator[Sequence[QueueMessage]]:
        """What is there, up to the end of each queue.

        :param first, last: only this many from the beginning, or from the end.
        """
        if last is not None:
            newest = list(islice(self._merged(newest_first=True), last))
            yield newest if newest_first else newest[::-1]
            return
        messages = islice(self._merged(newest_first=newest_first), first)
        while page := list(islice(messages, PAGE)):
            yield page

    def following(self, last: int | None = None) -> Iterator[Sequence[QueueMessage]]:
        """What is there, or the last of it, and what comes."""
        for page in self.past(last=last):
            yield page
            self._pass(page)
        for queue in self._queues if last is not None else ():
            behind = MessageId.last_of(parse_timestamp(queue.end))
            queue.places = {number: max(queue.place(number), behind) for number in queue.numbers}
        for came in self._client.follow(**self._where()):
            if came.refused is not None:
                say(f"{came.queue} is not read any more: {came.refused}")
            yield sorted((QueueMessage(came.queue or self._queues[0].name, one) for one in came.messages), key=_id_of)

    def taken(self, page: Sequence[QueueMessage]) -> None:
        """These messages were taken, and all that this gave before them."""
        self._pass(page)
        if self._kept is not None and page:
            self._kept.keep([self._by_name[name] for name in {found.queue for found in page}])

    def _pass(self, page: Sequence[QueueMessage]) -> None:
        for queue, message in page:
            self._by_name[queue].places[message.partition] = message.id

    def _where(self) -> dict[str, Any]:
        """What :meth:`qdo.client.Client.follow` takes to go on from here."""
        from qdo.client.wire import cursor_at, cursor_of_several

        if len(self._queues) > 1:
            places = {queue.incarnation: _places(queue) for queue in self._queues}
            return {"queue": [queue.name for queue in self._queues], "cursor": cursor_of_several(places)}
        (queue,) = self._queues
        return {"queue": queue.name, "cursor": cursor_at(queue.incarnation, _places(queue), every=self._follows_all)}

    def _merged(self, *, newest_first: bool) -> Iterator[QueueMessage]:
        """One reader a partition, so that all together are in order of time."""
        parts = [(queue, number) for queue in self._queues for number in queue.numbers]
        limit = max(PAGE // len(parts), 10)
        readers = [self._read(queue, number, limit, newest_first=newest_first) for queue, number in parts]
        return heapq.merge(*readers, key=_id_of, reverse=newest_first)

    def _read(self, queue: ReadQueue, number: int, limit: int, *, newest_first: bool) -> Iterator[QueueMessage]:
        from qdo.client.wire import cursor_at

        where: dict[str, Any] = {"partitions": [number], "since": queue.since, "until": queue.end}
        if newest_first:
            where |= {"since": queue.end, "until": queue.since, "newest_first": True}
        elif number in queue.places:
            where = {"cursor": cursor_at(queue.incarnation, {number: queue.places[number]}), "until": queue.end}
        return _sorted(queue.name, self._client.pages(queue.name, limit=limit, **where), newest_first=newest_first)


def _places(queue: ReadQueue) -> dict[int, MessageId]:
    return {number: queue.place(number) for number in queue.numbers}


def _id_of(found: QueueMessage) -> MessageId:
    return found.message.id


def _sorted(queue: str, pages: Iterable[Any], *, newest_first: bool) -> Iterator[QueueMessage]:
    for page in pages:
        yield from sorted((QueueMessage(queue, message) for message in page.messages), key=_id_of, reverse=newest_first)
