"""What a node answers is understood wherever the network cuts it."""

from __future__ import annotations

import io
import struct
from typing import Any

import pytest
from cassandra.connection import _ConnectionIOBuffer, segment_codec_no_compression

from queuey.storage.cassandra.driver_loop import DriverConnection

_FRAME = struct.Struct(">BBhBI")
_ANSWER, _RESULT = 0x85, 8


class Hearing(DriverConnection):
    """A connection without a socket."""

    def __init__(self) -> None:
        self._io_buffer = _ConnectionIOBuffer(self)
        self._segment_codec, self._is_checksumming_enabled = segment_codec_no_compression, True
        self._io_buffer.set_checksumming_buffer()
        self._current_frame = None
        self.heard: list[bytes] = []

    def process_msg(self, header: Any, body: bytes) -> None:
        self.heard.append(body)


def _sent(bodies: list[bytes]) -> bytes:
    buffer = io.BytesIO()
    for body in bodies:
        segment_codec_no_compression.encode(buffer, _FRAME.pack(_ANSWER, 0, 1, _RESULT, len(body)) + body)
    return buffer.getvalue()


def test_answers_are_heard_wherever_they_are_cut() -> None:
    """Where the head of a segment was cut, the driver lost its beginning: the connection ended with all that waited for it."""
    bodies = [b"first", b"", b"third"]
    sent = _sent(bodies)
    for at in range(1, len(sent)):
        connection = Hearing()
        for piece in (sent[:at], sent[at:]):
            connection.took(piece)
        assert connection.heard == bodies, at


@pytest.mark.parametrize("size", [1, 2, 5, 1000, 128 << 10])
def test_a_large_answer_is_heard_in_pieces_of_any_size(size: int) -> None:
    bodies = [b"x" * (300 << 10 if size > 5 else 300), b"last"]
    sent, connection = _sent(bodies), Hearing()
    for at in range(0, len(sent), size):
        connection.took(sent[at : at + size])
    assert connection.heard == bodies
