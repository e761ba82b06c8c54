"""One receiver: takes messages, works on them, settles them, and writes down what it got."""

from __future__ import annotations

import random
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence

from qdo.bench.bodies import NO_KEY, MessageName, named_by
from qdo.bench.clock import MILLISECOND, SECOND
from qdo.bench.drivers import Consumer, Delivered, MeasuredSystem
from qdo.bench.records import CORRUPT, FAILED, FOREIGN, ReceivedRow
from queuey.errors import QueueyError

PAUSE_MS = 5
"""Of a receiver that serves several consumers, none of which got anything."""
TROUBLE_PAUSE_MS = 50


class Distinct:
    """How many different messages the receivers of one view of a topic have got: it says when all are there."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: defaultdict[int, bytearray] = defaultdict(bytearray)
        self.count = 0

    def note(self, stream: int, number: int) -> None:
        at, bit = number >> 3, 1 << (number & 7)
        with self._lock:
            seen = self._seen[stream]
            if at >= len(seen):
                seen.extend(bytes(at + 64 - len(seen)))
            if not seen[at] & bit:
                seen[at] |= bit
                self.count += 1


class LoadReceiver:
    """One consumer of one view."""

    def __init__(self, target: MeasuredSystem, consumer: Consumer, view: int, number: int, distinct: Distinct) -> None:
        """:param view: number of the subscription.
        :param number: of the consumer in the whole run.
        """
        own = target.workload.queuey
        self._target = target
        self._consumer = consumer
        self._view = view
        self._number = number
        self._distinct = distinct
        self._own = own.receiving
        self._holds = number % target.workload.receivers_of_view < own.receiving.holders
        self._chance = random.Random(f"{own.seed}/receivers/{number}")  # noqa: S311 -- repeatable
        self._idle_until = 0
        self.refusals = Counter[str]()
        self.answers = 0
        """With messages or without."""

    @property
    def is_idle(self) -> bool:
        """It keeps what it has, and asks for nothing meanwhile."""
        return self._target.clock.now() < self._idle_until

    def step(self, wait: float, write: Callable[[ReceivedRow], None]) -> bool:
        """Receive once; whether anything came."""
        clock = self._target.clock
        asked = clock.now()
        try:
            handed = self._consumer.receive(wait)
        except QueueyError as error:
            self._note(error)
            return False
        self.answers += 1
        if not handed:
            return False
        arrived = clock.now()
        rows = [self._row(one, asked, arrived) for one in handed]
        self._settle(handed, rows)
        for row in rows:
            write(row)
            if not row.flags & (CORRUPT | FOREIGN):
                self._distinct.note(row.stream, row.number)
        return True

    def _row(self, one: Delivered, asked: int, arrived: int) -> ReceivedRow:
        named = named_by(self._target.run, one.body)
        held = asked + int(self._own.visibility * SECOND) if one.token is not None else 0
        flags = 0
        if not isinstance(named, MessageName):
            flags = FOREIGN if named is None else CORRUPT
            named = MessageName(0, 0, NO_KEY, arrived, arrived, arrived)
        stream, number, key, due, sent, not_before = named
        return ReceivedRow(
            self._view, self._number, stream, number, key, flags, due, sent, not_before, asked, arrived, held, 0
        )

    def _settle(self, handed: Sequence[Delivered], rows: list[ReceivedRow]) -> None:
        """Work, then acknowledge or give back; ``rows`` say what became of each."""
        if handed[0].token is None:
            self._work(len(rows))
            return
        clock = self._target.clock
        if self._holds:
            self._idle_until = rows[0].held_until
            return
        if self._own.crash and self._chance.random() < self._own.crash:
            return
        poison = [at for at, row in enumerate(rows) if self._target.workload.is_poison(row.number)]
        good = [at for at in range(len(rows)) if at not in poison]
        self._work(len(rows))
        try:
            if poison:
                before = clock.now()
                for at in poison:
                    rows[at] = rows[at]._replace(flags=rows[at].flags | FAILED, held_until=before)
                self._consumer.fail([handed[at].token for at in poison])
            held = self._consumer.acknowledge([handed[at].token for at in good]) if good else []
        except QueueyError as error:
            self._note(error)
            return
        now = clock.now()
        for at, was_held in zip(good, held, strict=True):
            if was_held:
                rows[at] = rows[at]._replace(settled=now)

    def _work(self, messages: int) -> None:
        if self._own.work:
            clock = self._target.clock
            clock.sleep_until(clock.now() + int(self._own.work * messages * SECOND))

    def _note(self, error: QueueyError) -> None:
        self.refusals[f"{error.code}: {error}"[:200]] += 1
        clock = self._target.clock
        clock.sleep_until(clock.now() + TROUBLE_PAUSE_MS * MILLISECOND)

    def close(self) -> None:
        self._consumer.close()


def run_receivers(
    receivers: Sequence[LoadReceiver],
    target: MeasuredSystem,
    write: Callable[[ReceivedRow], None],
    is_over: Callable[[], bool],
) -> None:
    """Serve these in turn, in one thread, until the run is over."""
    wait = target.workload.queuey.receiving.wait if len(receivers) == 1 else 0.0
    clock = target.clock
    while not is_over():
        came = [receiver.step(wait, write) for receiver in receivers if not receiver.is_idle]
        if not any(came) and not (came and wait):
            clock.sleep_until(clock.now() + PAUSE_MS * MILLISECOND)
    for receiver in receivers:
        receiver.close()
