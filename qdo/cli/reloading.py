"""``qdo work --reload``: a worker that starts again when the code of its jobs changes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from queue import Empty

from qdo.worker.running import Heard, hearing

__all__ = ["run_again_and_again"]

LOOK_SECONDS = 0.5
"""Between two looks at the files."""
MOST_FILES = 20_000
"""That are looked at."""
END_SECONDS = 30.0
"""For a worker that is to start again. It is killed after that."""


def run_again_and_again(say: Callable[[str], None]) -> int:
    """Run this command without ``--reload``, again after each change, until a signal comes.

    :param say: tells people, or the log, why a worker starts.
    :returns: the exit code of the last worker.
    """
    command = [sys.executable, "-m", "qdo.cli", *(one for one in sys.argv[1:] if one != "--reload")]
    environment = os.environ | {"QDO_WORK_RELOAD": ""}
    with hearing() as heard:
        while True:
            seen = _times()
            worker = subprocess.Popen(command, env=environment, start_new_session=True)
            has_ended = False
            while (now := _times()) == seen:
                if not has_ended and worker.poll() is not None:
                    has_ended = True
                    say(f"qdo: the worker ended with {worker.returncode}; it starts again when a file changes")
                if (number := _signal_within(heard, LOOK_SECONDS)) is not None:
                    worker.send_signal(number)
                    return _ended(worker, heard)
            changed = sorted(dict(now.items() ^ seen.items()))
            say(f"qdo: {changed[0]} changed: the worker starts again")
            worker.terminate()
            try:
                worker.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait()


def _ended(worker: subprocess.Popen[bytes], heard: Heard) -> int:
    """The exit code of a worker that was asked to end. It gets further signals too: the second one ends it at once."""
    while worker.poll() is None:
        if (number := _signal_within(heard, LOOK_SECONDS)) is not None:
            worker.send_signal(number)
    return worker.wait()


def _signal_within(heard: Heard, seconds: float) -> int | None:
    """The number of a signal that comes within this time."""
    try:
        return heard.get(timeout=seconds)
    except Empty:
        return None


def _times() -> Mapping[str, int]:
    """When each Python file below the current folder was changed."""
    found: dict[str, int] = {}
    for path in islice(_files(), MOST_FILES):
        try:
            found[path] = Path(path).stat().st_mtime_ns
        except OSError:
            continue  # it is gone
    return found


def _files() -> Iterator[str]:
    """Python files, without hidden folders and virtual environments."""
    for folder, below, files in os.walk("."):
        below[:] = [
            name for name in below if not name.startswith(".") and not Path(folder, name, "pyvenv.cfg").exists()
        ]
        yield from (os.path.join(folder, name) for name in files if name.endswith(".py"))  # noqa: PTH118 - as os.walk says
