"""What is measured on Cassandra."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tests.bench.on_cassandra import appends, deleted, disorder, killed, leases, queues, reads, servers, woken
from tests.bench.plan import Plan
from tests.bench.table import Row

TOPICS: dict[str, Callable[[Plan], Iterator[Row]]] = {
    "append": appends.single,
    "keyed": appends.keyed,
    "batch": appends.hundreds,
    "read": reads.json_pages,
    "arrow": reads.arrow,
    "servers": servers.measure,
    "queues": queues.measure,
    "deleted": deleted.measure,
    "killed": killed.measure,
    "leases": leases.measure,
    "woken": woken.measure,
    "disorder": disorder.measure,
}
