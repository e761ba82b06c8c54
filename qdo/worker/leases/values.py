"""What a worker holds under leases, and how that ends.

::

                  take             the job returns, raises or rejects
    ready ───────────────► running ──────────────────────────────────► ended ──► settled with the next request
      │                                                                  ▲
      └─ the worker ends, or the lease ran out before the job began ─────┘

"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from math import inf

from qdo.client.extending import MOST_RECEIPTS
from qdo.client.lease_groups import LeaseGroup
from qdo.client.lease_values import (
    Delivery,
    ExtendAll,
    Queues,
    Receive,
    Reject,
    Release,
    Settle,
    receipt_of,
)
from qdo.client.values import NewMessage
from qdo.worker.leases.turns import QueueTurns
from queuey.ids import unique_bytes

__all__ = [
    "Ended",
    "HeldMessage",
    "JobOutcome",
    "LeaseQueue",
    "LeaseRequest",
    "QueueSet",
    "Turn",
    "lease_until",
]

MOST_RESULTS, MOST_RESULT_BYTES, MOST_RESULT_QUEUES = 100, 1 << 20, 10
"""That one request appends, unless one job alone has more."""
MOST_TOGETHER = 100
"""Queues that one request names. So does the server bound it, and their partitions as well."""
MOST_NAMED = 3
"""Queues in a line of the log."""
MOST_REASON = 1000
"""Characters of a reason that go with a dead letter."""
KNOWN_SECONDS = 240.0
"""For which a repeat is the same request to the server for sure."""
LEAST_SECONDS = 1.0
"""Of a lease: with a shorter one of the group, extensions would be most of what a worker does."""
UNKNOWN_SECONDS = 10.0
"""Of leases whose length no answer has told yet. A heartbeat that comes too early harms nobody."""


class HeldMessage:
    """A message that this worker has, and how long its lease lasts."""

    __slots__ = ("arrived", "delivery", "queue", "receipt", "size", "until")

    def __init__(self, delivery: Delivery, queue: LeaseQueue, until: float, arrived: float) -> None:
        """:param until: elapsed time up to which nobody else has the message."""
        self.delivery = delivery
        self.receipt = receipt_of(delivery)
        self.queue = queue
        self.until = until
        self.arrived = arrived
        self.size = len(delivery.body)
        delivery.detach()

    @property
    def is_given_up(self) -> bool:
        """Whether one more failure is the last that the group allows, as far as that is known."""
        most = self.queue.max_failures
        return bool(most) and self.delivery.failures + 1 >= (most or 0)


def lease_until(held: Sequence[HeldMessage]) -> float:
    """When the first of these leases ends, as elapsed time."""
    return held[0].until if len(held) == 1 else min(one.until for one in held)


class Turn:
    """Calls of the job that one thread makes one after the other.

    Other threads may take calls away that have not begun: ``calls`` is safe for that.
    """

    __slots__ = ("began", "call_began", "calls", "current")

    def __init__(self, calls: Iterable[Sequence[HeldMessage]], began: float) -> None:
        self.calls = deque(calls)
        self.began = self.call_began = began
        self.current: Sequence[HeldMessage] = ()
        """The messages of the call under way."""

    def begin_next(self, now: float) -> bool:
        """Make the next call the current one, if there is one."""
        try:
            self.current = self.calls.popleft()
        except IndexError:
            self.current = ()
            return False
        self.call_began = now
        return True


class JobOutcome(Enum):
    """What became of messages."""

    DONE = "done"
    FAILED = "failed"
    """The job raised. The group decides when the message comes again, or gives it up."""
    REJECTED = "rejected"
    """The job said that no other attempt would end better."""
    GIVEN_BACK = "given back"
    """No job finished it, and that is no failure."""


@dataclass(slots=True)
class Ended:
    """Messages of one call of the job, or of several that ended well, and what became of them."""

    messages: Sequence[HeldMessage]
    how: JobOutcome
    reason: str = ""
    traceback: str = ""
    """Of the error that it was rejected for."""
    delay: float | None = None
    """Seconds until a message that failed comes again, if the job said so."""
    results: Mapping[str, Sequence[NewMessage]] = field(default_factory=dict)
    """Messages to append with the acknowledgement, by queue."""
    instead: Mapping[str, Sequence[NewMessage]] | None = None
    """The job has no other attempt: if its results are refused, the messages are rejected, and these are appended."""

    @property
    def queue(self) -> LeaseQueue:
        return self.messages[0].queue

    def parts(self) -> list[Ended]:
        """The same in parts that one request may settle. With results it stays whole: they belong to all messages."""
        if self.results or len(self.messages) <= MOST_RECEIPTS:
            return [self]
        firsts = range(0, len(self.messages), MOST_RECEIPTS)
        return [replace(self, messages=self.messages[first : first + MOST_RECEIPTS]) for first in firsts]

    @property
    def result_count(self) -> int:
        return sum(map(len, self.results.values()))

    @property
    def result_bytes(self) -> int:
        return sum(len(one.raw) for some in self.results.values() for one in some)

    @property
    def lease_until(self) -> float:
        """When the last of the leases ends, as elapsed time."""
        return max(one.until for one in self.messages)


@dataclass(slots=True, eq=False)
class LeaseRequest:
    """One request about the queues of a set: it settles, extends or receives.

    It is repeated as it is until an answer comes. So nothing is done twice, and no lease is lost with an answer (G23).
    """

    asked: QueueSet
    queues: Sequence[LeaseQueue]
    """Those that it names."""
    ended: list[Ended]
    sent: float
    """Elapsed time when it was sent first: leases last from then on at least."""
    most: int = 0
    """Messages to receive; 0 receives none."""
    visibility: float | None = None
    """Of the leases; None for that of each group."""
    wait: float = 0.0
    turns: QueueTurns = field(default_factory=QueueTurns)
    is_ahead: bool = False
    """Another one that receives was under way when it was sent."""
    extends: float | None = None
    """Extend all leases of the worker in these queues to this many seconds from now."""
    attempt: str = field(default_factory=lambda: unique_bytes().hex())
    again_at: float | None = None
    """When to repeat it. None while it is under way."""
    tries: int = 0

    def repeat(self, now: float) -> None:
        """It is sent again. The server knows an attempt for five minutes; after that this is another request."""
        self.again_at = None
        if now > self.sent + KNOWN_SECONDS:
            self.sent, self.attempt = now, unique_bytes().hex()

    def stop_waiting(self) -> None:
        """Ask for an answer at once in place of this request, of which nothing was done."""
        self.wait, self.attempt = 0.0, unique_bytes().hex()

    @property
    def receives(self) -> bool:
        return self.most > 0

    @property
    def has_results(self) -> bool:
        return any(one.results for one in self.ended)

    @property
    def where(self) -> Queues:
        """As the client takes the queues."""
        return self.turns.where([queue.name for queue in self.queues])

    @property
    def names(self) -> str:
        """The queues, for people."""
        names = [queue.name for queue in self.queues[:MOST_NAMED]]
        more = len(self.queues) - len(names)
        return ", ".join(names) + (f" and {more} more" if more else "")

    def to_settle(self, receiver: str) -> Settle:
        """As the client takes it."""
        acknowledge: list[Delivery | str] = []
        release: list[Release] = []
        reject: list[Reject] = []
        append: dict[str, list[NewMessage]] = {}
        for one in self.ended:
            receipts = [message.receipt for message in one.messages]
            if one.how is JobOutcome.DONE:
                acknowledge += receipts
            elif one.how is JobOutcome.REJECTED:
                reject += [Reject(receipt, _printable(one.reason), one.traceback) for receipt in receipts]
            else:
                count = one.how is JobOutcome.FAILED
                release += [Release(receipt, one.delay, count=count) for receipt in receipts]
            for name, some in one.results.items():
                append.setdefault(name, []).extend(some)
        return Settle(
            acknowledge=acknowledge,
            release=release,
            extend=() if self.extends is None else ExtendAll(receiver, self.extends),
            reject=reject,
            append=append,
            receive=self._receive() if self.receives else None,
            receiver=receiver,
            attempt=self.attempt,
        )

    def _receive(self) -> Receive:
        order = self.turns.order if len(self.queues) > 1 else None
        return Receive(self.most, self.visibility, wait=self.wait, order=order)


class QueueSet:
    """Queues that one request asks for messages. The lock of the buffer guards its fields.

    A queue is *on trial* in a set of its own until a request about it alone is answered. Then it is asked together with
    others. If a request about several is refused, each of them is on trial again: so one that is gone, or forbidden, keeps no
    other from being asked.
    """

    def __init__(self, now: float, *, is_on_trial: bool, most: int = MOST_TOGETHER) -> None:
        """:param most: the queues that it may have."""
        self.queues: dict[str, LeaseQueue] = {}
        self.is_on_trial, self.most = is_on_trial, most
        self.ended: deque[Ended] = deque()
        """What the next request settles."""
        self.ended_since = 0.0
        """When the first of these ended."""
        self.divided: deque[list[Ended]] = deque()
        """Parts of a request that was refused. Each is sent by itself, to find what it was refused for."""
        self.under_way: list[LeaseRequest] = []
        """Requests that are not answered."""
        self.asked_at = now
        """When messages were last asked for."""
        self.answered_at = now
        self.has_more = False
        """The last answer was full."""
        self.resume_at = self.refused_until = now
        """Nothing is received before the one time, and nothing at all is sent before the other."""
        self.extend_at = inf
        """No lease of these queues is to be extended before."""
        self.trouble: tuple[float, str] | None = None
        """Why nothing can be received: the latest pause, and the reason."""

    @property
    def is_open(self) -> bool:
        """The worker goes on to receive from these queues."""
        return any(queue.is_open for queue in self.queues.values())

    @property
    def holds(self) -> bool:
        """Whether messages of these queues are received and not settled."""
        return any(queue.held for queue in self.queues.values())

    @property
    def receives(self) -> Sequence[LeaseRequest]:
        """Requests under way that receive."""
        return [one for one in self.under_way if one.receives]

    @property
    def is_idle(self) -> bool:
        """Nothing is under way, and nothing is to be settled."""
        return not (self.under_way or self.divided or self.ended)

    def names(self, queue: LeaseQueue) -> bool:
        """Whether a request under way names a queue."""
        return any(queue in one.queues for one in self.under_way)

    @property
    def visibility(self) -> float | None:
        """Of leases, if it is the same for all groups, to have leases of a known length."""
        lengths = {queue.visibility for queue in self.queues.values()}
        return lengths.pop() if len(lengths) == 1 else None

    def suits(self, queue: LeaseQueue) -> bool:
        """Whether a queue may be asked with these: where leases are too short to work under, all have to be longer."""
        return all(one.is_short == queue.is_short for one in self.queues.values())

    def end(self, ended: Ended, now: float) -> None:
        """The next request settles these."""
        if not self.ended:
            self.ended_since = now
        self.ended.append(ended)

    def next_ended(self) -> list[Ended]:
        """As much as one request may settle."""
        taken: list[Ended] = []
        receipts = results = size = 0
        names: set[str] = set()
        while self.ended:
            if len(self.ended[0].messages) > MOST_RECEIPTS:
                self.ended.extendleft(reversed(self.ended.popleft().parts()))
            one = self.ended[0]
            receipts += len(one.messages)
            results += one.result_count
            size += one.result_bytes
            names |= one.results.keys()
            is_much = results > MOST_RESULTS or size > MOST_RESULT_BYTES or len(names) > MOST_RESULT_QUEUES
            if taken and (receipts > MOST_RECEIPTS or is_much):
                break
            taken.append(self.ended.popleft())
        return taken

    def to_extend(self, now: float) -> tuple[float | None, Sequence[LeaseQueue]]:
        """The queues whose leases are extended now, and for how long; none if it is not time yet.

        They have leases of one length: a request has one for all.
        """
        held = [queue for queue in self.queues.values() if queue.held]
        self.extend_at = min((queue.extend_at for queue in held), default=inf)
        due = [queue.lease_seconds for queue in held if queue.extend_at <= now]
        return (due[0], [queue for queue in held if queue.lease_seconds == due[0]]) if due else (None, ())

    def take_in(self, queue: LeaseQueue) -> None:
        """A queue comes from another set, with what ended of it."""
        before, queue.asked_with = queue.asked_with, self
        self.queues[queue.name] = queue
        del before.queues[queue.name]
        for one in before.ended:
            if one.queue is queue:
                self.end(one, before.ended_since)
        before.ended = deque(one for one in before.ended if one.queue is not queue)
        self.extend_at = min(self.extend_at, queue.extend_at)


class LeaseQueue:
    """One queue that a worker receives from. The lock of the buffer guards its fields."""

    def __init__(self, name: str, asked_with: QueueSet, now: float) -> None:
        self.name = name
        self.asked_with = asked_with
        asked_with.queues[name] = self
        self.ready: deque[HeldMessage] = deque()
        """Received, and not begun."""
        self.held: dict[str, HeldMessage] = {}
        """By receipt: all that is not settled yet."""
        self.parted_at = -inf
        """When a request about this queue and others was refused."""
        self.is_open = True
        """The worker goes on to receive from it."""
        self.lease_seconds = UNKNOWN_SECONDS
        self._knows_length = False
        self.extend_at = inf
        self.visibility: float | None = None
        """The group's, but not too short, to ask for leases of a known length. None if it is not known."""
        self.max_failures: int | None = None
        """Of the group; None if it is not known."""
        self.per_key: int | None = None
        """How many messages of a key one receive gives; None if it is not known."""
        self.running_keys: set[str] = set()
        """Keys of messages that are worked on, if one receive may give several of a key: these follow each other."""
        self.settings_until = now
        """When the settings are to be read again."""
        self.dead_before: int | None = None
        """What the group had given up when the worker came; None if that is not known."""
        self.dead = 0
        self.done_at: int | None = None
        """The messages that this worker had received, from all queues, when a look found nothing left to do here."""

    @property
    def is_short(self) -> bool:
        """Its group gives leases that are too short to work under."""
        return self.visibility == LEAST_SECONDS

    def give_back(self, messages: Sequence[HeldMessage], now: float) -> None:
        for message in messages:
            self.asked_with.end(Ended([message], JobOutcome.GIVEN_BACK), now)

    def next_ready(self, mine: set[str]) -> HeldMessage | None:
        """The first message whose key nobody works on; None if there is none.

        :param mine: keys of the caller, which gets this one's as well.
        """
        if self.per_key == 1:
            return self.ready.popleft() if self.ready else None
        for at, message in enumerate(self.ready):
            key = message.delivery.key
            if key is None or key in mine or key not in self.running_keys:
                del self.ready[at]
                if key is not None:
                    mine.add(key)
                    self.running_keys.add(key)
                return message
        return None

    def took(self, request: LeaseRequest, deliveries: Sequence[Delivery], now: float) -> list[HeldMessage]:
        """Take over the messages of an answer."""
        self._learn_length(deliveries, request.visibility)
        until = request.sent + self.lease_seconds
        got = [HeldMessage(delivery, self, until, now) for delivery in deliveries]
        self.held.update((one.receipt, one) for one in got)
        self._extend_at(min(self.extend_at, request.sent + self.lease_seconds / 3))
        return got

    def extended(self, request: LeaseRequest, seconds: float) -> None:
        """All leases that were there when a request was sent last for so long from then on."""
        for message in self.held.values():
            if message.arrived <= request.sent:
                message.until = max(message.until, request.sent + seconds)
        self._extend_at(request.sent + seconds / 3 if self.held else inf)

    def _extend_at(self, moment: float) -> None:
        self.extend_at = moment
        self.asked_with.extend_at = min(self.asked_with.extend_at, moment)

    def know(self, group: LeaseGroup) -> None:
        """The group was read."""
        self.max_failures = int(group.settings["max_failures"])
        self.per_key = int(group.settings["per_key"])
        self.visibility = self.lease_seconds = max(float(group.settings["visibility"]), LEAST_SECONDS)
        self._knows_length = True
        self.dead = sum(part.dead for part in group.partitions)
        if self.dead_before is None:
            self.dead_before = self.dead

    def _learn_length(self, deliveries: Sequence[Delivery], asked: float | None) -> None:
        """How long these leases are. If none was asked for, only a first delivery tells exactly when it began."""
        if asked is not None:
            self.lease_seconds = asked
            return
        for one in deliveries:
            if one.deliveries == 1 and one.visible_at is not None:
                self.lease_seconds = float(one.visible_at) - float(one.first_delivered)
                self._knows_length = True
                if self.lease_seconds < LEAST_SECONDS:
                    self.visibility = LEAST_SECONDS
                return
        if not self._knows_length:
            self.lease_seconds = deliveries[0].lease_seconds

    def forget(self, messages: Sequence[HeldMessage]) -> int:
        """These are settled, or somebody else's.

        :returns: bytes of their bodies.
        """
        found = [one for one in messages if self.held.pop(one.receipt, None) is not None]
        if not self.held:
            self.extend_at = inf
        return sum(one.size for one in found)


def _printable(text: str) -> str:
    r"""As the server takes a reason.

    >>> _printable("not\tJSON")
    'not JSON'
    """
    return "".join(letter if letter.isprintable() else " " for letter in text)[:MOST_REASON]
