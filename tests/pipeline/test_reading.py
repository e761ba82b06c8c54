"""What a task does when the network or the server fails under it: the rows are complete, or there is an error."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Self
from urllib.parse import urlsplit

import pytest

from qdo.client import Client, StreamEnd
from qdo.pipeline import task_reader
from qdo.pipeline.options import BATCH, ReadOptions
from qdo.pipeline.planner import Planner
from qdo.pipeline.rows import Rows
from qdo.pipeline.spans import Part
from qdo.pipeline.task_reader import SpanReader, connect
from queuey.errors import ServerUnreachable, StorageUnavailable
from queuey.ids import MAX_ID, ZERO_ID
from tests.support.pipeline import APPLICATION, KEY, fill
from tests.support.servers import RunningServer
from tests.support.services.proxy import Proxy

MESSAGES = 3_000


@pytest.fixture
def proxy(running: RunningServer) -> Iterator[Proxy]:
    address = urlsplit(running.url)
    with Proxy(lambda: (str(address.hostname), int(address.port or 0))) as proxy:
        yield proxy


def options(url: str, queue: str, **more: str) -> ReadOptions:
    return ReadOptions.of({"url": url, "application": APPLICATION, "token": KEY, "subscribe": queue, **more}, BATCH)


def read(wanted: ReadOptions, *, by_json: bool = False) -> list[str]:
    """All of a queue, as one task would: planned, then read."""
    reader = SpanReader(
        wanted.reach, Rows(["message_id", "body"], text_bodies=False), fail_on_data_loss=True, by_json=by_json
    )
    parts = [part for task in Planner(wanted).tasks() for part in task]
    return [id_ for batch in reader.batches(parts) for id_ in batch.column(0).to_pylist()]


@contextmanager
def every(seconds: float, act: Callable[[], None]) -> Iterator[None]:
    """Do something again and again meanwhile."""
    done = threading.Event()

    def work() -> None:
        while not done.wait(seconds):
            act()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


@pytest.mark.parametrize("by_json", [False, True])
def test_answers_that_break_again_and_again_are_taken_up_where_they_broke(
    running: RunningServer, client: Client, proxy: Proxy, by_json: bool
) -> None:
    queue = fill(client, partitions=2, messages=MESSAGES, size=2_000)
    wanted = [message.id.hex for message in client.iterate(queue)]
    proxy.throttle(4 << 20)

    def cut() -> None:
        proxy.cut()
        proxy.heal()
        proxy.throttle(4 << 20)

    with every(0.4, cut):
        found = read(options(proxy.url, queue, retries="60"), by_json=by_json)

    assert sorted(found) == sorted(wanted)


def test_a_server_that_is_away_for_a_while_is_waited_for(running: RunningServer, client: Client, proxy: Proxy) -> None:
    queue = fill(client, partitions=1, messages=100)
    proxy.cut()
    healing = threading.Timer(2.0, proxy.heal)
    healing.start()
    try:
        assert len(read(options(proxy.url, queue))) == 100
    finally:
        healing.join()


def test_no_server_is_an_error_after_the_retries(client: Client, proxy: Proxy) -> None:
    queue = fill(client)
    proxy.cut()

    with pytest.raises(ServerUnreachable):
        read(options(proxy.url, queue, retries="1"))


def test_of_several_servers_the_first_that_answers_is_asked(
    running: RunningServer, client: Client, proxy: Proxy
) -> None:
    queue = fill(client, partitions=2, messages=20)
    proxy.cut()

    found = read(options(f"http://127.0.0.1:9,{proxy.url},{running.url}", queue, retries="1"))

    assert len(found) == 40
    with pytest.raises(ServerUnreachable, match="no server answers at http://127"):
        connect(options(f"http://127.0.0.1:9,{proxy.url}", queue, retries="1").reach)


def test_several_servers_that_are_away_for_a_while_are_waited_for(client: Client, proxy: Proxy) -> None:
    queue = fill(client, partitions=1, messages=100)
    proxy.cut()
    healing = threading.Timer(2.0, proxy.heal)
    healing.start()
    try:
        assert len(read(options(f"http://127.0.0.1:9,{proxy.url}", queue))) == 100
    finally:
        healing.join()


def test_no_server_behind_the_first_that_answers_is_looked_at(
    running: RunningServer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that hangs would hold up each task."""
    asked: list[str] = []

    def alive(url: str) -> bool:
        asked.append(url)
        return url == running.url

    monkeypatch.setattr(task_reader, "_alive", alive)

    connect(options(f"http://127.0.0.1:9,{running.url},http://127.0.0.1:10", "any").reach).close()

    assert asked == ["http://127.0.0.1:9", running.url]


@pytest.mark.parametrize(
    ("secret", "scheme"), [("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhIn0.c2ln", "token"), ("shop.eu.0123456789", "key")]
)
def test_a_key_with_dots_is_no_token(monkeypatch: pytest.MonkeyPatch, secret: str, scheme: str) -> None:
    shown: dict[str, str] = {}
    monkeypatch.setattr(task_reader, "Client", lambda *_, **given: shown.update(given))

    connect(options("http://127.0.0.1:9", "any", token=secret).reach)

    assert {name: shown[name] for name in ("key", "token") if name in shown} == {scheme: secret}


def test_memory_does_not_grow_with_the_span(running: RunningServer, client: Client) -> None:
    """A reader holds a few batches, however many there are: the bytes of Arrow's pool, which bodies are in."""
    import pyarrow as pa

    queue = fill(client, partitions=1, messages=MESSAGES, size=10_000)
    wanted = options(running.url, queue)
    reader = SpanReader(wanted.reach, Rows(["body"], text_bodies=False), fail_on_data_loss=True, by_json=False)
    ((part,),) = Planner(wanted).tasks()
    held = [pa.total_allocated_bytes() for _ in reader.batches([part])]

    assert len(held) > 4
    assert max(held) < 20 << 20


class Behind:
    """What a server answers that does not show the span yet."""

    end = StreamEnd(0, "", more=False, watermark="1.0000000")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def __iter__(self) -> Iterator[object]:
        return iter(())


def test_a_server_that_stays_behind_the_plan_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its clock may be wrong by hours. A moment behind is usual, and is waited for."""
    pauses: list[float] = []
    monkeypatch.setattr("qdo.pipeline.task_reader.time", SimpleNamespace(sleep=pauses.append))
    monkeypatch.setattr(SpanReader, "_stream", lambda *_: Behind())
    reach = options("http://127.0.0.1:9", "q", timeout="3").reach
    reader = SpanReader(reach, Rows(["body"], text_bodies=False), fail_on_data_loss=True, by_json=False)
    part = Part("q", "0" * 32, 1, ZERO_ID, MAX_ID)

    with pytest.raises(StorageUnavailable, match=r"http://127.0.0.1:9 does not show .* do their clocks differ"):
        next(reader._sent(connect(reach), part))

    assert 2.9 <= sum(pauses) <= 3.2
