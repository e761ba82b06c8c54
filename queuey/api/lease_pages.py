"""Messages that were handed out, as JSON with their leases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import orjson

from queuey.api.forms import NEXT_MESSAGE, entries, plain_answer, plain_page
from queuey.ids import format_timestamp
from queuey.model import Columns, Message
from queuey.model.holes import Hole
from queuey.model.lease_steps import LeaseOutcome
from queuey.model.receipts import receipt_ends

__all__ = ["LeaseForm", "LeasedMessages"]


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
        first = format_timestamp(self.outcome.to_wall(lease.first_delivered))
        text = f'"deliveries":{lease.deliveries},"failures":{lease.failures},"first_delivered":"{first}"'
        if self.names_queue:
            text = f'"queue":"{self.queue}",{text}'
        if not self.receipts:
            return text
        return f'{text},"visible_at":"{format_timestamp(self.outcome.to_wall(lease.visible_at))}"'

    def before_receipt(self, lease: Hole) -> str:
        """What stands behind a body as JSON, up to the end of the receipt."""
        return f'",{self.text(lease)},"receipt":"{self.receipts}' if self.receipts else f'",{self.text(lease)}'


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
            end = f'{self.receipt_ends(columns)[0]}"' if form.receipts else ""
            return plain_answer(columns, partition, form.before_receipt(leases[0]) + end)
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
