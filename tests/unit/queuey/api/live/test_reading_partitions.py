"""A poll of all partitions of a queue that gets more of them meanwhile."""

from __future__ import annotations

from queuey.future import run
from queuey.model import AppendRequest, Draft
from queuey.service.queues import QueueSettings
from tests.support.loop_server import PATH, House, answered, at_home, request, until


def test_a_partition_that_comes_while_a_reader_waits_wakes_it() -> None:
    async def test(house: House) -> None:
        wire = house.wire()
        wire.connection.data_received(request(b"GET", PATH + b"?partitions=all&wait=20"))
        grown = run(house.service.queues.update(house.find("q"), QueueSettings(partitions=2)))
        watched = house.service.waiters._table.partitions
        await until(lambda: grown.partition(2) in watched or not watched)
        assert watched
        run(house.service.log.append(AppendRequest(grown, [Draft(2, b"here", 1000)])))
        await answered(wire)
        assert b'"here"' in wire.received

    at_home(test)
