from __future__ import annotations

from queuey.clock import ManualClock
from queuey.monitor.history import FIELDS, KEPT_SECONDS, History, counted
from queuey.monitor.metrics import DEAD_LETTERS, Monitor


def sampled(history: History) -> dict[str, float]:
    (newest,) = history.last(1)
    return dict(zip(FIELDS, newest, strict=True))


def test_a_sample_has_what_came_since_the_one_before() -> None:
    monitor, clock = Monitor("memory"), ManualClock()
    history = History(monitor, lambda: 1000.0, clock.elapsed)
    monitor.appended("demo", 10, 100)
    for status, seconds in ((200, 0.0004), (200, 0.0004), (503, 3.0)):
        monitor.request("queue", "GET", status, seconds)
    clock.advance(2)

    history.take()
    first = sampled(history)
    clock.advance(1)
    history.take()
    second = sampled(history)

    assert (first["time"], first["appended"], first["requests"], first["errors"]) == (1000.0, 5.0, 1.5, 0.5)
    assert (first["p50"], first["p99"]) == (0.0005, 5.0)
    assert {second[name] for name in FIELDS if name != "time"} == {0.0}


def test_a_dead_letter_counts_once_it_is_stored() -> None:
    """While its queue is full, each receive tries again."""
    monitor = Monitor("memory")
    for result in ("waits", "waits", "waits", "moved"):
        monitor.count(DEAD_LETTERS, 1, "demo", result)

    assert (counted(monitor)["dead_letters"], counted(monitor, "demo")["dead_letters"]) == (1, 1)


def test_an_hour_is_kept_and_no_more() -> None:
    monitor, clock = Monitor("memory"), ManualClock()
    moment = [0.0]
    history = History(monitor, lambda: moment[0], clock.elapsed)
    assert history.last(5) == []

    for number in range(KEPT_SECONDS + 10):
        moment[0] = float(number)
        history.take()

    times = [sample[0] for sample in history.last(2 * KEPT_SECONDS)]
    assert times == [float(number) for number in range(10, KEPT_SECONDS + 10)]
    assert [sample[0] for sample in history.last(2)] == [KEPT_SECONDS + 8.0, KEPT_SECONDS + 9.0]
    assert history.last(0) == []


def test_its_thread_takes_samples_and_ends() -> None:
    history = History(Monitor("memory"), lambda: 1.0, ManualClock().elapsed)

    history.start()
    history.stop()
    history.stop()
