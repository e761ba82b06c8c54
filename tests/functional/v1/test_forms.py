"""The forms of an answer: JSON of any bytes, NDJSON, Arrow, one raw body."""

from __future__ import annotations

import base64
import io
import json
import random
from typing import Any

import pyarrow as pa
import pytest

from tests.support.client import Server, refused
from tests.support.servers import RunningServer

NDJSON = "application/x-ndjson"
ARROW = "application/vnd.apache.arrow.stream"
NOT_UTF8 = [b"\xff", b"\x80abc", b"\xed\xa0\x80", b"\xc0\xaf", b"\xf5\x80\x80\x80", bytes(range(256)), b"abc\xff"]


@pytest.fixture
def running(shipped_server: RunningServer) -> RunningServer:
    """What a store keeps, its contract says; here it is written as it came."""
    return shipped_server


@pytest.mark.parametrize("body", NOT_UTF8)
def test_bytes_that_are_no_text_travel_as_base64_and_say_so(server: Server, body: bytes) -> None:
    name = server.queue()
    key = server.add(name, body)["key"]

    for message in (*server.read(name), *server.fetch(name, key)):
        assert message["encoding"] == "base64"
        assert base64.b64decode(message["body"], validate=True) == body


def test_a_batch_takes_bytes_as_base64(server: Server) -> None:
    name = server.queue()
    text = base64.b64encode(b"\xff\x00").decode()

    server.add_batch(name, {"body": text, "encoding": "base64"}, {"body": "aGk=", "encoding": "base64"})

    first, second = server.read(name)
    assert (first["body"], first["encoding"]) == (text, "base64")
    assert second["body"] == "hi"
    assert "encoding" not in second


@pytest.mark.parametrize(
    ("entry", "field"),
    [
        ({"body": "no base64!", "encoding": "base64"}, "0.body"),
        ({"body": "aGk", "encoding": "base64"}, "0.body"),
        ({"body": "aGk=", "encoding": "rot13"}, "0.encoding"),
    ],
)
def test_a_batch_with_a_bad_encoding_is_refused(server: Server, entry: dict[str, str], field: str) -> None:
    refused(server.post_batch(server.queue(), entry), 400, field)


@pytest.mark.parametrize("size", [1, 255, 256, 65_535, 65_536, (1 << 20) - 1, 1 << 20])
def test_any_bytes_of_any_size_come_back_raw_as_they_were(server: Server, size: int) -> None:
    name = server.queue()
    body = random.Random(size).randbytes(size)
    key = server.add(name, body)["key"]

    answer = server.call("GET", name, key, headers={"Accept": "application/octet-stream"})

    assert answer.status_code == 200
    assert answer.content == body


def test_one_raw_body_tells_where_it_stands_in_headers(server: Server) -> None:
    name = server.queue(partitions=2)
    added = server.add(name, "<b>hi</b>", content_type="text/html; charset=utf-8", x_partition=2)

    for given in ({"headers": {"Accept": "application/octet-stream"}}, {"params": {"raw": "true"}}):
        answer = server.call("GET", name, f"2:{added['key']}", **given)
        assert answer.status_code == 200
        assert answer.content == b"<b>hi</b>"
        assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Queuey-Message-Id"] == added["key"]
        assert answer.headers["Queuey-Partition"] == "2"
        assert answer.headers["Queuey-Timestamp"] == added["timestamp"]


def test_a_raw_body_without_a_content_type_is_octets(server: Server) -> None:
    name = server.queue()
    key = server.add(name)["key"]

    answer = server.call("GET", name, key, params={"raw": "true"})

    assert answer.headers["Content-Type"] == "application/octet-stream"


def test_a_raw_body_that_is_not_there_is_404(server: Server) -> None:
    name = server.queue()

    answer = server.call("GET", name, "1f9f6640e56711f189bf02fc00000001", params={"raw": "true"})

    refused(answer, 404, "MessageNotFound")


def test_only_one_body_can_be_raw(server: Server) -> None:
    name = server.queue()
    ids = server.fill(name, "a", "b")

    answer = server.call("GET", name, ",".join(ids), params={"raw": "true"})

    assert answer.status_code in {400, 406}


@pytest.mark.parametrize("content_type", ["text/plain", "image/png", "application/vnd.x+json; v=1", "x/y"])
def test_a_content_type_is_kept_and_given_back(server: Server, content_type: str) -> None:
    name = server.queue()
    added = server.add(name, "x", content_type=content_type)

    (read,) = server.read(name)
    (fetched,) = server.fetch(name, added["key"])
    assert read["content_type"] == fetched["content_type"] == content_type


@pytest.mark.parametrize("content_type", [None, "application/x-www-form-urlencoded"])
def test_the_old_clients_content_type_is_none(server: Server, content_type: str | None) -> None:
    name = server.queue()
    server.add(name, "x", **({"content_type": content_type} if content_type else {}))

    assert "content_type" not in server.read(name)[0]


def test_each_entry_of_a_batch_may_have_its_content_type(server: Server) -> None:
    name = server.queue()
    server.add_batch(name, {"body": "a", "content_type": "text/csv"}, {"body": "b"})

    first, second = server.read(name)
    assert first["content_type"] == "text/csv"
    assert "content_type" not in second


def test_put_gives_a_message_the_content_type_of_the_put(server: Server) -> None:
    name = server.queue()
    key = server.add(name, "a", content_type="text/plain")["key"]

    server.call("PUT", name, key, data=b"b", headers={"Content-Type": "image/png"})

    assert server.read(name)[0]["content_type"] == "image/png"


def stream(server: Server, queue: str, accept: str, **params: Any) -> bytes:
    answer = server.call("GET", queue, params=params, headers={"Accept": accept})
    assert answer.status_code == 200, answer.text
    assert answer.headers["Content-Type"] == accept
    return answer.content


def lines(server: Server, queue: str, **params: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The rows of an NDJSON answer, and its end mark."""
    content = stream(server, queue, NDJSON, **params)
    assert content.endswith(b"\n")
    *rows, last = [json.loads(line) for line in content.splitlines()]
    assert set(last) == {"end"}
    assert last["end"]["rows"] == len(rows)
    return rows, last["end"]


def test_ndjson_has_a_line_a_message_and_an_end_mark(server: Server) -> None:
    name = server.queue()
    added = server.add(name, "hi", content_type="text/plain")

    rows, end = lines(server, name)

    assert rows == [
        {
            "queue": name,
            "message_id": added["key"],
            "timestamp": added["timestamp"],
            "partition": 1,
            "body": "hi",
            "content_type": "text/plain",
        }
    ]
    assert set(end) == {"rows", "cursor", "more", "watermark"}
    assert end["more"] is False
    assert server.read(name, cursor=end["cursor"]) == []


def test_ndjson_of_nothing_is_an_end_mark(server: Server) -> None:
    rows, end = lines(server, server.queue())

    assert (rows, end["rows"], end["more"]) == ([], 0, False)


def test_ndjson_without_a_limit_goes_on_to_the_watermark(server: Server) -> None:
    name = server.queue(partitions=2)
    for partition in (1, 2):
        server.fill(name, *(f"{partition}-{n}" for n in range(2500)), partition=partition)

    rows, end = lines(server, name, partitions="all")

    assert [row["body"] for row in rows] == [f"{p}-{n}" for p in (1, 2) for n in range(2500)]
    assert end["more"] is False


def test_ndjson_with_a_limit_says_where_to_go_on(server: Server) -> None:
    name = server.queue(partitions=2)
    for partition in (1, 2):
        server.fill(name, *(f"{partition}-{n}" for n in range(5)), partition=partition)

    rows, end = lines(server, name, partitions="all", limit=3)
    assert [row["body"] for row in rows] == ["1-0", "1-1", "1-2", "2-0", "2-1", "2-2"]
    assert end["more"] is True

    rest, end = lines(server, name, cursor=end["cursor"])
    assert [row["body"] for row in rest] == ["1-3", "1-4", "2-3", "2-4"]
    assert end["more"] is False


def test_ndjson_tells_the_same_watermark_in_header_and_end(server: Server) -> None:
    name = server.queue()

    answer = server.call("GET", name, headers={"Accept": NDJSON})

    assert json.loads(answer.content.splitlines()[-1])["end"]["watermark"] == answer.headers["Queuey-Watermark"]


def test_ndjson_carries_bytes_as_base64_and_only_the_columns_asked_for(server: Server) -> None:
    name = server.queue()
    server.add(name, b"\xff")

    ((row,), _) = lines(server, name, columns="body")

    assert row == {"body": "/w==", "encoding": "base64"}


def test_ndjson_descending(server: Server) -> None:
    name = server.queue()
    server.fill(name, *(str(n) for n in range(1500)))

    rows, _ = lines(server, name, order="descending")

    assert [row["body"] for row in rows] == [str(n) for n in reversed(range(1500))]


def test_a_refusal_of_a_stream_is_the_json_refusal(server: Server) -> None:
    for accept in (NDJSON, ARROW):
        answer = server.call("GET", server.queue(), params={"limit": 0}, headers={"Accept": accept})
        refused(answer, 400, "limit")


def arrow(server: Server, queue: str, **params: Any) -> tuple[pa.Table, dict[str, str]]:
    """The rows of an Arrow answer, and the metadata of its end mark."""
    reader = pa.ipc.open_stream(io.BytesIO(stream(server, queue, ARROW, **params)))
    batches: list[pa.RecordBatch] = []
    end: dict[str, str] | None = None
    while True:
        try:
            batch, metadata = reader.read_next_batch_with_custom_metadata()
        except StopIteration:
            break
        assert end is None, "a batch after the end mark"
        if batch.num_rows == 0:
            end = {key.decode(): value.decode() for key, value in metadata.items()}
        else:
            batches.append(batch)
    assert end is not None
    table = pa.Table.from_batches(batches, reader.schema)
    assert int(end["queuey.rows"]) == table.num_rows
    return table, end


def test_arrow_has_typed_columns_and_an_end_mark(server: Server) -> None:
    name = server.queue(partitions=3)
    added = server.add(name, b"\xff\x00", content_type="image/png", x_key="k")

    table, end = arrow(server, name, partitions="all")

    assert table.schema.names == ["queue", "partition", "message_id", "timestamp", "content_type", "body"]
    assert pa.types.is_integer(table.schema.field("partition").type)
    assert table.schema.field("timestamp").type == pa.timestamp("us", tz="UTC")
    assert table.schema.field("body").type in {pa.binary(), pa.large_binary()}
    (row,) = table.to_pylist()
    assert row.pop("timestamp").timestamp() == pytest.approx(float(added["timestamp"]), abs=2e-6)
    assert row == {
        "queue": name,
        "partition": added["partition"],
        "message_id": added["key"],
        "content_type": "image/png",
        "body": b"\xff\x00",
    }
    assert set(end) == {"queuey.rows", "queuey.next", "queuey.more", "queuey.watermark"}
    assert end["queuey.more"] == "0"
    assert server.read(name, cursor=end["queuey.next"]) == []


def test_arrow_of_nothing_is_a_schema_and_an_end_mark(server: Server) -> None:
    table, end = arrow(server, server.queue())

    assert (table.num_rows, end["queuey.rows"], end["queuey.more"]) == (0, "0", "0")


def test_arrow_without_a_limit_goes_on_to_the_watermark(server: Server) -> None:
    name = server.queue(partitions=2)
    for partition in (1, 2):
        server.fill(name, *(f"{partition}-{n}" for n in range(2500)), partition=partition)

    table, _ = arrow(server, name, partitions="all")

    assert table["body"].to_pylist() == [f"{p}-{n}".encode() for p in (1, 2) for n in range(2500)]


def test_arrow_with_a_limit_says_where_to_go_on(server: Server) -> None:
    name = server.queue(partitions=2)
    for partition in (1, 2):
        server.fill(name, *(f"{partition}-{n}" for n in range(5)), partition=partition)

    first, end = arrow(server, name, partitions="all", limit=3)
    assert end["queuey.more"] == "1"
    rest, end = arrow(server, name, cursor=end["queuey.next"])

    assert end["queuey.more"] == "0"
    both = first["body"].to_pylist() + rest["body"].to_pylist()
    assert sorted(both) == sorted(f"{p}-{n}".encode() for p in (1, 2) for n in range(5))


def test_arrow_sends_only_the_columns_asked_for(server: Server) -> None:
    name = server.queue()
    server.fill(name, "a", "b")

    table, _ = arrow(server, name, columns="message_id,body")

    assert table.schema.names == ["message_id", "body"]
    assert table["body"].to_pylist() == [b"a", b"b"]


def test_arrow_sends_the_key_when_asked(server: Server) -> None:
    name = server.queue()
    server.add(name, "a", x_key="k")
    server.add(name, "b")

    table, _ = arrow(server, name, columns="key,body")

    assert table.to_pylist() == [{"key": "k", "body": b"a"}, {"key": None, "body": b"b"}]


def test_arrow_and_json_tell_the_same(server: Server) -> None:
    name = server.queue(partitions=4)
    for number in range(50):
        server.add(name, str(number))

    table, _ = arrow(server, name, partitions="all")

    assert [(row["partition"], row["message_id"], row["body"].decode()) for row in table.to_pylist()] == [
        (m["partition"], m["message_id"], m["body"]) for m in server.read(name, partitions="all")
    ]


def test_a_stream_of_large_bodies_is_whole(server: Server) -> None:
    name = server.queue()
    for number in range(8):
        server.add(name, str(number) * (1 << 20))

    rows, _ = lines(server, name)
    table, _ = arrow(server, name)

    assert [row["body"][0] for row in rows] == list("01234567")
    assert [(body[:1], len(body)) for body in table["body"].to_pylist()] == [
        (str(n).encode(), 1 << 20) for n in range(8)
    ]


def test_quality_in_accept_decides_between_forms(server: Server) -> None:
    name = server.queue()

    for accept, given in (
        (f"{NDJSON};q=0.5, application/json;q=0.9", "application/json"),
        (f"{NDJSON};q=0.9, application/json;q=0.5", NDJSON),
        (f"application/json, {NDJSON}", NDJSON),
        (f"{NDJSON};q=0", "application/json"),
        (f"{NDJSON}-seq", "application/json"),
        (f"{NDJSON};charset=utf-8", NDJSON),
    ):
        answer = server.call("GET", name, headers={"Accept": accept})
        assert answer.headers["Content-Type"] == given, accept
