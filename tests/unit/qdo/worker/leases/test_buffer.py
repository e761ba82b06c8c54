"""Which request is due, by a clock that the test moves."""

from __future__ import annotations

import pytest

from qdo.worker.leases.due import COMPANY_SECONDS, SETTLE_SECONDS
from qdo.worker.leases.holdings import is_suspect
from qdo.worker.leases.values import Ended, JobOutcome, LeaseRequest
from tests.support.lease_server import VISIBILITY, LeaseServer, receipts


@pytest.fixture
def group() -> LeaseServer:
    return LeaseServer()


def test_an_acknowledgement_rides_on_the_next_receive(group: LeaseServer) -> None:
    """One request for each message, also if they come one by one."""
    request = group.asks()
    for number in range(1, 6):
        assert request.wait
        group.answer(request, group.delivery())
        assert group.due() is None  # it waits for company
        group.end(group.begin())
        request = group.asks()
        assert receipts(request) == [f"r{number}"]


def test_a_receive_does_not_wait_for_a_long_job_and_its_end_waits_for_no_answer(group: LeaseServer) -> None:
    group.answer(group.asks(), group.delivery())
    taken = group.begin()
    group.clock.advance(COMPANY_SECONDS)
    receive = group.asks()
    assert (receipts(receive), receive.most) == ([], 1)

    group.clock.advance(1)
    group.end(taken)
    settle = group.asks()

    assert (receipts(settle), settle.most) == (["r1"], 0)
    assert group.due() is None


def test_nothing_is_read_ahead_before_it_is_known_how_long_a_job_takes(group: LeaseServer) -> None:
    group.answer(group.asks(), group.delivery(), group.delivery())
    assert group.due() is None or not group.buffer.holdings.ready

    first, second = group.begin(0), group.begin(1)
    assert group.due() is None
    group.clock.advance(0.01)
    group.end(first, 0)
    ahead = group.asks()
    group.clock.advance(0.01)
    group.end(second, 1)

    assert 2 < ahead.most <= 2 + 50  # what two threads do in a quarter of a second


def test_short_jobs_go_in_turns_and_nothing_waits_behind_one_that_is_long_after_all() -> None:
    group = LeaseServer(threads=2)
    group.answer(group.asks(), group.delivery(), group.delivery())
    for _ in range(2):
        began = group.begin()
        group.clock.advance(0.0005)
        group.end(began)
    group.answer(group.asks(), *(group.delivery() for _ in range(40)))
    turn = group.buffer.take(0)
    assert turn is not None
    turn.begin_next(group.clock.elapsed())
    assert len(turn.calls) == 19

    while group.buffer.holdings.ready:
        other = group.buffer.take(1)
        assert other is not None
        group.buffer.end(1, [Ended(one, JobOutcome.DONE) for one in other.calls])
        other.calls.clear()
    group.clock.advance(1)
    taken = group.buffer.take(1)

    assert taken is not None
    assert (len(taken.calls), len(turn.calls)) == (1, 18)


def test_what_is_left_of_a_turn_is_given_back_at_the_end() -> None:
    group = LeaseServer(threads=1)
    group.answer(group.asks(), group.delivery())
    group.end(group.begin())
    group.answer(group.asks(), *(group.delivery() for _ in range(10)))
    turn = group.buffer.take(0)
    assert turn is not None
    turn.begin_next(group.clock.elapsed())
    assert len(turn.calls) == 9
    group.buffer.stop()
    group.buffer.end(0, [Ended(turn.current, JobOutcome.DONE)])

    wire = group.asks().to_settle("w").to_wire()

    assert (len(wire["acknowledge"]), len(wire["release"])) == (1, 9)
    assert not any(one["count"] for one in wire["release"])


def test_a_long_job_reads_nothing_ahead(group: LeaseServer) -> None:
    group.answer(group.asks(), group.delivery(), group.delivery())
    first = group.begin(0)
    group.begin(1)
    group.clock.advance(60)

    group.end(first)

    assert group.asks().most == 1


def test_after_a_full_answer_two_requests_receive_at_once(group: LeaseServer) -> None:
    """So the server is busy while this process reads an answer. Together they bring no more than there is room for."""
    group.answer(group.asks(), group.delivery(), group.delivery())
    for thread in range(2):
        began = group.begin(thread)
        group.clock.advance(0.0001)
        group.end(began, thread)

    first, second = group.asks(), group.asks()
    assert (first.wait > 0, second.wait, group.due()) == (True, 0, None)
    assert (first.most, second.most) == (500, 500)
    group.answer(first, *(group.delivery() for _ in range(500)))
    third = group.asks()
    assert (third.most, third.is_ahead) == (500, True)
    group.answer(second)
    group.answer(third)
    assert group.due() is None  # it waits for company, and not for the time to look again
    group.clock.advance(COMPANY_SECONDS)
    assert group.asks().wait > 0


def test_a_worker_with_long_jobs_sends_no_request_ahead(group: LeaseServer) -> None:
    group.answer(group.asks(), group.delivery(), group.delivery())
    first = group.begin(0)
    group.begin(1)
    group.clock.advance(5)
    group.end(first)

    assert (group.asks().most, group.due()) == (1, None)


@pytest.mark.parametrize(
    ("options", "most"), [({"prefetch_messages": 3}, 5), ({"prefetch_messages": 3, "batch": 4}, 11)]
)
def test_no_more_is_held_than_the_options_say(options: dict[str, int], most: int) -> None:
    group = LeaseServer(**options)
    for _ in range(10):
        request = group.due()
        if request is None:
            taken = group.begin()
            group.clock.advance(0.0001)
            group.end(taken)
            continue
        group.answer(request, *(group.delivery() for _ in range(request.most)))
        assert group.held <= most


def test_bytes_are_bounded_by_what_one_more_answer_may_bring() -> None:
    group = LeaseServer(prefetch_bytes=2 << 20)
    group.answer(group.asks(), *(group.delivery(size=600_000) for _ in range(2)))
    group.end(group.begin())
    settle_later = group.due()
    assert settle_later is None
    group.clock.advance(SETTLE_SECONDS)
    settle = group.asks()
    assert (receipts(settle), settle.receives) == (["r1"], False)
    group.answer(settle)
    assert group.asks().receives


def test_one_extension_is_for_all_leases_of_the_queue(group: LeaseServer) -> None:
    group.answer(group.asks(), group.delivery(), group.delivery())
    group.begin(0)
    group.begin(1)
    group.clock.advance(VISIBILITY / 3)

    extension = group.asks()
    settle = extension.to_settle("worker-1")
    group.clock.advance(5)
    group.answer(extension)

    assert not extension.receives
    assert settle.to_wire() == {"receiver": "worker-1", "extend": {"receiver": "worker-1", "visibility": VISIBILITY}}
    assert {one.until for one in group.queue.held.values()} == {extension.sent + VISIBILITY}
    assert group.queue.extend_at == extension.sent + VISIBILITY / 3


def test_what_lost_its_lease_before_it_began_is_given_back(group: LeaseServer) -> None:
    """The process was stopped, or the server was away."""
    group.answer(group.asks(), group.delivery(), group.delivery())
    group.clock.advance(VISIBILITY + 1)
    group.buffer.stop()
    assert group.buffer.take(0) is None
    settle = group.asks()

    assert settle.to_settle("w").to_wire()["release"] == [
        {"receipt": f"r{number}", "count": False} for number in (1, 2)
    ]


def test_a_stale_receipt_counts_nothing(group: LeaseServer) -> None:
    group.answer(group.asks(), group.delivery(), group.delivery())
    group.end(group.begin())
    group.end(group.begin())
    group.answer(group.asks(), stale=["r2"])

    counts = group.buffer.counts
    assert (counts.done, counts.lost, group.held) == (1, 1, 0)


def test_a_request_that_failed_is_repeated_as_it_is(group: LeaseServer) -> None:
    group.answer(group.asks(), group.delivery())
    group.end(group.begin())
    request = group.asks()
    before = request.attempt, receipts(request), request.most
    with group.buffer.outcomes() as outcomes:
        outcomes.failed(request, 5.0, "away")
    assert group.due() is None
    group.clock.advance(5)

    again = group.asks()

    assert again is request
    assert (again.attempt, receipts(again), again.most) == before
    with group.buffer.outcomes() as outcomes:
        outcomes.failed(again, 5.0, "away")
    group.clock.advance(300)  # the server knows the attempt no more
    assert group.asks().attempt != before[0]


def test_what_is_refused_is_divided_until_the_cause_is_alone(group: LeaseServer) -> None:
    group = LeaseServer(threads=4)
    group.answer(group.asks(), *(group.delivery() for _ in range(4)))
    for _ in range(4):
        began = group.begin()
        group.clock.advance(0.001)
        group.end(began)
    refused, alone = group.asks(), list[str]()
    assert len(refused.ended) == 4

    def find(request: LeaseRequest) -> None:
        if "r3" not in receipts(request):
            group.answer(request)
        elif len(request.ended) > 1:
            with group.buffer.outcomes() as outcomes:
                outcomes.divided(request)
        else:
            alone.extend(receipts(request))
            with group.buffer.outcomes() as outcomes:
                outcomes.lost(request)

    find(refused)
    while group.held:
        request = group.asks()
        find(request) if not request.receives else group.answer(request)

    assert (alone, group.buffer.counts.done, group.buffer.counts.lost) == (["r3"], 3, 1)


def test_a_refusal_is_not_repeated_for_ever(group: LeaseServer) -> None:
    group.answer(group.asks(), group.delivery())
    group.end(group.begin())
    with group.buffer.outcomes() as outcomes:
        outcomes.refused(group.asks(), 1.0, "Forbidden")
    assert [*group.buffer.troubles()] == [("q", "Forbidden")]
    group.clock.advance(VISIBILITY + 1)
    with group.buffer.outcomes() as outcomes:
        outcomes.refused(group.asks(), 2.0, "Forbidden")

    assert (group.held, group.buffer.counts.lost) == (0, 1)


def test_what_may_have_killed_a_receiver_is_worked_on_with_nothing_else_held(group: LeaseServer) -> None:
    group.answer(group.asks(), group.delivery(), group.delivery())
    first = group.begin(0)
    group.clock.advance(0.001)
    group.end(first)
    suspect = group.delivery(deliveries=2)
    group.answer(group.asks(), suspect)

    (other,) = group.begin(0)
    assert other.receipt == "r2"
    assert group.due() is None
    group.end([other])
    settle = group.asks()
    assert (settle.receives, receipts(settle)) == (False, ["r2"])
    group.answer(settle)

    (apart,) = group.begin(0)
    assert apart.delivery.id == suspect.id
    assert group.due() is None
    group.end([apart])
    group.answer(group.asks())
    assert group.asks().receives


def test_messages_of_a_key_that_came_together_follow_each_other() -> None:
    """In a group with ``per_key`` over 1."""
    group = LeaseServer(threads=3)
    group.queue.per_key = 10
    group.answer(group.asks(), *(group.delivery(key=key) for key in ("a", "a", "b")))

    first, other = group.begin(0), group.begin(1)
    group.clock.advance(0.001)
    group.end(first, 0)
    second = group.begin(0)

    assert [one[0].receipt for one in (first, other, second)] == ["r1", "r3", "r2"]


@pytest.mark.parametrize(
    ("deliveries", "most", "expected"),
    [
        ([(1, 0)], 20, False),
        ([(2, 1)], 20, False),
        ([(2, 0)], 20, True),
        ([(1, 0), (2, 0)], 20, True),
        ([(2, 1)], 2, True),
        ([(2, 1)], None, True),
        ([(5, 4)], 0, False),
        ([(2, 1), (1, 0)], 2, False),
    ],
)
def test_a_message_is_suspect_if_its_receiver_died_or_it_has_its_last_try(
    group: LeaseServer, deliveries: list[tuple[int, int]], most: int | None, expected: bool
) -> None:
    found = [group.delivery(deliveries=number, failures=failures) for number, failures in deliveries]

    assert is_suspect(found, most) == expected


def test_more_messages_than_one_request_may_settle_are_settled_by_several() -> None:
    """Jobs that take batches end thousands of messages in one turn."""
    group = LeaseServer(threads=1, batch=2500, prefetch_messages=5000)
    group.answer(group.asks(), *(group.delivery() for _ in range(2500)))
    group.end(group.begin())

    settled: list[int] = []
    while group.held:
        request = group.asks()
        settled.append(len(receipts(request)))
        group.answer(request)

    assert settled == [1000, 1000, 500]


def test_a_turn_is_as_short_for_batches_as_for_single_messages() -> None:
    group = LeaseServer(threads=1, batch=100)
    group.answer(group.asks(), *(group.delivery() for _ in range(100)))
    began = group.begin()
    group.clock.advance(0.005)
    group.end(began)
    group.answer(group.asks(), *(group.delivery() for _ in range(1000)))

    turn = group.buffer.take(0)

    assert turn is not None
    assert len(turn.calls) == 2  # of 5 ms each


def test_leases_are_extended_while_the_server_refuses_what_is_settled(group: LeaseServer) -> None:
    """A queue for results may be full for long, and the jobs under way go on meanwhile."""
    group.answer(group.asks(), group.delivery(), group.delivery())
    first = group.begin(0)
    group.begin(1)
    group.buffer.holdings.has_ended = True  # it receives no more, and settles by itself
    group.end(first)
    settle = group.asks()
    with group.buffer.outcomes() as outcomes:
        outcomes.failed(settle, 600.0, "StorageFull")
    assert group.due() is None

    group.clock.advance(VISIBILITY / 2)
    extension = group.asks()

    assert (receipts(settle), settle.extends) == (["r1"], None)
    assert (receipts(extension), extension.extends) == ([], VISIBILITY)
    assert group.due() is None
