"""The disk of the power cut keeps what was synced, and nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from qdo.bench.promises.lossy import LossyFiles


@pytest.fixture
def files(tmp_path: Path) -> LossyFiles:
    for name in ("live", "kept"):
        (tmp_path / name).mkdir()
    return LossyFiles(str(tmp_path / "live"), str(tmp_path / "kept"))


def kept(tmp_path: Path, name: str) -> bytes:
    return (tmp_path / "kept" / name).read_bytes()


def test_what_is_written_is_kept_with_its_sync(files: LossyFiles, tmp_path: Path) -> None:
    opened = files.create("/a", 0o600)
    files.write("/a", b"one", 0, opened)
    files.fsync("/a", 0, opened)
    files.write("/a", b"two", 3, opened)

    assert files.read("/a", 10, 0, opened) == b"onetwo"
    assert kept(tmp_path, "a") == b"one"

    files.fsync("/a", 1, opened)
    files.release("/a", opened)
    assert kept(tmp_path, "a") == b"onetwo"


def test_a_file_is_synced_by_whoever_has_it_open(files: LossyFiles, tmp_path: Path) -> None:
    writer, other = files.create("/a", 0o600), files.open("/a", os.O_RDWR)
    files.write("/a", b"one", 0, writer)

    files.fsync("/a", 0, other)

    assert kept(tmp_path, "a") == b"one"


def test_what_was_cut_off_and_written_over_is_kept_with_the_next_sync(files: LossyFiles, tmp_path: Path) -> None:
    opened = files.create("/a", 0o600)
    files.write("/a", b"0123456789", 0, opened)
    files.fsync("/a", 0, opened)

    files.truncate("/a", 4)
    files.write("/a", b"x", 6, opened)
    assert kept(tmp_path, "a") == b"0123456789"

    files.fsync("/a", 0, opened)
    assert kept(tmp_path, "a") == b"0123\0\0x"
    files.release("/a", files.open("/a", os.O_WRONLY | os.O_TRUNC))
    assert files.getattr("/a")["st_size"] == 0


def test_names_are_kept_at_once_and_their_data_are_not(files: LossyFiles, tmp_path: Path) -> None:
    files.mkdir("/folder", 0o700)
    opened = files.create("/folder/new", 0o600)
    files.write("/folder/new", b"late", 0, opened)
    files.rename("/folder/new", "/folder/old")
    files.link("/folder/second", "/folder/old")
    files.symlink("/pointer", "folder/old")

    assert {*files.readdir("/folder", 0)} == {".", "..", "old", "second"}
    assert (kept(tmp_path, "folder/old"), files.readlink("/pointer")) == (b"", "folder/old")

    files.fsync("/folder/old", 0, opened)
    files.unlink("/folder/second")
    assert kept(tmp_path, "folder/old") == b"late"
