"""What replication is asked for, and how rows are read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuey.errors import ConfigurationError
from queuey.storage.cassandra.replication import copies_of
from queuey.storage.cassandra.schema import replication_of

CENTRES = st.dictionaries(st.from_regex(r"[A-Za-z0-9_.-]{1,20}", fullmatch=True), st.integers(1, 9), min_size=1)


@given(st.integers(1, 99))
def test_a_number_is_so_many_copies_in_each_data_centre(copies: int) -> None:
    assert replication_of(str(copies)) == {"class": "NetworkTopologyStrategy", "replication_factor": str(copies)}


@given(CENTRES)
def test_copies_are_given_by_data_centre(centres: dict[str, int]) -> None:
    asked = replication_of(", ".join(f"{centre}:{copies}" for centre, copies in centres.items()))

    assert copies_of(asked) == centres
    assert asked["class"] == "NetworkTopologyStrategy"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "many",
        "3,2",
        "eu",
        "eu:",
        "eu:x",
        ":3",
        "eu:3 us:2",
        "eu:3,",
        "-1",
        "eu:-1",
        "1.5",
        "0",
        "eu:0",
        "eu:3,us:0",
        "eu':3",
        "3;",
    ],
)
def test_anything_else_is_refused_with_what_was_expected(text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        replication_of(text)

    assert str(caught.value) == (
        f"replication {text!r}: expected a number of copies, or one for each data centre as in 'eu:3,us:2'"
    )
