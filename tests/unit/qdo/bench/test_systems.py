"""A system that does not start leaves no process behind, and options mean what they say."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from qdo.bench.systems import SYSTEMS, EndedAtStart, StartedSystem, system_class
from qdo.bench.systems.peers import StartedRabbit
from queuey.errors import ConfigurationError, StorageUnavailable
from tests.support.proc import born


class Sleeper(StartedSystem):
    """Serves nothing."""

    drivers = ()
    program = sys.executable
    words = "import time; time.sleep(600)"

    @property
    def options(self) -> dict[str, str]:
        return {}

    def command(self) -> list[str]:
        return [self.path, "-S", "-c", self.words]

    def is_up(self) -> bool:
        return False

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid


class Interrupted(Sleeper):
    def is_up(self) -> bool:
        raise KeyboardInterrupt


class Ending(Sleeper):
    words = "raise SystemExit('no file')"


class Starting(Sleeper):
    def is_up(self) -> bool:
        return True


def test_a_program_that_this_machine_does_not_run_did_not_start(tmp_path: Path) -> None:
    text = tmp_path / "program"
    text.write_bytes(b"\x00")
    text.chmod(0o755)

    with pytest.raises(StorageUnavailable, match="did not start: Exec format error"):
        Sleeper(tmp_path, {"program": str(text)}).start()


def test_its_memory_is_known_while_it_runs(tmp_path: Path) -> None:
    assert Starting(tmp_path).most_memory_mib is None

    with Starting(tmp_path) as system:
        assert system.most_memory_mib is not None
        assert system.most_memory_mib > 0


@pytest.mark.parametrize(
    ("kind", "error", "seconds"),
    [(Sleeper, StorageUnavailable, 0.0), (Interrupted, KeyboardInterrupt, 60.0), (Ending, EndedAtStart, 60.0)],
)
def test_what_does_not_start_is_over(
    kind: type[Sleeper], error: type[BaseException], seconds: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qdo.bench.systems.START_SECONDS", seconds)
    system = kind(tmp_path)

    with pytest.raises(error) as raised:
        system.start()

    assert born(system.pid) is None
    assert isinstance(raised.value, EndedAtStart) is (kind is Ending)


GIVEN = {"program": sys.executable, "jars": "jars", "hosts": "127.0.0.1:9042"}


@pytest.mark.parametrize("name", SYSTEMS)
def test_an_option_that_names_another_place_is_refused(name: str, tmp_path: Path) -> None:
    """The run would measure its own system all the same."""
    kind = system_class(name)

    assert kind(tmp_path, GIVEN).options.keys() == kind.place_options
    for option in kind.place_options:
        with pytest.raises(ConfigurationError, match=f"option {option}: the run starts a system of its own"):
            kind.of_driver({option: "some", "other": "1"})
    assert kind.of_driver({"other": "1", **dict.fromkeys(kind.option_names, "some")}) == {"other": "1"}


def test_a_program_that_is_given_is_the_one_that_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StartedRabbit, "PROGRAM", Path(sys.executable))
    given = tmp_path / "rabbitmq-server"
    given.touch(0o755)

    assert StartedRabbit(tmp_path, {"program": str(given)}).command() == [str(given)]
    assert StartedRabbit(tmp_path, {"program": ""}).command() == [sys.executable]


def test_a_program_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="/none/nats-server is missing"):
        system_class("nats")(tmp_path, {"program": "/none/nats-server"})
