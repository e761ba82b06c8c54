"""The worker as a library: what a job may be, and how many run at once."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from qdo import Client, Context, Message, NewMessage, RejectMessage, RetryPolicy, StopWorker, Worker
from qdo.groups.assign import Partition
from qdo.groups.coordination import Coordinator
from qdo.groups.local import LocalCoordinator
from qdo.groups.offsets_in_queuey import OffsetsInQueuey
from qdo.worker import owners
from qdo.worker.dead_letters import letters
from qdo.worker.job import FailedMessages
from queuey.errors import ConfigurationError, StorageUnavailable
from tests.support.client import new_name
from tests.support.member_work import member_of
from tests.support.servers import eventually

Run = Callable[..., Worker]


@pytest.fixture(autouse=True)
def queues_are_listed_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where one comes, these tests wait for the next list."""
    monkeypatch.setattr(owners, "LIST_SECONDS", 0.5)


@pytest.fixture
def worker(tmp_path: Path, make_client: Callable[[], Client]) -> Run:
    """A worker that ends when everything is done."""

    def make(job: Any, queue: str, **more: Any) -> Worker:
        return Worker(job, [queue], LocalCoordinator("g", tmp_path), make_client, exit_at_end=True, **more)

    return make


def fill(make_client: Callable[[], Client], name: str, messages: list[NewMessage], partitions: int = 1) -> None:
    with make_client() as client:
        client.create_queue(name, partitions=partitions)
        if messages:
            client.append_batch(name, messages)


def test_messages_of_one_key_keep_their_order_while_others_pass(worker: Run, make_client: Callable[[], Client]) -> None:
    name = new_name()
    fill(make_client, name, [NewMessage(str(number), key=f"key {number % 7}") for number in range(70)])
    seen: dict[str | None, list[int]] = defaultdict(list)
    at_once, lock, meeting = set[int](), threading.Lock(), threading.Event()

    def job(message: Message, context: Context) -> None:
        with lock:
            at_once.add(threading.get_ident())
            if len(at_once) > 1:
                meeting.set()
        assert meeting.wait(90)  # the first jobs wait for company
        seen[message.key].append(int(message.text))

    counts = worker(job, name, by_key=4, threads=4).run()

    assert counts.done == 70
    assert all(numbers == sorted(numbers) for numbers in seen.values())
    assert sorted(number for numbers in seen.values() for number in numbers) == list(range(70))


def test_a_coroutine_is_awaited(worker: Run, make_client: Callable[[], Client]) -> None:
    name = new_name()
    fill(make_client, name, [NewMessage(str(number)) for number in range(20)])
    seen: list[int] = []

    async def job(message: Message, context: Context) -> None:
        seen.append(int(message.text))

    assert worker(job, name).run().done == 20
    assert seen == list(range(20))


def test_a_batch_is_a_list_of_one_partition(worker: Run, make_client: Callable[[], Client]) -> None:
    name = new_name()
    fill(make_client, name, [NewMessage(str(number), partition=number % 2 + 1) for number in range(40)], 2)
    batches: list[list[Message]] = []

    def job(messages: list[Message], context: Context) -> None:
        batches.append(messages)

    assert worker(job, name, batch=8).run().done == 40
    assert max(map(len, batches)) == 8
    assert all(len({message.partition for message in batch}) == 1 for batch in batches)


def test_a_failing_message_holds_up_its_own_partition_alone(worker: Run, make_client: Callable[[], Client]) -> None:
    name = new_name()
    fill(make_client, name, [NewMessage(str(number), partition=number % 2 + 1) for number in range(20)], 2)
    seen: list[int] = []
    attempts: list[int] = []

    def job(message: Message, context: Context) -> None:
        if message.text == "0":
            attempts.append(context.attempt)
            if context.attempt < 3:
                raise ValueError("not yet")
            eventually(lambda: 19 in seen)
        seen.append(int(message.text))

    counts = worker(job, name, retry=RetryPolicy(first_seconds=0.1, jitter=0)).run()

    assert attempts == [1, 2, 3]
    assert (counts.done, counts.failed, counts.dead) == (20, 2, 0)
    assert [number for number in seen if number % 2 == 0] == list(range(0, 20, 2))


def test_a_job_that_hangs_is_reported_and_the_other_partitions_go_on(
    worker: Run, make_client: Callable[[], Client], caplog: pytest.LogCaptureFixture
) -> None:
    name = new_name()
    fill(make_client, name, [NewMessage(str(number), partition=number % 2 + 1) for number in range(20)], 2)
    go, again, others = threading.Event(), threading.Event(), set[str]()

    def job(message: Message, context: Context) -> None:
        if message.text == "0":
            assert go.wait(120)
        elif message.text == "2":
            assert again.wait(120)
        elif context.partition == 2:
            others.add(message.text)

    found = worker(job, name, hung_seconds=1.0)
    thread = threading.Thread(target=found.run)
    thread.start()
    eventually(lambda: len(others) == 10 and f"a job in {name}:1 takes longer than 1 s" in caplog.text)
    go.set()
    eventually(lambda: caplog.text.count(f"{name}:1 takes longer") >= 2)  # the next one in the same partition
    again.set()
    thread.join(90)

    assert found.counts.done == 20


def test_a_job_is_told_where_it_is_and_how_late(worker: Run, make_client: Callable[[], Client]) -> None:
    name = new_name()
    fill(make_client, name, [NewMessage("x")])
    told: list[Context] = []
    lags: list[float] = []

    def job(message: Message, context: Context) -> None:
        told.append(context)
        lags.append(context.lag_seconds)
        if context.attempt == 1:
            raise ValueError("once more")

    worker(job, name, retry=RetryPolicy(first_seconds=0.3, jitter=0)).run()
    fill(make_client, name, [NewMessage("y")])
    worker(job, name).run()

    first, second = told[0], told[-1]
    assert (first.queue, first.partition, first.group) == (name, 1, "default")
    assert first.member
    assert lags[1] >= lags[0] + 0.3 > 0.3
    assert second.generation > first.generation


def test_stop_worker_leaves_its_message_to_the_next(worker: Run, make_client: Callable[[], Client]) -> None:
    name = new_name()
    fill(make_client, name, [NewMessage(str(number)) for number in range(5)])
    seen: list[int] = []

    def stops(message: Message, context: Context) -> None:
        if message.text == "3":
            raise StopWorker
        seen.append(int(message.text))

    worker(stops, name).run()
    assert seen == [0, 1, 2]
    worker(lambda message, context: seen.append(int(message.text)), name).run()
    assert seen == [0, 1, 2, 3, 4]


def test_a_message_that_its_job_rejects_is_a_letter_at_once(worker: Run, make_client: Callable[[], Client]) -> None:
    name = new_name()
    fill(make_client, name, [NewMessage("bad"), NewMessage("good")])

    def job(message: Message, context: Context) -> None:
        if message.text == "bad":
            raise RejectMessage("not JSON")

    counts = worker(job, name).run()

    with make_client() as client:
        ((_, letter),) = letters(client, f"{name}-dead")
    assert (counts.done, counts.failed, counts.dead) == (1, 0, 1)
    assert (letter.story.reason, letter.story.failures) == ("not JSON", 1)


def test_at_most_once_records_before_the_job(worker: Run, make_client: Callable[[], Client]) -> None:
    name = new_name()
    fill(make_client, name, [NewMessage(str(number)) for number in range(4)])
    seen: list[int] = []

    def job(message: Message, context: Context) -> None:
        seen.append(int(message.text))
        if message.text == "1":
            raise StopWorker

    worker(job, name, at_most_once=True).run()
    worker(lambda message, context: seen.append(int(message.text)), name).run()
    assert seen == [0, 1, 2, 3]


@pytest.mark.parametrize("how", [{"at_most_once": True}, {"retry": RetryPolicy(attempts=1, most_seconds=0.1)}])
@pytest.mark.parametrize("trouble", [StorageUnavailable("not now"), ValueError("not now")])
def test_while_a_failure_cannot_be_told_the_job_is_not_called_again(
    worker: Run, make_client: Callable[[], Client], how: dict[str, Any], trouble: Exception
) -> None:
    name = new_name()
    fill(make_client, name, [NewMessage("bad"), NewMessage("good")])
    seen: list[str] = []
    told: list[list[str]] = []

    def job(message: Message, context: Context) -> None:
        seen.append(message.text)
        if message.text == "bad":
            raise ValueError("no")

    def on_failure(failed: FailedMessages, value: Any) -> None:
        told.append([message.text for message in failed.messages])
        if len(told) < 3:
            raise trouble

    how = {"retry": RetryPolicy(most_seconds=0.1)} | how
    counts = worker(job, name, on_failure=on_failure, **how).run()

    assert seen == ["bad", "good"]
    assert told == [["bad"]] * 3
    assert (counts.failed, counts.dead, counts.done) == (1, 1, 1)


def test_dead_letters_whose_queue_was_deleted_go_to_a_new_one(worker: Run, make_client: Callable[[], Client]) -> None:
    name = new_name()
    fill(make_client, name, [NewMessage("first"), NewMessage("second")])

    def job(message: Message, context: Context) -> None:
        if message.text == "second":
            with make_client() as client:
                client.delete_queue(f"{name}-dead")
        raise ValueError("no")

    counts = worker(job, name, retry=RetryPolicy(attempts=1, most_seconds=0.1)).run()

    assert counts.dead == 2
    with make_client() as client:
        assert [letter.body for _, letter in letters(client, f"{name}-dead")] == [b"second"]


def test_the_first_message_of_a_queue_made_anew_has_all_its_attempts(
    tmp_path: Path, make_client: Callable[[], Client]
) -> None:
    name = new_name()
    fill(make_client, name, [NewMessage("old")])
    attempts: list[tuple[str, int]] = []

    def job(message: Message, context: Context) -> None:
        attempts.append((message.text, context.attempt))
        if message.text == "old" and context.attempt == 3:
            with make_client() as client:
                client.delete_queue(name)
            fill(make_client, name, [NewMessage("new")])
        if message.text == "old" or context.attempt < 2:
            raise ValueError("no")
        raise StopWorker

    retry = RetryPolicy(attempts=1000, first_seconds=0.1, factor=1, jitter=0)
    Worker(job, [name], LocalCoordinator("g", tmp_path), make_client, retry=retry).run()

    assert [attempt for text, attempt in attempts if text == "new"] == [1, 2]


def test_offsets_may_be_kept_in_queuey(tmp_path: Path, make_client: Callable[[], Client]) -> None:
    name = new_name()
    fill(make_client, name, [NewMessage(str(number)) for number in range(10)])
    seen: list[int] = []
    for turn in range(2):
        coordinator = OffsetsInQueuey(LocalCoordinator("g", tmp_path / str(turn)), make_client(), "readers")
        job = lambda message, context: seen.append(int(message.text))  # noqa: E731
        Worker(job, [name], coordinator, make_client, exit_at_end=True).run()

    assert seen == list(range(10))
    with make_client() as client:
        (offset,) = client.offsets(name, "readers")
    assert offset.generation == 2


@pytest.mark.parametrize("where", ["group", "queuey"])
def test_an_idle_worker_begins_anew_where_its_offsets_are_set(
    tmp_path: Path, make_client: Callable[[], Client], where: str
) -> None:
    """No message comes that would tell it."""
    name = new_name()
    fill(make_client, name, [NewMessage("a"), NewMessage("b")])
    seen: list[str] = []

    def coordinator() -> Coordinator:
        local = LocalCoordinator("g", tmp_path)
        return local if where == "group" else OffsetsInQueuey(local, make_client(), "g")

    with closing(coordinator()) as outside:
        found = Worker(lambda message, context: seen.append(message.text), [name], coordinator(), make_client)
        thread = threading.Thread(target=found.run)
        thread.start()
        eventually(lambda: len(outside.offsets()) == 1 and len(seen) == 2)

        outside.reset({Partition(name, 1): None})

        eventually(lambda: seen == ["a", "b", "a", "b"])
        found.stop()
        thread.join()


def test_a_queue_that_comes_later_is_found(tmp_path: Path, make_client: Callable[[], Client]) -> None:
    prefix = new_name()
    fill(make_client, f"{prefix}-1", [NewMessage("first")])
    seen: list[str] = []

    def job(message: Message, context: Context) -> None:
        seen.append(f"{context.queue.removeprefix(prefix)}: {message.text}")
        if len(seen) == 1:
            fill(make_client, f"{prefix}-2", [NewMessage("second")])
        else:
            found.stop()

    found = Worker(job, [f"{prefix}-*"], LocalCoordinator("g", tmp_path), make_client)
    found.run()
    assert seen == ["-1: first", "-2: second"]


@pytest.mark.parametrize("where", ["group", "queuey"])
def test_at_the_end_of_what_is_there_begins_nothing_that_comes_later(
    tmp_path: Path, make_client: Callable[[], Client], where: str
) -> None:
    """A partition that a queue got, a queue that came, one that was made anew: nobody has seen what they got first."""
    old, grows, comes = (new_name() for _ in range(3))
    for name in (old, grows):
        fill(make_client, name, [NewMessage("before")])
    seen: list[str] = []

    def coordinator() -> Coordinator:
        local = LocalCoordinator("g", tmp_path)
        return local if where == "group" else OffsetsInQueuey(local, make_client(), "g")

    def job(message: Message, context: Context) -> None:
        seen.append(message.text)

    with closing(coordinator()) as outside:
        found = Worker(job, [old, grows, comes], coordinator(), make_client, from_end=True)
        thread = threading.Thread(target=found.run)
        thread.start()
        try:
            eventually(lambda: len(outside.offsets()) == 2)
            fill(make_client, comes, [NewMessage("comes")])
            fill(make_client, grows, [NewMessage("grown", partition=2)], partitions=2)
            with make_client() as client:
                client.delete_queue(old)
            fill(make_client, old, [NewMessage("anew")])

            eventually(lambda: len(seen) >= 3, seconds=90)
            assert sorted(seen) == ["anew", "comes", "grown"]
        finally:
            found.stop()
            thread.join()


def test_who_comes_to_lead_forgets_no_queue_that_came_since_it_began(
    tmp_path: Path, make_client: Callable[[], Client]
) -> None:
    """Its partitions go on as they are: by a list of before they would be given back, and claimed anew."""
    prefix = new_name()
    fill(make_client, f"{prefix}-old", [])

    def work() -> tuple[Worker, threading.Thread]:
        coordinator = LocalCoordinator("g", tmp_path)
        worker = Worker(lambda message, context: None, [f"{prefix}-*"], coordinator, make_client)
        thread = threading.Thread(target=worker.run)
        thread.start()
        return worker, thread

    with closing(LocalCoordinator("g", tmp_path)) as outside:
        first, thread = work()
        eventually(lambda: member_of(first).group.leads and member_of(first).group.settled)
        second, second_thread = work()
        eventually(lambda: member_of(second).group.settled)
        fill(make_client, f"{prefix}-new", [], partitions=4)
        eventually(
            lambda: member_of(first).group.settled and member_of(second).group.settled and len(outside.owners()) == 5,
            seconds=90,
        )
        before = {part: owner for part, owner in outside.owners().items() if owner[0] == member_of(second).group.name}

        first.stop()
        thread.join()

        eventually(
            lambda: member_of(second).group.leads and member_of(second).group.settled and len(outside.owners()) == 5,
            seconds=90,
        )
        assert before
        assert {part: owner for part, owner in outside.owners().items() if part in before} == before
        second.stop()
        second_thread.join()


def test_of_what_came_later_nothing_is_passed_over_by_who_comes_next(
    tmp_path: Path, make_client: Callable[[], Client]
) -> None:
    """For the next worker the partition was there from the first, and what nobody has done yet is to come all the same."""
    first, comes = new_name(), new_name()
    fill(make_client, first, [NewMessage("before")])

    def work(job: Callable[[Message, Context], None]) -> tuple[Worker, threading.Thread]:
        worker = Worker(job, [first, comes], LocalCoordinator("g", tmp_path), make_client, from_end=True)
        thread = threading.Thread(target=worker.run)
        thread.start()
        return worker, thread

    def end(worker: Worker, thread: threading.Thread) -> None:
        worker.stop()
        thread.join()

    with closing(LocalCoordinator("g", tmp_path)) as outside:
        former = work(lambda message, context: None)
        eventually(lambda: len(outside.offsets()) == 1)
        with make_client() as client:
            client.create_queue(comes)
        eventually(lambda: Partition(comes, 1) in outside.offsets(), seconds=90)
        end(*former)
    seen: list[str] = []
    with make_client() as client:
        client.append(comes, "between")

    latter = work(lambda message, context: seen.append(message.text))

    eventually(lambda: seen == ["between"], seconds=90)
    end(*latter)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"strategy": "fair"}, "strategy 'fair': expected one of sticky"),
        ({"threads": 0}, "threads is 0"),
        ({"by_key": 2, "at_most_once": True}, "no by_key"),
        ({"dead_letters": "{where}"}, "only {queue}"),
    ],
)
def test_what_cannot_be_is_refused(worker: Run, wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said.replace("{", r"\{").replace("}", r"\}")):
        worker(print, "q", **wrong)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("lease", [True, False])
def test_a_worker_whose_threads_get_no_client_ends_and_says_why(tmp_path: Path, lease: bool) -> None:
    """It would have gone on without them."""

    def make() -> Client:
        raise OSError("no token today")

    worker = Worker(print, ["q"], None if lease else LocalCoordinator("g", tmp_path), make, lease=lease)
    before = threading.enumerate()

    with pytest.raises(OSError, match="no token today"):
        worker.run()

    for thread in threading.enumerate():
        if thread not in before:  # what it raises belongs to this test
            thread.join(60)
