"""The embedded store is a store, and stays the same one across restarts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import apsw
import pytest

from queuey.clock import ManualClock
from queuey.errors import (
    CorruptMessage,
    KeyReused,
    QueueNotFound,
    StaleGeneration,
    StorageUnavailable,
    StoreInUse,
)
from queuey.ids import IdGenerator, MessageId
from queuey.model import MAX_GENERATION_STEP, IdempotencyKey
from queuey.storage.contract import LeaseStoreContract, MessageStoreContract, MetadataStoreContract, TaskStoreContract
from queuey.storage.contract.common import SECOND, STRONG, QueueLog, StoreContract, client_id, done, draft
from queuey.storage.contract.metadata import key, queue
from queuey.storage.contract.offsets import Group
from queuey.storage.sqlite import SqliteOptions, SqliteStores
from queuey.storage.sqlite import checkpoints as sqlite_checkpoints
from queuey.storage.sqlite import upkeep as sqlite_upkeep
from queuey.storage.sqlite.purging import Purger
from queuey.storage.sqlite.statements import SQL
from tests.support.servers import eventually
from tests.support.sqlite_beside import beside
from tests.support.turning_loop import carry_in_turn, turning_loop

Reopen = Callable[[], SqliteStores]


class TestSqliteStores(MessageStoreContract, MetadataStoreContract, LeaseStoreContract, TaskStoreContract):
    histories = 30

    @pytest.fixture
    def stores(self, tmp_path: Path, clock: ManualClock, ids: IdGenerator) -> Iterator[SqliteStores]:
        """Its commits are carried by an event loop and by the thread in turn."""
        stores = SqliteStores(tmp_path / "queuey.db", clock, ids)
        with turning_loop() as inbox:
            carry_in_turn(stores, inbox)
            yield stores
            stores.close()


class _Busy:
    """A connection that checkpoints while others append."""

    def __init__(self, connection: apsw.Connection, append: Callable[[], object], times: int) -> None:
        self._connection, self._append, self._left = connection, append, times
        self.passes = 0

    def wal_checkpoint(self, mode: int) -> tuple[int, int]:
        found = self._connection.wal_checkpoint(mode=mode)
        self.passes += 1
        if self._left:
            self._left -= 1
            self._append()
        return found


@pytest.mark.parametrize(
    ("times", "passes", "cap", "turn"),
    [
        (0, 1, 64 << 20, 3600.0),
        (2, 3, 64 << 20, 3600.0),
        (99, 8, 64 << 20, 3600.0),
        (99, 3, 700_000, 3600.0),
        (99, 1, 64 << 20, 0.0),
    ],
)
def test_the_log_is_copied_until_little_is_left_for_the_committer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int, passes: int, cap: int, turn: float
) -> None:
    """Writers wait while the committer copies. Nor is it tried for ever, until the log is over its bound, or past a turn's time."""
    monkeypatch.setattr(sqlite_upkeep, "TURN_SECONDS", 3600.0)
    monkeypatch.setattr(sqlite_checkpoints, "CHECKPOINT_BYTES", 64 << 20)
    monkeypatch.setattr(sqlite_checkpoints, "_LITTLE_BYTES", 100_000)
    clock = ManualClock()
    stores = SqliteStores(tmp_path / "queuey.db", clock, IdGenerator(clock))
    log = QueueLog(stores.messages, clock)
    busy = _Busy(stores.file.connections.beside(), lambda: log.add(b"x" * 200_000), times)
    monkeypatch.setattr(stores.file.checkpoints, "_cap", cap)
    log.add(b"first")
    monkeypatch.setattr(sqlite_upkeep, "TURN_SECONDS", turn)

    with stores.file.readers.lend() as reader, reader.snapshot():
        list(reader.beside(SQL["dropped_all"], ()))  # as long as this is read, the log cannot start over
        stores.file.checkpoints._copy(cast("apsw.Connection", busy))

    assert busy.passes == passes
    stores.close()


def test_a_part_of_the_log_that_was_copied_ends_no_trouble(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite syncs the file when the whole log is in it. So beside appends a file that cannot be synced takes one part after another."""
    monkeypatch.setattr(sqlite_upkeep, "TURN_SECONDS", 3600.0)
    clock = ManualClock()
    stores = SqliteStores(tmp_path / "queuey.db", clock, IdGenerator(clock))
    log = QueueLog(stores.messages, clock)
    stores.file.search.stop()  # while it reads, the log is not copied past what it sees
    busy = _Busy(stores.file.connections.beside(), lambda: log.add(b"meanwhile"), 1)
    log.add(b"first")
    for _ in range(3):
        stores.file.health.copy_failed(apsw.IOError("cannot be synced"))

    stores.file.checkpoints._copy(cast("apsw.Connection", busy))
    after_a_part = stores.problems()
    stores.file.checkpoints.finish(apsw.SQLITE_CHECKPOINT_PASSIVE).wait()

    assert [problem for problem in after_a_part if "cannot be synced" in problem]
    assert stores.problems() == []
    stores.close()


class _Counting:
    """A connection that notes the modes of its checkpoints."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self.modes: list[int] = []

    def wal_checkpoint(self, mode: int) -> tuple[int, int]:
        self.modes.append(mode)
        return self._connection.wal_checkpoint(mode=mode)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


@pytest.mark.parametrize(("turn", "short"), [(3600.0, False), (3600.0, True), (0.0, False)])
def test_the_committer_waits_for_readers_of_an_old_snapshot_once_in_a_step_of_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, turn: float, short: bool
) -> None:
    """However many turns tidying takes. In between it copies once in a turn's time, and waits for nobody unless the disk is short."""
    monkeypatch.setattr(sqlite_upkeep, "TURN_SECONDS", turn)
    clock = ManualClock()
    stores = SqliteStores(tmp_path / "queuey.db", clock, IdGenerator(clock), SqliteOptions(wal_mb=1))
    log, upkeep, checkpoints = QueueLog(stores.messages, clock), stores.file.upkeep, stores.file.checkpoints
    counting = _Counting(stores.file.writer)
    turns: list[bool] = []

    def tidy() -> bool:
        turns.append(True)
        return True

    def until_more_turns() -> None:
        enough = len(turns) + 20
        eventually(lambda: len(turns) >= enough)

    assert upkeep is not None
    monkeypatch.setattr(checkpoints, "_cap", 700_000)
    monkeypatch.setattr(checkpoints, "_writer", counting)
    log.add(b"first")

    with stores.file.readers.lend() as reader, reader.snapshot():
        list(reader.beside(SQL["dropped_all"], ()))  # as long as this is read, the log cannot start over
        monkeypatch.setattr(stores.file.health, "is_short_of_room", lambda: short)
        monkeypatch.setattr(upkeep, "_tidy", tidy)
        for _ in range(3):
            step_ends = checkpoints._due
            while checkpoints._log_bytes < step_ends:
                log.add(bytes(60_000))
            until_more_turns()
        modes = list(counting.modes)

    waiting = [mode for mode in modes if mode != apsw.SQLITE_CHECKPOINT_PASSIVE]
    assert waiting == [apsw.SQLITE_CHECKPOINT_RESTART] * 3
    assert (len(modes) > len(waiting)) == (turn == 0)
    stores.close()


class TestAfterARestart(StoreContract):
    """What another process finds in the file."""

    def test_messages_are_as_they_were(self, reopen: Reopen, clock: ManualClock) -> None:
        log = QueueLog(reopen().messages, clock)
        log.append(draft(b"\0\xff", content_type="text/plain", key="k"), draft(b"other", 2), draft(ttl_seconds=5))
        log.append(draft(b"later", due_ticks=clock.now_ticks() + 60 * SECOND))
        log.put((3, client_id(clock.now_ticks() - SECOND)), body=b"put")
        log.delete((2, log.read(2).messages[0].id))
        before = [log.read(partition) for partition in (1, 2, 3)]

        log.store = reopen().messages

        assert [log.read(partition) for partition in (1, 2, 3)] == before
        clock.advance(100)
        assert log.bodies() == [b"\0\xff", b"later"]

    def test_idempotency_keys_are_remembered(self, reopen: Reopen, clock: ManualClock) -> None:
        log = QueueLog(reopen().messages, clock)
        first = log.append(draft(b"a"), draft(b"b", 200), idempotency=IdempotencyKey("key", b"digest"))

        log.store = reopen().messages

        second = log.append(draft(b"a"), draft(b"b", 200), idempotency=IdempotencyKey("key", b"digest"))
        assert second.repeated
        assert list(second.placed) == list(first.placed)
        with pytest.raises(KeyReused):
            log.append(draft(b"c"), idempotency=IdempotencyKey("key", b"another digest"))

    def test_offsets_are_as_they_were(self, reopen: Reopen, clock: ManualClock) -> None:
        group = Group(reopen().offsets)
        group.commit({1: client_id(clock.now_ticks()), 200: None}, MAX_GENERATION_STEP)
        before = group.offsets()

        group.store = reopen().offsets

        assert group.offsets() == before
        with pytest.raises(StaleGeneration):
            group.commit({200: None}, MAX_GENERATION_STEP - 1)

    def test_metadata_is_as_it_was(self, reopen: Reopen) -> None:
        stores = reopen()
        made, gone = queue("q", partitions=7, principals=("a", "b")), queue("gone")
        for one in (made, gone):
            done(stores.metadata.create_queue(one))
        done(stores.metadata.remove_queue(gone))
        done(stores.metadata.add_key(key(b"a")))

        stores = reopen()

        assert [*done(stores.metadata.list_queues("app"))] == [made]
        assert [*done(stores.metadata.removed())] == [gone.uuid]
        assert [*done(stores.metadata.keys())] == [key(b"a")]

    def test_the_queues_of_a_principal_are_found_without_a_scan(self, reopen: Reopen, tmp_path: Path) -> None:
        stores = reopen()
        done(stores.metadata.create_queue(queue()))

        with beside(tmp_path / "queuey.db") as file:
            plan = file.execute(f"explain query plan {SQL['queue_list_named']}", ("app", "app:x", "", 10)).fetchall()

        assert [str(step[-1]).split()[0] for step in plan] == ["SEARCH", "SEARCH"], plan

    def test_a_dropped_queue_stays_dropped_also_before_its_room_is_given_back(
        self, reopen: Reopen, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """G9."""
        monkeypatch.setattr(Purger, "has_refuse", lambda _self: False)
        stores = reopen()
        log = QueueLog(stores.messages, clock)
        (id_,) = log.add(b"gone")
        done(stores.messages.drop(log.queue.uuid))

        log.store = reopen().messages

        assert log.bodies() == []
        assert log.fetch((1, id_)) == [None]
        with pytest.raises(QueueNotFound):
            log.add(b"ghost")

    @pytest.mark.parametrize("step", [0.0, 0.001, -3600.0, -86_400.0 * 365])
    def test_ids_and_watermark_go_on_above_all_that_was_served_though_the_clock_was_set_back(
        self, reopen: Reopen, clock: ManualClock, step: float
    ) -> None:
        """G3 and G4."""
        log = QueueLog(reopen().messages, clock)
        old = log.append(draft(b"old"), draft(b"old")).placed[-1].id
        clock.advance(0.5)
        served = log.store.watermark(STRONG)

        log.store.close()
        clock.step(step)
        log.store = reopen().messages

        assert log.store.watermark(STRONG) >= served
        (new,) = log.add(b"new")
        assert new > old
        assert new.ticks > served
        assert log.bodies() == [b"old", b"old", b"new"]

    def test_it_is_told_how_far_the_clock_was_set_back(self, reopen: Reopen, clock: ManualClock) -> None:
        """Until it has caught up, a delay that ends before what was served is none (G13)."""
        log = QueueLog(reopen().messages, clock)
        log.add(b"old")
        clock.advance(1.0)
        assert log.store.clock_error_seconds() == 0.0

        clock.step(-3600.0)
        assert log.store.clock_error_seconds() == pytest.approx(3599.0)
        log.store.close()
        log.store = reopen().messages
        assert log.store.clock_error_seconds() >= 3599.0
        log.append(draft(b"at once", due_ticks=clock.now_ticks() + 5 * SECOND))
        assert log.bodies() == [b"old", b"at once"]

        clock.advance(3602.0)
        assert log.store.clock_error_seconds() == 0.0
        log.append(draft(b"later", due_ticks=clock.now_ticks() + 5 * SECOND))
        assert log.bodies() == [b"old", b"at once"]

    def test_room_of_what_is_gone_is_given_back(self, reopen: Reopen, clock: ManualClock, tmp_path: Path) -> None:
        stores = reopen()
        dropped, log = QueueLog(stores.messages, clock), QueueLog(stores.messages, clock)
        dropped.append(*[draft()] * 100, idempotency=IdempotencyKey("key", b"digest"))
        log.append(*[draft(ttl_seconds=5)] * 100, idempotency=IdempotencyKey("key", b"digest"))
        log.add(b"kept")
        for one in (log, dropped):
            Group(stores.offsets, queue=one.queue.uuid).take_over(*range(1, 20), generation=1)
        done(stores.messages.drop(dropped.queue.uuid))
        clock.advance(60)

        while stores.file.purger.has_refuse():
            done(stores.file.purger.purge(7))

        with beside(tmp_path / "queuey.db") as file:
            for table, rows in (("messages", 1), ("idempotency", 1), ("offsets", 19), ("dropped", 0)):
                assert file.execute(f"select count(*) from {table}").fetchall() == [(rows,)]  # noqa: S608
        assert log.bodies() == [b"kept"]


class TestAccidents(StoreContract):
    @pytest.fixture
    def stores(self, tmp_path: Path, clock: ManualClock, ids: IdGenerator) -> Iterator[SqliteStores]:
        stores = SqliteStores(tmp_path / "queuey.db", clock, ids)
        yield stores
        stores.close()

    def damage(self, folder: Path, statement: str, *bindings: object) -> None:
        """Change the file behind the store's back."""
        with beside(folder / "queuey.db") as file:
            file.execute(statement, bindings)

    @pytest.mark.parametrize(
        "change",
        [
            "body = x'6120626f6478'",
            "body = substr(body, 1, 3)",
            "body = cast(body || x'00' as blob)",
            "body = cast(body as text)",
            "body = 5",
            "content_type = 'text/html'",
            "content_type = 5",
            "content_type = null",
            "key = 'other'",
            "ticks = ticks + 1",
        ],
    )
    def test_a_changed_message_is_noticed_and_named(
        self, log: QueueLog, stores: SqliteStores, tmp_path: Path, change: str
    ) -> None:
        """G6."""
        log.append(draft(b"before"), draft(b"a body", content_type="text/plain", key="k"), draft(b"after"))
        bad = log.read().messages[1].id
        self.damage(tmp_path, f"update messages set {change} where ticks = ?", bad.ticks)  # noqa: S608
        bad = MessageId(bad.ticks + ("ticks" in change), bad.tail)

        for look in (log.read, lambda: log.read(newest_first=True), lambda: log.fetch((1, bad))):
            with pytest.raises(CorruptMessage, match=bad.hex):
                look()

        assert log.bodies(upto=bad.before()) == [b"before"]
        assert len(log.read(with_bodies=False).messages) >= 2
        assert [*stores.problems()] == []

    def test_a_reader_may_step_over_what_is_corrupt(self, log: QueueLog, tmp_path: Path) -> None:
        ids = log.add(b"a", b"b", b"c", b"d")
        self.damage(tmp_path, "update messages set body = x'00' where ticks in (?, ?)", ids[1].ticks, ids[2].ticks)

        page = log.read(skip_corrupt=True)

        assert [message.body for message in page.messages] == [b"a", b"d"]
        assert page.corrupt == 2
        assert not page.more
        assert log.read(skip_corrupt=True, limit=1)[1:] == (True, 0)
        second = log.read(skip_corrupt=True, limit=1, after=ids[0])
        assert ([message.body for message in second.messages], *second[1:]) == ([b"d"], False, 2)

    def test_two_servers_cannot_have_one_store(self, stores: SqliteStores, tmp_path: Path, clock: ManualClock) -> None:
        assert not stores.problems()

        with pytest.raises(StoreInUse):
            SqliteStores(tmp_path / "queuey.db", clock, IdGenerator(clock))

    def test_an_append_that_cannot_be_stored_takes_no_other_with_it(self, log: QueueLog) -> None:
        with pytest.raises(Exception, match=r"store|surrogate"):
            log.append(draft(b"x", key="\ud800"))

        log.add(b"next")
        assert log.bodies() == [b"next"]

    def test_a_closed_store_refuses_and_stores_nothing(self, log: QueueLog, stores: SqliteStores) -> None:
        stores.close()

        with pytest.raises(StorageUnavailable):
            log.add(b"late")
        with pytest.raises(StorageUnavailable):
            log.bodies()
        with pytest.raises(StorageUnavailable):
            done(stores.metadata.find_queue("app", "log"))

    def test_what_was_asked_before_a_close_is_answered(self, stores: SqliteStores) -> None:
        made = queue()
        done(stores.metadata.create_queue(made))

        asked = [stores.metadata.find_queue(made.application, made.name) for _ in range(100)]
        stores.close()

        assert [done(promise) for promise in asked] == [made] * 100

    def test_a_group_of_any_size_is_stored_whole_and_in_order(self, log: QueueLog) -> None:
        """Rows are written a few hundred at a time, in statements of few sizes."""
        for count in (1, 3, 255, 256, 257, 1000):
            before = log.watermark()
            bodies = [b"%d" % number for number in range(count)]
            log.append(*map(draft, bodies))

            assert log.bodies(after=MessageId.last_of(before)) == bodies
