"""The client of the project against the real server."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import pytest

from qdo.client import Client, GroupOffset, Message, NewMessage, Page
from queuey.errors import (
    CursorLost,
    Forbidden,
    InvalidApplicationKey,
    InvalidParameter,
    KeyReused,
    MessageNotFound,
    OffsetMovesBack,
    PartitionsCannotShrink,
    QueueExists,
    QueueNotFound,
    StaleGeneration,
)
from queuey.ids import MessageId
from tests.support.client import Server, new_name
from tests.support.over_asyncio import make_client
from tests.support.servers import RunningServer
from tests.support.services.proxy import RESET_WHEN_CLOSED
from tests.support.stores import STORES
from tests.support.trusting import TrustingServer


@pytest.fixture(params=[*STORES, "asyncio"])
def running(request: pytest.FixtureRequest) -> RunningServer:
    """Each store with the blocking client, and the embedded one with the client for asyncio."""
    store = "shipped" if request.param == "asyncio" else request.param
    found = request.getfixturevalue(f"{store}_server")
    assert isinstance(found, RunningServer)
    return found


@pytest.fixture
def client(server: Server, request: pytest.FixtureRequest) -> Iterator[Client]:
    kind = "asyncio" if request.node.callspec.params["running"] == "asyncio" else "blocking"
    with make_client(kind, server.url, server.application, server.key) as client:
        yield client


@pytest.fixture
def queue(client: Client) -> str:
    return client.create_queue(new_name(), partitions=3).name


def texts(messages: Iterator[Message] | list[Message] | tuple[Message, ...]) -> list[str]:
    return [message.text for message in messages]


def test_a_queue_is_made_changed_looked_at_and_removed(client: Client) -> None:
    made = client.create_queue(partitions=2, kind="public", principals=["app:other"])
    changed = client.update_queue(made.name, partitions=4)
    cleared = client.update_queue(made.name, principals=[])
    info, found = client.queue_info(made.name), client.find_queue(made.name)
    client.delete_queue(made.name)

    assert found is not None
    assert (found.name, found.partitions, found.kind) == (made.name, 4, "public")
    assert client.find_queue(made.name) is client.find_queue(made.name[:-1]) is None
    assert (made.partitions, made.kind, made.consistency, made.principals) == (2, "public", "strong", ("app:other",))
    assert (changed.partitions, changed.kind, changed.principals) == (4, "public", ("app:other",))
    assert cleared.principals == ()
    assert (info.settings.name, info.depth, [part.number for part in info.partitions]) == (made.name, 0, [1, 2, 3, 4])
    with pytest.raises(QueueNotFound, match=r'no queue is named "[^"]+": create_queue makes it'):
        client.queue_info(made.name)


def test_a_new_queue_is_new_and_partitions_never_fall(client: Client, queue: str) -> None:
    with pytest.raises(QueueExists):
        client.create_queue(queue, only_new=True)
    with pytest.raises(PartitionsCannotShrink):
        client.update_queue(queue, partitions=1)

    assert client.create_queue(queue, partitions=1).partitions == 3


def test_queues_are_listed_over_all_pages(fresh: Server) -> None:
    names = [f"q{number:02d}" for number in range(7)]
    with Client(fresh.url, fresh.application, fresh.key) as client:
        for name in names:
            client.create_queue(name)
        client.append("q05", "hello")

        assert [queue.name for queue in client.queues(page_size=3)] == names
        assert [(queue.name, queue.count) for queue in client.queues(start="q05", with_counts=True)] == [
            ("q05", 1),
            ("q06", 0),
        ]


@pytest.mark.parametrize("trusting_server", ["shipped"], indirect=True)
def test_an_operator_lists_the_applications_over_all_pages(trusting_server: TrustingServer, operator: str) -> None:
    with Server(trusting_server) as server, Client(server.url, server.application, operator) as asked:
        names = [*asked.applications(page_size=1)]

        assert names == sorted(names)
        assert server.application in names
        assert [*asked.applications(start=server.application)] == names[names.index(server.application) :]
        with Client(server.url, server.application, server.key) as refused, pytest.raises(Forbidden):
            next(refused.applications())


@pytest.mark.parametrize("body", ["text", "ünï ☃", b"\x00\xff bytes", '{"json": 1}'])
@pytest.mark.parametrize("content_type", [None, "text/x-own; charset=utf-8", "application/json"])
def test_what_is_appended_is_what_is_read(
    client: Client, queue: str, body: str | bytes, content_type: str | None
) -> None:
    raw = body if isinstance(body, bytes) else body.encode()

    placed = client.append(queue, NewMessage(body, content_type=content_type, partition=2))

    expected = Message(placed.id, 2, raw, content_type)
    assert client.read(queue).messages == (expected,)
    assert client.get(queue, placed) == [expected]
    assert client.get_raw(queue, placed).body == raw
    with client.stream_ndjson(queue) as stream:
        assert list(stream) == [expected]


def test_a_batch_keeps_order_and_choices(client: Client, queue: str) -> None:
    placed = client.append_batch(
        queue, ["a", NewMessage(b"\xff", key="schlüssel"), NewMessage("c", partition=3, ttl_seconds=60)]
    )

    found = client.get(queue, placed)
    assert [message.body for message in found] == [b"a", b"\xff", b"c"]
    assert [message.key for message in found] == [None, "schlüssel", None]
    assert sorted(place.id for place in placed) == [place.id for place in placed]
    assert placed[2].partition == 3
    assert client.append(queue, NewMessage("d", key="schlüssel")).partition == placed[1].partition


def test_an_idempotency_key_stores_once(client: Client, queue: str) -> None:
    message = NewMessage("once", idempotency_key="k")

    first, second = client.append(queue, message), client.append(queue, message)

    assert (first.id, first.repeated, second.id, second.repeated) == (second.id, False, first.id, True)
    with pytest.raises(KeyReused):
        client.append(queue, NewMessage("other", idempotency_key="k"))
    assert texts(list(client.iterate(queue))) == ["once"]


def test_an_empty_idempotency_key_is_refused_and_not_replaced(client: Client, queue: str) -> None:
    """It is a variable that is not set: a new key would store a repeat twice."""
    message = NewMessage("once", idempotency_key="")

    with pytest.raises(InvalidParameter, match="1 to 128"):
        client.append(queue, message)
    with pytest.raises(InvalidParameter, match="1 to 128"):
        client.append_batch(queue, ["x"], idempotency_key="")
    with pytest.raises(InvalidParameter, match="1 to 128"):
        client.append_batch(queue, [message])
    assert texts(list(client.iterate(queue))) == []


def test_every_problem_of_a_message_comes_across(client: Client, queue: str) -> None:
    with pytest.raises(InvalidParameter) as caught:
        client.append(queue, NewMessage("x", ttl_seconds=0, partition=9))

    assert set(caught.value.problems) == {"ttl", "partition"}


@pytest.mark.parametrize("headers", [{}, {"a": "b"}], ids=["as it is", "as a batch of one"])
def test_the_fields_of_one_message_have_no_place_in_a_batch(
    client: Client, queue: str, headers: Mapping[str, str]
) -> None:
    """It said '0.delay' for a message with headers, as each task has them."""
    with pytest.raises(InvalidParameter) as caught:
        client.append(queue, NewMessage("x", delay_seconds=-1, partition=900, headers=headers))

    assert sorted(caught.value.problems) == ["delay", "partition"]


def test_a_scheduled_message_can_be_taken_back(client: Client, queue: str) -> None:
    due = datetime.now(UTC) + timedelta(hours=1)
    placed = client.append(queue, NewMessage("later", deliver_at=due))
    also = client.append(queue, NewMessage("later too", delay_seconds=3600.5))

    info = client.queue_info(queue)
    client.delete(queue, [placed, also])

    assert (info.scheduled, info.bytes) == (2, sum(part.bytes for part in info.partitions))
    assert info.bytes > 0
    assert abs(float(placed.timestamp) - due.timestamp()) < 0.001
    assert client.read(queue).messages == ()
    assert client.get(queue, [placed, also]) == []


def test_put_takes_the_place_of_a_message(client: Client, queue: str) -> None:
    placed = client.append(queue, NewMessage("before", key="é"))
    client.read(queue)

    late = client.put(queue, placed, "after", ttl_seconds=60, content_type="text/plain")

    assert late
    assert client.get(queue, placed) == [Message(placed.id, placed.partition, b"after", "text/plain", key="é")]


def test_put_changes_no_key(client: Client, queue: str) -> None:
    placed = client.append(queue, NewMessage("before", key="é"))

    with pytest.raises(InvalidParameter, match="has another key, and a message keeps what it has"):
        client.put(queue, placed, "after", key="e")

    client.put(queue, placed, "after", key="é")
    assert client.get(queue, placed)[0].body == b"after"


def test_what_is_not_there_is_said_so(client: Client, queue: str) -> None:
    nowhere = f"1:{MessageId.parse('1f9f6640e56711f189bf02fc00000001').hex}"

    assert client.get(queue, nowhere) == []
    with pytest.raises(MessageNotFound):
        client.get_raw(queue, nowhere)


def test_pages_join_without_gap_or_repeat(client: Client, queue: str) -> None:
    placed = client.append_batch(queue, [str(number) for number in range(50)])

    seen = list(client.iterate(queue, limit=3))
    back = list(client.iterate(queue, limit=3, newest_first=True))

    assert sorted(int(message.text) for message in seen) == list(range(50))
    assert {message.id for message in seen} == {place.id for place in placed}
    assert sorted(int(message.text) for message in back) == list(range(50))


def test_a_span_is_bounded_on_both_sides_in_both_orders(client: Client) -> None:
    queue = client.create_queue().name
    placed = client.append_batch(queue, list("abcde"))

    assert texts(client.read(queue, since=placed[1].id, until=placed[3].id).messages) == ["b", "c", "d"]
    assert texts(client.read(queue, since=placed[3].id, until=placed[1].id, newest_first=True).messages) == [
        "d",
        "c",
        "b",
    ]
    assert texts(list(client.iterate(queue, since=placed[3].id, until=placed[1].id, newest_first=True, limit=1))) == [
        "d",
        "c",
        "b",
    ]


def test_a_cursor_outlives_its_client_but_not_its_queue(client: Client, queue: str) -> None:
    client.append(queue, "a")
    cursor = client.read(queue).cursor
    client.append(queue, "b")

    assert texts(client.read(queue, cursor=cursor).messages) == ["b"]
    client.delete_queue(queue)
    client.create_queue(queue)
    with pytest.raises(CursorLost):
        client.read(queue, cursor=cursor)


@pytest.mark.parametrize("running", ["shipped", "delayed", "asyncio"], indirect=True)
def test_a_follower_sees_what_is_there_and_what_comes(server: Server, client: Client, queue: str) -> None:
    client.append(queue, "there")
    pages = client.follow(queue)
    first = texts(next(pages).messages)
    seen: list[str] = []

    def follow() -> None:
        while len(seen) < 50:
            seen.extend(texts(next(pages).messages))

    thread = threading.Thread(target=follow)
    thread.start()
    with Client(server.url, server.application, server.key) as producer:
        for number in range(50):
            producer.append(queue, str(number))
    thread.join(90)

    assert first == ["there"]
    assert sorted(seen, key=int) == [str(number) for number in range(50)]


@pytest.mark.parametrize("running", ["shipped", "asyncio"], indirect=True)
def test_a_follower_says_when_nothing_comes_and_ends_in_time(client: Client, queue: str) -> None:
    client.append(queue, "there")

    with client.follow(queue, idle_seconds=0.05) as pages:
        first = next(page for page in pages if page.messages)
        idle = next(pages)
        client.append(queue, "later")
        second = next(page for page in pages if page.messages)

    assert (texts(first.messages), idle.messages, texts(second.messages)) == (["there"], (), ["later"])
    assert client.read(queue, cursor=idle.cursor).messages == second.messages
    ended = list(client.follow(queue, end_after_seconds=0.2))
    assert {text for page in ended for text in texts(page.messages)} <= {"there", "later"}


@pytest.mark.parametrize("running", ["shipped", "asyncio"], indirect=True)
@pytest.mark.parametrize("idle_seconds", [None, 60])
def test_another_thread_ends_a_follower(client: Client, queue: str, idle_seconds: float | None) -> None:
    client.append(queue, "there")
    pages = client.follow(queue, idle_seconds=idle_seconds)
    seen: list[Page] = []
    first = threading.Event()

    def follow() -> None:
        for page in pages:
            seen.append(page)
            first.set()

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    assert first.wait(90)
    pages.close()
    thread.join(90)

    assert not thread.is_alive()
    assert texts(seen[0].messages) == ["there"]


@pytest.mark.parametrize("running", ["shipped", "asyncio"], indirect=True)
def test_moments_are_those_of_the_command_line(client: Client, queue: str) -> None:
    sent = client.append(queue, "there")

    assert texts(client.read(queue, since="10m").messages) == ["there"]
    assert texts(client.read(queue, since="2020-01-01", until="1h").messages) == []
    assert texts(client.read(queue, since=str(sent.id), until=sent.datetime + timedelta(seconds=1)).messages) == [
        "there"
    ]
    with pytest.raises(InvalidParameter, match="since: 'yesterday' is not a message id"):
        client.read(queue, since="yesterday")


@contextmanager
def breaking_off_once(server: Server) -> Iterator[str]:
    """The address of a way to a server on which the first answer ends in a reset right behind its head."""
    far = urlsplit(server.url)
    there: list[socket.socket] = []

    def relay() -> None:
        for is_first in (True, False):
            near, _ = listener.accept()
            there.append(socket.create_connection((str(far.hostname), int(far.port or 0))))
            with near, there[-1] as away:
                away.sendall(near.recv(1 << 16))
                head, end, rest = away.recv(1 << 16).partition(b"\r\n\r\n")
                near.sendall(head + end)
                if is_first:
                    near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_WHEN_CLOSED)
                    continue
                near.sendall(rest)
                while piece := away.recv(1 << 16):
                    near.sendall(piece)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=relay)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            for away in there:
                with suppress(OSError):
                    away.shutdown(socket.SHUT_RDWR)
            thread.join(90)


def test_a_follower_whose_first_answer_breaks_before_a_line_begins_again(
    server: Server, client: Client, queue: str
) -> None:
    client.append(queue, "there")

    with breaking_off_once(server) as url, Client(url, server.application, server.key) as behind:
        pages = behind.follow(queue)
        assert texts(next(pages).messages) == ["there"]
        pages.close()


def test_streams_give_all_rows_and_where_to_go_on(client: Client, queue: str) -> None:
    client.append_batch(queue, [f"{number}" for number in range(9000)])

    with client.stream_ndjson(queue) as lines:
        from_lines = sorted(int(message.text) for message in lines)
    with client.read_arrow(queue, columns=["partition", "body"]) as batches:
        from_batches = sorted(int(body) for batch in batches for body in batch.column("body").to_pylist())

    assert from_lines == from_batches == list(range(9000))
    assert lines.end is not None
    assert batches.end is not None
    assert (lines.end.rows, batches.end.rows, lines.end.more) == (9000, 9000, False)
    assert batches.schema.names == ["partition", "body"]
    assert client.read(queue, cursor=batches.end.cursor).messages == ()


def test_bodies_need_not_be_sent(client: Client, queue: str) -> None:
    placed = client.append(queue, NewMessage("x" * 1000, content_type="text/plain"))

    assert client.read(queue, with_bodies=False).messages == (Message(placed.id, placed.partition, b"", "text/plain"),)


def test_identities_are_told_apart(server: Server, queue: str) -> None:
    """And each hears where a program gives a key; the server can only name the header."""
    said = f"no key was given for {server.url}: set QUEUEY_KEY, or pass key= with the address"
    with Client(server.url, server.application) as nobody, pytest.raises(Forbidden, match=said):
        nobody.read(queue)
    said = f"{server.url} does not know the application key: QUEUEY_KEY, key= or a context gives it"
    wrong = Client(server.url, server.application, "0" * 64)
    with wrong as stranger, pytest.raises(InvalidApplicationKey, match=said):
        stranger.read(queue)


def test_an_idempotency_key_that_is_no_text_is_refused_before_it_is_sent(client: Client, queue: str) -> None:
    """It was an error of the library below."""
    seven: Any = 7
    with pytest.raises(InvalidParameter, match="idempotency_key: 7 is no text"):
        client.append(queue, NewMessage("x", headers={"kind": "order"}, idempotency_key=seven))


def last_ids(offsets: list[GroupOffset]) -> dict[int, MessageId | None]:
    return {offset.partition: offset.id for offset in offsets}


def test_a_group_works_and_is_taken_over(client: Client, queue: str) -> None:
    sent = client.append_batch(queue, [NewMessage(text, partition=2) for text in "abc"])

    (claimed,) = client.take_over(queue, "mail", [2], generation=1)
    (first,) = client.commit_offsets(queue, "mail", {2: sent[0].id}, generation=1)
    (heir,) = client.take_over(queue, "mail", [2], generation=2)

    assert (claimed.id, claimed.generation, claimed.timestamp) == (None, 1, None)
    assert texts(client.read(queue, cursor=claimed.cursor).messages) == ["a", "b", "c"]
    assert heir == GroupOffset(2, sent[0].id, first.cursor, 2, first.timestamp)
    assert texts(client.read(queue, cursor=heir.cursor).messages) == ["b", "c"]
    with pytest.raises(StaleGeneration, match="partition 2"):
        client.commit_offsets(queue, "mail", {2: sent[2].id}, generation=1)
    client.commit_offsets(queue, "mail", {2: sent[1].id.hex, 1: sent[2].id}, generation=2)
    with pytest.raises(OffsetMovesBack):
        client.commit_offsets(queue, "mail", {2: sent[0].id}, generation=2)
    assert last_ids(client.offsets(queue, "mail")) == {1: sent[2].id, 2: sent[1].id, 3: None}


def test_offsets_are_reset_after_a_preview(client: Client, queue: str) -> None:
    sent = client.append_batch(queue, [NewMessage(text, partition=1) for text in "abc"])
    client.commit_offsets(queue, "mail", {1: sent[1].id, 2: sent[1].id}, generation=4)
    before = client.offsets(queue, "mail")

    shown = client.reset_offsets(queue, "mail", "end", partitions=[1], preview=True)
    assert client.offsets(queue, "mail") == before
    made = client.reset_offsets(queue, "mail", "end", partitions=[1])

    for (offset,) in (shown, made):
        assert (offset.partition, offset.old_id, offset.id, offset.generation) == (1, sent[1].id, sent[2].id, 5)
    assert last_ids(client.reset_offsets(queue, "mail", sent[0].id)) == dict.fromkeys((1, 2, 3), sent[0].id)
    assert last_ids(client.reset_offsets(queue, "mail", {1: None, 2: sent[2].id})) == {1: None, 2: sent[2].id}
    long_ago = datetime.now(UTC) - timedelta(days=1)
    assert last_ids(client.reset_offsets(queue, "mail", long_ago)) == dict.fromkeys((1, 2, 3))


def test_groups_are_listed_and_forgotten(client: Client, queue: str) -> None:
    names = [f"group-{number}" for number in range(5)]
    for name in names:
        client.take_over(queue, name, [1, 2, 3], generation=7)

    assert list(client.offset_groups(queue)) == list(client.offset_groups(queue, page_size=2)) == names
    assert list(client.offset_groups(queue, start="group-3")) == names[3:]
    for _ in range(2):
        client.delete_offsets(queue, names[0])
    assert list(client.offset_groups(queue)) == names[1:]
    assert [offset.generation for offset in client.offsets(queue, names[0])] == [0, 0, 0]
    with pytest.raises(InvalidParameter, match="group"):
        client.offsets(queue, "no name")


def test_news_are_of_queues_in_which_something_came_since(client: Client, queue: str) -> None:
    quiet, gone = client.create_queue(new_name()).name, new_name()
    first = client.append(queue, "first").id

    found, upto = client.news([queue, quiet, gone], 0)

    assert found == {queue}
    assert upto >= first.ticks
    assert client.news([queue], first.ticks)[0] == {queue}
    assert client.news([queue, quiet], first.ticks + 1)[0] == set()
    assert client.news([gone], 0) == (set(), 0)
    client.append(quiet, "second")
    assert client.news([queue, quiet], first.ticks + 1)[0] == {quiet}
