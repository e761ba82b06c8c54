"""What is kept of values by keys that come again and again."""

from __future__ import annotations

import pytest

from queuey.recent import Recent


def test_a_key_in_steady_use_is_kept_among_many_that_come_once() -> None:
    made: list[int] = []

    def make(key: int) -> str:
        made.append(key)
        return str(key)

    texts = Recent(make, most=100)
    for number in range(2, 1000, 2):
        assert [texts[key] for key in (0, number, 1, number + 1)] == ["0", str(number), "1", str(number + 1)]

    assert made.count(0) + made.count(1) < 100
    assert len(texts) < 100


def test_there_is_a_bound() -> None:
    texts = Recent(str, most=10)
    longest = 0
    for number in range(1000):
        assert texts[number] == str(number)
        longest = max(longest, len(texts))

    assert longest == 10


def test_an_error_is_not_kept() -> None:
    numbers = Recent(int, most=10)
    for _ in range(40):
        with pytest.raises(ValueError, match="invalid literal"):
            numbers["a"]

    assert not numbers
