"""Members of a group in ZooKeeper: how long partitions are without an owner, and how many move.

``python -m tests.bench.groups HOSTS GROUP PARTITIONS SESSION`` is a member without jobs. It connects, says
so, joins when it is sent a line, and leaves when its standard input ends.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from subprocess import PIPE, Popen
from time import perf_counter

from kazoo.client import KazooClient

from qdo.groups.assign import Partition
from qdo.groups.coordination import Claim, CommittedOffset
from qdo.groups.member import GroupMember
from qdo.groups.zookeeper import ZooKeeperCoordinator
from queuey.clock import SystemClock
from tests.bench import slots
from tests.bench.measure import BenchFailed, until
from tests.bench.plan import Plan
from tests.bench.servers import ROOT
from tests.bench.table import Row
from tests.support.services.zookeeper import ZooKeeper

PARTITIONS = 240
MEMBERS = 20
MANY = 10_000
SESSION_SECONDS = 4.0
LONG_SESSION_SECONDS = 20.0
_IN_ONE_QUEUE = 200
_PATIENCE_SECONDS = 120

Owners = Mapping[Partition, tuple[str, int]]


def partitions(count: int) -> list[Partition]:
    return [Partition(f"q{at // _IN_ONE_QUEUE}", at % _IN_ONE_QUEUE + 1) for at in range(count)]


class Idle:
    """Owns without working."""

    def gained(self, claims: Mapping[Claim, CommittedOffset | None]) -> None:
        """Nothing begins."""

    def losing(self, claims: Collection[Claim]) -> None:
        """Nothing is under way."""

    def drained(self, claims: Collection[Claim]) -> Collection[Claim]:
        return claims

    def lost(self, claims: Collection[Claim]) -> None:
        """Nothing was done."""


def member(hosts: str, name: str, count: int, session_seconds: float) -> None:
    """One process of the group."""
    coordinator = ZooKeeperCoordinator(hosts, "bench", name, session_seconds=session_seconds)
    wake, over = threading.Event(), threading.Event()
    coordinator.changed = wake.set
    every = partitions(count)
    group = GroupMember(coordinator, Idle(), lambda: every, clock=SystemClock(), about={})
    print("READY", flush=True)
    sys.stdin.readline()

    def wait_for_the_end() -> None:
        sys.stdin.read()
        over.set()
        wake.set()

    threading.Thread(target=wait_for_the_end, daemon=True).start()
    while not over.is_set():
        wake.wait(group.step())
        wake.clear()
    while (rest := group.leave()) is not None:
        wake.wait(rest)
        wake.clear()
    coordinator.close()


class MemberProcesses:
    """Members in processes of their own, and a member that looks from outside."""

    def __init__(self, hosts: str, name: str, count: int, session_seconds: float = LONG_SESSION_SECONDS) -> None:
        self._arguments = [hosts, name, str(count), str(session_seconds)]
        self._count = count
        self._outside = ZooKeeperCoordinator(hosts, "bench", name)
        self._zookeeper = KazooClient(hosts)
        self._zookeeper.start()
        self._owners = f"/bench/{name}/owners"
        self.members: list[Popen[str]] = []

    def ready(self, count: int) -> list[Popen[str]]:
        """Members that have not joined yet."""
        command = [sys.executable, "-m", "tests.bench.groups", *self._arguments]
        found = [Popen(command, cwd=ROOT, stdin=PIPE, stdout=PIPE, text=True) for _ in range(count)]
        for one in found:
            if one.stdout is None or one.stdout.readline().strip() != "READY":
                raise BenchFailed("a member could not begin")
        return found

    def join(self, some: list[Popen[str]]) -> None:
        for one in some:
            if one.stdin is not None:
                one.stdin.write("\n")
                one.stdin.flush()
        self.members += some

    def leave(self, one: Popen[str]) -> None:
        self.members.remove(one)
        if one.stdin is not None:
            one.stdin.close()

    def kill(self, one: Popen[str]) -> None:
        self.members.remove(one)
        one.kill()

    def owners(self) -> Owners:
        return self._outside.owners()

    def until_even(self, begin: Callable[[], None]) -> float:
        """Seconds from ``begin`` until the members own everything, none more than one more than another."""
        began = perf_counter()
        begin()
        until(self._is_even, _PATIENCE_SECONDS, f"{len(self.members)} members, {self._count} partitions")
        return perf_counter() - began

    def _is_even(self) -> bool:
        if len(self._zookeeper.get_children(self._owners)) < self._count:
            return False  # one question instead of one for each partition
        shares = Counter(owner for owner, _ in self.owners().values())
        least, more = divmod(self._count, len(self.members))
        return (
            shares.total() == self._count
            and len(shares) == len(self.members)
            and set(shares.values()) <= {least, least + bool(more)}
        )

    def close(self) -> None:
        for one in list(self.members):
            self.kill(one)
            one.wait()
        self._outside.close()
        self._zookeeper.stop()
        self._zookeeper.close()


@contextmanager
def member_processes(
    hosts: str, name: str, count: int, session_seconds: float = LONG_SESSION_SECONDS
) -> Iterator[MemberProcesses]:
    with ExitStack() as stack:
        found = MemberProcesses(hosts, name, count, session_seconds)
        stack.callback(found.close)
        yield found


def measure(plan: Plan) -> Iterator[Row]:
    """Changes of a small group; then the time that large ones take to settle."""
    with ZooKeeper(plan.fresh("zookeeper") / "zookeeper") as service:
        hosts = f"{service.reached_at[0]}:{service.port}"
        with member_processes(hosts, "changes", PARTITIONS, SESSION_SECONDS) as group:
            yield from _changes(group)
        for count, goal in ((PARTITIONS, 5), (MANY, 20)):
            with member_processes(hosts, f"settle-{count}", count) as group:
                some = group.ready(MEMBERS)
                took = group.until_even(lambda: group.join(some))  # noqa: B023 - called at once
                yield _seconds(f"{count:,} partitions, {MEMBERS} members that join at once: until settled", took, goal)
    yield from slots.measure(plan)


def _changes(group: MemberProcesses) -> Iterator[Row]:
    some = group.ready(4)
    one = some.pop()
    group.until_even(lambda: group.join(some))
    before = group.owners()
    took = group.until_even(lambda: group.join([one]))
    after = group.owners()
    moved = sum(after[partition][0] != owner for partition, (owner, _) in before.items())
    least = PARTITIONS // 4
    yield _seconds(f"{PARTITIONS} partitions, 1 member joins 3: until settled", took, 2)
    ratio = moved / least
    yield Row(
        "partitions moved when 1 joins 3",
        f"{least} at least",
        str(moved),
        goal="ratio <= 1.1",
        figures={"ratio": ratio},
    )
    yield _seconds("1 of 4 members leaves: until settled", group.until_even(lambda: group.leave(one)), 2)
    group.until_even(lambda: group.join(group.ready(1)))
    last = group.members[-1]
    took = group.until_even(lambda: group.kill(last))
    yield _seconds(
        f"1 of 4 members is killed, sessions of {SESSION_SECONDS:g} s: until settled", took, SESSION_SECONDS + 2
    )


def _seconds(what: str, took: float, goal: float) -> Row:
    return Row(what, "", f"{took:.2f} s", goal=f"took <= {goal:g} s", figures={"took": took})


if __name__ == "__main__":
    member(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))
