"""How much memory a server takes: at rest, and after work."""

from __future__ import annotations

from collections.abc import Iterator

from tests.bench.drivers import append_batch, drive, times
from tests.bench.plan import BATCH, BODY, CONNECTIONS, PARTITIONS, Plan
from tests.bench.servers import APPLICATION, queuey
from tests.bench.table import Row

QUEUE = "memory"


def measure(plan: Plan) -> Iterator[Row]:
    """Resident memory, of the one process there is."""
    with queuey(plan.fresh("memory")) as server:
        server.ask("GET", "/__heartbeat__")
        idle = server.rss_mib()
        server.create(QUEUE, PARTITIONS)
        server.ask("POST", f"/v1/{APPLICATION}/{QUEUE}", data=BODY)
        server.ask("GET", f"/v1/{APPLICATION}/{QUEUE}?partitions=all")
        used = server.rss_mib()
        drive(server, times(append_batch(QUEUE), plan.appended // BATCH), CONNECTIONS)
        server.settle()
        after = server.rss_mib()
    yield Row(
        "memory, idle after the first heartbeat",
        "",
        f"{idle:.1f} MiB; {used:.1f} MiB after the first append and read",
        first="idle <= 110 MiB",
        goal="idle <= 70 MiB",
        figures={"idle": idle},
    )
    yield Row(
        f"memory, after {plan.appended:,} messages in hundreds",
        f"{idle:.1f} MiB idle",
        f"{after:.1f} MiB, {after - idle:.1f} MiB more",
        goal="more <= 15 MiB",
        figures={"more": after - idle},
    )
