"""SQS as plainly as possible: a queue is a list of messages, and time is a number.

It says what each call may be answered. Moments are seconds, from any start.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["PlainMessage", "PlainQueue"]

WINDOW_SECONDS = 300
"""For this time a FIFO queue knows what was sent, and what was received under an attempt id."""
LONGEST_SECONDS = 43_200
"""From a receive to the end of its lease, at the most."""
EXPIRED = "The receipt handle has expired."


@dataclass(eq=False)
class PlainMessage:
    """A message that a queue has."""

    body: str
    attributes: Mapping[str, Any]
    group: str | None
    dedup: str | None
    visible_at: float
    expires: float
    id: str = ""
    sent_ms: int = 0
    """By the wall clock."""
    sequence: str = ""
    receives: int = 0
    """In all queues that it was in."""
    before: int = 0
    """How many of them were in the queue that gave it up."""
    handle: str = ""
    """Of the last receive."""
    received: float = 0.0
    """The moment of the last receive."""
    first_received: float = 0.0
    source: str = ""
    """The ARN of the queue that gave it up."""
    sent: float = 0.0
    """The moment of the send, or the end of its delay."""

    @property
    def is_out(self) -> bool:
        """Whether a receiver has it, or had it."""
        return bool(self.handle)


@dataclass(eq=False)
class PlainQueue:
    """A queue. Its messages are in the order in which they were sent."""

    url: str
    arn: str
    is_fifo: bool
    given: dict[str, str]
    """Attributes, those that have defaults included."""
    dead: PlainQueue | None = None
    most_receives: int = 0
    """0: no message is given up."""
    messages: list[PlainMessage] = field(default_factory=list)
    has_expired: bool = False
    """Whether a message ended by its age while the queue had it."""
    waits_until: float = 0.0
    """Messages of a FIFO queue are due no earlier: some that were sent before a change of the delay are due then."""
    _sent: dict[tuple[str, str, str], tuple[float, PlainMessage]] = field(default_factory=dict)
    _attempts: dict[str, tuple[float, dict[PlainMessage, tuple[str, float]]]] = field(default_factory=dict)
    """By attempt id: when it was last answered, and the messages with their handles and the ends of their leases."""

    def seconds(self, name: str) -> float:
        """An attribute that is a time."""
        return float(self.given[name])

    def set(self, given: Mapping[str, str], now: float) -> None:
        """Change attributes."""
        self.given |= given
        if self.is_fifo and "DelaySeconds" in given:
            self.waits_until = max([self.waits_until, *(one.visible_at for one in self._delayed(now))])

    # Sending

    def send(self, values: Mapping[str, Any], now: float) -> PlainMessage:
        """The message that the queue has for this request: a new one, or the one that was sent before."""
        body, group, dedup = values["MessageBody"], values.get("MessageGroupId"), None
        if self.is_fifo:
            dedup = values.get("MessageDeduplicationId") or hashlib.sha256(body.encode()).hexdigest()
            scope = self.given["DeduplicationScope"]
            key = (scope, str(group) if scope == "messageGroup" else "", dedup)
            first, known = self._sent.get(key, (-WINDOW_SECONDS, None))
            if known is not None and now - first < WINDOW_SECONDS:
                return known
        delay = (
            self.seconds("DelaySeconds") if self.is_fifo else values.get("DelaySeconds", self.seconds("DelaySeconds"))
        )
        ends = now + self.seconds("MessageRetentionPeriod")
        due = max(now + delay, self.waits_until)
        message = PlainMessage(body, values.get("MessageAttributes", {}), group, dedup, due, ends, sent=due)
        self.messages.append(message)
        if self.is_fifo:
            self._sent[key] = (now, message)
        return message

    def _delayed(self, now: float) -> list[PlainMessage]:
        return [one for one in self.messages if one.visible_at > now and not one.is_out]

    # Receiving

    def age(self, now: float) -> None:
        """Let go what is too old."""
        left = [one for one in self.messages if one.expires > now]
        self.has_expired |= len(left) < len(self.messages)
        self.messages = left

    def free(self, now: float) -> list[PlainMessage]:
        """What may be received now."""
        return [one for one in self._open(now) if not self._is_given_up(one)]

    def given_up(self, now: float) -> list[PlainMessage]:
        """What a receive moves to the dead letters, if it has room for more than it gets."""
        return [one for one in self._open(now) if self._is_given_up(one)]

    def _open(self, now: float) -> list[PlainMessage]:
        """What nobody has and nothing delays. While a message of a group is out, none of it may be received."""
        out = {one.group for one in self.messages if one.is_out and one.visible_at > now} if self.is_fifo else ()
        return [one for one in self.messages if one.visible_at <= now and one.group not in out]

    def _is_given_up(self, one: PlainMessage) -> bool:
        return 0 < self.most_receives <= one.receives - one.before

    def receive(self, got: Sequence[Mapping[str, Any]], most: int, visibility: float | None, now: float) -> None:
        """Compare what was received with what may be, and remember the leases."""
        free, lost = self.free(now), self.given_up(now)
        number = min(most, len(free))
        least = min(number, 1) if self.is_fifo else number  # of a group that opens here, others may come next time
        assert least <= len(got) <= number, f"{len(got)} of {number} messages"
        by_id = {one.id: one for one in free}
        assert by_id.keys() >= {one["MessageId"] for one in got}, "only what may be received"
        taken = [by_id[one["MessageId"]] for one in got]
        if self.is_fifo:
            for group in {one.group for one in taken}:
                mine = [one for one in taken if one.group == group]
                assert mine == [one for one in free if one.group == group][: len(mine)], "each group from its beginning"
        for one, answer in zip(taken, got, strict=True):
            one.receives += 1
            one.first_received = one.first_received or now
            one.received, one.handle = now, answer["ReceiptHandle"]
            self._hide(one, visibility, now)
        self._give_up([one for one in lost if len(got) < most or self._was_passed(one, taken)], now)

    def _was_passed(self, one: PlainMessage, taken: Sequence[PlainMessage]) -> bool:
        """Whether a later message of its group was received."""
        behind = self.messages[self.messages.index(one) :]
        return self.is_fifo and any(each.group == one.group and each in behind for each in taken)

    def _give_up(self, lost: Sequence[PlainMessage], now: float) -> None:
        if self.dead is None:
            return
        for one in lost:
            self.messages.remove(one)
            self.dead._bury(one, self.arn, now)

    def _bury(self, one: PlainMessage, source: str, now: float) -> None:
        one.source, one.before, one.handle, one.first_received = source, one.receives, "", 0.0
        begins = now if self.is_fifo else one.sent
        one.visible_at, one.expires = now, max(begins + self.seconds("MessageRetentionPeriod"), now + 1)
        self.messages.append(one)

    def repeat(self, attempt: str, visibility: float | None, now: float) -> list[tuple[str, str]] | None:
        """The ids and handles that this attempt gets again, hidden anew; None if it gets what comes next.

        That is so once one of the messages was deleted or changed, or its lease has ended.
        """
        last, taken = self._attempts.get(attempt, (-WINDOW_SECONDS, {}))
        if now - last >= WINDOW_SECONDS or not taken:
            return None
        if not all(self._has(one, handle, now) and one.visible_at == until for one, (handle, until) in taken.items()):
            return None
        self._attempts[attempt] = (
            now,
            {one: (handle, self._hide(one, visibility, now)) for one, (handle, _) in taken.items()},
        )
        return [(one.id, handle) for one, (handle, _) in taken.items()]

    def remember(self, attempt: str, got: Sequence[Mapping[str, Any]], now: float) -> None:
        """What an attempt was given."""
        by_id = {one.id: one for one in self.messages}
        taken = [by_id[one["MessageId"]] for one in got]
        self._attempts[attempt] = (now, {one: (one.handle, one.visible_at) for one in taken})

    def _hide(self, one: PlainMessage, visibility: float | None, now: float) -> float:
        one.visible_at = now + (self.seconds("VisibilityTimeout") if visibility is None else visibility)
        return one.visible_at

    def _has(self, one: PlainMessage, handle: str, now: float) -> bool:
        return one in self.messages and one.handle == handle and one.visible_at > now

    # Settling

    def delete(self, one: PlainMessage, handle: str, now: float) -> str | None:
        """A part of the error's text; empty if it is done, None if either may be."""
        if one.expires <= now:
            return None
        if one not in self.messages:
            return ""
        if self.is_fifo and not self._has(one, handle, now):
            return EXPIRED
        self.messages.remove(one)
        return ""

    def change(self, one: PlainMessage, handle: str, seconds: float, now: float) -> str | None:
        """As :meth:`delete`."""
        if one.expires <= now:
            return None
        if one not in self.messages:
            return "Message does not exist or is not available for visibility timeout change."
        if not self._has(one, handle, now):
            return ""
        if now + seconds > one.received + LONGEST_SECONDS:
            return f"Total VisibilityTimeout for the message is beyond the limit [{LONGEST_SECONDS} seconds]."
        one.visible_at = now + seconds
        return ""

    def purge(self) -> None:
        self.messages, self._sent, self.waits_until = [], {}, 0.0

    def counts(self, now: float) -> tuple[int, int, int]:
        """Messages that may be received or belong to a closed group, that are delayed, and that are out."""
        delayed = len(self._delayed(now))
        out = sum(one.is_out and one.visible_at > now for one in self.messages)
        return len(self.messages) - delayed - out, delayed, out
