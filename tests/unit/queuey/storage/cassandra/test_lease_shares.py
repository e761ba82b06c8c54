"""Weak groups: what servers hand out at once, none of which knows of the others' last step."""

from __future__ import annotations

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
from queuey.model.lease_rules import LeaseRules
from queuey.model.lease_state import LeaseState
from queuey.model.leases import receive
from queuey.storage.cassandra.lease_shares import ACTIVE_SECONDS, SharedPicking

MESSAGES = 300
MOST_SHARE = 0.02
"""Of messages that are handed out twice (docs/decisions/027)."""
_STEP_SECONDS = 0.003
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

    def hand_out(self, dice: random.Random, most: int) -> tuple[LearnedChange, list[MessageId]]:
        start = next((at for at, one in enumerate(_MESSAGES) if one.id > self.state.frontier), MESSAGES)
        ahead, rules = _AHEAD[start:], LeaseRules(k=self.picking.k(1), share=self.picking.share(1))
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
