"""Handed-out messages as JSON: made in one step, they are the same as one by one."""

from __future__ import annotations

from uuid import UUID

import orjson
from hypothesis import given
from hypothesis import strategies as st

from queuey.api.forms import json_page
from queuey.api.lease_pages import LeasedMessages, LeaseForm
from queuey.ids import EPOCH_TICKS, TICKS_PER_SECOND, ZERO_ID, tail_from_low
from queuey.model import Alike, Columns, Message
from queuey.model.holes import Hole
from queuey.model.lease_steps import LeaseOutcome
from queuey.model.receipts import Receipt, receipt_start

_NOW = EPOCH_TICKS + 17952366500128320
_QUEUE = UUID(int=7)
_TAIL = tail_from_low(0b10 << 62 | 7)
_MOMENTS = st.integers(_NOW, _NOW + 100 * TICKS_PER_SECOND)
_LEASES = st.builds(Hole, st.just(ZERO_ID), _MOMENTS, _MOMENTS, _MOMENTS, st.integers(1, 9), st.integers(0, 9))
_BODIES = st.text('ab \n\x1f\x7f\\",é', max_size=8).map(str.encode)


@given(
    st.lists(st.tuples(_BODIES, _LEASES), min_size=1, max_size=9),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.sampled_from([0, 5 * TICKS_PER_SECOND]),
)
def test_a_page_made_in_one_step_is_that_of_its_entries(
    made: list[tuple[bytes, Hole]], are_alike: bool, with_receipts: bool, names_queue: bool, stepped: int
) -> None:
    columns = Columns.of([Message(_NOW + at, _TAIL, 0, None, None, body) for at, (body, _) in enumerate(made)])
    leases = Alike(made[0][1], len(made)) if are_alike else [lease for _, lease in made]
    outcome = LeaseOutcome(_NOW, _NOW + stepped, [3])
    form = LeaseForm(outcome, "q", receipt_start(_QUEUE, 3) if with_receipts else "", names_queue)
    leased = LeasedMessages(form, 2, columns, leases)

    page = leased.plain(columns, 2)
    shown = leased.entries(columns[:1], 2) + (leased.entries(columns[1:], 2) if len(made) > 1 else [])

    assert page is not None
    assert orjson.loads(page) == orjson.loads(json_page(shown))
    assert {entry.get("queue") for entry in shown} == {"q" if names_queue else None}
    if with_receipts:
        receipts = [Receipt.parse(entry["receipt"]) for entry in shown]
        assert receipts == [
            Receipt(_QUEUE, 3, 2, message.id, lease.deliveries) for message, lease in zip(columns, leases, strict=True)
        ]
    else:
        assert not {"receipt", "visible_at"} & set(shown[0])
