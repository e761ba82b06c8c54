"""Order by key under redelivery: no message is handed out while an earlier one of its key is out, or waits for another try.

Only what is certain is judged. A message was handed out at some moment between the request and the receipt. It is out from
its first receipt until the first acknowledgement is sent that may have settled it, whatever the answer. Within that time it
may still have left its group for the dead letters, which opens its key. So it was out for certain only while its lease
surely held, or if it came again afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from qdo.bench.records import ReceivedRow

MOST_PASSED = 1 << 16
"""Messages of a stream that were passed while their lease may have been over, and that may come again. After that the one
that waits longest counts as a dead letter."""


class Overtaking(NamedTuple):
    """A later message of a key was handed out too soon."""

    number: int
    """Of the message that was out."""
    by: int
    arrived: int
    """When the later one came."""
    answer: tuple[int, int]
    """In which it came: the receiver, and when that asked."""


@dataclass(slots=True)
class _Out:
    """A message from its first receipt on."""

    since: int
    held_until: int
    settling: int
    answer: tuple[int, int]
    """That of its last receipt."""


class OpenKeys:
    """The messages of one stream, in one view, that are not settled yet. Receipts come in the order of their arrival."""

    __slots__ = ("_out", "_passed")

    def __init__(self) -> None:
        self._out: dict[int, dict[int, _Out]] = {}
        """By key and number: those that no later message has passed."""
        self._passed: dict[int, Overtaking] = {}
        """By number: those that were passed by a later one, and were out if they come again."""

    def take(self, row: ReceivedRow, *, is_stored: bool) -> list[Overtaking]:
        """The next receipt under a lease, of a message with a key. What it shows was overtaken is said once for each time
        that the message was handed out.

        :param is_stored: its sending was acknowledged. Another one may have been stored behind later ones, and then these
            do not overtake it.
        """
        known = self._out.setdefault(row.key, {})
        answer = row.consumer, row.asked
        found = self._overtaken(row, known, answer)
        if not is_stored:
            return found
        passed = self._passed.pop(row.number, None)
        if passed is not None and passed.answer != answer and max(row.asked, row.held_until) > passed.arrived:
            # It was not settled when it came again; or it had come again before, and its new lease held.
            found.append(passed)
        out = known.get(row.number)
        if out is None:
            known[row.number] = _Out(row.arrived, row.held_until, row.settling, answer)
            return found
        out.answer = answer
        out.held_until = max(out.held_until, row.held_until)
        out.settling = min(filter(None, (out.settling, row.settling)), default=0)
        return found

    def _overtaken(self, row: ReceivedRow, known: dict[int, _Out], answer: tuple[int, int]) -> list[Overtaking]:
        """Earlier messages of the key that are surely out; those of which it is not known yet are kept."""
        found: list[Overtaking] = []
        for number, out in [*known.items()]:
            if out.settling and out.settling <= row.arrived:
                del known[number]
                continue
            if number >= row.number or row.asked < out.since or out.answer == answer:
                continue  # one answer may have several of a key
            del known[number]
            overtaking = Overtaking(number, row.number, row.arrived, answer)
            if row.arrived < out.held_until:
                found.append(overtaking)
            else:
                self._passed[number] = overtaking
                if len(self._passed) > MOST_PASSED:
                    del self._passed[next(iter(self._passed))]
        return found
