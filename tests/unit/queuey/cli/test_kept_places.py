"""Where another run of ``queuey get`` goes on."""

from __future__ import annotations

from typing import cast

import pytest

from qdo.client import Client, GroupOffset
from queuey.cli.kept_places import GroupOffsets, ReadQueue
from queuey.errors import OffsetMovesBack, QueueyError, StaleGeneration
from queuey.ids import MessageId

ID = MessageId.parse("1f9f6640e56711f189bf02fc00000001")


class _Fenced:
    """A client whose commits are refused."""

    def __init__(self, error: QueueyError) -> None:
        self._error = error

    def offsets(self, queue: str, group: str) -> list[GroupOffset]:
        return [GroupOffset(1, None, "", 0, None)]

    def take_over(self, *_: object) -> list[GroupOffset]:
        return []

    def commit_offsets(self, *_: object) -> None:
        raise self._error


@pytest.mark.parametrize("error", [StaleGeneration(), OffsetMovesBack()])
def test_a_reader_beside_another_one_is_told_so(error: QueueyError) -> None:
    """Two that began at once have one generation, so the slower one is behind."""
    queue = ReadQueue("q", "", "1.0", (1,))
    kept = GroupOffsets(cast("Client", _Fenced(error)), "g")
    kept.begin(queue)
    queue.places[1] = ID

    with pytest.raises(StaleGeneration, match="another reader of group g has begun on queue q"):
        kept.keep([queue])
