"""Streams of events and of lines: each message once, wherever a reader takes up again."""

from __future__ import annotations

import json
import signal
import socket
from os import kill
from pathlib import Path

import pytest

from tests.support import servers
from tests.support.client import Server, refused
from tests.support.live import EVENTS, LINES, LiveAnswer, own_server, read_live, until_waiting
from tests.support.servers import APPLICATIONS

shipped_server = own_server

FORMS = pytest.mark.parametrize("accept", [EVENTS, LINES])


@FORMS
def test_a_stream_gives_what_is_there_then_what_comes(server: Server, accept: str) -> None:
    name = server.queue()
    server.fill(name, "there")

    with read_live(server, name, accept=accept) as stream:
        opened = stream.next("open")
        there = stream.next()
        server.add(name, "comes", content_type="text/plain")
        server.add(name, b"\xff\x00")
        comes, binary = stream.next(), stream.next()

    assert (opened.said["queue"], there.body, comes.body) == (name, "there", "comes")
    assert comes.said["content_type"] == "text/plain"
    assert (binary.body, binary.said["encoding"]) == ("/wA=", "base64")
    assert stream.answer.headers["Content-Type"] == accept
    assert stream.answer.headers["Cache-Control"] == "no-store"
    assert stream.answer.headers["X-Accel-Buffering"] == "no"
    until_waiting(server, 0)


@FORMS
def test_a_stream_that_names_no_partitions_reads_all_of_them(server: Server, accept: str) -> None:
    name = server.queue(partitions=4)
    sent = {str(number) for number in range(8)}
    for body in sorted(sent):
        server.fill(name, body, partition=int(body) % 4 + 1)

    with read_live(server, name, accept=accept) as stream:
        stream.next("open")
        found = [stream.next() for _ in sent]
        server.fill(name, "comes", partition=3)
        assert stream.next().body == "comes"
    assert {event.body for event in found} == sent

    assert found[-1].cursor is not None
    server.call("PUT", name, data={"partitions": "5"})
    server.fill(name, "in the new one", partition=5)
    assert set(server.bodies(name, cursor=found[-1].cursor)) == {"comes", "in the new one"}


def test_an_event_has_the_entry_of_a_read_as_its_data(server: Server) -> None:
    name = server.queue(partitions=2)
    server.post_batch(name, {"body": "zwei\nZeilen ü", "key": "k", "content_type": "text/plain"})

    with read_live(server, name, partitions="all") as stream:
        stream.next("open")
        event = stream.next()

    assert [event.said] == server.read(name, partitions="all")


@FORMS
def test_every_message_says_where_to_go_on(server: Server, accept: str) -> None:
    name = server.queue()
    server.fill(name, *"abcde")
    with read_live(server, name, accept=accept) as stream:
        opened, *events = [stream.next("open"), *(stream.next() for _ in "abcde")]

    for at, event in enumerate([opened, *events]):
        given = {"headers": {"Last-Event-ID": event.cursor}} if accept == EVENTS else {"cursor": event.cursor}
        with read_live(server, name, accept=accept, **given) as again:
            again.next("open")
            assert "".join(again.bodies(5 - at)) == "abcde"[at:]


def test_last_event_id_counts_more_than_the_parameters_a_browser_repeats(server: Server) -> None:
    name = server.queue()
    first, *_ = server.fill(name, *"abc")
    with read_live(server, name, since=first) as stream:
        stream.next("open")
        seen = [stream.next(), stream.next()]

    with read_live(server, name, since=first, headers={"Last-Event-ID": str(seen[-1].cursor)}) as again:
        again.next("open")
        assert again.next().body == "c"


def test_a_stream_and_a_read_take_each_others_cursors(server: Server) -> None:
    name = server.queue(partitions=6)
    for number in range(1, 7):
        server.fill(name, f"{number}", partition=number)
    page = server.get(name, partitions="all")
    with read_live(server, name, accept=LINES, cursor=page.headers["Queuey-Cursor"]) as stream:
        stream.next("open")
        server.fill(name, "new", partition=3)
        event = stream.next()

    assert event.body == "new"
    assert server.bodies(name, cursor=event.cursor) == []
    server.fill(name, "newer", partition=5)
    assert server.bodies(name, cursor=event.cursor) == ["newer"]


@FORMS
def test_many_partitions_flow_and_each_cursor_goes_on(server: Server, accept: str) -> None:
    name = server.queue(partitions=20)
    with read_live(server, name, accept=accept, partitions="all") as stream:
        stream.next("open")
        events = []
        for number in range(20):
            server.fill(name, str(number), partition=number + 1)
            events.append(stream.next())

    assert [int(event.body) for event in events] == list(range(20))
    for event in (events[0], events[9], events[19]):
        given = {"headers": {"Last-Event-ID": event.cursor}} if accept == EVENTS else {"cursor": event.cursor}
        with read_live(server, name, accept=accept, **given) as again:
            again.next("open")
            left = again.bodies(19 - int(event.body))
        assert sorted(left, key=int) == [str(number) for number in range(int(event.body) + 1, 20)]


def test_a_message_comes_when_it_is_due(server: Server) -> None:
    name = server.queue()
    server.add(name, "second", x_delay="2")

    with read_live(server, name) as stream:
        stream.next("open")
        server.add(name, "first", x_delay="1")
        assert stream.bodies(2) == ["first", "second"]


def test_partitions_added_later_are_followed(careful_server: Server) -> None:
    """The change of the queue makes the stream read, and the append may be under way by then."""
    server = careful_server
    name = server.queue()

    with read_live(server, name, partitions="all") as stream:
        stream.next("open")
        server.call("PUT", name, data={"partitions": 3})
        server.fill(name, "new", partition=3)
        event = stream.next()

    assert (event.said["partition"], event.body) == (3, "new")


def test_columns_are_those_asked_for(server: Server) -> None:
    name = server.queue()
    server.fill(name, "a")

    with read_live(server, name, columns="message_id,queue") as stream:
        stream.next("open")
        assert set(stream.next().said) == {"message_id", "queue"}


def test_lines_with_a_wait_end_with_the_first_messages(server: Server) -> None:
    name = server.queue()

    with read_live(server, name, accept=LINES, follow="false", wait="20") as stream:
        stream.next("open")
        server.fill(name, "a")
        assert stream.next().body == "a"
        end = stream.next("end")
        assert stream.rest() == []

    assert (end.said["rows"], end.said["more"]) == (1, False)
    assert server.bodies(name, cursor=end.cursor) == []


def test_lines_with_a_wait_end_when_the_time_is_over(server: Server) -> None:
    with read_live(server, server.queue(), accept=LINES, follow="false", wait="1") as stream:
        assert [stream.next("open").name, *stream.rest()] == ["open", "end"]


@pytest.mark.parametrize("params", [{"wait": "1"}, {"limit": "5"}, {"until": "5"}, {"order": "descending"}])
def test_what_does_not_go_with_a_stream_is_refused(server: Server, params: dict[str, str]) -> None:
    (field,) = params
    answer = server.call("GET", server.queue(), params=params, headers={"Accept": EVENTS})

    refused(answer, 400, field)


def test_partitions_that_are_none_of_the_queue_are_refused(server: Server) -> None:
    refused(
        server.call("GET", server.queue(), params={"partitions": "7"}, headers={"Accept": EVENTS}), 400, "partitions"
    )


def test_a_head_is_answered_without_a_stream(server: Server) -> None:
    answer = server.call("HEAD", server.queue(), headers={"Accept": EVENTS})

    assert (answer.status_code, answer.headers["Content-Type"], answer.content) == (200, EVENTS, b"")
    until_waiting(server, 0)


# The end of a queue


@FORMS
def test_a_deleted_queue_ends_its_stream(server: Server, accept: str) -> None:
    name = server.queue()

    with read_live(server, name, accept=accept) as stream:
        stream.next("open")
        server.call("DELETE", name)
        reset, end = stream.next("reset"), stream.next("end")
        assert stream.rest() == []

    assert (reset.said["queue"], reset.said["code"]) == (name, "QueueNotFound")
    assert (end.said["code"], end.said["retriable"]) == ("QueueNotFound", False)


@FORMS
def test_a_cursor_of_a_former_queue_is_told_and_the_new_one_flows(server: Server, accept: str) -> None:
    name = server.queue()
    server.fill(name, "old")
    with read_live(server, name, accept=accept) as stream:
        stream.next("open")
        cursor = stream.next().cursor
    server.call("DELETE", name)
    server.create(name)
    server.fill(name, "new")

    given = {"headers": {"Last-Event-ID": cursor}} if accept == EVENTS else {"cursor": cursor}
    with read_live(server, name, accept=accept, **given) as again:
        again.next("open")
        assert again.next("reset").said["code"] == "CursorLost"
        assert again.next().body == "new"


def test_who_may_read_no_longer_is_told(server: Server) -> None:
    name = server.queue()

    with read_live(server, name) as stream:
        stream.next("open")
        server.call("PUT", name, data={"principles": "bid:joe@example.org"})
        assert stream.next("refused").said["code"] == "Forbidden"
        assert stream.next("end").said["code"] == "Forbidden"
        assert stream.rest() == []


def test_who_may_not_read_gets_no_stream(server: Server, anonymous: Server) -> None:
    name = server.queue()

    for path in ([name], ["absent"]):
        refused(anonymous.call("GET", *path, headers={"Accept": EVENTS}), 403, "Forbidden")


# Several queues


@FORMS
def test_several_queues_flow_beside_one_that_cannot_be_read(server: Server, accept: str) -> None:
    names = [server.queue() for _ in range(6)]
    server.fill(names[5], "there")

    with read_live(server, accept=accept, queues=",".join([*names, "absent"])) as stream:
        opened, absent = stream.next("open"), stream.next("refused")
        there = stream.next()
        for name in names:
            server.fill(name, f"in {name}")
        came = [stream.next() for _ in names]

    assert opened.said["queues"] == names
    assert absent.said["queue"] == "absent"
    assert (there.said["queue"], there.body) == (names[5], "there")
    assert sorted(event.body for event in came) == sorted(f"in {name}" for name in names)
    assert all(event.body == f"in {event.said['queue']}" for event in came)


@pytest.mark.parametrize("partitions", [1, 3])
def test_each_cursor_of_several_queues_goes_on(server: Server, partitions: int) -> None:
    names = [server.queue(partitions=partitions) for _ in range(12)]
    asked = ",".join(names)
    with read_live(server, queues=asked) as stream:
        stream.next("open")
        seen = []
        for turn in range(24):
            server.fill(names[turn % 12], str(turn), partition=turn % partitions + 1)
            seen.append(stream.next())

    assert [event.body for event in seen] == [str(turn) for turn in range(24)]
    for at in (0, 7, 13, 22):
        with read_live(server, queues=asked, headers={"Last-Event-ID": str(seen[at].cursor)}) as again:
            again.next("open")
            assert sorted(again.bodies(23 - at), key=int) == [str(turn) for turn in range(at + 1, 24)]


def test_a_queue_that_goes_leaves_the_others_flowing(server: Server) -> None:
    names = [server.queue() for _ in range(3)]

    with read_live(server, queues=",".join(names)) as stream:
        stream.next("open")
        server.call("DELETE", names[1])
        assert stream.next("reset").said["queue"] == names[1]
        server.fill(names[2], "still here")
        assert stream.next().body == "still here"


def test_a_stream_of_nothing_that_can_be_read_ends(server: Server) -> None:
    with read_live(server, queues="absent,gone") as stream:
        assert stream.rest() == ["refused", "refused", "end"]


# Servers that stop, clients that do not read


@FORMS
def test_a_stop_ends_streams_in_order(tmp_path: Path, accept: str) -> None:
    with servers.shipped(tmp_path) as running, Server(running) as server:
        name = server.queue()
        with read_live(server, name, accept=accept) as stream:
            stream.next("open")
            kill(running.pid, signal.SIGTERM)
            end = stream.next("end")
            assert stream.rest() == []

    assert (end.said["code"], end.said["retriable"]) == ("ServerStopping", True)


def test_a_stop_answers_long_polls(tmp_path: Path) -> None:
    with servers.shipped(tmp_path) as running, Server(running) as server:
        name = server.queue()
        with socket.create_connection(("127.0.0.1", running.port), timeout=90) as client:
            key = APPLICATIONS["queuey"][0]
            client.sendall(
                f"GET /v1/queuey/{name}?wait=20 HTTP/1.1\r\nHost: q\r\nAuthorization: Application {key}\r\n\r\n".encode()
            )
            until_waiting(server, 1)
            kill(running.pid, signal.SIGTERM)
            answer = client.makefile("rb").read()

    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 ")
    assert json.loads(body) == {"status": "ok", "messages": []}


def test_a_restarted_server_goes_on_where_it_was(tmp_path: Path) -> None:
    with servers.shipped(tmp_path) as running, Server(running) as server:
        name = server.queue(partitions=5)
        with read_live(server, name, partitions="all") as stream:
            stream.next("open")
            server.fill(name, "a", partition=5)
            cursor = stream.next().cursor
            server.fill(name, "b", partition=4)
            kill(running.pid, signal.SIGKILL)
    with servers.shipped(tmp_path) as running, Server(running) as server:
        with read_live(server, name, headers={"Last-Event-ID": str(cursor)}) as stream:
            stream.next("open")
            server.fill(name, "c", partition=5)
            assert sorted(stream.bodies(2)) == ["b", "c"]


# How many may wait


LIMITS = """client_timeout_seconds = 1

[limits]
max_waiters = 5
max_waiters_per_application = 3
max_in_flight = 2
"""


def opened(stream: LiveAnswer) -> LiveAnswer:
    stream.next("open")
    return stream


def test_beyond_the_limit_readers_are_refused_and_the_rest_goes_on(tmp_path: Path) -> None:
    with (
        servers.shipped(tmp_path, settings=LIMITS) as running,
        Server(running) as server,
        Server(running, "other") as other,
    ):
        mine, theirs = server.queue(), other.queue()
        with read_live(server, mine) as a, read_live(server, mine) as b, read_live(server, mine) as c:
            streams = [opened(stream) for stream in (a, b, c)]
            fourth = server.call("GET", mine, headers={"Accept": EVENTS})
            poll = server.get(mine, wait=20)
            with read_live(other, theirs) as d, read_live(other, theirs) as e:
                streams_of_others = [opened(stream) for stream in (d, e)]
                full = other.get(theirs, wait=20)
                server.fill(mine, "to all")
                said = [stream.next().body for stream in streams]
                until_waiting(server, 5)
        metrics = server.request("GET", "/metrics").text

    assert refused(fourth, 429, "TooManyWaiters")["TooManyWaiters"].startswith("app:queuey has 3 waiting readers")
    assert (poll.status_code, poll.headers["Retry-After"]) == (429, "1")
    assert (full.status_code, full.json()["messages"]) == (200, [])
    assert (full.headers["Queuey-Wait"], full.headers["Retry-After"]) == ("refused", "1")
    assert (said, len(streams_of_others)) == (["to all"] * 3, 2)
    assert 'queuey_waiters_refused_total{limit="application"} 2.0' in metrics
    assert 'queuey_waiters_refused_total{limit="server"} 1.0' in metrics


def test_a_reader_that_takes_nothing_is_ended_and_holds_little(tmp_path: Path) -> None:
    with servers.shipped(tmp_path, settings=LIMITS) as running, Server(running) as server:
        name = server.queue()
        body = "x" * 1_000_000
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect(("127.0.0.1", running.port))
            key = APPLICATIONS["queuey"][0]
            client.sendall(
                f"GET /v1/queuey/{name} HTTP/1.1\r\nHost: q\r\nAccept: {EVENTS}\r\n"
                f"Authorization: Application {key}\r\n\r\n".encode()
            )
            until_waiting(server, 1)
            for _ in range(20):
                server.add(name, body)
            until_waiting(server, 0)
        with read_live(server, name) as stream:
            stream.next("open")
            assert [len(stream.next().body) for _ in range(20)] == [1_000_000] * 20
