"""What a start asks of nodes, some of which come back just now."""

from __future__ import annotations

from typing import Any, cast
from unittest.mock import Mock

import pytest
from cassandra import InvalidRequest, OperationTimedOut, ReadFailure, Unavailable, WriteTimeout
from cassandra.cluster import NoHostAvailable, Session

from queuey.errors import StorageUnavailable
from queuey.storage.cassandra.cluster import asked, prepared

BEHIND = InvalidRequest("table messages does not exist")
NO_KEYSPACE = InvalidRequest("Keyspace 'queuey' doesn't exist")
MISTAKEN = InvalidRequest("line 1:7 no viable alternative")


class RefusingNodes:
    """Nodes that are asked one after the other, and refuse in this way at first."""

    def __init__(self, *refusals: Exception) -> None:
        self._refusals = [*refusals]
        self.cluster = Mock()

    def prepare(self, text: str) -> str:
        if self._refusals:
            raise self._refusals.pop(0)
        return text

    def execute(self, text: str, *_: Any) -> list[str]:
        return [self.prepare(text)]


def rows(nodes: Any, text: str) -> Any:
    return asked(nodes, text, ())


@pytest.mark.parametrize("refusals", [(), (BEHIND,), (OperationTimedOut(), BEHIND)])
def test_another_node_prepares_what_one_does_not_know_yet(refusals: tuple[Exception, ...]) -> None:
    assert prepared(cast("Session", RefusingNodes(*refusals)), "select") == "select"


@pytest.mark.parametrize(
    "away",
    [
        NoHostAvailable("none", {}),
        OperationTimedOut(),
        Unavailable("too few"),
        WriteTimeout("too late", write_type=0),
        ReadFailure("failed"),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("ask", [prepared, rows])
def test_a_start_asks_again_whichever_way_a_node_is_away(ask: Any, away: Exception) -> None:
    """A note of the tables' version that timed out ended ``queuey init`` with the driver's error."""
    assert ask(RefusingNodes(away, NO_KEYSPACE), "select") in ("select", ["select"])
    with pytest.raises(StorageUnavailable):
        ask(RefusingNodes(*[away] * 3), "select")


@pytest.mark.parametrize("ask", [prepared, rows])
def test_what_no_node_knows_is_tried_again_by_the_one_that_started_the_server(ask: Any) -> None:
    with pytest.raises(StorageUnavailable, match="table messages does not exist"):
        ask(RefusingNodes(*[BEHIND] * 3), "select")
    with pytest.raises(InvalidRequest, match="no viable"):
        ask(RefusingNodes(MISTAKEN), "select")
