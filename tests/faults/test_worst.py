"""G17: what one caller asks costs the others nothing that they notice, and the server no more memory than it says."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest

from tests.support import servers, worst
from tests.support.figures import Figures

UPLOADS = ("queue-POST-message", "queue-POST-JSON, messages", "application-POST-form, fields")
SLOW = {"queue-GET-large": 200, "queue-GET-large events": 320, "queue-GET-large lines": 320}
"""Answers of 4 MiB, and streams whose pieces are 1 MiB each; of each more readers than the 256 MiB in flight have room for.

The longer run has more of them.
"""
MEMORY_MIB = 256 + 16 + 4 * 3 * 8 + 80
"""What docs/operations.md allows beside the process itself, with the settings as they are shipped: requests in flight, the
store's caches, three times the largest batch in each thread; and what an allocator keeps of what was given back."""


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[worst.Stage]:
    with (
        servers.shipped(tmp_path_factory.mktemp("worst"), settings=worst.SETTINGS) as running,
        worst.Stage(running) as stage,
    ):
        yield stage


@pytest.mark.parametrize(("route", "method"), worst.ASKED)
def test_the_worst_of_an_operation_hinders_nobody_else(
    stage: worst.Stage,
    rounds: Callable[[int], range],
    chance: random.Random,
    figures: Figures,
    route: str,
    method: str,
) -> None:
    """In the longer run each caller asks for everything; in the shorter one each request has one caller, drawn anew each run."""
    start, failed, asked = stage.costs.now, list[str](), 0
    stage.costs.forget_peak()
    with stage.bystander() as other:
        for request, caller in stage.attacks(route, method, None if len(rounds(1)) > 1 else chance):
            answers = stage.attack(request, caller)
            asked += len(answers)
            failed += [f"{request} by {caller}: {status}" for status in set(answers) if not 200 <= status < 500]
    peak = stage.costs.peak

    figures("G17", operation=f"{method} {route}", requests=asked, rss_start=round(start), rss_peak=round(peak))
    assert not failed
    assert not other.refused
    assert peak < stage.start_mib + MEMORY_MIB


@pytest.mark.parametrize("upload", UPLOADS)
def test_uploads_that_do_not_end_hinder_nobody_else(stage: worst.Stage, upload: str) -> None:
    for caller in stage.callers:
        with stage.uploads(stage.requests[upload], caller), stage.bystander() as other:
            pass
        assert not other.refused, caller


@pytest.mark.drawn
@pytest.mark.parametrize(("slow", "readers"), SLOW.items())
def test_answers_that_nobody_takes_cost_what_may_be_in_flight(
    stage: worst.Stage, rounds: Callable[[int], range], figures: Figures, slow: str, readers: int
) -> None:
    readers *= min(len(rounds(1)), 3)
    stage.costs.forget_peak()
    with stage.readers(stage.requests[slow], readers), stage.bystander() as other:
        pass
    peak = stage.costs.peak

    figures("G17", asked=slow, readers=readers, rss_start=round(stage.start_mib), rss_peak=round(peak))
    assert not other.refused
    assert peak < stage.start_mib + MEMORY_MIB
