"""Steps that are safe to ask for again (G23)."""

from __future__ import annotations

from typing import Any

import pytest

from queuey.clock import ManualClock
from queuey.errors import KeyReused
from queuey.model import AppendRequest, IdempotencyKey, Retention, encode_headers
from queuey.model.lease_groups import LeaseGroup
from queuey.model.lease_requests import Action, ReceiveRequest
from queuey.storage import LeaseStore
from queuey.storage.contract.common import SECOND, QueueLog, done, draft
from queuey.storage.contract.lease_receiver import TOKEN, Receiver, WithLeases, bodies
from queuey.storage.leasing import ATTEMPT_SECONDS

__all__ = ["Attempts"]


class Attempts(WithLeases):
    """A step under an attempt that is known."""

    def test_an_attempt_that_is_repeated_gets_the_same_answer_and_does_nothing(
        self, jobs: Receiver, log: QueueLog, clock: ManualClock
    ) -> None:
        log.add(b"0", b"1", b"2")
        log.watermark()
        attempt = IdempotencyKey("a1", b"digest")
        appends = [AppendRequest(log.queue, [draft(b"result", 2)])]
        wanted: dict[str, Any] = {"attempt": attempt, "receive": ReceiveRequest(2, pop=True), "partitions": [1]}
        first = jobs.step(appends=appends, **wanted)
        clock.advance(ATTEMPT_SECONDS - 5)
        again = jobs.step(appends=appends, **wanted)
        assert again.repeated
        assert not first.repeated
        assert [list(one.placed) for one in again.appended] == [list(one.placed) for one in first.appended]
        assert list(again.handed) == list(first.handed)
        assert again[:3] == first[:3]
        assert log.bodies(2) == [b"result"]
        with pytest.raises(KeyReused):
            jobs.step(attempt=attempt._replace(digest=b"other"), receive=ReceiveRequest())
        clock.advance(10)
        assert bodies(jobs.step(**wanted).handed) == [b"2"]

    @pytest.mark.parametrize("is_reset", [False, True], ids=["forgotten", "reset"])
    def test_a_group_that_begins_anew_knows_no_attempt(
        self, jobs: Receiver, leases: LeaseStore, log: QueueLog, *, is_reset: bool
    ) -> None:
        log.add(b"0")
        attempt, queue = IdempotencyKey("a1", b"digest"), log.queue.uuid
        assert jobs.step(attempt=attempt, receive=ReceiveRequest()).handed
        new = LeaseGroup(TOKEN + 1)
        if is_reset:
            assert done(leases.keep_group(queue, jobs.name, new, done(leases.find_group(queue, jobs.name))))
        else:
            done(leases.forget_group(queue, jobs.name))
        jobs.new = new
        other = attempt._replace(digest=b"other")
        for is_repeated in (False, True):
            found = jobs.step(attempt=other, receive=ReceiveRequest())
            assert (bodies(found.handed), found.tokens, found.repeated) == ([b"0"], [new.token], is_repeated)

    def test_an_attempt_may_renew_its_leases(self, jobs: Receiver, log: QueueLog, clock: ManualClock) -> None:
        log.add(b"0", b"1", b"2")
        log.watermark()
        receive = ReceiveRequest(2, visibility_seconds=100.0)
        wanted: dict[str, Any] = {"attempt": IdempotencyKey("a1", b""), "renews": True, "receive": receive}
        first = jobs.step(**wanted)
        for _ in range(2):  # renewed, it may be renewed once more
            clock.advance(90)
            again = jobs.step(**wanted)
            assert again.repeated
            assert [one.message for one in again.handed] == [one.message for one in first.handed]
            assert [one.hole.deliveries for one in again.handed] == [1, 1]
            assert [one.hole.visible_at for one in again.handed] == [again.now + 100 * SECOND] * 2
        assert bodies(jobs.receive(9)) == [b"2"]
        assert all(jobs.settle(one) for one in first.handed)

    def test_an_attempt_is_forgotten_in_time_though_an_earlier_one_was_renewed(
        self, jobs: Receiver, log: QueueLog, clock: ManualClock
    ) -> None:
        log.add(b"0", b"1", b"2")
        log.watermark()
        receive = ReceiveRequest(1, visibility_seconds=1000.0)
        renewed: dict[str, Any] = {"attempt": IdempotencyKey("a1", b""), "renews": True, "receive": receive}
        other: dict[str, Any] = {"attempt": IdempotencyKey("a2", b""), "receive": receive}
        assert bodies(jobs.step(**renewed).handed) == [b"0"]
        assert bodies(jobs.step(**other).handed) == [b"1"]
        clock.advance(ATTEMPT_SECONDS - 5)
        assert jobs.step(**renewed).repeated
        clock.advance(10)
        assert bodies(jobs.step(**other).handed) == [b"2"]
        assert bodies(jobs.step(**renewed).handed) == [b"0"]

    @pytest.mark.parametrize("how", ["acknowledged", "extended", "released", "ran out", "deleted"])
    def test_an_attempt_whose_leases_are_not_as_they_were_is_a_new_one(
        self, jobs: Receiver, log: QueueLog, clock: ManualClock, how: str
    ) -> None:
        ids = log.add(b"0", b"1", b"2")
        log.watermark()
        receive = ReceiveRequest(2, blames_each=True)
        wanted: dict[str, Any] = {"attempt": IdempotencyKey("a1", b""), "renews": True, "receive": receive}
        one = jobs.step(**wanted).handed[0]
        if how == "ran out":
            clock.advance(31)
        elif how == "deleted":
            log.delete((1, ids[0]))
        else:
            action = {"acknowledged": Action.ACKNOWLEDGE, "extended": Action.EXTEND, "released": Action.RELEASE}[how]
            jobs.settle(one, action, seconds=60.0 if how == "extended" else None)
        found = jobs.step(**wanted)
        assert not found.repeated
        assert bodies(found.handed) == [b"2"] or (how == "ran out" and len(found.handed) == 2)
        again = jobs.step(**wanted)
        assert (again.repeated, bodies(again.handed)) == (True, bodies(found.handed))

    def test_an_attempt_that_renews_remembers_no_empty_answer(self, jobs: Receiver, log: QueueLog) -> None:
        wanted: dict[str, Any] = {"attempt": IdempotencyKey("a1", b""), "renews": True, "receive": ReceiveRequest(2)}
        assert not jobs.step(**wanted).handed
        log.add(b"0")
        log.watermark()
        assert bodies(jobs.step(**wanted).handed) == [b"0"]

    def test_a_pop_that_is_repeated_needs_no_message_that_its_queue_has_given_away(
        self, jobs: Receiver, log: QueueLog, clock: ManualClock
    ) -> None:
        jobs.queue = log.queue._replace(retention=Retention.ACKNOWLEDGED)
        whole = draft(b"0", content_type="text/plain", key="k", headers=encode_headers({"a": b"1"}))
        placed = log.append(whole, draft(b""), draft(b"2", ttl_seconds=100)).placed
        log.watermark()
        wanted: dict[str, Any] = {"attempt": IdempotencyKey("a1", b""), "receive": ReceiveRequest(3, pop=True)}
        first = jobs.step(**wanted)
        log.delete(*placed)
        again = jobs.step(**wanted)
        assert again.repeated
        assert [list(one) for one in again.handed] == [list(one) for one in first.handed]
        clock.advance(101)
        assert bodies(jobs.step(**wanted).handed) == [b"0", b""]

    def test_a_repeated_answer_leaves_out_what_is_no_more(self, jobs: Receiver, log: QueueLog) -> None:
        ids = log.add(b"0", b"1")
        log.watermark()
        wanted: dict[str, Any] = {"attempt": IdempotencyKey("a1", b""), "receive": ReceiveRequest(2)}
        assert len(jobs.step(**wanted).handed) == 2
        log.delete((1, ids[0]))
        assert bodies(jobs.step(**wanted).handed) == [b"1"]
