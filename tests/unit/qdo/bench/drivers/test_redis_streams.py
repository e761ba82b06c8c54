"""Which messages the driver of Redis streams claims, without a Redis."""

from __future__ import annotations

from typing import Any

from qdo.bench.drivers import MeasuredSystem
from qdo.bench.drivers.redis_streams import RedisStreamsDriver
from tests.support.bench_by_clock import CountingClock, workload_of


class BusyGroup:
    """Its first 30 messages are always at work, and ten behind them were forgotten."""

    def __init__(self) -> None:
        self._forgotten = [*range(31, 41)]

    def xautoclaim(self, _key: str, _group: str, _name: str, _idle: int, start: bytes, *, count: int) -> list[Any]:
        first = max(1, int(start.split(b"-")[0]))
        looked = range(first, first + 10 * count)
        found = [at for at in self._forgotten if at in looked][:count]
        self._forgotten = [at for at in self._forgotten if at not in found]
        behind = found[-1] + 1 if found else looked.stop
        return [b"0-0" if behind > 40 else b"%d-0" % behind, [(b"%d-0" % at, {b"b": b"%d" % at}) for at in found]]

    def xreadgroup(self, *_: object, **__: object) -> None:
        """There is nothing new."""


def test_what_was_forgotten_behind_many_messages_at_work_is_claimed() -> None:
    driver = RedisStreamsDriver(MeasuredSystem(workload_of(receiving={"batch": 1}), 1, {}, CountingClock()))
    group = BusyGroup()
    driver.client = lambda: group  # type: ignore[method-assign]
    consumer = driver.consumer(0, 0)

    came = [one.body for _ in range(20) for one in consumer.receive(0)]

    assert came == [b"%d" % at for at in range(31, 41)]
