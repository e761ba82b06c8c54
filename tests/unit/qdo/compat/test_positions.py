"""What other programs may have sent to the queue in which qdo 0.1 kept its positions."""

from __future__ import annotations

import pytest

from qdo.client.values import Message
from qdo.compat.positions import _position
from queuey.ids import MessageId


@pytest.mark.parametrize("body", [b"\xff", b"", b"{}", b"[]", b"7", b'{"partition": 7}', b"[" * 100_000])
def test_a_message_that_is_no_position_is_passed_over(body: bytes) -> None:
    assert _position(Message(MessageId(1, 1), 1, body)) is None
