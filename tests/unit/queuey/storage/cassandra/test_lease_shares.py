"""Weak groups: what servers hand out at once, none of which knows of the others' last step."""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Iterator

import pytest

from qdo.measure import disorder
from queuey.ids import TICKS_PER_SECOND, MessageId
from queuey.model import Columns, Message
from queuey.model.lease_codec import encode_change
from queuey.model.lease_merging import LearnedChange, Merger
from queuey.model.lease_requests import ReceiveRequest
from queuey.model.lease_rules import LeaseRules, Share
from queuey.model.lease_state import LeaseState
from queuey.model.leases import receive
from queuey.storage.cassandra.lease_shares import ACTIVE_SECONDS, SharedPicking

MESSAGES = 300
MOST_SHARE = 0.02
"""Of messages that are handed out twice (docs/decisions/027)."""
_STEP_SECONDS = 0.003
_ARRIVAL_SECONDS = 1 / 60
_MESSAGES = [Message(ticks, 0, 1 << 60, None, None, b"") for ticks in range(1, MESSAGES + 1)]
_AHEAD = Columns.of(_MESSAGES)


class _Server:
    """Hands out the messages of one partition."""

    def __init__(self, lane: int) -> None:
        self.lane, self.state, self.merger, self.picking = lane, LeaseState(), Merger(), SharedPicking(lane)
        self.heard: list[tuple[int, LearnedChange]] = []

    def learn(self, now: float) -> None:
        self.picking.now = now
        for lane, learned in self.heard:
            self.picking.hands_out(lane, 1)
            duplicates = self.merger.learn(self.state, learned, self.state.take)
            self.picking.spread(1).note(duplicates=duplicates)
        self.heard.clear()

    def hand_out(
        self, dice: random.Random, most: int, *, come: int = MESSAGES
    ) -> tuple[LearnedChange, list[MessageId]]:
        """:param come: how many messages are there already."""
        start = next((at for at, one in enumerate(_MESSAGES) if one.id > self.state.frontier), MESSAGES)
        ahead, rules = _AHEAD[start:come], LeaseRules(k=self.picking.k(1), share=self.picking.share(1))
        wanted, now = ReceiveRequest(most, 600.0), round(self.picking.now * TICKS_PER_SECOND)
        found = receive(self.state, wanted, rules, now, ahead, dice.randrange)
        if rules.share is not None:
            self.picking.note_shared(1, found)
        self.picking.spread(1).note(handed=found.number)
        learned = LearnedChange(self.state.frontier, found.change)
        self.state.take(found.change)
        self.merger.made(encode_change(found.change))
        ids = [hole.id for hole in found.again] + [ahead[at].id for at in found.fresh]
        return learned, ids


def handed_out(servers: list[_Server], dice: random.Random, most: int = 1) -> Iterator[MessageId]:
    """Step by step, all servers choose at the same moment, until everything is handed out."""
    left, now = {one.id for one in _MESSAGES}, 1.0
    while left:
        now += _STEP_SECONDS
        for server in servers:
            server.learn(now)
        made = [(server, *server.hand_out(dice, most)) for server in servers]
        for server, learned, ids in made:
            left -= {*ids}
            yield from ids
            for other in servers:
                if other is not server:
                    other.heard.append((server.lane, learned))


def servers_that_know_each_other(number: int, dice: random.Random) -> list[_Server]:
    servers = [_Server(dice.getrandbits(31)) for _ in range(number)]
    for server in servers:
        server.picking.now = 1.0
        for other in servers:
            if other is not server:
                server.picking.comes(other.lane)
    return servers


def _share(server: _Server) -> Share:
    share = server.picking.share(1)
    assert share is not None
    return share


def again(handed: list[MessageId]) -> float:
    """The share of messages that were handed out twice."""
    return (len(handed) - MESSAGES) / MESSAGES


@pytest.mark.parametrize(("number", "most"), [(1, 1), (3, 1), (8, 1), (3, 10)])
def test_few_messages_are_handed_out_twice(number: int, most: int) -> None:
    dice = random.Random(number)
    found = [[*handed_out(servers_that_know_each_other(number, dice), dice, most)] for _ in range(4)]
    assert sum(map(again, found)) / len(found) <= MOST_SHARE * (number > 1)


def test_servers_that_do_not_know_of_each_other_find_out() -> None:
    dice = random.Random(3)
    found = [[*handed_out([_Server(dice.getrandbits(31)) for _ in range(3)], dice)] for _ in range(4)]
    assert sum(map(again, found)) / len(found) <= 2 * MOST_SHARE


def test_little_gets_out_of_order() -> None:
    dice = random.Random(4)
    first = dict.fromkeys(handed_out(servers_that_know_each_other(3, dice), dice))
    _, displacement = disorder([one.ticks for one in first])
    assert displacement < 15


def trickled(
    servers: list[_Server], dice: random.Random, *, step_seconds: float, spread: float = 0.2
) -> Iterator[MessageId]:
    """Messages come one by one, and there is a receiver at each server; each that got one settles it.

    :param step_seconds: a usual step.
    :param spread: of steps, as the standard deviation of its logarithm.

    A step learns what others have stored when it begins, and is stored when it ends.
    """
    stored: list[tuple[float, _Server, LearnedChange]] = []
    turns = [(1.0 + at / 1000, at) for at in range(len(servers))]
    heard = dict.fromkeys(range(len(servers)), 0)
    left = {one.id for one in _MESSAGES}
    while left:
        now, at = heapq.heappop(turns)
        server, end = servers[at], now + step_seconds * dice.lognormvariate(0.0, spread)
        while heard[at] < len(stored) and stored[heard[at]][0] <= now:
            _, other, learned = stored[heard[at]]
            heard[at] += 1
            if other is not server:
                server.heard.append((other.lane, learned))
        server.learn(now)
        learned, ids = server.hand_out(dice, 1, come=round((now - 1) / _ARRIVAL_SECONDS))
        if ids:
            stored.append((end, server, learned))
            stored.sort(key=lambda one: one[0])
            left -= {*ids}
            yield from ids
        server.picking.stored(end)
        heapq.heappush(turns, (end + (step_seconds if ids else 0.0), at))


@pytest.mark.parametrize("spread", [0.2, 0.7])
@pytest.mark.parametrize("number", [2, 3, 8])
def test_few_are_handed_out_twice_where_nearly_nothing_waits(number: int, spread: float) -> None:
    dice = random.Random(number)
    found = [
        [*trickled(servers_that_know_each_other(number, dice), dice, step_seconds=0.01, spread=spread)]
        for _ in range(2)
    ]
    assert sum(map(again, found)) / len(found) <= MOST_SHARE


def test_a_message_that_its_server_does_not_take_is_taken_by_the_others_one_by_one() -> None:
    dice = random.Random(7)
    servers = servers_that_know_each_other(4, dice)
    first = _MESSAGES[0].id
    owner, *others = sorted(servers, key=lambda server: _share(server).rank(first))
    taken = []
    for at in range(100):
        for server in others:
            server.picking.now = 1.0 + at * _STEP_SECONDS
            if server not in taken and server.hand_out(dice, 1, come=1)[1]:
                taken.append(server)
    assert taken == others
    assert owner not in taken


def test_without_shares_many_are_handed_out_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SharedPicking, "share", lambda picking, partition: None)
    dice = random.Random(5)
    assert again([*handed_out(servers_that_know_each_other(3, dice), dice)]) > MOST_SHARE


def test_a_server_that_hands_out_nothing_more_leaves_its_share_to_the_others() -> None:
    """Its messages wait a moment, and no longer than it takes it to count as gone in any case."""
    dice = random.Random(6)
    (here, _) = servers_that_know_each_other(2, dice)
    assert Counter(handed_out([here], dice)).most_common(1)[0][1] == 1
    assert here.picking.now < ACTIVE_SECONDS
    here.picking.now += ACTIVE_SECONDS
    assert here.picking.share(1) is None
