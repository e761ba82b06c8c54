"""A stream as its server drives it, on a clock that is moved by hand: every message once, and an end when there must be one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queuey.api.live.forms import LineForm
from queuey.api.live.stream import KEEPALIVE_SECONDS
from queuey.clock import ManualClock
from queuey.errors import StorageUnavailable
from queuey.future import Future, run, start
from queuey.http.admission import PatientTicket, Ticket
from queuey.http.exchange import Answer, BodyStream
from queuey.ids import TICKS_PER_SECOND
from queuey.model import AppendRequest, Draft, Page
from queuey.monitor.metrics import WAITERS
from queuey.security.app_keys import digest_of, label_of
from queuey.server.faces import open_pipeline
from queuey.service import Service
from queuey.service.queues import QueueSettings
from queuey.settings import load_settings

KEY = "k" * 32
LINES = {"accept": "application/x-ndjson"}
Json = dict[str, Any]


class House:
    """A service over a store in memory, whose time is moved by hand."""

    def __init__(self, **given: Any) -> None:
        self.clock = ManualClock()
        options = {"storage": {"backend": "memory"}, "tokens": {"keys": ("s" * 40,)}, **given}
        self.service = Service.open(load_settings(None, {}, options), clock=self.clock, waiters_by_hand=True)
        run(self.service.start(KEY))
        self.pipeline = open_pipeline(self.service)
        self.headers = {"authorization": f"Application {KEY}"}

    def ask(self, path: str, query: str = "", **headers: str) -> Answer:
        """The answer to a GET."""
        call, operation = self.pipeline.open("GET", path, query, {**self.headers, **headers})
        answer = operation if isinstance(operation, Answer) else run(self.pipeline.answer(operation, call))
        self.pipeline.leave(call)
        return answer

    def token(self, seconds: int) -> str:
        """One of the server's own, of the application."""
        own = self.service.trust.tokens
        assert own is not None
        return own.mint("app:demo", "demo", life_seconds=seconds).text

    def queue(self, name: str, partitions: int = 1) -> None:
        run(self.service.queues.create("demo", name, QueueSettings(partitions=partitions)))

    def append(self, name: str, body: str, partition: int = 1, delay_seconds: float = 0) -> None:
        queue = run(self.service.queues.find("demo", name))
        assert queue is not None
        due = self.clock.now_ticks() + round(delay_seconds * TICKS_PER_SECOND) if delay_seconds else None
        run(self.service.log.append(AppendRequest(queue, [Draft(partition, body.encode(), 10_000, due_ticks=due)])))

    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.service.waiters.tick()

    def reader(self, query: str, path: str = "/v1/demo") -> Reader:
        answer = self.ask(path, query, **LINES)
        assert answer.status == 200, answer.body
        assert answer.stream is not None
        return Reader(answer.stream)


class Reader:
    """Takes what comes, as soon as it comes."""

    def __init__(self, stream: BodyStream) -> None:
        self.stream = stream
        self.lines: list[Json] = []
        self.over = False
        self._wait: Future[bytes | None] | None = None
        self.take()

    def take(self) -> Reader:
        """All that has come by now."""
        while not self.over:
            if self._wait is None:
                self._wait = start(self.stream.more())
            if not self._wait.done:
                return self
            piece, self._wait = self._wait.result(), None
            if piece is None:
                self.over = True
                self.stream.close()
            else:
                self.lines += map(json.loads, piece.splitlines())
        return self

    @property
    def messages(self) -> list[Json]:
        return [line for line in self.lines if "message_id" in line]

    @property
    def notes(self) -> list[str]:
        return [name for line in self.lines if "message_id" not in line for name in line]

    @property
    def cursors(self) -> list[str]:
        """Where to go on after each line that says so."""
        said = [line if "message_id" in line else next(iter(line.values())) for line in self.lines]
        return [entry["cursor"] for entry in said if "cursor" in entry]


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
    house.service.queues._metadata.replace_queue(before, replace(before, partitions=3)).wait()
    house.service.queues._forget(before)
    house.append("q", "first", 3)
    told = house.reader(asked, path).cursors[-1]
    house.service.queues._remember(before, house.clock.elapsed())

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


class Crowd:
    """Readers of one queue, each of which has the beginning of its stream, and then one large message that all of them are to get."""

    SHARE = 2 << 20
    """Bytes that the application may hold."""

    def __init__(
        self, count: int, monkeypatch: pytest.MonkeyPatch, query: str = "follow=true", *, elsewhere: bool = False
    ) -> None:
        """:param elsewhere: the store reads elsewhere."""
        self.made: list[int] = []
        """Sizes of the pieces with messages."""
        rows = LineForm.rows

        def counted(form: LineForm, *given: Any) -> bytes:
            piece = rows(form, *given)
            self.made.append(len(piece))
            return piece

        monkeypatch.setattr(LineForm, "rows", counted)
        self.house = House(limits={"max_in_flight_mb": 4})
        self.house.queue("q")
        self.house.service.log.reads_elsewhere = elsewhere
        self.admission = self.house.pipeline.admission
        answers = [self.house.ask("/v1/demo/q", query, **LINES) for _ in range(count)]
        self.streams = [answer.stream for answer in answers if answer.stream is not None]
        self.pieces = [start(stream.more()) for stream in self.streams]
        assert all(b"open" in (piece.result() or b"") for piece in self.pieces)

    def append(self) -> None:
        """From now on all of them wait for their piece, or have it."""
        self.house.append("q", "\0" * 100_000)
        for reader in range(len(self.streams)):
            self.take(reader)

    def take(self, reader: int) -> None:
        """The reader has taken its piece."""
        self.pieces[reader] = start(self.streams[reader].more())

    @property
    def served(self) -> Sequence[int]:
        """The readers that have a piece which they have not taken."""
        return [number for number, piece in enumerate(self.pieces) if piece.done]

    def leave(self) -> None:
        for stream in self.streams:
            stream.close()


def test_pieces_are_made_when_there_is_room_for_them_in_the_order_their_readers_came(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    crowd = Crowd(40, monkeypatch)
    crowd.append()
    first = len(crowd.served)
    order = [*crowd.served]
    assert 0 < first < 40
    assert len(crowd.made) == first

    for reader in range(40):
        assert sum(crowd.made[reader:]) <= crowd.admission.bytes <= crowd.SHARE
        before = crowd.served
        crowd.take(reader)
        order += [one for one in crowd.served if one not in before]

    assert order == list(range(40))
    assert len(crowd.made) == 40
    assert crowd.admission.bytes == 0


def test_a_store_that_reads_elsewhere_is_asked_for_as_many_bodies_as_there_is_room_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    crowd = Crowd(10, monkeypatch, elsewhere=True)
    store = crowd.house.service.stores.messages
    read, under_way = store.read, list[tuple[Future[Page], Page]]()

    def slow(*wanted: Any, **how: Any) -> Future[Page]:
        promise = Future[Page]()
        under_way.append((promise, read(*wanted, **how).result()))
        return promise

    monkeypatch.setattr(store, "read", slow)
    crowd.append()
    for reader in range(10):
        while not crowd.pieces[reader].done:
            assert len(under_way) << 20 <= crowd.SHARE  # a body may have 1 MiB
            promise, page = under_way.pop(0)
            promise.set_result(page)
        crowd.streams[reader].close()

    assert crowd.admission.bytes == 0


def test_readers_that_wait_for_room_are_not_woken_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    crowd = Crowd(40, monkeypatch)
    crowd.append()
    looks = 0
    wait_for = PatientTicket.wait_for

    def counted(ticket: PatientTicket, size: int) -> bool:
        nonlocal looks
        looks += 1
        return wait_for(ticket, size)

    monkeypatch.setattr(PatientTicket, "wait_for", counted)
    for _ in range(10):
        crowd.house.pass_time(1)

    assert looks == 0
    crowd.leave()


def test_readers_that_leave_while_they_wait_for_room_give_back_what_they_had(monkeypatch: pytest.MonkeyPatch) -> None:
    crowd = Crowd(40, monkeypatch)
    crowd.append()
    served = set(crowd.served)
    for reader, stream in enumerate(crowd.streams):
        if reader not in served:
            stream.close()
            stream.close()
    assert sum(crowd.made) == crowd.admission.bytes

    crowd.leave()
    assert (crowd.admission.bytes, crowd.admission.by_payer, crowd.admission.lines) == (0, {}, {})
    assert crowd.house.service.monitor.value(WAITERS) == 0


def test_room_goes_to_the_next_reader_when_the_one_whose_turn_it_is_has_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    crowd = Crowd(40, monkeypatch)
    crowd.append()
    waiting = [reader for reader in range(40) if reader not in crowd.served]
    crowd.streams[waiting[0]].close()
    crowd.streams[0].close()
    crowd.streams[1].close()

    assert waiting[1] in crowd.served
    crowd.leave()
    assert crowd.admission.bytes == 0


def test_a_server_that_stops_ends_readers_that_wait_for_room(monkeypatch: pytest.MonkeyPatch) -> None:
    crowd = Crowd(40, monkeypatch)
    crowd.append()
    first = crowd.served
    crowd.house.service.waiters.stop()

    ends = [piece.result() or b"" for reader, piece in enumerate(crowd.pieces) if reader not in first]
    assert {json.loads(end)["end"]["code"] for end in ends} == {"ServerStopping"}
    assert len(crowd.made) == len(first)
    crowd.leave()
    assert (crowd.admission.bytes, crowd.admission.lines) == (0, {})


def test_readers_that_wait_for_room_hear_that_the_server_is_there_and_keep_their_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    crowd = Crowd(40, monkeypatch)
    crowd.append()
    first = crowd.served
    crowd.house.pass_time(KEEPALIVE_SECONDS)
    told = [piece.result() or b"" for reader, piece in enumerate(crowd.pieces) if reader not in first]
    assert {next(iter(json.loads(note))) for note in told} == {"keepalive"}

    for reader in reversed(range(len(first), 40)):
        crowd.take(reader)
    for reader in first:
        crowd.streams[reader].close()

    assert crowd.served[: 2 * len(first)] == list(range(2 * len(first)))
    crowd.leave()
    assert crowd.admission.bytes == 0


def test_a_reader_with_an_end_is_told_when_its_time_is_over_before_there_is_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    crowd = Crowd(1, monkeypatch, "wait=20")
    other = Ticket(crowd.admission, ("app:demo",))
    assert other.try_hold(crowd.SHARE, owed=True)
    crowd.append()
    crowd.house.pass_time(20)
    if b"keepalive" in (crowd.pieces[0].result() or b""):
        crowd.take(0)

    assert json.loads(crowd.pieces[0].result() or b"")["end"]["code"] == "Throttled"
    crowd.leave()
    other.close()
    assert crowd.admission.bytes == 0


def test_a_queue_that_is_deleted_ends_readers_that_wait_for_room(monkeypatch: pytest.MonkeyPatch) -> None:
    crowd = Crowd(1, monkeypatch)
    other = Ticket(crowd.admission, ("app:demo",))
    assert other.try_hold(crowd.SHARE, owed=True)
    crowd.append()
    queue = run(crowd.house.service.queues.find("demo", "q"))
    assert queue is not None
    run(crowd.house.service.queues.delete(queue))

    assert b"QueueNotFound" in (crowd.pieces[0].result() or b"")


def test_trouble_of_the_store_takes_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    crowd = Crowd(1, monkeypatch)
    store = crowd.house.service.stores.messages
    with monkeypatch.context() as broken:
        broken.setattr(store, "read", lambda *_, **__: Future.failed(StorageUnavailable()))
        crowd.append()
        assert crowd.admission.bytes == 0
    crowd.house.pass_time(1)
    assert crowd.served == [0]
    crowd.leave()


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


def test_a_wait_is_no_part_of_a_requests_duration(house: House) -> None:
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
