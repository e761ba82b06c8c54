"""Dead letters: every message that fails for good gets one, and no partition waits for what cannot be written."""

from __future__ import annotations

import hashlib
import json
import logging
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from qdo import Client, Context, Message, NewMessage, RetryPolicy, Worker
from qdo.client.values import check_headers
from qdo.compat.qdo_worker import as_dict
from qdo.groups.assign import Partition
from qdo.groups.local import LocalCoordinator
from qdo.worker import fetching, owners
from qdo.worker.dead_letters import DeadLetter, letters, write_letters
from qdo.worker.hooks_of_2012 import ERROR_QUEUE, save_failed_message
from qdo.worker.job import FailedMessages
from queuey.errors import ConfigurationError, Forbidden, HeadersTooLarge, InvalidParameter, MessageNotFound
from queuey.model import MAX_HEADERS
from queuey.model.dead_letters import ALONE_TYPE, REDRIVEN_HEADER, STORY_HEADER, Story, story_of
from tests.support.client import new_name
from tests.support.member_work import member_of
from tests.support.servers import eventually

ONCE = RetryPolicy(attempts=1, most_seconds=0.1)
MOST = 1 << 20
"""A message's body at most, as the server under test is set."""


def fails(message: Message, context: Context) -> None:
    if message.text != "good":
        raise ValueError("no")


def raises(message: Message, context: Context) -> None:
    raise ValueError("no")


def work(make_client: Callable[[], Client], folder: Path, job: Any, *queues: str, **more: Any) -> Worker:
    """A worker that has done what is there."""
    coordinator = LocalCoordinator("g", folder)
    worker = Worker(job, list(queues), coordinator, make_client, retry=ONCE, exit_at_end=True, **more)
    worker.run()
    return worker


def test_a_letter_that_is_there_already_is_written_whatever_the_job_says_now(
    tmp_path: Path, make_client: Callable[[], Client]
) -> None:
    """The worker died between its letter and its commit; the next attempt fails with another text."""
    name = new_name()
    with make_client() as client:
        client.create_queue(name)
        client.append(name, "x")
        (message,) = client.iterate(name)
        failed = FailedMessages(name, [message], 5, ValueError("at 10:00:01"))
        write_letters(client, failed, queue=f"{name}-dead", group="default")

        worker = work(make_client, tmp_path, raises, name)

        ((_, letter),) = letters(client, f"{name}-dead")
    assert (worker.counts.dead, worker.counts.held) == (1, 0)
    assert letter.story.reason == "ValueError: at 10:00:01"


@pytest.mark.parametrize(
    "body",
    [b"\xff" * 900_000, b'"' * 600_000, b"\x00" * (MOST - 20_000), b"\xff\n\x00 two lines\n"],
    ids=["bytes", "quotes", "nearly the most", "line ends"],
)
def test_a_letter_is_the_message_with_its_story(tmp_path: Path, make_client: Callable[[], Client], body: bytes) -> None:
    name, headers = new_name(), {"Trace": b"t", "bytes": b"\xff"}
    with make_client() as client:
        client.create_queue(name)
        client.append(name, NewMessage(body, key="customer 7", content_type="image/png", headers=headers))

        worker = work(make_client, tmp_path, raises, name)

        ((message, letter),) = letters(client, f"{name}-dead")
    assert worker.counts.dead == 1
    assert (message.body, message.key, message.content_type) == (body, "customer 7", "image/png")
    assert message.headers.keys() == {*headers, STORY_HEADER}
    assert (letter.body, letter.size, letter.headers) == (body, len(body), headers)
    assert (letter.story.failures, letter.story.deliveries, letter.story.is_alone) == (1, 0, False)
    assert "ValueError: no" in letter.story.traceback


def test_a_letter_lies_in_the_partition_of_its_key(tmp_path: Path, make_client: Callable[[], Client]) -> None:
    name = new_name()
    with make_client() as client:
        client.create_queue(name)
        client.create_queue(f"{name}-dead", partitions=16)
        sent = client.append_batch(f"{name}-dead", [NewMessage("x", key=f"k{n}") for n in range(6)])
        client.append_batch(name, [NewMessage("x", key=f"k{n}") for n in range(6)])

        work(make_client, tmp_path, raises, name)

        found = {message.key: message.partition for message, _ in letters(client, f"{name}-dead")}
    assert found == {f"k{n}": one.partition for n, one in enumerate(sent)}


def test_a_body_that_is_too_large_for_its_letter_is_retried_from_its_queue(
    tmp_path: Path, make_client: Callable[[], Client]
) -> None:
    name, body = new_name(), b"\xff" * MOST
    with make_client() as client:
        client.create_queue(name)
        sent = client.append(name, NewMessage(body, key="k", content_type="image/png"))

        worker = work(make_client, tmp_path, raises, name)

        ((message, letter),) = letters(client, f"{name}-dead")
        assert (worker.counts.dead, letter.body, letter.size) == (1, None, MOST)
        assert (letter.sha256, letter.story.message_id) == (hashlib.sha256(body).hexdigest(), sent.id.hex)
        assert "ValueError: no" in letter.story.traceback
        assert (message.content_type, message.key) == (ALONE_TYPE, "k")
        assert message.body == message.headers[STORY_HEADER]

        letter.retry(client, message, f"{name}-dead")
        again = list(client.iterate(name))[-1]
        client.delete(name, sent)
        with pytest.raises(MessageNotFound):
            letter.retry(client, message, f"{name}-dead")

    assert (again.body, again.key, again.content_type) == (body, "k", "image/png")


@pytest.mark.parametrize(
    ("headers", "traceback", "alone"),
    [
        ({"a": b"x" * 40_000}, True, False),
        ({"a": b"x" * ((64 << 10) - 1000)}, False, False),
        ({"a": b"x" * ((64 << 10) - 100)}, True, True),
        ({f"h{number}": b"x" for number in range(MAX_HEADERS)}, True, True),
    ],
    ids=["room", "no room for a traceback", "no room for a story", "too many"],
)
def test_a_letter_has_of_its_story_what_the_headers_leave_room_for(
    tmp_path: Path, make_client: Callable[[], Client], headers: dict[str, bytes], traceback: bool, alone: bool
) -> None:
    name = new_name()

    def deep(message: Message, context: Context) -> None:
        raise ValueError("no" + "\n\u00fc" * 1000)

    with make_client() as client:
        client.create_queue(name)
        client.append(name, NewMessage("x", key="k", headers=headers))

        worker = work(make_client, tmp_path, deep, name)

        ((message, letter),) = letters(client, f"{name}-dead")
        letter.retry(client, message, f"{name}-dead")
        again = list(client.iterate(name))[-1]
    assert worker.counts.dead == 1
    assert ("\u00fc" in letter.story.traceback, letter.story.is_alone) == (traceback, alone)
    own = {name: value for name, value in again.headers.items() if name != REDRIVEN_HEADER}
    assert (again.body, again.key, own) == (b"x", "k", headers)
    assert (REDRIVEN_HEADER in again.headers) != alone


@pytest.mark.parametrize("refusal", [HeadersTooLarge(), InvalidParameter(problems={"0.headers": "more than 64"})])
def test_a_server_that_takes_fewer_headers_gets_a_shorter_letter(
    make_client: Callable[[], Client], monkeypatch: pytest.MonkeyPatch, refusal: Exception
) -> None:
    name = new_name()
    with make_client() as client:
        client.create_queue(name)
        client.append(name, NewMessage("x", headers={"a": "1"}))
        (message,) = client.iterate(name)
        append = client.append

        def refuse(queue: str, new: NewMessage) -> Any:
            if len(new.headers) > 1 or b"traceback" in check_headers(new.headers)[STORY_HEADER]:
                raise refusal
            return append(queue, new)

        monkeypatch.setattr(client, "append", refuse)
        failed = FailedMessages(name, [message], 5, ValueError("no"))
        write_letters(client, failed, queue=f"{name}-dead", group="default")

        ((_, letter),) = letters(client, f"{name}-dead")
    assert (letter.story.is_alone, letter.story.traceback, letter.size) == (True, "", 1)


def test_another_refusal_makes_no_letter_shorter(
    make_client: Callable[[], Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    name, tries = new_name(), list[NewMessage]()
    with make_client() as client:
        client.create_queue(name)
        client.append(name, "x")
        (message,) = client.iterate(name)

        def refuse(queue: str, new: NewMessage) -> Any:
            tries.append(new)
            raise InvalidParameter(problems={"0.key": "wrong"})

        monkeypatch.setattr(client, "append", refuse)
        with pytest.raises(InvalidParameter):
            write_letters(client, FailedMessages(name, [message], 5, ValueError("no")), queue="dead", group="g")
    assert len(tries) == 1


def test_a_message_is_put_back_as_it_was_with_its_headers(tmp_path: Path, make_client: Callable[[], Client]) -> None:
    name = new_name()
    with make_client() as client:
        client.create_queue(name, partitions=4)
        client.append(name, NewMessage("x", partition=3, content_type="image/png", headers={"trace": "t"}))
        work(make_client, tmp_path, raises, name)
        ((message, letter),) = letters(client, f"{name}-dead")

        letter.retry(client, message, f"{name}-dead")

        first, again = client.iterate(name)
    assert story_of({STORY_HEADER: again.headers[REDRIVEN_HEADER]}).message_id == first.id.hex
    assert again == replace(
        first, id=again.id, headers={**first.headers, REDRIVEN_HEADER: again.headers[REDRIVEN_HEADER]}
    )
    assert (again.partition, again.headers["trace"]) == (3, b"t")


def test_a_retry_keeps_the_key_and_repeats_nothing(tmp_path: Path, make_client: Callable[[], Client]) -> None:
    name = new_name()
    with make_client() as client:
        client.create_queue(name, partitions=4)
        sent = client.append(name, NewMessage("x", key="customer 7"))
        work(make_client, tmp_path, raises, name)
        ((message, letter),) = letters(client, f"{name}-dead")

        for _ in range(2):
            letter.retry(client, message, f"{name}-dead")

        first, again = client.iterate(name)
    assert (first.key, again.key) == ("customer 7", "customer 7")
    assert (first.partition, again.partition) == (sent.partition, sent.partition)


def test_messages_of_one_id_in_two_queues_have_two_letters(tmp_path: Path, make_client: Callable[[], Client]) -> None:
    """They share a queue for their letters, and the group's name is as long as one may be."""
    names, kept = [new_name(), new_name()], new_name()
    with make_client() as client:
        client.create_queue(names[0])
        client.create_queue(names[1])
        sent = client.append(names[0], "x")
        client.put(names[1], f"1:{sent.id.hex}", "y")

        for group in ("g" * 99 + "1", "g" * 99 + "2"):
            work(make_client, tmp_path / group, raises, *names, dead_letters=kept, group=group)

        found = sorted((letter.story.queue, letter.story.group) for _, letter in letters(client, kept))
    assert len(set(found)) == 4
    assert len({letter_key(queue, sent.id.hex, group) for queue, group in found}) == 4


def letter_key(queue: str, message_id: str, group: str) -> str:
    return DeadLetter(Story(queue, 1, message_id, group, 1, "")).idempotency_key


def test_what_the_server_refuses_for_good_holds_its_partition_and_says_so(
    tmp_path: Path, make_client: Callable[[], Client], caplog: pytest.LogCaptureFixture
) -> None:
    name, told = new_name(), list[str]()
    with make_client() as client:
        client.create_queue(name, partitions=2)
        client.append_batch(name, [NewMessage(text, partition=1) for text in ("bad", "good", "good")])

    def refuse(failed: FailedMessages, value: Any) -> None:
        told.append(failed.messages[0].text)
        raise Forbidden("append is not among the verbs of this token")

    with closing(LocalCoordinator("g", tmp_path)) as outside:
        worker = Worker(
            fails,
            [name],
            LocalCoordinator("g", tmp_path),
            make_client,
            retry=ONCE,
            on_failure=refuse,
            commit_seconds=0.05,
        )
        thread = threading.Thread(target=worker.run)
        thread.start()
        eventually(lambda: any(member.about.get("troubles") for member in outside.members()))
        (member,) = outside.members()
        with make_client() as client:
            client.append(name, NewMessage("good", partition=2))
        eventually(lambda: worker.counts.done == 1)
        worker.stop()
        thread.join()

        assert outside.offsets().get(Partition(name, 1)) is None

    assert told == ["bad"]
    (trouble,) = member.about["troubles"]
    assert (trouble["queue"], trouble["partition"]) == (name, 1)
    assert "Forbidden: append is not among the verbs" in trouble["why"]
    assert f"{name}:1 stands still" in caplog.text
    assert "restart the worker, or pass the message over with 'qdo offsets set'" in caplog.text


def test_a_partition_that_is_held_does_not_keep_a_worker_from_its_end(
    tmp_path: Path, make_client: Callable[[], Client]
) -> None:
    """Nor does it take the room for messages of others: they are larger than that together."""
    name = new_name()
    with make_client() as client:
        client.create_queue(name, partitions=2)
        client.append(name, NewMessage("bad", partition=1))
        for partition in (1, 2):
            client.append_batch(name, [NewMessage("x" * 1000, partition=partition) for _ in range(40)])

    def job(message: Message, context: Context) -> None:
        if message.text == "bad":
            raise ValueError("no")

    def refuse(failed: FailedMessages, value: Any) -> None:
        raise Forbidden

    worker = work(make_client, tmp_path, job, name, on_failure=refuse, prefetch_messages=20, prefetch_bytes=10_000)

    assert (worker.counts.done, worker.counts.dead, worker.counts.held) == (40, 0, 1)
    assert not worker.all_done


def test_a_partition_that_stands_still_goes_on_when_its_queue_is_made_anew(
    tmp_path: Path, make_client: Callable[[], Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owners, "LIST_SECONDS", 0.5)
    monkeypatch.setattr(fetching, "HELD_SECONDS", 0.5)
    name, done = new_name(), list[str]()
    with make_client() as client:
        client.create_queue(name)
        client.append(name, "bad")

    def job(message: Message, context: Context) -> None:
        if message.text == "bad":
            raise ValueError("no")
        done.append(message.text)

    def refuse(failed: FailedMessages, value: Any) -> None:
        raise Forbidden

    coordinator = LocalCoordinator("g", tmp_path)
    worker = Worker(job, [name], coordinator, make_client, retry=ONCE, on_failure=refuse, commit_seconds=0.05)
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        eventually(lambda: worker.counts.held)
        with make_client() as client:
            client.delete_queue(name)
            client.create_queue(name)
            client.append(name, "of the new queue")
        eventually(lambda: done)
        assert worker.troubles() == []
    finally:
        worker.stop()
        thread.join()

    assert done == ["of the new queue"]


@pytest.mark.parametrize("names", [["q" * 46], ["ok", "q" * 46]])
def test_a_queue_whose_dead_letters_have_no_name_is_refused_at_start(
    tmp_path: Path, make_client: Callable[[], Client], names: list[str]
) -> None:
    with pytest.raises(ConfigurationError, match="name another queue with --dead-letters NAME"):
        Worker(raises, names, LocalCoordinator("g", tmp_path), make_client)


def test_a_pattern_leaves_out_a_queue_whose_dead_letters_have_no_name(
    tmp_path: Path, make_client: Callable[[], Client]
) -> None:
    prefix = new_name()
    long = prefix.ljust(47, "x")
    with make_client() as client:
        for name in (prefix, long):
            client.create_queue(name)
            client.append(name, "good")

    worker = work(make_client, tmp_path, fails, f"{prefix}*")

    assert (worker.counts.done, worker.all_done) == (1, False)
    (trouble,) = worker.troubles()
    assert trouble["queue"] == long
    assert "name another queue with --dead-letters NAME" in trouble["why"]


def test_a_worker_that_joins_others_knows_what_is_left_out_before_it_ends(
    tmp_path: Path, make_client: Callable[[], Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    prefix, listed = new_name(), threading.Event()
    with make_client() as client:
        client.create_queue(prefix, partitions=2)
        client.create_queue(prefix.ljust(47, "x"))

    def make_slow() -> Client:
        client = make_client()
        every = client.queues
        monkeypatch.setattr(client, "queues", lambda **given: listed.wait() and every(**given))
        return client

    leader = Worker(fails, [f"{prefix}*"], LocalCoordinator("g", tmp_path), make_client)
    worker = Worker(fails, [f"{prefix}*"], LocalCoordinator("g", tmp_path), make_slow, exit_at_end=True)
    threads = [threading.Thread(target=each.run) for each in (leader, worker)]
    try:
        threads[0].start()
        eventually(lambda: member_of(leader).group.held)
        threads[1].start()
        eventually(
            lambda: member_of(worker).group.settled and member_of(worker)._prefetched.places_at_end() is not None
        )
        listed.set()
        threads[1].join()
    finally:
        listed.set()
        leader.stop()
        threads[0].join()

    assert not worker.all_done
    assert worker.troubles()


def test_an_error_that_cannot_say_what_it_is_becomes_a_letter(
    tmp_path: Path, make_client: Callable[[], Client], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "qdo.worker")  # not every runner of tests passes a lone surrogate on

    class Silent(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    name, errors = new_name(), [Silent(), ValueError("\udcff is no character"), ValueError("x" * 3_000_000)]
    with make_client() as client:
        client.create_queue(name)
        client.append_batch(name, ["0", "1", "2"])

    def job(message: Message, context: Context) -> None:
        raise errors[int(message.text)]

    worker = work(make_client, tmp_path, job, name)

    with make_client() as client:
        reasons = [letter.story.reason for _, letter in letters(client, f"{name}-dead")]
    assert worker.counts.dead == 3
    assert reasons[:2] == ["Silent: its text cannot be made", r"ValueError: \udcff is no character"]
    assert len(reasons[2]) < 1000


def test_a_failed_job_shows_where_it_failed(
    tmp_path: Path, make_client: Callable[[], Client], caplog: pytest.LogCaptureFixture
) -> None:
    name = new_name()
    with make_client() as client:
        client.create_queue(name)
        client.append(name, "x")

    def divide(message: Message, context: Context) -> float:
        return 1 / len(message.text[1:])

    work(make_client, tmp_path, divide, name)

    with make_client() as client:
        ((_, letter),) = letters(client, f"{name}-dead")
    assert "return 1 / len(message.text[1:])" in letter.story.traceback
    assert letter.story.traceback.endswith("ZeroDivisionError: division by zero")
    assert "worker.py" not in letter.story.traceback
    assert "return 1 / len(message.text[1:])" in caplog.text


def test_the_hook_of_2012_saves_a_message_that_is_too_large_without_its_body(make_client: Callable[[], Client]) -> None:
    name = new_name()
    with make_client() as client:
        client.create_queue(name)
        client.create_queue(ERROR_QUEUE)
        client.append(name, b"\xff" * 900_000)
        (message,) = client.iterate(name)

        for _ in range(2):
            save_failed_message(as_dict(message), None, f"{name}-1", ValueError("no"), client)

        told = [json.loads(saved.text) for saved in client.iterate(ERROR_QUEUE)]
    (entry,) = [each for each in told if each["queue"] == f"{name}-1"]
    assert (entry["message_id"], "body" in entry) == (message.id.hex, False)
