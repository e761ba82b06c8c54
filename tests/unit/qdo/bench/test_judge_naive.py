"""The judge against the definitions of its page, written down again without any economy."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from qdo.bench.bodies import NO_KEY
from qdo.bench.clock import SECOND
from qdo.bench.judge import Findings, judged
from qdo.bench.records import FAILED, STORED, UNKNOWN, ReceivedRow, SentRow
from tests.support.bench_by_clock import workload_of

MESSAGES = 4
KINDS = ("lost", "duplicates", "overlaps", "returned", "early", "key_out_of_order")
TICK = SECOND // 2


@st.composite
def receipts(draw: st.DrawFn) -> ReceivedRow:
    """A receipt: at some tick, asked for some ticks before, and settled, given back or forgotten."""
    arrived = draw(st.integers(4, 24))
    asked = arrived - draw(st.integers(0, 3))
    fate, later = draw(st.sampled_from(["settled", "failed", "forgotten"])), arrived + draw(st.integers(0, 6))
    held_until = asked + 4
    return ReceivedRow(
        subscription=draw(st.integers(0, 1)),
        consumer=0,
        stream=0,
        number=(number := draw(st.integers(0, MESSAGES - 1))),
        key=draw(st.sampled_from([NO_KEY, number % 2])),
        flags=FAILED if fate == "failed" else 0,
        due=0,
        sent=0,
        not_before=draw(st.sampled_from([0, 5, 9])) * TICK,
        asked=asked * TICK,
        arrived=arrived * TICK,
        held_until=(min(held_until, later) if fate == "failed" else held_until) * TICK,
        settled=later * TICK if fate == "settled" else 0,
        settling=draw(st.integers(arrived, later)) * TICK if fate == "settled" else 0,
    )


def was_settled_within_its_lease(same: list[ReceivedRow], row: ReceivedRow) -> bool:
    """Whether the last receipt was of a lease that is over, and in which the message was acknowledged for certain."""
    last, settled = same[-1], min((one.settled for one in same if one.settled), default=0)
    return 0 < settled <= last.held_until <= row.arrived and row.asked >= last.arrived


def surely_before(later: ReceivedRow, row: ReceivedRow) -> bool:
    """Whether a later message was handed out before this one."""
    same_or_asked = later.consumer == row.consumer or row.asked >= later.arrived
    return later.number > row.number and (same_or_asked or row.held_until > later.arrived)


def by_the_page(rows: list[ReceivedRow], stored: list[int], views: int) -> Counter[str]:
    """What the page says of each receipt, looking at all that came before it."""
    found = Counter[str]()
    for view in range(views):
        seen = {row.number for row in rows if row.subscription == view}
        found["lost"] += sum(number not in seen for number in stored)
    for at, row in enumerate(rows):
        found["early"] += row.arrived < row.not_before
        earlier = [one for one in rows[:at] if one.subscription == row.subscription]
        same = [one for one in earlier if one.number == row.number]
        if not same:
            firsts = [one for one in earlier if one.key == row.key != NO_KEY]
            found["key_out_of_order"] += row.number in stored and any(surely_before(one, row) for one in firsts)
        elif any(one.settled and row.asked >= one.settled for one in same) or was_settled_within_its_lease(same, row):
            found["returned"] += 1
            found["duplicates"] += 1
        elif row.arrived < min(same[-1].held_until, row.held_until):
            found["overlaps"] += 1
            found["duplicates"] += 1
    return +found


@given(st.lists(receipts(), max_size=12), st.integers(0, MESSAGES))
def test_the_judge_finds_what_the_page_says(rows: list[ReceivedRow], unknown: int) -> None:
    keys = {row.number: row.key for row in rows}
    rows = sorted((row._replace(key=keys[row.number]) for row in rows), key=lambda row: row.arrived)
    sends = [SentRow(0, at, 1, UNKNOWN if at < unknown else STORED, 0, 0, 0, 0) for at in range(MESSAGES)]
    workload = workload_of(subscriptionsPerTopic=2, receiving={"visibility": 10, "wait": 0}, seconds=1)

    found: Findings = judged(workload, sends, rows)

    assert Counter({kind: found.counts[kind] for kind in KINDS if found.counts[kind]}) == by_the_page(
        rows, [*range(unknown, MESSAGES)], views=2
    )
    assert found.received == found.distinct + found.redelivered + found.counts["duplicates"]
