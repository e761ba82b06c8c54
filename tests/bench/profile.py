"""Where the time goes: one load, seen from inside of the server by py-spy.

Twice: which function has the interpreter, of which there is one and which limits the server; and
what all threads do, also where they wait for the disk.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

from tests.bench import reads
from tests.bench.drivers import append_batch, append_one, drive, in_turn
from tests.bench.measure import BenchFailed
from tests.bench.plan import CONNECTIONS, PARTITIONS, Plan
from tests.bench.servers import Server, queuey

QUEUE = "profile"
RATE = 250
"""Samples a second: more would take from the server what they measure."""
_TOP = 30
_LINE = re.compile(r":\d+\)$")


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


SCENES: dict[str, Callable[[Plan], AbstractContextManager[Scene]]] = {
    "append": lambda plan: _appending(plan, append_one(QUEUE)),
    "batch": lambda plan: _appending(plan, append_batch(QUEUE)),
    "read": lambda plan: _reading(plan, 1),
    "read8": lambda plan: _reading(plan, 8),
    "arrow": _streaming,
}


def find_spy() -> str | None:
    """py-spy, beside this Python or on the path."""
    return shutil.which("py-spy", path=str(Path(sys.executable).parent)) or shutil.which("py-spy")


def report(plan: Plan, scene_of: Callable[[Plan], AbstractContextManager[Scene]], name: str) -> Iterator[str]:
    """Lines of a report on the shipped server.

    :param name: of the scene, for the reader.
    :raises BenchFailed: py-spy is missing or may not look.
    """
    tool = find_spy()
    if tool is None:
        raise BenchFailed("py-spy is missing: pip install py-spy, or add --calls")
    with scene_of(plan) as scene:
        scene.load(1)
        for what, options in (("has the interpreter", ["--gil"]), ("all threads do", ["--idle"])):
            file = plan.fresh("samples") / "stacks.txt"
            command = [tool, "record", "--pid", str(scene.server.pid), "--format", "raw", "--output", str(file)]
            command += ["--duration", str(round(plan.seconds)), "--rate", str(RATE), "--threads", *options]
            with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as spy:
                scene.load(plan.seconds + 1)
                _, said = spy.communicate()
            if spy.returncode:
                raise BenchFailed(f"py-spy: {said.decode()}")
            yield f"\n## {name}: what {what}\n"
            yield from shares(file.read_text().splitlines(), of_time="--idle" in options)


def shares(stacks: list[str], *, of_time: bool = False) -> Iterator[str]:
    """Of py-spy's stacks with their counts: threads, then functions by their own time.

    :param of_time: shares of the time that passed, whole for each thread; else of all samples together.

    >>> for line in shares(["thread (7): loop;f (a.py:1);g (a.py:2) 3", "thread (7): loop;f (a.py:1) 1"]):
    ...     print(line)
      100%  loop
    <BLANKLINE>
       own  with calls
       75%         75%  loop: g (a.py)
       25%        100%  loop: f (a.py)
    """
    threads, own, below = Counter[str](), Counter[str](), Counter[str]()
    for line in stacks:
        stack, _, count = line.rpartition(" ")
        thread, *frames = [_LINE.sub(")", frame) for frame in stack.split(";")]
        name = thread.partition(": ")[2] or "(not Python's)"
        places = [f"{name}: {frame}" for frame in frames] or [name]
        threads[name] += int(count)
        own[places[-1]] += int(count)
        for place in set(places):
            below[place] += int(count)
    whole = max(threads.values(), default=1) if of_time else max(threads.total(), 1)
    yield from (f"  {count / whole:4.0%}  {name}" for name, count in threads.most_common(8))
    yield "\n   own  with calls"
    yield from (
        f"  {count / whole:4.0%}        {below[name] / whole:4.0%}  {name}" for name, count in own.most_common(_TOP)
    )
