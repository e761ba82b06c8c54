"""Receipts: one text for each lease, and no other text is one."""

from __future__ import annotations

from uuid import UUID

import pytest

from queuey.api.receipts import Receipt
from queuey.errors import InvalidReceipt
from queuey.ids import MessageId

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
