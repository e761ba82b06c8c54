"""Nothing is left behind by a process that is killed."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from tests.support.servers import eventually
from tests.support.services.guard import guard, join
from tests.support.services.jars import ROOT
from tests.support.services.process import Process

USER = """
import sys, time
from pathlib import Path
from tests.support.services.guard import held
from tests.support.services.process import Process

folder = Path(sys.argv[1])
with held(folder):
    service = Process(folder / "service", ["sleep", "1000"])
    if service.pid is None:
        service.start()
    print("holding", flush=True)
    sys.stdin.read()
"""


@contextmanager
def user(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that uses what runs in the folder, and starts it if need be. It ends with the block, however that ends."""
    with subprocess.Popen(
        [sys.executable, "-c", USER, str(folder)], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"holding\n"
        yield process


def test_a_service_ends_with_its_user_however_that_ends(tmp_path: Path) -> None:
    folder = tmp_path / "held"
    with user(folder) as one:
        service = Process(folder / "service", [])
        assert service.pid is not None

        one.kill()

    eventually(lambda: not folder.exists())
    assert service.pid is None


def test_it_ends_after_the_last_of_several(tmp_path: Path) -> None:
    folder = tmp_path / "held"
    with user(folder) as one, user(folder) as other:
        service = Process(folder / "service", [])
        first = service.pid
        one.kill()
        one.wait()
        with user(folder) as third:
            third.kill()

        assert service.pid == first
        other.kill()

    eventually(lambda: not folder.exists())
    assert service.pid is None


def test_who_comes_while_it_is_cleared_up_gets_it_anew(tmp_path: Path) -> None:
    folder = tmp_path / "held"
    for _ in range(5):
        with user(folder) as one:
            assert Process(folder / "service", []).pid is not None
            one.kill()
    eventually(lambda: not folder.exists())


def test_who_joins_keeps_the_folder_whoever_clears_it_up_at_that_moment(tmp_path: Path) -> None:
    folder = tmp_path / "held"
    over = threading.Event()

    def clear_up() -> None:
        while not over.is_set():
            guard(folder)

    def use(number: int) -> int:
        kept = 0
        for turn in range(100):
            with join(folder):
                mine = folder / f"{number}-{turn}"
                mine.touch()
                kept += mine.exists()
        return kept

    with ThreadPoolExecutor() as threads:
        clearing = threads.submit(clear_up)
        try:
            kept = list(threads.map(use, range(3)))
        finally:
            over.set()
        clearing.result()

    assert kept == [100, 100, 100]
