"""Batches that come as Arrow."""

from __future__ import annotations

import base64
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
import requests

from tests.support.client import Server, refused

ARROW = "application/vnd.apache.arrow.stream"


def stream(**columns: Any) -> bytes:
    table = pa.table(columns)
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, table.schema) as writer:
        writer.write_table(table, max_chunksize=2)
    return bytes(out.getvalue())


def post(server: Server, name: str, data: bytes, **headers: str) -> requests.Response:
    wanted = {"Content-Type": ARROW} | {header.replace("_", "-"): text for header, text in headers.items()}
    return server.request("POST", f"/v1/queuey/{name}", params={"batch": "true"}, data=data, headers=wanted)


def test_a_row_becomes_a_message_with_all_that_it_says(server: Server) -> None:
    name = server.queue(partitions=4)
    data = stream(
        body=[b"\xff\x00", b"plain", b"third"],
        partition=[2, None, 3],
        key=[None, "user-7", None],
        content_type=["image/png", None, None],
        ttl=[60, None, 3600],
    )

    answer = post(server, name, data)

    assert answer.status_code == 201
    placed = answer.json()["messages"]
    found = {entry["message_id"]: entry for entry in server.read(name, partitions="all")}
    first, second, third = (found[place["key"]] for place in placed)
    assert [place["partition"] for place in placed] == [entry["partition"] for entry in (first, second, third)]
    assert (base64.b64decode(first["body"]), first["content_type"], first["partition"]) == (b"\xff\x00", "image/png", 2)
    assert (second["body"], second["key"]) == ("plain", "user-7")
    assert (third["body"], third["partition"]) == ("third", 3)


def test_texts_of_any_arrow_type_are_bodies(server: Server) -> None:
    name = server.queue()

    for kind in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary()):
        assert post(server, name, stream(body=pa.array(["ä"], kind))).status_code == 201

    assert [entry["body"] for entry in server.read(name)] == ["ä"] * 4


def test_a_batch_is_answered_briefly_if_that_is_preferred(server: Server) -> None:
    name = server.queue()

    answer = post(server, name, stream(body=["a", "b", "c"]), Prefer="return=minimal")

    assert (answer.status_code, answer.json()) == (201, {"status": "ok", "stored": 3})
    assert answer.headers["Preference-Applied"] == "return=minimal"
    assert [entry["body"] for entry in server.read(name)] == ["a", "b", "c"]


def test_a_batch_is_repeated_safely_and_no_other_passes_for_it(server: Server) -> None:
    name = server.queue()
    data = stream(body=["a", "b"])

    first = post(server, name, data, Idempotency_Key="job-1")
    again = post(server, name, data, Idempotency_Key="job-1")
    other = post(server, name, stream(body=["a", "c"]), Idempotency_Key="job-1")

    assert first.json() == again.json()
    assert again.headers["Idempotency-Replayed"] == "true"
    assert other.status_code == 422
    assert [entry["body"] for entry in server.read(name)] == ["a", "b"]


def test_a_message_has_a_key_of_its_own_that_outlives_its_batch(server: Server) -> None:
    name = server.queue()

    post(server, name, stream(body=["a", "b"], idempotency_key=["1", "2"]))
    post(server, name, stream(body=["c", "b"], idempotency_key=["3", "2"]))

    assert [entry["body"] for entry in server.read(name)] == ["a", "b", "c"]


def test_a_message_is_delivered_at_its_time(server: Server) -> None:
    name = server.queue()
    due = datetime.now(UTC) + timedelta(hours=1)

    (placed,) = post(server, name, stream(body=["later"], deliver_at=[due])).json()["messages"]

    assert abs(float(placed["timestamp"]) - due.timestamp()) < 1
    assert float(placed["timestamp"]) > time.time()
    assert server.read(name) == []


@pytest.mark.parametrize("zone", [None, "UTC"])
@pytest.mark.parametrize(
    ("unit", "per_second", "fraction"), [("s", 1, 0), ("ms", 10**3, 10**4), ("us", 10**6, 10), ("ns", 10**9, 1)]
)
def test_a_time_of_any_unit_is_taken_and_none_is_early(
    server: Server, unit: str, per_second: int, fraction: int, zone: str | None
) -> None:
    """Pandas sends nanoseconds, of which a hundred are the least step of an id."""
    name, second = server.queue(), int(time.time()) + 3600
    moment = second * per_second + (unit != "s")

    answer = post(server, name, stream(body=["x"], deliver_at=pa.array([moment], pa.timestamp(unit, zone))))

    assert [placed["timestamp"] for placed in answer.json()["messages"]] == [f"{second}.{fraction:07}"]


def test_a_time_that_no_other_unit_holds_is_refused(server: Server) -> None:
    name, times = server.queue(), pa.array([1 << 62], pa.timestamp("s"))

    refused(post(server, name, stream(body=["x"], deliver_at=times)), 400, "0.deliver_at")


def test_an_empty_batch_stores_nothing(server: Server) -> None:
    assert post(server, server.queue(), stream(body=pa.array([], pa.binary()))).json()["messages"] == []


@pytest.mark.parametrize(
    ("columns", "field"),
    [
        ({"body": ["a", None]}, "1.body"),
        ({"body": ["a", ""]}, "1.body"),
        ({"body": ["a", "b"], "partition": [1, 9]}, "1.partition"),
        ({"body": ["a", "b"], "ttl": [0, 5]}, "0.ttl"),
        ({"body": ["a", "b"], "key": ["k", "x" * 257]}, "1.key"),
        ({"body": ["a", "b"], "key": ["k", None], "partition": [1, None]}, "0.key"),
        ({"body": ["a"], "content_type": ["ä"]}, "0.content_type"),
        ({"body": ["a"], "deliver_at": [datetime.now(UTC) + timedelta(days=400)]}, "0.deliver_at"),
        ({"body": ["a"], "idempotency_key": ["ä"]}, "0.idempotency_key"),
        ({"body": [1, 2]}, "body"),
        ({"body": ["a"], "ttl": ["soon"]}, "ttl"),
        ({"body": ["a"], "priority": [1]}, "body"),
        ({"key": ["a"]}, "body"),
    ],
)
def test_a_bad_row_refuses_the_whole_batch(server: Server, columns: dict[str, Any], field: str) -> None:
    name = server.queue(partitions=2)

    refused(post(server, name, stream(**columns)), 400, field)

    assert server.read(name, partitions="all") == []


def packed(**how: Any) -> bytes:
    table = pa.table({"body": how.pop("column", pa.array([b"x" * 1000] * 10))})
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, table.schema, options=pa.ipc.IpcWriteOptions(**how)) as writer:
        writer.write_table(table)
    return bytes(out.getvalue())


@pytest.mark.parametrize(
    "data",
    [
        packed(compression="zstd"),
        packed(compression="lz4"),
        packed(column=pa.array(["x" * 1000] * 10).dictionary_encode()),
        packed(column=pa.array(["x" * 1000] * 10, pa.string_view())),
        packed(column=pa.RunEndEncodedArray.from_arrays(pa.array([1 << 20]), pa.array(["x"]))),
    ],
    ids=["zstd", "lz4", "dictionary", "view", "run-end"],
)
def test_what_would_grow_when_it_is_read_is_refused(server: Server, data: bytes) -> None:
    name = server.queue()

    refused(post(server, name, data), 400, "body")

    assert server.read(name) == []


def chunked(rows: int, size: int) -> bytes:
    table = pa.table({"body": ["x"] * rows})
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, table.schema) as writer:
        writer.write_table(table, max_chunksize=size)
    return bytes(out.getvalue())


def test_a_thousand_record_batches_are_taken_and_one_more_is_not(server: Server) -> None:
    name = server.queue()

    refused(post(server, name, chunked(1001, 1)), 400, "body")
    assert server.read(name) == []

    assert len(post(server, name, chunked(2000, 2)).json()["messages"]) == 2000


@pytest.mark.parametrize("end", [0, 1, 100, -1, -9])
def test_a_stream_that_is_none_or_was_cut_is_refused(server: Server, end: int) -> None:
    name = server.queue()

    answer = post(server, name, stream(body=["a", "b", "c", "d"])[:end])

    if end != -1:  # of the end mark itself, which Arrow lets be cut
        refused(answer, 400, "body")
        assert server.read(name) == []


def test_another_form_than_arrow_is_refused_with_its_name(server: Server) -> None:
    answer = post(server, server.queue(), b"{}", Content_Type="application/json")

    refused(answer, 400, "Content-Type")
    assert ARROW in answer.text


def test_without_batch_an_arrow_stream_is_one_message_like_any_other_bytes(server: Server) -> None:
    name = server.queue()
    data = stream(body=["a", "b"])

    server.request("POST", f"/v1/queuey/{name}", data=data, headers={"Content-Type": ARROW})

    (entry,) = server.read(name)
    assert base64.b64decode(entry["body"]) == data


@pytest.mark.parametrize("columns", [20_000, 1])
def test_a_schema_is_not_taken_apart_without_bound(server: Server, columns: int) -> None:
    """Neither of many columns, nor of one of a type with many parts."""
    parts = [(f"c{number}", pa.int8()) for number in range(20_000)]
    schema = pa.schema(parts if columns > 1 else [("body", pa.struct(parts))])
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, schema):
        pass

    answer = post(server, server.queue(), bytes(out.getvalue()))

    refused(answer, 400, "body")
    assert "metadata" in answer.text
    assert len(answer.text) < 1000
