"""What receivers are remembered for, and what messages of several partitions that were handed out together."""

from __future__ import annotations

from queuey.ids import TICKS_PER_SECOND, MessageId
from queuey.model.columns import Columns
from queuey.model.holes import LEASED, Hole, together_flags
from queuey.model.lease_codec import decode_changes, encode_change
from queuey.model.lease_requests import Action, Received, ReceiveRequest, Settle
from queuey.model.lease_rules import LeaseRules
from queuey.model.lease_state import Change, LeaseState, changes_of, state_of
from queuey.model.leases import receive, renew, settle
from queuey.model.messages import Message

RULES = LeaseRules()
NEVER = 1 << 60


class Partition:
    """A group's state in a partition with 400 messages."""

    def __init__(self) -> None:
        self.now = 1000 * TICKS_PER_SECOND
        self.state = LeaseState()
        self.changes: list[Change] = []
        self._messages = [Message(ticks, 0, NEVER, None, None, b"") for ticks in range(1, 401)]

    def take(self, change: Change) -> None:
        self.state.take(change)
        self.changes.append(change)

    def look(self, most: int = 1, receiver: str = "w") -> Received:
        ahead = Columns.of([one for one in self._messages if one.id > self.state.frontier][:9])
        return receive(self.state, ReceiveRequest(most, receiver=receiver), RULES, self.now, ahead)

    def due(self) -> list[MessageId]:
        """What the next receive would hand out if there were no new messages."""
        found = receive(self.state, ReceiveRequest(9), RULES, self.now, Columns.of([]))
        return [hole.id for hole in found.again]

    def receive(self, most: int = 1, receiver: str = "w") -> list[Hole]:
        """New leases, a second ago."""
        self.take(self.look(most, receiver).change)
        self.now += TICKS_PER_SECOND
        return [*self.state.holes][-most:]

    def settle(self, hole: Hole, action: Action = Action.ACKNOWLEDGE, seconds: float | None = None) -> None:
        settled = settle(self.state, [Settle(hole.id, hole.deliveries, action, seconds)], RULES, self.now)
        assert not settled.stale
        self.take(settled.change)

    def renew(self, receiver: str, seconds: float) -> None:
        self.state.forget_renewals(self.now)
        self.take(renew(self.state, receiver, seconds, self.now))

    def ends(self, hole: Hole) -> float:
        """In how many seconds a lease runs out."""
        found = self.state.holes.find(hole.id)
        assert found is not None
        return (self.state.visible_at(found) - self.now) / TICKS_PER_SECOND


def test_a_lease_ends_when_its_extension_says_also_behind_a_longer_one_of_its_receiver() -> None:
    partition = Partition()
    first, second = partition.receive(2)
    partition.renew("w", 300)
    partition.settle(first, Action.EXTEND, 5)
    for stored in (partition.changes, [*changes_of(partition.state)]):
        partition.state = state_of(decode_changes(b"".join(map(encode_change, stored))))
        assert (partition.ends(first), partition.ends(second)) == (5, 300)
    partition.now += 5 * TICKS_PER_SECOND
    assert partition.due() == [first.id]

    partition.renew("w", 300)

    assert (partition.ends(first), partition.ends(second)) == (300, 300), "a later one of all counts again"


def test_names_that_have_no_message_any_more_take_no_room() -> None:
    """G27: a receiver may give another name with each request."""
    partition = Partition()
    (held,) = partition.receive(receiver="stays")
    partition.renew("stays", 40_000)
    for number in range(300):
        (hole,) = partition.receive(receiver=f"w{number}")
        partition.renew(f"w{number}", 40_000)
        partition.settle(hole)
    partition.state.forget_renewals(partition.now)
    assert len(partition.state.renewals) <= 101
    assert partition.ends(held) > 39_000

    partition.now += 40_000 * TICKS_PER_SECOND
    partition.state.forget_renewals(partition.now)
    assert not partition.state.renewals


def test_what_comes_beside_other_partitions_counts_all_messages_of_its_receive() -> None:
    """G28: their number says in how small receives they come back."""
    partition = Partition()
    partition.take(partition.look(4).with_others(8).change)
    assert {hole.flags for hole in partition.state.holes} == {LEASED | together_flags(8)}
    partition.now += 60 * TICKS_PER_SECOND
    assert len(partition.due()) == 1
