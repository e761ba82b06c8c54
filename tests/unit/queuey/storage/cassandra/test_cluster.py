"""What a start asks of nodes, some of which come back just now."""

from __future__ import annotations

from typing import Any, cast
from unittest.mock import Mock

import pytest
from cassandra import InvalidRequest, OperationTimedOut
from cassandra.cluster import Session

from queuey.errors import StorageUnavailable
from queuey.storage.cassandra.cluster import prepared
from queuey.storage.cassandra.schema import _make

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

    def execute(self, text: str, **_: Any) -> None:
        self.prepare(text)


@pytest.mark.parametrize("refusals", [(), (BEHIND,), (OperationTimedOut(), BEHIND)])
def test_another_node_prepares_what_one_does_not_know_yet(refusals: tuple[Exception, ...]) -> None:
    assert prepared(cast("Session", RefusingNodes(*refusals)), "select") == "select"


def test_another_node_makes_a_table_whose_keyspace_one_does_not_know_yet() -> None:
    _make(cast("Session", RefusingNodes(NO_KEYSPACE, BEHIND)), "create")


@pytest.mark.parametrize("ask", [prepared, _make])
def test_what_no_node_knows_is_tried_again_by_the_one_that_started_the_server(ask: Any) -> None:
    with pytest.raises(StorageUnavailable, match="table messages does not exist"):
        ask(RefusingNodes(*[BEHIND] * 3), "select")
    with pytest.raises(InvalidRequest, match="no viable"):
        ask(RefusingNodes(MISTAKEN), "select")
