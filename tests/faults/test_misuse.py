"""G10: whatever a client sends is taken or refused, alike by both servers; and what is refused changes nothing."""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support import servers
from tests.support.alike import comparable
from tests.support.client import Server, new_name
from tests.support.figures import Figures
from tests.support.key_site import Site, serving
from tests.support.misuse import Drawn, drawn
from tests.support.servers import APPLICATIONS, QUEUEY
from tests.support.trusting import published, settings

USUAL = 200


class Pair:
    """The shipped server and the WSGI application, each over a store of its own."""

    def __init__(self, both: Sequence[Server]) -> None:
        self.both = both
        self.statuses: Counter[int] = Counter()
        self.credentials = [f"Application {APPLICATIONS['queuey'][0]}"]
        form = {"principal": "bid:joe@example.org", "verbs": "read"}
        for _ in range(2):
            minted = both[0].request("POST", "/tokens/queuey", data=form)
            self.credentials.append(f"Bearer {minted.json()['token']}")
        self.queue = ""
        self.state: list[Any] = []
        self.begin()

    def begin(self) -> None:
        """A queue that is new: in the one before it messages may come or go by their times."""
        self.queue = new_name()
        for server in self.both:
            assert server.create(self.queue).status_code == 201
            server.fill(self.queue, "there")
        self.state = [self._state(server) for server in self.both]

    def _state(self, server: Server) -> Any:
        """All that requests could change."""
        return [
            server.call("GET", params={"details": "true", "limit": "1000"}).content,
            server.call("GET", self.queue, params={"limit": "1000"}).json()["messages"],
            server.call("GET", self.queue, "offsets").content,
        ]

    def meet(self, request: Drawn) -> str | None:
        """Send it to both; what is wrong with that, if anything is."""
        answers = [
            server.request(
                request.method, request.path, headers={"X-Request-Id": "one", **request.headers}, data=request.body
            )
            for server in self.both
        ]
        self.statuses[answers[0].status_code] += 1
        if any(answer.status_code >= 500 for answer in answers):
            return f"answered with {[answer.status_code for answer in answers]}: {answers[0].text[:300]}"
        minted = request.path.startswith("/tokens") and answers[0].status_code < 300
        seen = [comparable(answer)[: 1 if minted else 3] for answer in answers]
        if seen[0] != seen[1]:
            return f"answered differently: {seen}"
        if answers[0].status_code < 400:
            if request.method not in ("GET", "HEAD", "OPTIONS"):
                self.begin()
            return None
        looked_at = self.statuses.total() % 2  # one of them at a time: a look costs more than the request
        if self._state(self.both[looked_at]) != self.state[looked_at]:
            self.begin()
            return f"refused with {answers[0].status_code}, and something has changed"
        return None


@contextmanager
def pair(folder: Path, program: Sequence[str] = QUEUEY) -> Iterator[Pair]:
    with ExitStack() as stack:
        site = stack.enter_context(serving(Site(body=published())))
        several = []
        for name in ("shipped", "wsgi"):
            (folder / name).mkdir()
            own = settings(folder / name, site)
            running = (
                servers.shipped(folder / name, settings=own, program=program)
                if name == "shipped"
                else servers.wsgi(folder / name, settings=own)
            )
            several.append(stack.enter_context(running))
        yield Pair([stack.enter_context(Server(running)) for running in several])


def met(chance: random.Random, both: Pair, count: int) -> Iterator[tuple[str, Drawn]]:
    """What was wrong, with the request."""
    for _ in range(count):
        request = drawn(chance, both.queue, both.credentials)
        wrong = both.meet(request)
        if wrong:
            yield wrong, request


def test_whatever_comes_is_taken_or_refused_alike(
    tmp_path: Path, chance: random.Random, rounds: Callable[[int], range], figures: Figures
) -> None:
    with pair(tmp_path) as both:
        found = list(met(chance, both, len(rounds(USUAL))))
        beats = all(server.running.beats() for server in both.both)

    refused = sum(count for status, count in both.statuses.items() if status >= 400)
    figures("G10", drawn=both.statuses.total(), refused=refused, failed_or_differed_or_changed=len(found))
    assert found[:1] == []
    assert beats
    assert 0 < refused < both.statuses.total()


SPOILED = """
import itertools
from queuey.api import face
from queuey.cli import main
from queuey.http.pipeline import Pipeline
from queuey.future import run
from queuey.service.queues import QueueSettings

refusal, begin, numbers, pipelines = face.refusal, Pipeline.__init__, itertools.count(), []

def opened(pipeline, service, faces):
    begin(pipeline, service, faces)
    pipelines.append(pipeline)

def spoiled(error, call, challenge):
    answer = refusal(error, call, challenge)
    {fault}
    return answer

Pipeline.__init__, face.refusal = opened, spoiled
main()
"""
FAULTS = {
    "a failure": "answer.status = 500",
    "another answer": "answer.headers.append(('x-odd', '1'))",
    "a change": "run(pipelines[0].service.queues.create('queuey', f'odd{next(numbers)}', QueueSettings()))",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_server_that_does_otherwise_is_noticed(tmp_path: Path, chance: random.Random, fault: str) -> None:
    program = [sys.executable, "-c", SPOILED.format(fault=FAULTS[fault])]
    with pair(tmp_path, program) as both:
        assert any(met(chance, both, 10 * USUAL))
