"""The judge: each fault in a history is found as what it is, and nothing else."""

from __future__ import annotations

import pytest

from qdo.bench import open_keys
from qdo.bench.bodies import NO_KEY
from qdo.bench.clock import SECOND
from qdo.bench.judge import KINDS, Findings, judged
from qdo.bench.open_keys import OpenKeys
from qdo.bench.records import CORRUPT, FAILED, FOREIGN, REFUSED, STORED, UNKNOWN, ReceivedRow, SentRow
from tests.support.bench_by_clock import workload_of

VISIBILITY = 10


def sent(first: int, count: int = 1, outcome: int = STORED, stream: int = 0) -> SentRow:
    return SentRow(stream, first, count, outcome, 0, 0, 0, 0)


def receipt(number: int, at: float, *, held: bool = True, settled: float | None = None, **other: int) -> ReceivedRow:
    """A receipt at some second, asked for a tenth before; acknowledged at once unless it is said otherwise."""
    arrived = int(at * SECOND)
    asked = arrived - SECOND // 10
    row = ReceivedRow(0, 0, 0, number, NO_KEY, 0, asked, asked, asked, asked, arrived, 0, 0, 0)
    if held:
        done = arrived if settled is None else int(settled * SECOND)
        sending = done and max(arrived, done - SECOND // 10)
        row = row._replace(held_until=asked + VISIBILITY * SECOND, settled=done, settling=sending)
    return row._replace(**other)


def found(
    *received: ReceivedRow, sends: tuple[SentRow, ...] = (sent(0, 3),), mode: str = "receive", views: int = 1
) -> Findings:
    workload = workload_of(
        subscriptionsPerTopic=views,
        receiving={"mode": mode, "visibility": VISIBILITY, "wait": 0},
        seconds=1,
        expect={"late_seconds": 1},
    )
    return judged(workload, sends, received)


def counted(findings: Findings) -> dict[str, int]:
    return {kind: findings.counts[kind] for kind in KINDS if findings.counts[kind]}


ALL = (receipt(0, 1), receipt(1, 2), receipt(2, 3))


def test_a_good_history_has_nothing() -> None:
    findings = found(*ALL)

    assert counted(findings) == {}
    assert (findings.stored, findings.received, findings.distinct) == (3, 3, 3)
    assert (findings.duplication, findings.disorder, findings.displacement) == (0, 0, 0)


def test_what_was_acknowledged_and_not_received_is_lost() -> None:
    findings = found(ALL[0], ALL[2])

    assert counted(findings) == {"lost": 1}
    assert findings.examples["lost"] == ["message 1 of producer 0, view 0"]


def test_each_view_must_get_everything() -> None:
    assert counted(found(*ALL, ALL[0]._replace(subscription=1), views=2)) == {"lost": 2}


def test_a_message_without_an_answer_may_arrive_or_not() -> None:
    sends = (sent(0, 3), sent(3, 1, UNKNOWN), sent(4, 1, UNKNOWN))

    assert counted(found(*ALL, receipt(3, 4), sends=sends)) == {}


def test_a_refused_message_that_arrives_is_a_ghost() -> None:
    assert counted(found(*ALL, receipt(3, 4), sends=(sent(0, 3), sent(3, 1, REFUSED)))) == {"ghosts": 1}


@pytest.mark.parametrize(
    "ghost", [receipt(7, 4), receipt(0, 4, stream=9), receipt(0, 4, flags=FOREIGN)], ids=["number", "producer", "body"]
)
def test_a_message_that_nobody_sent_is_a_ghost(ghost: ReceivedRow) -> None:
    assert counted(found(*ALL, ghost)) == {"ghosts": 1}


def test_a_message_that_comes_out_of_another_queue_is_a_ghost_there_and_lost_to_its_own() -> None:
    """Two queues, each with one producer and two consumers."""
    workload = workload_of(topics=2, consumerPerSubscription=2, seconds=1)
    sends = [sent(0, 2, stream=stream) for stream in (0, 1)]
    right = [receipt(0, 1, consumer=1), receipt(0, 2, consumer=2, stream=1), receipt(1, 3, consumer=3, stream=1)]

    findings = judged(workload, sends, [*right, receipt(1, 4, consumer=2)])

    assert counted(findings) == {"lost": 1, "ghosts": 1}
    assert findings.examples["ghosts"] == ["message 1 of producer 0, view 0, consumer 2: it was sent to another queue"]


def test_a_changed_body_is_found_and_its_message_is_lost() -> None:
    assert counted(found(ALL[0], ALL[1], receipt(0, 3, flags=CORRUPT))) == {"corrupt": 1, "lost": 1}


def test_a_message_given_to_two_within_a_lease_overlaps() -> None:
    held = receipt(2, 3, settled=0)
    other = receipt(2, 5, settled=0, consumer=1)

    assert counted(found(ALL[0], ALL[1], held, other)) == {"overlaps": 1, "duplicates": 1}


def test_a_message_whose_lease_ran_out_is_redelivered_and_no_duplicate() -> None:
    findings = found(ALL[0], ALL[1], receipt(2, 3, settled=0), receipt(2, 13, consumer=1))

    assert counted(findings) == {}
    assert findings.redelivered == 1
    assert findings.duplication == 0.25


def test_an_answer_that_came_when_its_own_lease_was_over_is_redelivered() -> None:
    """It was asked for again after it was lost; meanwhile the lease ran out, and another receiver got the message."""
    repeated = receipt(2, 13.5, asked=int(2.5 * SECOND), held_until=int(12.5 * SECOND), consumer=1)

    findings = found(ALL[0], ALL[1], receipt(2, 13), repeated)

    assert counted(findings) == {}
    assert findings.redelivered == 1


def test_a_message_that_was_given_back_is_redelivered() -> None:
    failed = receipt(2, 3, settled=0, flags=FAILED, held_until=int(3.5 * SECOND))

    assert counted(found(ALL[0], ALL[1], failed, receipt(2, 4))) == {}


def test_a_receipt_before_its_holder_gave_the_message_back_overlaps() -> None:
    failed = receipt(2, 3, settled=0, flags=FAILED, held_until=5 * SECOND)

    assert counted(found(ALL[0], ALL[1], failed, receipt(2, 4))) == {"duplicates": 1, "overlaps": 1}


def test_an_acknowledgement_of_an_earlier_lease_counts_after_the_next_receipt() -> None:
    """The first receiver settles it after the second one got it, which forgets it. Nothing may come after that."""
    first, second = receipt(2, 3, settled=14), receipt(2, 13.5, settled=0)

    assert counted(found(ALL[0], ALL[1], first, second)) == {}
    assert counted(found(ALL[0], ALL[1], first, second, receipt(2, 24))) == {"returned": 1, "duplicates": 1}


@pytest.mark.parametrize("later", [4, 1000], ids=["soon", "long after its lease was forgotten"])
def test_a_message_that_comes_back_after_its_acknowledgement_is_returned(later: float) -> None:
    others = (receipt(1, later - 0.5), receipt(2, later - 0.4))

    assert counted(found(ALL[0], *others, receipt(0, later))) == {"returned": 1, "duplicates": 1}


def test_a_receipt_that_was_asked_for_before_the_acknowledgement_is_not_returned() -> None:
    slow = receipt(0, 1, settled=20)

    findings = found(slow, ALL[1], ALL[2], receipt(0, 12))

    assert counted(findings) == {}
    assert findings.redelivered == 1


@pytest.mark.parametrize("later", [20, 1000])
def test_an_answer_that_took_longer_than_leases_are_remembered_accuses_nobody(later: float) -> None:
    """Its request was repeated while the system was down: the message may have been handed out before it was settled."""
    slow = receipt(0, later, asked=int(0.5 * SECOND))

    findings = found(ALL[0], ALL[1], receipt(2, later - 0.5), slow)

    assert counted(findings) == {}
    assert findings.redelivered == 1


def test_a_late_acknowledgement_is_remembered_as_long_as_others() -> None:
    findings = found(receipt(0, 1, settled=100), ALL[1], receipt(2, 100.1), receipt(0, 100.2))

    assert counted(findings) == {"returned": 1, "duplicates": 1}


def test_a_pop_gives_each_message_once() -> None:
    popped = [receipt(number, 1 + number, held=False) for number in range(3)]

    findings = found(*popped, receipt(1, 5, held=False), mode="pop")

    assert counted(findings) == {"duplicates": 1}


def test_a_delivery_before_its_time_is_early_and_one_long_after_it_is_late() -> None:
    early = receipt(0, 1, not_before=int(1.5 * SECOND))
    late = receipt(1, 5, not_before=int(3.9 * SECOND))
    in_time = receipt(2, 6, not_before=int(5.1 * SECOND))

    assert counted(found(early, late, in_time)) == {"early": 1, "late": 1}


def test_order_and_order_by_key_are_counted_apart() -> None:
    received = (receipt(1, 1, key=5), receipt(0, 2, key=4), receipt(3, 3, key=5), receipt(2, 4, key=5))

    findings = found(*received, sends=(sent(0, 4),))

    assert counted(findings) == {"out_of_order": 2, "key_out_of_order": 1}
    assert (findings.disorder, findings.displacement) == (0.5, 1.0)


def test_a_later_message_that_came_first_is_no_fault_if_the_earlier_one_had_no_answer() -> None:
    """It may have been stored after the later one."""
    received = (receipt(1, 1, key=5), receipt(0, 2, key=5), receipt(2, 3, key=5))

    findings = found(*received, sends=(sent(0, 1, UNKNOWN), sent(1, 2)))

    assert counted(findings) == {"out_of_order": 1}


@pytest.mark.parametrize(("asked", "count"), [(1.4, 0), (1.6, 1)])
def test_pops_of_two_receivers_are_out_of_order_if_the_second_asked_after_the_first_was_answered(
    asked: float, count: int
) -> None:
    first = receipt(1, 1.5, held=False, key=5)
    second = receipt(0, 2, held=False, key=5, consumer=1, asked=int(asked * SECOND))

    findings = found(first, second, receipt(2, 3, held=False, key=5), mode="pop")

    assert findings.counts["key_out_of_order"] == count


def test_an_earlier_message_that_waited_for_its_answer_is_in_order_if_its_lease_may_have_been_over() -> None:
    """It was given up meanwhile, which opened its key; then the answer came after all."""
    late = receipt(0, 20, key=5, consumer=1, asked=5 * SECOND, held_until=15 * SECOND)

    assert found(receipt(1, 16, key=5), late, receipt(2, 21, key=5)).counts["key_out_of_order"] == 0


WAITS = receipt(0, 1, settled=0, key=5)
"""Its receiver forgets it; the lease ends at 10.9."""
GIVEN_BACK = receipt(0, 1, settled=0, key=5, flags=FAILED, held_until=SECOND * 3 // 2)


@pytest.mark.parametrize(
    ("received", "count"),
    [
        ((WAITS, receipt(1, 5, key=5), receipt(2, 6, key=5)), 1),
        ((WAITS, receipt(1, 12, key=5), receipt(0, 20, key=5), receipt(2, 21, key=5)), 1),
        ((GIVEN_BACK, receipt(1, 5, key=5), receipt(0, 8, key=5), receipt(2, 9, key=5)), 1),
        ((GIVEN_BACK, receipt(1, 5, key=5), receipt(2, 6, key=5), receipt(0, 8, key=5)), 1),
        ((WAITS, receipt(1, 12, key=5), receipt(0, 21, settled=0, key=5), receipt(2, 30, key=5)), 2),
        ((receipt(0, 1, settled=6, key=5), receipt(1, 5, key=5), receipt(2, 7, key=5)), 1),
        # It may have been asked for when the later one came, and then its new lease held.
        ((GIVEN_BACK, receipt(1, 5, key=5), receipt(0, 8, key=5, asked=4 * SECOND), receipt(2, 9, key=5)), 1),
    ],
    ids=[
        "within the lease",
        "before it comes again",
        "while it waits for another try",
        "two later ones count once",
        "twice",
        "while its receiver works",
        "it was asked for before",
    ],
)  # fmt: skip
def test_a_message_is_overtaken_if_a_later_one_of_its_key_comes_before_it_is_settled(
    received: tuple[ReceivedRow, ...], count: int
) -> None:
    assert found(*received).counts["overtaken"] == count


@pytest.mark.parametrize(
    "received",
    [
        (WAITS, receipt(0, 12, key=5), receipt(1, 13, key=5), receipt(2, 14, key=5)),
        (WAITS, receipt(1, 5, key=4), receipt(2, 6)),
        (WAITS, receipt(1, 12, key=5), receipt(2, 13, key=5)),
        (GIVEN_BACK, receipt(1, 5, key=5), receipt(2, 6, key=5)),
        (receipt(0, 1, settled=0, key=5, settling=4 * SECOND), receipt(1, 5, key=5), receipt(2, 6, key=5)),
        (receipt(0, 1, settled=0, key=5, settling=4 * SECOND), receipt(1, 5, key=5), receipt(0, 20, key=5)),
        (WAITS, receipt(1, 5, key=5, asked=SECOND // 2), receipt(2, 20, key=5)),
        (WAITS, receipt(1, 1, settled=0, key=5), receipt(0, 12, key=5), receipt(1, 12, key=5), receipt(2, 20, key=5)),
        (WAITS, receipt(1, 1, settled=0, key=5), receipt(1, 12, key=5), receipt(0, 12, key=5), receipt(2, 20, key=5)),
        (WAITS, receipt(1, 12, key=5), receipt(0, 20, key=5, asked=2 * SECOND, held_until=12 * SECOND)),
    ],
    ids=[
        "it was settled before",
        "another key, and none",
        "it may be a dead letter after its lease",
        "it may be a dead letter after it was given back",
        "its acknowledgement had no answer",
        "its acknowledgement had no answer, and it comes again",
        "the later one was asked for before it came",
        "one answer has several of a key",
        "one answer has several of a key, in the order in which they were stored",
        "its second receipt may be of an earlier lease",
    ],
)
def test_a_message_that_may_have_been_settled_is_not_overtaken(received: tuple[ReceivedRow, ...]) -> None:
    assert found(*received).counts["overtaken"] == 0


def test_each_view_has_its_own_keys_and_pops_have_none_that_are_open() -> None:
    assert found(WAITS, receipt(1, 5, key=5, subscription=1), views=2).counts["overtaken"] == 0
    popped = [receipt(number, 1 + number, held=False, key=5) for number in range(3)]
    assert counted(found(*popped, mode="pop")) == {}


def test_the_order_of_a_message_whose_sending_had_no_answer_is_not_known() -> None:
    received = (WAITS, receipt(1, 5, key=5), receipt(0, 20, key=5), receipt(2, 21, key=5))

    assert found(*received, sends=(sent(0, 1, UNKNOWN), sent(1, 2))).counts["overtaken"] == 0
    assert found(*received, sends=(sent(0), sent(1, 2, UNKNOWN))).counts["overtaken"] == 1


def test_the_messages_that_were_passed_and_may_be_dead_letters_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_keys, "MOST_PASSED", 2)
    keys = OpenKeys()
    # Each comes when the lease of the one before is over, so all but the last one are passed.
    first = [receipt(number, 1 + number * 20, settled=0, key=5) for number in range(9)]
    again = [receipt(number, 900 + number, settled=0, key=5) for number in range(9)]

    assert [keys.take(row, is_stored=True) for row in first] == [[]] * 9
    assert [one.number for row in again for one in keys.take(row, is_stored=True) if one.number == row.number] == [6, 7]


def test_a_message_that_was_acknowledged_within_its_lease_does_not_come_to_a_receiver_that_waits() -> None:
    """It asked before the acknowledgement, and got the message when its lease would have been over."""
    waits = receipt(0, 12, asked=int(1.5 * SECOND), held_until=int(11.5 * SECOND), consumer=1)

    assert counted(found(receipt(0, 1, settled=2), ALL[1], ALL[2], waits)) == {"returned": 1, "duplicates": 1}


def test_memory_does_not_grow_with_the_receipts() -> None:
    from qdo.bench.judge import Judge

    judge = Judge(workload_of(receiving={"visibility": 1, "wait": 0}, seconds=1))
    judge.sent(sent(0, 5000))
    for number in range(5000):
        judge.received(receipt(number, 1 + number * 0.1))

    assert len(judge._held) < 50
    assert counted(judge.end()) == {}


def test_examples_are_bounded() -> None:
    findings = found(sends=(sent(0, 1000),))

    assert findings.counts["lost"] == 1000
    assert len(findings.examples["lost"]) == 5


@pytest.mark.parametrize(
    ("mode", "unanswered", "lost"),
    [("pop", {}, 5), ("pop", {0: 1}, 3), ("pop", {0: 9}, 0), ("pop", {1: 9}, 5), ("receive", {0: 9}, 5)],
    ids=["all answered", "one answer of two", "many answers", "answers of another queue", "leases"],
)
def test_what_a_pop_without_an_answer_may_have_taken_is_not_lost(
    mode: str, unanswered: dict[int, int], lost: int
) -> None:
    workload = workload_of(topics=2, receiving={"mode": mode, "batch": 2, "wait": 0}, seconds=1)

    findings = judged(workload, [sent(0, 6)], [receipt(0, 1, held=False)])
    findings.excuse(workload, unanswered)

    assert counted(findings) == ({"lost": lost} if lost else {})
    assert findings.unanswered == 5 - lost
    assert bool(findings.examples.get("lost")) == bool(lost)
