"""Batches of rows that :mod:`~queuey.storage.cassandra.rows` has encoded.

The driver encodes a batch value by value, and looks up each value's column first. For an append of a hundred messages
that was the larger part of the work. So here the driver encodes an empty batch, and the rows are put in.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from typing import Any

from cassandra.protocol import ProtocolHandler
from cassandra.query import BatchStatement, BatchType

_BEFORE_ROWS = 3
"""Bytes of a batch before its first row: its kind, and the number of rows."""


class EncodedBatch(BatchStatement):  # type: ignore[misc]
    """An unlogged batch for one Cassandra partition."""

    def __init__(self, rows: Sequence[bytes], routing_key: bytes, keyspace: str) -> None:
        super().__init__(BatchType.UNLOGGED)
        self._statements_and_parameters = _Rows(rows)  # the driver builds its message from this
        self.routing_key = routing_key
        self.keyspace = keyspace
        self.is_idempotent = True


class _Rows:
    """The number of rows, as the driver sees it.

    :class:`EncodedHandler` puts the rows in.
    """

    def __init__(self, rows: Sequence[bytes]) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def put_into(self, batch: bytes) -> bytes:
        return b"".join((batch[:_BEFORE_ROWS], *self._rows, batch[_BEFORE_ROWS:]))


class EncodedHandler(ProtocolHandler):  # type: ignore[misc]
    """The driver's handler, extended with encoded rows."""

    @classmethod
    def encode_message(cls, msg: Any, *how: Any, **named: Any) -> bytes:
        if isinstance(getattr(msg, "queries", None), _Rows):
            msg = _Filled(msg)
        encoded: bytes = super().encode_message(msg, *how, **named)
        return encoded


class _Filled:
    """A batch message with its rows put in."""

    def __init__(self, message: Any) -> None:
        self._message = message
        self.opcode = message.opcode
        self.tracing = message.tracing
        self.custom_payload = message.custom_payload

    def send_body(self, file: Any, protocol_version: int) -> None:
        empty = io.BytesIO()
        self._message.send_body(empty, protocol_version)
        file.write(self._message.queries.put_into(empty.getvalue()))
