"""What is written as a whole takes the place of files, and of nothing else."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from queuey.whole_files import write_whole
from tests.support.full_disk import no_file_longer_than


def test_a_file_is_replaced_and_nothing_stays_beside_it(tmp_path: Path) -> None:
    write_whole(tmp_path / "page.html", b"one")
    write_whole(tmp_path / "page.html", b"two")

    assert (tmp_path / "page.html").read_bytes() == b"two"
    assert [one.name for one in tmp_path.iterdir()] == ["page.html"]


def test_what_does_not_fit_changes_nothing_and_leaves_nothing(tmp_path: Path) -> None:
    write_whole(tmp_path / "page.html", b"one")

    with pytest.raises(OSError, match="File too large"), no_file_longer_than(2):
        write_whole(tmp_path / "page.html", b"three")

    assert (tmp_path / "page.html").read_bytes() == b"one"
    assert [one.name for one in tmp_path.iterdir()] == ["page.html"]


def test_a_pipe_is_written_to_and_stays(tmp_path: Path) -> None:
    pipe, read = tmp_path / "pipe", list[bytes]()
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()), daemon=True)
    reader.start()

    write_whole(pipe, b"one")
    reader.join(30)

    assert read == [b"one"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)
