"""What streams hold in memory, as far as it is known when they begin (G17)."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from queuey.api import queues
from queuey.api.reading import STREAM_HELD_BYTES, known_to_reader, stream
from queuey.clock import ManualClock
from queuey.future import run
from queuey.http.exchange import ARROW, NDJSON, Call, Target, joined
from queuey.ids import IdGenerator
from queuey.model import AppendRequest, Draft, Queue
from queuey.service import Service
from queuey.service.queues import Queues, QueueSettings
from queuey.settings import load_settings
from queuey.storage.memory import MemoryStores

BODY = b"x" * 256
ROWS = 100
READERS = 32


@pytest.fixture
def service() -> Iterator[Service]:
    clock = ManualClock()
    stores = MemoryStores(clock, IdGenerator(clock))
    opened = Service(load_settings(None, {}, {}), stores, clock=clock, waiters_by_hand=True)
    yield opened
    opened.close()


@pytest.fixture
def queue(service: Service) -> Queue:
    return run(service.queues.create("demo", "jobs", QueueSettings(partitions=3)))


def append(service: Service, queue: Queue, partition: int, messages: int, body: bytes = BODY) -> None:
    run(service.log.append(AppendRequest(queue, [Draft(partition, body, 86_400)] * messages)))


def held(service: Service, queue: Queue, query: str, media_type: str) -> int:
    return stream(service, Call("GET", "/", query, {"accept": media_type}), queue).held_bytes


@pytest.mark.parametrize("media_type", [ARROW, NDJSON])
@pytest.mark.parametrize("query", ["limit=100", "limit=100&partitions=1", "limit=100&partitions=3,1", ""])
def test_a_stream_of_one_small_page_holds_little(service: Service, queue: Queue, media_type: str, query: str) -> None:
    append(service, queue, 1, ROWS)
    whole = len(BODY) * ROWS
    assert whole <= held(service, queue, query, media_type) <= STREAM_HELD_BYTES // READERS * 3


@pytest.mark.parametrize("media_type", [ARROW, NDJSON])
def test_a_stream_without_messages_holds_next_to_nothing(service: Service, queue: Queue, media_type: str) -> None:
    assert held(service, queue, "partitions=all", media_type) < 2048


@pytest.mark.parametrize("media_type", [ARROW, NDJSON])
def test_a_stream_that_goes_on_holds_what_any_stream_may(service: Service, queue: Queue, media_type: str) -> None:
    append(service, queue, 1, 3, b"x" * (1 << 19))
    append(service, queue, 2, 1)
    for query in ("", "partitions=1,2&limit=1", "partitions=2,1"):
        assert held(service, queue, query, media_type) == STREAM_HELD_BYTES


def test_a_list_of_queues_holds_the_piece_that_its_client_takes(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"n{number}" for number in range(7)]
    for name in names:
        run(service.queues.create("demo", name, QueueSettings()))
    monkeypatch.setattr(queues, "_PAGE", 3)

    answer = run(queues.list_queues(service, Call("GET", "/v1/demo", "details=true", {}), Target("demo")))

    assert answer.stream is not None
    pieces = [joined(run(answer.stream.more()) or b"") for _ in range(4)]
    assert run(answer.stream.more()) is None
    assert max(map(len, pieces)) <= answer.held_bytes + len(b'{"status":"ok","queues":[')
    assert [entry["queue_name"] for entry in json.loads(b"".join(pieces))["queues"]] == names


def test_a_later_piece_of_a_list_of_queues_is_cut_where_its_queues_are_large(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"n{number}" for number in range(9)]
    large = QueueSettings(principals=tuple(f"app:{number:050}" for number in range(20)))
    for name in names:
        run(service.queues.create("demo", name, QueueSettings() if name < "n4" else large))
    monkeypatch.setattr(queues, "_PAGE", 4)
    monkeypatch.setattr(queues, "_MOST_PIECE", 2000)
    monkeypatch.setattr(queues, "_MOST_ENTRY", 1500)

    answer = run(queues.list_queues(service, Call("GET", "/v1/demo", "details=true", {}), Target("demo")))

    assert answer.stream is not None
    pieces = []
    while (chunk := run(answer.stream.more())) is not None:
        pieces.append(joined(chunk))
    assert [piece.count(b"queue_name") for piece in pieces] == [4, 2, 2, 1, 0]
    assert max(map(len, pieces[1:])) <= answer.held_bytes == 3500
    assert [entry["queue_name"] for entry in json.loads(b"".join(pieces))["queues"]] == names


def test_a_browser_that_comes_back_is_known_by_the_last_of_its_cursors(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = run(service.queues.create("demo", "grows", QueueSettings(partitions=1)))
    grown = run(service.queues.update(before, QueueSettings(partitions=3)))
    monkeypatch.setattr(Queues, "hears_of_changes", False)
    first, last = (f"{before.uuid.hex}.all~{number}.{'0' * 31}" for number in (1, 3))

    call = Call("GET", "/v1/demo/grows", f"cursor={first}", {"accept": "text/event-stream", "last-event-id": last})

    assert run(known_to_reader(service, call, before)) == grown
