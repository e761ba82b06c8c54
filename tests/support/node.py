"""A server that a test kills, stops, and starts again on the same store; and loops that keep it busy meanwhile."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Self

import requests

from qdo.client import Client
from tests.support import servers
from tests.support.client import TIMEOUT_SECONDS, authorization
from tests.support.servers import FIRST_KEY, QUEUEY, RunningServer, eventually

APPLICATION = "demo"
CARRIED = {name: f"[storage]\nloop_commit_ms = {ms}\n" for name, ms in (("thread", 0), ("usual", 1), ("loop", 1000))}
"""Settings by what carries commits: always the thread; the loop while they are quick, with switches; always the loop."""
PAUSE_SECONDS = 0.01
"""Between two tries of a loop whose server is away."""


class Node:
    """One store folder, and at most one server process on it. A context manager that leaves no process behind."""

    def __init__(self, folder: Path, *, settings: str = "", program: Sequence[str] = QUEUEY, port: int = 0) -> None:
        """:param port: where each of its processes listens; 0 is another one each time."""
        self._folder = folder
        self._settings = settings
        self._program = program
        self.port = port
        self._running = ExitStack()
        self.running: RunningServer
        self.starts = 0

    @property
    def database(self) -> Path:
        return self._folder / "data" / "queuey.db"

    def start(self) -> float:
        """Start the server.

        :returns: seconds until it answered.
        """
        began = time.monotonic()
        self.running = self._running.enter_context(
            servers.shipped(self._folder, settings=self._settings, program=self._program, port=self.port)
        )
        self.starts += 1
        return time.monotonic() - began

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the server, if one is running."""
        self._running.close()

    def kill(self) -> None:
        """kill -9: what was not on its way to disk is gone."""
        os.kill(self.running.pid, signal.SIGKILL)
        self._running.close()

    def kill_in_commit(self) -> None:
        """kill -9 as soon as the write-ahead log is being written to."""
        log = self.database.with_name("queuey.db-wal")
        before, deadline = log.stat().st_mtime_ns, time.monotonic() + 90
        while log.stat().st_mtime_ns == before:
            assert time.monotonic() < deadline, "nothing is written"
        self.kill()

    def terminate(self) -> None:
        """SIGTERM, as an operator ends it; it may take its time."""
        os.kill(self.running.pid, signal.SIGTERM)

    def ended(self) -> int:
        """Wait for the process to end; its exit code."""
        found = os.waitid(os.P_PID, self.running.pid, os.WEXITED | os.WNOWAIT)
        assert found is not None
        self._running.close()
        return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """SIGSTOP: neither dead nor alive while the block runs."""
        os.kill(self.running.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.running.pid, signal.SIGCONT)

    def client(self) -> Client:
        """A client of the process that runs now; without repeats, so that each outcome shows."""
        client = Client(self.running.url, APPLICATION, FIRST_KEY, retries=0)
        self._running.callback(client.close)
        return client

    @contextmanager
    def busy(self, *steps: Callable[[Client], object]) -> Iterator[None]:
        """Keep these steps going, each in a thread with a client of its own, while the block runs."""
        with busy(*(partial(step, self.client()) for step in steps)):
            yield

    def call(self, method: str, *below: str, **given: Any) -> requests.Response:
        """A request below the application's path, for what the client does not offer."""
        given["headers"] = authorization(FIRST_KEY) | given.get("headers", {})
        url = "/".join((self.running.url, "v1", APPLICATION, *below))
        return requests.request(method, url, timeout=TIMEOUT_SECONDS, **given)

    def get(self, path: str) -> requests.Response:
        """One of the server's own pages."""
        return requests.get(self.running.url + path, timeout=TIMEOUT_SECONDS)


class Loop:
    """Takes a step again and again in a thread of its own, until told to stop."""

    def __init__(self, step: Callable[[], object]) -> None:
        self._step = step
        self._over = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        try:
            while not self._over.is_set():
                self._step()
        except BaseException as failure:  # noqa: BLE001  it is raised in the test's own thread
            self._failure = failure

    def stop(self) -> BaseException | None:
        """Let the step under way finish.

        :returns: what a step raised, which ended the loop.
        """
        self._over.set()
        self._thread.join()
        return self._failure


def wait_for_more(count: Callable[[], int], more: int, *, seconds: float = 90) -> None:
    """Wait until a number has grown by this much."""
    wait_for_all(count, count() + more, seconds=seconds)


def wait_for_all(count: Callable[[], int], enough: int, *, seconds: float = 90) -> None:
    """Wait until a number is as large as this."""
    eventually(lambda: count() >= enough, seconds=seconds)


@contextmanager
def busy(*steps: Callable[[], object]) -> Iterator[None]:
    """Keep these steps going, each in a thread, while the block runs.

    :raises BaseException: what a step raised; it is likely the cause of what the block found.
    """
    loops = [Loop(step) for step in steps]
    try:
        yield
    finally:
        failures = [failure for loop in loops if (failure := loop.stop()) is not None]
        if failures:
            raise failures[0]
