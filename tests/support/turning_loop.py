"""An event loop in a thread of its own, for stores that commit at the end of its turns."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from queuey.future import Future, LoopInbox
from queuey.storage import Stores
from queuey.storage.sqlite import SqliteStores
from queuey.storage.sqlite.committer import Committer
from queuey.storage.sqlite.loop_turns import CommitTimes

NAME = "turning loop"
"""Of its thread."""
_WAIT_SECONDS = 30


@contextmanager
def turning_loop() -> Iterator[LoopInbox]:
    """The inbox of a loop that turns while the block runs."""
    loop = asyncio.new_event_loop()
    inboxes: list[LoopInbox] = []
    begun = threading.Event()

    def turn() -> None:
        inboxes.append(LoopInbox(loop))
        begun.set()
        loop.run_forever()

    thread = threading.Thread(target=turn, name=NAME)
    thread.start()
    begun.wait()
    try:
        yield inboxes[0]
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def in_turn(inbox: LoopInbox, work: Callable[[], object]) -> None:
    """Carry work out on a loop, and wait for its end."""
    done: Future[None] = Future()

    def carry() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - it is raised where the work is waited for
            done.set_error(error)
        else:
            done.set_result(None)

    inbox.arrives(carry)
    done.wait(_WAIT_SECONDS)


@contextmanager
def used_by_a_loop(stores: Stores) -> Iterator[LoopInbox]:
    """A loop uses the stores while the block runs."""
    with turning_loop() as inbox:
        in_turn(inbox, lambda: stores.use_loop(inbox))
        try:
            yield inbox
        finally:
            in_turn(inbox, lambda: stores.use_loop(None))


class InTurn(CommitTimes):
    """The loop carries commits and the thread does, some each, however long they take."""

    def __init__(self) -> None:
        super().__init__(1.0, lambda: 0.0)
        self._asked = 0

    @property
    def is_quick(self) -> bool:
        self._asked += 1
        return self._asked % 8 < 5

    @is_quick.setter
    def is_quick(self, wanted: bool) -> None:
        """They go on in turn."""


def carry_in_turn(stores: SqliteStores, inbox: LoopInbox) -> None:
    """Let the loop and the thread carry the commits of a store in turn."""
    stores.file.committer.turns._times = InTurn()
    stores.messages.use_loop(inbox)


def carry_on_loop(stores: SqliteStores, inbox: LoopInbox) -> None:
    """Let the loop carry all light commits of a store that succeed, however long they take."""
    judge_by(stores.file.committer, CommitTimes(1000.0, stores.file.clock.elapsed))
    stores.messages.use_loop(inbox)


def judge_by(committer: Committer, times: CommitTimes) -> None:
    """Let these say whether the loop carries commits."""
    committer.writer.times = committer.turns._times = times


def let_turn(committer: Committer) -> None:
    """Wait until the loop has committed what it has gathered, or has left it to the thread, if one carries commits."""
    inbox = committer.turns._inbox
    is_done = inbox is None
    while inbox is not None and not is_done:
        turned = threading.Event()
        inbox.arrives(turned.set)
        assert turned.wait(_WAIT_SECONDS)
        is_done = not committer.turns._gathered


@contextmanager
def one_commit(committer: Committer) -> Iterator[None]:
    """What is submitted in this block shares a commit, which begins at its end."""
    begun, goes_on = threading.Event(), threading.Event()

    def hold() -> None:
        begun.set()
        goes_on.wait(_WAIT_SECONDS)

    committer.run_between(hold)
    assert begun.wait(_WAIT_SECONDS)
    try:
        yield
        let_turn(committer)
    finally:
        goes_on.set()
