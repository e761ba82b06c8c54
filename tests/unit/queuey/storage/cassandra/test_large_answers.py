"""When queries with large answers begin."""

from __future__ import annotations

import sys

import pytest

from queuey.clock import ManualClock
from queuey.errors import StorageUnavailable
from queuey.future import Future
from queuey.storage.cassandra.large_answers import NODE_BYTES, PATIENCE_SECONDS, LargeAnswers


class Sent:
    """The queries that were sent, each of which the test answers."""

    def __init__(self, *, nodes: int = 1) -> None:
        self.clock = ManualClock()
        self.answers: dict[str, Future[str]] = {}
        self.nodes = nodes
        self.large = LargeAnswers(lambda: self.nodes, self.clock.elapsed)

    def ask(self, name: str, size: int) -> Future[str]:
        def send() -> Future[str]:
            self.answers[name] = Future()
            return self.answers[name]

        return self.large.ask(size, send)

    @property
    def names(self) -> str:
        return "".join(self.answers)


def test_they_begin_in_their_order_as_others_end() -> None:
    sent = Sent()
    asked = {name: sent.ask(name, NODE_BYTES // 2) for name in "abcd"}
    assert sent.names == "ab"

    sent.answers["b"].set_result("of b")
    assert (sent.names, asked["b"].result()) == ("abc", "of b")

    sent.answers["a"].set_error(StorageUnavailable("gone"))
    assert sent.names == "abcd"
    with pytest.raises(StorageUnavailable, match="gone"):
        asked["a"].result()


def test_one_that_is_larger_than_all_room_goes_alone_and_is_not_passed() -> None:
    sent = Sent()
    sent.ask("a", NODE_BYTES // 2)
    sent.ask("b", 10 * NODE_BYTES)
    sent.ask("c", 1)
    assert sent.names == "a"

    sent.answers["a"].set_result("")
    assert sent.names == "ab"

    sent.answers["b"].set_result("")
    assert sent.names == "abc"


def test_each_node_has_room() -> None:
    sent = Sent(nodes=3)
    for name in "abcd":
        sent.ask(name, NODE_BYTES)
    assert sent.names == "abc"


def test_a_server_that_knows_no_node_asks_and_hears_that_there_is_none() -> None:
    sent = Sent(nodes=0)
    sent.ask("a", NODE_BYTES)
    assert sent.names == "a"


def test_one_that_waits_for_too_long_is_refused_and_not_sent() -> None:
    sent = Sent()
    sent.ask("a", NODE_BYTES)
    late = sent.ask("b", NODE_BYTES)
    sent.clock.advance(PATIENCE_SECONDS + 1)
    in_time = sent.ask("c", NODE_BYTES)

    sent.answers["a"].set_result("")

    assert sent.names == "ac"
    with pytest.raises(StorageUnavailable, match="too many large reads"):
        late.result()
    assert not in_time.done


def test_very_many_that_end_at_once_go_no_deeper() -> None:
    sent = Sent()
    sent.ask("a", NODE_BYTES)
    many = [
        sent.large.ask(NODE_BYTES, lambda: Future.failed(StorageUnavailable("no node")))
        for _ in range(2 * sys.getrecursionlimit())
    ]

    sent.answers["a"].set_result("")

    assert all(one.done for one in many)
    sent.ask("z", NODE_BYTES)
    assert sent.names == "az"
