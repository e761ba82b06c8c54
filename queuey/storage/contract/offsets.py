"""Offsets: how far groups have got, and which owners may change that (G14)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from uuid import UUID, uuid4

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from queuey.clock import ManualClock
from queuey.errors import Conflict, InvalidParameter, OffsetMovesBack, QueueNotFound, StaleGeneration
from queuey.ids import MessageId, tail_from_low
from queuey.model import MAX_GENERATION, MAX_GENERATION_STEP, Offset, OffsetChange, OffsetMove
from queuey.storage import MessageStore, OffsetStore
from queuey.storage.contract.common import SECOND, StoreContract, done, drive_histories

START = 139_000_000_000_000_000


def at(number: int) -> MessageId:
    """Messages in their order.

    They are pairs of one moment, which differ in bytes that count as signed.
    """
    moment, second = divmod(number, 2)
    return MessageId(START + moment * SECOND, tail_from_low(0x8001_0000_0000_0000 if second else 0x80FF_0000_0000_0000))


class Group:
    """One group of one queue, with what many tests do to it."""

    def __init__(self, store: OffsetStore, name: str = "workers", queue: UUID | None = None) -> None:
        self.store = store
        self.name = name
        self.queue = queue or uuid4()

    def offsets(self) -> dict[int, Offset]:
        found = done(self.store.read_offsets(self.queue, self.name))
        return dict(found)

    def ids(self) -> dict[int, MessageId | None]:
        return {number: offset.id for number, offset in self.offsets().items()}

    def change(self, change: OffsetChange) -> Mapping[int, OffsetMove]:
        return done(self.store.change_offsets(self.queue, self.name, change))

    def commit(self, ids: Mapping[int, MessageId | None], generation: int = 0) -> Mapping[int, OffsetMove]:
        return self.change(OffsetChange(ids, generation))

    def take_over(self, *partitions: int, generation: int) -> dict[int, MessageId | None]:
        """Claim partitions; returns the ids to go on from."""
        moves = self.commit(dict.fromkeys(partitions), generation)
        return {number: move.after.id for number, move in moves.items()}

    def reset(self, ids: Mapping[int, MessageId | None]) -> Mapping[int, OffsetMove]:
        return self.change(OffsetChange(ids, resets=True))

    def forget(self) -> None:
        done(self.store.forget_group(self.queue, self.name))


class Committing(StoreContract):
    """Every sentence of :class:`~queuey.storage.OffsetStore`."""

    @pytest.fixture
    def group(self, offsets: OffsetStore) -> Group:
        return Group(offsets)

    # Committing

    def test_what_was_committed_is_read(self, group: Group, clock: ManualClock) -> None:
        assert group.offsets() == {}

        group.commit({1: at(3), 200: at(0)}, 7)
        first = clock.now_ticks()
        clock.advance(5)
        moves = group.commit({1: at(4)}, 7)

        assert moves == {1: OffsetMove(Offset(at(3), 7, first), Offset(at(4), 7, clock.now_ticks()))}
        assert group.offsets() == {1: Offset(at(4), 7, clock.now_ticks()), 200: Offset(at(0), 7, first)}

    def test_a_generation_rises_by_so_much_at_once_that_there_is_always_a_greater_one(self, group: Group) -> None:
        """An owner at the greatest generation would end the group.

        No other owner and no reset could fence it off.
        """
        group.commit({1: at(1)}, 2)
        before = group.offsets()

        for ids in ({1: at(2)}, {1: None}, {1: at(2), 2: None}):
            with pytest.raises(InvalidParameter, match="nothing was changed"):
                group.commit(ids, MAX_GENERATION)
        with pytest.raises(InvalidParameter):
            group.commit({1: at(2)}, 2 + MAX_GENERATION_STEP + 1)

        assert group.offsets() == before
        group.commit({1: at(2)}, 2 + MAX_GENERATION_STEP)
        group.reset({1: at(0)})
        with pytest.raises(StaleGeneration):
            group.commit({1: at(3)}, 2 + MAX_GENERATION_STEP)

    def test_committing_the_same_again_is_no_error(self, group: Group) -> None:
        group.commit({1: at(3)}, 2)
        group.commit({1: at(3)}, 2)

        assert group.ids() == {1: at(3)}

    @pytest.mark.parametrize("lower", [0, 2])
    def test_an_offset_never_goes_back(self, group: Group, lower: int) -> None:
        """This holds within one moment too, where the tail decides, as a signed number."""
        group.commit({1: at(3), 2: at(0)}, 2)

        with pytest.raises(OffsetMovesBack, match="partition 1"):
            group.commit({2: at(9), 1: at(lower)}, 3)

        assert group.ids() == {1: at(3), 2: at(0)}
        assert {offset.generation for offset in group.offsets().values()} == {2}

    def test_a_former_owner_changes_nothing(self, group: Group) -> None:
        group.commit({1: at(1), 2: at(1)}, 4)
        group.take_over(2, generation=5)

        with pytest.raises(StaleGeneration, match=r"partition 2 .*generation 5.*has 4"):
            group.commit({1: at(2), 2: at(2)}, 4)

        assert group.ids() == {1: at(1), 2: at(1)}
        group.commit({1: at(2)}, 4)
        group.commit({2: at(2)}, 5)
        assert group.ids() == {1: at(2), 2: at(2)}

    def test_who_takes_over_is_told_where_to_go_on(self, group: Group, clock: ManualClock) -> None:
        group.commit({1: at(1)}, 1)
        before = group.offsets()[1]
        clock.advance(5)

        assert group.take_over(1, 2, generation=2) == {1: at(1), 2: None}
        assert group.offsets() == {1: before._replace(generation=2), 2: Offset(None, 2)}

    def test_who_takes_over_again_is_told_the_same(self, group: Group) -> None:
        """The answer was lost, and the request is repeated."""
        group.commit({1: at(1)}, 1)

        assert group.take_over(1, generation=2) == group.take_over(1, generation=2) == {1: at(1)}
        with pytest.raises(StaleGeneration):
            group.take_over(1, generation=1)

    def test_take_over_and_commit_in_one_request(self, group: Group) -> None:
        group.commit({1: at(1), 2: at(1)}, 1)

        group.commit({1: None, 2: at(2)}, 2)

        assert group.ids() == {1: at(1), 2: at(2)}
        assert {offset.generation for offset in group.offsets().values()} == {2}

    # Resetting

    def test_a_reset_goes_anywhere_and_stops_who_is_at_work(self, group: Group, clock: ManualClock) -> None:
        group.commit({1: at(5), 2: at(5), 3: at(5)}, 3)
        clock.advance(5)

        moves = group.reset({1: at(2), 2: None, 4: at(1)})

        assert moves[1].before.id == at(5)
        assert moves[1].after == Offset(at(2), 4, clock.now_ticks())
        assert group.ids() == {1: at(2), 2: None, 3: at(5), 4: at(1)}
        for partition in (1, 2):
            with pytest.raises(StaleGeneration):
                group.commit({partition: at(6)}, 3)
        group.commit({3: at(6)}, 3)
        assert group.take_over(1, 2, generation=4) == {1: at(2), 2: None}

    # Groups

    def test_groups_and_queues_have_offsets_of_their_own(self, offsets: OffsetStore, group: Group) -> None:
        others = [Group(offsets, name, group.queue) for name in ("Workers", "workers-", "worker", "workers.1")]
        elsewhere = Group(offsets, group.name)
        group.commit({1: at(9)}, 9)

        for number, other in enumerate([*others, elsewhere]):
            assert other.offsets() == {}
            other.commit({1: at(number)})

        assert group.ids() == {1: at(9)}
        assert [other.ids() for other in others] == [{1: at(number)} for number in range(4)]
        assert done(offsets.list_groups(elsewhere.queue)) == [elsewhere.name]

    def test_groups_are_listed_page_by_page(self, offsets: OffsetStore) -> None:
        queue = uuid4()
        names = sorted(f"{letter}{number}" for letter in "Zaz_" for number in range(60))
        for name in names:
            Group(offsets, name, queue).take_over(1, 2, generation=1)

        assert done(offsets.list_groups(queue)) == names
        assert done(offsets.list_groups(queue, limit=7)) == names[:7]
        assert done(offsets.list_groups(queue, start=names[7], limit=150)) == names[7:157]
        assert done(offsets.list_groups(queue, start="zz")) == []
        assert done(offsets.list_groups(uuid4())) == []

    def test_a_group_that_is_forgotten_is_no_more(self, offsets: OffsetStore, group: Group) -> None:
        kept = Group(offsets, "kept", group.queue)
        kept.commit({1: at(1)}, 1)
        for _ in range(2):
            group.commit({1: at(5), 2: at(5)}, 3)
            group.forget()

            assert group.offsets() == {}
            assert done(offsets.list_groups(group.queue)) == ["kept"]

        group.forget()
        group.commit({2: at(1)})
        assert group.ids() == {2: at(1)}
        assert done(offsets.list_groups(group.queue)) == ["kept", group.name]
        assert kept.ids() == {1: at(1)}

    def test_a_dropped_queue_takes_its_offsets_with_it(
        self, store: MessageStore, offsets: OffsetStore, group: Group
    ) -> None:
        other = Group(offsets, "workers")
        other.commit({1: at(1)})
        group.commit({1: at(1)})

        done(store.drop(group.queue))

        assert group.offsets() == {}
        assert done(offsets.list_groups(group.queue)) == []
        with pytest.raises(QueueNotFound):
            group.commit({1: at(2)})
        assert other.ids() == {1: at(1)}

    # Many at once

    def test_owners_of_different_partitions_do_not_undo_each_other(self, offsets: OffsetStore, group: Group) -> None:
        def work(partition: int) -> None:
            for number in range(5):
                group.commit({partition: at(number)}, partition)

        _at_once(*(lambda partition=partition: work(partition) for partition in range(1, 7)))

        assert group.offsets().keys() == set(range(1, 7))
        assert set(group.ids().values()) == {at(4)}
        assert [offset.generation for _, offset in sorted(group.offsets().items())] == [*range(1, 7)]
        assert done(offsets.list_groups(group.queue)) == [group.name]

    def test_of_those_who_claim_at_once_the_greatest_generation_stays(self, group: Group) -> None:
        group.commit({1: at(0), 2: at(0)}, 0)
        accepted: list[int] = []

        def claim(generation: int) -> None:
            try:
                group.take_over(1, 2, generation=generation)
                group.commit({1: at(generation), 2: at(generation)}, generation)
            except Conflict:
                return
            accepted.append(generation)

        _at_once(*(lambda generation=generation: claim(generation) for generation in range(1, 7)))

        assert max(accepted) == 6
        assert {offset.generation for offset in group.offsets().values()} == {6}
        assert group.ids() == {1: at(6), 2: at(6)}

    def test_any_history_of_offsets_is_as_the_model_says(self, offsets: OffsetStore, clock: ManualClock) -> None:
        drive_histories(lambda: OffsetHistory(offsets, clock), self.histories)


def _at_once(*work: Callable[[], None]) -> None:
    threads = [threading.Thread(target=one) for one in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


_GROUPS = st.sampled_from(["a", "b"])
_PARTITIONS = st.integers(1, 3)
_IDS = st.dictionaries(_PARTITIONS, st.none() | st.integers(0, 12), min_size=1)
_GENERATIONS = st.integers(0, 6)


class OffsetHistory(RuleBasedStateMachine):
    """Any history of two groups of one queue reads like a dict, and keeps G14."""

    def __init__(self, store: OffsetStore, clock: ManualClock) -> None:
        super().__init__()
        self.store = store
        self.clock = clock
        self.queue = uuid4()
        self.model: dict[str, dict[int, tuple[int, int]]] = {}
        """By group and partition: the message's number, -1 before the first, and the generation."""

    def _group(self, name: str) -> Group:
        return Group(self.store, name, self.queue)

    def _refused(self, name: str, ids: Mapping[int, int | None], generation: int) -> type[Conflict] | None:
        stored = {number: self.model.get(name, {}).get(number, (-1, 0)) for number in ids}
        if any(claimed > generation for _, claimed in stored.values()):
            return StaleGeneration
        if any(ids[number] is not None and (ids[number] or 0) < last for number, (last, _) in stored.items()):
            return OffsetMovesBack
        return None

    @rule(name=_GROUPS, ids=_IDS, generation=_GENERATIONS)
    def commit(self, name: str, ids: dict[int, int | None], generation: int) -> None:
        self.clock.advance(1)
        wanted = {number: None if id_ is None else at(id_) for number, id_ in ids.items()}
        refused = self._refused(name, ids, generation)
        if refused is not None:
            with pytest.raises(refused):
                self._group(name).commit(wanted, generation)
            return
        moves = self._group(name).commit(wanted, generation)
        stored = self.model.setdefault(name, {})
        for number, id_ in ids.items():
            last, before = stored.get(number, (-1, 0))
            stored[number] = (last if id_ is None else id_, generation)
            assert moves[number].before[:2] == (_id(last), before)
            assert moves[number].after[:2] == (_id(stored[number][0]), generation)

    @rule(name=_GROUPS, ids=_IDS)
    def reset(self, name: str, ids: dict[int, int | None]) -> None:
        self._group(name).reset({number: None if id_ is None else at(id_) for number, id_ in ids.items()})
        stored = self.model.setdefault(name, {})
        for number, id_ in ids.items():
            stored[number] = (-1 if id_ is None else id_, stored.get(number, (-1, 0))[1] + 1)

    @rule(name=_GROUPS)
    def forget(self, name: str) -> None:
        self._group(name).forget()
        self.model.pop(name, None)

    @invariant()
    def offsets_are_as_the_model_says(self) -> None:
        for name in "ab":
            found = {number: offset[:2] for number, offset in self._group(name).offsets().items()}
            expected = self.model.get(name, {})
            assert found == {number: (_id(last), generation) for number, (last, generation) in expected.items()}

    @invariant()
    def groups_are_listed(self) -> None:
        found: Sequence[str] = done(self.store.list_groups(self.queue))
        assert found == sorted(self.model)


def _id(number: int) -> MessageId | None:
    return None if number < 0 else at(number)
