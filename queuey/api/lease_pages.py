"""Messages that were handed out, as JSON with their leases."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import orjson

from queuey.api.forms import NEXT_MESSAGE, entries, plain_answer, plain_page
from queuey.ids import format_timestamp
from queuey.model import Columns, Message
from queuey.model.holes import Hole
from queuey.model.lease_steps import HandedAlone, LeaseOutcome
from queuey.model.receipts import receipt_end, receipt_ends

__all__ = ["LeaseForm", "LeasedMessages", "alone_page"]


class LeaseForm(NamedTuple):
    """How the leases of one group are shown."""

    outcome: LeaseOutcome
    queue: str
    receipts: str = ""
    """What its receipts begin with. Messages that are settled already have none."""
    names_queue: bool = False
    """Each message as JSON names its queue."""

    def members(self, lease: Hole) -> dict[str, Any]:
        """What a message has beside its own members, without the receipt."""
        shown: dict[str, Any] = orjson.loads(f"{{{self.text(lease)}}}")
        return shown

    def text(self, lease: Hole) -> str:
        """The same as JSON, without the braces."""
        to_wall = self.outcome.to_wall
        visible = to_wall(lease.visible_at) if self.receipts else None
        text = _lease_text(lease.deliveries, lease.failures, to_wall(lease.first_delivered), visible)
        return f'"queue":"{self.queue}",{text}' if self.names_queue else text

    def before_receipt(self, lease: Hole) -> str:
        """What stands behind a body as JSON, up to the end of the receipt."""
        return f'",{self.text(lease)},"receipt":"{self.receipts}' if self.receipts else f'",{self.text(lease)}'


@lru_cache(maxsize=256)
def _lease_text(deliveries: int, failures: int, first: int, visible: int | None) -> str:
    """The members of a lease as JSON. All first leases of a commit have the same.

    :param first: when the message was first handed out, in ticks of the wall clock.
    :param visible: when the lease runs out; None if it is not shown.
    """
    text = f'"deliveries":{deliveries},"failures":{failures},"first_delivered":"{format_timestamp(first)}"'
    return text if visible is None else f'{text},"visible_at":"{format_timestamp(visible)}"'


def alone_page(form: LeaseForm, handed: HandedAlone, beside: str) -> bytes | None:
    """The whole answer with one message, if :func:`~queuey.api.forms.plain_answer` can show it; None otherwise.

    :param beside: see there.
    """
    message, partition = handed.message, handed.partition
    behind = form.before_receipt(handed.lease)
    if form.receipts:
        behind = f'{behind}{receipt_end(partition, message.ticks, message.tail, handed.lease.deliveries)}"'
    return plain_answer(message, partition, behind, beside)


_AFTER_RECEIPT = f'"{NEXT_MESSAGE}'


class LeasedMessages:
    """Messages of one partition and their leases."""

    __slots__ = ("_shown", "form", "leases", "messages", "partition")

    def __init__(self, form: LeaseForm, partition: int, messages: Columns, leases: Sequence[Hole]) -> None:
        self.form, self.partition = form, partition
        self.messages, self.leases = messages, leases
        self._shown = 0

    def plain(self, messages: Sequence[Message], partition: int) -> bytes | None:
        """All of them as :func:`~queuey.api.forms.plain_page` shows messages."""
        leases, form = self.leases, self.form
        columns = Columns.of(messages)
        if len(columns) == 1:
            return alone_page(form, HandedAlone(partition, columns[0], leases[0]), "")
        if leases.count(leases[0]) == len(leases):
            texts = [form.before_receipt(leases[0])] * len(leases)
        else:
            texts = [*map(form.before_receipt, leases)]
        if form.receipts:
            texts = [
                before + end + _AFTER_RECEIPT for before, end in zip(texts, self.receipt_ends(columns), strict=True)
            ]
        else:
            texts = [before + NEXT_MESSAGE for before in texts]
        return plain_page(columns, partition, texts)

    def entries(self, messages: Sequence[Message], partition: int) -> list[dict[str, Any]]:
        """As :func:`~queuey.api.forms.entries`. All of them are shown once, in order."""
        shown, form = entries(messages, partition), self.form
        for entry, lease, end in zip(shown, self.leases[self._shown :], self.receipt_ends(messages)):  # noqa: B905 - more leases may follow
            entry.update(form.members(lease))
            if form.receipts:
                entry["receipt"] = form.receipts + end
        self._shown += len(shown)
        return shown

    def receipt_ends(self, messages: Sequence[Message]) -> Sequence[str]:
        """The ends of the receipts of the messages that are shown next."""
        columns = Columns.of(messages)
        leases = self.leases[self._shown : self._shown + len(columns)]
        return receipt_ends(self.partition, columns.ticks, columns.tails, [lease.deliveries for lease in leases])
