"""A stream as its server drives it, on a clock that is moved by hand: every message once, and an end when there must be one."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queuey.api.live.stream import KEEPALIVE_SECONDS
from queuey.errors import StorageUnavailable
from queuey.future import Future, run, start
from queuey.http.admission import Ticket
from queuey.http.exchange import Answer
from queuey.monitor.metrics import WAITERS
from queuey.security.app_keys import digest_of, label_of
from queuey.service.queues import QueueSettings
from tests.support.live_readers import KEY, House


@pytest.fixture
def house() -> House:
    return House()


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[str, int, int]]:
    kinds = st.sampled_from(["append", "append", "schedule", "pass", "reconnect"])
    return draw(st.lists(st.tuples(kinds, st.integers(0, 11), st.integers(0, 1000)), max_size=80))


@given(histories(), st.sampled_from([(1, 1), (1, 3), (1, 9), (3, 1), (12, 1), (6, 2)]))
@settings(max_examples=120, deadline=None)
def test_a_reader_that_goes_on_at_any_cursor_gets_each_message_once(
    history: list[tuple[str, int, int]], shape: tuple[int, int]
) -> None:
    queues, partitions = shape
    house = House()
    for number in range(queues):
        house.queue(f"q{number}", partitions)
    several = queues > 1
    asked = "follow=true&queues=" + ",".join(f"q{number}" for number in range(queues)) if several else "follow=true"
    path = "/v1/demo" if several else "/v1/demo/q0"
    first = asked if several else f"{asked}&partitions=all"
    reader = house.reader(first, path)
    got: list[str] = []
    count = 0

    for what, where, amount in history:
        if what in ("append", "schedule"):
            delay = 1 + amount % 5 if what == "schedule" else 0
            house.append(f"q{where % queues}", str(count), where % partitions + 1, delay)
            count += 1
        elif what == "pass":
            house.pass_time(amount / 100)
        else:
            reader.take()
            taken = amount % (len(reader.lines) + 1)
            reader.lines = reader.lines[: max(taken, 1)]  # the rest was lost on its way
            got += [line["body"] for line in reader.messages]
            reader.stream.close()
            reader = house.reader(f"{asked}&cursor={reader.cursors[-1]}", path)
        reader.take()
    house.pass_time(10)
    got += [line["body"] for line in reader.take().messages]

    assert sorted(got, key=int) == [str(number) for number in range(count)]


@pytest.mark.parametrize("several", [False, True])
def test_a_cursor_from_a_server_that_knows_more_partitions_skips_and_repeats_nothing(
    house: House, several: bool
) -> None:
    house.service.queues._trusted = 60  # as where other servers change queues
    house.queue("q", 2)
    before = run(house.service.queues.find("demo", "q"))
    assert before is not None
    path, asked = ("/v1/demo", "follow=true&queues=q") if several else ("/v1/demo/q", "follow=true&partitions=1,3")
    house.service.queues._metadata.replace_queue(before, before._replace(partitions=3)).wait()
    cache = house.service.queues._cache
    cache.forget(before)
    house.append("q", "first", 3)
    told = house.reader(asked, path).cursors[-1]
    cache.learn(before, house.clock.elapsed(), cache.changes)

    reader = house.reader(f"{asked.removesuffix('&partitions=1,3')}&cursor={told}", path)
    house.append("q", "second", 3)

    assert [line["body"] for line in reader.take().messages] == ["second"]


@pytest.mark.parametrize("path", ["/v1/demo", "/v1/demo/q"])
def test_a_cursor_that_names_what_is_not_there_is_told_without_it(house: House, path: str) -> None:
    house.queue("q")
    queue = run(house.service.queues.find("demo", "q"))
    assert queue is not None
    place, far = "0" * 31, "f" * 15 + "0" * 16
    head = f"several~{place}~{queue.uuid.hex}." if path == "/v1/demo" else f"{queue.uuid.hex}~1.{place}~"
    asked = "follow=true" + ("&queues=q" if path == "/v1/demo" else "")

    reader = house.reader(f"{asked}&cursor={head}2-200.{far}", path)
    house.append("q", "a")

    assert [line["body"] for line in reader.take().messages] == ["a"]
    assert all(len(cursor) < 120 for cursor in reader.cursors)


def test_a_partition_that_is_named_often_is_told_once(house: House) -> None:
    house.queue("q")

    reader = house.reader("follow=true&partitions=" + ",".join("1" * 200), "/v1/demo/q")

    assert all(len(cursor) < 120 for cursor in reader.cursors)


def test_a_reader_who_waits_hears_that_the_server_is_there(house: House) -> None:
    house.queue("q")
    reader = house.reader("follow=true", "/v1/demo/q")
    for _ in range(3):
        house.pass_time(KEEPALIVE_SECONDS)
        reader.take()

    assert reader.notes == ["open", "keepalive", "keepalive", "keepalive"]


def test_a_removed_key_ends_the_stream(house: House) -> None:
    house.queue("q")
    reader = house.reader("follow=true", "/v1/demo/q")
    run(house.service.keys.new("demo", "n" * 32))
    house.service.stores.metadata.remove_key("app:demo", label_of(digest_of(KEY))).wait()
    house.pass_time(KEEPALIVE_SECONDS)

    end = reader.take().lines[-1]["end"]
    assert (reader.over, end["code"], end["retriable"]) == (True, "InvalidApplicationKey", False)


def test_a_removed_key_ends_the_streams_of_its_tokens(house: House) -> None:
    house.queue("q")
    kept = run(house.service.keys.new("demo", "n" * 32))
    own = house.service.trust.tokens
    assert own is not None
    readers = []
    for key in (KEY, kept):
        made = own.mint("bid:joe@example.org", "demo", by=("demo", digest_of(key)))
        run(house.service.queues.create("demo", "q", QueueSettings(principals=("bid:joe@example.org",))))
        house.headers = {"authorization": f"Bearer {made.text}"}
        readers.append(house.reader("follow=true", "/v1/demo/q"))
    house.service.stores.metadata.remove_key("app:demo", label_of(digest_of(KEY))).wait()
    house.pass_time(KEEPALIVE_SECONDS)

    gone, going_on = (reader.take() for reader in readers)
    assert (gone.over, gone.lines[-1]["end"]["code"]) == (True, "InvalidToken")
    assert not going_on.over


def test_a_token_ends_its_stream_with_its_own_end(house: House) -> None:
    house.queue("q")
    made = house.token(100)
    house.headers = {"authorization": f"Bearer {made}"}
    reader = house.reader("follow=true", "/v1/demo/q")

    house.pass_time(KEEPALIVE_SECONDS)
    assert reader.take().notes == ["open", "keepalive"]
    house.append("q", "before the end")
    reader.take()
    house.pass_time(100 - KEEPALIVE_SECONDS)

    assert [message["body"] for message in reader.take().messages] == ["before the end"]
    assert (reader.over, reader.lines[-1]["end"]["code"]) == (True, "Unauthenticated")
    assert house.service.monitor.value(WAITERS) == 0


def test_trouble_of_the_store_is_waited_out(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    house.queue("q")
    reader = house.reader("follow=true", "/v1/demo/q")
    store = house.service.stores.messages
    with monkeypatch.context() as broken:
        broken.setattr(store, "read", lambda *_, **__: Future.failed(StorageUnavailable()))
        house.append("q", "while nobody can read")
        assert reader.take().messages == []
        house.pass_time(1)
        assert reader.take().messages == []
    house.pass_time(1)

    assert [message["body"] for message in reader.take().messages] == ["while nobody can read"]
    assert not reader.over


def test_a_piece_waits_for_room(house: House) -> None:
    house = House(limits={"max_in_flight_mb": 1})
    house.queue("q")
    gate = house.pipeline.admission
    reader = house.reader("follow=true", "/v1/demo/q")
    other = Ticket(gate, ("app:other",))
    assert other.try_hold(1 << 20)
    house.append("q", "x")
    assert reader.take().messages == []

    other.close()
    house.pass_time(1)

    assert len(reader.take().messages) == 1
    reader.stream.close()
    assert gate.bytes == 0


def test_a_long_poll_takes_no_place_among_requests_under_way(house: House) -> None:
    house.queue("q")
    call, operation = house.pipeline.open("GET", "/v1/demo/q", "wait=20", house.headers)
    assert not isinstance(operation, Answer)
    assert call.ticket.enter()
    poll = start(house.pipeline.answer(operation, call))

    assert (poll.done, house.pipeline.admission.calls, house.service.monitor.value(WAITERS), call.ticket.waits) == (
        False,
        0,
        1,
        True,
    )
    house.append("q", "x")
    assert (poll.done, house.pipeline.admission.calls, house.service.monitor.value(WAITERS), call.ticket.waits) == (
        True,
        1,
        0,
        False,
    )
    house.pipeline.leave(call)
    assert house.pipeline.admission.calls == 0


def test_a_wait_is_no_part_of_a_requests_duration(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("queuey.http.admission.perf_counter", house.clock.elapsed)
    house.queue("q")
    call, operation = house.pipeline.open("GET", "/v1/demo/q", "wait=20", house.headers)
    assert not isinstance(operation, Answer)
    assert call.ticket.enter()
    poll = start(house.pipeline.answer(operation, call))
    house.pass_time(20)

    assert poll.done
    assert call.ticket.waited_seconds == 20


def test_a_call_that_is_given_up_leaves_nothing_behind(house: House) -> None:
    house.queue("q")
    call, operation = house.pipeline.open("GET", "/v1/demo/q", "wait=20", house.headers)
    assert not isinstance(operation, Answer)
    assert call.ticket.enter()
    work = house.pipeline.answer(operation, call)
    work.send(None)
    assert house.service.monitor.value(WAITERS) == 1

    work.close()
    house.pipeline.leave(call)

    assert (house.service.monitor.value(WAITERS), house.pipeline.admission.calls) == (0, 0)
