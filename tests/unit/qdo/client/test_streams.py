"""Streams: a whole one has its end mark, and a broken one is refused."""

from __future__ import annotations

import io
import json

import pyarrow as pa
import pytest

from qdo.client import Client, StreamEnd
from queuey.errors import (
    BrokenStream,
)
from tests.support.client_answers import HEX
from tests.support.scripted_server import Say, Script

END = {"rows": 2, "cursor": "c", "more": False, "watermark": "1.0000000"}
LINES = [json.dumps({"message_id": HEX, "partition": 1, "body": text}).encode() for text in ("a", "b")]
MARK = json.dumps({"end": END}).encode()


def test_a_whole_stream_gives_its_rows_and_its_end(client: Client, script: Script) -> None:
    script.say(Say(200, b"\n".join([*LINES, MARK, b""])))

    with client.stream_ndjson("q") as stream:
        bodies = [message.text for message in stream]

    assert (bodies, stream.end) == (["a", "b"], StreamEnd(2, "c", more=False, watermark="1.0000000"))
    assert script.asked[0].headers["Accept"] == "application/x-ndjson"


@pytest.mark.parametrize(
    "answer",
    [
        Say(200, b""),
        Say(200, b"\n".join(LINES)),
        Say(200, b"\n".join(LINES), cut=True),
        Say(200, b"\n".join([LINES[0], MARK])),
        Say(200, b"\n".join([*LINES, LINES[0], MARK])),
        Say(200, b"\n".join([*LINES, MARK[:-5]])),
        Say(200, b"\n".join([*LINES, MARK, LINES[0]])),
        Say(200, b"\n".join([*LINES, b"7", MARK])),
        Say(200, b"\n".join([*LINES, b'{"message": "none"}', MARK])),
        Say(200, b"\n".join([*LINES, b'{"end": {"rows": 2}}'])),
    ],
    ids=[
        *("empty", "no mark", "cut", "row lost", "row too many", "mark cut", "rows after the mark"),
        *("a number", "no message", "half a mark"),
    ],
)
def test_a_stream_that_broke_is_refused(client: Client, script: Script, answer: Say) -> None:
    script.say(answer)

    with client.stream_ndjson("q") as stream, pytest.raises(BrokenStream):
        list(stream)


def arrow(marked_rows: int | None) -> bytes:
    schema = pa.schema([("body", pa.binary())])
    out = io.BytesIO()
    with pa.ipc.new_stream(out, schema) as writer:
        writer.write_batch(pa.record_batch([[b"a", b"b"]], schema=schema))
        if marked_rows is not None:
            told = {"rows": str(marked_rows), "next": "c", "more": "0", "watermark": "1.0000000"}
            empty = pa.RecordBatch.from_pylist([], schema=schema)
            writer.write_batch(empty, custom_metadata={f"queuey.{name}": text for name, text in told.items()})
    return out.getvalue()


def test_a_whole_arrow_stream_gives_its_batches_and_its_end(client: Client, script: Script) -> None:
    script.say(Say(200, arrow(2)))

    with client.read_arrow("q", columns=["body"]) as stream:
        rows = [body for batch in stream for body in batch.column("body").to_pylist()]

    assert (rows, stream.end) == ([b"a", b"b"], StreamEnd(2, "c", more=False, watermark="1.0000000"))
    assert stream.schema.names == ["body"]
    assert "columns=body" in script.asked[0].path


@pytest.mark.parametrize(
    "answer",
    [
        Say(200, b""),
        Say(200, arrow(None)),
        Say(200, arrow(3)),
        Say(200, arrow(2)[:300]),
        Say(200, arrow(2)[:300], cut=True),
    ],
    ids=["empty", "no mark", "row lost", "closed early", "cut"],
)
def test_an_arrow_stream_that_broke_is_refused(client: Client, script: Script, answer: Say) -> None:
    script.say(answer)

    with client.read_arrow("q") as stream, pytest.raises(BrokenStream):
        list(stream)
