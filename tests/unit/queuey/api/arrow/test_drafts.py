"""Batches that no Arrow library has written."""

from __future__ import annotations

from contextlib import suppress
from uuid import UUID

import pyarrow as pa
import pytest

from queuey.api.arrow.drafts import arrow_drafts
from queuey.errors import InvalidParameter
from queuey.http.exchange import ARROW, Call
from queuey.model import Drafts, Queue
from queuey.settings import Settings


def stream() -> bytes:
    """A batch with a column of each kind."""
    texts = {name: pa.array(["é", None]) for name in ("key", "content_type", "idempotency_key")}
    table = pa.table(
        {
            "body": pa.array([b"a", b"\xff"]),
            "ttl": pa.array([60, None]),
            "deliver_at": pa.array([0, None], pa.timestamp("ms", "UTC")),
            "headers": pa.array([[("kind", "order")], None], pa.map_(pa.string(), pa.string())),
            **texts,
        }
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    whole: bytes = sink.getvalue().to_pybytes()
    return whole


STREAM = stream()


def taken(body: bytes) -> Drafts:
    call = Call("POST", "/v1/demo/q", "batch=true", {"content-type": ARROW})
    call.body = body
    return arrow_drafts(call, Queue("demo", "q", UUID(int=1), 0, partitions=2), Settings(), 1 << 57)


def test_a_name_of_a_column_that_is_no_text_is_refused() -> None:
    with pytest.raises(InvalidParameter) as refused:
        taken(STREAM.replace(b"deliver_at", b"deliver\xffat"))

    assert set(refused.value.problems) == {"body"}


def test_a_batch_with_a_damaged_byte_is_taken_or_refused() -> None:
    for at in range(len(STREAM)):
        with suppress(InvalidParameter):
            taken(STREAM[:at] + b"\xff" + STREAM[at + 1 :])
