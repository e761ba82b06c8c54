"""Backups to folders and to addresses that fsspec knows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import fsspec
import pytest
from click.testing import CliRunner, Result

from queuey.cli import main
from queuey.cli.backup_places import fetched, named, send
from queuey.errors import ConfigurationError

NOW = datetime(2026, 11, 26, 4, 30, 5, tzinfo=UTC)


@pytest.fixture
def memory() -> Iterator[str]:
    """An object store in this process."""
    yield "memory://backups"
    fsspec.filesystem("memory").rm("/backups", recursive=True)


def run(*arguments: str, data: Path) -> Result:
    return CliRunner().invoke(main, [*arguments, "--data", str(data)], env={"QUEUEY_DATA": None})


def nothing(_done: int, _size: int) -> None:
    """No bar."""


@pytest.mark.parametrize(
    ("dest", "name"),
    [
        ("copy.db", "copy.db"),
        ("folder/", "folder/queuey-20261126T043005Z.db"),
        ("s3://bucket/x.db", "s3://bucket/x.db"),
        ("s3://bucket/", "s3://bucket/queuey-20261126T043005Z.db"),
    ],
)
def test_in_a_folder_a_backup_is_named_by_its_moment(dest: str, name: str) -> None:
    assert named(dest, NOW) == name


def test_an_empty_name_is_no_place() -> None:
    """Of a variable that was never set: it was the root of the machine."""
    with pytest.raises(ConfigurationError, match="needs a place"):
        named("", NOW)


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_the_store_itself_is_no_place_for_its_backup(tmp_path: Path, scheme: str) -> None:
    """Its server would lose the file that it serves."""
    data = tmp_path / "data"
    run("key", "new", "app", data=data)
    before = (data / "queuey.db").stat()

    refused = run("backup", f"{scheme}{data}/queuey.db", "--force", data=data)

    assert (refused.exit_code, "is a store and no backup" in refused.stderr) == (2, True), refused.stderr
    assert (data / "queuey.db").stat() == before


def test_a_folder_that_exists_needs_no_slash(tmp_path: Path) -> None:
    assert named(str(tmp_path), NOW) == f"{tmp_path}/queuey-20261126T043005Z.db"


def test_what_was_sent_comes_back_and_leaves_nothing_here(tmp_path: Path, memory: str) -> None:
    source, told = tmp_path / "source", []
    source.write_bytes(b"x" * (9 << 20))

    send(source, f"{memory}/deep/copy.db", lambda done, size: told.append((done, size)), force=False)
    with fetched(f"{memory}/deep/copy.db", tmp_path / "queuey.db", nothing) as here:
        assert here.read_bytes() == source.read_bytes()
        assert here.stat().st_mode & 0o077 == 0

    assert told == [(8 << 20, 9 << 20), (9 << 20, 9 << 20)]
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_a_backup_that_is_there_stays_unless_told(tmp_path: Path, memory: str) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_text("first")
    second.write_text("second")
    send(first, f"{memory}/copy.db", nothing, force=False)

    with pytest.raises(ConfigurationError, match="exists already"):
        send(second, f"{memory}/copy.db", nothing, force=False)
    send(second, f"{memory}/copy.db", nothing, force=True)

    with fetched(f"{memory}/copy.db", tmp_path / "queuey.db", nothing) as here:
        assert here.read_text() == "second"


@pytest.mark.parametrize("address", ["nosuch://bucket/x.db", "memory://backups/none.db"])
def test_an_address_that_cannot_be_read_is_refused_with_its_name(tmp_path: Path, address: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(address)):
        with fetched(address, tmp_path / "queuey.db", nothing):
            pass
    assert list(tmp_path.iterdir()) == []


def test_a_store_goes_there_and_comes_back(tmp_path: Path) -> None:
    data, address = tmp_path / "data", f"file://{tmp_path}/objects/"
    run("key", "new", "app", data=data)

    made = run("backup", address, data=data)
    (copy,) = (tmp_path / "objects").iterdir()
    run("key", "new", "other", data=data)
    restored = run("restore", f"{address}{copy.name}", data=data)

    assert (made.exit_code, restored.exit_code) == (0, 0), made.stderr + restored.stderr
    assert re.fullmatch(r"queuey-[0-9]{8}T[0-9]{6}Z\.db", copy.name)
    listed = run("key", "ls", data=data).stdout
    assert ('"app"' in listed, '"other"' in listed) == (True, False)
    left = {path.name for path in data.iterdir()}
    assert not {name for name in left if name.endswith((".backup", ".fetched", ".partial"))}


def test_a_damaged_backup_from_elsewhere_is_not_restored(tmp_path: Path) -> None:
    data = tmp_path / "data"
    run("key", "new", "app", data=data)
    (tmp_path / "none.db").write_text("no store")

    refused = run("restore", f"file://{tmp_path}/none.db", data=data)

    assert refused.exit_code != 0
    assert '"app"' in run("key", "ls", data=data).stdout
