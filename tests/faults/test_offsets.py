"""G14: a former owner cannot move an offset, though the server is killed in between, and no committed offset is lost."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from qdo.client import Client, GroupOffset
from queuey.ids import MessageId
from tests.support.figures import Figures
from tests.support.node import Node, busy, wait_for_more
from tests.support.owners import GROUP, Acknowledged, Company, Record, Verdict, Watcher

OWNERS = 4
PARTITIONS = 3


@pytest.mark.drawn
def test_who_was_replaced_commits_nothing(
    tmp_path: Path, rounds: Callable[[int], range], chance: random.Random, figures: Figures
) -> None:
    with Node(tmp_path) as node:
        node.client().create_queue("q", partitions=PARTITIONS)

        def clients() -> list[Client]:
            return [node.client() for _ in range(OWNERS)]

        company = Company.of(clients(), node.client(), chance, PARTITIONS)
        for _ in rounds(3):
            company.use(clients(), node.client())
            with busy(company.watcher.step, *(owner.step for owner in company.owners)):
                wait_for_more(company.done, chance.randint(200, 400), seconds=60)
                node.kill()
            node.start()
        verdict = company.judge(node.client().offsets("q", GROUP))

    figures("G14", kills=len(rounds(3)), **verdict._asdict())
    verdict.check()


# The judge finds what is planted.


def an_id(number: int) -> MessageId:
    return MessageId(number, -5)


def an_offset(number: int, generation: int) -> GroupOffset:
    return GroupOffset(1, an_id(number), "", generation, None)


def a_record() -> Record:
    """Claimed twice, and committed by each owner in its time."""
    return Record(
        1,
        claims=[Acknowledged(1, an_id(0), 0.0, 1.0), Acknowledged(2, an_id(5), 4.0, 5.0)],
        commits=[
            Acknowledged(1, an_id(5), 2.0, 3.0),
            Acknowledged(1, an_id(5), 3.5, 4.5),
            Acknowledged(2, an_id(9), 6.0, 7.0),
        ],
    )


def test_a_sound_record_is_sound() -> None:
    assert a_record().accepted_stale() == a_record().lost(an_offset(9, 2)) == []


def test_a_stale_commit_that_was_accepted_is_found() -> None:
    record = a_record()
    record.commits.append(Acknowledged(1, an_id(20), 5.5, 6.0))

    assert record.accepted_stale() == record.commits[-1:]


def test_a_commit_that_was_lost_is_found() -> None:
    record = a_record()

    assert record.lost(an_offset(8, 2)) == record.commits[2:]
    record.claims[1] = record.claims[1]._replace(id=an_id(4))
    assert record.lost(an_offset(9, 2)) == record.commits[:1]


@pytest.mark.parametrize(("number", "generation"), [(4, 3), (6, 2)])
def test_an_offset_that_fell_is_found(number: int, generation: int) -> None:
    with Client() as client:
        watcher = Watcher(client)
        watcher.look([an_offset(5, 3)])
        watcher.look([an_offset(5, 3)])
        assert watcher.regressions == []

        watcher.look([an_offset(number, generation)])

    assert len(watcher.regressions) == 1


def test_a_run_without_a_stale_commit_proves_nothing() -> None:
    with pytest.raises(AssertionError):
        Verdict(5, 5, 0, 0, 0, 0, 0).check()
