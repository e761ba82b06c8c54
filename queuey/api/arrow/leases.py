"""Messages that were handed out, as Arrow with their leases."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from queuey.api.arrow.answers import ArrowForm
from queuey.api.forms import PLAIN_COLUMNS
from queuey.api.lease_pages import LeasedMessages
from queuey.ids import EPOCH_TICKS
from queuey.model import Columns

__all__ = ["arrow_leases"]

_OF_LIVE_LEASES = ("receipt", "visible_at")
"""A message that is settled already has none."""
_OF_LEASES = ("deliveries", "failures", "first_delivered", *_OF_LIVE_LEASES)


def arrow_leases(leased: Iterable[LeasedMessages], beside: Mapping[str, Any]) -> bytes:
    """A whole Arrow stream.

    :param beside: what the answer says beside its messages. It is in the metadata of the schema, each value as JSON
        under its name with ``queuey.`` before it.
    """
    form = _Form(
        (*PLAIN_COLUMNS, *_OF_LEASES),
        "",
        {f"queuey.{name}": orjson.dumps(value).decode() for name, value in beside.items()},
    )
    return form.whole(leased)


class _Form(ArrowForm):
    _leased: LeasedMessages
    """What the next record batch has."""

    def whole(self, leased: Iterable[LeasedMessages]) -> bytes:
        chunks = [*self.start()]
        for self._leased in leased:
            if self._leased.form.queue != self._queue:
                self._queue, self._queues = self._leased.form.queue, ()
            for chunk in self.rows(self._leased.messages, self._leased.partition):
                chunks += chunk
        self._writer.close()
        return b"".join([*chunks, *self._out.take()])

    def _types(self) -> dict[str, Any]:
        pa = self._pa
        moment = pa.timestamp("us", tz="UTC")
        return super()._types() | {
            "receipt": pa.string(),
            "deliveries": pa.int32(),
            "failures": pa.int32(),
            "first_delivered": moment,
            "visible_at": moment,
        }

    def _array(self, name: str, kind: Any, columns: Columns, partition: int) -> Any:
        if name not in _OF_LEASES:
            return super()._array(name, kind, columns, partition)
        pa, leased = self._pa, self._leased
        leases, form = leased.leases, leased.form
        if name in _OF_LIVE_LEASES and not form.receipts:
            return pa.nulls(len(leases), kind)
        if name == "receipt":
            return pa.array([form.receipts + end for end in leased.receipt_ends(columns)], kind)
        alike = leases.count(leases[0]) == len(leases)
        values = [getattr(lease, name) for lease in (leases[:1] if alike else leases)]
        if pa.types.is_timestamp(kind):
            values = [(form.outcome.to_wall(moment) - EPOCH_TICKS) // 10 for moment in values]
        made = pa.array(values, kind)
        return pa.repeat(made[0], len(leases)) if alike else made
