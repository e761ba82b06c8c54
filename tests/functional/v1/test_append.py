"""Adding messages, one raw or a batch (queuey-api-v1 sections 2.1, 5.1, 5.2 and 6)."""

from __future__ import annotations

import json
import re
import time
import uuid
from decimal import Decimal
from typing import Any

import pytest
import requests

from tests.support.client import BATCH, Server, refused

EPOCH_TICKS = 0x01B21DD213814000
TWO_TO_25 = 33554432


def test_an_added_message_is_told_by_key_timestamp_and_partition(server: Server) -> None:
    answer = server.post(server.queue(), "hi")

    assert answer.status_code == 201
    told = answer.json()
    assert set(told) == {"status", "messages"}
    assert told["status"] == "ok"
    (message,) = told["messages"]
    assert set(message) == {"key", "timestamp", "partition"}
    assert message["partition"] == 1


def test_the_key_is_a_version_1_uuid_of_the_time_told(server: Server) -> None:
    before = time.time()
    message = server.add(server.queue())
    after = time.time()

    assert re.fullmatch(r"[0-9a-f]{32}", message["key"])
    made = uuid.UUID(message["key"])
    assert (made.version, made.variant) == (1, uuid.RFC_4122)
    assert re.fullmatch(r"[0-9]+\.[0-9]{7}", message["timestamp"])
    assert Decimal(message["timestamp"]) == Decimal(made.time - EPOCH_TICKS) / 10**7
    assert before - 1 <= float(message["timestamp"]) <= after + 1


def test_the_node_of_an_id_is_no_network_card(server: Server) -> None:
    assert uuid.UUID(server.add(server.queue())["key"]).node >> 40 & 1


def test_ids_rise_from_answer_to_answer(server: Server) -> None:
    name = server.queue(partitions=3)

    times = [uuid.UUID(server.add(name)["key"]).time for _ in range(20)]

    assert times == sorted(set(times))


@pytest.mark.parametrize(
    "content_type",
    [
        None,
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data",
        "application/octet-stream",
        "application/jsonx",
        "application/json-seq",
        "text/json",
    ],
)
def test_any_other_content_type_is_one_raw_message(server: Server, content_type: str | None) -> None:
    name = server.queue()
    body = '{"messages": [{"body": "a=1&b=%20"}]}'

    server.add(name, body, **({"content_type": content_type} if content_type else {}))

    assert server.bodies(name) == [body]


@pytest.mark.parametrize(
    "content_type",
    ["application/json", "application/json; charset=utf-8", "application/json;charset=UTF-8", "Application/JSON"],
)
def test_json_is_a_batch_whatever_the_case_and_parameters(server: Server, content_type: str) -> None:
    name = server.queue()

    answer = server.post(name, '{"messages": [{"body": "a"}, {"body": "b"}]}', content_type=content_type)

    assert answer.status_code == 201
    assert len(answer.json()["messages"]) == 2
    assert server.bodies(name) == ["a", "b"]


def test_a_form_is_stored_byte_for_byte(server: Server) -> None:
    name = server.queue()

    server.call("POST", name, data={"queue_name": "x", "y": "1 2"})

    assert server.bodies(name) == ["queue_name=x&y=1+2"]


def test_without_a_partition_messages_are_spread(server: Server) -> None:
    name = server.queue(partitions=4)

    partitions = {server.add(name)["partition"] for _ in range(60)}

    assert partitions == {1, 2, 3, 4}


def test_a_batch_without_partitions_is_spread(server: Server) -> None:
    name = server.queue(partitions=4)

    added = server.add_batch(name, *({"body": "x"} for _ in range(100)))

    assert {message["partition"] for message in added} == {1, 2, 3, 4}


@pytest.mark.parametrize("partition", [1, 2, 3])
def test_a_message_goes_to_the_partition_asked_for(server: Server, partition: int) -> None:
    name = server.queue(partitions=3)

    message = server.add(name, "there", x_partition=partition)

    assert message["partition"] == partition
    assert server.bodies(name, partitions=partition) == ["there"]


def test_an_empty_header_is_an_absent_header(server: Server) -> None:
    assert server.post(server.queue(), x_partition="", x_ttl="").status_code == 201


@pytest.mark.parametrize("ttl", [1, 2, 259200, TWO_TO_25])
def test_a_ttl_of_1_second_to_2_to_the_25_is_taken(server: Server, ttl: int) -> None:
    name = server.queue()

    assert server.post(name, x_ttl=ttl).status_code == 201
    assert server.post_batch(name, {"body": "x", "ttl": ttl}).status_code == 201


@pytest.mark.parametrize(
    "body", ["x", " ", "\n", "0", "ünïcödé ☃ 𝄞", "\x00\x01", '"', "\\", "</script>", "x" * 100_000]
)
def test_text_comes_back_as_it_was_sent(server: Server, body: str) -> None:
    name = server.queue()

    server.add(name, body)
    server.add_batch(name, {"body": body})

    assert server.bodies(name) == [body, body]


def test_a_batch_tells_its_ids_in_request_order_and_rising(server: Server) -> None:
    name = server.queue(partitions=3)

    added = server.add_batch(name, *({"body": str(n), "partition": n % 3 + 1} for n in range(30)))

    times = [uuid.UUID(message["key"]).time for message in added]
    assert times == sorted(set(times))
    assert [message["partition"] for message in added] == [n % 3 + 1 for n in range(30)]
    by_id = {message["message_id"]: message["body"] for message in server.read(name, partitions="1,2,3")}
    assert [by_id[message["key"]] for message in added] == [str(n) for n in range(30)]


def test_an_empty_batch_is_201_and_an_empty_list(server: Server) -> None:
    answer = server.post_batch(server.queue())

    assert (answer.status_code, answer.json()) == (201, {"status": "ok", "messages": []})


@pytest.mark.parametrize("other", ["text/plain; charset=latin-1", "text/html", "TEXT/plain;charset=utf-8"])
def test_a_repeat_under_an_idempotency_key_has_the_same_content_type(server: Server, other: str) -> None:
    name = server.queue()

    def post(content_type: str) -> requests.Response:
        return server.post(name, b"\xe9", idempotency_key="once", content_type=content_type)

    assert post("text/plain; charset=utf-8").status_code == 201

    refused(post(other), 422, "KeyReused")
    assert post("text/plain; charset=utf-8").headers["Idempotency-Replayed"] == "true"
    assert len(server.read(name)) == 1


def test_a_batch_takes_2000_entries(server: Server) -> None:
    name = server.queue()

    added = server.add_batch(name, *({"body": str(n)} for n in range(2000)))

    assert len({message["key"] for message in added}) == 2000
    assert server.info(name)["depth"] == 2000


def test_what_is_inside_of_bodies_does_not_count_as_values_of_a_batch(server: Server) -> None:
    name = server.queue()
    body = json.dumps({"a": ['"', "\\", {"b": []}]}) * 10_000

    server.add_batch(name, {"body": body}, {"body": "," * 500_000}, {"body": "[{" * 250_000})

    assert server.bodies(name) == [body, "," * 500_000, "[{" * 250_000]


def test_a_batch_that_is_wrong_throughout_is_told_so_briefly(server: Server) -> None:
    answer = server.post_batch(server.queue(), *[5] * 10_000)

    refused(answer, 400, *map(str, range(20)))


def test_a_batch_takes_null_and_numeric_text_and_ignores_unknown_members(server: Server) -> None:
    name = server.queue(partitions=2)

    added = server.add_batch(
        name,
        {"body": "a", "partition": "2", "ttl": "3600", "colour": "blue"},
        {"body": "b", "partition": None, "ttl": None},
    )

    assert added[0]["partition"] == 2


def test_a_batch_ignores_the_headers_of_a_single_message(server: Server) -> None:
    name = server.queue(partitions=2)

    answer = server.post_batch(name, {"body": "a", "partition": 1}, x_partition="2", x_ttl="nonsense")

    assert answer.status_code == 201
    assert answer.json()["messages"][0]["partition"] == 1


def test_a_batch_with_unknown_members_beside_messages_is_taken(server: Server) -> None:
    body = json.dumps({"messages": [{"body": "a"}], "note": 1})

    assert server.post(server.queue(), body, content_type="application/json").status_code == 201


@pytest.mark.parametrize("body", [5, 1.5, True, {"a": 1}, ["a"]])
def test_a_body_that_is_no_text_is_refused_or_stored_as_json(server: Server, body: object) -> None:
    name = server.queue()

    answer = server.post_batch(name, {"body": body})

    if answer.status_code == 201:
        assert [json.loads(text) for text in server.bodies(name)] == [body]
    else:
        refused(answer, 400)
        assert server.everything(name) == []


@pytest.mark.parametrize(
    ("entry", "field"),
    [
        ({"body": ""}, "body"),
        ({}, "body"),
        ({"body": None}, "body"),
        ({"body": "x", "partition": 0}, "partition"),
        ({"body": "x", "partition": 3}, "partition"),
        ({"body": "x", "partition": "one"}, "partition"),
        ({"body": "x", "ttl": 0}, "ttl"),
        ({"body": "x", "ttl": TWO_TO_25 + 1}, "ttl"),
        ({"body": "x", "ttl": "soon"}, "ttl"),
    ],
)
def test_one_bad_entry_refuses_the_whole_batch(server: Server, entry: dict[str, object], field: str) -> None:
    name = server.queue(partitions=2)

    answer = server.post_batch(name, {"body": "good"}, entry, {"body": "good"})

    refused(answer, 400, f"1.{field}")
    assert server.everything(name) == []


def test_all_failing_fields_of_a_batch_are_told_together(server: Server) -> None:
    answer = server.post_batch(server.queue(), {"body": ""}, {"body": "x", "ttl": 0, "partition": 9})

    texts = refused(answer, 400, "0.body", "1.ttl", "1.partition")
    assert texts["0.body"] == "Required"
    assert texts["1.partition"] == "9 is greater than maximum value 1"


def test_what_one_bad_header_of_two_refuses_is_told_together(server: Server) -> None:
    refused(server.post(server.queue(), x_ttl="x", x_partition="y"), 400, "ttl", "partition")


@pytest.mark.parametrize("header", ["x_key", "x_delay", "x_deliver_at"])
def test_a_batch_refuses_headers_that_would_place_one_message(server: Server, header: str) -> None:
    name = server.queue()

    refused(server.post_batch(name, {"body": "a"}, **{header: "5"}), 400, header.removeprefix("x_"))
    assert server.everything(name) == []


def test_a_batch_passes_over_the_headers_that_the_first_clients_send(server: Server) -> None:
    name = server.queue(partitions=2)

    answer = server.post_batch(name, {"body": "a", "partition": 1}, x_partition="2", x_ttl="1")

    assert [message["partition"] for message in answer.json()["messages"]] == [1]


@pytest.mark.parametrize("sent", [{"data": b"a"}, {"json": {"messages": [{"body": "a"}]}}])
def test_a_key_in_the_address_of_an_append_is_refused(server: Server, sent: dict[str, Any]) -> None:
    name = server.queue()

    refused(server.call("POST", name, params={"key": "k"}, **sent), 400, "key")
    assert server.everything(name) == []


@pytest.mark.parametrize(
    "body",
    [
        '{"kind": "order", "lines": [1, 2]}',
        "[1, 2]",
        "7",
        '{"messages": "none"}',
        '{"messages": [{"body": "x"}], "n": 1}',
    ],
)
def test_json_that_is_no_batch_is_one_message_byte_for_byte(server: Server, body: str) -> None:
    name = server.queue()

    answer = server.post(name, body, content_type="application/json")

    assert (answer.status_code, len(answer.json()["messages"])) == (201, 1)
    (message,) = server.read(name)
    assert (message["body"], message["content_type"]) == (body, "application/json")


def test_json_that_is_one_message_takes_the_headers_of_one(server: Server) -> None:
    name = server.queue(partitions=4)

    answer = server.call("POST", name, data=b"{}", headers={"Content-Type": "application/json", "X-Partition": "3"})

    assert answer.json()["messages"][0]["partition"] == 3


def test_the_batch_type_takes_batches_alone(server: Server) -> None:
    name = server.queue()

    assert (
        len(server.post(name, '{"messages":[{"body":"a"},{"body":"b"}]}', content_type=BATCH).json()["messages"]) == 2
    )
    refused(server.post(name, '{"kind": "order"}', content_type=BATCH), 400, "InvalidParameter")


@pytest.mark.parametrize(
    "body", [b"[this isnt good}", b"hello", b'{"a":1', b'{"a":1}x', b'"\xff"', b"\xef\xbb\xbf{}", b"[" * 100_000]
)
def test_what_says_it_is_json_and_is_none_is_refused(server: Server, body: bytes) -> None:
    """So a test of the first Queuey demands (``test_bad_json``)."""
    name = server.queue()

    for _ in range(2):
        refused(server.post(name, body, content_type="application/json"), 400, "InvalidParameter")
    assert server.read(name) == []
    assert server.post(name, body).status_code == 201


def test_a_damaged_batch_is_no_message(server: Server) -> None:
    name = server.queue()

    refused(server.post(name, '{"messages":[{"body":"a"},', content_type="application/json"), 400, "InvalidParameter")
    assert server.read(name) == []
