"""Changing stored messages: put by id, and delete."""

from __future__ import annotations

import pytest

from queuey.clock import ManualClock
from queuey.errors import InvalidParameter
from queuey.ids import MessageId
from queuey.storage import MessageStore
from queuey.storage.contract.common import SECOND, STRONG, QueueLog, StoreContract, client_id, draft


class Changing(StoreContract):
    """:meth:`MessageStore.put` and :meth:`MessageStore.delete`."""

    def test_a_put_stores_under_the_id_it_was_given(self, log: QueueLog, clock: ManualClock) -> None:
        id_ = client_id(clock.now_ticks() - 60 * SECOND)

        log.put((1, id_), body=b"mine", content_type="text/plain")

        (message,) = log.read().messages
        assert (message.id, message.body, message.content_type, message.key) == (id_, b"mine", "text/plain", None)
        assert log.fetch((1, id_)) == [message]

    def test_a_put_takes_the_place_of_what_is_there(self, log: QueueLog) -> None:
        log.append(draft(b"old", content_type="text/plain", key="k"), draft(b"next"))
        id_ = log.read().messages[0].id

        log.put((1, id_), body=b"new, and longer", content_type=None)

        (message, _) = log.read().messages
        assert message[3:] == (None, "k", b"new, and longer", None)
        assert log.bodies() == [b"new, and longer", b"next"]
        assert log.inspect(1)[0].depth == 2

    def test_a_put_may_have_a_key(self, log: QueueLog, clock: ManualClock) -> None:
        log.append(draft(b"old", key="schlüssel"))
        old = log.read().messages[0].id
        new = client_id(clock.now_ticks() - 60 * SECOND)

        log.put((1, old), (1, new), body=b"keyed", key="schlüssel")

        assert [message[3:] for message in log.read().messages] == [(None, "schlüssel", b"keyed", None)] * 2

    def test_a_message_keeps_its_key(self, log: QueueLog, clock: ManualClock) -> None:
        log.append(draft(b"0", key="k"), draft(b"1", key="other"), draft(b"2"))
        keyed, other, keyless = [message.id for message in log.read().messages]
        new = client_id(clock.now_ticks() - 60 * SECOND)

        for wanted, has in ((other, "has another key"), (keyless, "has no key")):
            with pytest.raises(InvalidParameter, match=f"message 1:{wanted.hex} {has}.*delete the message first"):
                log.put((1, new), (1, keyed), (1, wanted), body=b"new", key="k")
        assert log.bodies() == [b"0", b"1", b"2"], "nothing is stored"

        log.put((1, new), (1, keyed), (1, other), (1, keyless), body=b"new")

        assert [message.key for message in log.read().messages] == [None, "k", "other", None]
        assert log.bodies() == [b"new"] * 4

    def test_where_a_message_was_another_key_may_be(self, log: QueueLog, clock: ManualClock) -> None:
        log.append(draft(b"short", key="k", ttl_seconds=5), draft(b"deleted", key="k"), draft(b"twice", key="k"))
        expired, deleted, twice = [message.id for message in log.read().messages]
        log.delete((1, deleted), (1, twice))
        clock.advance(6)

        log.put((1, expired), body=b"a")
        log.put((1, deleted), (1, deleted), body=b"b", key="other")
        log.put((1, twice), body=b"c")

        assert [message.key for message in log.read().messages] == [None, "other", None]
        with pytest.raises(InvalidParameter):
            log.put((1, deleted), key="k")

    def test_one_put_stores_under_each_of_its_ids(self, log: QueueLog, clock: ManualClock) -> None:
        ids = [client_id(clock.now_ticks() - 60 * SECOND, number) for number in range(1, 4)]

        log.put((1, ids[0]), (2, ids[1]), (1, ids[2]), body=b"same")

        assert [message.id for message in log.read(1).messages] == [ids[0], ids[2]]
        assert [message.id for message in log.read(2).messages] == [ids[1]]

    def test_a_put_that_names_an_id_twice_stores_it_once(self, log: QueueLog, clock: ManualClock) -> None:
        id_ = client_id(clock.now_ticks() - 60 * SECOND)

        log.put((1, id_), (1, id_), body=b"once")

        assert log.bodies() == [b"once"]

    def test_a_put_goes_to_its_place_in_order(self, log: QueueLog, clock: ManualClock) -> None:
        (first,) = log.add(b"first")
        clock.advance(2)
        log.add(b"last")

        log.put((1, client_id(first.ticks + SECOND)), body=b"between")

        assert log.bodies() == [b"first", b"between", b"last"]

    def test_a_put_of_a_deleted_message_brings_the_place_back(self, log: QueueLog) -> None:
        (id_,) = log.add(b"old")
        log.delete((1, id_))

        log.put((1, id_), body=b"new")

        assert log.bodies() == [b"new"]

    def test_a_put_at_or_behind_the_watermark_says_that_it_is_late(
        self, log: QueueLog, store: MessageStore, clock: ManualClock
    ) -> None:
        watermark = store.watermark(STRONG)

        assert log.put((1, client_id(watermark)))
        assert log.put((1, client_id(watermark - 60 * SECOND)))
        assert log.put((1, client_id(watermark + 60 * SECOND)), (1, client_id(watermark)))
        assert not log.put((1, client_id(clock.now_ticks() + 60 * SECOND)))

    def test_a_put_ahead_of_the_watermark_appears_in_time(self, log: QueueLog, clock: ManualClock) -> None:
        id_ = client_id(clock.now_ticks() + 60 * SECOND)
        log.put((1, id_), body=b"later")

        assert log.bodies() == []
        clock.advance(59)
        assert log.bodies() == []
        clock.advance(1)
        assert log.bodies() == [b"later"]

    def test_a_ttl_of_a_put_counts_from_now_or_from_the_ids_moment_if_that_is_later(
        self, log: QueueLog, clock: ManualClock
    ) -> None:
        log.put((1, client_id(clock.now_ticks() - 3600 * SECOND)), body=b"of old", ttl_seconds=10)
        log.put((1, client_id(clock.now_ticks() + 60 * SECOND)), body=b"to come", ttl_seconds=10)

        clock.advance(9)
        assert log.bodies() == [b"of old"]
        clock.advance(2)
        assert log.bodies() == []
        clock.advance(58)
        assert log.bodies() == [b"to come"]
        clock.advance(2)
        assert log.bodies() == []

    def test_a_put_renews_the_ttl(self, log: QueueLog, clock: ManualClock) -> None:
        (placed,) = log.append(draft(b"old", ttl_seconds=10)).placed
        clock.advance(8)

        log.put((1, placed.id), body=b"new", ttl_seconds=10)

        clock.advance(8)
        assert log.bodies() == [b"new"]

    def test_a_deleted_message_is_gone_at_once(self, log: QueueLog) -> None:
        ids = log.add(b"a", b"b", b"c")

        log.delete((1, ids[1]))

        assert log.bodies() == [b"a", b"c"]

    def test_a_delete_of_what_is_not_there_is_no_error_and_harms_nothing(self, log: QueueLog) -> None:
        (id_,) = log.add(b"stays")

        log.delete((2, id_), (1, client_id(id_.ticks)), (1, MessageId(id_.ticks + 1, id_.tail)))
        log.delete()

        assert log.bodies() == [b"stays"]

    def test_a_delete_may_name_a_message_twice_and_may_be_repeated(self, log: QueueLog) -> None:
        gone, _ = log.add(b"gone", b"stays")

        log.delete((1, gone), (1, gone))
        log.delete((1, gone))

        assert log.bodies() == [b"stays"]

    def test_order_outlives_many_deletes(self, log: QueueLog, clock: ManualClock) -> None:
        """Removing most of a partition must not disturb the order of the rest."""
        ids = log.add(*[b"old"] * 40)
        log.add(b"last")
        log.put((1, client_id(clock.now_ticks() - 60 * SECOND)), body=b"first")

        log.delete(*((1, id_) for id_ in ids))

        assert log.bodies() == [b"first", b"last"]
        log.add(b"later")
        assert log.bodies() == [b"first", b"last", b"later"]
