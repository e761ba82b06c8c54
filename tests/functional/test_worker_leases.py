"""The worker on leases as a library: what it settles, holds, extends and gives back."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from qdo import Client, Context, Message, NewMessage, RejectMessage, RetryLater, StopWorker, Worker
from qdo.client import Delivery, Reject, Settle
from qdo.groups.local import LocalCoordinator
from qdo.worker.dead_letters import letters
from qdo.worker.leases.sending import LeaseSenders
from queuey.errors import ConfigurationError, Forbidden, InvalidParameter
from tests.support.client import new_name
from tests.support.servers import eventually
from tests.support.worker_threads import at_work

GROUP = "workers"
Make = Callable[..., Worker]


@pytest.fixture
def client(make_client: Callable[[], Client]) -> Iterator[Client]:
    with make_client() as found:
        yield found


@pytest.fixture
def make(make_client: Callable[[], Client], monkeypatch: pytest.MonkeyPatch) -> Make:
    """Workers that end soon: their requests wait at the server for a short time."""
    monkeypatch.setattr("qdo.worker.leases.due.WAIT_SECONDS", 0.2)
    monkeypatch.setattr("qdo.worker.leases.due.POLL_SECONDS", 0.1)

    def made(job: Any, *queues: str, **more: Any) -> Worker:
        return Worker(job, queues, make_client=make_client, lease=True, group=GROUP, **more)

    return made


def filled(client: Client, *bodies: str, partitions: int = 1, **settings: Any) -> str:
    """A queue with these messages, and the settings of its group."""
    name = new_name()
    client.create_queue(name, partitions=partitions)
    if settings:
        client.set_lease_group(name, GROUP, **settings)
    if bodies:
        client.append_batch(name, list(bodies))
    return name


def held(client: Client, queue: str) -> int:
    return sum(part.held for part in client.lease_group(queue, GROUP).partitions)


class Noting:
    """A job that notes what it got, and waits for ``go`` if told to."""

    def __init__(self, *, waits: bool = False) -> None:
        self.seen: list[Delivery] = []
        self.go = threading.Event()
        if not waits:
            self.go.set()

    def __call__(self, message: Delivery, context: Context) -> None:
        self.seen.append(message)
        assert self.go.wait(90)

    @property
    def texts(self) -> list[str]:
        return [message.text for message in self.seen]


def test_four_workers_do_everything_once(client: Client, make: Make) -> None:
    bodies = [str(number) for number in range(2000)]
    queue, job = filled(client, *bodies, partitions=4), Noting()
    workers = [make(job, queue, exit_at_end=True, threads=2) for _ in range(4)]

    with at_work(*workers):
        eventually(lambda: all(worker.all_done for worker in workers), seconds=90)

    assert Counter(job.texts) == Counter(bodies)
    assert sum(worker.counts.done for worker in workers) == 2000
    assert sum(worker.counts.lost for worker in workers) == 0
    assert (held(client, queue), client.receive(queue, GROUP)) == (0, [])


def test_a_busy_worker_sends_few_requests(client: Client, make: Make) -> None:
    queue, job = filled(client, *map(str, range(3000))), Noting()
    worker = make(job, queue, exit_at_end=True)

    assert worker.run().done == 3000
    assert worker.requests < 150


def test_a_job_that_raises_is_tried_again_by_the_group_and_then_given_up(
    client: Client, make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    queue = filled(client, "good", "bad", "good", max_failures=3, backoff={"first": 0})
    attempts: list[tuple[int, int]] = []

    def job(message: Delivery, context: Context) -> None:
        if message.text == "bad":
            attempts.append((context.attempt, context.generation))
            raise ValueError("this one is bad")

    worker = make(job, queue, exit_at_end=True)
    counts = worker.run()

    assert attempts == [(1, 1), (2, 2), (3, 3)]
    assert (counts.done, counts.failed, counts.dead, worker.all_done) == (2, 3, 1, False)
    assert "ValueError: this one is bad" in caplog.text
    assert any(record.exc_info for record in caplog.records)
    ((message, letter),) = letters(client, f"{queue}-dead")
    assert (message.text, letter.story.failures, letter.story.group) == ("bad", 3, GROUP)


def test_a_message_that_its_job_rejects_goes_to_the_dead_letters_with_the_reason(client: Client, make: Make) -> None:
    queue = filled(client, "bad", "good")

    def job(message: Delivery, context: Context) -> None:
        if message.text == "bad":
            raise RejectMessage("not\tJSON")

    worker = make(job, queue, exit_at_end=True)
    counts = worker.run()

    ((_, letter),) = letters(client, f"{queue}-dead")
    assert (counts.done, counts.failed, counts.dead, worker.all_done) == (1, 0, 1, False)
    assert letter.story.reason == "not JSON"


def test_stop_worker_gives_its_message_and_the_rest_back(client: Client, make: Make) -> None:
    queue = filled(client, "a", "stop", "b", visibility=600)

    def job(message: Delivery, context: Context) -> None:
        if message.text == "stop":
            raise StopWorker

    counts = make(job, queue, threads=1).run()

    assert (counts.done, counts.failed, counts.lost) == (1, 0, 0)
    assert [(one.text, one.failures) for one in client.receive(queue, GROUP, 10)] == [("stop", 0), ("b", 0)]


def test_a_worker_holds_no_more_than_it_may(client: Client, make: Make) -> None:
    queue, job = filled(client, *(["x" * 100] * 300), visibility=600), Noting(waits=True)
    few = make(job, queue, threads=2, prefetch_messages=5)

    def slow(message: Delivery, context: Context) -> None:
        job(message, context)

    with at_work(few):
        eventually(lambda: len(job.seen) == 2)
        few_held = held(client, queue)
        job.go.set()
        eventually(lambda: few.counts.done > 50)
        job.go.clear()
        eventually(lambda: len(few.work._buffer.running()) == 2 and few.work._senders.requests)  # type: ignore[attr-defined]
        later_held = held(client, queue)
        job.go.set()

    assert few_held == 2  # nothing is read ahead before it is known how long a job takes
    assert later_held <= 2 + 5


def test_the_bytes_that_a_worker_holds_are_bounded(client: Client, make: Make) -> None:
    queue, job = filled(client, *(["x" * 100_000] * 30), visibility=600), Noting()
    sizes: list[int] = []
    worker = make(job, queue, threads=1, prefetch_bytes=2 << 20, exit_at_end=True)

    def looking(message: Delivery, context: Context) -> None:
        sizes.append(sum(count for count, _ in worker.waiting()) * 100_000)

    worker.work._jobs.caller._runner._job = looking  # type: ignore[attr-defined]
    assert worker.run().done == 30
    assert max(sizes) <= 2 << 20


def test_a_long_job_keeps_its_lease_and_those_of_what_waits(client: Client, make: Make) -> None:
    queue, job = filled(client, "long", visibility=3), Noting(waits=True)
    worker = make(job, queue, threads=1)

    with at_work(worker):
        eventually(lambda: job.seen)
        begun = float(job.seen[0].visible_at or 0)
        eventually(lambda: [float(one.visible_at) > begun + 1.5 for one in client.leases(queue, GROUP)] == [True])
        job.go.set()
        eventually(lambda: worker.counts.done == 1)

    assert (worker.counts.lost, len(job.seen)) == (0, 1)


def test_what_a_job_did_under_a_lost_lease_does_not_count(
    client: Client, make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    queue, job = filled(client, "x"), Noting(waits=True)
    worker = make(job, queue, threads=1)

    with at_work(worker):
        eventually(lambda: job.seen)
        client.reset_lease_group(queue, GROUP, "beginning")
        job.go.set()
        eventually(lambda: worker.counts.done == 1)

    assert (worker.counts.lost, job.texts) == (1, ["x", "x"])
    assert "what its job did does not count" in caplog.text


def test_a_job_hears_that_its_lease_ended(client: Client, make: Make) -> None:
    """Its machine slept, or the server was away for longer than the lease."""
    queue = filled(client, "x", visibility=30)
    heard: list[bool] = []
    worker = make(lambda message, context: None, queue, threads=1)

    def job(message: Delivery, context: Any) -> None:
        heard.append(context.is_lost)
        if len(heard) == 1:
            for one in worker.work._buffer.holdings.queues.by_name[queue].held.values():  # type: ignore[attr-defined]
                one.until = 0.0
            heard.append(context.is_lost)

    worker.work._jobs.caller._runner._job = job  # type: ignore[attr-defined]
    with at_work(worker):
        eventually(lambda: worker.counts.done)

    assert heard == [False, True]


def test_results_are_stored_with_the_acknowledgement(client: Client, make: Make) -> None:
    queue, results = filled(client, *map(str, range(50)), "bad"), filled(client)
    client.set_lease_group(queue, GROUP, max_failures=1)

    def job(message: Delivery, context: Context) -> None:
        context.append(results, f"{message.text} done")
        if message.text == "bad":
            raise ValueError("after its result")

    counts = make(job, queue, exit_at_end=True).run()

    assert counts.done == 50
    assert sorted(one.text for one in client.iterate(results)) == sorted(f"{number} done" for number in range(50))


def test_results_of_a_lost_lease_are_not_stored(client: Client, make: Make) -> None:
    queue, results = filled(client, "x"), filled(client)
    begun, go = threading.Event(), threading.Event()
    texts = iter(["lost", "kept"])

    def job(message: Delivery, context: Context) -> None:
        context.append(results, next(texts))
        begun.set()
        assert go.wait(90)

    worker = make(job, queue, threads=1)
    with at_work(worker):
        assert begun.wait(90)
        client.reset_lease_group(queue, GROUP, "beginning")
        go.set()
        eventually(lambda: worker.counts.done == 1)

    assert [one.text for one in client.iterate(results)] == ["kept"]


def test_results_that_nobody_takes_are_a_failure_of_their_job_alone(
    client: Client, make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    queue, results = filled(client, *map(str, range(20)), max_failures=2, backoff={"first": 0}), filled(client)

    def job(message: Delivery, context: Context) -> None:
        context.append(new_name() if message.text == "7" else results, message.text)

    worker = make(job, queue, exit_at_end=True)
    counts = worker.run()

    assert (counts.done, counts.failed, counts.dead, worker.all_done) == (19, 2, 1, False)
    assert len([*client.iterate(results)]) == 19
    assert "the results of a job are refused" in caplog.text


async def later(message: Message, context: Context) -> None:
    context.append(context.value, message.text)


def apart(message: Message, context: Context) -> None:
    context.append(message.text.partition(" ")[0], message.text)


def test_results_come_from_a_loop_and_from_other_processes(client: Client, make: Make) -> None:
    results = filled(client)
    for job, options in ((later, {"context_value": results}), (apart, {"processes": 1})):
        queue = filled(client, f"{results} {job.__name__}")
        worker = make(job, queue, exit_at_end=True, **options)
        assert worker.run().done == 1

    assert [one.text.partition(" ")[2] for one in client.iterate(results)] == ["later", "apart"]


def test_a_batch_is_a_list_of_one_queue(client: Client, make: Make) -> None:
    first, second = (filled(client, *map(str, range(20)), partitions=2) for _ in range(2))
    batches: list[list[Delivery]] = []

    counts = make(lambda messages, _: batches.append(messages), first, second, batch=8, exit_at_end=True).run()

    assert counts.done == 40
    assert max(map(len, batches)) == 8
    assert all(len({message.queue for message in batch}) == 1 for batch in batches)


def test_several_queues_take_turns(client: Client, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a pattern too, and those that come later; a queue with a backlog keeps none waiting."""
    monkeypatch.setattr("qdo.worker.leases.work.LIST_SECONDS", 0.1)
    prefix = new_name()
    client.create_queue(f"{prefix}-full")
    client.append_batch(f"{prefix}-full", ["x"] * 500)
    client.create_queue(f"{prefix}-full-dead")
    client.append(f"{prefix}-full-dead", "a letter")
    job, other = Noting(waits=True), filled(client)
    worker = make(job, f"{prefix}-*", other, threads=2)

    with at_work(worker):
        eventually(lambda: len(job.seen) == 2)
        client.append(other, "other")
        client.create_queue(f"{prefix}-new")
        client.append(f"{prefix}-new", "new")
        job.go.set()
        eventually(lambda: {"other", "new"} <= set(job.texts) and len(job.seen) == 502, seconds=90)

    assert "a letter" not in job.texts


def test_one_request_waits_for_messages_of_many_queues(client: Client, make: Make) -> None:
    """Also if one of them is not there, or goes, and whatever the length of their leases."""
    names, job = [filled(client, visibility=30 + number % 2) for number in range(12)], Noting()
    worker = make(job, *names, new_name())
    buffer = worker.work._buffer  # type: ignore[attr-defined]

    def asked_together() -> list[int]:
        return sorted(len(one.queues) for one in buffer.holdings.queues.sets)

    with at_work(worker):
        eventually(lambda: asked_together() == [1, 12])
        for name in names:
            client.append(name, name)
        eventually(lambda: set(job.texts) == set(names))
        client.delete_queue(names[0])
        client.append(names[1], "after that")
        eventually(lambda: asked_together() == [1, 1, 11])
        eventually(lambda: worker.counts.done == 13)


def test_a_queue_that_is_missing_is_waited_for(client: Client, make: Make) -> None:
    name, job = new_name(), Noting()
    worker = make(job, name)

    with at_work(worker):
        eventually(lambda: worker.requests)
        client.create_queue(name)
        client.append(name, "x")
        eventually(lambda: job.texts == ["x"])


def test_the_last_try_of_a_message_is_alone_in_its_worker(client: Client, make: Make) -> None:
    queue = filled(client, "last", max_failures=2, backoff={"first": 0}, visibility=600)
    (first,) = client.receive(queue, GROUP)
    first.release(count=True)
    client.append_batch(queue, ["other"] * 40)
    at_once: list[int] = []
    worker = make(lambda message, context: None, queue, threads=4, exit_at_end=True)

    def job(message: Delivery, context: Context) -> None:
        if message.text == "last":
            at_once.append(held(client, queue))

    worker.work._jobs.caller._runner._job = job  # type: ignore[attr-defined]
    assert worker.run().done == 41
    assert at_once == [1]


def test_a_group_whose_leases_are_too_short_to_work_under_gives_longer_ones(client: Client, make: Make) -> None:
    queue = filled(client, "x", visibility=0)

    assert make(lambda message, context: None, queue, exit_at_end=True).run().done == 1


def test_a_worker_that_may_receive_need_not_be_one_that_may_look(
    client: Client, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with a token whose only verb is ``receive``."""
    queue = filled(client, *map(str, range(20)), backoff={"first": 0})
    failing = iter(["once"])

    def refuse(*_: object) -> None:
        raise Forbidden

    def job(message: Delivery, context: Context) -> None:
        if message.text == "7" and next(failing, None):
            raise ValueError("once")

    monkeypatch.setattr(LeaseSenders, "_ask", refuse)
    counts = make(job, queue, exit_at_end=True).run()

    assert (counts.done, counts.failed, counts.lost) == (20, 1, 0)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"slots": True}, "slots has no meaning with lease"),
        ({"commit_seconds": 1}, "commit_seconds has no meaning with lease"),
        ({"visibility": 1}, "a worker has no option 'visibility'"),
    ],
)
def test_options_without_meaning_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        Worker(lambda message, context: None, ["q"], lease=True, **options)


def test_members_on_leases_meet_nowhere(tmp_path: Path) -> None:
    with (
        closing(LocalCoordinator("g", tmp_path)) as coordinator,
        pytest.raises(ConfigurationError, match="workers on leases meet nowhere: no coordinator"),
    ):
        Worker(lambda message, context: None, ["q"], coordinator, lease=True)


def test_in_order_and_weights_belong_to_leases() -> None:
    with pytest.raises(ConfigurationError, match="for queues that workers lease from: set lease"):
        Worker(lambda message, context: None, ["q"], in_order=True)


def test_a_job_may_say_when_it_is_tried_again(make: Make, client: Client) -> None:
    queue = filled(client, "it", backoff={"first": 3600})
    attempts: list[int] = []

    def job(message: Delivery, context: Context) -> None:
        attempts.append(context.attempt)
        if context.attempt < 3:
            raise RetryLater(0)

    worker = make(job, queue, exit_at_end=True)
    worker.run()

    assert (attempts, worker.all_done) == ([1, 2, 3], True)


def test_a_rejected_message_has_the_traceback_of_what_it_was_rejected_for(make: Make, client: Client) -> None:
    queue = filled(client, "with", "without")

    def job(message: Delivery, context: Context) -> None:
        try:
            raise ValueError("the cause")
        except ValueError as error:
            raise RejectMessage("not JSON") from (error if message.text == "with" else None)

    make(job, queue, exit_at_end=True).run()

    found = {letter.body: letter.story for letter in (one for _, one in letters(client, f"{queue}-dead"))}
    assert {story.reason for story in found.values()} == {"not JSON"}
    assert "ValueError: the cause" in found[b"with"].traceback
    assert found[b"without"].traceback == ""


def test_a_traceback_without_room_is_left_out(client: Client) -> None:
    """The headers of the message and the story share 64 KiB."""
    queue = filled(client)
    client.append(queue, NewMessage("it", headers={"large": "x" * 62_000}))
    (message,) = client.receive(queue, GROUP)

    client.settle(queue, GROUP, Settle(reject=[Reject(message, "no", "line\n" * 800)]))

    ((_, letter),) = letters(client, f"{queue}-dead")
    assert (letter.story.reason, letter.story.traceback, letter.body) == ("no", "", b"it")


def test_a_traceback_that_is_too_long_is_refused(client: Client) -> None:
    queue = filled(client, "it")
    (message,) = client.receive(queue, GROUP)

    with pytest.raises(InvalidParameter, match=r"reject.0.traceback: must be a text of at most 4096 characters"):
        client.settle(queue, GROUP, Settle(reject=[Reject(message, "no", "x" * 4097)]))
