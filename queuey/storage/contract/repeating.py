"""Idempotency keys: a repeated append stores once and answers the same (G7)."""

from __future__ import annotations

import threading

import pytest

from queuey.clock import ManualClock
from queuey.errors import KeyReused
from queuey.model import Appended, Draft, IdempotencyKey
from queuey.model.values import IDEMPOTENCY_SECONDS
from queuey.storage import MessageStore
from queuey.storage.contract.common import SECOND, QueueLog, StoreContract, done, draft

ONCE = IdempotencyKey("key", b"digest")
OTHER = IdempotencyKey("key", b"another digest")


def keyed(body: bytes, key: str, digest: bytes = b"digest", partition: int = 1) -> Draft:
    """A draft with a key of its own."""
    return draft(body, partition, idempotency=IdempotencyKey(key, digest))


def same(first: Appended, second: Appended) -> bool:
    """Whether the second answer repeats the first."""
    return second.repeated and list(second.placed) == list(first.placed)


class Repeating(StoreContract):
    """Keys of whole requests, and of single messages.

    The first is ``AppendRequest.idempotency``, the second ``Draft.idempotency``.
    """

    def test_a_repeated_request_stores_once_and_gets_the_same_answer(self, log: QueueLog, clock: ManualClock) -> None:
        drafts = [draft(b"a"), draft(b"b", 2), draft(b"c", due_ticks=clock.now_ticks() + 10 * SECOND)]
        first = log.append(*drafts, idempotency=ONCE)
        clock.advance(3)

        second = log.append(*drafts, idempotency=ONCE)

        clock.advance(60)
        assert not first.repeated
        assert second.repeated
        assert list(second.placed) == list(first.placed)
        assert log.bodies(1) == [b"a", b"c"]
        assert log.bodies(2) == [b"b"]

    def test_a_repeated_request_gets_the_place_of_the_first_though_it_names_another(self, log: QueueLog) -> None:
        """A random partition is chosen once and remembered."""
        first = log.append(draft(b"a", 1), idempotency=ONCE)
        second = log.append(draft(b"a", 3), idempotency=ONCE)

        assert list(second.placed) == list(first.placed)
        assert log.bodies(3) == []

    def test_a_key_used_for_something_else_is_refused_and_stores_nothing(self, log: QueueLog) -> None:
        log.append(draft(b"a"), idempotency=ONCE)

        with pytest.raises(KeyReused):
            log.append(draft(b"b"), idempotency=OTHER)

        assert log.bodies() == [b"a"]
        assert log.append(draft(b"a"), idempotency=ONCE).repeated

    def test_a_refused_key_takes_no_other_append_with_it(self, log: QueueLog) -> None:
        log.append(draft(b"a"), idempotency=ONCE)
        with pytest.raises(KeyReused):
            log.append(draft(b"b"), draft(b"c"), idempotency=OTHER)

        log.add(b"d")

        assert log.bodies() == [b"a", b"d"]

    def test_keys_are_compared_exactly(self, log: QueueLog) -> None:
        keys = ["key", "Key", "key ", " key", "ke", "ké", "ke\u0301", "%", "_"]
        for key in keys:
            assert not log.append(draft(key.encode()), idempotency=IdempotencyKey(key, b"digest")).repeated

        assert log.bodies() == [key.encode() for key in keys]

    def test_a_key_means_nothing_in_another_queue(self, store: MessageStore, clock: ManualClock, log: QueueLog) -> None:
        other = QueueLog(store, clock)
        first = log.append(draft(b"a"), idempotency=ONCE)

        second = other.append(draft(b"b"), idempotency=OTHER)

        assert not second.repeated
        assert list(second.placed) != list(first.placed)
        assert other.bodies() == [b"b"]

    def test_a_key_is_remembered_for_a_day_from_the_append_that_stored(self, log: QueueLog, clock: ManualClock) -> None:
        log.append(draft(b"a", ttl_seconds=10 * IDEMPOTENCY_SECONDS), idempotency=ONCE)

        clock.advance(IDEMPOTENCY_SECONDS - 10)
        assert log.append(draft(b"a"), idempotency=ONCE).repeated
        clock.advance(20)
        assert not log.append(draft(b"b"), idempotency=OTHER).repeated
        assert log.bodies() == [b"a", b"b"]

    def test_a_key_may_name_its_own_time(self, log: QueueLog, clock: ManualClock) -> None:
        short = ONCE._replace(seconds=300)
        log.append(draft(b"a"), idempotency=short)

        clock.advance(290)
        assert log.append(draft(b"a"), idempotency=short).repeated
        clock.advance(20)
        assert not log.append(draft(b"b"), idempotency=short).repeated

    def test_a_key_is_remembered_after_its_message_expired_or_was_deleted(
        self, log: QueueLog, clock: ManualClock
    ) -> None:
        first = log.append(draft(b"a", ttl_seconds=5), draft(b"b"), idempotency=ONCE)
        log.delete((1, first.placed[1].id))
        clock.advance(10)

        second = log.append(draft(b"a", ttl_seconds=5), draft(b"b"), idempotency=ONCE)

        assert same(first, second)
        assert log.bodies() == []

    def test_a_repeat_that_runs_at_the_same_time_stores_once(self, log: QueueLog) -> None:
        answers: list[Appended] = []

        def work() -> None:
            answers.append(log.append(draft(b"a"), draft(b"b"), idempotency=ONCE))

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert len(answers) == 8
        assert len({tuple(answer.placed) for answer in answers}) == 1
        assert sorted(answer.repeated for answer in answers) == [False] + [True] * 7
        assert log.bodies() == [b"a", b"b"]

    # Keys of single messages

    def test_a_draft_with_a_key_is_stored_once(self, log: QueueLog) -> None:
        first = log.append(keyed(b"a", "a"))
        second = log.append(keyed(b"a", "a"))

        assert same(first, second)
        assert log.bodies() == [b"a"]

    def test_a_batch_may_be_new_in_part(self, log: QueueLog) -> None:
        first = log.append(keyed(b"a", "a"), keyed(b"b", "b", partition=2))

        second = log.append(keyed(b"b", "b", partition=2), draft(b"plain"), keyed(b"c", "c"), keyed(b"a", "a"))

        assert not second.repeated
        assert [second.placed[3], second.placed[0]] == list(first.placed)
        assert log.bodies(1) == [b"a", b"plain", b"c"]
        assert log.bodies(2) == [b"b"]

    def test_a_batch_is_a_repeat_only_if_nothing_of_it_is_new(self, log: QueueLog) -> None:
        log.append(keyed(b"a", "a"), keyed(b"b", "b"))

        assert log.append(keyed(b"b", "b"), keyed(b"a", "a")).repeated
        assert not log.append(keyed(b"a", "a"), draft(b"plain")).repeated

    def test_one_key_used_for_something_else_refuses_the_whole_batch(self, log: QueueLog) -> None:
        log.append(keyed(b"a", "a"))

        with pytest.raises(KeyReused):
            log.append(draft(b"plain"), keyed(b"b", "b"), keyed(b"x", "a", b"another digest"))

        assert log.bodies() == [b"a"]
        assert not log.append(keyed(b"b", "b")).repeated

    def test_a_key_named_twice_in_a_batch_stores_once(self, log: QueueLog) -> None:
        appended = log.append(keyed(b"a", "a"), draft(b"plain"), keyed(b"a", "a"))

        assert appended.placed[0] == appended.placed[2]
        assert log.bodies() == [b"a", b"plain"]

    def test_a_key_named_twice_in_a_batch_for_two_things_refuses_the_batch(self, log: QueueLog) -> None:
        with pytest.raises(KeyReused):
            log.append(keyed(b"a", "a"), keyed(b"b", "a", b"another digest"))

        assert log.bodies() == []

    def test_keys_of_requests_and_of_messages_are_of_one_kind(self, log: QueueLog) -> None:
        log.append(keyed(b"a", "key"))

        with pytest.raises(KeyReused):
            log.append(draft(b"b"), idempotency=OTHER)
        with pytest.raises(KeyReused):
            log.append(keyed(b"c", "both"), idempotency=IdempotencyKey("both", b"another digest"))

        assert log.bodies() == [b"a"]

    def test_a_request_with_a_key_may_have_messages_with_keys(self, log: QueueLog) -> None:
        log.append(keyed(b"a", "a"))

        first = log.append(keyed(b"a", "a"), keyed(b"b", "b"), idempotency=IdempotencyKey("whole", b"digest"))
        second = log.append(keyed(b"a", "a"), keyed(b"b", "b"), idempotency=IdempotencyKey("whole", b"digest"))

        assert same(first, second)
        assert log.bodies() == [b"a", b"b"]

    def test_a_repeat_does_not_prolong_a_drafts_key(self, log: QueueLog, clock: ManualClock) -> None:
        log.append(keyed(b"a", "a"))
        clock.advance(IDEMPOTENCY_SECONDS - 10)
        assert log.append(keyed(b"a", "a")).repeated

        clock.advance(20)

        assert not log.append(keyed(b"a", "a")).repeated

    def test_a_dropped_queue_takes_its_keys_with_it(
        self, store: MessageStore, clock: ManualClock, log: QueueLog
    ) -> None:
        log.append(draft(b"a"), idempotency=ONCE)
        done(store.drop(log.queue.uuid))

        assert not QueueLog(store, clock).append(draft(b"a"), idempotency=ONCE).repeated
