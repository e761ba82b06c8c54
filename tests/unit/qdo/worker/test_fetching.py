"""Reading ahead, when what answers is not as it should be."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from qdo.client import Client
from qdo.groups.assign import Partition
from qdo.groups.coordination import Claim
from qdo.worker.buffers import PartitionBuffer, Prefetched
from qdo.worker.fetching import MOST_TROUBLE_SECONDS, Fetcher
from qdo.worker.job import Context
from queuey.clock import ManualClock
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
