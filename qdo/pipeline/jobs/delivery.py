"""What became of messages, from what senders and receivers logged: by columns, for many queues at once.

The definitions are those of :mod:`qdo.measure`, which judges one sequence. Tests compare the two.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from qdo.measure import longest_rise

Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]

NO_TIME = np.iinfo(np.int64).min
"""In place of a time or a duration that the log does not have."""
NO_CHECKSUM = 0
RANKS: Mapping[str, float] = {"p50": 50, "p90": 90, "p95": 95, "p99": 99, "p99_9": 99.9, "max": 100}
"""Percentiles by the name of their column."""
CALLS = ("send", "receive", "delivery")
"""The calls with a duration: sending, receiving, and the delivery from the start of the send to the first answer with it."""

_PIECE = 1 << 20
_KEPT_BITS = 8
"""Bits of a duration that is only counted: its error is below one percent."""


@dataclass(frozen=True)
class Lines:
    """Lines of both kinds of log, one element for each line. All lines of a queue are together, in any order.

    What a log does not have is the same number everywhere.
    """

    queue: Integers
    """Numbers from 0 on; ``queues`` is how many there are."""
    queues: int
    partition: Integers
    """Messages have an order within one partition."""
    high: Integers
    low: Integers
    """Both together identify a message within its partition. They are also the order of sending, unless ``order`` is given."""
    order: Integers
    """The order of sending, in lines of senders."""
    received: Booleans
    """True for a receipt."""
    at: Integers
    """Microseconds: when the call to send began, or when the answer with the message came."""
    position: Integers
    """The order among receipts with equal ``at``."""
    checksum: Integers
    took: Integers
    """Microseconds that the call took."""


class Tally(NamedTuple):
    """How often each value occurred, with rising values."""

    values: Integers
    counts: Integers


@dataclass(frozen=True)
class Figures:
    """Figures of all queues: each array has one element for each queue."""

    counts: Mapping[str, Integers]
    times: Mapping[str, Integers]
    """First and last of each kind; :data:`NO_TIME` if there is none."""
    percentiles: Mapping[str, Integers]
    """Microseconds, by ``delivery_p99`` and so on; :data:`NO_TIME` if there are none."""
    tallies: Mapping[str, Tally]
    """Of all queues together: calls by microseconds, rounded down by less than one percent; ``sent``, ``received`` by second."""


class _Messages:
    """Lines in the order of identity, and what they say of each message."""

    def __init__(self, lines: Lines) -> None:
        by_id = ascending(lines.queue, lines.partition, lines.high, lines.low, lines.received, lines.at, lines.position)
        identity = (lines.queue, lines.partition, lines.high, lines.low)
        begins = _begins(*(column[by_id] for column in identity))
        self.start = np.flatnonzero(begins)
        number = np.cumsum(begins) - 1
        received = lines.received[by_id]
        count = len(self.start)
        self.receipts: Integers = np.bincount(number[received], minlength=count)
        self.first = by_id[np.minimum(self.start + np.bincount(number[~received], minlength=count), len(by_id) - 1)]
        """The line of the first receipt, if there is one: receipts come behind sends."""
        self.start = by_id[self.start]
        self.sent = ~lines.received[self.start]
        checksum = lines.checksum[by_id]
        due = np.where(self.sent, lines.checksum[self.start], NO_CHECKSUM)[number]
        right = received & ((checksum == due) | (checksum == NO_CHECKSUM) | (due == NO_CHECKSUM))
        self.right: Integers = np.bincount(number[right], minlength=count)
        self.queue = lines.queue[self.start]


def judge(lines: Lines) -> Figures:
    """What happened in each queue.

    A message counts as sent once, however often its line occurs. A duplicate is a receipt after the first of a message.
    A message is lost if it has no receipt, and corrupt if no receipt has the checksum with which it was sent. A receipt of
    a message that nobody sent is a stranger, and counts nowhere else. Order and times are those of first receipts.
    """
    messages = _Messages(lines)

    def by_queue(which: Booleans, weights: Any = None) -> Integers:
        chosen = None if weights is None else weights[which]
        return np.bincount(messages.queue[which], chosen, lines.queues).astype(np.int64)

    arrived = messages.sent & (messages.receipts > 0)
    rises, moved = _order(lines, messages, arrived)
    counts = {
        "sent": by_queue(messages.sent),
        "received": by_queue(arrived),
        "duplicates": by_queue(arrived, messages.receipts - 1),
        "missing": by_queue(messages.sent & (messages.receipts == 0)),
        "corrupt": by_queue(arrived & (messages.right == 0)),
        "strangers": by_queue(~messages.sent, messages.receipts),
        "out_of_order": by_queue(arrived) - rises,
        "displaced": moved,
    }
    return Figures(counts, *_times(lines, messages, arrived))


def _order(lines: Lines, messages: _Messages, arrived: Booleans) -> tuple[Integers, Integers]:
    """Lengths of the longest rises, and sums of displacement, by queue.

    Ranks continue from one partition to the next, so all ranks of the next partition are greater. Its rise and its places
    follow those before, and the partitions need not be taken apart.
    """
    sent, first = messages.start[arrived], messages.first[arrived]
    queue, partition = lines.queue[sent], lines.partition[sent]
    rank = np.empty(len(sent), np.int64)
    rank[ascending(queue, partition, lines.order[sent], np.arange(len(sent)))] = np.arange(len(sent))
    by_receipt = ascending(queue, partition, lines.at[first], lines.position[first], rank)
    ranks = rank[by_receipt]
    distance = np.abs(ranks - np.arange(len(ranks)))
    # In both orders messages are sorted by queue, so a place belongs to the same queue in both.
    moved = np.bincount(queue, distance, lines.queues)
    ends = np.cumsum(np.bincount(queue, minlength=lines.queues))
    starts = np.concatenate([[0], ends[:-1]])
    rises = [_rise(ranks[start:end]) for start, end in zip(starts, ends, strict=True)]
    return np.array(rises, np.int64), moved.astype(np.int64)


def _rise(ranks: Integers) -> int:
    """The longest rise of one queue. In compact memory, since a queue may be very long."""
    ends = array("q")
    for at in range(0, len(ranks), _PIECE):
        longest_rise(ranks[at : at + _PIECE].tolist(), ends)
    return len(ends)


def _times(
    lines: Lines, messages: _Messages, arrived: Booleans
) -> tuple[dict[str, Integers], dict[str, Integers], dict[str, Tally]]:
    sent = messages.start[messages.sent]
    receipts = np.flatnonzero(lines.received)
    way = _way(lines, messages.start[arrived], messages.first[arrived])
    took = {
        "send": (lines.queue[sent], lines.took[sent]),
        "receive": (lines.queue[receipts], lines.took[receipts]),
        "delivery": (messages.queue[arrived], way),
    }
    percentiles, tallies = {}, {}
    for call, (queue, micros) in took.items():
        known = micros != NO_TIME
        for name, values in percentiles_by(queue[known], micros[known], lines.queues).items():
            percentiles[f"{call}_{name}"] = values
        tallies[call] = tally(rounded_down(micros[known]))
    times: dict[str, Integers] = {}
    for kind, of_kind in (("sent", sent), ("received", receipts)):
        known = of_kind[lines.at[of_kind] != NO_TIME]
        found = percentiles_by(lines.queue[known], lines.at[known], lines.queues, {"first": 0, "last": 100})
        times |= {f"{name}_{kind}": values for name, values in found.items()}
        tallies[kind] = tally(lines.at[known] // 1_000_000)
    return times, percentiles, tallies


def _way(lines: Lines, sent: Integers, first: Integers) -> Integers:
    """From the start of the send to the first receipt."""
    known = (lines.at[sent] != NO_TIME) & (lines.at[first] != NO_TIME)
    return np.where(known, lines.at[first] - np.where(known, lines.at[sent], 0), NO_TIME)


def ascending(*keys: npt.NDArray[Any]) -> Integers:
    """The order by the first key, then the second and so on. Elements that are equal in all keys are in any order.

    Keys are combined into one number as far as 63 bits go: numpy sorts one key faster than several.

    >>> ascending(np.array([1, 0, 1]), np.array([5, 7, 3])).tolist()
    [1, 2, 0]
    """
    packed: list[Integers] = []
    room = 0
    for key in keys:
        if not len(key):
            break
        least, bits = int(key.min()), (int(key.max()) - int(key.min())).bit_length()
        if not bits:
            continue
        if bits > 63:
            packed.append(key)
            room = 0
            continue
        above = key.astype(np.int64, copy=True)
        above -= least
        if bits <= room:
            packed[-1] = (packed[-1] << bits) | above
            room -= bits
        else:
            packed.append(above)
            room = 63 - bits
    if not packed:
        return np.arange(len(keys[0]))
    return np.argsort(packed[0]) if len(packed) == 1 else np.lexsort(packed[::-1])


def _begins(*keys: npt.NDArray[Any]) -> Booleans:
    """Where one of these sorted keys differs from the element before; True for the first element."""
    begins = np.zeros(len(keys[0]), np.bool_)
    begins[:1] = True
    for key in keys:
        begins[1:] |= key[1:] != key[:-1]
    return begins


def percentiles_by(
    queue: Integers, values: Integers, queues: int, ranks: Mapping[str, float] = RANKS
) -> dict[str, Integers]:
    """Percentiles by queue, defined as in :func:`qdo.measure.percentiles`.

    :returns: by name of the rank, one element for each queue; :data:`NO_TIME` for a queue without values.

    >>> percentiles_by(np.zeros(1000, int), np.arange(1, 1001), 2)["p99_9"].tolist()
    [999, -9223372036854775808]
    """
    counts = np.bincount(queue, minlength=queues)
    starts = np.cumsum(counts) - counts
    ordered = values[ascending(queue, values)]
    found = {}
    for name, rank in ranks.items():
        at = starts + np.maximum(np.ceil(np.round(rank * counts / 100, 9)).astype(np.int64) - 1, 0)
        there = counts > 0
        column = np.full(queues, NO_TIME)
        column[there] = ordered[at[there]]
        found[name] = column
    return found


def rounded_down(micros: Integers) -> Integers:
    """Rounded towards zero, to eight binary digits.

    >>> rounded_down(np.array([0, 255, 257, -1001])).tolist()
    [0, 255, 256, -1000]
    """
    size = np.abs(micros)
    digits = np.frexp(size.astype(np.float64))[1]
    less = np.maximum(digits - _KEPT_BITS, 0)
    kept: Integers = (size >> less) << less
    return np.where(micros < 0, -kept, kept)


def tally(values: Integers) -> Tally:
    found, counts = np.unique(values, return_counts=True)
    return Tally(found, counts)


def tally_percentiles(counted: Sequence[tuple[int, int]], ranks: Mapping[str, float] = RANKS) -> dict[str, int]:
    """Percentiles as in :func:`qdo.measure.percentiles`, from values and how often each occurred.

    :returns: by name of the rank; empty if there are no values.

    >>> tally_percentiles([(10, 98), (20, 1), (30, 1)], {"p50": 50, "p99": 99, "max": 100})
    {'p50': 10, 'p99': 20, 'max': 30}
    """
    if not counted:
        return {}
    values, counts = (np.array(column) for column in zip(*sorted(counted), strict=True))
    reached = np.cumsum(counts)
    wanted = {name: max(1, int(np.ceil(round(rank * int(reached[-1]) / 100, 9)))) for name, rank in ranks.items()}
    return {name: int(values[np.searchsorted(reached, at)]) for name, at in wanted.items()}
