"""``queuey serve`` as a process, and the commands beside a running server."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path

from tests.support.commands import command, done, run_in
from tests.support.servers import eventually


def opening(files: int | None) -> list[str]:
    """What lets a command open that number of files at most."""
    return [] if files is None else ["sh", "-c", f'ulimit -n {files}; exec "$@"', "sh"]


@contextmanager
def serving(
    folder: Path, *options: str, files: int | None = None, **variables: str
) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """``queuey serve`` in a folder of its own: the process, and the file with everything it said.

    :param files: how many it may open.
    """
    said = folder / "said.txt"
    with said.open("wb") as output:
        process = subprocess.Popen(
            [*opening(files), *command("serve", "--port", "0", *options)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env=os.environ | variables,
        )
    try:
        eventually(lambda: process.poll() is not None or b"--follow" in said.read_bytes(), seconds=90)
        yield process, said
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(90) == 0


def exports(said: Path) -> dict[str, str]:
    """The variables that the first words say to export."""
    (line,) = [line for line in said.read_text().splitlines() if "export" in line]
    return dict(pair.split("=", 1) for pair in line.split()[1:])


def last_event(log: str) -> str:
    """What the last line of a log says, each line of which is JSON."""
    return str([json.loads(line)["event"] for line in log.splitlines()][-1])


def test_the_log_is_json_alone_from_the_first_start_to_the_end(tmp_path: Path) -> None:
    told = tmp_path / "log.txt"
    with (
        told.open("wb") as log,
        subprocess.Popen(
            command("serve", "--port", "0"), stdout=subprocess.PIPE, stderr=log, text=True, cwd=tmp_path
        ) as process,
    ):
        assert process.stdout is not None
        assert "listens on" in process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        assert process.wait(90) == 0
        assert "with the key:" in process.stdout.read()

    assert last_event(told.read_text()).startswith("stopped: ")


def test_the_first_start_tells_what_to_type_and_it_works(tmp_path: Path) -> None:
    with serving(tmp_path) as (_, said):
        environment = exports(said)
        typed = [line.split()[1:] for line in said.read_text().splitlines() if line.startswith("    queuey ")]

        put = run_in(environment, tmp_path, *typed[0])
        got = run_in(environment, tmp_path, *[word for word in typed[1] if word != "--follow"])

    assert typed == [["put", "demo", "hello"], ["get", "demo", "--follow"]]
    assert done(put).err == "made queue demo, 1 partition\n"
    assert done(got).column("body") == ["hello"]
    assert len(environment["QUEUEY_KEY"]) == 64


def test_a_second_server_on_the_store_or_the_port_is_refused_in_a_sentence(tmp_path: Path) -> None:
    with serving(tmp_path) as (_, said):
        port = exports(said)["QUEUEY_URL"].rsplit(":", 1)[1]

        same_store = run_in({}, tmp_path, "serve", "--port", "0")
        same_port = run_in({}, tmp_path, "serve", "--port", port, "--data", "elsewhere")

    assert (same_store.code, last_event(same_store.err).split(":")[0]) == (2, "StoreInUse")
    assert (same_port.code, last_event(same_port.err).split(":")[0]) == (2, "ConfigurationError")
    assert same_port.err.count("\n") == 1


def test_with_few_open_files_the_server_refuses_connections_before_they_run_out(tmp_path: Path) -> None:
    with serving(tmp_path, files=200) as (_, said), ExitStack() as stack:
        _, _, place = exports(said)["QUEUEY_URL"].rpartition("/")
        host, _, port = place.partition(":")

        def answer() -> int:
            connection = stack.enter_context(closing(HTTPConnection(host, int(port), timeout=60)))
            connection.request("GET", "/__heartbeat__")
            response = connection.getresponse()
            response.read()
            return response.status

        answers = [answer() for _ in range(100)]
        stack.close()
        eventually(lambda: answer() == 200)
        told = said.read_text()

    assert answers == [200] * 91 + [503] * 9
    assert "takes 91 connections at most" in told
    assert "LimitNOFILE=" in told


def test_with_too_few_open_files_the_server_says_so(tmp_path: Path) -> None:
    ended = subprocess.run(
        [*opening(64), *command("serve", "--port", "0")],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=90,
        check=False,
    )
    assert ended.returncode == 2
    assert last_event(ended.stderr).startswith(
        "ConfigurationError: this process may open 64 files, and a server needs 128:"
    )


def test_keys_are_made_and_removed_while_the_server_runs(tmp_path: Path) -> None:
    with serving(tmp_path) as (_, said):
        url = exports(said)["QUEUEY_URL"]
        key = done(run_in({}, tmp_path, "key", "new", "later")).text.strip()
        environment = {"QUEUEY_URL": url, "QUEUEY_APPLICATION": "later", "QUEUEY_KEY": key}

        eventually(lambda: run_in(environment, tmp_path, "put", "q", "x").code == 0, seconds=90)
        listed = done(run_in({}, tmp_path, "key", "ls")).column("application")
        (label,) = done(run_in({}, tmp_path, "key", "ls", "later")).column("label")
        done(run_in({}, tmp_path, "key", "rm", "later", str(label), "--yes"))
        eventually(lambda: run_in(environment, tmp_path, "get", "q").code in (3, 4), seconds=90)

    assert listed == ["demo", "later"]


def test_a_backup_of_a_running_server_is_a_store(tmp_path: Path) -> None:
    with serving(tmp_path) as (_, said):
        environment = exports(said)
        done(run_in(environment, tmp_path, "put", "q", "--lines", given=b"a\nb\n"))
        done(run_in({}, tmp_path, "backup", "copy.db"))
        refused = run_in({}, tmp_path, "backup", "copy.db")
        nowhere = run_in({}, tmp_path, "backup", "nowhere/copy.db")
        done(run_in(environment, tmp_path, "put", "q", "c"))
        done(run_in({}, tmp_path, "backup", "copy.db", "--force"))

    other = tmp_path / "other"
    other.mkdir()
    (tmp_path / "copy.db").rename(other / "queuey.db")
    told = other / "said.txt"
    assert refused.code == 2
    said_of_nowhere = "ConfigurationError: there is no folder nowhere: make it, or name another one\n"
    assert (nowhere.code, nowhere.err) == (2, said_of_nowhere)
    with told.open("wb") as output:
        process = subprocess.Popen(
            command("serve", "--port", "0", "--data", "."), stdout=output, stderr=output, cwd=other
        )
    try:
        listens = eventually(lambda: re.search(r"listens on (http://\S+),", told.read_text()), seconds=90)
        assert listens is not None
        url = listens[1]
        got = done(run_in({**environment, "QUEUEY_URL": url}, tmp_path, "get", "q"))
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(90) == 0
    assert got.column("body") == ["a", "b", "c"]


OLD = """\
[app:main]
use = egg:queuey

[server:main]
use = egg:Paste#http
host = 0.0.0.0
port = 0

[storage]
backend = queuey.storage.memory.MemoryQueueBackend

[metadata]
backend = queuey.storage.memory.MemoryMetadata

[metlog]
backend = mozsvc.metrics.MetlogPlugin

[application_keys]
queuey = f25bfb8fe200475c8a0532a9cbe7651e
"""


def test_a_file_of_the_first_queuey_is_served_and_each_notice_told_once(tmp_path: Path) -> None:
    (tmp_path / "old.ini").write_text(OLD)
    with serving(tmp_path, "-c", "old.ini", QUEUEY_KEY="0123456789abcdef" * 2) as (_, said):
        told = said.read_text()

    for notice in ("[metlog] has no meaning any more", "MemoryMetadata means memory now", "0.0.0.0 without TLS"):
        assert told.count(notice) == 1, told


def test_serve_refuses_wrong_settings_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "queuey.ini").write_text("[server]\nprot = 1\n")

    in_file = run_in({}, tmp_path, "serve", "-c", "queuey.ini")
    in_environment = run_in({}, tmp_path, "serve", QUEUEY_PROT="1")

    assert (in_file.code, in_environment.code) == (2, 2)
    assert "[server] prot is unknown: did you mean port?" in in_file.err
    assert "QUEUEY_PROT is unknown: did you mean QUEUEY_PORT?" in in_environment.err


def test_a_folder_that_may_not_be_changed_is_refused_with_that_reason(tmp_path: Path) -> None:
    """In /sys nobody may make a file, not even root."""
    refused = run_in({}, tmp_path, "serve", "--port", "0", "--data", "/sys/kernel")

    assert refused.code == 2
    assert "cannot open /sys/kernel/queuey.db.lock: Permission denied" in refused.err


def test_serve_refuses_a_key_that_is_none_by_the_name_of_its_variable(tmp_path: Path) -> None:
    refused = run_in({}, tmp_path, "serve", QUEUEY_KEY="short")

    assert refused.code == 2
    assert refused.err.startswith(
        "ConfigurationError: the variable QUEUEY_KEY must be at least 16 printable characters"
    )
