"""One receiver: takes messages, works on them, settles them, and writes down what it got."""

from __future__ import annotations

import random
import threading
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from qdo.bench.bodies import NO_KEY, MessageName, named_by
from qdo.bench.clock import MILLISECOND, SECOND
from qdo.bench.drivers import Delivered, LoopConsumer, MeasuredSystem
from qdo.bench.ending import most_failures, waits_for_failed
from qdo.bench.pace import Sleep
from qdo.bench.records import CORRUPT, FAILED, FOREIGN, ReceivedRow
from qdo.bench.workload import Workload
from queuey.errors import QueueyError

PAUSE_MS = 5
"""Of a receiver that serves several consumers, none of which got anything."""
TROUBLE_PAUSE_MS = 50


_BLOCK_BITS = 10


class Distinct:
    """How many different messages the receivers of a process have got in each view: it says when all are there.

    The numbers of a stream are kept in blocks, as whole numbers with a bit for each: a million streams of one message take
    some 100 bytes each.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: dict[int, int] = {}
        self.count = 0

    def note(self, view: int, stream: int, number: int) -> None:
        block = (view << 32 | stream) << 32 | number >> _BLOCK_BITS
        bit = 1 << (number & (1 << _BLOCK_BITS) - 1)
        with self._lock:
            seen = self._seen.get(block, 0)
            if not seen & bit:
                self._seen[block] = seen | bit
                self.count += 1

    def has(self, view: int, stream: int, number: int) -> bool:
        block = (view << 32 | stream) << 32 | number >> _BLOCK_BITS
        return bool(self._seen.get(block, 0) & 1 << (number & (1 << _BLOCK_BITS) - 1))


class OpenMessages:
    """The messages that the receivers of a process have got, have not settled, and must get again. Receivers of one view are
    in one process.
    """

    def __init__(self, workload: Workload) -> None:
        self._most = most_failures(workload)
        self._waits_for_failed = waits_for_failed(workload)
        self._lock = threading.Lock()
        self._tries: dict[tuple[int, int, int], int] = {}
        self._closed = Distinct()
        """Settled, or perhaps, or given up."""
        self.moves = 0
        """Receipts of open messages."""

    @property
    def count(self) -> int:
        return len(self._tries)

    def note(self, row: ReceivedRow) -> None:
        """A receipt, when its receiver is done with it."""
        name = row.subscription, row.stream, row.number
        with self._lock:
            if self._closed.has(*name):
                return
            tries = self._tries.get(name, 0) + 1
            is_left = bool(row.flags & FAILED) and not self._waits_for_failed
            if row.settling or is_left or (self._most and tries >= self._most):
                self._tries.pop(name, None)
                self._closed.note(*name)
            else:
                self._tries[name] = tries
                self.moves += 1


class InOrder:
    """Writes what several receivers got by the moments of its arrival, whenever each is done with it.

    So the rows of a file are in the order of time, though some are settled sooner than others.
    """

    def __init__(self, write: Callable[[ReceivedRow], None]) -> None:
        self._write = write
        self._open: deque[list[ReceivedRow]] = deque()
        """What arrived, in that order; empty until its receiver is done with it."""

    def arrived(self) -> list[ReceivedRow]:
        """A place for what arrived now."""
        place: list[ReceivedRow] = []
        self._open.append(place)
        return place

    def done(self, place: list[ReceivedRow], rows: Sequence[ReceivedRow]) -> None:
        """Write them, or hold them back while somebody is at work on what arrived before.

        :param rows: one at least.
        """
        place += rows
        while self._open and self._open[0]:
            for row in self._open.popleft():
                self._write(row)


@dataclass
class ReceiverContext:
    """What the receivers of one thread have in common."""

    target: MeasuredSystem
    distinct: Distinct
    unsettled: OpenMessages
    sleep: Sleep
    refusals: Counter[str] = field(default_factory=Counter)
    answers: int = 0
    """With messages or without."""
    unanswered: Counter[int] = field(default_factory=Counter)
    """Receives without an answer, by the number of their subscription among those of all queues."""

    async def note(self, error: QueueyError) -> None:
        """Write a refusal down, and pause: what is away is not asked without end."""
        self.refusals[f"{error.code}: {error}"[:200]] += 1
        await self.sleep(self.target.clock.now() + TROUBLE_PAUSE_MS * MILLISECOND)


class LoadReceiver:
    """One consumer of one view. There may be a million of them."""

    __slots__ = ("_chance", "_consumer", "_context", "_holds", "_idle_until", "_number", "_own", "_view")

    def __init__(self, context: ReceiverContext, consumer: LoopConsumer, view: int, number: int) -> None:
        """:param view: number of the subscription.
        :param number: of the consumer in the whole run.
        """
        workload = context.target.workload
        self._context = context
        self._consumer = consumer
        self._view = view
        self._number = number
        self._own = own = workload.queuey.receiving
        self._holds = number % workload.receivers_of_view < own.holders
        self._chance = random.Random(f"{workload.queuey.seed}/receivers/{number}") if own.crash else None  # noqa: S311 -- repeatable
        self._idle_until = 0

    @property
    def is_idle(self) -> bool:
        """It keeps what it has, and asks for nothing meanwhile."""
        return self._idle_until > 0 and self._context.target.clock.now() < self._idle_until

    async def step(self, wait: float, out: InOrder) -> bool:
        """Receive once; whether anything came."""
        context = self._context
        clock = context.target.clock
        asked = clock.now()
        try:
            handed = await self._consumer.receive(wait)
        except QueueyError as error:
            context.unanswered[self._number // context.target.workload.receivers_of_view] += 1
            await context.note(error)
            return False
        context.answers += 1
        if not handed:
            return False
        arrived, place = clock.now(), out.arrived()
        rows = [self._row(one, asked, arrived) for one in handed]
        await self._settle(handed, rows)
        out.done(place, rows)
        for row in rows:
            if not row.flags & (CORRUPT | FOREIGN):
                if row.held_until:
                    context.unsettled.note(row)
                context.distinct.note(row.subscription, row.stream, row.number)
        return True

    def _row(self, one: Delivered, asked: int, arrived: int) -> ReceivedRow:
        named = named_by(self._context.target.run, one.body)
        held = asked + int(self._own.visibility * SECOND) if one.token is not None else 0
        flags = 0
        if not isinstance(named, MessageName):
            flags = FOREIGN if named is None else CORRUPT
            named = MessageName(0, 0, NO_KEY, arrived, arrived, arrived)
        stream, number, key, due, sent, not_before = named
        return ReceivedRow(
            self._view, self._number, stream, number, key, flags, due, sent, not_before, asked, arrived, held, 0, 0
        )

    async def _settle(self, handed: Sequence[Delivered], rows: list[ReceivedRow]) -> None:
        """Work, then acknowledge or give back; ``rows`` say what became of each."""
        if handed[0].token is None:
            await self._work(len(rows))
            return
        context = self._context
        clock = context.target.clock
        if self._holds:
            self._idle_until = rows[0].held_until
            return
        if self._chance is not None and self._chance.random() < self._own.crash:
            return
        poison = [at for at, row in enumerate(rows) if context.target.workload.is_poison(row.number)]
        good = [at for at in range(len(rows)) if at not in poison]
        await self._work(len(rows))
        try:
            if poison:
                before = clock.now()
                for at in poison:
                    held_until = min(rows[at].held_until, before)
                    rows[at] = rows[at]._replace(flags=rows[at].flags | FAILED, held_until=held_until)
                await self._consumer.fail([handed[at].token for at in poison])
            before = clock.now()
            for at in good:
                rows[at] = rows[at]._replace(settling=before)
            held = await self._consumer.acknowledge([handed[at].token for at in good]) if good else []
        except QueueyError as error:
            await context.note(error)
            return
        now = clock.now()
        for at, was_held in zip(good, held, strict=True):
            rows[at] = rows[at]._replace(settled=now) if was_held else rows[at]._replace(settling=0)

    async def _work(self, messages: int) -> None:
        if self._own.work:
            clock = self._context.target.clock
            await self._context.sleep(clock.now() + int(self._own.work * messages * SECOND))

    def close(self) -> None:
        self._consumer.close()


async def run_receivers(
    receivers: Sequence[LoadReceiver], context: ReceiverContext, out: InOrder, is_over: Callable[[], bool]
) -> None:
    """Serve these in turn until the run is over, in a thread or in a task of an event loop."""
    clock = context.target.clock
    wait = context.target.workload.queuey.receiving.wait if len(receivers) == 1 else 0.0
    while not is_over():
        has_come = has_waited = False
        for receiver in receivers:
            if is_over():
                break
            if not receiver.is_idle:
                has_come |= await receiver.step(wait, out)
                has_waited = wait > 0
        if not has_come and not has_waited:
            await context.sleep(clock.now() + PAUSE_MS * MILLISECOND)
    for receiver in receivers:
        receiver.close()
