"""Real servers for the suite: started as processes, found by the address they announce, ended by pid."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from configparser import RawConfigParser
from contextlib import contextmanager
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import TypeVar

import requests

from tests.support.loaded import Program
from tests.support.source import ROOT

T = TypeVar("T")
START_SECONDS = 120
STOP_SECONDS = 120
ANSWER_SECONDS = 60
"""Deadlines are for what hangs: on a machine that has other things to do, a start or an answer may take very long."""
QUEUEY = (sys.executable, "-m", "queuey.cli")
_ADDRESS = re.compile(r"(http://127\.0\.0\.1:[1-9][0-9]*)[^0-9]")
"""With what follows it: before, its last digits may not be there."""

FIRST_KEY = "f1257" + "0" * 27 + "5e551081"
"""The key of ``demo``, given to the shipped server in QUEUEY_KEY."""

APPLICATIONS: Mapping[str, tuple[str, ...]] = {
    "queuey": ("9c1de0" * 7, "0b5e55" * 7),
    "other": ("77aa10" * 7,),
    "mirror": ("5ca1ab" * 7,),
    "with-dash": ("da5ba5" * 7,),
    # queuey-api-v1 W2b: the first Queuey cut letters of the scheme word off both ends of a key.
    "letters": ("Applicationaaaa" + "c0ffee" * 6 + "noitacilppA",),
} | {f"fresh-{number:03d}": (f"{number:08x}" * 5,) for number in range(300)}
"""Application to keys. The ``fresh-`` ones are given out once each, to tests that look at all queues of an application."""


class EndedEarly(AssertionError):
    """A server ended instead of serving."""

    def __init__(self, code: int, said: str) -> None:
        super().__init__(f"the server ended with {code} and said:\n{said}")
        self.code = code
        self.said = said


@dataclass(frozen=True)
class RunningServer:
    """A listening server: one way to serve, with all applications of :data:`APPLICATIONS`."""

    name: str
    url: str
    pid: int

    @property
    def port(self) -> int:
        return int(self.url.rsplit(":", 1)[1])

    def beats(self) -> bool:
        """Does the heartbeat answer on a new connection?"""
        answer = requests.get(self.url + "/__heartbeat__", timeout=ANSWER_SECONDS)
        return (answer.status_code, answer.text.strip()) == (200, "OK")


def eventually(look: Callable[[], T], *, seconds: float = 90) -> T:
    """The first true value that ``look`` gives, within a deadline."""
    began = time.monotonic()
    deadline = began + seconds
    while not (found := look()):
        now = time.monotonic()
        assert now < deadline, f"still {found!r} after {seconds} s"
        time.sleep(max(0.02, now - began))  # no more than half the time is spent looking
        began = time.monotonic()
    return found


def write_ini(path: Path, data: Path, *, settings: str = "") -> Path:
    """An ini file with every application of the suite; one key stands on the line, several below it."""
    keys = ""
    for application, given in APPLICATIONS.items():
        joined = given[0] if len(given) == 1 else "\n    " + "\n    ".join(given)
        keys += f"{application} = {joined}\n"
    path.write_text(f"[server]\ndata = {data}\n\n{settings}\n[application_keys]\n{keys}")
    return path


@contextmanager
def shipped(
    folder: Path, *, settings: str = "", program: Sequence[str] = QUEUEY, name: str = "shipped", port: int = 0
) -> Iterator[RunningServer]:
    """``queuey serve``: the server as shipped.

    :param program: what runs the command line, if it is to be watched or changed.
    :param name: what to call it.
    :param port: where it listens; 0 is any that is free.
    """
    ini = write_ini(folder / "queuey.ini", folder / "data", settings=settings)
    command = [*program, "serve", "--port", str(port), "--data", str(folder / "data")]
    with _running(name, command, folder, {"QUEUEY_CONFIG": str(ini), "QUEUEY_KEY": FIRST_KEY}) as running:
        yield running


@contextmanager
def wsgi(folder: Path, *, settings: str = "") -> Iterator[RunningServer]:
    """The WSGI application on waitress, over a store of its own."""
    ini = write_ini(folder / "queuey.ini", folder / "data", settings=settings)
    command = [sys.executable, "-m", "waitress", "--listen=127.0.0.1:0", "--threads=8", "queuey.wsgi:app"]
    with _running("wsgi", command, folder, {"QUEUEY_CONFIG": str(ini)}) as running:
        yield running


@contextmanager
def gunicorn(folder: Path, *, settings: str = "") -> Iterator[RunningServer]:
    """The WSGI application on gunicorn, which hands on the path as it stood in the request line."""
    ini = write_ini(folder / "queuey.ini", folder / "data", settings=settings)
    command = [sys.executable, "-m", "gunicorn", "-b", "127.0.0.1:0", "-k", "gthread", "--threads", "8"]
    with _running("wsgi", [*command, "queuey.wsgi:app"], folder, {"QUEUEY_CONFIG": str(ini)}) as running:
        yield running


@contextmanager
def pserve(folder: Path, *, settings: str = "") -> Iterator[RunningServer]:
    """The WSGI application as the ini file of PasteDeploy that is shipped puts it together: pserve and waitress, as in 2011."""
    ini = write_ini(folder / "queuey.ini", folder / "data", settings=f"{settings}\n{_for_pserve()}")
    command = [str(Path(sys.executable).parent / "pserve"), str(ini)]
    with _running("wsgi", command, folder, {}) as running:
        yield running


def _for_pserve() -> str:
    """What pserve reads of ``etc/queuey-dev.ini``, on any port that is free."""
    shipped_file = RawConfigParser()
    shipped_file.read(ROOT / "etc" / "queuey-dev.ini")
    shipped_file["server:main"]["port"] = "0"
    for name in ("server", "application_keys", "log"):
        shipped_file.remove_section(name)
    text = StringIO()
    shipped_file.write(text)
    return text.getvalue()


@contextmanager
def _running(
    name: str, command: Sequence[str], folder: Path, environment: Mapping[str, str]
) -> Iterator[RunningServer]:
    said = folder / "said.txt"
    with said.open("wb") as output:
        process = Program(
            command,
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **environment, "PYTHONUNBUFFERED": "1"},
        )
    try:
        url = eventually(lambda: _announced(process, said), seconds=START_SECONDS) or ""
        running = RunningServer(name, url, process.pid)
        eventually(lambda: _answers(running), seconds=START_SECONDS)
        yield running
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise


def _announced(process: subprocess.Popen[bytes], said: Path) -> str | None:
    text = said.read_text(errors="replace")
    if process.poll() is not None:
        raise EndedEarly(process.returncode, text)
    found = _ADDRESS.search(text)
    return found[1] if found else None


def _answers(running: RunningServer) -> bool:
    """Whether the process serves, in whatever state its store is."""
    try:
        return requests.get(running.url + "/__lbheartbeat__", timeout=ANSWER_SECONDS).ok
    except requests.RequestException:
        return False
