"""One sender: sends what is due, when it is due, and writes down when it did."""

from __future__ import annotations

import random
import sys
from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from qdo.bench.bodies import NO_KEY, MessageName, Payload, body_of, payloads
from qdo.bench.clock import MILLISECOND, SECOND
from qdo.bench.drivers import MeasuredSystem, OutgoingMessage, Producer
from qdo.bench.records import REFUSED, STORED, UNKNOWN, SentRow
from qdo.bench.workload import Workload
from queuey.errors import ConfigurationError, OutcomeUnknown, QueueyError

MOST_PAYLOAD_BYTES = 2**30
"""Of each process that sends."""


@dataclass(frozen=True)
class LoadShare:
    """Which of the senders, or receivers, one is."""

    number: int
    of: int

    def share(self, count: int) -> range:
        """Its part of this number of things."""
        return range(self.number, count, self.of)


class LoadSender:
    """Sends for some of the producers, one request at a time, so that the order of each producer is known."""

    def __init__(
        self, target: MeasuredSystem, producer: Producer, place: LoadShare, texts: Sequence[Sequence[Payload]]
    ) -> None:
        workload = target.workload
        self._target = target
        self._producer = producer
        self._streams = [*place.share(workload.producers)]
        self._numbers = Counter[int]()
        self._sent = 0
        """Of all its producers."""
        self._turn = 0
        self._batch = workload.queuey.batch
        self._most = workload.queuey.messages or sys.maxsize
        """Of each producer."""
        self._chance = random.Random(f"{workload.queuey.seed}/bodies/{place.number}")  # noqa: S311 -- repeatable
        self._texts = texts
        self._weights = [size.weight for size in workload.sizes]
        self.stored = 0
        """Messages that were acknowledged."""
        self.unknown = 0
        """Messages whose sending had no answer."""
        self.unsent = 0
        """Requests that were due, and for which the time of the run was over."""
        self.refusals = Counter[str]()

    def run(
        self, start: int, due: array[int] | None, write: Callable[[SentRow], None], is_over: Callable[[], bool]
    ) -> None:
        """Send all that is due, as long as the load and the time to drain last: a system that is away, or far too slow, would
        never come to the end.

        :param due: nanoseconds from the start, rising; None is a closed loop, for the time of the workload.
        :param is_over: ends the run early.
        """
        own = self._target.workload.queuey
        clock = self._target.clock
        free = start
        clock.sleep_until(start)
        if due is None:
            end = start + int(self._target.workload.seconds * SECOND)
            most = own.messages * len(self._streams) if own.messages else None
            while not is_over() and (now := clock.now()) < end and (most is None or self._sent < most):
                free = self._send(now, free, write)
            return
        end = start + int((self._target.workload.seconds + own.drain) * SECOND)
        for at, offset in enumerate(due):
            if is_over():
                return
            if clock.now() > end:
                self.unsent = len(due) - at
                return
            moment = start + offset
            clock.sleep_until(moment)
            free = self._send(moment, free, write)

    def _send(self, due: int, free: int, write: Callable[[SentRow], None]) -> int:
        """Send one request, and say when it was over."""
        clock = self._target.clock
        stream = self._streams[self._turn]
        self._turn = (self._turn + 1) % len(self._streams)
        first = self._numbers[stream]
        batch = min(self._batch, self._most - first)
        begun = clock.now()
        messages = [self._message(stream, first + at, due, begun) for at in range(batch)]
        outcome = STORED
        try:
            self._producer.send(self._target.workload.topic_of(stream), messages)
            self.stored += batch
        except OutcomeUnknown as error:
            outcome = UNKNOWN
            self.unknown += batch
            self.refusals[f"{error.code}: {error}"[:200]] += 1
        except QueueyError as error:
            outcome = REFUSED
            self.refusals[f"{error.code}: {error}"[:200]] += 1
        ended = clock.now()
        write(SentRow(stream, first, batch, outcome, due, free, begun, ended))
        self._numbers[stream] = first + batch
        self._sent += batch
        if outcome == REFUSED:
            # Nothing keeps a refused sender busy: without a pause it would do nothing but ask again.
            clock.sleep_until(ended + 10 * MILLISECOND)
            return clock.now()
        return ended

    def _message(self, stream: int, number: int, due: int, now: int) -> OutgoingMessage:
        workload = self._target.workload
        key = key_of(workload, number, self._chance)
        delay = workload.queuey.delay
        named = MessageName(stream, number, key, due, now, now + int(delay * SECOND))
        some = self._texts[0] if len(self._texts) == 1 else self._chance.choices(self._texts, self._weights)[0]
        body = body_of(self._target.run, named, some[number % len(some)])
        return OutgoingMessage(body, None if key == NO_KEY else f"{stream}-{key}", delay)


def key_of(workload: Workload, number: int, chance: random.Random) -> int:
    """The number of a message's key among those of its producer."""
    keys = workload.keys
    if keys is None:
        return NO_KEY
    if keys.noisy and keys.count > 1:
        return 0 if chance.random() < keys.noisy else 1 + number % (keys.count - 1)
    return number % keys.count


def _pool_of(workload: Workload) -> int:
    """Payloads of each size."""
    return max(1, workload.randomized_payload_pool_size) if workload.use_randomized_payloads else 1


def demand_room_for_payloads(workload: Workload) -> None:
    """:raises ConfigurationError: the payloads, which are drawn beforehand, do not fit."""
    wanted = _pool_of(workload) * sum({size.bytes for size in workload.sizes})
    if wanted > MOST_PAYLOAD_BYTES:
        raise ConfigurationError(
            f"workload {workload.name}: payloads of all sizes are {wanted:,} bytes, at most {MOST_PAYLOAD_BYTES:,}: lower "
            "randomizedPayloadPoolSize"
        )


def texts_of(workload: Workload) -> list[list[Payload]]:
    """Payloads for each of the workload's sizes."""
    share = workload.random_bytes_ratio if workload.use_randomized_payloads else 0.0
    sizes = [size.bytes for size in workload.sizes]
    made = payloads(sizes, random_share=share, pool=_pool_of(workload), seed=workload.queuey.seed)
    return [made[size.bytes] for size in workload.sizes]
