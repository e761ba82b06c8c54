"""A signal ends a worker in the middle of whatever it does."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import qdo.groups.waking
import qdo.worker.member_work
from qdo import Client, Worker
from qdo.groups.local import LocalCoordinator
from qdo.worker.member_work import MemberWork
from qdo.worker.running import hearing
from tests.support.client import Server
from tests.support.servers import RunningServer

Place = tuple[str, int]
ROUNDS = 3
WATCHED = {qdo.groups.waking.__file__, threading.__file__}
LOOP = {function.__code__ for function in (MemberWork.run, MemberWork.stop, MemberWork._end_threads)}


@contextmanager
def seeing(look: Callable[[Place], None]) -> Iterator[None]:
    """Each line that this thread runs in the worker's loop, and below it in locks and events."""
    before = sys.gettrace()

    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        code = frame.f_code
        if code.co_filename not in WATCHED and code not in LOOP:
            return None
        if event == "line":
            look((frame.f_code.co_filename, frame.f_lineno))
        return trace

    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


def goes_round_again(places: list[Place]) -> bool:
    """Whether it has waited some times already."""
    waited = places.count(places[-1]) if places[-1][0] == qdo.groups.waking.__file__ else 0
    return waited > ROUNDS


@pytest.mark.timeout(300)
def test_a_signal_ends_a_worker_whichever_of_its_lines_it_interrupts(
    tmp_path: Path, shipped_server: RunningServer
) -> None:
    """The handler calls ``stop`` in the thread that runs the worker, which may hold any lock there is."""
    server = Server(shipped_server)
    queue = server.queue()
    places: list[Place] = []

    def work(look: Callable[[Worker, Place], None]) -> None:
        worker = Worker(
            lambda message, context: None,
            [queue],
            LocalCoordinator("g", tmp_path),
            lambda: Client(server.url, server.application, server.key),
            commit_seconds=0.01,
        )
        before = signal.signal(signal.SIGUSR1, lambda *_: worker.stop())
        try:
            with seeing(lambda place: look(worker, place)):
                worker.run()
        finally:
            signal.signal(signal.SIGUSR1, before)

    def note(worker: Worker, place: Place) -> None:
        """Until it has gone round a few times."""
        places.append(place)
        if goes_round_again(places):
            worker.stop()

    work(note)
    assert {qdo.worker.member_work.__file__, qdo.groups.waking.__file__} <= {file for file, _ in places}
    reached = 0
    for place in sorted(set(places)):
        passed, told = list[Place](), list[Place]()

        def tell(
            worker: Worker, here: Place, place: Place = place, passed: list[Place] = passed, told: list[Place] = told
        ) -> None:
            passed.append(here)
            if here == place and not told:
                told.append(here)
                signal.raise_signal(signal.SIGUSR1)
            elif goes_round_again(passed):  # this time it does not come there
                worker.stop()

        work(tell)
        reached += len(told)
    assert reached > len(set(places)) / 2


def test_a_signal_is_heard_while_the_main_thread_waits_for_one() -> None:
    """A second one interrupts what the first one's handler does; neither waits for a lock."""
    with hearing() as heard:
        seen: list[int | None] = []
        held: list[object] = []

        def look(frame: FrameType, event: str, arg: Any) -> Any:
            if len(held) < 5:
                held.append(frame)
                signal.raise_signal(signal.SIGTERM)
            return look

        before = sys.gettrace()
        sys.settrace(look)
        try:
            signal.raise_signal(signal.SIGINT)
            heard.put(None)
        finally:
            sys.settrace(before)
        while (number := heard.get(timeout=30)) is not None:
            seen.append(number)

    assert signal.SIGINT in seen
    assert signal.SIGTERM in seen


def test_a_signal_that_is_ignored_stays_so() -> None:
    """As SIGHUP below ``nohup``."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with hearing() as heard:
            signal.raise_signal(signal.SIGHUP)
            signal.raise_signal(signal.SIGTERM)
            assert heard.get(timeout=30) == signal.SIGTERM
    finally:
        signal.signal(signal.SIGHUP, before)
