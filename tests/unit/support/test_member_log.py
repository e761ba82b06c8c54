"""The judges of worker processes find what is planted, and nothing in a sound log (G14, G15, G16)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from qdo.groups.assign import Assignment, Partition, assign_sticky
from qdo.groups.coordination import CommittedOffset
from queuey.ids import MessageId
from tests.support.assignments import least_possible, members_there, ownerships, partitions_there
from tests.support.member_log import MemberLog, Stop, least_moves
from tests.support.workers import Verdict, Watcher

Line = dict[str, Any]
PART = "q:1"


def an_id(number: int) -> MessageId:
    return MessageId(number, -5)


STORED = {PART: [an_id(number) for number in range(1, 7)]}


def said(what: str, pid: int, generation: int, number: int | None, at: float, began: float | None = None) -> Line:
    line = {"what": what, "pid": pid, "part": PART, "generation": generation, "at": at, "began": began}
    return line | ({} if what == "release" else {"id": number and an_id(number)})


def job(pid: int, generation: int, number: int, began: float, ended: float | None) -> list[Line]:
    lines = [said("begin", pid, generation, number, began)]
    return lines if ended is None else [*lines, said("end", pid, generation, number, ended)]


def sound() -> list[Line]:
    """Process 1 does three messages, commits two and is killed in the fourth; process 2 goes on."""
    return [
        said("claim", 1, 1, None, 1.0, began=0.5),
        *job(1, 1, 1, 1.1, 1.2),
        *job(1, 1, 2, 1.2, 1.3),
        said("commit", 1, 1, 2, 1.35, began=1.3),
        *job(1, 1, 3, 1.35, 1.4),
        *job(1, 1, 4, 1.4, None),
        said("claim", 2, 2, 2, 4.0, began=3.9),
        *job(2, 2, 3, 4.1, 4.2),
        *job(2, 2, 4, 4.2, 4.3),
        said("refused", 1, 1, 4, 4.35, began=4.3),
        *job(2, 2, 5, 4.3, 4.4),
        *job(2, 2, 6, 4.4, 4.5),
        said("commit", 2, 2, 6, 4.6, began=4.5),
        said("release", 2, 2, None, 4.7),
    ]


KILLED = [Stop(1, 1.45)]


def judged(lines: list[Line], stops: list[Stop]) -> dict[str, int]:
    log = MemberLog.of(lines)
    return {
        "stale": len(log.accepted_stale()),
        "fallen": len(log.fallen()),
        "overlaps": len(log.overlaps(stops, 1.0)),
        "lost": len(log.lost(STORED)),
        "out_of_order": len(log.out_of_order(STORED)),
    }


def only(what: str = "", count: int = 1) -> dict[str, int]:
    clean = dict.fromkeys(("stale", "fallen", "overlaps", "lost", "out_of_order"), 0)
    return clean | ({what: count} if what else {})


def test_a_sound_log_is_sound() -> None:
    log = MemberLog.of(sound())

    assert judged(sound(), KILLED) == only()
    assert log.takeovers() == 1
    assert len(log.refused) == 1
    assert log.repeated() == {1: 2}
    assert log.unowned_seconds(KILLED) == pytest.approx(2.55)


def without(*numbers: int, what: str = "", pid: int = 2) -> list[Line]:
    ids = [an_id(number) for number in numbers]
    return [
        line
        for line in sound()
        if not (line["pid"] == pid and line.get("id") in ids and line["what"] in (what or ("begin", "end")))
    ]


def test_a_stale_commit_that_was_accepted_is_found() -> None:
    lines = [line | {"what": "commit"} if line["what"] == "refused" else line for line in sound()]

    assert judged(lines, KILLED) == only("stale")


def test_an_offset_that_fell_between_owners_is_found() -> None:
    lines = [line | {"id": an_id(1)} if line["what"] == "claim" and line["pid"] == 2 else line for line in sound()]

    assert judged(lines, KILLED)["fallen"] == 1


def test_a_message_that_nobody_finished_is_lost() -> None:
    assert judged(without(6), KILLED) == only("lost")
    assert judged(without(6, what="end"), KILLED)["lost"] == 1


def test_a_message_that_was_passed_over_is_found() -> None:
    assert judged(without(5), KILLED) == only("lost") | {"out_of_order": 1}


def test_messages_out_of_their_order_are_found() -> None:
    lines = without(3, 4)
    swapped = [*lines[:7], *job(2, 2, 4, 4.1, 4.2), *job(2, 2, 3, 4.2, 4.25), *lines[7:]]

    assert judged(swapped, KILLED) == only("out_of_order")


def test_a_message_begun_before_the_one_ahead_ended_is_found() -> None:
    lines = without(6)
    early = [*lines, *job(2, 2, 6, 4.35, 4.5)]

    assert judged(early, KILLED)["out_of_order"] == 1


def test_what_was_committed_already_is_not_to_be_done_again() -> None:
    lines = [*sound(), *job(2, 2, 1, 4.8, 4.9)]

    assert judged(lines, KILLED) == only("out_of_order")


@pytest.mark.parametrize(
    ("stops", "overlaps"),
    [
        ([], 1),
        ([Stop(1, 1.5, 4.5)], 0),
        ([Stop(1, 4.0, 4.1)], 1),
        ([Stop(2, 1.5, 4.5)], 1),
        ([Stop(1, 0.1, 1.3)], 1),
        ([Stop(1, 5.0, 8.0)], 1),
    ],
    ids=["never stopped", "stopped inside", "too short", "the other one", "before", "after"],
)
def test_jobs_at_the_same_time_are_found_unless_the_former_owner_was_stopped_inside(
    stops: list[Stop], overlaps: int
) -> None:
    lines = [*sound(), said("end", 1, 1, 4, 4.15)]

    assert judged(lines, stops) == only("overlaps", overlaps)


def test_a_job_that_was_never_finished_overlaps_unless_its_process_is_dead() -> None:
    assert judged(sound(), [])["overlaps"]
    assert judged(sound(), [Stop(1, 4.15)])["overlaps"]
    assert judged(sound(), [Stop(2, 1.45)])["overlaps"]
    assert not judged(sound(), KILLED)["overlaps"]


def test_a_job_begun_after_the_stop_by_a_former_owner_overlaps() -> None:
    """What a worker does that looks only before it is stopped."""
    lines = [*sound(), said("end", 1, 1, 4, 4.0), *job(1, 1, 5, 4.01, 4.5)]

    assert judged(lines, [Stop(1, 1.5, 4.0)])["overlaps"] >= 1


@given(members=members_there, partitions=partitions_there, current=ownerships())
def test_the_least_number_of_moves_is_that_of_every_way(
    members: list[str], partitions: list[Partition], current: Assignment
) -> None:
    after = assign_sticky(members, partitions, current)

    assert least_moves(current, after) == least_possible(members, partitions, current)


ALL_OF_A = {"a": ["q:1", "q:2", "q:3", "q:4"]}
HALVES = {"a": ["q:3", "q:4"], "b": ["q:1", "q:2"]}
OTHER_HALVES = {"a": ["q:1", "q:2"], "b": ["q:3", "q:4"]}


def planned(generation: int, before: dict[str, list[str]], after: dict[str, list[str]]) -> dict[str, Any]:
    return {"what": "plan", "generation": generation, "before": before, "assignment": after}


def test_moves_are_counted_over_all_plans() -> None:
    log = MemberLog.of([planned(1, {}, ALL_OF_A), planned(2, ALL_OF_A, HALVES), planned(3, HALVES, OTHER_HALVES)])

    assert log.moves() == (6, 2)


def test_a_plan_is_compared_with_what_its_leader_saw_even_if_nobody_wrote_that_down() -> None:
    """Its leader was killed before it heard that ZooKeeper had recorded the plan."""
    log = MemberLog.of([planned(1, {}, ALL_OF_A), planned(3, HALVES, ALL_OF_A)])

    assert log.moves() == (2, 2)


def test_the_last_plan_of_a_generation_is_the_one_that_was_recorded() -> None:
    log = MemberLog.of([planned(2, ALL_OF_A, OTHER_HALVES), planned(2, ALL_OF_A, HALVES)])

    assert log.moves() == (2, 2)


def test_an_offset_that_falls_or_vanishes_is_seen() -> None:
    watcher = Watcher(None)  # type: ignore[arg-type]
    one, two = Partition("q", 1), Partition("q", 2)
    low, high = CommittedOffset("i", an_id(1)), CommittedOffset("i", an_id(2))

    watcher.look({one: high, two: low})
    watcher.look({one: high, two: high})
    assert watcher.regressions == []
    watcher.look({one: low, two: high})
    watcher.look({one: low})

    assert len(watcher.regressions) == 2


def good() -> Verdict:
    return Verdict(
        {"takeovers": 1, "stale_commits_tried": 1, "accepted": 0, "regressions": 0},
        {"overlaps": 0, "unowned_max_s": 1.0, "moved": 3, "least_possible": 3, "stuck": 0},
        {"jobs": 1, "lost": 0, "repeated": 1, "repeated_max_per_kill": 1, "out_of_order": 0},
    )


@pytest.mark.parametrize(
    ("at", "name", "value"),
    [
        (0, "accepted", 1),
        (0, "regressions", 1),
        (0, "takeovers", 0),
        (0, "stale_commits_tried", 0),
        (1, "overlaps", 1),
        (1, "stuck", 1),
        (1, "moved", 4),
        (2, "lost", 1),
        (2, "out_of_order", 1),
        (2, "jobs", 0),
    ],
)
def test_a_verdict_with_a_fault_fails_and_so_does_one_that_proves_nothing(at: int, name: str, value: int) -> None:
    good().check()
    verdict = [dict(figures) for figures in good()]
    verdict[at][name] = value

    with pytest.raises(AssertionError):
        Verdict(*verdict).check()  # type: ignore[arg-type]
