"""The threads of jobs: what becomes of messages whatever a call does."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from qdo import Context, Message, NewMessage, RejectMessage
from qdo.worker.leases.threads import LeaseThreads
from qdo.worker.leases.values import Ended, JobOutcome
from qdo.worker.options import WorkerOptions
from qdo.worker.work import JobCaller
from tests.support.lease_server import LeaseServer


class Panic(BaseException):
    """No Exception."""


def panics(message: Message, context: Context) -> None:
    if message.text == "bad":
        raise Panic


def rejects_wrongly(message: Message, context: Context) -> None:
    if message.text == "bad":
        error = RejectMessage("bad")
        error.results = [NewMessage("a result without a queue")]  # type: ignore[list-item]
        raise error


def raises_to_a_hook(message: Message, context: Context) -> None:
    if message.text == "bad":
        raise ValueError


@pytest.mark.parametrize("job", [panics, rejects_wrongly, raises_to_a_hook])
def test_whatever_a_call_does_its_thread_goes_on_and_those_before_it_are_done(
    job: Callable[[Message, Context], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or the messages before it would be held, and extended, for as long as the worker lives."""
    group = LeaseServer(threads=1)
    options = WorkerOptions(lease=True, threads=1)
    caller = JobCaller(job, options)
    caller.failed = ends_its_thread if job is raises_to_a_hook else None
    threads = LeaseThreads(caller, options, group.buffer, group.clock, lambda: None)
    group.answer(group.asks(), group.delivery())
    began = group.begin()
    group.clock.advance(0.0001)  # from now on several calls make a turn
    group.end(began)
    group.answer(group.asks(), *(group.delivery(body=body) for body in (b"good", b"good", b"bad", b"good")))
    ended: list[Ended] = []

    def end(number: int, some: Sequence[Ended]) -> None:
        ended.extend(some)
        group.buffer.close()  # so the thread's loop ends

    monkeypatch.setattr(group.buffer, "end", end)

    threads._run(0)  # the thread's own function

    found = {(one.how, len(one.messages)) for one in ended}
    assert (JobOutcome.FAILED, 1) in found
    assert (JobOutcome.DONE, 2) in found or (JobOutcome.DONE, 3) in found


def ends_its_thread(*_: object) -> None:
    raise SystemExit
