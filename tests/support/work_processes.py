"""Workers as processes: ``qdo work`` in a folder of its own, with jobs that leave a line behind."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from qdo.client import Client
from tests.support.client import Server
from tests.support.commands import Ended, command, run_in
from tests.support.loaded import Program
from tests.support.servers import eventually

JOBS = """
import os, signal, subprocess, threading, time
from pathlib import Path

import qdo

def _note(*words):
    with open("done.txt", "a") as file:
        file.write(" ".join(map(str, words)) + "\\n")

def note(message, context):
    _note(message.partition, message.text)

def wait(message, context):
    _note("begun", message.text)
    while not os.path.exists("go"):
        time.sleep(0.01)
    _note(message.partition, message.text)

def fail(message, context):
    _note(context.attempt, message.text)
    if message.text.startswith("bad") and not os.path.exists("mended"):
        raise ValueError("this one is bad\\nand has a second line")

def refuse(message, context):
    raise ValueError("refused")

def exit(message, context):
    _note(context.attempt, message.text)
    if message.text == "exit":
        raise SystemExit(7)

async def exit_later(message, context):
    exit(message, context)

def whose(message, context):
    _note(os.getpid(), message.text)
    while len({line.split()[0] for line in Path("done.txt").read_text().splitlines()}) < 2:
        time.sleep(0.01)  # until another process has a message as well
    time.sleep(0.05)

def wait_in_a_process(message, context):
    _note("in", os.getpid())
    wait(message, context)

async def later(message, context):
    note(message, context)

def many(messages, context):
    assert isinstance(messages, list)
    for message in messages:
        note(message, context)

def kill(message, context):
    _note(context.attempt, message.text)
    if message.text == "kill":
        os.kill(os.getpid(), 9)
    time.sleep(0.05)

def fork(message, context):
    child = os.fork()
    if not child:
        if message.text == "raise":
            raise ValueError("in the child")
        if message.text == "exit":
            raise SystemExit(3)
        return
    until = time.monotonic() + 20
    while not (ended := os.waitpid(child, os.WNOHANG))[0] and time.monotonic() < until:
        time.sleep(0.01)
    if not ended[0]:
        os.kill(child, 9)
    _note(message.text, os.waitstatus_to_exitcode(ended[1]) if ended[0] else "works on")

async def fork_in_a_loop(message, context):
    fork(message, context)

def stubborn(message, context):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _note("begun")
    time.sleep(1000)

def leave_a_thread(message, context):
    threading.Thread(target=time.sleep, args=(1000,)).start()
    _note("begun")

async def block(message, context):
    _note("begun")
    time.sleep(1000)

def alone(message):
    _note(message.text)

def lazy(message, context):
    yield message

def tell(message, context):
    print(message.text, flush=True)
    _note(message.text)

def tell_in_other_words(message, context):
    try:
        tell(message, context)
    except OSError as error:
        raise qdo.RejectMessage("not told") from error

async def tell_later(message, context):
    tell(message, context)

def run_one_that_tells(message, context):
    subprocess.run(["cat"], input=b"x" * 1_000_000, check=True)

def stop(message, context):
    if message.text == "stop":
        raise qdo.StopWorker
    note(message, context)
"""
WAIT_SECONDS = 90


class WorkProcesses:
    """A folder, an application, and the workers that were started there."""

    def __init__(self, folder: Path, server: Server) -> None:
        self.folder = folder
        self.server = server
        self.environment = {
            "QUEUEY_URL": server.url,
            "QUEUEY_APPLICATION": server.application,
            "QUEUEY_KEY": server.key or "",
            "QDO_STATE": str(folder / "state"),
        }
        (folder / "jobs.py").write_text(JOBS)
        self._started: list[subprocess.Popen[bytes]] = []

    def client(self) -> Client:
        """Of the application; the caller closes it."""
        return Client(self.server.url, self.server.application, self.server.key)

    def run(self, *arguments: str, module: str = "qdo.cli", **variables: str) -> Ended:
        """A command, to its end."""
        runs_jobs = arguments[0] == "work" or module != "qdo.cli"
        return run_in(
            self.environment | variables, self.folder, *arguments, module=module, may_log_tracebacks=runs_jobs
        )

    def work(self, job: str, queue: str, *options: str) -> Ended:
        """A worker that does what is there."""
        return self.run("work", f"jobs:{job}", "--queue", queue, "--exit-at-end", *options)

    def start(self, *arguments: str, module: str = "qdo.cli", stdout: int | None = None) -> subprocess.Popen[bytes]:
        """A command that goes on.

        :param stdout: a descriptor, in place of the file with what it says.
        """
        with (self.folder / f"said-{len(self._started)}.txt").open("wb") as said:
            process = Program(
                command(*arguments, module=module),
                stdin=subprocess.DEVNULL,
                stdout=said if stdout is None else stdout,
                stderr=said,
                env=os.environ | self.environment,
                cwd=self.folder,
            )
        self._started.append(process)
        return process

    def said(self, process: subprocess.Popen[bytes]) -> str:
        """What it has printed so far."""
        return (self.folder / f"said-{self._started.index(process)}.txt").read_text()

    @property
    def notes(self) -> list[str]:
        """The lines that jobs have left."""
        path = self.folder / "done.txt"
        return path.read_text().splitlines() if path.exists() else []

    def until_noted(self, *lines: str) -> None:
        eventually(lambda: set(lines) <= set(self.notes), seconds=WAIT_SECONDS)

    def end(self, process: subprocess.Popen[bytes], number: int = signal.SIGTERM) -> int:
        """Tell a worker to end: its exit code."""
        process.send_signal(number)
        return process.wait(WAIT_SECONDS)

    def close(self) -> None:
        """End those that are left, and say what all have said: pytest shows it of a test that failed."""
        for process in self._started:
            code = process.poll()
            if code is None:
                process.kill()
                process.wait()
            print(f"--- {process.args!r} ended with {code}:\n{self.said(process)}")


@contextmanager
def processes_in(folder: Path, server: Server) -> Iterator[WorkProcesses]:
    """Ended with all its workers."""
    processes = WorkProcesses(folder, server)
    try:
        yield processes
    finally:
        processes.close()


def fill(processes: WorkProcesses, count: int, partitions: int = 4) -> tuple[str, list[str]]:
    """A queue with numbered messages: its name, and the notes that their jobs will leave."""
    queue = processes.server.queue(partitions=partitions)
    notes = []
    for partition in range(1, partitions + 1):
        bodies = [f"{partition}-{number}" for number in range(count // partitions)]
        processes.server.fill(queue, *bodies, partition=partition)
        notes += [f"{partition} {body}" for body in bodies]
    return queue, notes


def in_order(notes: list[str]) -> bool:
    """Within each partition."""
    numbers: dict[str, list[int]] = {}
    for note in notes:
        partition, _, body = note.partition(" ")
        numbers.setdefault(partition, []).append(int(body.partition("-")[2]))
    return all(found == sorted(found) for found in numbers.values())
