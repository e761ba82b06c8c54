"""Depth, bytes and ends of partitions of an embedded store, at no cost for deep ones (docs/decisions/023).

A partition with few rows and packs is counted. A deeper one gets a counter when it is asked for first. From then on the
counter says what it stores, and an index says what of this has expired and is not purged yet.

A counter and a snapshot of the file must be of one moment, or rows that a purge deletes would be subtracted twice or
not at all. So :meth:`Inspector.states` takes both and looks whether a commit came in between. If one did, the
committer's thread begins the snapshot between two groups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from math import inf

from queuey.ids import MAX_ID, ZERO_ID
from queuey.locks import new_lock
from queuey.model import EMPTY_PARTITION, PartitionState, Span
from queuey.storage.sqlite.committer import Committer
from queuey.storage.sqlite.counters import NOTHING, Counters, JoinedCounter, Totals
from queuey.storage.sqlite.counts import end_of
from queuey.storage.sqlite.packs import read_rest
from queuey.storage.sqlite.pages import Ask, pack_of
from queuey.storage.sqlite.readers import Reader, Readers
from queuey.storage.sqlite.rows import BEFORE_ALL
from queuey.storage.sqlite.statements import SQL

__all__ = ["FEW", "Inspector"]

FEW = 200
"""A partition with at most this many rows and this many packs is counted each time, which takes a fraction of a
millisecond. It needs no turn of the committer, and no counter."""
_ALL = -1
"""A limit that is none."""
_PATIENCE_SECONDS = 1.0
"""How long a reader waits for a turn of the committer. After that it counts."""


class Inspector:
    """Inspects partitions of one file."""

    def __init__(
        self,
        readers: Readers,
        committer: Committer,
        counters: Counters,
        elapsed: Callable[[], float],
        *,
        keeps: bool,
    ) -> None:
        """:param elapsed: seconds that nobody sets back.
        :param keeps: False counts each time, since another process may write to the file.
        """
        self._elapsed = elapsed
        self._readers = readers
        self._committer = committer
        self._counters = counters
        self._keeps = keeps

    def states(
        self, partition_keys: Sequence[bytes], now_ticks: int, seconds: float = inf
    ) -> Mapping[bytes, PartitionState]:
        """The state of each partition, or of some of them where that takes more than ``seconds``."""
        end = self._elapsed() + seconds
        with self._readers.lend() as reader:
            if not self._keeps:
                with reader.snapshot():
                    look = _Look(reader.beside, now_ticks)
                    return {key: look.state(key, look.live(key)) for key in self._until(end, partition_keys)}
            found = self._states_at_once(reader, partition_keys, now_ticks, end)
            left = [key for key in partition_keys if key not in found]
            return found | self._states_between(reader, left, now_ticks, end) if left else found

    def _until(self, end: float, partition_keys: Iterable[bytes]) -> Iterator[bytes]:
        """These keys, as long as there is time."""
        return takewhile(lambda _: self._elapsed() < end, partition_keys)

    def _states_at_once(
        self, reader: Reader, partition_keys: Sequence[bytes], now_ticks: int, end: float
    ) -> dict[bytes, PartitionState]:
        """The states of partitions that have few messages, or a counter that no commit changes just now."""
        seen = {key: self._counters.seen(key) for key in partition_keys}
        found: dict[bytes, PartitionState] = {}
        with reader.snapshot():
            look = _Look(reader.beside, now_ticks)
            look.begin()
            stored = {key: None if one is None else self._counters.settled(key, one) for key, one in seen.items()}
            for key in self._until(end, stored):
                totals = stored[key]
                live = look.unexpired(key, totals) if totals else look.few(key) if seen[key] is None else None
                if live is not None:
                    found[key] = look.state(key, live)
        return found

    def _states_between(
        self, reader: Reader, partition_keys: Sequence[bytes], now_ticks: int, end: float
    ) -> dict[bytes, PartitionState]:
        """The states of partitions between two groups; each has a counter from now on."""
        joined: Mapping[bytes, JoinedCounter] = {}
        found: dict[bytes, PartitionState] = {}
        try:
            with reader.snapshot():
                look = _Look(reader.beside, now_ticks)
                joined = self._join(look, partition_keys)
                for key in self._until(end, partition_keys):
                    one = joined.get(key)
                    if one is not None and one.is_new:
                        one.counter.base = look.stored(key)
                    totals = None if one is None else one.totals  # None: no turn, or another thread counts the base
                    found[key] = look.state(key, look.live(key) if totals is None else look.unexpired(key, totals))
        finally:
            for key, one in joined.items():
                if one.is_new and one.counter.base is None:
                    self._counters.forget(key, one.counter)
        return found

    def _join(self, look: _Look, partition_keys: Sequence[bytes]) -> Mapping[bytes, JoinedCounter]:
        """Begin the snapshot in the committer's thread, and get the counters of that moment.

        This thread waits meanwhile, so no two threads use the connection at once.

        :returns: nothing if the committer has no turn for it: it has ended, or a commit takes long.
        """
        found: dict[bytes, JoinedCounter] = {}
        turn = new_lock()

        def work() -> None:
            if turn.acquire(blocking=False):
                look.begin()
                found.update(self._counters.join(partition_keys))

        future = self._committer.run_between(work)
        try:
            future.wait(_PATIENCE_SECONDS)
        except TimeoutError:
            if turn.acquire(blocking=False):  # so the work does nothing when its turn comes
                return {}
            future.wait()
        return found


class _Look:
    """Questions to one snapshot."""

    def __init__(self, ask: Ask, now_ticks: int) -> None:
        """:param ask: inside a transaction."""
        self._ask = ask
        self._now = now_ticks

    def begin(self) -> None:
        """Take the snapshot now: a transaction takes it with its first read."""
        list(self._ask(SQL["snapshot_begin"], ()))

    def few(self, partition_key: bytes) -> Totals | None:
        """The live messages of a partition with few rows and packs; None if it has more."""
        rows, packs, live = self._counted(partition_key, self._now, FEW + 1)
        if max(rows, packs) > FEW:
            return None
        return live.plus(self._expiring(partition_key)[0]) if packs else live

    def live(self, partition_key: bytes) -> Totals:
        """The live messages, counted."""
        return self._counted(partition_key, self._now, _ALL)[2].plus(self._expiring(partition_key)[0])

    def stored(self, partition_key: bytes) -> Totals:
        """What the partition stores, counted."""
        return self._counted(partition_key, BEFORE_ALL, _ALL)[2]

    def unexpired(self, partition_key: bytes, stored: Totals) -> Totals:
        """The live ones of the messages that a partition stores."""
        for name in ("expired_rows", "expired_packs"):
            ((messages, size),) = self._ask(SQL[name], (partition_key, self._now))
            stored = stored.minus(Totals(messages, size))
        left, whole = self._expiring(partition_key)
        return stored.plus(left).minus(whole)

    def _counted(self, partition_key: bytes, now_ticks: int, limit: int) -> tuple[int, int, Totals]:
        """Rows and packs, each up to a limit, and the messages of rows and packs that are all alive."""
        ((rows, *loose),) = self._ask(SQL["count_rows"], (partition_key, now_ticks, limit))
        ((packs, *packed),) = self._ask(SQL["count_packs"], (partition_key, now_ticks, limit))
        return rows, packs, Totals(*loose).plus(Totals(*packed))

    def _expiring(self, partition_key: bytes) -> tuple[Totals, Totals]:
        """The live messages of packs of which some have expired, and all messages of these packs."""
        left = whole = NOTHING
        for seq, messages, size in list(self._ask(SQL["packs_expiring"], (partition_key, self._now))):
            whole = whole.plus(Totals(messages, size))
            head, rest = pack_of(self._ask, seq)
            if head is not None:
                chosen = [at for at, expires in enumerate(head.expires_ticks) if expires > self._now]
                bodies = read_rest(head, rest, chosen)[0].bodies
                left = left.plus(Totals(len(chosen), sum(map(len, bodies))))
        return left, whole

    def state(self, partition_key: bytes, live: Totals) -> PartitionState:
        """:param live: its live messages."""
        if not live.messages:
            return EMPTY_PARTITION
        ((scheduled,),) = self._ask(SQL["scheduled"], (partition_key, self._now))
        whole = Span(ZERO_ID, MAX_ID)
        oldest, newest = (end_of(self._ask, partition_key, whole, self._now, newest=newest) for newest in (False, True))
        return PartitionState(live.messages, scheduled, oldest, newest, live.size)
