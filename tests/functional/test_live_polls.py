"""Long polls and conditional reads: an answer when there is something new, and not before."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
import requests

from tests.support import raw
from tests.support.client import Server, authorization, refused
from tests.support.live import own_server, until_waiting, waiters
from tests.support.servers import RunningServer, eventually

shipped_server = own_server


@pytest.fixture
def aside() -> Iterator[ThreadPoolExecutor]:
    """Where a test waits for one answer while it asks for another."""
    with ThreadPoolExecutor() as threads:
        yield threads


def polling(aside: ThreadPoolExecutor, server: Server, queue: str, **params: object) -> Future[requests.Response]:
    """A poll that waits now, and nobody else: what a test before has left behind has gone."""
    until_waiting(server, 0)
    with_own_connection = Server(server.running, server.application, server.key)
    poll = aside.submit(with_own_connection.get, queue, **{"wait": 20, **params})
    until_waiting(server, 1)
    return poll


def test_what_is_there_is_answered_at_once(server: Server) -> None:
    name = server.queue()
    server.fill(name, "a", "b")

    assert server.bodies(name, wait=20) == ["a", "b"]


def test_nothing_is_answered_when_the_time_is_over(server: Server) -> None:
    name = server.queue()

    answer = server.get(name, wait=1)

    assert answer.json() == {"status": "ok", "messages": []}
    assert "Queuey-Wait" not in answer.headers
    eventually(lambda: waiters(server) == 0)


def test_an_append_wakes_who_waits(server: Server, aside: ThreadPoolExecutor) -> None:
    name = server.queue()
    server.fill(name, "before")
    cursor = server.get(name).headers["Queuey-Cursor"]

    poll = polling(aside, server, name, cursor=cursor)
    server.fill(name, "after")
    answer = poll.result()

    assert [message["body"] for message in answer.json()["messages"]] == ["after"]
    assert server.bodies(name, cursor=answer.headers["Queuey-Cursor"]) == []


def test_a_poll_that_names_no_partitions_reads_all_of_them(server: Server, aside: ThreadPoolExecutor) -> None:
    name = server.queue(partitions=4)
    for number in range(8):
        server.fill(name, str(number), partition=number % 4 + 1)

    there = server.get(name, wait=20)
    poll = polling(aside, server, name, cursor=there.headers["Queuey-Cursor"])
    server.fill(name, "comes", partition=3)

    assert sorted(message["body"] for message in there.json()["messages"]) == [str(number) for number in range(8)]
    assert [message["body"] for message in poll.result().json()["messages"]] == ["comes"]


def test_an_append_elsewhere_wakes_nobody(server: Server, aside: ThreadPoolExecutor) -> None:
    name, other = server.queue(partitions=2), server.queue()

    poll = polling(aside, server, name, wait=2, partitions="2")
    server.fill(other, "elsewhere")
    server.fill(name, "in another partition", partition=1)

    assert poll.result().json()["messages"] == []


def test_any_partition_wakes_who_reads_all(server: Server, aside: ThreadPoolExecutor) -> None:
    name = server.queue(partitions=5)

    poll = polling(aside, server, name, partitions="all")
    server.fill(name, "in the last", partition=5)

    assert [message["partition"] for message in poll.result().json()["messages"]] == [5]


@pytest.mark.parametrize("stored", ["before the poll", "during the poll"])
def test_a_message_that_falls_due_wakes_who_waits(server: Server, aside: ThreadPoolExecutor, stored: str) -> None:
    name = server.queue()
    if stored == "before the poll":
        server.add(name, "later", x_delay="1.5")

    poll = polling(aside, server, name)
    if stored == "during the poll":
        server.add(name, "later", x_delay="1")

    assert [message["body"] for message in poll.result().json()["messages"]] == ["later"]


def test_a_queue_that_is_deleted_ends_the_wait(server: Server, aside: ThreadPoolExecutor) -> None:
    name = server.queue()

    poll = polling(aside, server, name)
    server.call("DELETE", name)

    refused(poll.result(), 404, "InvalidQueueName")


def test_a_reader_who_may_no_longer_read_is_told(server: Server, aside: ThreadPoolExecutor) -> None:
    name = server.queue()

    poll = polling(aside, server, name)
    server.call("PUT", name, data={"principles": "bid:joe@example.org"})

    refused(poll.result(), 403, "Forbidden")


def test_a_reader_who_leaves_waits_no_longer(shipped_server: RunningServer) -> None:
    with Server(shipped_server) as server:
        path = f"{server.url}/v1/queuey/{server.queue()}?wait=20"
        with pytest.raises(requests.Timeout):
            requests.get(path, headers=authorization(server.key), timeout=0.5)

        until_waiting(server, 0)


def test_a_reader_who_has_left_before_its_wait_does_not_wait(shipped_server: RunningServer) -> None:
    with Server(shipped_server) as server:
        path = f"/v1/queuey/{server.queue()}?wait=20"
        until_waiting(server, 0)
        head = f"GET {path} HTTP/1.1\r\nHost: q\r\nAuthorization: Application {server.key}\r\n\r\n"
        raw.send(shipped_server.port, head.encode(), half_close=True)

        until_waiting(server, 0, seconds=15)


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({"wait": "21"}, "wait"),
        ({"wait": "-1"}, "wait"),
        ({"wait": "soon"}, "wait"),
        ({"wait": "1", "until": "5"}, "until"),
        ({"wait": "1", "order": "descending"}, "order"),
        ({"wait": "1", "limit": "101"}, "limit"),
        ({"wait": "1", "cursor": "nonsense"}, "cursor"),
        ({"follow": "true"}, "follow"),
    ],
    ids=str,
)
def test_what_does_not_go_with_waiting_is_refused(server: Server, params: dict[str, str], field: str) -> None:
    refused(server.get(server.queue(), **params), 400, field)


def test_who_may_not_read_does_not_wait(server: Server, anonymous: Server) -> None:
    refused(anonymous.get(server.queue(), wait=20), 403, "Forbidden")


# If-None-Match


@pytest.mark.parametrize("weak", ["W/", ""])
def test_what_the_reader_has_is_not_sent_again(server: Server, weak: str) -> None:
    """RFC 9110, 8.8.3.2: whether a tag is said to be weak plays no part here."""
    name = server.queue()
    server.fill(name, "a")
    first = server.get(name)

    known = weak + first.headers["ETag"].removeprefix("W/")
    again = server.call("GET", name, headers={"If-None-Match": known})
    server.fill(name, "b")
    changed = server.call("GET", name, headers={"If-None-Match": first.headers["ETag"]})

    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["ETag"] == first.headers["ETag"]
    assert again.headers["Queuey-Cursor"] == first.headers["Queuey-Cursor"]
    assert [message["body"] for message in changed.json()["messages"]] == ["a", "b"]
    assert changed.headers["ETag"] != first.headers["ETag"]


def test_a_connection_goes_on_after_a_304(server: Server) -> None:
    name = server.queue()
    tag = server.get(name).headers["ETag"]

    statuses = [server.call("GET", name, headers={"If-None-Match": tag}).status_code for _ in range(3)]

    assert (statuses, server.read(name)) == ([304] * 3, [])


def test_an_overwritten_or_deleted_message_changes_the_tag(server: Server) -> None:
    name = server.queue()
    (first, second) = server.fill(name, "aa", "bb")
    tags = [server.get(name).headers["ETag"]]

    server.call("PUT", name, first, data=b"cc")
    tags.append(server.get(name).headers["ETag"])
    server.call("DELETE", name, second)
    tags.append(server.get(name).headers["ETag"])

    assert len(set(tags)) == 3


def test_a_poll_waits_for_something_else_than_the_reader_has(server: Server, aside: ThreadPoolExecutor) -> None:
    name = server.queue()
    server.fill(name, "a")
    tag = server.get(name, wait=0).headers["ETag"]

    def poll() -> requests.Response:
        with Server(server.running, server.application, server.key) as own:
            return own.call("GET", name, params={"wait": 20}, headers={"If-None-Match": tag})

    waiting = aside.submit(poll)
    until_waiting(server, 1)
    server.fill(name, "b")

    assert [message["body"] for message in waiting.result().json()["messages"]] == ["a", "b"]


# Several queues


def test_several_queues_are_read_in_one_answer(server: Server, other: Server) -> None:
    one, two, theirs = server.queue(), server.queue(partitions=6), other.queue()
    server.fill(one, "1")
    server.fill(two, "2", partition=6)
    params = {"queues": f"{one},{two},{theirs},gone"}

    answer = server.call("GET", params=params)
    found = answer.json()

    assert [(m["queue"], m["partition"], m["body"]) for m in found["messages"]] == [(one, 1, "1"), (two, 6, "2")]
    assert [(entry["queue"], entry["code"]) for entry in found["refused"]] == [
        (theirs, "QueueNotFound"),
        ("gone", "QueueNotFound"),
    ]
    assert server.call("GET", params={**params, "cursor": answer.headers["Queuey-Cursor"]}).json()["messages"] == []


def test_nothing_is_complete_where_none_of_several_queues_was_read(server: Server) -> None:
    """The header named a moment in the year 1582."""
    name = server.queue()

    answer = server.call("GET", params={"queues": "gone,lost"})

    assert answer.status_code == 200
    assert [entry["queue"] for entry in answer.json()["refused"]] == ["gone", "lost"]
    assert "Queuey-Watermark" not in answer.headers
    assert "Queuey-Watermark" in server.call("GET", params={"queues": f"gone,{name}"}).headers


def test_a_queue_among_several_tells_no_more_than_alone(server: Server, anonymous: Server) -> None:
    private, public = server.queue(), server.queue(type="public")
    server.fill(public, "for all")

    found = anonymous.call("GET", params={"queues": f"{private},absent,{public}"}).json()

    assert [message["body"] for message in found["messages"]] == ["for all"]
    assert {entry["code"] for entry in found["refused"]} == {"Forbidden"}
    alone = anonymous.get(private).json()
    assert {entry["detail"] for entry in found["refused"]} == {alone["detail"]}


def test_any_of_several_queues_wakes_who_waits(server: Server, aside: ThreadPoolExecutor) -> None:
    names = [server.queue() for _ in range(7)]
    first = server.call("GET", params={"queues": ",".join(names)})

    def poll() -> requests.Response:
        with Server(server.running, server.application, server.key) as own:
            params = {"queues": ",".join(names), "wait": 20, "cursor": first.headers["Queuey-Cursor"]}
            return own.call("GET", params=params)

    waiting = aside.submit(poll)
    until_waiting(server, 1)
    server.fill(names[4], "here")

    assert [(m["queue"], m["body"]) for m in waiting.result().json()["messages"]] == [(names[4], "here")]


@pytest.mark.parametrize(
    "params",
    [
        {"queues": ",".join(f"q{number}" for number in range(101))},
        {"queues": "a b"},
        {"queues": "a,,b"},
        {"queues": "a", "partitions": "1"},
        {"queues": "a", "cursor": "several~1"},
        {"queues": "a", "cursor": "0" * 32 + ".all"},
        {"queues": "a", "wait": "99"},
    ],
    ids=str,
)
def test_wrong_requests_for_several_queues_are_refused(server: Server, params: dict[str, str]) -> None:
    assert server.call("GET", params=params).status_code == 400


def test_a_limit_counts_in_each_partition_and_the_cursor_goes_on(server: Server) -> None:
    names = [server.queue() for _ in range(3)]
    for name in names:
        server.fill(name, "1", "2", "3")
    params = {"queues": ",".join(names), "limit": "2"}

    first = server.call("GET", params=params)
    second = server.call("GET", params={**params, "cursor": first.headers["Queuey-Cursor"]})

    assert [len(answer.json()["messages"]) for answer in (first, second)] == [6, 3]
    assert [answer.headers["Queuey-More"] for answer in (first, second)] == ["true", "false"]
    assert {message["body"] for message in second.json()["messages"]} == {"3"}
