"""Reading ahead, when what answers is not as it should be."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

import pytest

from qdo.client import Client
from qdo.groups.assign import Partition
from qdo.groups.coordination import Claim
from qdo.worker.buffers import PartitionBuffer, Prefetched
from qdo.worker.fetching import MOST_TROUBLE_SECONDS, Fetcher
from qdo.worker.job import Context
from queuey.clock import ManualClock
from queuey.ids import IdGenerator, MessageId
from tests.support.scripted_server import Say, Script, refusal


@pytest.fixture
def client(script: Script) -> Iterator[Client]:
    with Client(script.url, "app", retries=0) as client:
        yield client


@pytest.fixture
def fetcher() -> Fetcher:
    """Of one buffer, asked by hand."""
    clock, claim = ManualClock(), Claim(Partition("q", 1), 1)
    prefetched = Prefetched(prefetch_messages=3, prefetch_bytes=100)
    context = Context(claim, member="m", group="g", clock=clock, value=None)
    prefetched.add(PartitionBuffer(claim, None, [context]))
    return Fetcher(lambda: pytest.fail("it needs no thread"), prefetched, clock)


def test_a_queue_that_cannot_be_read_for_days_is_asked_for_again(
    fetcher: Fetcher, client: Client, script: Script
) -> None:
    """Two to the power of the failures so far would be no number any more after a night."""
    times = 1100
    script.say(*[refusal(403, "Forbidden")] * times)

    pauses = [fetcher._look(client, "q") or 0.0 for _ in range(times)]

    assert 0 < min(pauses[:2]) < 1
    assert min(pauses[10:]) >= MOST_TROUBLE_SECONDS / 2
    assert max(pauses) <= MOST_TROUBLE_SECONDS


def test_an_answer_that_no_queuey_gives_ends_no_thread(fetcher: Fetcher, client: Client, script: Script) -> None:
    script.say(Say(200, b"{}"))

    pause = fetcher._look(client, "q")

    assert pause is not None
    assert pause > 0


def page(ids: Sequence[MessageId]) -> Say:
    entries = [{"message_id": one.hex, "partition": 1, "body": ""} for one in ids]
    headers = {"Queuey-Cursor": "a" * 32, "Queuey-Watermark": "9.0000000", "Queuey-More": "true"}
    return Say(200, json.dumps({"messages": entries}).encode(), headers)


@pytest.mark.parametrize("most", [1, 2, 3, 10, 1999, 2000, 5000])
def test_no_more_messages_are_fetched_ahead_than_allowed(most: int, client: Client, script: Script) -> None:
    """Though each answer has as many as it may, and jobs take none of them."""
    clock, claim = ManualClock(), Claim(Partition("q", 1), 1)
    prefetched, ids = Prefetched(prefetch_messages=most, prefetch_bytes=1), IdGenerator(clock)
    buffer = PartitionBuffer(claim, None, [Context(claim, member="m", group="g", clock=clock, value=None)])
    prefetched.add(buffer)
    fetcher = Fetcher(lambda: pytest.fail("it needs no thread"), prefetched, clock)
    script.say(page([]))  # it asks for the incarnation of the queue

    while prefetched.wanting("q")[0]:
        script.say(page([ids.next_id() for _ in range(prefetched.portion)]))
        fetcher._look(client, "q")
        assert f"limit={prefetched.portion}" in script.asked[-1].path

    assert most - prefetched.portion < buffer.unfinished <= most
