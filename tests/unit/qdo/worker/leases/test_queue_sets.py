"""Which queues are asked together."""

from __future__ import annotations

from qdo.client.lease_groups import LeaseGroup
from tests.support.lease_server import LeaseServer, names, receipts


def test_one_request_asks_all_queues_and_settles_in_several() -> None:
    group = LeaseServer("a", "b", "c", threads=3)
    request = group.asks()
    assert (request.where, request.wait > 0) == (["a", "b", "c"], True)
    assert request.to_settle("w").to_wire()["order"] == "weighted"
    assert group.due() is None
    group.answer(request, group.delivery("a"), group.delivery("c"))
    for thread in range(2):
        group.end(group.begin(thread), thread)

    request = group.asks()
    assert (names(request), receipts(request)) == (["a", "b", "c"], ["r1", "r2"])
    group.clock.advance(1)
    assert group.due() is None
    group.answer(request)
    assert [len(queue.held) for queue in map(group.queue_of, "abc")] == [0, 0, 0]


def test_a_queue_is_asked_by_itself_until_it_has_answered() -> None:
    group = LeaseServer("a", "b")
    waiting = group.asks()
    group.buffer.follow(["a", "b", "new"])
    trial = group.asks()
    assert (trial.where, trial.wait) == ("new", 0)
    group.answer(trial, group.delivery("new"))
    group.answer(waiting)
    group.end(group.begin())

    assert names(group.asks()) == ["a", "b", "new"]


def test_one_queue_that_is_refused_keeps_no_other_from_being_asked() -> None:
    group = LeaseServer("a", "b", "gone")
    group.answer(group.asks(), group.delivery("a"), group.delivery("gone"))
    for thread in range(2):
        group.end(group.begin(thread), thread)
    with group.buffer.outcomes() as outcomes:
        outcomes.parted(group.asks())

    requests = {str(request.where): request for request in iter(group.due, None)}
    assert {name: receipts(request) for name, request in requests.items()} == {"a": ["r1"], "b": [], "gone": ["r2"]}
    for name in "ab":
        group.answer(requests[name])
    with group.buffer.outcomes() as outcomes:
        outcomes.missing(requests["gone"])
    assert (group.asks().where, group.buffer.counts.done, group.buffer.counts.lost) == (["a", "b"], 1, 1)
    assert group.due() is None
    group.clock.advance(2)
    assert group.asks().where == "gone"  # it may be made anew


def test_what_is_refused_of_one_queue_holds_up_no_other() -> None:
    group = LeaseServer("a", "b")
    group.answer(group.asks(), group.delivery("a"))
    taken = group.begin()
    group.clock.advance(1)
    waiting = group.asks()
    group.end(taken)
    group.clock.advance(1)
    settle = group.asks()
    assert (settle.where, receipts(settle)) == ("a", ["r1"])
    with group.buffer.outcomes() as outcomes:
        outcomes.refused(settle, 9.0, "Forbidden")
    group.answer(waiting)

    assert [*group.buffer.troubles()] == [("a", "Forbidden")]
    assert (group.asks().where, group.due()) == ("b", None)
    group.clock.advance(9)
    again = group.asks()
    assert (again.where, receipts(again)) == ("a", ["r1"])


def test_queues_that_pass_alone_and_are_refused_together_are_not_asked_without_end() -> None:
    group = LeaseServer("a", "b")
    for trials in (["a", "b"], []):
        together = group.asks()
        assert names(together) == ["a", "b"]
        with group.buffer.outcomes() as outcomes:
            outcomes.parted(together)
        for name in trials:
            group.clock.advance(0.1)
            trial = group.asks()
            assert trial.where == name
            group.answer(trial)
    assert group.due() is None
    group.clock.advance(2)
    assert group.asks().where == "a"


def test_queues_that_are_too_many_for_the_server_are_asked_by_several_requests_in_turn() -> None:
    group = LeaseServer(*(f"q{number}" for number in range(230)))
    asked = [group.asks() for _ in range(3)]
    assert [len(request.queues) for request in asked] == [100, 100, 30]
    assert all(request.wait for request in asked)
    assert sum(request.most for request in asked) <= 2000 + 2

    with group.buffer.outcomes() as outcomes:
        outcomes.split(asked[2])
    halves = [group.asks(), group.asks()]
    assert [len(request.queues) for request in halves] == [15, 15]
    group.follow(*(f"q{number}" for number in range(231)))
    assert [len(one.queues) for one in group.buffer.holdings.queues.sets] == [100, 100, 15, 15, 1]


def test_leases_of_each_length_are_extended_together() -> None:
    group = LeaseServer("a", "b", "c", prefetch_messages=9)
    lengths = {"a": 30.0, "b": 60.0, "c": 30.0}
    for name, seconds in lengths.items():
        group.queue_of(name).visibility = seconds
    request = group.asks()
    assert request.visibility is None
    group.answer(request, *(group.delivery(name, seconds=seconds) for name, seconds in lengths.items()))
    for thread in range(2):
        group.begin(thread)

    found: list[tuple[list[str], float | None]] = []
    for _ in range(2):
        group.clock.advance(10)
        for extension in iter(group.due, None):
            found.append((names(extension), extension.extends))
            group.answer(extension)

    assert found == [(["a", "c"], 30), (["a", "c"], 30), (["b"], 60)]
    assert [group.queue_of(name).extend_at - group.clock.elapsed() for name in "abc"] == [10, 20, 10]


def test_leases_that_are_too_short_are_asked_to_be_longer_and_those_of_others_are_not() -> None:
    group = LeaseServer("a", "short")
    for name, visibility in (("a", 30), ("short", 0)):
        settings = {"max_failures": 20, "per_key": 1, "visibility": visibility}
        with group.buffer.outcomes() as outcomes:
            outcomes.know(group.queue_of(name), LeaseGroup("g", settings, ()))
        group.follow("a", "short")

    requests = [group.asks(), group.asks()]
    assert {str(one.where): one.visibility for one in requests} == {"a": 30, "short": 1}


def test_a_queue_that_is_followed_no_more_is_asked_no_more_and_settled() -> None:
    group = LeaseServer("a", "b")
    waiting = group.asks()
    group.follow("a")
    group.answer(waiting, group.delivery("b"))
    group.end(group.begin())

    requests = [*iter(group.due, None)]
    found = [(request.where, request.receives, receipts(request)) for request in requests]
    assert found == [("a", True, []), ("b", False, ["r1"])]
    group.answer(requests[1])
    group.follow("a")
    assert list(group.buffer.holdings.queues.by_name) == ["a"]
    assert len(group.buffer.holdings.queues.sets) == 1
