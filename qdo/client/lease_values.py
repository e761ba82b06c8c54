"""What the client takes and returns about leases.

Times are in seconds; moments are texts, decimal seconds since 1970.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Generic, Literal, Protocol, Self, TypedDict, TypeVar

from qdo.client.extending import HeldLease
from qdo.client.given import check_list, check_mapping, check_text, whole_numbers
from qdo.client.steps import Blocks, Steps, call
from qdo.client.values import Appended, Json, Message, NewMessage
from queuey.errors import InvalidParameter, InvalidReceipt, QueueyError, StaleReceipt
from queuey.ids import MessageId

__all__ = [
    "Delivery",
    "Extend",
    "ExtendAll",
    "HasReceipt",
    "Lease",
    "LeasedMessage",
    "Queues",
    "Receive",
    "ReceiveOptions",
    "Reject",
    "Release",
    "Settle",
    "Settled",
]

T = TypeVar("T")
D = TypeVar("D", bound="LeasedMessage")


class ReceiveOptions(TypedDict, total=False):
    """The members of :class:`Receive` but for ``max_messages``, as keyword arguments."""

    visibility: float | None
    wait: float
    pop: bool
    partitions: Sequence[int] | None
    order: Literal["first", "weighted"] | None


@dataclass(frozen=True, slots=True)
class Receive:
    """How messages are to be handed out."""

    max_messages: int = 1
    """1 to 1,000."""
    visibility: float | None = None
    """Seconds for which they are hidden from other receivers of the group, 0 to 43,200. None for the group's setting."""
    wait: float = 0
    """Seconds that the server may hold back an answer without messages, 0 to 60."""
    pop: bool = False
    """Acknowledge them in the same step. They have no receipts then, and never come again."""
    partitions: Sequence[int] | None = None
    """Where to look; None for all partitions."""
    order: Literal["first", "weighted"] | None = None
    """Of several queues: ``first`` takes the first that has messages, ``weighted`` draws the queues, by their weights if they
    have some. None is ``weighted`` for queues with weights, and ``first`` for a list."""

    def to_wire(self) -> dict[str, Any]:
        partitions = None if self.partitions is None else whole_numbers("partitions", self.partitions)
        members = {"visibility": self.visibility, "partitions": partitions}
        wire: dict[str, Any] = {name: value for name, value in members.items() if value is not None}
        wire |= {"max": self.max_messages} | ({"wait": self.wait} if self.wait else {})
        return wire | ({"pop": True} if self.pop else {})


class Settler(Protocol):
    """Settles leases. It is the client that a delivery came from."""

    _extender: Any
    """Extends leases in the background; see :class:`~qdo.client.extending.Extender`."""

    def _settle(self, queue: Queues, group: str, what: Settle) -> Steps[Settled[Any]]: ...

    def _do(self, steps: Steps[Any]) -> Any: ...


@dataclass(frozen=True, slots=True)
class LeasedMessage(Message):
    """A message that is leased to this receiver until ``visible_at``."""

    queue: str = ""
    group: str = ""
    receipt: str | None = None
    """Names this lease; another process may settle with it. None after a pop."""
    deliveries: int = 1
    """How often the group has handed the message out, this time included."""
    failures: int = 0
    """How often that ended badly: the lease ran out, or a release counted."""
    first_delivered: str = ""
    visible_at: str | None = None
    """When the lease runs out, as it was when the message was handed out. None after a pop."""
    _leases: Settler | None = field(default=None, repr=False, compare=False)
    _held: HeldLease | None = field(default=None, repr=False, compare=False)

    @property
    def is_lost(self) -> bool:
        """An extension in the background came too late: another receiver may have the message, so stop working on it."""
        return self._held is not None and self._held.is_lost

    @property
    def lease_seconds(self) -> float:
        """The length of the lease as far as this machine can tell: up to a second too long, and at least one. 0 after a pop."""
        return 0.0 if self._held is None else self._held.seconds

    def keep(self) -> None:
        """Extend the lease from now on, until the message is settled, or its client is closed.

        It is for messages that neither a block nor one thread works on. A block does it by itself.

        :raises InvalidReceipt: the message was popped, or detached.
        """
        leases, held = self._kept()
        leases._extender.keep(held)  # noqa: SLF001 -- the two are one part of the client

    def let_go(self) -> None:
        """Extend the lease no more: it runs out in its own time, unless the message is settled before."""
        if self._leases is not None and self._held is not None:
            self._leases._extender.drop(self._held)  # noqa: SLF001 -- the two are one part of the client

    def detach(self) -> None:
        """Leave the client, which serves one thread: another thread or process may have the message now.

        It cannot settle itself any more. Its receipt can.
        """
        object.__setattr__(self, "_leases", None)
        object.__setattr__(self, "_held", None)

    @call
    def acknowledge(self) -> Steps[None]:
        """The message is done: the group never hands it out again.

        :raises StaleReceipt: the lease had ended. Nothing changed, and another receiver may have the message.
        :raises InvalidReceipt: the group was forgotten since, or the message was popped. Nothing changed.
        """
        return self._settled(Settle(acknowledge=[self]))

    @call
    def release(self, delay: float | None = None, *, count: bool = True) -> Steps[None]:
        """Give the message back, to be handed out again.

        :param delay: seconds until it may be, 0 to 43,200. None is by the group's back-off, or at once if it does not count.
        :param count: it counts as a failure; after ``max_failures`` of them the message goes to the dead letters.
        :raises StaleReceipt, InvalidReceipt: as :meth:`acknowledge`.
        """
        return self._settled(Settle(release=[Release(self, delay, count=count)]))

    @call
    def reject(self, reason: str = "") -> Steps[None]:
        """Move the message to the dead letters of the group.

        :param reason: up to 1,024 printable characters, kept with the dead letter.
        :raises StaleReceipt, InvalidReceipt: as :meth:`acknowledge`.
        """
        return self._settled(Settle(reject=[Reject(self, reason)]))

    @call
    def extend(self, seconds: float) -> Steps[None]:
        """Let the lease run out this many seconds from now, 0 to 43,200.

        :raises StaleReceipt, InvalidReceipt: as :meth:`acknowledge`.
        """
        return self._settled(Settle(extend=[Extend(self, seconds)]))

    def _settled(self, what: Settle) -> Steps[None]:
        leases, _ = self._kept()
        done = yield from leases._settle(self.queue, self.group, what)  # noqa: SLF001 -- the two are one part of the client
        if done.stale:
            raise StaleReceipt(
                f"the lease of message {self.id.hex} had ended: it was handed out again, or is settled; nothing changed"
            )

    def _kept(self) -> tuple[Settler, HeldLease]:
        if self._leases is None or self._held is None:
            raise InvalidReceipt(f"message {self.id.hex} cannot be settled by itself: it was popped, or detached")
        return self._leases, self._held

    def _end(self, error: BaseException | None) -> Steps[None] | None:
        """Extend the lease no more, and settle it; None if that is done.

        :param error: of the block.
        """
        leases, held = self._kept()
        leases._extender.drop(held)  # noqa: SLF001
        if held.is_over:
            return None
        if error is None:
            return self._settled(Settle(acknowledge=[self]))
        return self._released_after(error)

    def _released_after(self, error: BaseException) -> Steps[None]:
        # What went wrong in the block is what the caller must see. Without a release the lease ends by itself.
        with suppress(QueueyError):
            yield from self._settled(Settle(release=[Release(self, count=isinstance(error, Exception))]))

    @classmethod
    def handed_out(cls, entry: Json, leases: Settler, held: HeldLease | None, queue: str, group: str) -> Self:
        """A message of an answer. ``held`` is None after a pop."""
        return cls.from_wire(
            entry,
            queue,
            group,
            entry.get("receipt"),
            entry["deliveries"],
            entry["failures"],
            entry["first_delivered"],
            entry.get("visible_at"),
            leases,
            held,
        )


class Delivery(LeasedMessage, Blocks):
    """A message that is leased to this receiver until ``visible_at``.

    As a context manager it extends the lease while the block runs. It acknowledges the message at the end of the block. It
    releases it if the block raises: as a failure, but not for ``KeyboardInterrupt``, ``SystemExit`` and their like. If the
    block settles the message itself, nothing is done at its end.
    """

    __slots__ = ()

    def __enter__(self) -> Self:
        """:raises InvalidReceipt: the message was popped."""
        self.keep()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """:raises StaleReceipt: the block ended well, but the lease had ended before."""
        steps = self._end(error)
        if steps is not None:
            self._do(steps)

    def _do(self, steps: Steps[T]) -> T:
        result: T = self._kept()[0]._do(steps)  # noqa: SLF001
        return result


Queues = str | Sequence[str] | Mapping[str, int]
"""One queue; or up to 100 queues in their order; or these with their weights, 1 to 1,000."""
HasReceipt = LeasedMessage | str
"""A message that was handed out, or its receipt."""


@dataclass(frozen=True, slots=True)
class Release:
    """A lease that is given back; see :meth:`LeasedMessage.release`."""

    lease: HasReceipt
    delay: float | None = None
    count: bool = True

    def to_wire(self) -> dict[str, Any]:
        wire: dict[str, Any] = {"receipt": receipt_of(self.lease)}
        wire |= {} if self.delay is None else {"delay": self.delay}
        return wire | ({} if self.count else {"count": False})


@dataclass(frozen=True, slots=True)
class Reject:
    """A message that goes to the dead letters; see :meth:`LeasedMessage.reject`."""

    lease: HasReceipt
    reason: str = ""
    traceback: str = ""
    """For the dead letter, up to 4,096 characters. The letter has none if the message's own headers leave no room for it."""

    def to_wire(self) -> dict[str, Any]:
        told = {"reason": self.reason, "traceback": self.traceback}
        return {"receipt": receipt_of(self.lease)} | {name: text for name, text in told.items() if text}


@dataclass(frozen=True, slots=True)
class Extend:
    """A lease that goes on; see :meth:`Delivery.extend`."""

    lease: HasReceipt
    seconds: float

    def to_wire(self) -> dict[str, Any]:
        return {"receipt": receipt_of(self.lease), "visibility": self.seconds}


@dataclass(frozen=True, slots=True)
class ExtendAll:
    """All leases that a receiver has in the group go on. A receiver that has none is no error."""

    receiver: str
    seconds: float
    """From now, 0 to 43,200."""


@dataclass(frozen=True, slots=True)
class Settle:
    """What becomes of leases, what is appended, and what is received, in one request.

    Settling and appending are one step: all of it is done or nothing. Messages are received after that.
    """

    acknowledge: Sequence[HasReceipt] = ()
    release: Sequence[Release] = ()
    extend: Sequence[Extend] | ExtendAll = ()
    reject: Sequence[Reject] = ()
    """These four together name up to 1,000 leases, each once."""
    append: Mapping[str, Sequence[NewMessage | bytes | str]] = field(default_factory=dict, hash=False)
    """Messages by queue, up to 10 queues of the same application. With them one stale receipt refuses the whole request."""
    receive: Receive | None = None
    receiver: str | None = None
    """Names this receiver to those that look at leases; up to 128 characters. None for its principal and address."""
    attempt: str | None = None
    """Names this request, up to 128 characters. For five minutes the same request under the same name does nothing twice, and
    gets the same answer. None lets the client draw one."""

    def to_wire(self) -> dict[str, Any]:
        """The request without its attempt.

        :raises InvalidParameter: messages of a queue are one text, or one body is neither text nor bytes; or the leases to
            release, say, are no :class:`Release` each.
        :raises InvalidReceipt: a message was popped, so it has no lease.
        """
        self._check()
        extend: Any = (
            [one.to_wire() for one in self.extend]
            if isinstance(self.extend, Sequence)
            else {
                "receiver": self.extend.receiver,
                "visibility": self.extend.seconds,
            }
        )
        members = {
            "receiver": self.receiver,
            "acknowledge": [receipt_of(one) for one in self.acknowledge],
            "release": [one.to_wire() for one in self.release],
            "extend": extend,
            "reject": [one.to_wire() for one in self.reject],
            "append": [{"queue": queue, "messages": _entries(some)} for queue, some in self.append.items()],
        }
        wire: dict[str, Any] = {name: value for name, value in members.items() if value}
        if self.receive is not None:
            wire |= {"receive": self.receive.to_wire()} | ({"order": self.receive.order} if self.receive.order else {})
        return wire

    def _check(self) -> None:
        """:raises InvalidParameter: a member is of another type."""
        check_list("acknowledge", self.acknowledge, "a list of messages or receipts")
        check_list("release", self.release, "a list of Release", Release)
        check_list("reject", self.reject, "a list of Reject", Reject)
        if not isinstance(self.extend, ExtendAll):
            check_list("extend", self.extend, "a list of Extend, or ExtendAll", Extend)
        check_mapping("append", self.append, "messages by queue")
        if self.receive is not None and not isinstance(self.receive, Receive):
            raise InvalidParameter(problems={"receive": f"{self.receive!r}: expected a Receive"})
        for name in ("receiver", "attempt"):
            if (value := getattr(self, name)) is not None:
                check_text(name, value)

    @property
    def only_extends(self) -> bool:
        """To do this twice is the same as once."""
        return not (self.acknowledge or self.release or self.reject or self.append or self.receive)

    def note(self, stale: Sequence[str]) -> None:
        """Note at messages what became of their leases: the client extends no lease that is over."""
        now = time.monotonic()
        ended = (*self.acknowledge, *(one.lease for one in self.release), *(one.lease for one in self.reject))
        for held in map(_held_of, ended):
            if held is not None:
                held.is_over = True
        for one in self.extend if isinstance(self.extend, Sequence) else ():
            held = _held_of(one.lease)
            if held is not None:
                held.extended(one.seconds, now)
                held.is_over = held.is_over or not one.seconds or held.receipt in stale


@dataclass(frozen=True, slots=True)
class Settled(Generic[D]):
    """What a request did."""

    acknowledged: int = 0
    released: int = 0
    extended: int = 0
    """Leases that were named one by one."""
    rejected: int = 0
    stale: tuple[str, ...] = ()
    """Receipts of leases that had ended before: with these nothing was done."""
    appended: Mapping[str, tuple[Appended, ...]] = field(default_factory=dict, hash=False)
    """Where the messages of each queue went."""
    messages: tuple[D, ...] = ()
    is_full: bool = False
    """New messages were held back: the group holds as many as its settings allow."""


@dataclass(frozen=True, slots=True)
class Lease:
    """A message that a group has handed out, or that waits to be handed out again."""

    id: MessageId
    partition: int
    state: str
    """``leased``; ``waits`` for its back-off; ``due`` to be handed out again; ``given up``, on its way to the dead letters."""
    receiver: str | None
    """The one that has the message, or had it last."""
    deliveries: int
    failures: int
    key: str | None
    visible_at: str
    ended: str | None
    """How the last lease ended: ``released``, ``released, not counted``, ``ran out``, ``rejected``, or ``failed too
    often`` with the last failure; None while it goes on."""
    reason: str | None
    """Why it was rejected."""

    @classmethod
    def from_wire(cls, entry: Json) -> Lease:
        return cls(
            MessageId.parse(entry["message_id"]),
            entry["partition"],
            entry["state"],
            entry["receiver"],
            entry["deliveries"],
            entry["failures"],
            entry["key"],
            entry["visible_at"],
            entry["ended"],
            entry["reason"],
        )


def receipt_of(lease: HasReceipt) -> str:
    """The receipt of a lease.

    :raises InvalidReceipt: the message was popped.
    """
    receipt = lease.receipt if isinstance(lease, LeasedMessage) else lease
    if receipt is None:
        raise InvalidReceipt("a message that was popped has no lease")
    return receipt


def _held_of(lease: HasReceipt) -> HeldLease | None:
    return lease._held if isinstance(lease, LeasedMessage) else None  # noqa: SLF001 -- of this module


def _entries(messages: Sequence[NewMessage | bytes | str]) -> list[dict[str, Any]]:
    check_list("append", messages, "a list of messages for each queue")
    return [(one if isinstance(one, NewMessage) else NewMessage(one)).to_wire() for one in messages]
