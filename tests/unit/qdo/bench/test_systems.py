"""A system that does not start leaves no process behind."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from qdo.bench.systems import EndedAtStart, StartedSystem
from queuey.errors import StorageUnavailable
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
