"""Counters of partitions of an embedded store: whatever happens, they say what a fresh count says, and asking costs nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from queuey.clock import ManualClock
from queuey.errors import CorruptMessage, QueueyError
from queuey.ids import ZERO_ID, IdGenerator
from queuey.model import PartitionId
from queuey.storage.contract import MessageStoreContract, PartitionHistory
from queuey.storage.contract.common import SECOND, QueueLog, StoreContract, client_id, done, draft, drive_histories
from queuey.storage.sqlite import SqliteStores, inspecting, packing, packs
from queuey.storage.sqlite.counters import Counters, GroupChanges, Totals
from queuey.storage.sqlite.inspecting import Inspector
from queuey.storage.sqlite.purging import Purger
from queuey.storage.sqlite.rows import key_of
from queuey.storage.sqlite.transaction import CommitFailed, Transaction
from tests.support.sqlite_beside import beside

pytestmark = pytest.mark.usefixtures("only_the_test_tidies")


@pytest.fixture
def all_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A partition gets a counter however few messages it has."""
    monkeypatch.setattr(inspecting, "FEW", -1)


@pytest.fixture
def small_packs(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("LEAST", 2), ("MOST", 4), ("MOST_BYTES", 100)):
        monkeypatch.setattr(packs, name, value)


def counted_by(stores: SqliteStores, partition: PartitionId) -> Totals:
    """What the counter of a partition says."""
    seen = stores.file.counters.seen(key_of(partition))
    assert seen is not None
    totals = stores.file.counters.settled(key_of(partition), seen)
    assert totals is not None
    return totals


def check(stores: SqliteStores, log: QueueLog) -> None:
    """Compare counters, and what an inspection makes of them, with a fresh count."""
    file, now = stores.file, log.watermark()
    partitions = [log.queue.partition(number) for number in (1, 2)]
    inspected = done(stores.messages.inspect(partitions, now_ticks=now))
    fresh = Inspector(file.readers, file.committer, file.counters, file.clock.elapsed, keeps=False).states(
        [key_of(partition) for partition in partitions], now
    )
    assert inspected == [fresh[key_of(partition)] for partition in partitions]
    with beside(file.path) as other:
        for partition in partitions:
            if partition.queue.bytes in file.dropped:
                continue
            stored = [
                other.execute(
                    f"select count(*), ifnull(sum({messages}), 0), ifnull(sum({size}), 0) from {table} where partition_key = ?",  # noqa: S608
                    (key_of(partition),),
                ).fetchall()[0]
                for table, messages, size in (("messages", "1", "length(body)"), ("packs", "messages", "bytes"))
            ]
            assert counted_by(stores, partition) == tuple(map(sum, zip(*[row[1:] for row in stored], strict=True)))


def put_together(stores: SqliteStores, partition: PartitionId) -> None:
    """Pack all of a partition."""
    stores.messages.tidying.loose[key_of(partition)] = ZERO_ID
    while stores.messages.tidying.pack_some():
        pass


@pytest.mark.usefixtures("all_are_counted", "small_packs")
class TestAllCounted(MessageStoreContract):
    """All that is promised of messages, where each inspection uses a counter."""

    histories = 20

    @pytest.fixture
    def stores(self, tmp_path: Path, clock: ManualClock, ids: IdGenerator) -> Iterator[SqliteStores]:
        stores = SqliteStores(tmp_path / "queuey.db", clock, ids)
        yield stores
        stores.close()


class CountedHistory(PartitionHistory):
    """Any history, in which messages are packed and purged, and the store is opened anew."""

    def __init__(self, stores: SqliteStores, clock: ManualClock, reopen: Callable[[], SqliteStores]) -> None:
        self.stores = stores
        self.reopen = reopen
        super().__init__(stores.messages, clock)

    @rule(partition=st.integers(1, 2))
    def pack(self, partition: int) -> None:
        put_together(self.stores, self.log.queue.partition(partition))

    @rule(rows=st.sampled_from([1, 2, 2000]))
    def purge(self, rows: int) -> None:
        self.log.watermark()  # what is purged had expired by a moment that readers know
        done(self.stores.file.purger.purge(rows))

    @rule()
    def open_anew(self) -> None:
        self.stores = self.reopen()
        self.store = self.log.store = self.stores.messages

    @invariant()
    def counters_are_right(self) -> None:
        check(self.stores, self.log)


def count_then_expire(log: QueueLog, clock: ManualClock) -> None:
    """One of the two messages of the first partition, which has a counter, has expired."""
    log.append(draft(b"gone", ttl_seconds=5), draft(b"stays", partition=2))
    log.add(b"stays")
    log.inspect(1)
    clock.advance(60)


@pytest.mark.usefixtures("all_are_counted", "small_packs")
class TestCounters(StoreContract):
    @pytest.fixture
    def stores(self, reopen: Callable[[], SqliteStores]) -> SqliteStores:
        return reopen()

    def test_they_are_right_after_each_step_of_any_history(
        self, stores: SqliteStores, clock: ManualClock, reopen: Callable[[], SqliteStores]
    ) -> None:
        opened = [stores]

        def again() -> SqliteStores:
            opened.append(reopen())
            return opened[-1]

        drive_histories(lambda: CountedHistory(opened[-1], clock, again), 25)

    def test_they_are_right_after_each_way_to_change_rows(
        self, stores: SqliteStores, log: QueueLog, clock: ManualClock
    ) -> None:
        self.each_way(stores, log, clock)

    def each_way(self, stores: SqliteStores, log: QueueLog, clock: ManualClock) -> None:
        check(stores, log)
        ids = log.add(b"a", b"bb", b"ccc", b"dddd", b"eeeee", b"ffffff", b"ggggggg", b"hhhhhhhh")
        check(stores, log)
        together = [place.id for place in log.append(*[draft(b"%d" % number) for number in range(12)]).placed]
        log.append(draft(b"later", due_ticks=clock.now_ticks() + 3600 * SECOND), draft(b"other", 2))
        check(stores, log)
        log.put((1, ids[0]), body=b"put over a row")
        log.put((1, together[5]), body=b"put over one of a pack")
        log.put((1, client_id(clock.now_ticks() - 9 * SECOND)), body=b"put between")
        check(stores, log)
        log.delete((1, ids[1]), (2, ids[1]), (1, together[1]), (1, together[2]))
        check(stores, log)
        for number in range(20):
            log.append(draft(b"gone" if number % 2 else b"stays", ttl_seconds=5 if number % 2 else 7200))
        log.append(*[draft(b"half", ttl_seconds=5)] * 3, *[draft(b"whole")] * 3)
        log.append(*[draft(b"all", ttl_seconds=5)] * 6)
        clock.advance(60)
        check(stores, log)
        put_together(stores, log.queue.partition(1))
        check(stores, log)
        log.append(*[draft(b"row", ttl_seconds=5 + number % 2 * 7200) for number in range(2)])
        log.append(draft(b"row", ttl_seconds=5))
        log.append(*[draft(b"all", ttl_seconds=5)] * 6)
        clock.advance(60)
        check(stores, log)
        while stores.file.purger.has_refuse():
            done(stores.file.purger.purge(2))
            check(stores, log)
        self.refused(stores, log)

    def refused(self, stores: SqliteStores, log: QueueLog) -> None:
        """A deletion that finds a damaged pack is undone."""
        (single,) = log.add(b"single")
        damaged = [place.id for place in log.append(*[draft(b"p", 2)] * 4).placed]
        with beside(stores.file.path) as other:
            other.execute("update packs set head = x'00' where first_ticks = ?", (damaged[0].ticks,))
        with pytest.raises(CorruptMessage):
            log.delete((1, single), (2, damaged[1]))
        check(stores, log)

    @pytest.mark.parametrize(
        ("where", "what", "instead"),
        [
            (GroupChanges, "add_rows", lambda *_: None),
            (GroupChanges, "restore", lambda *_: None),
            (packing, "uncount", lambda *_: None),
            (
                packing,
                "_delete_pack",
                lambda transaction, _, seq: transaction.look("delete from packs where seq = ?", (seq,)),
            ),
            (Purger, "add", lambda self, purge: self._expired.extend(purge.expired)),
            (inspecting._Look, "unexpired", lambda _self, _key, stored: stored),
            (Counters, "keep", lambda *_: None),
        ],
    )
    def test_a_place_that_does_not_count_is_found(
        self,
        where: Any,
        what: str,
        instead: Callable[..., Any],
        reopen: Callable[[], SqliteStores],
        clock: ManualClock,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(where, what, instead)
        stores = reopen()

        with pytest.raises(AssertionError):
            self.each_way(stores, QueueLog(stores.messages, clock), clock)

    def test_a_group_that_is_rolled_back_changes_nothing(self, stores: SqliteStores, log: QueueLog) -> None:
        (id_,) = log.add(b"there")
        check(stores, log)
        key = key_of(log.queue.partition(1))

        def faulty(transaction: Transaction) -> None:
            transaction.insert((key, 1, 1, 1 << 60, 0, None, None, b"never", None))
            packing.remove(transaction, key, [id_])
            raise RuntimeError

        with pytest.raises(QueueyError):
            done(stores.file.committer.submit(faulty, grows=True))

        check(stores, log)
        assert log.inspect(1)[0].depth == 1

    def test_all_are_forgotten_if_a_commit_has_no_known_outcome(
        self, stores: SqliteStores, log: QueueLog, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        log.add(b"there")
        check(stores, log)

        def failing(_: Transaction) -> None:
            raise CommitFailed

        with monkeypatch.context() as patch:
            patch.setattr(Transaction, "commit", failing)
            with pytest.raises(QueueyError):
                log.add(b"perhaps")

        assert len(stores.file.counters) == 0
        assert log.inspect(1)[0].depth == 1

    def test_a_dropped_queue_has_none(self, stores: SqliteStores, log: QueueLog) -> None:
        log.add(b"there")
        check(stores, log)
        assert len(stores.file.counters) == 2

        done(stores.messages.drop(log.queue.uuid))
        assert log.inspect(1)[0].depth == 0
        while stores.file.purger.has_refuse():
            done(stores.file.purger.purge(2000))

        assert len(stores.file.counters) == 0

    def test_a_base_that_cannot_be_counted_leaves_no_counter(
        self, stores: SqliteStores, log: QueueLog, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        log.add(b"there")

        def failing(*_: Any) -> Any:
            raise apsw.BusyError

        with monkeypatch.context() as patch:
            patch.setattr(inspecting._Look, "stored", failing)
            with pytest.raises(QueueyError):
                log.inspect(1)

        assert len(stores.file.counters) == 0
        assert log.inspect(1)[0].depth == 1

    def test_what_a_purge_deletes_meanwhile_is_subtracted_once(
        self, stores: SqliteStores, log: QueueLog, clock: ManualClock
    ) -> None:
        for number in range(400):
            log.append(draft(b"gone", ttl_seconds=5) if number % 4 else draft(b"stays"))
        log.append(*[draft(b"gone", ttl_seconds=5)] * 1200)
        clock.advance(60)
        log.inspect(1)
        found: list[tuple[int, int]] = []

        def purge() -> None:
            while done(stores.file.purger.purge(1)):
                pass

        purging = threading.Thread(target=purge)
        purging.start()
        while purging.is_alive() or not found:
            state = log.inspect(1)[0]
            found.append((state.depth, state.bytes))
        purging.join()

        assert set(found) == {(100, 500)}
        check(stores, log)

    def test_what_is_purged_between_counter_and_snapshot_is_subtracted_once(
        self, stores: SqliteStores, log: QueueLog, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        count_then_expire(log, clock)
        begin, purged = inspecting._Look.begin, list[int]()

        def begin_late(look: Any) -> None:
            if not purged:
                purged.append(done(stores.file.purger.purge(2000)))
            begin(look)

        monkeypatch.setattr(inspecting._Look, "begin", begin_late)

        assert log.inspect(1)[0][:2] == (1, 0)
        assert purged == [1]

    def test_what_is_on_disk_and_not_counted_yet_is_subtracted_once(
        self, stores: SqliteStores, log: QueueLog, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        count_then_expire(log, clock)
        now, keep = log.watermark(), Counters.keep
        on_disk, may_count = threading.Event(), threading.Event()

        def keep_late(counters: Counters, group: GroupChanges) -> None:
            on_disk.set()
            may_count.wait(30)
            keep(counters, group)

        monkeypatch.setattr(Counters, "keep", keep_late)
        purged = stores.file.purger.purge(2000)
        assert on_disk.wait(30)
        threading.Timer(0.1, may_count.set).start()

        (state,) = done(stores.messages.inspect([log.queue.partition(1)], now_ticks=now))

        assert (state.depth, done(purged)) == (1, 1)

    def test_a_reader_does_not_wait_long_for_the_committer(
        self, stores: SqliteStores, log: QueueLog, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(inspecting, "_PATIENCE_SECONDS", 0.05)
        log.add(b"there", b"too")
        free = threading.Event()

        def hold() -> None:
            free.wait(30)

        held = stores.file.committer.run_between(hold)
        try:
            (state,) = done(stores.messages.inspect([log.queue.partition(1)], now_ticks=0))
        finally:
            free.set()
        done(held)

        assert (state.depth, state.bytes) == (2, 8)
        check(stores, log)


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[SqliteStores]:
    clock = ManualClock()
    stores = SqliteStores(tmp_path / "queuey.db", clock, IdGenerator(clock))
    yield stores
    stores.close()


def steps_of(stores: SqliteStores, work: Callable[[], object]) -> int:
    """Steps of SQLite's machine in the reader that is lent first, in tens."""
    taken = 0

    def count() -> bool:
        nonlocal taken
        taken += 1
        return False

    with stores.file.readers.lend() as reader:
        connection = reader._connection
    connection.set_progress_handler(count, 10)
    work()
    connection.set_progress_handler(None)
    return taken


def test_only_the_first_question_counts(stores: SqliteStores) -> None:
    """Later ones read neither messages nor their index, however many messages were stored since."""
    log = QueueLog(stores.messages, stores.file.clock)  # type: ignore[arg-type]
    for _ in range(30):
        log.append(*[draft(b"x", partition=1 + at % 4) for at in range(100)])  # few enough for each to be a row
    for partition in (1, 2, 3, 4):
        log.append(*[draft(b"xy", partition=partition)] * 5000)

    first = steps_of(stores, lambda: log.inspect(1))
    again = steps_of(stores, lambda: log.inspect(1))
    log.append(*[draft(b"z")] * 5000)
    log.append(draft(b"z"))
    later = steps_of(stores, lambda: log.inspect(1))

    assert first > 400
    assert max(again, later) < 60
    assert (log.inspect(1)[0].depth, log.inspect(1)[0].bytes) == (750 + 10_001, 750 + 15_001)


def test_an_inspection_without_time_leaves_no_counter_that_is_half_made(
    stores: SqliteStores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspecting, "FEW", -1)
    log = QueueLog(stores.messages, stores.file.clock)  # type: ignore[arg-type]
    log.append(*[draft(b"x")] * 300)
    partitions = [log.queue.partition(number) for number in (1, 2)]

    assert done(stores.messages.inspect(partitions, now_ticks=log.watermark(), seconds=0)) == []
    assert len(stores.file.counters) == 0

    assert [state.depth for state in log.inspect(1, 2)] == [300, 0]


@pytest.mark.parametrize("few", [-1, 200])
def test_a_pack_expires_message_by_message(stores: SqliteStores, monkeypatch: pytest.MonkeyPatch, few: int) -> None:
    """Packs whose messages expire within a millisecond are found by another index than those that take longer."""
    monkeypatch.setattr(inspecting, "FEW", few)
    log = QueueLog(stores.messages, stores.file.clock)  # type: ignore[arg-type]
    log.append(*[draft(b"x" * number, ttl_seconds=5) for number in range(100)])
    log.append(*[draft(b"y" * number, ttl_seconds=4 + number % 3) for number in range(100)])
    log.append(*[draft(b"z" * number, ttl_seconds=4 + number // 99) for number in range(100)], draft(b"loose"))
    messages = log.read(limit=1000).messages
    expiries = sorted(message.expires_ticks for message in messages)
    with beside(stores.file.path) as other:
        assert other.execute("select latest - earliest > 10000 from packs").fetchall() == [(0,), (1,), (1,)]

    for now in {expiry - at for expiry in (*expiries[::17], expiries[-1]) for at in (0, 1)}:
        live = [message for message in messages if message.expires_ticks > now]
        (state,) = done(stores.messages.inspect([log.queue.partition(1)], now_ticks=now))
        assert (state.depth, state.bytes) == (len(live), sum(len(message.body) for message in live))
        assert (state.oldest, state.newest) == ((live[0].id, live[-1].id) if live else (None, None))


def test_a_partition_with_few_messages_needs_no_counter(stores: SqliteStores) -> None:
    log = QueueLog(stores.messages, stores.file.clock)  # type: ignore[arg-type]
    log.add(*[b"%d" % number for number in range(inspecting.FEW)])
    log.append(*[draft(b"x", 2)] * 1000)

    assert [state[:2] for state in log.inspect(1, 2, 3)] == [(inspecting.FEW, 0), (1000, 0), (0, 0)]
    assert len(stores.file.counters) == 0

    log.add(b"one more")
    assert log.inspect(1)[0].depth == inspecting.FEW + 1
    assert len(stores.file.counters) == 1


@pytest.mark.usefixtures("all_are_counted")
def test_a_file_that_another_process_serves_is_counted_each_time(stores: SqliteStores) -> None:
    log = QueueLog(stores.messages, stores.file.clock)  # type: ignore[arg-type]
    log.add(b"there")
    others = SqliteStores(stores.file.path, stores.file.clock, IdGenerator(stores.file.clock), serve=False)
    try:
        for depth in (1, 2):
            (state,) = done(others.messages.inspect([log.queue.partition(1)], now_ticks=log.watermark()))
            assert state.depth == depth
            log.add(b"more")
        assert len(others.file.counters) == 0
    finally:
        others.close()
