"""Move tasks: each message is moved once, wherever the server dies, and never while a receiver has it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from queuey.future import Future, run
from queuey.ids import EPOCH_TICKS, TICKS_PER_SECOND, ZERO_ID
from queuey.model.lease_groups import ORDER_BY_KEY, GroupSettings
from queuey.model.lease_requests import Action, Settle
from queuey.model.lease_steps import GroupStep, LeaseOutcome, LeaseStep
from queuey.service import leases
from queuey.service.tasks import MOVE
from queuey.service.tasks.move import NO_SOURCE
from queuey.storage.leasing import passing
from tests.support.dying_stores import Died
from tests.support.letters import ALL, GROUP, LETTERS, SOURCES, World, new_world


@pytest.fixture
def world() -> Iterator[World]:
    made = new_world()
    yield made
    made.service.close()


def letters() -> list[str]:
    return [SOURCES[number % 2] for number in range(LETTERS)]


@pytest.mark.parametrize("rate", [0, 3])
@pytest.mark.parametrize("is_done", [False, True], ids=["before", "behind"])
def test_each_message_is_moved_once_wherever_the_server_dies(rate: int, *, is_done: bool) -> None:
    deaths = 0
    for dies_at in range(1, 25):
        first = new_world()
        first.bury(*letters())
        first.begin(rate=rate)
        first.stores.dies_at, first.stores.calls, first.stores.is_done = dies_at, 0, is_done
        try:
            first.to_its_end()
        except Died:
            deaths += 1
        first.stores.dies_at = -1
        second = World(first.stores, first.clock)
        second.clock.advance(dies_at % 6 * 60)

        found = second.to_its_end()

        assert found.state == "done"
        assert second.bodies(*SOURCES) == ALL
        assert not second.has_leases()
        assert not second.receive()
        first.service.close()
        second.service.close()
    assert deaths > 8


def test_a_clock_that_is_set_back_does_not_hold_up_a_rate(world: World) -> None:
    world.bury(*letters())
    began = world.clock.elapsed()
    world.begin(rate=0.5)
    while not world.bodies(*SOURCES):
        world.clock.advance(min(run(world.service.tasks.turn()), 60))
    world.clock.step(-86_400)
    assert world.to_its_end().done == LETTERS
    assert 2 * (LETTERS - 2) <= world.clock.elapsed() - began <= 4 * LETTERS


def test_what_a_receiver_has_stays_with_it(world: World) -> None:
    world.bury(*letters())
    held = world.receive(2)

    world.begin()
    found = world.to_its_end()

    assert (found.state, found.done) == ("done", LETTERS - 2)
    assert world.bodies("dead") == Counter(one.message.body for one in held)
    group = world.service.leases.find(world.queue("dead"), GROUP).wait()
    assert group is not None
    settles = {1: [Settle(one.message.id, one.hole.deliveries, Action.ACKNOWLEDGE) for one in held]}
    step = GroupStep(world.queue("dead"), GROUP, None, group.token, settles)
    assert not world.stores.leases.step(LeaseStep([step])).wait().stale


def test_what_is_moved_is_at_no_receiver_meanwhile(world: World) -> None:
    """It is leased to the task from the moment at which the task has chosen it."""
    world.bury(*letters())
    world.begin(rate=3)
    run(world.service.tasks.turn())  # it is taken
    run(world.service.tasks.turn())  # three are moved
    run(world.service.tasks.turn())  # three are chosen, and wait for their second

    left = {one.message.body for one in world.receive()}

    assert len(left) == 1
    assert sum(world.bodies(*SOURCES).values()) == 3
    world.to_its_end()
    assert sum(world.bodies(*SOURCES).values()) == 6
    assert {*world.bodies("dead")} == left


def test_what_has_no_source_stays_and_the_task_says_so(world: World) -> None:
    """The others go back, and what stays may be received at once."""
    world.bury("jobs", "gone", "mails")
    world.send(b"sent")

    world.begin()
    found = world.to_its_end()

    assert (found.state, found.reason, found.done, found.failed) == ("failed", NO_SOURCE, 2, 2)
    assert world.bodies("dead") == Counter([b"1", b"sent"])
    assert sorted(one.message.body for one in world.receive()) == [b"1", b"sent"]


def test_all_messages_go_to_a_queue_that_is_named(world: World) -> None:
    world.make("elsewhere")
    world.bury("jobs", "gone")
    world.send(b"sent")

    world.begin(queue="elsewhere", ttl=500)
    found = world.to_its_end()

    assert (found.state, found.done) == ("done", 3)
    assert world.bodies("elsewhere") == Counter([b"0", b"1", b"sent"])
    assert {(one.expires_ticks - one.ticks) // 10_000_000 for one in world.messages("elsewhere")} == {500}


@pytest.mark.parametrize("begins_anew", [False, True], ids=["forgotten", "begun anew"])
@pytest.mark.parametrize("at", range(1, 4))
def test_nothing_is_lost_if_its_group_is_forgotten_meanwhile(
    world: World, monkeypatch: pytest.MonkeyPatch, at: int, *, begins_anew: bool
) -> None:
    """What the task had received was not moved, though nobody holds it."""
    dead, step = world.queue("dead"), world.stores.leases.step
    world.bury(*letters())
    world.begin()
    world.clock.advance(1)
    world.bury("jobs", begin=LETTERS)  # behind those that are meant
    steps = 0

    def forgotten(asked: LeaseStep) -> Future[LeaseOutcome]:
        nonlocal steps
        found, steps = step(asked), steps + 1
        if steps == at:
            world.stores.leases.forget_group(dead.uuid, GROUP).wait()
            if begins_anew:
                new = world.service.leases.new_group(GroupSettings(), ZERO_ID)
                assert world.stores.leases.keep_group(dead.uuid, GROUP, new, None).wait()
        return found

    monkeypatch.setattr(world.stores.leases, "step", forgotten)
    found = world.to_its_end()

    assert (found.state, found.done) == ("done", LETTERS)
    assert world.bodies(*SOURCES) == ALL
    assert world.bodies("dead") == Counter([b"%d" % LETTERS])


def test_a_paused_group_lets_its_task_wait(world: World) -> None:
    group = world.service.leases.find(world.queue("dead"), GROUP).wait()
    assert group is not None
    until = (world.clock.now_ticks() - EPOCH_TICKS) / TICKS_PER_SECOND + 100
    paused = group._replace(settings=GroupSettings(paused_until=until))
    assert run(world.service.leases.keep(world.queue("dead"), GROUP, paused, group))
    world.bury(*letters())

    world.begin()
    found = world.to_its_end()

    assert (found.state, found.done) == ("done", LETTERS)


def test_later_messages_stay(world: World) -> None:
    world.bury("jobs")
    world.begin()
    world.clock.advance(1)
    world.bury("jobs", begin=1)

    found = world.to_its_end()

    assert (found.state, found.done) == ("done", 1)
    assert [one.message.body for one in world.receive()] == [b"1"]


def test_a_cancelled_task_keeps_no_leases(world: World) -> None:
    world.bury(*letters())
    world.begin(rate=3)
    for _ in range(3):
        run(world.service.tasks.turn())

    run(world.service.tasks.cancel(world.queue("dead"), MOVE))
    found = world.to_its_end()

    assert (found.state, found.done) == ("cancelled", 3)
    assert len(world.receive()) == LETTERS - 3


def test_messages_of_a_key_keep_their_order(world: World) -> None:
    group = world.service.leases.find(world.queue("dead"), GROUP).wait()
    assert group is not None
    ordered = group._replace(settings=GroupSettings(order=ORDER_BY_KEY, per_key=10))
    assert run(world.service.leases.keep(world.queue("dead"), GROUP, ordered, group))
    world.bury(*["jobs"] * 30, key="k")

    world.begin()
    world.to_its_end()

    assert [int(one.body) for one in world.messages("jobs")] == [*range(30)]


def test_what_comes_behind_many_messages_of_a_closed_key_is_moved(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A receive passes over some of them only, in a time that ends."""
    monkeypatch.setattr(passing, "MOST_PASSED_OVER", 100)
    monkeypatch.setattr(leases, "_LOOK_ON_SECONDS", 0.0)
    group = world.service.leases.find(world.queue("dead"), GROUP).wait()
    assert group is not None
    ordered = group._replace(settings=GroupSettings(order=ORDER_BY_KEY))
    assert run(world.service.leases.keep(world.queue("dead"), GROUP, ordered, group))
    world.bury(*["jobs"] * 400, key="k")
    assert len(world.receive(1)) == 1
    world.bury("mails", begin=400)

    world.begin()
    found = world.to_its_end()

    assert (found.state, found.done) == ("done", 1)
    assert world.bodies("mails") == Counter([b"400"])
