"""What reads gained over the first Queuey: until, all partitions, cursors, the watermark, columns, information."""

from __future__ import annotations

import threading
import time
import uuid
from decimal import Decimal

import pytest

from tests.support.client import Server, authorization, refused
from tests.support.servers import APPLICATIONS, RunningServer, eventually
from tests.support.stores import while_writing

COLUMNS = ["queue", "partition", "message_id", "timestamp", "content_type", "key", "body"]


def test_until_includes_the_message_it_names(server: Server) -> None:
    name = server.queue()
    first, second, third = server.fill(name, "a", "b", "c")
    timestamp = server.read(name)[1]["timestamp"]

    assert server.bodies(name, until=second) == ["a", "b"]
    assert server.bodies(name, until=timestamp) == ["a", "b"]
    assert server.bodies(name, since=second, until=second) == ["b"]
    assert server.bodies(name, since=first, until=third) == ["a", "b", "c"]
    assert server.read(name, since=third, until=first) == []


def test_until_earlier_and_later_than_everything(server: Server) -> None:
    name = server.queue()
    server.fill(name, "a", "b")

    assert server.read(name, until="1000000000") == []
    assert server.bodies(name, until="4000000000") == ["a", "b"]


@pytest.mark.parametrize("until", ["x", "-1", "1e9", "NaN", "1" * 40, "1.2.3", uuid.UUID(int=0).hex])
def test_a_bad_until_is_refused(server: Server, until: str) -> None:
    refused(server.get(server.queue(), until=until), 400, "until")


def test_a_span_between_two_ids_descending(server: Server) -> None:
    """A read goes from ``since`` to ``until``: descending, these are its upper and its lower end."""
    name = server.queue()
    _, second, third, _ = server.fill(name, "a", "b", "c", "d")

    assert server.bodies(name, until=third, order="descending") == ["d", "c"]
    assert server.bodies(name, since=third, until=second, order="descending") == ["c", "b"]


def test_all_partitions_are_read_in_their_order(server: Server) -> None:
    name = server.queue(partitions=12)
    for partition in (12, 2, 1):
        server.fill(name, str(partition), partition=partition)

    assert server.bodies(name, partitions="all") == ["1", "2", "12"]


def test_the_watermark_is_now_and_what_is_up_to_it_is_complete(server: Server) -> None:
    name = server.queue()
    added = server.add(name)

    told = server.get(name).headers["Queuey-Watermark"]

    assert len(told.split(".")[1]) == 7
    assert Decimal(told) >= Decimal(added["timestamp"])
    assert abs(float(told) - time.time()) < 60


def test_a_watermark_never_falls(server: Server) -> None:
    name = server.queue()

    told = [Decimal(server.get(name).headers["Queuey-Watermark"]) for _ in range(20)]

    assert told == sorted(told)


@while_writing
def test_a_span_below_a_served_watermark_gains_nothing(server: Server, running: RunningServer) -> None:
    """Writers go on while a reader notes what each watermark held, and reads the same spans again (G3, G5)."""
    name = server.queue(partitions=2)
    stop = threading.Event()

    def write() -> None:
        with Server(running) as writer:
            while not stop.is_set():
                writer.post(name, "x")

    writers = [threading.Thread(target=write) for _ in range(2)]
    for writer in writers:
        writer.start()
    noted: list[tuple[str, list[str]]] = []
    try:
        while sum(bool(ids) for _, ids in noted) < 15:
            answer = server.get(name, partitions="all", limit=1000)
            assert answer.headers["Queuey-More"] == "false"
            ids = [message["message_id"] for message in answer.json()["messages"]]
            noted.append((answer.headers["Queuey-Watermark"], ids))
    finally:
        stop.set()
        for writer in writers:
            writer.join()

    for watermark, ids in noted:
        again = server.read(name, partitions="all", limit=1000, until=watermark)
        assert [message["message_id"] for message in again] == ids


@pytest.mark.parametrize("order", ["ascending", "descending"])
def test_columns_not_asked_for_are_not_sent(server: Server, order: str) -> None:
    name = server.queue()
    (key,) = server.fill(name, "a")

    assert server.read(name, columns="message_id,body", order=order) == [{"message_id": key, "body": "a"}]
    assert server.read(name, columns="message_id", order=order) == [{"message_id": key}]


def test_every_column_can_be_asked_for(server: Server) -> None:
    name = server.queue(partitions=9)
    added = server.add(name, "a", content_type="text/plain", x_key="k")

    (message,) = server.read(name, partitions="all", columns=",".join(COLUMNS))

    assert message == {
        "queue": name,
        "partition": added["partition"],
        "message_id": added["key"],
        "timestamp": added["timestamp"],
        "content_type": "text/plain",
        "key": "k",
        "body": "a",
    }


@pytest.mark.parametrize("columns", ["colour", "body,colour", "body,,key", "BODY"])
def test_an_unknown_column_is_refused(server: Server, columns: str) -> None:
    refused(server.get(server.queue(), columns=columns), 400, "columns")


def test_information_of_a_queue(server: Server) -> None:
    name = server.queue(partitions=2, type="public", consistency="weak", principles="app:queuey,bid:a@b.org")
    first, _, third = server.fill(name, "a", "b", "c")
    later = server.add(name, "later", x_partition=1, x_delay=3600)

    told = server.info(name)

    assert uuid.UUID(told.pop("uuid")).version == 4
    assert isinstance(told.pop("created"), float | int)
    assert Decimal(told.pop("watermark")) > 0
    details = told.pop("partition_details")
    assert told.pop("lease_dead_letter_queue") == f"{name}-dead"
    assert {name: value for name, value in told.items() if not name.startswith("lease_")} == {
        "status": "ok",
        "queue_name": name,
        "application": "queuey",
        "type": "public",
        "consistency": "weak",
        "retention": "ttl",
        "principles": ["app:queuey", "bid:a@b.org"],
        "partitions": 2,
        "depth": 4,
        "scheduled": 1,
        "bytes": 3 + len("later"),
    }
    times = {message["message_id"]: message["timestamp"] for message in server.fetch(name, f"{first},{third}")}
    assert details == [
        {
            "partition": 1,
            "depth": 4,
            "scheduled": 1,
            "bytes": 3 + len("later"),
            "rate": None,
            "oldest": first,
            "oldest_timestamp": times[first],
            "newest": later["key"],
            "newest_timestamp": later["timestamp"],
        },
        {
            "partition": 2,
            "depth": 0,
            "scheduled": 0,
            "bytes": 0,
            "rate": None,
            "oldest": None,
            "oldest_timestamp": None,
            "newest": None,
            "newest_timestamp": None,
        },
    ]


def test_information_is_for_the_owner_only(server: Server, anonymous: Server) -> None:
    name = server.queue(type="public", principles="app:other")

    refused(anonymous.get(name, info="true"), 403, "Forbidden")
    with server.seen_by(APPLICATIONS["other"][0]) as listed:
        refused(listed.get(name, info="true"), 403, "Forbidden")
    assert server.get(name, info="true").status_code == 200


def test_information_of_an_owner_who_is_not_listed(server: Server) -> None:
    assert server.get(server.queue(principles="app:other"), info="true").status_code == 200


@pytest.mark.parametrize("word", ["false", "0"])
def test_information_is_not_given_for_false(server: Server, word: str) -> None:
    assert "messages" in server.get(server.queue(), info=word).json()


def test_a_reader_that_asks_again_and_again_sees_what_another_appends(server: Server, running: RunningServer) -> None:
    name = server.queue()
    cursor = server.get(name).headers["Queuey-Cursor"]

    with Server(running) as writer:
        writer.add(name, "news")

    assert eventually(lambda: server.bodies(name, cursor=cursor)) == ["news"]


def test_a_read_is_the_same_for_an_identity_named_twice(server: Server) -> None:
    name = server.queue()
    server.fill(name, "a")
    twice = authorization(f"{server.key};Application {server.key}")

    assert server.call("GET", name, headers=twice).json()["messages"][0]["body"] == "a"
