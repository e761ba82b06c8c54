"""Where the calls of lease groups are carried out: on an event loop, or in threads."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

import pytest

from queuey.errors import OutcomeUnknown, StorageUnavailable
from queuey.future import Future, LoopInbox
from queuey.storage.cassandra import lease_work
from queuey.storage.cassandra.lease_work import GroupTask, GroupWork, awaited
from tests.support.turning_loop import NAME, in_turn, turning_loop

_PATIENCE_SECONDS = 30.0


@pytest.fixture
def inbox() -> Iterator[LoopInbox]:
    with turning_loop() as inbox:
        yield inbox


@pytest.fixture
def work() -> Iterator[GroupWork]:
    work = GroupWork()
    yield work
    work.close()


def here() -> str:
    return threading.current_thread().name


def carried_out(work: GroupWork, what: Callable[[], object], *, in_thread: bool = False) -> Future[object]:
    """What it returns or raises."""
    ended: Future[object] = Future()

    def carry() -> None:
        try:
            found = what()
        except Exception as error:  # noqa: BLE001 - it is raised in the test
            ended.set_error(error)
        else:
            ended.set_result(found)

    work.begin(carry, in_thread=in_thread)
    return ended


def test_a_thread_carries_work_out_where_there_is_no_loop(work: GroupWork) -> None:
    assert str(carried_out(work, here).wait(_PATIENCE_SECONDS)).startswith("leases")


def test_the_loop_carries_work_out_and_goes_on_with_other_work_while_it_waits(
    work: GroupWork, inbox: LoopInbox
) -> None:
    work.use(inbox, 0)
    first, second = Future[int](), Future[int]()

    def waits() -> list[object]:
        return [here(), awaited(first), awaited(second), awaited(Future.of(3)), here()]

    waiting = [carried_out(work, waits), carried_out(work, lambda: awaited(Future[int]().of(0)))]
    assert waiting[1].wait(_PATIENCE_SECONDS) == 0
    in_turn(inbox, lambda: first.set_result(1))
    in_turn(inbox, lambda: None)
    assert not waiting[0].done
    second.set_result(2)  # in another thread
    assert waiting[0].wait(_PATIENCE_SECONDS) == [NAME, 1, 2, 3, NAME]


def test_work_in_a_thread_waits_there_though_there_is_a_loop(work: GroupWork, inbox: LoopInbox) -> None:
    work.use(inbox, 0)
    value: Future[str] = Future()
    waiting = carried_out(work, lambda: here() + awaited(value), in_thread=True)
    value.set_result(", and on")
    name = str(waiting.wait(_PATIENCE_SECONDS))
    assert name.startswith("leases")
    assert name.endswith(", and on")


def test_an_error_is_raised_where_the_work_waits(work: GroupWork, inbox: LoopInbox) -> None:
    work.use(inbox, 0)
    fails: Future[None] = Future()

    def waits() -> str:
        with pytest.raises(StorageUnavailable):
            awaited(fails)
        return here()

    waiting = carried_out(work, waits)
    in_turn(inbox, lambda: fails.set_error(StorageUnavailable()))
    assert waiting.wait(_PATIENCE_SECONDS) == NAME


def test_a_mistake_in_some_work_harms_no_other_work(work: GroupWork, inbox: LoopInbox) -> None:
    work.use(inbox, 0)

    def breaks() -> None:
        raise ValueError("planted")

    work.begin(breaks)
    assert carried_out(work, here).wait(_PATIENCE_SECONDS) == NAME
    in_turn(inbox, lambda: work.use(None, 0))
    assert not work._on_loop


def test_work_under_way_ends_before_its_loop_does_and_later_work_has_a_thread(
    work: GroupWork, inbox: LoopInbox
) -> None:
    work.use(inbox, 0)
    first, second = Future[int](), Future[int]()
    waiting = carried_out(work, lambda: (awaited(first), awaited(second), here()))
    in_turn(inbox, lambda: None)
    begun: list[Future[object]] = []

    def end() -> None:
        begun.append(carried_out(work, here))  # the loop would begin it in its next turn
        threading.Timer(0.02, first.set_result, [1]).start()
        threading.Timer(0.04, second.set_result, [2]).start()
        work.use(None, _PATIENCE_SECONDS)
        assert waiting.done

    in_turn(inbox, end)
    assert waiting.result() == (1, 2, NAME)
    for later in (*begun, carried_out(work, here)):
        assert str(later.wait(_PATIENCE_SECONDS)).startswith("leases")


def test_work_that_always_goes_on_leaves_a_loop_that_ends(work: GroupWork, inbox: LoopInbox) -> None:
    """The home of a busy group could not stop: other servers went on to hand steps over, and then none had an answer."""
    work.use(inbox, 0)
    places: list[str] = []
    goes_on, has_ended = True, threading.Event()

    def stretches() -> None:
        while goes_on:
            places.append(here())
            pause: Future[None] = Future()
            threading.Timer(0.001, pause.set_result, [None]).start()
            awaited(pause)
            if task.goes_on_elsewhere():
                task.begin()
                return
        has_ended.set()

    task = GroupTask(work, stretches)
    task.begin()
    in_turn(inbox, lambda: None)
    in_turn(inbox, lambda: work.use(None, _PATIENCE_SECONDS))
    assert not work._on_loop
    assert {NAME} < {place.partition("_")[0] for place in places} | {"leases"}
    goes_on = False
    assert has_ended.wait(_PATIENCE_SECONDS)


def test_work_that_always_goes_on_leaves_its_thread_to_other_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where as many groups as there are threads were always busy, no other group had a turn."""
    monkeypatch.setattr(lease_work, "THREADS", 1)
    work, is_busy, other, has_ended = GroupWork(), threading.Event(), threading.Event(), threading.Event()

    def stretches() -> None:
        while not other.is_set():
            is_busy.set()
            if busy.goes_on_elsewhere():
                busy.begin()
                return
        has_ended.set()

    busy = GroupTask(work, stretches)
    busy.begin()
    assert is_busy.wait(_PATIENCE_SECONDS)
    GroupTask(work, other.set).begin()
    is_served = other.wait(_PATIENCE_SECONDS)
    other.set()
    assert has_ended.wait(_PATIENCE_SECONDS)
    work.close()
    assert is_served


def test_work_that_got_no_thread_is_never_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its caller has done without it, and an executor keeps it until there is a thread."""
    monkeypatch.setattr(lease_work, "THREADS", 1)
    work, begun, goes_on = GroupWork(), list[str](), threading.Event()

    def none(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as lacking:
        lacking.setattr(threading.Thread, "start", none)
        with pytest.raises(RuntimeError, match="new thread"):
            work.begin(lambda: begun.append("first"))
    is_busy = threading.Event()
    works: list[Callable[[], object]] = [is_busy.set, lambda: goes_on.wait(_PATIENCE_SECONDS)]
    busy = carried_out(work, lambda: [one() for one in works])
    assert is_busy.wait(_PATIENCE_SECONDS)
    later = carried_out(work, lambda: begun.append("later"))
    lacked = work.lacks_threads
    goes_on.set()
    later.wait(_PATIENCE_SECONDS)
    work.close()

    assert busy.wait(_PATIENCE_SECONDS) == [None, True]
    assert (lacked, begun) == (True, ["later"])


def test_a_loop_ends_though_work_waits_for_what_never_comes(work: GroupWork, inbox: LoopInbox) -> None:
    work.use(inbox, 0)
    never: Future[None] = Future()
    waiting = carried_out(work, lambda: awaited(never))
    in_turn(inbox, lambda: work.use(None, 0.01))
    with pytest.raises(OutcomeUnknown):
        waiting.wait(_PATIENCE_SECONDS)
    never.set_result(None)
    assert not work._on_loop


def test_work_that_is_given_up_waits_for_nothing_else(work: GroupWork, inbox: LoopInbox) -> None:
    """What it had begun beside was waited for on its way to the end, and the loop that should go on with it had ended."""
    work.use(inbox, 0)
    never, also_never = Future[None](), Future[None]()

    def waits_again() -> None:
        with contextlib.suppress(OutcomeUnknown):
            awaited(never)
        awaited(also_never)

    waiting = carried_out(work, waits_again)
    in_turn(inbox, lambda: work.use(None, 0.01))
    assert waiting.done
    with pytest.raises(OutcomeUnknown):
        waiting.result()
    assert not work._on_loop


def test_long_work_beside_leaves_the_loop_free(work: GroupWork, inbox: LoopInbox) -> None:
    work.use(inbox, 0)
    goes_on = threading.Event()

    names: list[str] = []

    def takes_long() -> str:
        assert goes_on.wait(_PATIENCE_SECONDS)
        return here()

    waiting = carried_out(work, lambda: names.extend((work.aside(takes_long), here())))
    in_turn(inbox, goes_on.set)
    waiting.wait(_PATIENCE_SECONDS)
    assert names[0].startswith("leases")
    assert names[1] == NAME
    assert work.aside(here) == here(), "in a thread there is nothing to leave free"

    def fails() -> None:
        raise StorageUnavailable

    with pytest.raises(StorageUnavailable):
        carried_out(work, lambda: work.aside(fails)).wait(_PATIENCE_SECONDS)


def test_long_work_is_done_also_where_the_threads_have_ended(work: GroupWork, inbox: LoopInbox) -> None:
    """A call that was under way when its store closed had an error of the threads in place of its own outcome."""
    work.use(inbox, 0)
    goes_on: Future[None] = Future()

    def asks() -> str:
        awaited(goes_on)
        return work.aside(here)

    waiting = carried_out(work, asks)
    in_turn(inbox, lambda: None)
    work.close()
    goes_on.set_result(None)

    assert waiting.wait(_PATIENCE_SECONDS) == NAME


@pytest.mark.parametrize("limit", [-1.0, 1000.0])
def test_it_is_known_whether_work_keeps_the_loop_long(
    limit: float, work: GroupWork, inbox: LoopInbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_work, "_LONG_SECONDS", limit)
    work.use(inbox, 0)
    first: Future[None] = Future()

    def asks() -> list[bool]:
        awaited(first)
        return [lease_work._has_taken_long(), lease_work._has_taken_long()]

    waiting = carried_out(work, asks)
    first.set_result(None)
    assert waiting.wait(_PATIENCE_SECONDS) == [limit < 0, limit < 0]
    assert not carried_out(work, lease_work._has_taken_long, in_thread=True).wait(_PATIENCE_SECONDS)
