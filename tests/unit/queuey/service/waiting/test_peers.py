"""Notices between servers: what is published, what is polled, and what is repeated."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

import pytest

from queuey.clock import ManualClock
from queuey.errors import StorageUnavailable
from queuey.ids import MessageId
from queuey.model import Location, PartitionId, Queue
from queuey.service.waiting.peers import MOST_PARTITIONS, POLL_SECONDS, PUBLISH_SECONDS, Notices
from queuey.storage import AppendNotice
from tests.support.peers import Telephone


@pytest.fixture
def line() -> Telephone:
    return Telephone()


@pytest.fixture
def publisher(line: Telephone) -> tuple[Notices, ManualClock]:
    clock = ManualClock()
    return Notices(line, clock), clock


PLACED = [Location(3, MessageId(5, 5))]
A = Queue("demo", "a", uuid.UUID(int=1), 0)


def nobody(partitions: Sequence[PartitionId] | None, ticks: int) -> None:
    raise AssertionError("nobody waits")


def test_one_notice_has_many_partitions_and_nothing_makes_none(
    publisher: tuple[Notices, ManualClock], line: Telephone
) -> None:
    notices, clock = publisher
    notices.work(nobody, somebody_waits=False)
    assert line.published == []

    assert notices.note(A.uuid, PLACED)
    assert not notices.note(A.uuid, PLACED * 50)
    notices.work(nobody, somebody_waits=False)
    notices.note(A.uuid, PLACED)
    assert notices.work(nobody, somebody_waits=False) == PUBLISH_SECONDS
    assert [notice.partitions for notice in line.published] == [(PartitionId(A.uuid, 3),)]

    clock.advance(PUBLISH_SECONDS)
    notices.work(nobody, somebody_waits=False)
    assert len(line.published) == 2


def test_what_could_not_be_published_is_published_again(
    publisher: tuple[Notices, ManualClock], line: Telephone
) -> None:
    notices, clock = publisher
    line.broken = StorageUnavailable()
    notices.note(A.uuid, PLACED)
    notices.work(nobody, somebody_waits=False)
    notices.note(A.uuid, [Location(1, MessageId(6, 6))])
    line.broken = None
    clock.advance(PUBLISH_SECONDS)

    notices.work(nobody, somebody_waits=False)

    (notice,) = line.published
    assert set(notice.partitions or ()) == {PartitionId(A.uuid, 3), PartitionId(A.uuid, 1)}


def test_too_many_partitions_are_published_as_any(publisher: tuple[Notices, ManualClock], line: Telephone) -> None:
    notices, _ = publisher
    for number in range(MOST_PARTITIONS + 1):
        notices.note(uuid.UUID(int=number), PLACED)

    notices.work(nobody, somebody_waits=False)

    assert [notice.partitions for notice in line.published] == [None]


def test_a_server_polls_while_readers_wait(publisher: tuple[Notices, ManualClock], line: Telephone) -> None:
    notices, _ = publisher
    heard: list[Any] = []
    line.published = [AppendNotice((PartitionId(A.uuid, 1),), 7), AppendNotice(None, 8)]

    notices.work(nobody, somebody_waits=False)
    rest = notices.work(lambda *what: heard.append(what), somebody_waits=True)

    assert heard == [((PartitionId(A.uuid, 1),), 7), (None, 8)]
    assert rest == POLL_SECONDS


def test_what_could_not_be_published_for_any_reason_is_published_again(
    publisher: tuple[Notices, ManualClock], line: Telephone
) -> None:
    notices, clock = publisher
    notices.note(A.uuid, PLACED)
    line.broken = ValueError("unheard of")
    notices.work(nobody, somebody_waits=False)
    line.broken = None
    clock.advance(PUBLISH_SECONDS)
    notices.work(nobody, somebody_waits=False)

    assert [partitions for partitions, _ in line.published] == [(PartitionId(A.uuid, 3),)]
