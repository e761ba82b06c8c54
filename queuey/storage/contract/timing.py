"""Time: the watermark, messages due later, expiry, and clocks that are set back."""

from __future__ import annotations

from queuey.clock import ManualClock
from queuey.ids import MessageId
from queuey.model import Location, ReadRequest, Span
from queuey.storage import MessageStore
from queuey.storage.contract.common import SECOND, STRONG, QueueLog, StoreContract, done, draft


class Scheduling(StoreContract):
    """:meth:`MessageStore.watermark`, due times and TTLs."""

    # The watermark

    def test_an_acknowledged_message_can_be_read_once_the_watermark_passed_it(
        self, log: QueueLog, store: MessageStore, clock: ManualClock
    ) -> None:
        (id_,) = log.add(b"x")

        clock.advance(60)

        assert store.watermark(STRONG) >= id_.ticks
        assert log.bodies() == [b"x"]

    def test_no_message_is_acknowledged_at_or_behind_a_watermark_served_before(
        self, log: QueueLog, store: MessageStore, clock: ManualClock
    ) -> None:
        for step in (0.0, 0.00001, 5.0, -5.0, 0.0, -60.0, 0.0, 100.0):
            clock.step(step)
            served = store.watermark(STRONG)

            placed = log.append(draft(), draft(due_ticks=served), draft(due_ticks=served + 1), draft()).placed

            assert all(one.id.ticks > served for one in placed)

    def test_the_watermark_never_falls(self, log: QueueLog, store: MessageStore, clock: ManualClock) -> None:
        served = [store.watermark(STRONG)]
        for step in (5.0, -3.0, -60.0, 0.5, 0.5):
            clock.step(step)
            served.append(store.watermark(STRONG))
            log.add(b"x")
            served.append(store.watermark(STRONG))

        assert served == sorted(served)

    def test_the_watermark_follows_the_clock_without_any_append(self, log: QueueLog, clock: ManualClock) -> None:
        before = log.watermark()

        clock.advance(100)

        assert log.watermark() - before == 100 * SECOND

    def test_ids_rise_when_the_clock_is_set_back(self, log: QueueLog, clock: ManualClock) -> None:
        """G4: an hour back, and no order is lost and nothing is hidden."""
        ids = log.add(b"a", b"b")
        clock.step(-3600)
        ids += log.add(b"c")
        clock.advance(60)
        ids += log.add(b"d")
        clock.advance(3600)
        ids += log.add(b"e")

        assert ids == sorted(set(ids))
        assert log.bodies() == [b"a", b"b", b"c", b"d", b"e"]

    # Messages due later (G13)

    def test_a_message_appears_when_it_is_due_and_not_before(self, log: QueueLog, clock: ManualClock) -> None:
        due = clock.now_ticks() + 60 * SECOND
        (placed,) = log.append(draft(b"later", due_ticks=due)).placed

        assert placed.id.ticks == due
        assert log.bodies() == []
        clock.advance(59.9)
        assert log.bodies() == []
        clock.advance(0.1)
        assert log.bodies() == [b"later"]

    def test_a_draft_due_now_or_in_the_past_is_raised_to_now(self, log: QueueLog, clock: ManualClock) -> None:
        before = log.store.watermark(STRONG)

        log.append(draft(b"past", due_ticks=clock.now_ticks() - 3600 * SECOND), draft(b"now", due_ticks=before))

        assert log.bodies() == [b"past", b"now"]
        until = before + round((log.store.read_delay_seconds + 1) * SECOND)
        assert all(before < message.ticks < until for message in log.read().messages)

    def test_a_message_due_later_lies_between_those_of_its_moment(self, log: QueueLog, clock: ManualClock) -> None:
        log.append(draft(b"second", due_ticks=clock.now_ticks() + 10 * SECOND), draft(b"first"))
        clock.advance(20)
        log.add(b"third")

        assert log.bodies() == [b"first", b"second", b"third"]

    def test_messages_due_at_once_are_in_the_order_of_their_appends(self, log: QueueLog, clock: ManualClock) -> None:
        due = clock.now_ticks() + 10 * SECOND
        log.append(draft(b"1", due_ticks=due), draft(b"2", due_ticks=due), draft(b"3", due_ticks=due))
        clock.advance(1)
        log.append(draft(b"4", due_ticks=due))
        log.append(draft(b"5", due_ticks=due), draft(b"6", due_ticks=due))
        clock.advance(60)

        assert log.bodies() == [b"1", b"2", b"3", b"4", b"5", b"6"]

    def test_messages_due_a_tick_apart_are_all_kept(self, log: QueueLog, clock: ManualClock) -> None:
        due = clock.now_ticks() + 10 * SECOND
        ticks = [due, due, due + 1, due + 1, due + 2, due, due + 1]

        placed = log.append(*(draft(b"%d" % n, due_ticks=tick) for n, tick in enumerate(ticks))).placed

        clock.advance(60)
        assert len({one.id for one in placed}) == len(ticks)
        assert sorted(log.bodies()) == [b"%d" % number for number in range(len(ticks))]

    def test_a_delete_cancels_a_message_that_is_not_due(self, log: QueueLog, clock: ManualClock) -> None:
        due = clock.now_ticks() + 10 * SECOND
        cancelled, _ = log.append(draft(b"cancelled", due_ticks=due), draft(b"kept", due_ticks=due)).placed

        log.delete((1, cancelled.id))

        clock.advance(60)
        assert log.bodies() == [b"kept"]

    def test_a_message_due_in_a_year_keeps(self, log: QueueLog, clock: ManualClock) -> None:
        log.append(draft(b"in a year", due_ticks=clock.now_ticks() + 366 * 86_400 * SECOND, ttl_seconds=60))

        clock.advance(366 * 86_400 - 1)
        assert log.bodies() == []
        clock.advance(2)
        assert log.bodies() == [b"in a year"]

    def test_a_message_not_yet_due_counts_as_scheduled(self, log: QueueLog, clock: ManualClock) -> None:
        log.append(draft(), draft(due_ticks=clock.now_ticks() + 10 * SECOND))

        assert log.inspect(1)[0][:2] == (2, 1)
        clock.advance(10)
        assert log.inspect(1)[0][:2] == (2, 0)

    # Expiry (G8)

    def test_a_ttl_counts_from_the_moment_the_message_is_due(self, log: QueueLog, clock: ManualClock) -> None:
        log.append(draft(b"later", ttl_seconds=5, due_ticks=clock.now_ticks() + 60 * SECOND), draft(ttl_seconds=5))

        clock.advance(60)
        (message,) = log.read().messages
        assert message.body == b"later"
        assert message.expires_ticks == message.ticks + 5 * SECOND

    def test_a_message_is_served_until_its_expiry_and_never_from_then_on(
        self, log: QueueLog, clock: ManualClock
    ) -> None:
        log.append(draft(ttl_seconds=10))
        (message,) = log.read().messages
        partition, span = log.queue.partition(1), Span(upto=message.id)

        def read_at(now_ticks: int) -> int:
            page = done(log.store.read(ReadRequest(partition, span, 1), now_ticks=now_ticks))
            (found,) = done(log.store.fetch(log.queue, [Location(1, message.id)], now_ticks=now_ticks))
            (state,) = done(log.store.inspect([partition], now_ticks=now_ticks))
            assert len(page.messages) == state.depth == (found is not None)
            return state.depth

        assert read_at(message.expires_ticks - 1) == 1
        assert read_at(message.expires_ticks) == 0
        clock.advance(11)
        assert log.bodies() == []

    def test_the_longest_ttl_is_kept(self, log: QueueLog, clock: ManualClock) -> None:
        log.append(draft(b"kept", ttl_seconds=1 << 25), draft(b"gone", ttl_seconds=(1 << 25) - 2))

        clock.advance((1 << 25) - 1)
        assert log.bodies() == [b"kept"]
        clock.advance(2)
        assert log.bodies() == []

    def test_room_of_expired_messages_is_used_again_without_harm(self, log: QueueLog, clock: ManualClock) -> None:
        for turn in range(3):
            log.append(*(draft(b"%d" % turn, ttl_seconds=5) for _ in range(600)))
            log.append(draft(b"long %d" % turn, ttl_seconds=60))
            clock.advance(10)

        assert log.bodies() == [b"long 0", b"long 1", b"long 2"]

    def test_a_reader_that_passed_a_message_due_later_meets_nothing_new_behind_it(
        self, log: QueueLog, store: MessageStore, clock: ManualClock
    ) -> None:
        """G3 for due times: a due time just ahead of the watermark must not slip behind it."""
        seen: list[MessageId] = []
        appended: list[MessageId] = []
        after = MessageId.last_of(store.watermark(STRONG))
        for turn in range(60):
            clock.step((0.0, 0.000001, -0.0000005, 0.0)[turn % 4])
            due = clock.now_ticks() + turn % 5
            appended.extend(one.id for one in log.append(draft(), draft(due_ticks=due), draft()).placed)
            upto = MessageId.last_of(store.watermark(STRONG))
            seen.extend(message.id for message in log.read(after=after, upto=upto).messages)
            after = upto
        clock.advance(1)
        seen.extend(message.id for message in log.read(after=after).messages)

        assert seen == sorted(appended)
