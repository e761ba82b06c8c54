"""Commands of operators, against one server and its log: check, top, doctor and audit."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from qdo.client import Client, NewMessage
from queuey.errors import QueueyError
from tests.support import servers
from tests.support.client import new_name
from tests.support.commands import Ended, command, done, run_in
from tests.support.loaded import Program
from tests.support.servers import APPLICATIONS, RunningServer, eventually
from tests.support.visitors import signed_in

Run = Callable[..., Ended]
KEY = APPLICATIONS["queuey"][0]


class Operated(NamedTuple):
    """A server, its folder, and an operator's key."""

    running: RunningServer
    folder: Path
    operator: str

    @property
    def environment(self) -> dict[str, str]:
        return {"QUEUEY_URL": self.running.url, "QUEUEY_APPLICATION": "queuey", "QUEUEY_KEY": KEY}


@pytest.fixture(scope="module")
def operated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operated]:
    folder = tmp_path_factory.mktemp("operated")
    with servers.shipped(folder, name="operated") as running:
        beside = {"QUEUEY_CONFIG": str(folder / "queuey.ini")}
        operator = done(run_in(beside, None, "key", "new", "--operator", "root")).text.strip()
        with Client(running.url, "queuey", operator) as client:
            eventually(lambda: _is_in_force(client))
        yield Operated(running, folder, operator)


def _is_in_force(client: Client) -> bool:
    try:
        return bool(client.server_figures().server)
    except QueueyError:
        return False


@pytest.fixture
def run(operated: Operated) -> Run:
    return lambda *arguments, **given: run_in(operated.environment, None, *arguments, **given)


@pytest.fixture
def client(operated: Operated) -> Iterator[Client]:
    with Client(operated.running.url, "queuey", KEY) as found:
        yield found


@pytest.fixture
def queue(client: Client) -> str:
    return client.create_queue(new_name(), partitions=2).name


# check


def test_a_sound_queue_is_ok_and_has_performance_data(run: Run, client: Client, queue: str) -> None:
    client.append(queue, b"x")

    ended = run("check", queue, "-w", "depth=1", "-c", "oldest=1h")

    assert ended.code == 0, ended.text
    form = (
        rf"QUEUEY OK - queuey/{queue}: heartbeat [0-9.e-]+ s, depth 1, oldest [0-9.e-]+ s"
        r" \| heartbeat=[0-9.e-]+s;;;0 depth=1;1;;0 oldest=[0-9.e-]+s;;3600;0\n"
    )
    assert re.fullmatch(form, ended.text), ended.text


def test_bounds_make_a_warning_and_a_critical_state(run: Run, client: Client, queue: str) -> None:
    for _ in range(3):
        client.append(queue, b"x")

    warned = run("check", queue, "-w", "depth=2", "-c", "depth=9")
    critical = run("check", queue, "-w", "depth=1", "-c", "depth=2")

    assert (warned.code, warned.text.partition(",")[0]) == (1, f"QUEUEY WARNING - queuey/{queue}: depth 3 (over 2)")
    assert (critical.code, "depth 3 (over 2)" in critical.text) == (2, True)


def test_a_lease_group_has_its_oldest_message_and_its_dead_letters(run: Run, client: Client, queue: str) -> None:
    client.set_lease_group(queue, "workers", max_failures=1)
    first, second = (client.append(queue, NewMessage(text, partition=1)).id for text in (b"a", b"b"))
    lease = client.receive(queue, "workers", max_messages=1)[0]
    assert lease.id == first

    before = run("check", queue, "-g", "workers", "-c", "held=0")
    lease.acknowledge()
    (rest,) = client.receive(queue, "workers")
    assert rest.id == second
    rest.reject()
    after = run("check", queue, "-g", "workers", "-w", "dead=0")

    assert (before.code, "held 1 (over 0)" in before.text, "dead=0;" in before.text) == (2, True, True)
    assert _value(before, "oldest") > 0
    assert (after.code, "dead 1 (over 0)" in after.text) == (1, True)
    assert (_value(after, "held"), _value(after, "oldest")) == (0, 0)


def _value(ended: Ended, name: str) -> float:
    found = re.search(rf" {name}=([0-9.e-]+)", ended.text)
    assert found is not None, ended.text
    return float(found[1])


def test_a_group_with_offsets_has_its_lag(run: Run, client: Client, queue: str) -> None:
    ids = [client.append(queue, NewMessage(b"x", partition=1)).id for _ in range(3)]
    client.append(queue, NewMessage(b"y", partition=2))
    client.commit_offsets(queue, "readers", {1: ids[0]})

    ended = run("check", queue, "--offsets", "readers", "-w", "lag=2")

    assert (ended.code, "lag 3 (over 2)" in ended.text) == (1, True)
    assert _value(ended, "lag_seconds") > 0


def test_the_server_has_its_disk_for_an_operator_alone(run: Run, operated: Operated) -> None:
    operators = run("check", "-w", "disk=1TB", "-c", "disk=1", QUEUEY_KEY=operated.operator)
    owner = run("check", "-c", "disk=1")
    plain = run("check")

    assert operators.code in (0, 1)
    assert re.search(r" disk=[0-9]+B;1000000000000:;1:;0", operators.text)
    assert (owner.code, "operator's key is needed" in owner.text) == (3, True)
    assert (plain.code, " disk=" in plain.text) == (0, False)


def test_what_is_not_there_or_not_allowed_is_unknown(run: Run) -> None:
    gone, stranger = run("check", new_name()), run("check", new_name(), QUEUEY_KEY="")

    assert (gone.code, gone.text.startswith("QUEUEY UNKNOWN - QueueNotFound")) == (3, True)
    assert (stranger.code, "set QUEUEY_KEY" in stranger.text) == (3, True)


# top


def test_top_prints_once_without_a_terminal(run: Run, operated: Operated, client: Client, queue: str) -> None:
    client.append(queue, b"x")
    client.receive(queue, "workers")

    plain = done(run("top", "--prefix", queue)).text
    operators = done(run("top", "--prefix", queue, "--once", QUEUEY_KEY=operated.operator)).text

    assert re.search(rf"^{queue} +1 +0 +1 B ", plain, re.MULTILINE)
    assert re.search(rf"^{queue}/workers +1 +1$", plain, re.MULTILINE)
    assert "disk free" in operators
    assert "disk free" not in plain


@contextmanager
def on_terminal(operated: Operated, *words: str) -> Iterator[tuple[Program, int, int]]:
    """A command whose streams are a terminal: the program, and the terminal's two ends."""
    ours, theirs = pty.openpty()
    try:
        with Program(
            command(*words), stdin=theirs, stdout=theirs, stderr=theirs, env=os.environ | operated.environment
        ) as program:
            yield program, ours, theirs
    finally:
        os.close(ours)
        os.close(theirs)


def _shown(terminal: int, seconds: float) -> bytes:
    """What comes within this time."""
    return os.read(terminal, 65536) if select.select([terminal], [], [], seconds)[0] else b""


def test_top_is_live_on_a_terminal_until_q(operated: Operated) -> None:
    with on_terminal(operated, "top", "--interval", "0.2") as (program, ours, _):
        said = b""
        while said.count(b"q ends") < 2:
            said += os.read(ours, 4096)
        os.write(ours, b"xq")  # at once, as keys that are typed fast
        while program.poll() is None:
            said += _shown(ours, 0.1)
        said += _shown(ours, 0)

    assert program.returncode == 0
    assert b"Traceback" not in said
    assert b"/s)" in said  # rates, from the second look on


def test_a_live_view_that_is_ended_from_outside_leaves_the_terminal_as_it_was(operated: Operated) -> None:
    with on_terminal(operated, "top", "--interval", "60") as (program, ours, theirs):
        said = b""
        while b"q ends" not in said:
            said += os.read(ours, 4096)
        during = termios.tcgetattr(theirs)
        program.send_signal(signal.SIGTERM)
        code, after = program.wait(90), termios.tcgetattr(theirs)

    assert (code, during == after) == (143, False)
    ours, theirs = pty.openpty()
    assert after == termios.tcgetattr(theirs)
    os.close(ours)
    os.close(theirs)


# doctor


def test_the_doctor_finds_a_sound_server_sound(run: Run, operated: Operated) -> None:
    (operated.folder / "queuey.ini").chmod(0o600)
    data = str(operated.folder / "data")

    ended = run("doctor", "-c", str(operated.folder / "queuey.ini"), "--data", data, "-o", "jsonl")

    assert (ended.code, [row["found"] for row in ended.rows if row["level"] == "wrong"]) == (0, [])
    told = {str(row["about"]): str(row["found"]) for row in ended.rows}
    assert told["keys"] == "the key is good for queuey, and streams come through"
    assert any(f"served by process {operated.running.pid}" in str(row["found"]) for row in ended.rows)


# audit


def test_the_audit_has_sign_ins_and_changes_of_the_console(run: Run, operated: Operated) -> None:
    name = new_name()
    with signed_in(operated.running.url, KEY) as owner:
        owner.send("/console/new/queuey", queue_name=name)
        owner.send("/console/sign-out")
        owner.send("/console/sign-in", status=401, credential="0" * 32)
    log = str(operated.folder / "said.txt")

    def told(*arguments: str) -> list[tuple[object, ...]]:
        rows = done(run("audit", log, *arguments)).rows
        return [(row["action"], row["path"], row["outcome"], row["principals"], row["address"]) for row in rows]

    assert told("--application", "queuey", "--action", "POST") == [
        ("POST", "/v1/queuey", "done", ["app:queuey"], "127.0.0.1")
    ]
    assert told("--action", "sign-in") == [
        ("SIGN-IN", "/console/sign-in", "done", ["app:queuey"], "127.0.0.1"),
        ("SIGN-IN", "/console/sign-in", "InvalidApplicationKey", [], "127.0.0.1"),
    ]
    assert ("SIGN-OUT", "/console/sign-out", "done", ["app:queuey"]) in [
        one[:4] for one in told("--action", "sign-out")
    ]
    assert KEY not in done(run("audit", log)).text
