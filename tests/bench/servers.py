"""Servers as processes: Queuey as shipped, its WSGI application alone, and a front that does nothing."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from types import MappingProxyType

import requests

from tests.bench.measure import BenchFailed, until

ROOT = Path(__file__).parent.parent.parent
APPLICATION = "demo"
KEY = "bench" + "0123456789abcdef" * 2
AUTHORIZATION = {"Authorization": f"Application {KEY}"}
PYTHON = (sys.executable,)
START_SECONDS = 120
QUIET_SECONDS = 180
_WAITERS = re.compile(r"^queuey_waiters (\S+)$", re.MULTILINE)
_ADDRESS = re.compile(r"https?://127\.0\.0\.1:[1-9][0-9]*")
_TICK = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int, thread: int | None = None) -> float:
    """Processor time that a process has used, or one of its threads."""
    where = Path(f"/proc/{pid}") if thread is None else Path(f"/proc/{pid}/task/{thread}")
    fields = (where / "stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICK


@dataclass
class Server:
    """A listening process."""

    process: subprocess.Popen[bytes]
    url: str
    started_seconds: float
    """From its birth to its first answer."""

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    @property
    def pid(self) -> int:
        return self.process.pid

    def rss_mib(self) -> float:
        """Memory it has, shared libraries included."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(re.findall(r"VmRSS:\s+(\d+) kB", status)[0]) / 1024

    def cpu_seconds(self) -> float:
        return cpu_seconds(self.pid)

    def settle(self) -> None:
        """Wait until it has done what it does on the side: checkpoints, looking for damage."""
        until(self._idle, QUIET_SECONDS, "the server to be quiet")

    def _idle(self) -> bool:
        before = self.cpu_seconds()
        time.sleep(0.25)
        return self.cpu_seconds() - before < 0.02

    def ask(self, method: str, path: str, **options: object) -> requests.Response:
        """One request of the application.

        :raises BenchFailed: it was refused.
        """
        headers = {**AUTHORIZATION, **options.pop("headers", {})}  # type: ignore[dict-item]
        answer = requests.request(method, self.url + path, headers=headers, timeout=60, **options)  # type: ignore[arg-type]
        if not answer.ok:
            raise BenchFailed(f"{method} {path}: {answer.status_code} {answer.text[:200]}")
        return answer

    def create(self, queue: str, partitions: int = 1) -> None:
        self.ask("POST", f"/v1/{APPLICATION}", data={"queue_name": queue, "partitions": partitions})

    def waiters(self) -> float:
        """How many readers and receivers wait."""
        found = _WAITERS.search(self.ask("GET", "/metrics").text)
        return 0.0 if found is None else float(found[1])

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        self.process.wait()


@contextmanager
def queuey(
    folder: Path,
    variables: Mapping[str, str] = MappingProxyType({}),
    *,
    program: Sequence[str] = PYTHON,
    root: Path = ROOT,
) -> Iterator[Server]:
    """``queuey serve`` with nothing but its defaults: authentication, metrics and FULL are on.

    :param variables: what leads it to another store.
    :param program: what runs it.
    :param root: the tree that it is run from.
    """
    command = ["-m", "queuey.cli", "serve", "--port", "0", "--data", str(folder)]
    with _running(command, folder, {"QUEUEY_KEY": KEY, **variables}, program, root) as server:
        yield server


def access_key(folder: Path) -> tuple[str, str]:
    """Make an access key of the application, for the server that is to be started on this folder; its id and secret."""
    command = [*PYTHON, "-m", "queuey.cli", "key", "new", APPLICATION, "--sqs", "-o", "json", "--data", str(folder)]
    made = json.loads(subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout)
    return made["access_key_id"], made["secret_access_key"]


@contextmanager
def twins(one: Path, other: Path, *, root: Path = ROOT) -> Iterator[tuple[Server, Server]]:
    """Two servers to be compared with each other.

    Where their memory lies and how their strings are hashed is not left to chance: by that alone two processes of one
    program differ by up to a fifth, as long as they live.

    :param root: the tree that the first one is run from.
    """
    alike, seed = ("setarch", "-R", *PYTHON), {"PYTHONHASHSEED": "0"}
    with queuey(one, seed, program=alike, root=root) as first, queuey(other, seed, program=alike) as second:
        yield first, second


@contextmanager
def front(interface: str = "rsgi") -> Iterator[Server]:
    """One of those of :mod:`tests.bench.front`."""
    with _running(["-m", "tests.bench.front", interface], ROOT, {}) as server:
        yield server


@contextmanager
def pyramid(folder: Path, threads: int) -> Iterator[Server]:
    """The WSGI application alone, on a WSGI server with as many threads as requests wait at once."""
    folder.mkdir(exist_ok=True)
    ini = folder / "queuey.ini"
    ini.write_text(f"[server]\ndata = {folder}\n\n[application_keys]\n{APPLICATION} = {KEY}\n")
    command = ["-m", "waitress", "--listen=127.0.0.1:0", f"--threads={threads}", "queuey.wsgi:app"]
    with _running(command, folder, {"QUEUEY_CONFIG": str(ini)}) as server:
        yield server


@contextmanager
def _running(
    command: Sequence[str],
    folder: Path,
    variables: Mapping[str, str],
    program: Sequence[str] = PYTHON,
    root: Path = ROOT,
) -> Iterator[Server]:
    outside = {name: value for name, value in os.environ.items() if not name.startswith("QUEUEY_")}
    folder.mkdir(exist_ok=True)
    with TemporaryFile() as said:
        began = time.perf_counter()
        process = subprocess.Popen(
            [*program, *command],
            cwd=root,
            stdout=said,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env={**outside, **variables, "PYTHONUNBUFFERED": "1"},
        )
        try:
            url = _announced(process, said.fileno())
            until(lambda: _beats(process, url, said.fileno()), START_SECONDS, f"{url} to answer")
            yield Server(process, url, time.perf_counter() - began)
        finally:
            end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    """In order, if it still runs; if it does not end, it is killed.

    :raises subprocess.TimeoutExpired: it had to be killed.
    """
    process.terminate()
    try:
        process.wait(60)
    except BaseException:
        process.kill()
        process.wait()
        raise


def _announced(process: subprocess.Popen[bytes], said: int) -> str:
    found: list[str] = []

    def look() -> bool:
        found[:] = _ADDRESS.findall(_alive(process, said))
        return bool(found)

    until(look, START_SECONDS, "a server to say where it listens")
    return found[0]


def _alive(process: subprocess.Popen[bytes], said: int) -> str:
    """What the process has said so far.

    :raises BenchFailed: it has ended.
    """
    text = os.pread(said, 1 << 16, 0).decode(errors="replace")
    if process.poll() is not None:
        last = "\n".join(text.splitlines()[-3:])
        raise BenchFailed(f"a server ended with {process.returncode} and said at last:\n{last}")
    return text


def _beats(process: subprocess.Popen[bytes], url: str, said: int) -> bool:
    _alive(process, said)
    try:
        return requests.get(url + "/__lbheartbeat__", timeout=10).ok
    except requests.ConnectionError:
        return False
