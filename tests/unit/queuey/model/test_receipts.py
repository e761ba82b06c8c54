"""Receipts: one text for each lease, and no other text is one."""

from __future__ import annotations

from uuid import UUID

import pytest

from queuey.errors import InvalidReceipt
from queuey.ids import MessageId
from queuey.model.receipts import Receipt, parse_receipts

RECEIPT = Receipt(
    UUID("0d7f6c1e5b0b4d5c9a5a9df2f5f0b1aa"), (1 << 63) - 1, 200, MessageId.parse("1f9f662fe56711f189bf02fc00000001"), 3
)
TEXT = RECEIPT.text()


def test_a_receipt_is_read_as_it_was_written() -> None:
    assert Receipt.parse(TEXT) == RECEIPT
    assert set("-_") <= set(TEXT)


@pytest.mark.parametrize(
    "text",
    [
        "",
        TEXT[:-4],
        TEXT + "AAAA",
        TEXT + "=",
        TEXT + "\n",
        TEXT[:7] + "!" + TEXT[7:],
        TEXT.replace("-", "+"),
        TEXT.replace("_", "/"),
        TEXT + "A" * 10_000_000,
        "é" * 60,
        "!" * 60,
        RECEIPT._replace(partition=0).text(),
        "A" * 60,
    ],
    ids=range(13),
)
def test_nothing_else_is_a_receipt(text: str) -> None:
    """A decoder of base64 passes over foreign characters, and so two texts named one lease."""
    with pytest.raises(InvalidReceipt) as refusal:
        Receipt.parse(text)

    assert len(str(refusal.value)) < 80


def test_receipts_of_several_partitions_are_taken_apart_in_their_order() -> None:
    receipts = [
        RECEIPT._replace(partition=number, id=RECEIPT.id._replace(ticks=at), delivery=at + 1)
        for at, number in enumerate([2, 1, 2, 2])
    ]

    found = parse_receipts([one.text() for one in receipts])

    assert found is not None
    assert [(number, [*ids], [*deliveries]) for number, ids, deliveries in found.by_partition()] == [
        (2, [receipts[0].id, receipts[2].id, receipts[3].id], [1, 3, 4]),
        (1, [receipts[1].id], [2]),
    ]
    assert parse_receipts([receipts[0].text(), 5]) is None  # type: ignore[list-item]  # as JSON may have it
    assert parse_receipts([receipts[0].text()[:-1], receipts[1].text() + "A"]) is None
