"""How results are found by readers that several results share."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from qdo.client.values import Message
from qdo.tasks import results
from qdo.tasks.arguments import ReturnValue
from qdo.tasks.results import TaskResult, _Readers
from qdo.tasks.wire import RESULT_OF
from queuey.clock import ManualClock
from queuey.ids import IdGenerator, format_timestamp

IDS = IdGenerator(ManualClock())
RETURNS: ReturnValue = ReturnValue(int, "a task")


class Results:
    """A queue for results, of which each read gives one message, or none."""

    def __init__(self, *messages: Message, more: bool = False) -> None:
        self.messages, self.more = messages, more
        self.since: list[Any] = []

    def read(self, queue: str, *, since: Any, **_: Any) -> Any:
        self.since.append(since)
        watermark = format_timestamp(IDS.next_id().ticks)
        return SimpleNamespace(messages=self.messages, cursor="c", watermark=watermark, more=self.more)


def result(task_id: str | None = None) -> TaskResult:
    return TaskResult(task_id or f"q/1:{IDS.next_id().hex}", "q-results", RETURNS)


def test_a_look_by_id_sets_nobody_back_and_takes_nobodys_place() -> None:
    client: Any = Results()
    readers, waits, done = _Readers(), result(), result()
    shared = readers.watch(client, waits)
    shared.read(0)
    client.messages = (Message(IDS.next_id(), 1, b"1", headers={RESULT_OF: done.id.encode()}),)

    for task_id in (waits.id, done.id):
        look = result(task_id)
        own = readers.reader(client, look)
        own.read(0)
        assert client.since[-1] == look.since
        assert readers.reader(client, look) is own

    assert look.found is client.messages[0]
    assert readers.reader(client, waits) is shared
    shared.read(0)
    assert client.since[-1] is None


def test_a_get_heeds_its_time_while_there_is_more_to_read(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Results(more=True)
    monkeypatch.setattr(results, "default_client", lambda: client)
    monkeypatch.setattr(results, "_readers", _Readers())
    began = time.monotonic()

    with pytest.raises(TimeoutError):
        result().get(timeout=0.1)

    assert time.monotonic() - began < 30
