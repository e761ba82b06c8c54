"""A queue that is deleted between two looks of one plan is no error of the plan: a task says what is lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from qdo.client import Client
from qdo.pipeline import backlog, planner
from qdo.pipeline.backlog import Backlog
from qdo.pipeline.options import BATCH, STREAM, ReadOptions
from qdo.pipeline.planner import Planner
from qdo.pipeline.rows import Rows
from qdo.pipeline.spans import Part
from qdo.pipeline.task_reader import SpanReader, survey
from queuey.errors import DataLost
from tests.support.pipeline import APPLICATION, KEY, fill
from tests.support.servers import RunningServer

Asking = Callable[..., ReadOptions]


@pytest.fixture
def asking(running: RunningServer) -> Asking:
    """Options of a read from the server, from the beginning."""
    reach = {"url": running.url, "application": APPLICATION, "token": KEY, "startingOffsets": "earliest"}
    return lambda road, **more: ReadOptions.of(reach | more, road)


def read(options: ReadOptions, parts: Sequence[Part]) -> int:
    reader = SpanReader.of(options, Rows(["message_id"], text_bodies=False))
    return sum(batch.num_rows for batch in reader.batches(parts))


def test_a_pattern_leaves_out_what_is_gone_behind_its_list(
    asking: Asking, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = fill(client, partitions=1, messages=3)
    for module in (planner, backlog):
        monkeypatch.setattr(module, "subscribed", lambda *_: [f"{queue}-gone", queue])

    ((part,),) = Planner(asking(BATCH, subscribePattern=".*")).tasks()

    assert part.queue == queue
    assert [*Backlog(asking(STREAM, subscribePattern=".*")).begin()] == [queue]
    for refused in (Planner(asking(BATCH, subscribe="any")).tasks, Backlog(asking(STREAM, subscribe="any")).begin):
        with pytest.raises(DataLost, match=f"no queue {queue}-gone"):
            refused()


@pytest.mark.parametrize("more", [{}, {"minPartitions": "4"}], ids=["counted", "cut"])
def test_a_batch_is_planned_though_its_queue_goes(
    asking: Asking, client: Client, monkeypatch: pytest.MonkeyPatch, more: dict[str, str]
) -> None:
    queue = fill(client, partitions=2, messages=3)
    monkeypatch.setattr(planner, "MANY_PARTS", 1)

    def then_deleted(*asked: Any, **how: Any) -> Any:
        found = survey(*asked, **how)
        client.delete_queue(queue)
        monkeypatch.setattr(planner, "survey", survey)
        return found

    monkeypatch.setattr(planner, "survey", then_deleted)
    tasks = Planner(asking(BATCH, subscribe=queue, **more)).tasks()
    parts = [part for task in tasks for part in task]

    assert len(parts) == 2
    assert read(asking(BATCH, subscribe=queue, failOnDataLoss="false"), parts) == 0
    with pytest.raises(DataLost, match=f"queue {queue} was deleted"):
        read(asking(BATCH, subscribe=queue), parts)


def test_a_micro_batch_is_cut_though_its_queue_goes(asking: Asking, client: Client) -> None:
    queue = fill(client, partitions=2, messages=5)
    options = asking(STREAM, subscribe=queue)
    waiting = Backlog(options)
    start = waiting.begin()
    newest, counts = waiting.look(start, 4)
    client.delete_queue(queue)

    parts = [*waiting.parts(start, waiting.cut(start, newest, counts, 4))]

    assert len(parts) == 2
    with pytest.raises(DataLost, match=f"queue {queue} was deleted"):
        read(options, parts)
