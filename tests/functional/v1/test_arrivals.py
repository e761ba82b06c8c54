"""Which queues of an application got something, for a client that cannot ask each."""

from __future__ import annotations

import time

import pytest
from requests import Response

from tests.support.client import Server, new_name, refused
from tests.support.servers import eventually


@pytest.fixture
def knows_all(request: pytest.FixtureRequest) -> bool:
    """Over Cassandra other servers append as well."""
    way: str = request.node.callspec.params["running"]
    return way != "cassandra"


def arrivals(server: Server, cursor: str | None = None, **params: str) -> Response:
    answer = server.call("GET", params={"arrivals": "true", "cursor": cursor or "", **params})
    assert answer.status_code == 200
    return answer


def names(server: Server, cursor: str, **params: str) -> list[str]:
    return [entry["queue_name"] for entry in arrivals(server, cursor, **params).json()["queues"]]


def test_queues_that_got_messages_are_told_with_their_settings(fresh: Server, knows_all: bool) -> None:
    first, second, _quiet = (fresh.queue(partitions=number) for number in (1, 2, 3))
    begun = arrivals(fresh)
    cursor = begun.headers["Queuey-Cursor"]
    fresh.add(second, b"x", x_partition=2)
    fresh.add(first, b"x")

    eventually(lambda: set(names(fresh, cursor)) == {first, second})
    told = arrivals(fresh, cursor, details="true")

    assert begun.json() == {"status": "ok", "queues": [], "complete": False}
    assert told.json()["complete"] == knows_all
    assert told.headers["Queuey-More"] == "false"
    listed = fresh.call("GET", params={"details": "true"}).json()["queues"]
    assert {entry["queue_name"]: entry for entry in told.json()["queues"]} == {
        entry["queue_name"]: entry for entry in listed if entry["queue_name"] in (first, second)
    }
    assert names(fresh, told.headers["Queuey-Cursor"]) == []
    assert set(names(fresh, "")) == {first, second}


def test_pages_of_arrivals_follow_their_cursors(fresh: Server) -> None:
    queues = [fresh.queue() for _ in range(5)]
    cursor = arrivals(fresh).headers["Queuey-Cursor"]
    for queue in queues:
        fresh.add(queue, b"x")
    eventually(lambda: len(names(fresh, cursor)) == len(queues))

    page = arrivals(fresh, cursor, limit="3")
    rest = arrivals(fresh, page.headers["Queuey-Cursor"], limit="3")

    assert [page.headers["Queuey-More"], rest.headers["Queuey-More"]] == ["true", "false"]
    assert sorted(entry["queue_name"] for one in (page, rest) for entry in one.json()["queues"]) == sorted(queues)


def test_a_queue_is_told_when_its_message_is_due_and_of_writes_by_id(fresh: Server) -> None:
    later, by_id, gone = (fresh.queue() for _ in range(3))
    place = fresh.add(by_id, b"x")["key"]
    cursor = arrivals(fresh).headers["Queuey-Cursor"]
    due = float(fresh.add(later, b"x", x_delay=2)["timestamp"])
    fresh.add(gone, b"x")
    fresh.call("DELETE", gone)
    fresh.call("PUT", by_id, place, data=b"anew")

    told = names(fresh, cursor)
    assert later not in told or time.time() >= due  # a busy machine comes to ask when it is due
    eventually(lambda: set(names(fresh, cursor)) == {by_id, later})


def test_arrivals_are_for_the_owner(server: Server, anonymous: Server, other: Server) -> None:
    cursor = arrivals(server).headers["Queuey-Cursor"]
    queue = other.queue()
    other.add(queue, b"x")

    assert anonymous.call("GET", params={"arrivals": "true"}).status_code in (401, 403)
    assert queue not in names(server, cursor)


@pytest.mark.parametrize(
    ("params", "field"), [({"cursor": "x"}, "cursor"), ({"limit": "0"}, "limit"), ({"limit": "1001"}, "limit")]
)
def test_bad_questions_are_refused(server: Server, params: dict[str, str], field: str) -> None:
    refused(server.call("GET", params={"arrivals": "true", **params}), 400, field)


def test_without_arrivals_it_is_the_list(fresh: Server) -> None:
    name = fresh.queue(queue_name=new_name())

    assert fresh.call("GET", params={"arrivals": "false"}).json()["queues"] == [{"queue_name": name}]
