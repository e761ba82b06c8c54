"""Pages made of rows: a block at once is the same as one row after the other."""

from __future__ import annotations

from typing import Any, NamedTuple
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from queuey.errors import CorruptMessage
from queuey.ids import MessageId
from queuey.model import PartitionId, ReadRequest, Span
from queuey.storage.cassandra.pages import BlockPage
from queuey.storage.cassandra.rows import Block
from queuey.storage.checksums import checksum_of

NOW = 100
PARTITION = PartitionId(UUID(int=0), 1)


class Kept(NamedTuple):
    """A row, as far as a page cares."""

    size: int
    expires: int = NOW + 1
    sound: bool = True


def block(rows: list[Kept], first: int = 0) -> Block:
    made: list[tuple[Any, ...]] = []
    for ticks, row in enumerate(rows, first):
        body = b"x" * row.size
        checksum = checksum_of(MessageId(ticks, 0), (None, None, None), body) + (not row.sound)
        made.append((ticks, 0, row.expires, checksum, None, None, body, None))
    return Block.of_rows(made)


class Expected:
    """The rule, one row after the other."""

    def __init__(self, rows: list[Kept], request: ReadRequest) -> None:
        self.ticks: list[int] = []
        self.more = self.fails = False
        self.corrupt = passed = 0
        room = request.max_bytes
        for ticks, row in enumerate(rows):
            if row.expires <= NOW:
                continue
            if not row.sound and request.skip_corrupt:
                passed += 1
                continue
            room -= row.size
            if len(self.ticks) == request.limit or (room < 0 and self.ticks):
                self.more = True
                return
            if not row.sound:
                self.fails = True
                return
            self.ticks.append(ticks)
            self.corrupt = passed
        self.corrupt = passed


ROWS = st.lists(
    st.builds(Kept, st.integers(0, 9), st.sampled_from([NOW + 1, NOW + 1, NOW + 1, NOW]), st.integers(0, 9).map(bool)),
    max_size=30,
)


@example([Kept(1), Kept(1, sound=False), Kept(1)], [2], 1, 60, True)  # where nothing fits any more
@given(ROWS, st.lists(st.integers(1, 10), max_size=6), st.integers(1, 12), st.integers(1, 60), st.booleans())
def test_a_page_is_what_its_rows_make_one_after_the_other(
    rows: list[Kept], blocks: list[int], limit: int, max_bytes: int, skip_corrupt: bool
) -> None:
    """In whatever blocks they come."""
    request = ReadRequest(PARTITION, Span(), limit, max_bytes=max_bytes, skip_corrupt=skip_corrupt)
    expected, page = Expected(rows, request), BlockPage(request, NOW)

    def take_all() -> None:
        at = 0
        for size in [*blocks, len(rows)]:
            if not page.full:
                page.take(block(rows[at : at + size], at))
            at += size

    if expected.fails:
        with pytest.raises(CorruptMessage):
            take_all()
        return
    take_all()

    found = page.finish()
    assert [message.ticks for message in found.messages] == expected.ticks
    assert (found.more, found.corrupt) == (expected.more, expected.corrupt)


def test_without_bodies_nothing_is_checked() -> None:
    page = BlockPage(ReadRequest(PARTITION, Span(), 5, with_bodies=False), NOW)

    page.take(block([Kept(0, sound=False), Kept(0)]))

    assert [message.id for message in page.finish().messages] == [MessageId(0, 0), MessageId(1, 0)]
