"""Messages and metadata that lie in two files are restored together or not at all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from queuey.clock import ManualClock
from queuey.errors import ConfigurationError
from queuey.ids import IdGenerator
from queuey.storage.sqlite import SqliteStores
from queuey.storage.sqlite.backup import backup
from queuey.storage.sqlite.restore import restore


class Ended(BaseException):
    """As by a signal."""


def begin(path: Path) -> None:
    """A server begins with this file, and ends."""
    clock = ManualClock()
    SqliteStores(path, clock, IdGenerator(clock)).close()


@pytest.fixture
def two(tmp_path: Path) -> Sequence[tuple[Path, Path]]:
    """Backups of two files, and these."""
    files = []
    for name in ("messages.db", "metadata.db"):
        path = tmp_path / "two" / name
        path.parent.mkdir(exist_ok=True)
        begin(path)
        backup(path, tmp_path / name)
        files.append((tmp_path / name, path))
    return files


def test_of_two_files_none_is_replaced_if_one_cannot_be_copied(two: Sequence[tuple[Path, Path]]) -> None:
    """The queues of a backup were not those of its messages then."""
    before = [path.read_bytes() for _, path in two]
    steps: list[int] = []

    def full(done: int, _: int) -> None:
        steps.append(done)
        if len(steps) == len(two):
            raise OSError(28, "No space left on device")

    with pytest.raises(ConfigurationError, match="No space left"):
        restore(two, full)

    assert steps == [two[0][0].stat().st_size, sum(source.stat().st_size for source, _ in two)]
    assert [path.read_bytes() for _, path in two] == before
    assert not [*two[0][1].parent.glob("*restor*")]


@pytest.mark.parametrize(("is_first", "renamed"), [*((False, at) for at in range(4)), (True, 0), (True, 1)])
def test_a_restore_of_two_files_that_ends_in_between_lets_no_server_begin_with_one(
    two: Sequence[tuple[Path, Path]], monkeypatch: pytest.MonkeyPatch, is_first: bool, renamed: int
) -> None:
    """Where there were files before, they are put aside first."""
    for _, path in two if is_first else ():
        path.unlink()
    done: list[Path] = []

    def ends(name: str) -> Callable[[Path, Path], Path]:
        rename = getattr(Path, name)

        def renames(source: Path, target: Path) -> Path:
            if len(done) == renamed:
                raise Ended
            done.append(target)
            return Path(rename(source, target))

        return renames

    with monkeypatch.context() as planted:
        for name in ("rename", "replace"):
            planted.setattr(Path, name, ends(name))
        with pytest.raises(Ended):
            restore(two)

    begun = 0
    for _, path in two:
        try:
            begin(path)
        except ConfigurationError:
            continue
        begun += 1
    assert begun < len(two) or not done

    restore(two)
    for _, path in two:
        begin(path)
    assert not [*two[0][1].parent.glob("*.restoring")]
