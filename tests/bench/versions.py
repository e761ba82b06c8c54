"""This tree beside another commit of it: the same requests to a server of each, in turn, in one run."""

from __future__ import annotations

import io
import subprocess
import tarfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from statistics import median
from time import perf_counter

import pyarrow as pa

from tests.bench import arrival, live
from tests.bench.drivers import append_batch, append_keyed, append_one, drive, in_turn, named, read_page, times
from tests.bench.leases import Run, run_load
from tests.bench.measure import BenchFailed, Spread, alternate, rate_of, ratios
from tests.bench.plan import BATCH, BODY, CONNECTIONS, PAGE, PARTITIONS, Plan
from tests.bench.reads import QUEUE as READ
from tests.bench.reads import stream_raw
from tests.bench.servers import APPLICATION, ROOT, Server, twins
from tests.bench.table import Row, number

QUEUE = "bench"
READERS = 8
ARROW_BATCH = 2_500
"""Messages of an Arrow batch."""
GOAL = "ratio >= 0.97"
_LARGEST_PAGE = 1000
_SHORTER = 3
"""How many turns this topic makes of one."""


def checked_out(revision: str, folder: Path) -> Path:
    """The tree of a commit, in a folder of its own.

    :raises BenchFailed: git knows no such commit.
    """
    asked = subprocess.run(["git", "archive", revision], cwd=ROOT, capture_output=True, check=False)
    if asked.returncode:
        raise BenchFailed(f"git archive {revision}: {asked.stderr.decode().strip()}")
    with tarfile.open(fileobj=io.BytesIO(asked.stdout)) as tree:
        tree.extraction_filter = getattr(tarfile, "data_filter", None)  # from 3.11.4 on
        tree.extractall(folder)  # noqa: S202 - git has made it
    return folder


def measure(plan: Plan, revision: str) -> Iterator[Row]:
    """The hot operations and the memory at rest, of ``revision`` and of this tree.

    Many short turns: the machine changes its speed from one second to the next, and a pair of turns is compared.
    """
    plan = replace(plan, seconds=plan.seconds / _SHORTER, rounds=plan.rounds * _SHORTER)
    root = checked_out(revision, plan.fresh("tree"))
    with twins(plan.fresh("before"), plan.fresh("after"), root=root) as (before, after):
        for server in (before, after):
            server.settle()
        memory = [server.rss_mib() for server in (before, after)]
        yield _row("memory at rest", "MiB", memory[:1], memory[1:], ratios(memory[:1], memory[1:]))
        for server in (before, after):
            _fill(server, plan)
        for what, turn in _turns(plan).items():
            then, now = (partial(_settled, turn, server) for server in (before, after))
            for side in (then, now):
                side()  # packs, cached runs and Arrow itself are there before anything is measured
            yield from _compared(what, alternate(then, now, plan.rounds))
        for what, follow in _ARRIVALS.items():
            earlier, later = alternate(
                lambda follow=follow: _median(before, plan, follow),  # type: ignore[misc]
                lambda follow=follow: _median(after, plan, follow),  # type: ignore[misc]
                plan.rounds,
            )
            yield _row(f"{what}, median, {arrival.RATE} appends/s", "ms", earlier, later, ratios(earlier, later))


def _settled(turn: Callable[[Server], Run], server: Server) -> Run:
    found = turn(server)
    server.settle()
    return found


def _compared(what: str, turns: tuple[list[Run], list[Run]]) -> Iterator[Row]:
    earlier, now = ([turn.messages_a_second for turn in side] for side in turns)
    yield _row(what, "/s", earlier, now, ratios(now, earlier))
    earlier, now = ([turn.cpu_us for turn in side] for side in turns)
    yield _row(f"{what}: the processor's time for one", "µs", earlier, now, ratios(earlier, now))


def _row(what: str, unit: str, before: Sequence[float], after: Sequence[float], ratio: Spread) -> Row:
    return Row(what, f"{number(median(before))} {unit}", f"{number(median(after))} {unit}", ratio, goal=GOAL)


def _fill(server: Server, plan: Plan) -> None:
    server.create(QUEUE, PARTITIONS)
    server.create(READ)
    drive(server, times(append_batch(READ), plan.rows // BATCH), 1)
    server.settle()


def _act(server: Server, act: Callable[[Server], int], seconds: float) -> Run:
    """:param act: says how many of what is counted it did."""
    before, began = server.cpu_seconds(), perf_counter()
    rate = rate_of(lambda: act(server), seconds)
    used, took = server.cpu_seconds() - before, perf_counter() - began
    return Run(rate, 1e6 * used / (rate * took))


def _turns(plan: Plan) -> dict[str, Callable[[Server], Run]]:
    """What is measured.

    Reads come first: what a run of appends leaves to be packed would take turns from them.
    """
    keyed, keys, batch = append_keyed(QUEUE), count(), _arrow_batch()

    def load(script: Callable[[Server], str], connections: int, messages: int = 1) -> Callable[[Server], Run]:
        return lambda server: run_load(server, script(server), messages, plan.seconds, connections)

    def repeated(act: Callable[[Server], int]) -> Callable[[Server], Run]:
        return lambda server: _act(server, act, plan.seconds)

    return {
        f"pages of {PAGE} as JSON, {READERS} readers, messages": load(
            lambda server: in_turn(_pages(server)), READERS, PAGE
        ),
        "Arrow, one reader, bytes": repeated(stream_raw),
        "append, 1 per request": load(lambda _: in_turn([append_one(QUEUE)]), CONNECTIONS),
        "append, 1 per request, with a key": load(lambda _: named(keyed, next(keys)), CONNECTIONS),
        "append, 100 per request, messages": load(lambda _: in_turn([append_batch(QUEUE)]), CONNECTIONS, BATCH),
        f"append, {ARROW_BATCH:,} per request as Arrow, one writer, messages": repeated(partial(_append_arrow, batch)),
    }


def _pages(server: Server) -> list[str]:
    found = server.ask("GET", f"/v1/{APPLICATION}/{READ}?limit={_LARGEST_PAGE}").json()["messages"]
    return [read_page(READ, message["message_id"]) for message in found[: -PAGE : PAGE // 10]]


def _arrow_batch() -> bytes:
    """Messages as Spark's tasks append them."""
    table = pa.table({"body": pa.array([BODY.encode()] * ARROW_BATCH, pa.binary())})
    stream = io.BytesIO()
    with pa.ipc.new_stream(stream, table.schema) as writer:
        writer.write_table(table)
    return stream.getvalue()


def _append_arrow(batch: bytes, server: Server) -> int:
    """Messages of one request; its connection is its own."""
    headers = {"Content-Type": "application/vnd.apache.arrow.stream", "Prefer": "return=minimal"}
    server.ask("POST", f"/v1/{APPLICATION}/{QUEUE}", data=batch, headers=headers)
    return ARROW_BATCH


_ARRIVALS: dict[str, Callable[[int, int], Sequence[float]]] = {
    "append to arrival at a reader that asks again and again": lambda port, count: arrival.follow(port, count)[0],
    "append to arrival at a reader of events": live.follow,
}


def _median(server: Server, plan: Plan, follow: Callable[[int, int], Sequence[float]]) -> float:
    """Milliseconds that half of the messages took to arrive in a new queue."""
    server.create(arrival.QUEUE)
    took = arrival.beside_a_writer(server, round(arrival.RATE * plan.seconds), follow)
    server.ask("DELETE", f"/v1/{APPLICATION}/{arrival.QUEUE}")
    return median(took)
