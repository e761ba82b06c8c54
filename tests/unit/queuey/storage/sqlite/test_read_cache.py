"""The spans that a read cache is to copy: few, and joined where they touch. And its files."""

from __future__ import annotations

import errno
import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from queuey.ids import MAX_ID, ZERO_ID, MessageId
from queuey.model import Columns, Message, Span
from queuey.storage.sqlite import read_cache


def test_spans_that_touch_are_one() -> None:
    known = read_cache._Ranges()
    ends = [MessageId(ticks, 0) for ticks in range(10)]

    assert not known.add(b"a", Span(ends[0], ends[2]))
    assert not known.add(b"a", Span(ends[4], ends[5]))
    assert known.add(b"a", Span(ends[0], ends[1]))
    assert not known.add(b"b", Span(ends[0], ends[1]))
    assert not known.add(b"a", Span(ends[2], ends[4]))
    assert known.add(b"a", Span(ends[1], ends[5]))

    assert known.take() == (b"a", Span(ends[0], ends[5]))
    assert known.take() == (b"b", Span(ends[0], ends[1]))
    assert known.take() is None


def test_few_spans_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_cache, "_PLACES", 3)
    known = read_cache._Ranges()
    for number in range(100):
        known.add(b"a", Span(MessageId(3 * number, 0), MessageId(3 * number + 1, 0)))
    for number in range(5):
        known.add(b"%d" % number, Span(ZERO_ID, MAX_ID))

    assert [known.take() is not None for _ in range(4)] == [True] * 3 + [False]


class Full(io.FileIO):
    """A file on a disk that has no room for all of it."""

    def writelines(self, lines: Iterable[Any], /) -> None:
        self.write(next(iter(lines)))
        raise OSError(errno.ENOSPC, "planted")


def test_a_run_that_does_not_fit_on_the_disk_leaves_no_file_that_nothing_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each try left another one, which nothing removed."""
    folder, columns = read_cache._Folder(tmp_path), Columns.of([Message(1, 2, 3, None, None, b"body", None)])
    with monkeypatch.context() as planted:
        planted.setattr(read_cache, "open", lambda path, _, opener: Full(path, "a", opener=opener), raising=False)
        for _ in range(3):
            with pytest.raises(OSError, match="planted"):
                folder.append(columns)

    assert len([*tmp_path.iterdir()]) == len(folder.sizes) == 1
    written = folder.append(columns)
    assert folder.bytes == written.at + written.head_bytes + written.rest_bytes
    folder.remove([*folder.sizes])
    assert [*tmp_path.iterdir()] == []
