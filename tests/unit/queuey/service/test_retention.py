"""Messages that go once every lease group has settled them, in memory and in a file."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from queuey.clock import ManualClock
from queuey.errors import StorageUnavailable
from queuey.future import run
from queuey.http.admission import EXEMPT
from queuey.http.answer_room import CountedRoom
from queuey.ids import ZERO_ID, IdGenerator, MessageId
from queuey.model import AppendRequest, Draft, Queue, Retention, Span, SpanRemoval, decode_headers, encode_headers
from queuey.model.dead_letters import Story, story_of, with_story, without_story
from queuey.model.headers import MAX_HEADERS
from queuey.model.lease_groups import LeaseGroup
from queuey.model.lease_requests import Action, ReceiveRequest, Settle
from queuey.model.lease_state import LeaseState
from queuey.model.lease_steps import GroupStep, LeaseOutcome, LeaseStep
from queuey.service import Service, retention
from queuey.service.leases import Leases
from queuey.service.log import QueueRead
from queuey.service.queues import QueueSettings
from queuey.service.tasks import LetterFilter, redrive_name
from queuey.settings import load_settings
from queuey.storage import Stores
from queuey.storage.contract.lease_receiver import settle_of
from queuey.storage.memory import MemoryStores
from queuey.storage.sqlite import SqliteStores
from tests.support.retaining import GROUPS, RetainedHistory


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=["memory", "file"])
def service(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> Iterator[Service]:
    ids = IdGenerator(clock)
    stores: Stores = (
        MemoryStores(clock, ids) if request.param == "memory" else SqliteStores(tmp_path / "queuey.db", clock, ids)
    )
    opened = Service(load_settings(None, {}, {}), stores, clock=clock, waiters_by_hand=True)
    yield opened
    opened.close()


@pytest.mark.parametrize("seed", range(2))
def test_nothing_goes_that_some_group_has_not_settled(service: Service, clock: ManualClock, seed: int) -> None:
    history = RetainedHistory(service, "jobs", random.Random(seed), clock.advance)
    history.run(60)
    history.finish(*GROUPS)
    assert not history.there()


async def _by_the_first_group(leases: Leases, queue: Queue) -> Mapping[int, MessageId]:
    counts = await leases.count(queue, GROUPS[0])
    return {number: one.done_up_to for number, one in counts.items()}


PLANTED: dict[str, tuple[type, str, object]] = {
    "what was handed out counts as settled": (LeaseState, "done_up_to", property(lambda state: state.frontier)),
    "one group decides": (Leases, "settled_by_all", _by_the_first_group),
}


@pytest.mark.parametrize("fault", PLANTED)
def test_a_history_finds(fault: str, service: Service, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*PLANTED[fault])
    history = RetainedHistory(service, "jobs", random.Random(1), clock.advance)
    with pytest.raises(AssertionError):  # noqa: PT012 - a store that removes whole packs shows it later
        history.run(60)
        history.finish(GROUPS[0])


def test_a_group_that_has_settled_nothing_holds_all(service: Service, clock: ManualClock) -> None:
    history = RetainedHistory(service, "jobs", random.Random(1), clock.advance)
    for _ in range(5):
        history.append(700)
    whole = history.there()
    history.finish(GROUPS[0])
    assert history.there() == whole == history.unsettled[GROUPS[1]]


def test_a_queue_without_groups_keeps_all(service: Service) -> None:
    queue = run(service.queues.create("demo", "a", QueueSettings(retention=Retention.ACKNOWLEDGED)))
    run(service.log.append(AppendRequest(queue, [Draft(1, b"x", 3600)] * 5)))
    service.retained.note(queue)
    run(service.retained.turn())
    assert run(service.queues.inspect(queue))[0].depth == 5


@pytest.mark.parametrize("how", ["a group begins", "the queue keeps all from now on"])
def test_what_is_left_stays_if_that_changes_while_messages_go(
    service: Service, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(retention, "_MOST_TOGETHER", 100)
    queue = run(service.queues.create("demo", "a", QueueSettings(retention=Retention.ACKNOWLEDGED)))
    for _ in range(3):
        run(service.log.append(AppendRequest(queue, [Draft(1, b"x", 3600)] * 1000)))
    delete_span, begun = service.log.delete_span, list[SpanRemoval]()

    async def and_begin(*given: Any, **named: Any) -> SpanRemoval:
        removed = await delete_span(*given, **named)
        begun.append(removed)
        if how == "a group begins":
            await service.leases.keep(queue, "two", _new_group(service), None)
        else:
            await service.queues.update(queue, QueueSettings(retention=Retention.TTL))
        return removed

    monkeypatch.setattr(service.log, "delete_span", and_begin)
    for _ in range(3):
        _step(service, GroupStep(queue, "one", _new_group(service), receive_from=(1,)), ReceiveRequest(1000, pop=True))
    service.retained.note(queue)
    run(service.retained.turn())
    assert len(begun) == 1
    assert run(service.queues.inspect(queue))[0].depth == 3000 - begun[0].messages > 0


@pytest.mark.parametrize("how", ["is forgotten", "begins anew at the end"])
def test_what_one_group_had_not_settled_goes_once_that_group(service: Service, how: str) -> None:
    """No other group need do anything for it."""
    queue = run(service.queues.create("demo", "a", QueueSettings(retention=Retention.ACKNOWLEDGED)))
    run(service.log.append(AppendRequest(queue, [Draft(1, b"x", 3600)] * 5)))
    run(service.leases.keep(queue, "two", _new_group(service), None))
    _step(service, GroupStep(queue, "one", _new_group(service), receive_from=(1,)), ReceiveRequest(9, pop=True))
    run(service.retained.turn())
    assert run(service.queues.inspect(queue))[0].depth == 5

    if how == "is forgotten":
        run(service.leases.forget(queue, "two"))
    else:
        at_the_end = service.leases.new_group(
            service.leases.default_settings, MessageId.last_of(service.log.watermark(queue))
        )
        run(service.leases.keep(queue, "two", at_the_end, service.leases.find(queue, "two").wait()))
    run(service.retained.turn())
    assert run(service.queues.inspect(queue))[0].depth == 0


def test_what_could_not_be_removed_goes_with_the_next_look(
    service: Service, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, retention.__name__)
    queue = run(service.queues.create("demo", "a", QueueSettings(retention=Retention.ACKNOWLEDGED)))
    run(service.log.append(AppendRequest(queue, [Draft(1, b"x", 3600)] * 5)))
    _step(service, GroupStep(queue, "one", _new_group(service), receive_from=(1,)), ReceiveRequest(9, pop=True))

    async def cannot(*_: Any, **__: Any) -> SpanRemoval:
        raise StorageUnavailable("away")

    with monkeypatch.context() as away:
        away.setattr(service.log, "delete_span", cannot)
        for _ in range(3):
            run(service.retained.turn())
    assert [record.getMessage() for record in caplog.records] == ["settled messages of demo/a stay for now: away"]
    assert run(service.queues.inspect(queue))[0].depth == 5
    run(service.retained.turn())
    assert run(service.queues.inspect(queue))[0].depth == 0


def test_what_could_not_be_removed_wakes_the_thread_and_takes_no_newer_note_away(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = run(service.queues.create("demo", "a", QueueSettings(retention=Retention.ACKNOWLEDGED)))
    run(service.log.append(AppendRequest(queue, [Draft(1, b"x", 3600)] * 5)))
    _step(service, GroupStep(queue, "one", _new_group(service), receive_from=(1,)), ReceiveRequest(9, pop=True))
    larger, woken = queue._replace(partitions=4), list[bool]()

    async def cannot(*_: Any, **__: Any) -> SpanRemoval:
        service.retained.note(larger)
        woken.clear()
        raise StorageUnavailable("away")

    monkeypatch.setattr(service.log, "delete_span", cannot)
    monkeypatch.setattr(service.retained, "wake", lambda: woken.append(True))
    run(service.retained.turn())

    assert woken == [True]
    assert [*service.retained._noted.values()] == [larger]


def test_a_queue_that_gives_away_from_now_on_looks_at_what_was_settled(service: Service) -> None:
    queue = run(service.queues.create("demo", "a", QueueSettings()))
    run(service.log.append(AppendRequest(queue, [Draft(1, b"x", 3600)] * 5)))
    _step(service, GroupStep(queue, "one", _new_group(service), receive_from=(1,)), ReceiveRequest(9, pop=True))
    run(service.retained.turn())
    run(service.queues.update(queue, QueueSettings(retention=Retention.ACKNOWLEDGED)))
    run(service.retained.turn())
    assert run(service.queues.inspect(queue))[0].depth == 0


def test_a_dead_letter_has_its_message_though_headers_leave_no_room(service: Service) -> None:
    """Its queue gives the message away."""
    queue = run(service.queues.create("demo", "a", QueueSettings(retention=Retention.ACKNOWLEDGED)))
    own = {f"h{number}": b"x" for number in range(MAX_HEADERS)}
    run(service.log.append(AppendRequest(queue, [Draft(1, b"body", 3600, headers=encode_headers(own))])))
    outcome = _step(service, GroupStep(queue, "one", _new_group(service), receive_from=(1,)), ReceiveRequest())
    (one,) = outcome.handed
    rejected = Settle(one.message.id, one.hole.deliveries, Action.REJECT, reason="no\ntraceback")
    _step(service, GroupStep(queue, "one", None, outcome.tokens[0], {1: [rejected]}))
    run(service.retained.turn())
    assert run(service.queues.inspect(queue))[0].depth == 0
    dead = run(service.queues.find("demo", "a-dead"))
    assert dead is not None
    (page,) = run(service.log.read(dead, QueueRead([(1, Span(ZERO_ID))], 9))).pages
    (letter,) = page.page.messages
    headers = decode_headers(letter.headers)
    assert (letter.body, without_story(headers), story_of(headers).reason) == (b"body", own, "no")


def test_a_redrive_brings_no_letter_back_that_was_settled(service: Service, clock: ManualClock) -> None:
    """The dead-letter queue keeps it until those before it are settled."""
    queue = run(service.queues.create("demo", "a", QueueSettings()))
    dead = run(service.queues.create("demo", "a-dead", QueueSettings(retention=Retention.ACKNOWLEDGED)))
    headers = with_story(None, Story("a", 1, "0" * 32, "workers", 3, "failed"))
    letters = [Draft(1, b"%d" % number, 3600, headers=headers) for number in range(5)]
    run(service.log.append(AppendRequest(dead, letters)))
    outcome = _step(service, GroupStep(dead, "sqs", _new_group(service), receive_from=(1,)), ReceiveRequest(4))
    settles = {1: [settle_of(one) for one in [*outcome.handed][1:3]]}
    _step(service, GroupStep(dead, "sqs", None, outcome.tokens[0], settles))

    assert run(service.tasks.redrives.preview(dead, LetterFilter("a", "workers"))).matching == 3
    run(service.tasks.redrive(queue, "workers", {"from": "a-dead", "match": {}}))
    for _ in range(20):
        clock.advance(min(run(service.tasks.turn()), 5))
    assert run(service.tasks.find(queue, redrive_name("workers"))).done == 3
    (page,) = run(service.log.read(queue, QueueRead([(1, Span(ZERO_ID))], 9))).pages
    assert [message.body for message in page.page.messages] == [b"0", b"3", b"4"]


def _new_group(service: Service) -> LeaseGroup:
    return service.leases.new_group(service.leases.default_settings, ZERO_ID)


def _step(service: Service, group: GroupStep, receive: ReceiveRequest | None = None) -> LeaseOutcome:
    with CountedRoom(EXEMPT, receive) as room:
        return run(service.leases.step(LeaseStep([group], receive=receive), room))
