"""Redrives: each dead letter is moved once, wherever its server dies, and whoever wakes up late (G25)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from queuey.clock import ManualClock
from queuey.errors import InvalidReceipt
from queuey.future import Future, run
from queuey.ids import TICKS_PER_SECOND, ZERO_ID
from queuey.model import (
    MAX_HEADERS,
    AppendRequest,
    Draft,
    Location,
    Message,
    Queue,
    ReadRequest,
    Span,
    decode_headers,
    encode_headers,
)
from queuey.model.dead_letters import (
    ALONE_TYPE,
    REDRIVEN_HEADER,
    STORY_HEADER,
    Story,
    story_of,
    story_to_header,
    with_story,
)
from queuey.model.lease_groups import GroupSettings
from queuey.model.lease_requests import ReceiveRequest
from queuey.model.lease_steps import GroupStep, LeaseOutcome, LeaseStep
from queuey.model.only_groups import ONLY_GROUP_HEADER
from queuey.model.tasks import StoredTask
from queuey.service import Service
from queuey.service.queues import QueueSettings
from queuey.service.tasks import LetterFilter, redrive_name
from queuey.settings import load_settings
from queuey.storage.leasing import passing
from tests.support.dying_stores import Died, DyingStores

GROUP = "workers"
LETTERS = 7


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def stores(clock: ManualClock) -> DyingStores:
    return DyingStores(clock)


def server(stores: DyingStores, clock: ManualClock) -> Service:
    return Service(load_settings(None, {}, {}), stores, clock=clock, waiters_by_hand=True)


@pytest.fixture
def service(stores: DyingStores, clock: ManualClock) -> Iterator[Service]:
    opened = server(stores, clock)
    yield opened
    opened.close()


@pytest.fixture
def queue(service: Service) -> Queue:
    made = run(service.queues.create("demo", "jobs", QueueSettings(partitions=2)))
    run(service.leases.keep(made, GROUP, service.leases.new_group(GroupSettings(), ZERO_ID), None))
    return made


@pytest.fixture
def dead(service: Service) -> Queue:
    return run(service.queues.create("demo", "jobs-dead", QueueSettings(partitions=2)))


def story(number: int, **changed: Any) -> Story:
    return Story("jobs", 1 + number % 2, "0" * 32, GROUP, 3, "failed too often", ttl=1000)._replace(**changed)


def bury(service: Service, dead: Queue, count: int = LETTERS, **changed: Any) -> None:
    """Store dead letters, each of its own key and partition."""
    drafts = [
        Draft(
            1 + number % 2,
            b"%d" % number,
            86_400,
            "text/plain",
            f"k{number}",
            headers=with_story(encode_headers({"n": b"%d" % number}), story(number, **changed)),
        )
        for number in range(count)
    ]
    run(service.log.append(AppendRequest(dead, drafts)))


def bury_alone(service: Service, dead: Queue, at: Location, body: bytes) -> None:
    """Store the dead letter of a message that is too large for it."""
    told = story(0, partition=at.partition, message_id=at.id.hex).alone(body)
    letter = Draft(1, story_to_header(told), 86_400, ALONE_TYPE, headers=with_story(None, told))
    run(service.log.append(AppendRequest(dead, [letter])))


def messages_of(service: Service, queue: Queue) -> list[Message]:
    found: list[Message] = []
    for number in range(1, queue.partitions + 1):
        request = ReadRequest(queue.partition(number), Span(), 1000)
        found += service.stores.messages.read(request, now_ticks=service.clock.now_ticks()).wait().messages
    return found


def bodies(service: Service, queue: Queue) -> Counter[bytes]:
    return Counter(message.body for message in messages_of(service, queue))


def begin(service: Service, queue: Queue, /, **asked: Any) -> StoredTask:
    return run(service.tasks.redrive(queue, GROUP, {"from": "jobs-dead", "match": {}, **asked}))


def task_of(service: Service, queue: Queue) -> StoredTask:
    return run(service.tasks.find(queue, redrive_name(GROUP)))


def to_its_end(service: Service, queue: Queue, clock: ManualClock) -> StoredTask:
    for _ in range(200):
        clock.advance(min(run(service.tasks.turn()), 60))
        if not task_of(service, queue).is_open:
            return task_of(service, queue)
    raise AssertionError(f"still open: {task_of(service, queue)}")


ALL = Counter({b"%d" % number: 1 for number in range(LETTERS)})


def test_a_letter_goes_back_as_the_message_it_was(
    service: Service, queue: Queue, dead: Queue, clock: ManualClock
) -> None:
    bury(service, dead)

    begin(service, queue)
    found = to_its_end(service, queue, clock)

    assert (found.state, found.done, found.failed, found.left) == ("done", LETTERS, 0, 0)
    assert not messages_of(service, dead)
    assert not service.stores.leases.list_groups(dead.uuid).wait()
    back = messages_of(service, queue)
    assert Counter(message.body for message in back) == ALL
    for message in back:
        assert (message.content_type, message.key) == ("text/plain", f"k{message.body.decode()}")
        headers = decode_headers(message.headers)
        origin = story_of({STORY_HEADER: headers.pop(REDRIVEN_HEADER)})
        assert headers == {"n": message.body}
        assert origin == story(int(message.body))._replace(traceback="")
        assert message.expires_ticks - message.ticks == 1000 * TICKS_PER_SECOND


@pytest.mark.parametrize("is_done", [False, True], ids=["before", "behind"])
def test_each_letter_is_moved_once_wherever_the_server_dies(is_done: bool) -> None:
    deaths = 0
    for dies_at in range(1, 40):
        clock = ManualClock()
        stores = DyingStores(clock)
        first = server(stores, clock)
        jobs = run(first.queues.create("demo", "jobs", QueueSettings(partitions=2)))
        run(first.leases.keep(jobs, GROUP, first.leases.new_group(GroupSettings(), ZERO_ID), None))
        letters = run(first.queues.create("demo", "jobs-dead", QueueSettings(partitions=2)))
        bury(first, letters)
        begin(first, jobs, rate=3)
        stores.dies_at, stores.calls, stores.is_done = dies_at, 0, is_done
        try:
            to_its_end(first, jobs, clock)
        except Died:
            deaths += 1
        stores.dies_at = -1
        second = server(stores, clock)
        clock.advance(dies_at * 4)

        found = to_its_end(second, jobs, clock)

        assert found.state == "done"
        assert bodies(second, jobs) == ALL
        assert not messages_of(second, letters)
        assert not stores.leases.list_groups(letters.uuid).wait()
        first.close()
        second.close()
    assert deaths > 10


@pytest.mark.parametrize("turns", range(2, 8))
def test_a_cancelled_redrive_leaves_each_letter_in_one_place(
    service: Service, queue: Queue, dead: Queue, clock: ManualClock, turns: int
) -> None:
    bury(service, dead)
    begin(service, queue, rate=2)
    for _ in range(turns):
        clock.advance(run(service.tasks.turn()))

    run(service.tasks.cancel(queue, redrive_name(GROUP)))
    found = to_its_end(service, queue, clock)

    assert found.state == "cancelled"
    assert bodies(service, queue) + bodies(service, dead) == ALL
    assert bodies(service, queue).total() == found.done
    assert not service.stores.leases.list_groups(dead.uuid).wait()
    begin(service, queue)
    assert to_its_end(service, queue, clock).done == LETTERS - found.done
    assert bodies(service, queue) == ALL


def test_a_server_that_wakes_up_late_moves_nothing_twice(
    service: Service, queue: Queue, dead: Queue, clock: ManualClock, stores: DyingStores
) -> None:
    """It sleeps right before it moves letters, and its task ends meanwhile."""
    bury(service, dead)
    begin(service, queue)
    for _ in range(3):
        run(service.tasks.turn())
    task = task_of(service, queue)
    assert task.place["batch"]
    other, moves = server(stores, clock), stores.leases.step
    elsewhere = run(other.queues.create("demo", "elsewhere", QueueSettings()))

    def sleeps_first(step: LeaseStep) -> Future[LeaseOutcome]:
        stores.leases.step = moves  # type: ignore[method-assign]
        clock.advance(120)
        run(other.tasks.cancel(queue, redrive_name(GROUP)))
        assert to_its_end(other, queue, clock).state == "cancelled"
        begin(other, queue, queue="elsewhere")
        assert to_its_end(other, queue, clock).done == LETTERS
        return moves(step)

    stores.leases.step = sleeps_first  # type: ignore[method-assign]
    with pytest.raises(InvalidReceipt):
        run(service.tasks.redrives.step(task, queue))

    assert bodies(other, elsewhere) == ALL
    assert not messages_of(other, queue)
    other.close()


def test_letters_come_at_the_rate_that_was_asked_for(
    service: Service, queue: Queue, dead: Queue, clock: ManualClock
) -> None:
    bury(service, dead, 30)
    began = clock.elapsed()
    begin(service, queue, rate=0.5)
    assert to_its_end(service, queue, clock).done == 30
    assert 58 <= clock.elapsed() - began <= 75


def test_a_clock_that_is_set_back_does_not_hold_up_a_rate(
    service: Service, queue: Queue, dead: Queue, clock: ManualClock
) -> None:
    bury(service, dead, 30)
    began = clock.elapsed()
    begin(service, queue, rate=0.5)
    while task_of(service, queue).done < 5:
        clock.advance(min(run(service.tasks.turn()), 60))
    clock.step(-86_400)
    assert to_its_end(service, queue, clock).done == 30
    assert 55 <= clock.elapsed() - began <= 75


def test_other_letters_and_later_ones_stay(service: Service, queue: Queue, dead: Queue, clock: ManualClock) -> None:
    bury(service, dead, 2)
    bury(service, dead, 1, group="others")
    bury(service, dead, 1, queue="other-jobs")
    run(service.log.append(AppendRequest(dead, [Draft(1, b"no letter", 86_400)])))
    begin(service, queue)
    clock.advance(5)
    bury(service, dead, 3)

    found = to_its_end(service, queue, clock)

    assert (found.done, found.failed) == (2, 0)
    assert bodies(service, dead).total() == 6


@pytest.mark.parametrize(
    ("match", "expected"),
    [
        ({"reason": "often"}, {0, 1, 2}),
        ({"reason": "never"}, set()),
        ({"key": "k1"}, {1}),
        ({"headers": {"n": "2"}}, {2}),
        ({"headers": {"n": "2", "m": "2"}}, set()),
        ({"since": 1}, {0, 1, 2}),
        ({"until": 1}, set()),
    ],
)
def test_a_filter_chooses(
    service: Service, queue: Queue, dead: Queue, clock: ManualClock, match: dict[str, Any], expected: set[int]
) -> None:
    bury(service, dead, 3)
    preview = run(service.tasks.redrives.preview(dead, LetterFilter("jobs", GROUP, **match)))
    assert preview == (len(expected), 3, False)

    begin(service, queue, match=match)

    assert to_its_end(service, queue, clock).done == len(expected)
    assert {int(body) for body in bodies(service, queue)} == expected
    assert bodies(service, dead).total() == 3 - len(expected)


def test_a_message_for_one_group_comes_to_no_other(
    service: Service, queue: Queue, dead: Queue, clock: ManualClock
) -> None:
    bury(service, dead, 2)
    begin(service, queue, group_only=True)
    assert to_its_end(service, queue, clock).done == 2
    run(service.log.append(AppendRequest(queue, [Draft(1, b"for all", 86_400)])))

    def handed(group: str) -> Sequence[bytes]:
        step = GroupStep(queue, group, service.leases.new_group(GroupSettings(), ZERO_ID), receive_from=[1, 2])
        outcome = service.stores.leases.step(LeaseStep([step], receive=ReceiveRequest(9))).wait()
        return sorted(one.message.body for one in outcome.handed)

    assert handed("another") == [b"for all"]
    assert handed(GROUP) == [b"0", b"1", b"for all"]
    marked = [message for message in messages_of(service, queue) if message.body != b"for all"]
    assert {decode_headers(message.headers)[ONLY_GROUP_HEADER] for message in marked} == {GROUP.encode()}


def test_a_message_for_one_group_that_fails_again_is_a_letter_like_others(
    service: Service, queue: Queue, dead: Queue, clock: ManualClock
) -> None:
    headers = with_story(encode_headers({ONLY_GROUP_HEADER: GROUP.encode()}), story(0))
    run(service.log.append(AppendRequest(dead, [Draft(1, b"again", 86_400, headers=headers)])))
    begin(service, queue)
    assert to_its_end(service, queue, clock).done == 1
    (message,) = messages_of(service, queue)
    back = decode_headers(message.headers)
    assert back.keys() == {ONLY_GROUP_HEADER, REDRIVEN_HEADER}
    assert back[ONLY_GROUP_HEADER] == GROUP.encode()


def test_a_message_goes_back_without_its_origin_where_its_headers_leave_no_room(
    service: Service, queue: Queue, dead: Queue, clock: ManualClock
) -> None:
    """Those of its letter are as many as a message may have, and the name of the group takes the place of the story."""
    own = {f"n{number}": b"" for number in range(MAX_HEADERS - 1)}
    headers = with_story(encode_headers(own), story(0))
    run(service.log.append(AppendRequest(dead, [Draft(1, b"again", 86_400, headers=headers)])))
    begin(service, queue, group_only=True)
    assert to_its_end(service, queue, clock).done == 1
    (message,) = messages_of(service, queue)
    assert decode_headers(message.headers) == {**own, ONLY_GROUP_HEADER: GROUP.encode()}


def test_a_redrive_looks_behind_all_that_is_not_for_it(
    service: Service, queue: Queue, dead: Queue, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passing, "MOST_PASSED_OVER", 10)
    others = encode_headers({ONLY_GROUP_HEADER: b"other"})
    run(service.log.append(AppendRequest(dead, [Draft(1, b"", 86_400, headers=others)] * 500)))
    bury(service, dead)
    begin(service, queue)
    assert to_its_end(service, queue, clock).done == LETTERS


def test_a_letter_without_its_message_takes_it_from_the_queue(
    service: Service, queue: Queue, dead: Queue, clock: ManualClock
) -> None:
    placed = run(service.log.append(AppendRequest(queue, [Draft(1, b"large", 86_400), Draft(1, b"gone", 86_400)])))
    for body, at in zip((b"large", b"gone"), placed.placed, strict=True):
        bury_alone(service, dead, at, body)
    service.log.delete(queue, [Location(1, placed.placed[1].id)]).wait()
    bury(service, dead, 2)

    begin(service, queue)
    found = to_its_end(service, queue, clock)

    assert (found.done, found.failed) == (3, 1)
    assert "gone from jobs" in found.reason
    assert bodies(service, queue) == Counter({b"large": 2, b"0": 1, b"1": 1})
    assert len(messages_of(service, dead)) == 1
    assert all(STORY_HEADER not in decode_headers(message.headers) for message in messages_of(service, queue))


def test_a_redrive_that_meets_an_error_of_ours_leaves_each_letter_in_one_place(
    service: Service, queue: Queue, dead: Queue, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes when letters were moved, and are to be deleted."""
    bury(service, dead)

    def faulty(*_: Any) -> None:
        monkeypatch.undo()
        raise RuntimeError("planted")

    monkeypatch.setattr(service.log, "arrived", faulty)
    begin(service, queue)
    found = to_its_end(service, queue, clock)

    assert (found.state, found.done) == ("failed", LETTERS)
    assert bodies(service, queue) + bodies(service, dead) == ALL
    assert not service.stores.leases.list_groups(dead.uuid).wait()


def test_letters_that_come_again_are_moved_though_later_ones_came_beside_them(
    service: Service, queue: Queue, dead: Queue, clock: ManualClock
) -> None:
    placed = run(service.log.append(AppendRequest(queue, [Draft(1, b"large", 86_400)] * 3))).placed
    for at in placed:
        bury_alone(service, dead, at, b"large")  # each goes alone, and the others are given back
    begin(service, queue)
    clock.advance(5)
    bury(service, dead, 3)

    assert to_its_end(service, queue, clock).done == 3
    assert bodies(service, queue) == Counter({b"large": 6})
    assert len(messages_of(service, dead)) == 3


def test_a_queue_that_goes_away_ends_it(service: Service, queue: Queue, dead: Queue, clock: ManualClock) -> None:
    run(service.queues.create("demo", "elsewhere", QueueSettings()))
    bury(service, dead)
    begin(service, queue, queue="elsewhere")
    for _ in range(3):
        run(service.tasks.turn())
    away = run(service.queues.find("demo", "elsewhere"))
    assert away is not None
    run(service.queues.delete(away))

    found = to_its_end(service, queue, clock)

    assert (found.state, found.reason) == ("failed", "no queue is named elsewhere any more")
    assert bodies(service, dead) == ALL


@pytest.mark.parametrize("is_other", [False, True], ids=["here", "at another server"])
def test_a_redrive_leaves_nothing_behind_when_its_queue_is_removed(is_other: bool) -> None:
    removals = 0
    for at in range(1, 20):
        clock = ManualClock()
        stores = DyingStores(clock)
        first, second = server(stores, clock), server(stores, clock)
        jobs = run(first.queues.create("demo", "jobs", QueueSettings(partitions=2)))
        run(first.leases.keep(jobs, GROUP, first.leases.new_group(GroupSettings(), ZERO_ID), None))
        letters = run(first.queues.create("demo", "jobs-dead", QueueSettings(partitions=2)))
        bury(first, letters)
        begin(first, jobs, rate=3)
        remove = (second if is_other else first).queues.delete
        stores.calls, stores.at_call[at] = 0, lambda jobs=jobs, remove=remove: run(remove(jobs))  # type: ignore[misc]
        for _ in range(30):
            clock.advance(min(run(first.tasks.turn()), 60))
        removals += not stores.at_call
        if not stores.at_call:
            assert not stores.leases.list_groups(letters.uuid).wait()
        first.close()
        second.close()
    assert removals > 8


@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_queue_and_its_dead_letter_queue_are_removed_at_once(
    service: Service, queue: Queue, dead: Queue, clock: ManualClock, stores: DyingStores, at: int
) -> None:
    bury(service, dead)
    begin(service, queue)
    for _ in range(3):
        run(service.tasks.turn())
    stores.calls, stores.at_call[at] = 0, lambda: run(service.queues.delete(dead))
    run(service.queues.delete(queue))
    assert not stores.metadata.removed().wait()


def test_a_removal_that_a_death_broke_off_leaves_no_redrive(
    service: Service, queue: Queue, dead: Queue, clock: ManualClock, stores: DyingStores
) -> None:
    bury(service, dead)
    begin(service, queue)
    for _ in range(3):
        run(service.tasks.turn())
    assert stores.leases.list_groups(dead.uuid).wait()
    stores.metadata.remove_queue(queue).wait()
    another = server(stores, clock)
    run(another.queues.finish_removals())
    assert not stores.leases.list_groups(dead.uuid).wait()
    another.close()
