"""Nothing is left behind by a process that is killed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.functional.servers import eventually
from tests.services.jars import ROOT
from tests.services.process import Process

USER = """
import sys, time
from pathlib import Path
from tests.services.guard import held
from tests.services.process import Process

folder = Path(sys.argv[1])
with held(folder):
    service = Process(folder / "service", ["sleep", "1000"])
    if service.pid is None:
        service.start()
    print("holding", flush=True)
    sys.stdin.read()
"""


def user(folder: Path) -> subprocess.Popen[bytes]:
    """A process that uses what runs in the folder, and starts it if need be."""
    process = subprocess.Popen(
        [sys.executable, "-c", USER, str(folder)], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"holding\n"
    return process


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
