"""What a store says of a folder that somebody takes away while it is open."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from queuey.storage.sqlite.health import DiskHealth

NOBODY = 65534


@contextmanager
def without_rights(folder: Path) -> Iterator[None]:
    """As a user that may not enter a folder, which root may always."""
    mode, user = folder.stat().st_mode, os.geteuid()
    folder.chmod(0)
    if not user:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if not user:
            os.seteuid(user)
        folder.chmod(mode)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "queuey.db").write_bytes(b"a store")
    return folder / "queuey.db"


def looked(health: DiskHealth) -> list[str]:
    health.write_failed(OSError(), 0)
    health.write_succeeded()  # so it looks at once
    return health.problems()


def test_a_folder_without_rights_is_told_as_such_and_comes_back(store: Path) -> None:
    """It was said to be removed, and that a restart helps."""
    health = DiskHealth(store, reserve_bytes=0, read_only=False)
    with without_rights(store.parent):
        (told,) = looked(health)
    assert told == (
        f"the server's user may no longer enter {store.parent}; nothing was stored: give the folder its rights back; "
        "writing goes on by itself"
    )
    assert looked(health) == []


def test_a_file_that_was_replaced_is_told_as_such(store: Path) -> None:
    health = DiskHealth(store, reserve_bytes=0, read_only=False)
    store.rename(store.with_name("former.db"))
    assert ["replaced or removed" in told for told in looked(health)] == [True]
    store.write_bytes(b"another store")
    assert ["replaced or removed" in told for told in looked(health)] == [True]
