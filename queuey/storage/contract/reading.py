"""Reading: a span is served exactly, with any limit and order (G5)."""

from __future__ import annotations

from typing import Any

import pytest

from queuey.clock import ManualClock
from queuey.ids import MAX_ID, ZERO_ID, MessageId
from queuey.model import Page, ReadRequest, Span, SpanCount
from queuey.storage import MessageStore
from queuey.storage.contract.common import SECOND, QueueLog, StoreContract, client_id, done, draft

LETTERS = [bytes([letter]) for letter in b"abcdefgh"]


def pages(log: QueueLog, **how: Any) -> list[Page]:
    """The pages of a partition, each from where the last one ended."""
    found = [log.read(**how)]
    while found[-1].more:
        last = found[-1].messages[-1].id
        ends: dict[str, Any] = {"upto": last.before()} if how["newest_first"] else {"after": last}
        found.append(log.read(**ends, **how))
        assert len(found) < 20, "a page that repeats would never end"
    return found


class Reading(StoreContract):
    """:meth:`MessageStore.read`, with any limit, order and size."""

    def test_a_span_leaves_out_its_lower_end_and_has_its_upper(self, log: QueueLog) -> None:
        ids = log.add(*LETTERS)

        page = log.read(after=ids[1], upto=ids[4])

        assert [message.id for message in page.messages] == ids[2:5]
        assert not page.more

    def test_spans_that_share_an_end_join(self, log: QueueLog) -> None:
        ids = log.add(*LETTERS)

        for middle in ids:
            lower, upper = log.read(upto=middle), log.read(after=middle)
            assert [message.id for message in (*lower.messages, *upper.messages)] == ids

    def test_an_inclusive_start_is_the_bound_before_it(self, log: QueueLog) -> None:
        ids = log.add(*LETTERS)

        assert log.bodies(after=ids[3].before()) == LETTERS[3:]

    def test_a_bound_need_not_be_a_message(self, log: QueueLog) -> None:
        ids = log.add(*LETTERS)

        assert log.bodies(after=MessageId.first_of(ids[2].ticks)) == LETTERS[2:]
        assert log.bodies(after=MessageId.last_of(ids[2].ticks)) == LETTERS[3:]
        assert log.bodies(upto=MessageId.last_of(ids[2].ticks)) == LETTERS[:3]

    def test_messages_of_one_tick_are_in_the_order_of_their_tails(self, log: QueueLog, clock: ManualClock) -> None:
        due = clock.now_ticks() + 5 * SECOND
        ids = [client_id(due, number) for number in (0x7F, 0x80, 0xFF, 1, 0x7F00, 0x8000, 1 << 47)]
        for id_ in ids:
            log.put((1, id_))
        clock.advance(10)

        assert [message.id for message in log.read().messages] == sorted(ids)
        assert [message.id for message in log.read(after=sorted(ids)[2]).messages] == sorted(ids)[3:]

    def test_an_empty_span_has_nothing(self, log: QueueLog) -> None:
        ids = log.add(*LETTERS)

        for after, upto in ((ids[2], ids[2]), (ids[5], ids[2]), (MAX_ID, MAX_ID), (ZERO_ID, ZERO_ID)):
            assert log.read(after=after, upto=upto) == ([], False, 0)

    def test_a_partition_nobody_wrote_to_is_empty(self, log: QueueLog) -> None:
        assert log.read(4) == ([], False, 0)

    def test_newest_first_turns_the_order_round(self, log: QueueLog) -> None:
        ids = log.add(*LETTERS)

        page = log.read(after=ids[0], upto=ids[6], newest_first=True)

        assert [message.body for message in page.messages] == LETTERS[6:0:-1]

    @pytest.mark.parametrize("newest_first", [False, True])
    @pytest.mark.parametrize("limit", [1, 3, 4, 7, 8, 9])
    def test_pages_join_without_gap_or_repeat(self, log: QueueLog, limit: int, newest_first: bool) -> None:
        log.add(*LETTERS)

        found = pages(log, newest_first=newest_first, limit=limit)

        assert [m.body for page in found for m in page.messages] == (LETTERS[::-1] if newest_first else LETTERS)
        assert all(len(page.messages) == limit for page in found[:-1])
        assert 1 <= len(found[-1].messages) <= limit

    def test_a_page_says_that_there_is_more_only_if_there_is(self, log: QueueLog) -> None:
        log.add(b"a", b"b")

        assert log.read(limit=1).more
        assert not log.read(limit=2).more
        assert not log.read(limit=3).more

    @pytest.mark.parametrize("newest_first", [False, True])
    def test_the_limit_counts_only_messages_that_are_visible(
        self, log: QueueLog, clock: ManualClock, newest_first: bool
    ) -> None:
        ids = log.add(*LETTERS)
        log.append(*[draft(b"short", ttl_seconds=5)] * 10)
        log.delete((1, ids[0]), (1, ids[1]), (1, ids[6]), (1, ids[7]))
        clock.advance(10)

        page = log.read(limit=4, newest_first=newest_first)

        expected = LETTERS[5:1:-1] if newest_first else LETTERS[2:6]
        assert [message.body for message in page.messages] == expected
        assert not page.more

    @pytest.mark.parametrize("newest_first", [False, True])
    def test_a_page_ends_before_the_message_that_would_pass_its_bytes(self, log: QueueLog, newest_first: bool) -> None:
        log.add(*[b"x" * 100] * 6)

        assert len(log.read(max_bytes=250, newest_first=newest_first).messages) == 2
        assert len(log.read(max_bytes=300, newest_first=newest_first).messages) == 3
        sizes = [len(page.messages) for page in pages(log, newest_first=newest_first, max_bytes=399)]
        assert sizes == [3, 3]

    def test_a_page_has_one_message_at_least_however_large(self, log: QueueLog) -> None:
        log.add(b"x" * 1000, b"y" * 1000)

        page = log.read(max_bytes=1)

        assert [message.body for message in page.messages] == [b"x" * 1000]
        assert page.more

    def test_bytes_that_just_fit_are_no_reason_for_more(self, log: QueueLog) -> None:
        log.add(b"x" * 10, b"y" * 10)

        assert not log.read(max_bytes=20).more

    @pytest.mark.parametrize("newest_first", [False, True])
    def test_a_page_without_bodies_has_the_same_ids(self, log: QueueLog, newest_first: bool) -> None:
        log.append(draft(b"a" * 100, content_type="text/plain", key="k"), draft(b"b" * 100), draft(b"c" * 100))

        full = log.read(newest_first=newest_first, limit=2)
        bare = log.read(newest_first=newest_first, limit=2, with_bodies=False, max_bytes=1)

        assert [message[:3] for message in bare.messages] == [message[:3] for message in full.messages]
        assert [message[3:] for message in bare.messages] == [(None, None, b"", None)] * 2
        assert bare.more

    def test_stepping_over_corrupt_messages_passes_over_no_other(self, log: QueueLog) -> None:
        log.add(*LETTERS)

        page = log.read(skip_corrupt=True)

        assert [message.body for message in page.messages] == LETTERS
        assert page.corrupt == 0

    def test_a_large_page_is_whole(self, log: QueueLog) -> None:
        log.append(*(draft(b"%d" % number) for number in range(3000)))

        assert log.bodies(limit=10_000) == [b"%d" % number for number in range(3000)]

    def test_a_read_says_nothing_beyond_its_span_even_of_messages_to_come(
        self, log: QueueLog, store: MessageStore, clock: ManualClock
    ) -> None:
        log.add(b"now")
        log.append(draft(b"later", due_ticks=clock.now_ticks() + 60 * SECOND))
        upto = MessageId.last_of(log.watermark())

        page = done(store.read(ReadRequest(log.queue.partition(1), Span(ZERO_ID, upto), 1), now_ticks=log.watermark()))

        assert [message.body for message in page.messages] == [b"now"]
        assert not page.more


class Fetching(StoreContract):
    """:meth:`MessageStore.fetch`."""

    def test_a_fetch_keeps_the_order_asked_and_says_what_is_not_there(self, log: QueueLog) -> None:
        first, second = log.add(b"first", b"second")
        (other,) = log.add(b"other", partition=2)

        found = log.fetch((1, second), (1, other), (2, other), (2, first), (1, first), (1, second))

        assert [message and message.body for message in found] == [b"second", None, b"other", None, b"first", b"second"]

    def test_a_fetch_is_not_bound_by_the_watermark(self, log: QueueLog, clock: ManualClock) -> None:
        (placed,) = log.append(draft(b"later", due_ticks=clock.now_ticks() + 60 * SECOND)).placed

        (message,) = log.fetch((1, placed.id))

        assert message is not None
        assert message.body == b"later"

    def test_a_fetch_wants_the_whole_id(self, log: QueueLog) -> None:
        (id_,) = log.add(b"x")

        assert log.fetch((1, client_id(id_.ticks)), (1, MessageId(id_.ticks + 1, id_.tail))) == [None, None]

    def test_a_fetch_finds_nothing_that_was_deleted_or_has_expired(self, log: QueueLog, clock: ManualClock) -> None:
        (deleted,) = log.add(b"deleted")
        (short,) = log.append(draft(b"short", ttl_seconds=5)).placed
        log.delete((1, deleted))
        clock.advance(10)

        assert log.fetch((1, deleted), (1, short.id)) == [None, None]

    def test_a_fetch_of_nothing_is_nothing(self, log: QueueLog) -> None:
        assert list(log.fetch()) == []


class CountingSpans(StoreContract):
    """:meth:`MessageStore.inspect` and :meth:`MessageStore.count_span`."""

    def test_an_inspection_counts_live_messages_and_names_the_ends(self, log: QueueLog, clock: ManualClock) -> None:
        log.append(draft(b"short", ttl_seconds=5))
        ids = log.add(*LETTERS)
        log.delete((1, ids[0]), (1, ids[3]))
        due = clock.now_ticks() + 60 * SECOND
        (later,) = log.append(draft(due_ticks=due)).placed
        (one,) = log.add(b"other", partition=3)
        clock.advance(10)

        third, second, first = log.inspect(3, 2, 1)

        assert third == (1, 0, one, one, len(b"other"))
        assert second == (0, 0, None, None, 0)
        assert first == (7, 1, ids[1], later.id, 6 + len(b"body"))

    def test_an_inspection_without_time_is_of_the_first_partitions_only(self, log: QueueLog) -> None:
        log.add(*LETTERS)
        partitions = [log.queue.partition(number) for number in (1, 2, 3)]

        some = done(log.store.inspect(partitions, now_ticks=log.watermark(), seconds=0))

        assert list(some) == list(log.inspect(1, 2, 3))[: len(some)]

    @pytest.mark.parametrize("expired", [False, True])
    def test_a_count_tells_of_a_span_what_reading_it_would(
        self, log: QueueLog, clock: ManualClock, expired: bool
    ) -> None:
        if expired:
            log.append(*(draft(b"gone", ttl_seconds=60) for _ in range(5)))
        ids = log.add(*LETTERS)
        clock.advance(90)

        for after, upto in ((ZERO_ID, None), (ids[1], None), (ids[0], ids[6]), (ids[7], None), (ids[4], ids[2])):
            inside = [id_ for id_ in ids if after < id_ <= (upto or MAX_ID)]
            newest = inside[-1] if inside else None
            assert log.count_span(after, upto) == SpanCount(newest, 0, bool(inside), [])
            for limit, step in ((2, 0), (3, 1), (8, 2), (8, 3), (6, 3), (100, 100), (7, 8)):
                counted = inside[:limit]
                split_points = counted[step - 1 :: step] if step else []
                told = log.count_span(after, upto, limit=limit, step=step)
                assert told == SpanCount(newest, len(counted), len(inside) > limit, split_points), (
                    after,
                    upto,
                    limit,
                    step,
                )

    def test_a_count_of_a_dropped_queue_finds_nothing(self, log: QueueLog) -> None:
        log.add(*LETTERS)
        done(log.store.drop(log.queue.uuid))

        assert log.count_span(limit=10, step=2) == SpanCount(None, 0, False, [])
