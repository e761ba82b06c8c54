"""The compact table of holes does what a dict of them would do."""

from __future__ import annotations

import sys
from array import array

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from queuey.ids import MAX_ID, MessageId
from queuey.model import holes
from queuey.model.holes import BLOCK_TYPES, LEASED, MOST_FAILURES, Hole, HoleBlock, HoleTable
from queuey.model.visible_times import VisibleTimes

ids = st.builds(MessageId, st.integers(0, 40), st.integers(-2, 2))
made = st.builds(
    Hole,
    ids,
    st.integers(0, 1 << 60),
    st.integers(0, 1 << 60),
    st.integers(0, 1 << 60),
    st.integers(0, (1 << 32) - 1),
    st.integers(0, MOST_FAILURES),
    st.integers(0, 15),
    st.sampled_from(["", "a", "b", "c"]),
    st.sampled_from([None, None, "k"]),
)


class Table(RuleBasedStateMachine):
    """A table in chunks of four, beside a dict."""

    def __init__(self) -> None:
        super().__init__()
        self.before, holes._CHUNK = holes._CHUNK, 4
        self.table = HoleTable()
        self.known: dict[MessageId, Hole] = {}

    def teardown(self) -> None:
        holes._CHUNK = self.before

    @rule(hole=made)
    def put(self, hole: Hole) -> None:
        self.table.put(hole)
        self.known[hole.id] = hole

    @rule(message_id=ids)
    def remove(self, message_id: MessageId) -> None:
        assert self.table.remove(message_id) == (self.known.pop(message_id, None) is not None)

    @rule(number=st.integers(1, 20), hole=made)
    def extend(self, number: int, hole: Hole) -> None:
        first = max(self.known, default=MessageId(0, 0)).ticks + 1
        ticks, tails = array("q", range(first, first + number)), array("q", [0]) * number
        self.table.extend(ticks, tails, hole)
        for tick in ticks:
            self.known[MessageId(tick, 0)] = hole._replace(id=MessageId(tick, 0), key=None)

    @rule(first=st.integers(0, 40), number=st.integers(1, 9), gaps=st.sets(st.integers(0, 8), max_size=4))
    def remove_in_order(self, first: int, number: int, gaps: set[int]) -> None:
        some = sorted(self.known)[first : first + number]
        wanted = [one for at, one in enumerate(some) if at not in gaps]
        leases, removed = self.table.leases_of(wanted), self.table.remove_all(wanted)
        if not wanted:
            assert leases is None
            assert removed is None
            return
        holes_of = [*map(self.known.pop, wanted)]
        said = [hole.deliveries << 24 | hole.failures << 8 | hole.flags for hole in holes_of]
        assert leases is not None
        assert [[*column] for column in leases] == [said, [hole.leased_at for hole in holes_of]]
        assert removed is not None
        assert [sorted(column) for column in removed] == [sorted(said), sorted(hole.visible_at for hole in holes_of)]

    @rule(wanted=st.lists(ids, min_size=1, max_size=5))
    def remove_others(self, wanted: list[MessageId]) -> None:
        """Nothing is removed if they do not rise, or one is no hole."""
        if wanted != sorted({*wanted}) or not self.known.keys() >= {*wanted}:
            assert self.table.leases_of(wanted) is None
            assert self.table.remove_all(wanted) is None

    @rule(after=ids)
    def write_and_read_blocks(self, after: MessageId) -> None:
        """Blocks from an id on make another table what this one is behind the id."""
        other = HoleTable()
        for hole in self.known.values():
            other.put(hole._replace(deliveries=hole.deliveries ^ 1))
        at = after
        while at < MAX_ID:
            block = self.table.block(at)
            assert len({*block.names}) == len(block.names)
            other.put_block(block)
            at = block.upto
        wanted = {
            one: hole if one > after else hole._replace(deliveries=hole.deliveries ^ 1)
            for one, hole in self.known.items()
        }
        assert list(other) == [wanted[message_id] for message_id in sorted(wanted)]
        assert len(other) == len(wanted)

    @rule(after=ids, upto=ids)
    def replace(self, after: MessageId, upto: MessageId) -> None:
        """A block without holes removes a range."""
        if after < upto:
            nothing = [array(code) for code in BLOCK_TYPES]
            self.table.put_block(HoleBlock(after, upto, nothing, [], None))
            self.known = {one: hole for one, hole in self.known.items() if not after < one <= upto}

    @rule(message_id=ids)
    def look(self, message_id: MessageId) -> None:
        assert self.table.find(message_id) == self.known.get(message_id)
        assert [hole.id for hole in self.table.after(message_id)] == [
            one for one in sorted(self.known) if one > message_id
        ]

    @invariant()
    def is_the_same(self) -> None:
        assert list(self.table) == [self.known[message_id] for message_id in sorted(self.known)]
        assert (len(self.table), self.table.first()) == (len(self.known), min(self.known, default=None))


TestTable = Table.TestCase


def test_a_name_that_nobody_has_takes_no_room() -> None:
    table = HoleTable()
    for number in range(1000):
        table.put(Hole(MessageId(1, 0), 0, receiver=f"worker-{number}"))
    assert len(table._names._names) <= 3


def test_a_leased_message_takes_less_than_100_bytes() -> None:
    """Of the table and of the time at which it falls due; the target of issue 20."""
    number = 50_000
    table = HoleTable()
    times = VisibleTimes(table)
    for tick in range(number):
        hole = Hole(MessageId(tick, 7), 10**17 + tick, tick, tick, 1, 0, LEASED, "worker")
        table.put(hole)
        times.add(hole.visible_at, hole.id)
    columns = [column for chunk in table._chunks for column in chunk.columns()]
    slots = [column for slot in times._slots.values() for column in (slot, slot.ids, slot.rows)]
    size = sum(map(sys.getsizeof, [*columns, *slots, table._lows, table._chunks]))
    assert size / number < 100


def test_a_lease_is_known_by_its_delivery() -> None:
    table = HoleTable()
    hole = Hole(MessageId(5, 0), 90, 40, 10, 2, 0, LEASED, "receiver")
    table.put(hole)
    table.put(hole._replace(id=MessageId(6, 0), flags=0))

    assert table.leased_since(MessageId(5, 0), 2) == 40
    assert table.leased_since(MessageId(5, 0), 1) is None  # it was handed out again
    assert table.leased_since(MessageId(6, 0), 2) is None  # it was released
    assert table.leased_since(MessageId(4, 0), 2) is None
    assert table.leased_since(MessageId(7, 0), 2) is None
