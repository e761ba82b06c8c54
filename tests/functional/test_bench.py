"""``queuey bench``: whole runs by the command. Their speeds are no test; what they find and say is."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from qdo.bench import judge_parts, machine, planting, speed
from qdo.bench.drivers import MeasuredSystem, driver_class
from qdo.bench.drivers.queuey_v1 import QueueyDriver
from qdo.bench.running import Experiment
from qdo.bench.simulation.scenario import built_in_scenarios
from qdo.bench.workload import built_in, changed, find, load, scaled
from queuey.cli import main
from queuey.cli.bench import PLANTS
from queuey.errors import StorageUnavailable
from tests.support.bench_runs import SMALL, bench, runs_of
from tests.support.proc import born, children_of
from tests.support.source import ROOT


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(SMALL)
    return path


def test_a_run_of_a_server_that_it_starts(small: Path, tmp_path: Path) -> None:
    # The receivers take twice as long as the senders: they go on when the processes of the senders are gone.
    small.write_text(SMALL.replace("{wait: 0.2}", "{wait: 0.2, work: 0.01}") + "  start: queuey\n")

    done = bench(
        "run", "small.yaml", "--json", "a.json", "--html", "a.html", "--hlog", "a.hlog", "--seed", "3", folder=tmp_path
    )

    # 0 if this machine is quiet, else 3: the figures are not believed, but what was delivered is known.
    assert done.returncode in (0, 3), done.stderr
    (run,) = runs_of(tmp_path / "a.json")
    assert (run["stored"], run["distinct"]) == (400, 400)
    assert {kind: count for kind, count in run["found"].items() if count and kind not in ("out_of_order", "late")} == {}
    assert json.loads((tmp_path / "a.json").read_text())["versions"]["queuey"]
    assert "<svg" in (tmp_path / "a.html").read_text()
    assert "Tag=run1-response," in (tmp_path / "a.hlog").read_text()
    assert "Verdict: " in done.stdout


def test_what_is_planted_is_found_by_a_whole_run(small: Path, tmp_path: Path) -> None:
    done = bench("run", "small.yaml", "--driver", "memory", "--plant", "lose", "--json", "a.json", folder=tmp_path)

    (run,) = runs_of(tmp_path / "a.json")
    assert done.returncode == 1, done.stderr
    assert run["found"]["lost"] == run["planted"] > 0


@pytest.mark.parametrize("where", ["  driver: memory\n", "  start: queuey\n"])
def test_receivers_that_an_event_loop_serves_are_judged_as_all_others(small: Path, tmp_path: Path, where: str) -> None:
    herd = SMALL.replace("consumerPerSubscription: 2", "consumerPerSubscription: 120")
    small.write_text(herd.replace("{wait: 0.2}", "{wait: 0.2, loop: true, batch: 1, work: 0.01}") + where)

    done = bench("run", "small.yaml", "--plant", "lose", "--json", "a.json", folder=tmp_path)

    (run,) = runs_of(tmp_path / "a.json")
    assert done.returncode == 1, done.stderr
    # The niceness that a process of this user can get.
    asked = subprocess.run(["nice", "-n", str(machine.NICE), "nice"], capture_output=True, text=True, check=True)
    assert run["nice"] == int(asked.stdout)
    assert (run["stored"], run["found"]["lost"]) == (400, run["planted"])
    assert run["planted"] > 0
    assert run["found"]["duplicates"] == run["found"]["overlaps"] == 0
    # Queues in memory have no sockets that could wait for the loop.
    assert (run["receivers_lag_ms"] > 0) == ("start" in where)


def test_many_queues_are_judged_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One message of each, which a few receivers take once all are sent."""
    monkeypatch.setattr(judge_parts, "PART", 30)
    sizes: list[tuple[str, float]] = []

    @contextmanager
    def shown(name: str, size: float) -> Iterator[Callable[[float], None]]:
        sizes.append((name, size))
        yield lambda done: sizes.append(("", done))

    whole = msgspec.structs.replace(load(find("many-queues")), topics=100)
    ((document, _),) = Experiment(changed(whole, repeats=1), shown=shown).run()

    (run,) = [one["queuey"] for one in document["runs"]]
    assert (run["stored"], run["distinct"], document["verdict"]["violations"]) == (100, 100, [])
    name = "many-queues: queuey, run 1 of 1"
    assert [one for one in sizes if one[0]] == [(f"{name}, queues", 100), (name, 200)]
    assert sizes[-1] == ("", 200)


def test_a_system_that_ends_with_its_run_has_no_queues_removed(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A million removals are a million requests, for nothing."""
    removed: list[object] = []
    monkeypatch.setattr(QueueyDriver, "remove", removed.append)
    small.write_text(SMALL + "  start: queuey\n")

    Experiment(scaled(load(small), 0.2)).run()

    assert removed == []


def test_a_herd_that_may_not_open_its_files_is_refused_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "most_files", lambda: 4096)

    done = CliRunner().invoke(main, ["bench", "run", "waiters"])

    assert done.exit_code == 2, done.output
    assert (
        "10,000 connections at once need 10,100 open files, and a process may open 4,096 here: raise the limit with "
        "'ulimit -Hn 10100' as root, or LimitNOFILE=10100 in a unit"
    ) in done.stderr


def test_two_drivers_take_turns_and_are_compared(small: Path, tmp_path: Path) -> None:
    small.write_text(SMALL.replace("{wait: 0.2}", "{wait: 0.2, mode: pop}"))
    words = (
        "run",
        "small.yaml",
        "--driver",
        "memory",
        "--driver",
        "faulty",
        "--option",
        "faulty.lose=0.1",
        "--json",
        "a.json",
    )
    done = bench(*words, folder=tmp_path)

    assert done.returncode == 1, done.stderr
    assert runs_of(tmp_path / "a-memory.json")[0]["found"]["lost"] == 0
    assert runs_of(tmp_path / "a-faulty.json")[0]["found"]["lost"] > 0

    compared = bench("compare", "a-memory.json", "a-faulty.json", folder=tmp_path)

    assert compared.returncode == 3
    assert json.loads(compared.stdout.splitlines()[0])["figure"] == "sent a second"
    assert "doubt: the second is not both trusted and clean" in compared.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("run", "none.yaml"), "no such file"),
        (("run", "bad.yaml"), "bad.yaml:3: unknown key sped in queuey"),
        (("run", "small.yaml", "--driver", "none"), "no driver none"),
        (("run", "small.yaml", "--driver", "memory", "--option", "colour=red"), "no option colour"),
        (("run", "small.yaml", "--driver", "memory", "--driver", "memory"), "named twice"),
        (("run", "small.yaml", "--option", "url"), "is not NAME=VALUE"),
        (
            ("run", "small.yaml", "--driver", "memory", "--driver", "faulty", "--option", "losse=0.1"),
            "no driver has the option losse; they know every, forget, lose,",
        ),
        (
            ("run", "small.yaml", "--driver", "memory", "--driver", "faulty", "--option", "memory.lose=0.1"),
            "no driver has the option memory.lose",
        ),
        (
            ("run", "small.yaml", "--driver", "memory", "--option", "memry.stall=1"),
            "option memry.stall: the drivers of this run are memory",
        ),
        (("run", "small.yaml", "--driver", "memory", "--json", "a", "--hlog", "./a"), "a would be written twice"),
        (("run", "small.yaml", "--driver", "memory", "--summary", "a.svg"), "a.svg would be written twice"),
        (("run", "small.yaml", "--driver", "memory", "--summary", "plots.json"), "plots.svg is a folder"),
        (("run", "pops.yaml", "--driver", "memory", "--plant", "overlap"), "needs a workload with leases"),
        (("run", "small.yaml", "--driver", "memory", "--plant", "overtake"), "needs leases and keys"),
        (("run", "poison.yaml", "--driver", "memory", "--plant", "lose"), "--plant lose needs messages that come once"),
        (("run", "small.yaml", "--driver", "memory", "--json", "none/a.json"), "the folder 'none' does not exist"),
        (("run", "small.yaml", "--driver", "memory", "--html", "none/a.html"), "the folder 'none' does not exist"),
        (("run", "small.yaml", "--driver", "memory", "--hlog", "none/a.hlog"), "the folder 'none' does not exist"),
        (("run", "small.yaml", "--driver", "memory", "--summary", "none/a.json"), "the folder 'none' does not exist"),
        (("simulate", "thousand-receivers", "--json", "none/a.json"), "the folder 'none' does not exist"),
        (("run", "small.yaml", "--driver", "sqs", "--option", "url=x"), "driver sqs: Invalid endpoint: x"),
        (("run", "small.yaml", "--driver", "redis-streams", "--option", "url=x"), "its library refuses an option"),
        (
            ("run", "small.yaml", "--driver", "rabbitmq-quorum", "--option", "url=nonsense"),
            "its library refuses an option",
        ),
        (("run", "small.yaml", "--driver", "sqs"), "Unable to locate credentials: options access_key"),
        (("compare", "small.yaml", "small.yaml"), "this is no JSON"),
        (("run", "started.yaml", "--option", "program=none/redis"), "none/redis is missing"),
        (("run", "seeds.yaml", "--driver", "memory", "--seed", "3"), "queuey.seed varies: nothing replaces it"),
        (("run", "small.yaml", "--driver", "memory", "--option", "a2_b.stall=1"), "option a2_b.stall: the drivers"),
    ],
)
def test_bad_input_is_refused_with_its_place(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], said: str
) -> None:
    (tmp_path / "bad.yaml").write_text("name: x\nqueuey:\n  sped: 1\n")
    (tmp_path / "pops.yaml").write_text("name: x\nqueuey: {receiving: {mode: pop}}\n")
    (tmp_path / "poison.yaml").write_text("name: x\nqueuey: {receiving: {poison: 0.1}}\n")
    (tmp_path / "started.yaml").write_text(
        "name: x\nqueuey: {driver: redis-lists, start: redis, receiving: {mode: pop}}\n"
    )
    (tmp_path / "seeds.yaml").write_text("name: x\nqueuey: {vary: {queuey.seed: [1, 2]}}\n")
    (tmp_path / "plots.svg").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)

    done = CliRunner().invoke(main, ["bench", *words])

    assert done.exit_code == 2, done.output
    assert said in done.stderr


@pytest.mark.parametrize(
    ("driver", "option"),
    [
        ("queuey", "url=http://127.0.0.1:1"),
        ("redis-streams", "url=redis://127.0.0.1:1"),
        ("rabbitmq-quorum", "url=amqp://127.0.0.1:1"),
        ("sqs", "url=http://127.0.0.1:1"),
        ("nats", "url=nats://127.0.0.1:1"),
    ],
)
def test_a_system_that_is_not_there_is_said_to_be_away(
    small: Path, monkeypatch: pytest.MonkeyPatch, driver: str, option: str
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "id")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")

    done = CliRunner().invoke(main, ["bench", "run", str(small), "--driver", driver, "--option", option])

    assert done.exit_code == 5, done.output
    assert "ServerUnreachable: " in done.stderr
    assert "127.0.0.1" in done.stderr or "refused" in done.stderr


SMALLER: dict[str, dict[str, int]] = {
    "waiters": {"consumer_per_subscription": 300},
    "many-queues": {"topics": 300},
}
"""What is about many of something."""


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name, path in built_in().items() if load(path).queuey.start])
def test_each_experiment_finds_nothing_over_its_limits(name: str) -> None:
    """For two seconds, with the server that it starts. How fast it is, is no test."""
    whole = msgspec.structs.replace(load(find(name)), **SMALLER.get(name, {}))
    workload = scaled(changed(whole, repeats=1), 2)

    found = Experiment(workload).run()

    assert [document["verdict"]["violations"] for document, _ in found] == [[]] * len(found)


@pytest.mark.parametrize(
    ("module", "words"), [("yaml", ("ls",)), ("yaml", ("run", "smoke")), ("simpy", ("simulate", "thousand-receivers"))]
)
def test_without_its_extra_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, module: str, words: tuple[str, ...]
) -> None:
    for name in [
        name for name in sys.modules if name == module or name.startswith(("qdo.bench.simulation", f"{module}."))
    ]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)

    done = CliRunner().invoke(main, ["bench", *words])

    assert done.exit_code == 2, done.output
    assert (
        f"the load harness needs {module}, which is not installed: pip install '/path/to/queuey[bench]'" in done.stderr
    )


def test_the_command_knows_all_that_can_be_planted() -> None:
    assert planting.PLANTS == PLANTS


def test_the_built_in_workloads_are_listed() -> None:
    done = CliRunner().invoke(main, ["bench", "ls", "-o", "jsonl"])

    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert "smoke" in [row["name"] for row in rows]
    assert all(row["about"] for row in rows)


def test_a_scenario_is_simulated(tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text("name: small\nseconds: 1\ntraffic: {a: {rate: 100, queues: 1000}}\n")
    words = ["bench", "simulate", str(tmp_path / "small.yaml"), "--seed", "3"]
    written = ["--json", str(tmp_path / "a.json"), "--html", str(tmp_path / "a.html")]

    done = CliRunner().invoke(main, [*words, *written])

    assert done.exit_code == 0, done.output
    assert "the first limit: " in done.stdout
    assert json.loads((tmp_path / "a.json").read_text())["scenario"]["seed"] == 3
    assert "<h1>small</h1>" in (tmp_path / "a.html").read_text()


def test_the_built_in_scenarios_are_listed() -> None:
    done = CliRunner().invoke(main, ["bench", "scenarios", "-o", "jsonl"])

    assert {"lost-rack", "million-a-second"} <= {json.loads(line)["name"] for line in done.stdout.splitlines()}


@pytest.mark.long
@pytest.mark.parametrize("name", built_in_scenarios())
def test_each_built_in_scenario_has_an_answer(name: str) -> None:
    done = CliRunner().invoke(main, ["bench", "simulate", name])

    assert done.exit_code == 0, done.output
    assert "used" in done.stdout


def test_the_harness_measures_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """How fast it is, is no test; a goal that is not reached is code 3."""
    monkeypatch.setattr(speed, "ROWS", 2000)
    monkeypatch.setattr(speed, "TURNS", 1)

    done = CliRunner().invoke(main, ["bench", "speed", "--seconds", "0.05", "-o", "jsonl"])

    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["goal"] for row in rows] == ["60,000", "", "5%", ""]
    assert done.exit_code == (0 if all(row["reached"] for row in rows) else 3), done.output


def test_a_server_that_is_away_has_no_version_and_raises_nothing() -> None:
    found = driver_class("queuey")(MeasuredSystem(load(find("smoke")), 1, {"url": "http://127.0.0.1:1"})).versions()

    assert found == {"queuey": "unknown", "url": "http://127.0.0.1:1"}


def test_a_summary_is_drawn_anew(small: Path, tmp_path: Path) -> None:
    small.write_text(SMALL + "  vary: {queuey.receiving.batch: [1, 5]}\n")

    bench("run", "small.yaml", "--driver", "memory", "--summary", "a.json", folder=tmp_path)
    done = bench("draw", "a.json", "b.svg", folder=tmp_path)

    assert done.returncode == 0, done.stderr
    assert (tmp_path / "b.svg").read_text() == (tmp_path / "a.svg").read_text()
    assert "duplication over batch" in (tmp_path / "a.svg").read_text()


def test_a_server_that_does_not_start_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "_serve", id)

    with pytest.raises(StorageUnavailable, match="the server that does nothing did not start"):
        speed.own_speed(0.05)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_server_that_a_run_has_started(tmp_path: Path, number: signal.Signals) -> None:
    (tmp_path / "long.yaml").write_text(f"{SMALL.replace('seconds: 1', 'seconds: 600')}  start: queuey\n")
    command = [sys.executable, "-m", "queuey.cli", "bench", "run", "long.yaml"]
    program = subprocess.Popen(command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)})
    try:
        give_up = time.monotonic() + 60
        while not (servers := children_of(program.pid, "\0serve\0")):
            assert program.poll() is None
            assert time.monotonic() < give_up
            time.sleep(0.02)
        program.send_signal(number)

        assert program.wait(60) == 128 + number
        assert [pid for pid in servers if born(pid) is not None] == []
    finally:
        program.kill()
        program.wait()
