"""This tree beside another commit of it: the same requests to a server of each, in turn, in one run."""

from __future__ import annotations

import io
import subprocess
import tarfile
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from statistics import median

from tests.bench import arrival
from tests.bench.drivers import NUMBER, append_batch, append_one, drive, in_turn, numbered, read_page, times
from tests.bench.measure import BenchFailed, Spread, alternate, rate_of, ratios
from tests.bench.plan import BATCH, CONNECTIONS, PAGE, PARTITIONS, Plan
from tests.bench.reads import QUEUE as READ
from tests.bench.reads import stream_raw
from tests.bench.servers import APPLICATION, ROOT, Server, twins
from tests.bench.table import Row, number

QUEUE = "bench"
READERS = 8
GOAL = "ratio >= 0.97"
_KEYS = 1_000_000
"""Idempotency keys for one run: no run repeats those of another."""
_LARGEST_PAGE = 1000


def checked_out(revision: str, folder: Path) -> Path:
    """The tree of a commit, in a folder of its own.

    :raises BenchFailed: git knows no such commit.
    """
    asked = subprocess.run(["git", "archive", revision], cwd=ROOT, capture_output=True, check=False)
    if asked.returncode:
        raise BenchFailed(f"git archive {revision}: {asked.stderr.decode().strip()}")
    with tarfile.open(fileobj=io.BytesIO(asked.stdout)) as tree:
        tree.extractall(folder, filter="data")
    return folder


def measure(plan: Plan, revision: str) -> Iterator[Row]:
    """The hot operations and the memory at rest, of ``revision`` and of this tree."""
    root = checked_out(revision, plan.fresh("tree"))
    with twins(plan.fresh("before"), plan.fresh("after"), root=root) as (before, after):
        for server in (before, after):
            server.settle()
        memory = [server.rss_mib() for server in (before, after)]
        yield _row("memory at rest", "MiB", memory[:1], memory[1:], ratios(memory[:1], memory[1:]))
        for server in (before, after):
            _fill(server, plan)
        for what, rate in _rates(plan).items():
            earlier, now = alternate(lambda rate=rate: rate(before), lambda rate=rate: rate(after), plan.rounds)  # type: ignore[misc]
            yield _row(what, "/s", earlier, now, ratios(now, earlier))
        earlier, now = alternate(lambda: _arrival(before, plan), lambda: _arrival(after, plan), plan.rounds)
        yield _row(f"append to arrival, median, {arrival.RATE} appends/s", "ms", earlier, now, ratios(earlier, now))


def _row(what: str, unit: str, before: Sequence[float], after: Sequence[float], ratio: Spread) -> Row:
    return Row(what, f"{number(median(before))} {unit}", f"{number(median(after))} {unit}", ratio, goal=GOAL)


def _fill(server: Server, plan: Plan) -> None:
    server.create(QUEUE, PARTITIONS)
    server.create(READ)
    drive(server, times(append_batch(READ), plan.rows // BATCH), 1)
    server.settle()


def _rates(plan: Plan) -> dict[str, Callable[[Server], float]]:
    """What is measured, and how often a second a server does it."""
    one, keys = append_one(QUEUE), count(step=_KEYS)
    keyed = one.replace("\r\n\r\n", f"\r\nIdempotency-Key: {NUMBER}\r\n\r\n", 1)

    def appends(server: Server, script: str) -> float:
        rate = drive(server, script, CONNECTIONS, plan.seconds).rate
        server.settle()
        return rate

    return {
        "append, 1 per request": lambda server: appends(server, in_turn([one])),
        "append, 1 per request, with a key": lambda server: appends(server, numbered(keyed, next(keys))),
        "append, 100 per request, messages": lambda server: BATCH * appends(server, in_turn([append_batch(QUEUE)])),
        f"pages of {PAGE} as JSON, {READERS} readers, messages": lambda server: (
            PAGE * drive(server, in_turn(_pages(server)), READERS, plan.seconds).rate
        ),
        "Arrow, one reader, bytes": lambda server: rate_of(lambda: stream_raw(server), plan.seconds),
    }


def _pages(server: Server) -> list[str]:
    found = server.ask("GET", f"/v1/{APPLICATION}/{READ}?limit={_LARGEST_PAGE}").json()["messages"]
    return [read_page(READ, message["message_id"]) for message in found[: -PAGE : PAGE // 10]]


def _arrival(server: Server, plan: Plan) -> float:
    server.create(arrival.QUEUE)
    took, _ = arrival.follow_a_writer(server, round(arrival.RATE * plan.seconds))
    server.ask("DELETE", f"/v1/{APPLICATION}/{arrival.QUEUE}")
    return median(took)
