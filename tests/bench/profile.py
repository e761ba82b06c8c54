"""Where the time goes: one load, seen from inside of the server.

With py-spy the real server under the real load: samples of every thread, and of the one that has the
interpreter, which is what limits it. Without it, or on request, the calls alone, driven in this
process with no network, under cProfile.
"""

from __future__ import annotations

import cProfile
import io
import pstats
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

from queuey.api.calls import Answer
from queuey.api.serve import Desk
from queuey.promise import run
from queuey.service import Service
from queuey.settings import load_settings
from tests.bench import reads
from tests.bench.drivers import append_batch, append_one, drive, in_turn, read_page
from tests.bench.measure import BenchFailed
from tests.bench.plan import CONNECTIONS, PARTITIONS, Plan
from tests.bench.servers import APPLICATION, KEY, Server, queuey
from tests.bench.store import fill, make_queue, open_store

QUEUE = "profile"
RATE = 500
"""Samples a second."""
_TOP = 25


class Scene(NamedTuple):
    """A server with what it needs, and the load on it."""

    server: Server
    load: Callable[[float], object]


@contextmanager
def _appending(plan: Plan, text: str) -> Iterator[Scene]:
    with queuey(plan.fresh("profile")) as server:
        server.create(QUEUE, PARTITIONS)
        yield Scene(server, lambda seconds: drive(server, in_turn([text]), CONNECTIONS, seconds))


@contextmanager
def _reading(plan: Plan, readers: int) -> Iterator[Scene]:
    with reads.reading(plan.fresh("profile"), plan.rows) as there:
        script = reads.pages_script(there.starts)
        yield Scene(there.server, lambda seconds: drive(there.server, script, readers, seconds))


@contextmanager
def _streaming(plan: Plan) -> Iterator[Scene]:
    def load(seconds: float) -> None:
        began = perf_counter()
        while perf_counter() - began < seconds:
            reads.stream_raw(there.server)

    with reads.reading(plan.fresh("profile"), plan.rows) as there:
        yield Scene(there.server, load)


SCENES = {
    "append": lambda plan: _appending(plan, append_one(QUEUE)),
    "batch": lambda plan: _appending(plan, append_batch(QUEUE)),
    "read": lambda plan: _reading(plan, 1),
    "read8": lambda plan: _reading(plan, 8),
    "arrow": _streaming,
}


def sampled(plan: Plan, name: str) -> Iterator[str]:
    """Lines of a report on the real server."""
    tool = shutil.which("py-spy")
    if tool is None:
        raise BenchFailed("py-spy is missing: pip install py-spy, or add --calls")
    with SCENES[name](plan) as scene:
        scene.load(1)
        for what, options in (("has the interpreter", ["--gil"]), ("runs, in any thread", [])):
            file = plan.fresh("samples") / "stacks.txt"
            command = [tool, "record", "--pid", str(scene.server.pid), "--format", "raw", "--output", str(file)]
            command += ["--duration", str(round(plan.seconds)), "--rate", str(RATE), "--threads", "--nonblocking"]
            with subprocess.Popen([*command, *options], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as spy:
                scene.load(plan.seconds + 1)
                _, said = spy.communicate()
            if spy.returncode:
                raise BenchFailed(f"py-spy: {said.decode()}")
            yield f"\n## {name}: what {what}\n"
            yield from _shares(file.read_text().splitlines(), RATE * round(plan.seconds))


def _shares(stacks: list[str], whole: int) -> Iterator[str]:
    """Threads, then functions by their own time, with what they call beside it; as shares of the time that passed."""
    threads, own, below = Counter[str](), Counter[str](), Counter[str]()
    for line in stacks:
        stack, _, count = line.rpartition(" ")
        frames = [_short(frame) for frame in stack.split(";")]
        threads[frames[0].partition(" (")[0]] += int(count)
        own[frames[-1]] += int(count)
        for frame in set(frames[1:]):
            below[frame] += int(count)
    yield from (f"    {count / whole:6.1%}  {name}" for name, count in threads.most_common(6))
    yield "\n      own  with calls  function"
    yield from (f"    {own[name] / whole:5.1%}  {below[name] / whole:10.1%}  {name}" for name, _ in own.most_common(_TOP))


def _short(frame: str) -> str:
    """A frame without its line and without the folders that say nothing.

    >>> _short("answer (queuey/api/serve.py:101)")
    'answer (queuey/api/serve.py)'
    """
    return frame.rpartition(":")[0] + ")" if frame.endswith(")") and ":" in frame else frame


class _Headers(dict[str, str]):
    """Request headers in a process of one's own."""


def _calls(plan: Plan, name: str) -> Iterator[tuple[Service, Callable[[], Answer]]]:
    folder = plan.fresh("calls")
    queue = reads.QUEUE if name.startswith("read") else QUEUE
    with open_store(folder) as store:
        made = make_queue(store, queue, 1 if name.startswith("read") else PARTITIONS)
        if name.startswith("read"):
            fill(store, [made], 1000)
    text = {"append": append_one(queue), "batch": append_batch(queue)}.get(name, read_page(queue, "0"))
    service = Service.open(load_settings(None, {}, {"data": str(folder)}))
    try:
        run(service.start(KEY))
        yield service, partial(_call, Desk(service), *_parsed(text))
    finally:
        service.close()


def _parsed(text: str) -> tuple[str, str, str, Mapping[str, str], bytes]:
    """A request's text as a server hands it on."""
    head, _, body = text.partition("\r\n\r\n")
    first, *lines = head.split("\r\n")
    method, target, _ = first.split(" ")
    path, _, query = target.partition("?")
    headers = _Headers((name.lower(), value) for name, _, value in (line.partition(": ") for line in lines))
    return method, path, query, headers, body.encode()


def _call(desk: Desk, method: str, path: str, query: str, headers: Mapping[str, str], body: bytes) -> Answer:
    call, operation = desk.open(method, path, query, headers)
    if isinstance(operation, Answer):
        raise BenchFailed(f"refused: {operation.body!r}")
    call.body = body
    answer = run(desk.answer(operation, call))
    if answer.status >= 300:
        raise BenchFailed(f"refused: {answer.body!r}")
    return answer


def called(plan: Plan, name: str) -> Iterator[str]:
    """Lines of a report on the calls alone: one after the other, each waiting for its commit."""
    if name not in ("append", "batch", "read"):
        raise BenchFailed(f"{name} is a matter of several requests: without --calls")
    for service, call in _calls(plan, name):
        count, began = 0, perf_counter()
        while perf_counter() - began < plan.seconds:
            call()
            count += 1
        yield f"\n## {name}: {1e6 * (perf_counter() - began) / count:.0f} µs a call, {service.settings.storage_backend}\n"
        profile = cProfile.Profile()
        profile.enable()
        for _ in range(min(count, 5000)):
            call()
        profile.disable()
        text = io.StringIO()
        pstats.Stats(profile, stream=text).strip_dirs().sort_stats("tottime").print_stats(_TOP)
        yield text.getvalue()


def report(plan: Plan, name: str, *, calls: bool) -> Iterator[str]:
    """What there is to say about one load.

    :raises BenchFailed: py-spy is missing or may not look.
    """
    return called(plan, name) if calls or shutil.which("py-spy") is None else sampled(plan, name)


__all__ = ["APPLICATION", "SCENES", "Path", "report"]
