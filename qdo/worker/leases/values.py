"""What a worker holds under leases, and how that ends.

::

                  take             the job returns, raises or rejects
    ready ───────────────► running ──────────────────────────────────► ended ──► settled with the next request
      │                                                                  ▲
      └─ the worker ends, or the lease ran out before the job began ─────┘

"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from math import inf

from qdo.client.lease_values import Delivery, ExtendAll, Receive, Reject, Release, Settle, Settled, receipt_of
from qdo.client.values import NewMessage

__all__ = ["Ended", "HeldMessage", "JobOutcome", "LeaseQueue", "LeaseRequest", "Turn"]

MOST_RECEIPTS = 1000
"""That one request settles. So does the server bound it."""
MOST_RESULTS, MOST_RESULT_BYTES, MOST_RESULT_QUEUES = 100, 1 << 20, 10
"""That one request appends, unless one job alone has more."""
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
    results: Mapping[str, Sequence[NewMessage]] = field(default_factory=dict)
    """Messages to append with the acknowledgement, by queue."""

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
    """One request about a queue: it settles, extends and receives.

    It is repeated as it is until an answer comes. So nothing is done twice, and no lease is lost with an answer (G23).
    """

    queue: LeaseQueue
    ended: list[Ended]
    sent: float
    """Elapsed time when it was sent first: leases last from then on at least."""
    most: int = 0
    """Messages to receive; 0 receives none."""
    visibility: float | None = None
    """Of the leases; None for the group's."""
    wait: float = 0.0
    extends: bool = False
    attempt: str = field(default_factory=lambda: uuid.uuid4().hex)
    again_at: float | None = None
    """When to repeat it. None while it is under way."""
    tries: int = 0

    def repeat(self, now: float) -> None:
        """It is sent again. The server knows an attempt for five minutes; after that this is another request."""
        self.again_at = None
        if now > self.sent + KNOWN_SECONDS:
            self.sent, self.attempt = now, uuid.uuid4().hex

    def stop_waiting(self) -> None:
        """Ask for an answer at once in place of this request, of which nothing was done."""
        self.wait, self.attempt = 0.0, uuid.uuid4().hex

    @property
    def receives(self) -> bool:
        return self.most > 0

    @property
    def has_results(self) -> bool:
        return any(one.results for one in self.ended)

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
                reject += [Reject(receipt, one.reason) for receipt in receipts]
            else:
                release += [Release(receipt, count=one.how is JobOutcome.FAILED) for receipt in receipts]
            for name, some in one.results.items():
                append.setdefault(name, []).extend(some)
        return Settle(
            acknowledge=acknowledge,
            release=release,
            extend=ExtendAll(receiver, self.queue.lease_seconds) if self.extends else (),
            reject=reject,
            append=append,
            receive=Receive(self.most, self.visibility, wait=self.wait) if self.receives else None,
            receiver=receiver,
            attempt=self.attempt,
        )


class LeaseQueue:
    """One queue that a worker receives from. The lock of the buffer guards its fields."""

    def __init__(self, name: str, now: float) -> None:
        self.name = name
        self.ready: deque[HeldMessage] = deque()
        """Received, and not begun."""
        self.held: dict[str, HeldMessage] = {}
        """By receipt: all that is not settled yet."""
        self.ended: deque[Ended] = deque()
        """What the next request settles."""
        self.ended_since = 0.0
        """When the first of these ended."""
        self.divided: deque[list[Ended]] = deque()
        """Parts of a request that was refused. Each is sent by itself, to find what it was refused for."""
        self.receiving: LeaseRequest | None = None
        self.settling: LeaseRequest | None = None
        """Requests under way: one that receives, and one that does not."""
        self.asked = now
        """When messages were last asked for."""
        self.answered = now
        self.was_short = False
        """The last answer had fewer messages than there was room for."""
        self.resume_at = self.refused_until = now
        """Nothing is received before the one time, and nothing at all is sent before the other."""
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
        self.is_at_end = False
        """There is nothing left to do, as far as the last answers knew."""
        self.trouble: tuple[float, str] | None = None
        """Why nothing can be received: the latest pause, and the reason."""

    @property
    def is_idle(self) -> bool:
        """Nothing is held, and nothing is under way."""
        return not (self.held or self.receiving or self.settling or self.divided or self.ended)

    def end(self, ended: Ended, now: float) -> None:
        """The next request settles these."""
        if not self.ended:
            self.ended_since = now
        self.ended.append(ended)

    def give_back(self, messages: Sequence[HeldMessage], now: float) -> None:
        for message in messages:
            self.end(Ended([message], JobOutcome.GIVEN_BACK), now)

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

    def took(self, request: LeaseRequest, settled: Settled[Delivery], now: float) -> list[HeldMessage]:
        """Take over the messages of an answer."""
        self._learn_length(settled.messages, request.visibility)
        until = request.sent + self.lease_seconds
        if request.extends:
            for message in self.held.values():
                if message.arrived <= request.sent:
                    message.until = max(message.until, until)
        got = [HeldMessage(delivery, self, until, now) for delivery in settled.messages]
        self.held.update((one.receipt, one) for one in got)
        if request.extends or (got and self.extend_at == inf):
            self.extend_at = request.sent + self.lease_seconds / 3
        return got

    def _learn_length(self, deliveries: Sequence[Delivery], asked: float | None) -> None:
        """How long these leases are. If none was asked for, only a first delivery tells exactly when it began."""
        if not deliveries:
            return
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

    def next_ended(self) -> list[Ended]:
        """As much as one request may settle."""
        taken: list[Ended] = []
        receipts = results = size = 0
        names: set[str] = set()
        while self.ended:
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

    def forget(self, messages: Sequence[HeldMessage]) -> int:
        """These are settled, or somebody else's.

        :returns: bytes of their bodies.
        """
        found = [one for one in messages if self.held.pop(one.receipt, None) is not None]
        if not self.held:
            self.extend_at = inf
        return sum(one.size for one in found)
