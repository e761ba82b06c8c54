"""Readers that wait for room: pieces are made when they can be taken, in the order in which their readers came."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from queuey.api.live.forms import LineForm
from queuey.api.live.stream import KEEPALIVE_SECONDS
from queuey.errors import StorageUnavailable
from queuey.future import Future, run, start
from queuey.http.admission import PatientTicket, Ticket
from queuey.http.exchange import joined
from queuey.model import Page
from queuey.monitor.metrics import WAITERS
from tests.support.live_readers import LINES, House

_CROWDS: list[Crowd] = []


@pytest.fixture(autouse=True)
def all_go() -> Iterator[None]:
    """A reader that a test leaves behind would be given up by the garbage collector, in the middle of another test."""
    yield
    while _CROWDS:
        _CROWDS.pop().leave()


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
        self.works = [stream.more() for stream in self.streams]
        self.pieces = [start(work) for work in self.works]
        _CROWDS.append(self)
        assert all(b"open" in (piece.result() or b"") for piece in self.pieces)

    def append(self) -> None:
        """From now on all of them wait for their piece, or have it."""
        self.house.append("q", "\0" * 100_000)
        for reader in range(len(self.streams)):
            self.take(reader)

    def take(self, reader: int) -> None:
        """The reader has taken its piece."""
        self.works[reader] = self.streams[reader].more()
        self.pieces[reader] = start(self.works[reader])

    @property
    def served(self) -> Sequence[int]:
        """The readers that have a piece which they have not taken."""
        return [number for number, piece in enumerate(self.pieces) if piece.done]

    def go(self, reader: int) -> None:
        """The reader goes, as its server hears of it: what waits for it is given up."""
        self.works[reader].close()
        self.streams[reader].close()

    def leave(self) -> None:
        for reader in range(len(self.streams)):
            self.go(reader)


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
        crowd.go(reader)

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
    for reader in range(40):
        if reader not in served:
            crowd.go(reader)
            crowd.go(reader)
    assert sum(crowd.made) == crowd.admission.bytes

    crowd.leave()
    assert (crowd.admission.bytes, crowd.admission.by_payer, crowd.admission.lines) == (0, {}, {})
    assert crowd.house.service.monitor.value(WAITERS) == 0


def test_room_goes_to_the_next_reader_when_the_one_whose_turn_it_is_has_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    crowd = Crowd(40, monkeypatch)
    crowd.append()
    waiting = [reader for reader in range(40) if reader not in crowd.served]
    crowd.go(waiting[0])
    crowd.go(0)
    crowd.go(1)

    assert waiting[1] in crowd.served
    crowd.leave()
    assert crowd.admission.bytes == 0


def test_a_server_that_stops_ends_readers_that_wait_for_room(monkeypatch: pytest.MonkeyPatch) -> None:
    crowd = Crowd(40, monkeypatch)
    crowd.append()
    first = crowd.served
    crowd.house.service.waiters.stop()

    ends = [piece.result() or b"" for reader, piece in enumerate(crowd.pieces) if reader not in first]
    assert {json.loads(joined(end))["end"]["code"] for end in ends} == {"ServerStopping"}
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
    assert {next(iter(json.loads(joined(note)))) for note in told} == {"keepalive"}

    for reader in reversed(range(len(first), 40)):
        crowd.take(reader)
    for reader in first:
        crowd.go(reader)

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

    assert json.loads(joined(crowd.pieces[0].result() or b""))["end"]["code"] == "Throttled"
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
