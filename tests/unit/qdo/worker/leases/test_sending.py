"""What a worker makes of refusals."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from qdo.client import Client, NewMessage
from qdo.worker.leases.buffer import LeaseBuffer
from qdo.worker.leases.due import due
from qdo.worker.leases.sending import LeaseSenders
from qdo.worker.leases.values import Ended, JobOutcome, LeaseQueue, LeaseRequest
from qdo.worker.options import WorkerOptions
from qdo.worker.work import Counts
from queuey.clock import ManualClock
from tests.support.scripted_server import Say, Script, refusal

NONE = Say(200, b'{"status":"ok","messages":[]}', {"Content-Type": "application/json"})
NO_GROUP = refusal(404, "LeaseGroupNotFound")
MESSAGE = {
    "message_id": "1f9f6640e56711f189bf02fc00000001",
    "timestamp": "1795236650.0128320",
    "partition": 1,
    "queue": "q",
    "body": "x",
    "deliveries": 1,
    "failures": 0,
    "first_delivered": "1795236650.0128320",
    "visible_at": "1795236680.0128320",
    "receipt": "r",
}


def leased(*receipts: str) -> Say:
    messages = [{**MESSAGE, "receipt": receipt} for receipt in receipts]
    return Say(200, json.dumps({"status": "ok", "messages": messages}).encode(), {"Content-Type": "application/json"})


ONE = leased("r")


def group(*, more: bool, max_failures: int = 20) -> Say:
    counts = dict.fromkeys(("held", "leased", "waiting", "dead", "closed_keys"), 0) | dict.fromkeys(
        ("done_up_to", "handed_up_to", "oldest", "oldest_age")
    )
    partitions = [{"partition": 1, "k": 1, **counts, "more": more}]
    settings = {"visibility": 30, "max_failures": max_failures, "per_key": 1, "paused_until": None}
    told = {"status": "ok", "group": "g", "settings": settings, "partitions": partitions}
    return Say(200, json.dumps(told).encode(), {"Content-Type": "application/json"})


class Sending:
    """One queue, whose requests are sent by hand."""

    def __init__(self, url: str, *, exit_at_end: bool = False, others: Sequence[str] = (), batch: int = 1) -> None:
        """:param others: queues that are asked together with it."""
        self.clock = ManualClock()
        options = WorkerOptions(lease=True, exit_at_end=exit_at_end, batch=batch)
        self.buffer = LeaseBuffer(options, self.clock.elapsed, Counts())
        self.buffer.follow(["q", *others])
        for queue in self.buffer.holdings.queues.by_name.values():
            self.buffer.holdings.queues.has_passed(queue, self.clock.elapsed())
        self.senders = LeaseSenders(
            lambda: pytest.fail("it needs no thread"), self.buffer, self.clock, "g", exit_at_end=exit_at_end
        )
        self.client = Client(url, "app", retries=0)

    @property
    def queue(self) -> LeaseQueue:
        return self.buffer.holdings.queues.by_name["q"]

    def due(self) -> LeaseRequest:
        """The request that another thread would send now."""
        request = due(self.buffer.holdings, self.queue.asked_with, self.clock.elapsed())
        assert isinstance(request, LeaseRequest)
        return request

    def send(self) -> LeaseRequest:
        request = self.due()
        self.senders._send(self.client, request)
        return request

    def end_one(self, *results: NewMessage, how: JobOutcome = JobOutcome.DONE, reason: str = "") -> None:
        """Receive a message, and end its job with these results in another queue."""
        self.send()
        turn = self.buffer.take(1)
        assert turn is not None
        assert turn.begin_next(self.clock.elapsed())
        self.clock.advance(1)
        self.buffer.end(1, [Ended(turn.current, how, reason, results={"results": results})])


def test_where_too_many_wait_a_request_asks_again_and_does_not_wait(script: Script) -> None:
    """Or what it settles would have to wait for others to go."""
    sending = Sending(script.url, exit_at_end=False)
    script.say(NO_GROUP, refusal(429, "TooManyWaiters"), NONE)

    first = sending.send()
    again = sending.send()

    bodies = [json.loads(asked.body) for asked in script.asked if asked.method == "POST"]
    assert again is first
    assert [body["receive"].get("wait", 0) for body in bodies] == [2.0, 0]
    assert bodies[0]["attempt"] != bodies[1]["attempt"]
    assert sending.queue.asked_with.resume_at > sending.clock.elapsed()


def test_a_queue_is_not_at_its_end_if_nobody_knows_what_others_have(script: Script) -> None:
    sending = Sending(script.url, exit_at_end=True)
    script.say(NO_GROUP, NONE, refusal(503, "StorageUnavailable"))

    sending.send()

    assert not sending.buffer.is_at_end
    sending.clock.advance(1)
    script.say(NONE, NO_GROUP)
    sending.send()
    assert sending.buffer.is_at_end


def test_a_group_that_nobody_can_look_at_now_is_no_reason_to_go_on_without_it(script: Script) -> None:
    sending = Sending(script.url, exit_at_end=False)
    script.say(refusal(503, "StorageUnavailable"))

    request = sending.send()

    assert request.again_at is not None
    assert [asked.method for asked in script.asked] == ["GET"]


def test_nobody_looks_whether_all_is_done_while_a_message_is_held(script: Script) -> None:
    """What its job sends may go to any queue."""
    sending = Sending(script.url, exit_at_end=True)
    script.say(NO_GROUP, ONE)
    sending.send()
    sending.buffer.take(1)
    sending.clock.advance(1)

    script.say(NONE)
    sending.send()

    assert [asked.method for asked in script.asked] == ["GET", "POST", "POST"]
    assert not sending.buffer.is_at_end


def test_a_look_does_not_count_once_a_message_came_from_another_queue(script: Script) -> None:
    sending = Sending(script.url, exit_at_end=True)
    script.say(NO_GROUP, NONE, NO_GROUP)
    sending.send()
    assert sending.buffer.is_at_end

    sending.buffer.holdings.received += 1

    assert not sending.buffer.is_at_end


def test_a_queue_with_messages_that_nobody_is_given_yet_is_not_at_its_end(script: Script) -> None:
    sending = Sending(script.url, exit_at_end=True)
    script.say(NO_GROUP, NONE, group(more=True))

    sending.send()

    assert not sending.buffer.is_at_end
    sending.clock.advance(1)
    script.say(NONE, group(more=False))
    sending.send()
    assert sending.buffer.is_at_end


def test_a_queue_that_is_gone_costs_no_other_queue_the_results_of_a_job(script: Script) -> None:
    """The request that would have stored them receives from both."""
    sending = Sending(script.url, others=["gone"])
    script.say(NO_GROUP, NO_GROUP, ONE)
    sending.end_one(NewMessage("a result"))

    script.say(refusal(404, "QueueNotFound"), NONE)
    refused, waiting, settling = sending.send(), sending.due(), sending.send()

    assert [one.receives for one in (refused, waiting, settling)] == [True, True, False]
    assert json.loads(script.asked[-1].body)["append"] == [{"queue": "results", "messages": [{"body": "a result"}]}]
    assert (sending.buffer.counts.done, sending.buffer.counts.failed) == (1, 0)


def test_results_outlast_a_credential_that_is_refused_for_a_while(script: Script) -> None:
    sending = Sending(script.url)
    script.say(NO_GROUP, ONE)
    sending.end_one(NewMessage("a result"))

    script.say(refusal(401, "InvalidApplicationKey"))
    sending.send()
    sending.clock.advance(1)
    script.say(NONE)
    sending.send()

    assert json.loads(script.asked[-1].body)["append"][0]["messages"] == [{"body": "a result"}]
    assert (sending.buffer.counts.done, sending.buffer.counts.failed) == (1, 0)


def test_a_result_that_cannot_be_written_is_a_failure_of_its_job_alone(
    script: Script, caplog: pytest.LogCaptureFixture
) -> None:
    """To send the request again and again would keep the worker from settling anything."""
    sending = Sending(script.url)
    script.say(NO_GROUP, ONE)
    sending.end_one(NewMessage("a result", ttl_seconds=timedelta(hours=1)))  # type: ignore[arg-type]

    sending.send()
    sending.due()  # a receive, which waits
    sending.send()
    script.say(NONE)
    sending.send()

    assert json.loads(script.asked[-1].body)["release"] == [{"receipt": "r"}]
    assert "the results of a job are refused" in caplog.text


def refuse_results(sending: Sending, script: Script) -> dict[str, Any]:
    """What the worker settles in place of a job whose results go where its key may append nothing."""
    script.say(refusal(403, "Forbidden"), refusal(403, "Forbidden"), NONE)
    sending.send()
    sending.due()  # a receive, which waits
    sending.send()  # the results alone
    sending.send()
    told: dict[str, Any] = json.loads(script.asked[-1].body)
    return {name: told[name] for name in ("release", "reject", "append") if told.get(name)}


def test_a_job_whose_results_are_refused_to_the_last_attempt_becomes_a_dead_letter_that_says_so(
    script: Script,
) -> None:
    first, last = Sending(script.url), Sending(script.url)
    script.say(group(more=False, max_failures=2), ONE)
    first.end_one(NewMessage("a result"))
    assert refuse_results(first, script) == {"release": [{"receipt": "r"}]}

    script.say(group(more=False, max_failures=1), ONE)
    last.end_one(NewMessage("a result"))

    assert refuse_results(last, script) == {"reject": [{"receipt": "r", "reason": "its results are refused: because"}]}
    assert (last.buffer.counts.failed, last.buffer.counts.dead) == (1, 1)


def test_a_rejection_whose_result_is_refused_stays_one(script: Script) -> None:
    """The job said that no other attempt would end better."""
    sending = Sending(script.url)
    script.say(NO_GROUP, ONE)
    sending.end_one(NewMessage("it failed"), how=JobOutcome.REJECTED, reason="no such order")

    assert refuse_results(sending, script) == {"reject": [{"receipt": "r", "reason": "no such order"}]}
    assert (sending.buffer.counts.failed, sending.buffer.counts.dead) == (0, 1)


def test_of_a_batch_whose_results_do_not_count_the_others_are_given_back(script: Script) -> None:
    """The server would keep them for this worker, which extends all that it has at once."""
    sending = Sending(script.url, batch=2)
    script.say(NO_GROUP, leased("lost", "alive"))
    sending.end_one(NewMessage("a result of both"))

    script.say(refusal(409, "StaleReceipt"))
    sending.send()
    sending.due()  # a receive, which waits
    script.say(Say(200, b'{"status":"ok","settled":{"released":1,"stale":["lost"]}}'))
    sending.send()

    released = [{"receipt": receipt, "count": False} for receipt in ("lost", "alive")]
    assert json.loads(script.asked[-1].body)["release"] == released
    assert (sending.buffer.counts.done, sending.buffer.counts.lost) == (0, 1)
