"""Messages by id: fetch, put, delete (queuey-api-v1 section 5.5)."""

from __future__ import annotations

import uuid

import pytest

from queuey.clock import SystemClock
from queuey.ids import MAX_TICKS, TICKS_PER_SECOND, MessageId, tail_from_low
from queuey.model import MAX_TTL_SECONDS
from queuey.storage.cassandra.buckets import tail_for
from tests.support.client import Server, refused

VERSION_1 = "1f9f6640e56711f189bf02fc00000001"
"""An id of November 2026 that no server of the suite has made."""
MALFORMED = [
    "x",
    "1",
    VERSION_1[:-1],
    VERSION_1 + "0",
    VERSION_1[:-1] + "g",
    f"1:{VERSION_1[:-1]}",
    f"0:{VERSION_1}",
    f"201:{VERSION_1}",
    f"x:{VERSION_1}",
    f"-1:{VERSION_1}",
    f":{VERSION_1}",
    f"1:1:{VERSION_1}",
    f"{VERSION_1},",
    f",{VERSION_1}",
    f"{VERSION_1},x",
    f"{VERSION_1};{VERSION_1}",
    uuid.uuid5(uuid.NAMESPACE_URL, "queuey").hex,
    "0" * 32,
    "f" * 32,
]


def test_fetch_answers_like_a_read(server: Server) -> None:
    name = server.queue()
    added = server.add(name, "hi")

    answer = server.call("GET", name, added["key"])

    assert answer.json() == {
        "status": "ok",
        "messages": [{"message_id": added["key"], "timestamp": added["timestamp"], "partition": 1, "body": "hi"}],
    }


def test_a_list_comes_back_in_request_order_without_the_unknown(server: Server) -> None:
    name = server.queue()
    first, second, third = server.fill(name, "a", "b", "c")

    found = server.fetch(name, f"{third},{VERSION_1},{first},{second}")

    assert [message["body"] for message in found] == ["c", "a", "b"]


def test_none_found_is_200_and_an_empty_list(server: Server) -> None:
    answer = server.call("GET", server.queue(), VERSION_1)

    assert (answer.status_code, answer.json()) == (200, {"status": "ok", "messages": []})


def test_a_prefix_names_the_partition_and_none_is_partition_1(server: Server) -> None:
    name = server.queue(partitions=3)
    (in_one,) = server.fill(name, "one")
    (in_three,) = server.fill(name, "three", partition=3)

    found = server.fetch(name, f"3:{in_three},{in_one}")

    assert [(m["partition"], m["body"]) for m in found] == [(3, "three"), (1, "one")]
    assert server.fetch(name, in_three) == []


@pytest.mark.parametrize("colon", [":", "%3A", "%3a"])
@pytest.mark.parametrize("comma", [",", "%2C", "%2c", ", ", ",%20"])
def test_colon_and_comma_may_be_encoded_and_blanks_may_follow(server: Server, colon: str, comma: str) -> None:
    name = server.queue(partitions=2)
    (in_one,) = server.fill(name, "one")
    (in_two,) = server.fill(name, "two", partition=2)

    answer = server.request("GET", f"/v1/queuey/{name}/2{colon}{in_two}{comma}1{colon}{in_one}")

    assert [message["body"] for message in answer.json()["messages"]] == ["two", "one"]


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
def test_a_malformed_list_is_refused(server: Server, method: str) -> None:
    name = server.queue(partitions=200)

    for ids in MALFORMED:
        answer = server.call(method, name, ids, data=b"x" if method == "PUT" else None)
        assert answer.status_code == 400, ids
        refused(answer, 400, "InvalidMessageID")
    assert server.everything(name) == []


def test_an_id_that_is_named_twice_comes_once(server: Server) -> None:
    name = server.queue()
    first, second = server.fill(name, "a", "b")

    found = server.fetch(name, ",".join([second, first, f"1:{second}", *[first] * 97]))

    assert [message["body"] for message in found] == ["b", "a"]


def test_an_answer_of_many_large_messages_is_cut_and_says_so(server: Server) -> None:
    name, mib = server.queue(), 1 << 20
    ids = [server.add(name, bytes([letter]) * mib)["key"] for letter in b"abcde"]

    answer = server.call("GET", name, ",".join([VERSION_1, *ids]))
    found = [message["message_id"] for message in answer.json()["messages"]]
    rest = server.call("GET", name, ",".join(ids[len(found) :]))

    assert answer.headers["Queuey-More"] == "true"
    assert 1 <= len(found) <= 4
    assert found == ids[: len(found)]
    assert rest.headers["Queuey-More"] == "false"
    assert [message["message_id"] for message in rest.json()["messages"]] == ids[len(found) :]


@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_100_ids_are_taken_and_101_refused(server: Server, method: str) -> None:
    name = server.queue()

    assert server.call(method, name, ",".join([VERSION_1] * 100)).status_code == 200
    refused(server.call(method, name, ",".join([VERSION_1] * 101)), 400, "InvalidMessageID")


def test_put_replaces_the_body_and_keeps_place_and_timestamp(server: Server) -> None:
    name = server.queue()
    _, second, _ = server.fill(name, "a", "b", "c")
    before = server.fetch(name, second)[0]

    answer = server.call("PUT", name, second, data=b"new")

    assert answer.status_code == 200
    assert answer.json()["status"] == "ok"
    assert server.bodies(name) == ["a", "new", "c"]
    assert server.fetch(name, second)[0] == {**before, "body": "new"}


def test_put_creates_what_is_not_there_with_the_time_of_its_id(server: Server) -> None:
    name = server.queue()
    server.fill(name, "later")
    past = uuid.UUID(int=uuid.UUID(VERSION_1).int - (1 << 96)).hex

    answer = server.call("PUT", name, past, data=b"earlier")

    assert answer.status_code == 200
    assert server.bodies(name)[0] == "earlier"
    assert server.fetch(name, past)[0]["timestamp"].startswith("1795236")


def test_put_behind_the_watermark_says_that_it_is_late(server: Server) -> None:
    name = server.queue()
    added = server.add(name)
    server.read(name)

    assert server.call("PUT", name, added["key"], data=b"x").json() == {"status": "ok", "late": True}


def test_put_of_an_id_in_the_future_is_not_late(server: Server) -> None:
    name = server.queue()
    future = server.add(name, x_delay=3600)["key"]

    assert server.call("PUT", name, future, data=b"x").json() == {"status": "ok"}
    assert server.read(name) == []
    assert server.fetch(name, future)[0]["body"] == "x"


@pytest.mark.parametrize("level", range(4))
def test_put_takes_ids_from_the_first_moment_to_366_days_ahead(server: Server, level: int) -> None:
    """On Cassandra an id's level says how wide the bucket is that its message lies in."""
    name = server.queue()
    now, tail = SystemClock().now_ticks(), tail_for(level, tail_from_low(0b10 << 62 | 7))
    longest = {"X-TTL": str(MAX_TTL_SECONDS)}
    first, last, beyond = (
        MessageId(ticks, tail).hex
        for ticks in (0, now + (366 * 86_400 - 60) * TICKS_PER_SECOND, now + (366 * 86_400 + 60) * TICKS_PER_SECOND)
    )

    assert server.call("PUT", name, first, data=b"x", headers=longest).json() == {"status": "ok", "late": True}
    assert server.call("PUT", name, last, data=b"x", headers=longest).json() == {"status": "ok"}
    for ids in (beyond, f"{last},{beyond}", MessageId(MAX_TICKS, tail).hex):
        told = refused(server.call("PUT", name, ids, data=b"x"), 400, "InvalidMessageID")
        assert "is more than 366 days from now" in told["InvalidMessageID"]
    assert [message["message_id"] for message in server.fetch(name, f"{first},{last},{beyond}")] == [first, last]
    assert server.bodies(name) == ["x"]


def test_put_stores_one_body_under_every_id(server: Server) -> None:
    name = server.queue(partitions=2)
    (in_one,) = server.fill(name, "a")
    (in_two,) = server.fill(name, "b", partition=2)

    server.call("PUT", name, f"{in_one},2:{in_two}", data=b"same")

    assert server.bodies(name, partitions="1,2") == ["same", "same"]


def test_put_stores_no_more_than_a_request_may_carry(server: Server) -> None:
    name = server.queue()
    ids = server.fill(name, *"abcdefghi")
    body = b"x" * (1 << 20)

    refused(server.call("PUT", name, ",".join(ids), data=body), 413, "MessageTooLarge")
    assert server.bodies(name) == [*"abcdefghi"]

    assert server.call("PUT", name, ",".join(ids[1:]), data=body).status_code == 200


def test_put_takes_the_raw_body_of_any_content_type(server: Server) -> None:
    name = server.queue()
    (key,) = server.fill(name, "a")
    body = '{"messages": [{"body": "x"}]}'

    server.call("PUT", name, key, data=body, headers={"Content-Type": "application/json"})

    assert server.bodies(name) == [body]


def test_put_may_have_a_key_that_chooses_no_partition(server: Server) -> None:
    name = server.queue(partitions=9)
    server.call("PUT", name, f"7:{VERSION_1}", data=b"keyed", params={"key": "schlüssel & co"})
    (keyed,) = server.read(name, partitions=7)
    assert (keyed["body"], keyed["key"]) == ("keyed", "schlüssel & co")


def test_a_message_that_is_put_again_keeps_its_key(server: Server) -> None:
    name = server.queue()
    keyed, other = server.add(name, x_key="k 1")["key"], server.add(name)["key"]

    for params in ({}, {"key": "k 1"}):
        assert server.call("PUT", name, keyed, data=b"new", params=params).status_code == 200
        assert (server.fetch(name, keyed)[0]["body"], server.fetch(name, keyed)[0]["key"]) == ("new", "k 1")
    for ids, params, has in (
        (keyed, {"key": "k 2"}, f"message 1:{keyed} has another key"),
        (f"{keyed},{VERSION_1},{other}", {"key": "k 1"}, f"message 1:{other} has no key"),
    ):
        told = refused(server.call("PUT", name, ids, data=b"x", params=params), 400, "key")
        assert told["key"].startswith(has)
        assert "delete the message first" in told["key"]
    assert [message["body"] for message in server.fetch(name, f"{keyed},{VERSION_1},{other}")] == ["new", "hello"]

    server.call("DELETE", name, keyed)
    assert server.call("PUT", name, keyed, data=b"c", params={"key": "k 2"}).status_code == 200
    assert server.fetch(name, keyed)[0]["key"] == "k 2"


@pytest.mark.parametrize("wanted", ["x" * 257, "a\nb"])
def test_put_with_a_bad_key_is_refused(server: Server, wanted: str) -> None:
    name = server.queue()
    (key,) = server.fill(name, "a")

    refused(server.call("PUT", name, key, data=b"x", params={"key": wanted}), 400, "key")
    assert server.bodies(name) == ["a"]


def test_put_takes_the_key_from_the_header_as_an_append_does(server: Server) -> None:
    name, key = server.queue(), VERSION_1

    for params in ({}, {"key": "k 1"}):
        answer = server.call("PUT", name, key, data=b"b", params=params, headers={"X-Key": "k 1"})
        assert answer.status_code == 200, answer.text
        assert server.fetch(name, key)[0]["key"] == "k 1"
    assert server.call("PUT", name, f"1:{key}", data=b"c", headers={"X-Partition": "1"}).status_code == 200


@pytest.mark.parametrize(
    ("headers", "field"),
    [
        ({"X-Key": "another"}, "key"),
        ({"X-Key": "x" * 257}, "key"),
        ({"X-Delay": "5"}, "delay"),
        ({"X-Deliver-At": "0"}, "deliver_at"),
        ({"X-Partition": "2"}, "partition"),
    ],
)
def test_put_refuses_what_it_cannot_heed(server: Server, headers: dict[str, str], field: str) -> None:
    name = server.queue(partitions=2)
    (key,) = server.fill(name, "a")

    refused(server.call("PUT", name, key, data=b"x", params={"key": "k"}, headers=headers), 400, field)
    assert server.bodies(name) == ["a"]


def test_delete_refuses_another_partition_than_that_of_the_path(server: Server) -> None:
    name = server.queue(partitions=2)
    (key,) = server.fill(name, "a")

    refused(server.call("DELETE", name, key, headers={"X-Partition": "2"}), 400, "partition")
    assert server.bodies(name) == ["a"]


def test_put_with_an_empty_body_is_refused(server: Server) -> None:
    name = server.queue()
    (key,) = server.fill(name, "a")

    assert refused(server.call("PUT", name, key, data=b""), 400, "body")["body"] == "Required"
    assert server.bodies(name) == ["a"]


@pytest.mark.parametrize("ttl", ["0", "-1", "33554433", "soon", "1.5"])
def test_put_with_a_bad_ttl_is_refused(server: Server, ttl: str) -> None:
    name = server.queue()
    (key,) = server.fill(name, "a")

    refused(server.call("PUT", name, key, data=b"x", headers={"X-TTL": ttl}), 400, "ttl")
    assert server.bodies(name) == ["a"]


def test_delete_removes_and_may_be_repeated(server: Server) -> None:
    name = server.queue()
    first, _ = server.fill(name, "a", "b")

    for _ in range(2):
        answer = server.call("DELETE", name, first)
        assert (answer.status_code, answer.json()) == (200, {"status": "ok"})

    assert server.bodies(name) == ["b"]


def test_delete_takes_a_list_over_partitions(server: Server) -> None:
    name = server.queue(partitions=2)
    in_one = server.fill(name, "a", "b")
    in_two = server.fill(name, "c", "d", partition=2)

    server.call("DELETE", name, f"{in_one[0]},2:{in_two[1]}")

    assert server.bodies(name, partitions="1,2") == ["b", "c"]


def test_delete_of_what_never_was_is_200_also_in_a_partition_never_used(server: Server) -> None:
    assert server.call("DELETE", server.queue(partitions=3), f"3:{VERSION_1}").status_code == 200


def test_an_id_belongs_to_one_partition(server: Server) -> None:
    name = server.queue(partitions=2)
    (key,) = server.fill(name, "a")

    server.call("DELETE", name, f"2:{key}")

    assert server.bodies(name) == ["a"]
