"""Appending: what is stored is what was sent, in its order, under ids that rise."""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Iterator

import pytest

from queuey.clock import ManualClock
from queuey.errors import QueueNotFound
from queuey.ids import ZERO_ID, MessageId
from queuey.model import AppendRequest, Location
from queuey.storage import MessageStore
from queuey.storage.contract.common import SECOND, STRONG, QueueLog, StoreContract, done, draft

BODIES = {
    "no bytes": b"",
    "NUL": b"\0",
    "a space": b" ",
    "a line end": b"\r\n",
    "not UTF-8": b"\xff\xfe\x00\x80",
    "every byte": bytes(range(256)),
    "a statement": b"'); drop table messages; --",
    "1 MiB": random.Random(1).randbytes(1 << 20),  # noqa: S311  any bytes will do
}


class Appending(StoreContract):
    """:meth:`MessageStore.append`, and what threads may do at once."""

    def test_an_append_answers_one_place_per_draft_in_their_order(self, log: QueueLog) -> None:
        appended = log.append(draft(b"a", 3), draft(b"b", 1), draft(b"c", 3))

        assert [placed.partition for placed in appended.placed] == [3, 1, 3]
        assert not appended.repeated
        found = log.fetch(*((placed.partition, placed.id) for placed in appended.placed))
        assert [message.body for message in found if message is not None] == [b"a", b"b", b"c"]

    def test_a_batch_keeps_its_order(self, log: QueueLog) -> None:
        bodies = [b"%d" % number for number in range(300)]

        placed = log.append(*(draft(body, 1 + number % 2) for number, body in enumerate(bodies))).placed

        assert [one.id for one in placed] == sorted({one.id for one in placed})
        assert log.bodies(1) == bodies[::2]
        assert log.bodies(2) == bodies[1::2]

    def test_ids_rise_from_append_to_append_in_any_partition_and_queue(
        self, store: MessageStore, clock: ManualClock, log: QueueLog
    ) -> None:
        other = QueueLog(store, clock)

        seen = [which.add(b"x", partition=at)[0] for which in (log, other, log) for at in (2, 1, 3)]

        assert seen == sorted(set(seen))

    def test_an_id_is_a_version_1_uuid(self, log: QueueLog, clock: ManualClock) -> None:
        now, later = log.append(draft(), draft(due_ticks=clock.now_ticks() + 9 * SECOND)).placed

        assert MessageId.from_bytes(now.id.bytes) == now.id
        assert MessageId.from_bytes(later.id.bytes) == later.id
        assert now.id.uuid.version == later.id.uuid.version == 1

    def test_an_id_is_of_the_moment_of_its_append(self, log: QueueLog, clock: ManualClock) -> None:
        clock.advance(100)
        (id_,) = log.add(b"x")

        assert 0 <= id_.ticks - clock.now_ticks() < SECOND

    @pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
    def test_any_bytes_come_back_as_they_were(self, log: QueueLog, body: bytes) -> None:
        (id_,) = log.add(body)

        assert log.bodies() == [body]
        (message,) = log.fetch((1, id_))
        assert message is not None
        assert message.body == body

    def test_content_type_and_key_are_kept(self, log: QueueLog) -> None:
        log.append(draft(content_type="text/plain; charset=utf-8", key="käse\n'☃"), draft())

        first, second = log.read().messages
        assert (first.content_type, first.key) == ("text/plain; charset=utf-8", "käse\n'☃")
        assert (second.content_type, second.key) == (None, None)

    def test_partitions_share_nothing(self, log: QueueLog) -> None:
        log.add(b"one", partition=1)
        log.add(b"two", partition=2)

        assert log.bodies(1) == [b"one"]
        assert log.bodies(2) == [b"two"]
        assert log.bodies(3) == []

    def test_queues_share_nothing(self, store: MessageStore, clock: ManualClock, log: QueueLog) -> None:
        other = QueueLog(store, clock)
        (id_,) = log.add(b"mine")

        assert other.bodies() == []
        assert other.fetch((1, id_)) == [None]
        other.delete((1, id_))
        assert log.bodies() == [b"mine"]

    def test_the_highest_partition_is_like_any_other(self, log: QueueLog) -> None:
        log.add(b"last", partition=200)

        assert log.bodies(200) == [b"last"]

    @pytest.fixture
    def restless_threads(self) -> Iterator[None]:
        """Threads take turns after a few steps each: what may come between two steps does."""
        usual = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        yield
        sys.setswitchinterval(usual)

    @pytest.mark.usefixtures("restless_threads")
    def test_threads_append_at_once_without_losing_a_message_or_their_order(self, log: QueueLog) -> None:
        placed: dict[int, list[MessageId]] = {number: [] for number in range(4)}

        def work(number: int) -> None:
            placed[number] = log.add(*(b"%d-%d" % (number, turn) for turn in range(25)))

        threads = [threading.Thread(target=work, args=(number,)) for number in placed]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        for ids in placed.values():
            assert ids == sorted(ids)
        stored = {message.id: message.body for message in log.read().messages}
        assert stored == {
            id_: b"%d-%d" % (number, turn) for number, ids in placed.items() for turn, id_ in enumerate(ids)
        }

    @pytest.mark.usefixtures("restless_threads")
    def test_a_reader_that_follows_the_watermark_misses_nothing(self, log: QueueLog, clock: ManualClock) -> None:
        """G3: whatever a reader was served up to is complete, whoever writes meanwhile and however the clock steps."""
        acknowledged: list[MessageId] = []
        writing = threading.Event()
        writing.set()

        def write(number: int) -> None:
            for turn in range(40):
                acknowledged.extend(placed.id for placed in log.append(*[draft()] * (1 + turn % 3)).placed)
                clock.step((-0.5, 0.3, 0.0002)[(turn + number) % 3])

        served: list[MessageId] = []

        def follow() -> None:
            after, last = ZERO_ID, False
            while not last:
                last = not writing.is_set()
                upto = MessageId.last_of(log.store.watermark(STRONG))
                page = log.read(after=after, upto=upto)
                assert not page.more
                served.extend(message.id for message in page.messages)
                after = upto
            served.extend(message.id for message in log.read(after=after).messages)

        reader = threading.Thread(target=follow)
        writers = [threading.Thread(target=write, args=(number,)) for number in range(3)]
        for thread in (reader, *writers):
            thread.start()
        for thread in writers:
            thread.join()
        writing.clear()
        reader.join()

        assert served == sorted(acknowledged)


class Ending(StoreContract):
    """:meth:`MessageStore.drop` and :meth:`MessageStore.close`."""

    def test_a_dropped_queue_is_never_read_again(self, store: MessageStore, clock: ManualClock, log: QueueLog) -> None:
        due = clock.now_ticks() + 5 * SECOND
        wanted = [(1, log.add(b"gone")[0]), (2, log.append(draft(b"later", 2, due_ticks=due)).placed[0].id)]

        done(store.drop(log.queue.uuid))

        clock.advance(10)
        assert log.bodies(1) == log.bodies(2) == []
        assert log.fetch(*wanted) == [None, None]
        assert [state.depth for state in log.inspect(1, 2)] == [0, 0]

    def test_a_dropped_queue_takes_no_more(self, store: MessageStore, log: QueueLog) -> None:
        log.add(b"gone")
        done(store.drop(log.queue.uuid))

        with pytest.raises(QueueNotFound):
            log.add(b"ghost")
        with pytest.raises(QueueNotFound):
            log.put((1, MessageId.parse("1f9f6640e56711f189bf02fc00000001")))
        log.delete((1, MessageId.parse("1f9f6640e56711f189bf02fc00000001")))
        assert log.bodies() == []

    def test_an_empty_queue_can_be_dropped_and_takes_no_more(
        self, store: MessageStore, clock: ManualClock, log: QueueLog
    ) -> None:
        done(store.drop(log.queue.uuid))
        QueueLog(store, clock).add(*[b"elsewhere"] * 20)

        with pytest.raises(QueueNotFound):
            log.add(b"ghost")

    def test_a_drop_may_be_repeated(self, store: MessageStore, log: QueueLog) -> None:
        log.add(b"gone")

        done(store.drop(log.queue.uuid))
        done(store.drop(log.queue.uuid))

        assert log.bodies() == []

    def test_a_queue_made_anew_starts_empty_and_keeps_what_it_gets(
        self, store: MessageStore, clock: ManualClock, log: QueueLog
    ) -> None:
        """G9: ten times over, each new incarnation has its own messages and no other's."""
        for turn in range(10):
            anew = QueueLog(store, clock)
            assert anew.bodies() == []
            anew.add(b"%d" % turn)
            done(store.drop(log.queue.uuid))
            assert anew.bodies() == [b"%d" % turn]
            log = anew

    def test_a_drop_leaves_other_queues_alone(self, store: MessageStore, clock: ManualClock, log: QueueLog) -> None:
        other = QueueLog(store, clock)
        other.add(b"stays")
        log.add(b"goes")

        done(store.drop(log.queue.uuid))

        assert other.bodies() == [b"stays"]

    def test_a_healthy_store_has_no_problems(self, store: MessageStore, log: QueueLog) -> None:
        log.add(b"x")

        assert list(store.problems()) == []

    def test_a_close_finishes_what_was_accepted_and_may_be_repeated(self, store: MessageStore, log: QueueLog) -> None:
        accepted = [store.append(AppendRequest(log.queue, [draft()])) for _ in range(50)]

        store.close()
        store.close()

        assert all(isinstance(done(append).placed[0], Location) for append in accepted)
