"""What a run did wrong: lost, repeated, out of order, early, made up.

The judge reads the files of the generator once, in the order of time, and keeps three bits for each message, and the lease
of each message that may still come again. So its memory does not grow with the receipts.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from qdo.bench.bits import NumberBits
from qdo.bench.bodies import NO_KEY
from qdo.bench.clock import SECOND
from qdo.bench.open_keys import OpenKeys
from qdo.bench.order import StreamOrder
from qdo.bench.records import CORRUPT, FOREIGN, REFUSED, STORED, ReceivedRow, SentRow, read_received, read_sent
from qdo.bench.unsettled import Quiet, ReturnRule, Unsettled
from qdo.bench.workload import Limits, Workload

EXAMPLES = 5
"""Offenders of each kind that are named."""
SLACK_SECONDS = 2.0
"""How long the lease of a message is remembered after its end, beyond the longest wait for an answer."""

KINDS = (
    "lost",
    "stranded",
    "duplicates",
    "out_of_order",
    "key_out_of_order",
    "overtaken",
    "overlaps",
    "returned",
    "early",
    "late",
    "ghosts",
    "corrupt",
)
"""What may have a limit, in the order of the report; :class:`~qdo.bench.workload.Limits` has a field for each."""


@dataclass
class Findings:
    """Numbers of messages, or of receipts, by what is wrong with them."""

    sent: int = 0
    """Messages that were sent, whatever the answer."""
    stored: int = 0
    """Messages whose sending was acknowledged."""
    unknown: int = 0
    """Messages whose sending had no answer: they may arrive or not."""
    refused: int = 0
    received: int = 0
    """Receipts of messages of this run."""
    distinct: int = 0
    """Receipts but for the second and later ones of each message, in all views."""
    unanswered: int = 0
    """Messages that are missing, and may have been in answers to pops that never came: such a pop may have taken them."""
    redelivered: int = 0
    """Receipts after the lease ran out, or after the message was given back: what a system of leases promises."""
    moved: int = 0
    """Sum of the distances between the places of messages and their places in order."""
    counts: Counter[str] = field(default_factory=Counter)
    """By :data:`KINDS`."""
    missing: Counter[int] = field(default_factory=Counter)
    """Lost messages, by the number of their subscription among those of all queues."""
    examples: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def found(self, kind: str, example: str) -> None:
        self.counts[kind] += 1
        if len(self.examples[kind]) < EXAMPLES:
            self.examples[kind].append(example)

    def add(self, other: Findings) -> None:
        """Count what the other one has counted, of other messages or other receipts."""
        for name in (
            "sent",
            "stored",
            "unknown",
            "refused",
            "received",
            "distinct",
            "unanswered",
            "redelivered",
            "moved",
        ):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.counts += other.counts
        self.missing += other.missing
        for kind, some in other.examples.items():
            self.examples[kind] = [*self.examples[kind], *some][:EXAMPLES]

    def excuse(self, workload: Workload, unanswered: Mapping[int, int]) -> None:
        """Take what pops without an answer may have taken from what is lost, once all is judged.

        :param unanswered: receives without an answer, by the number of their subscription.
        """
        own = workload.queuey.receiving
        if own.mode != "pop":
            return
        for place, count in self.missing.items():
            excused = min(count, unanswered.get(place, 0) * own.batch)
            self.counts["lost"] -= excused
            self.unanswered += excused
        if not self.counts["lost"]:
            self.examples.pop("lost", None)

    @property
    def duplication(self) -> float:
        """Share of the receipts that are no first ones, redeliveries included (the measure of the BDQS paper)."""
        return (self.received - self.distinct) / self.received if self.received else 0.0

    @property
    def disorder(self) -> float:
        """Share of the messages that must be taken out to leave a rising sequence of each producer."""
        return self.counts["out_of_order"] / self.distinct if self.distinct else 0.0

    @property
    def displacement(self) -> float:
        """Mean distance of a message from its place in order."""
        return self.moved / self.distinct if self.distinct else 0.0

    def over(self, limits: Limits) -> dict[str, tuple[int, int]]:
        """What is over its limit: how much was found, and the limit."""
        found = {}
        for kind in KINDS:
            limit: int | None = getattr(limits, kind)
            if limit is not None and self.counts[kind] > limit:
                found[kind] = (self.counts[kind], limit)
        return found


class _Holding(NamedTuple):
    """The last receipt of a message."""

    asked: int
    arrived: int
    held_until: int
    settled: int
    """When an acknowledgement of it was confirmed first, by whichever receiver; 0 if none was."""


class _First(NamedTuple):
    """The first receipt of a message."""

    number: int
    arrived: int
    consumer: int


class _View:
    """What one stream looks like from one view."""

    __slots__ = ("highest", "open_keys", "order", "seen", "settled", "unsettled")

    def __init__(self) -> None:
        self.seen = NumberBits()
        self.settled = NumberBits()
        self.order = StreamOrder()
        self.highest: dict[int, _First] = {}
        """By key, of the last message in order that came."""
        self.open_keys: OpenKeys | None = None
        self.unsettled: Unsettled | None = None


class Judge:
    """Judges one run. First all that was sent, then what was received, in the order of its arrival."""

    def __init__(self, workload: Workload, views: Sequence[int] | None = None, quiet: Quiet | None = None) -> None:
        """:param views: those that are judged here; by default all.
        :param quiet: how the run ended; without it nothing is stranded.
        """
        own = workload.queuey
        self._workload = workload
        self._judged_views = range(workload.views) if views is None else views
        self._keep = int((own.receiving.visibility + own.receiving.wait + SLACK_SECONDS) * SECOND)
        self._returns = ReturnRule(workload, quiet) if quiet and workload.leases else None
        self._late = int(own.expect.late_seconds * SECOND)
        self._stored: dict[int, NumberBits] = defaultdict(NumberBits)
        self._tried: dict[int, NumberBits] = defaultdict(NumberBits)
        self._views: dict[tuple[int, int], _View] = defaultdict(_View)
        self._held: dict[tuple[int, int, int], _Holding] = {}
        self._held_since: deque[tuple[int, int, tuple[int, int, int]]] = deque()
        """The last moments of receipts, nearly rising, then their arrivals and messages."""
        self.findings = Findings()

    def sent(self, row: SentRow) -> None:
        """A request of a sender, in any order."""
        found = self.findings
        found.sent += row.messages
        if row.outcome == REFUSED:
            found.refused += row.messages
            return
        self._tried[row.stream].add_range(row.first, row.messages)
        if row.outcome == STORED:
            found.stored += row.messages
            self._stored[row.stream].add_range(row.first, row.messages)
        else:
            found.unknown += row.messages

    def received(self, row: ReceivedRow) -> None:
        """A receipt; their arrivals rise."""
        found = self.findings
        if row.flags & CORRUPT:
            found.found("corrupt", f"a receipt of consumer {row.consumer}")
            return
        if row.flags & FOREIGN:
            found.found("ghosts", f"a message of no producer, at consumer {row.consumer}")
            return
        tried = self._tried.get(row.stream)
        if tried is None or not tried.has(row.number):
            found.found("ghosts", f"{_name_of(row)}: refused, or never sent")
            return
        if self._is_elsewhere(row):
            found.found("ghosts", f"{_name_of(row)}: it was sent to another queue")
            return
        found.received += 1
        self._forget(row.arrived)
        view = self._views[row.subscription, row.stream]
        if row.arrived < row.not_before:
            found.found("early", f"{_name_of(row)}: {(row.not_before - row.arrived) / 1e6:.1f} ms")
        elif row.arrived - row.not_before > self._late:
            found.found("late", f"{_name_of(row)}: {(row.arrived - row.not_before) / 1e6:.0f} ms")
        if view.seen.add(row.number):
            found.distinct += 1
            view.order.add(row.number)
            self._by_key(row, view)
        else:
            self._again(row, view)
        self._hold(row)
        if self._returns is not None and row.held_until:
            view.unsettled = view.unsettled or Unsettled()
            view.unsettled.take(row)
        if row.key != NO_KEY and row.held_until:
            self._in_open_key(row, view)

    def end(self) -> Findings:
        """All was received: what is missing is lost."""
        for stream, stored in self._stored.items():
            for number_of_view in self._judged_views:
                view = self._views.get((number_of_view, stream))
                place = self._workload.topic_of(stream) * self._workload.views + number_of_view
                for number in stored.missing_in(view.seen if view else None):
                    self.findings.missing[place] += 1
                    self.findings.found("lost", f"message {number} of producer {stream}, view {number_of_view}")
        for (number_of_view, stream), view in self._views.items():
            if self._returns is not None and view.unsettled is not None:
                for number in view.unsettled.stranded(self._returns):
                    self.findings.found("stranded", f"message {number} of producer {stream}, view {number_of_view}")
            view.order.end()
            self.findings.counts["out_of_order"] += view.order.out_of_order
            self.findings.moved += view.order.moved
        return self.findings

    def _is_elsewhere(self, row: ReceivedRow) -> bool:
        """It came out of a queue to which it was not sent. Consumers are numbered by queue, then by view."""
        workload = self._workload
        if workload.topics == 1:
            return False
        queue = row.consumer // (workload.views * workload.receivers_of_view)
        return queue != workload.topic_of(row.stream)

    def _by_key(self, row: ReceivedRow, view: _View) -> None:
        if row.key == NO_KEY:
            return
        highest = view.highest.get(row.key)
        if highest is None or row.number > highest.number:
            view.highest[row.key] = _First(row.number, row.arrived, row.consumer)
        elif self._is_behind(row, highest):
            self.findings.found("key_out_of_order", f"{_name_of(row)}: after message {highest.number} of its key")

    def _is_behind(self, row: ReceivedRow, later: _First) -> bool:
        """Whether it surely was handed out after a later message of its key.

        One whose sending had no answer may have been stored after the later one. And receipts of two receivers may arrive
        in another order than that in which they were handed out, unless a lease held until the second one arrived.
        """
        if not self._stored[row.stream].has(row.number):
            return False
        return row.consumer == later.consumer or row.asked >= later.arrived or row.held_until > later.arrived

    def _in_open_key(self, row: ReceivedRow, view: _View) -> None:
        view.open_keys = view.open_keys or OpenKeys()
        is_stored = self._stored[row.stream].has(row.number)
        for number, by, arrived, _ in view.open_keys.take(row, is_stored=is_stored):
            name = f"message {number} of producer {row.stream}, view {row.subscription}"
            at = (
                f"{(row.arrived - arrived) / 1e6:.1f} ms before it came again"
                if number == row.number
                else "while it was out"
            )
            self.findings.found("overtaken", f"{name}: message {by} of its key came {at}")

    def _again(self, row: ReceivedRow, view: _View) -> None:
        """A receipt of a message that was received before."""
        before = self._held.get((row.subscription, row.stream, row.number))
        found = self.findings
        if before is None:
            # What is forgotten was settled before the last while; an answer that took longer may be older than that.
            if view.settled.has(row.number) and row.arrived - row.asked <= self._keep:
                found.found("returned", f"{_name_of(row)}: it was acknowledged before")
            elif row.held_until:
                # Its lease ended so long ago that it was forgotten, or the order of the two is unknown.
                found.redelivered += 1
                return
        elif before.settled and row.asked >= before.settled:
            late = (row.asked - before.settled) / 1e6
            found.found("returned", f"{_name_of(row)}: asked for {late:.1f} ms after it was acknowledged")
        elif before.settled and before.settled <= before.held_until <= row.arrived and row.asked >= before.arrived:
            # Handed out before the acknowledgement, it would have been within the lease; else it was after it.
            found.found("returned", f"{_name_of(row)}: it was acknowledged while its lease held")
        elif row.arrived >= min(before.held_until, row.held_until):
            # Either lease may be over, or given back. The later receipt may be of the earlier lease, whose answer was asked
            # for again.
            found.redelivered += 1
            return
        else:
            left = (before.held_until - row.arrived) / 1e6
            found.found("overlaps", f"{_name_of(row)}: {left:.1f} ms before the end of another lease")
        found.found("duplicates", _name_of(row))

    def _hold(self, row: ReceivedRow) -> None:
        if not row.held_until:
            return
        key = (row.subscription, row.stream, row.number)
        before = self._held.get(key)
        # A receiver may settle a message after another one got it, whose own receipt says nothing of that.
        settled = min(filter(None, (before.settled if before else 0, row.settled)), default=0)
        self._held[key] = _Holding(row.asked, row.arrived, row.held_until, settled)
        self._held_since.append((max(row.arrived, settled), row.arrived, key))

    def _forget(self, now: int) -> None:
        """Leases that are over for so long that they decide nothing any more."""
        while self._held_since and self._held_since[0][0] + self._keep < now:
            _, arrived, key = self._held_since.popleft()
            held = self._held.get(key)
            # It may have been handed out again since: then a later entry forgets it.
            if held is not None and held.arrived == arrived:
                del self._held[key]
                if held.settled:
                    self._views[key[0], key[1]].settled.add(key[2])


def _name_of(row: ReceivedRow) -> str:
    return f"message {row.number} of producer {row.stream}, view {row.subscription}, consumer {row.consumer}"


def all_sent(paths: Sequence[Path]) -> Iterator[SentRow]:
    """Of all senders, by the moment they were due."""
    return heapq.merge(*map(read_sent, paths), key=attrgetter("due"))


def all_received(paths: Sequence[Path]) -> Iterator[ReceivedRow]:
    """Of all receivers, by their arrival."""
    return heapq.merge(*map(read_received, paths), key=attrgetter("arrived"))


def judged(
    workload: Workload, sent: Iterable[SentRow], received: Iterable[ReceivedRow], quiet: Quiet | None = None
) -> Findings:
    """What a run did wrong.

    :param quiet: as for :class:`Judge`.
    """
    judge = Judge(workload, quiet=quiet)
    for one in sent:
        judge.sent(one)
    for receipt in received:
        judge.received(receipt)
    return judge.end()
