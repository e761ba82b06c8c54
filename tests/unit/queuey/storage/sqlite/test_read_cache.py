"""The spans that a read cache is to copy: few, and joined where they touch."""

from __future__ import annotations

import pytest

from queuey.ids import MAX_ID, ZERO_ID, MessageId
from queuey.model import Span
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
