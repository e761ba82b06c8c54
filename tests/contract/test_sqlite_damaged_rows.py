"""Rows whose values are of another kind, missing or beyond their range: each call has a sound answer or a refusal in words, no
thread ends, and ``queuey verify`` and a repair come to their end.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import product
from pathlib import Path
from typing import Any
from uuid import UUID

import apsw
import pytest

from queuey.clock import ManualClock
from queuey.errors import ConfigurationError, CorruptMessage, QueueyError, StorageUnavailable
from queuey.future import Future
from queuey.ids import MAX_ID, ZERO_ID, IdGenerator
from queuey.model import AppendRequest, IdempotencyKey, OffsetChange, PrincipalKey, Queue, Span
from queuey.model.lease_groups import LeaseGroup
from queuey.model.lease_requests import ReceiveRequest
from queuey.model.tasks import StoredTask
from queuey.storage.contract.common import QueueLog, done, draft, located
from queuey.storage.contract.lease_receiver import Receiver
from queuey.storage.sqlite import SqliteOptions, SqliteStores
from queuey.storage.sqlite.repairing import repair
from queuey.storage.sqlite.scrub import Scrub
from queuey.storage.sqlite.verify import verify
from tests.support.sqlite_beside import beside
from tests.support.turning_loop import carry_on_loop, turning_loop

pytestmark = pytest.mark.usefixtures("only_the_test_tidies")

TABLES = (
    "messages",
    "packs",
    "idempotency",
    "offsets",
    "lease_groups",
    "lease_changes",
    "lease_forgotten",
    "lease_attempts",
    "lease_moment",
    "tasks",
    "dropped",
    "moment",
    "queues",
    "named",
    "removed",
    "app_keys",
)
VALUES = (
    "cast({} as blob)",
    "cast({} as text)",
    "cast(x'ff' as text)",
    "x'ff'",
    "x''",
    "null",
    "9223372036854775807",
    "-9223372036854775808",
    "0.5",
)
"""What becomes of a column."""
DRAWN = 8
"""Changes of each table: all of them take minutes."""
REMOVED, DROPPED = bytes(range(0xE0, 0xF0)), bytes(range(0xD0, 0xE0))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


class Filled:
    """A store with rows in all tables."""

    def __init__(self, path: Path, clock: ManualClock) -> None:
        self.path, self.clock = path, clock
        with closing(self.opened()) as stores:
            self.log = log = QueueLog(stores.messages, clock)
            self.queue = log.queue = log.queue._replace(principals=("app:demo",))
            done(stores.metadata.create_queue(self.queue))
            self.ids = log.add(b"\xff\xfe one", b"two", b"\xff three")
            self.once = AppendRequest(self.queue, [draft(b"\xff once")], IdempotencyKey("once", b"\xff", 3600))
            done(stores.messages.append(self.once))
            self.packed = [place.id for place in log.append(*[draft(b"\xff %d" % one, 2) for one in range(64)]).placed]
            self.bodies = {*log.bodies(1), *log.bodies(2)}
            done(stores.metadata.add_key(PrincipalKey("app:demo", b"\xff" * 32, "a", 1)))
            done(stores.offsets.change_offsets(self.queue.uuid, "readers", OffsetChange({1: self.ids[0]}, 1)))
            self.receive(stores, "a")
            self.receive(stores, "of another", "gone")
            done(stores.leases.forget_group(self.queue.uuid, "gone"))
            self.task = StoredTask(self.queue.uuid, "purge", "app", "log", UUID(int=5), 1)
            done(stores.tasks.change_task(None, self.task))
            removed = Queue("app", "removed", UUID(bytes=REMOVED), 1, 1)
            done(stores.metadata.create_queue(removed))
            done(stores.metadata.remove_queue(removed))
            done(stores.messages.drop(UUID(bytes=DROPPED)))
        with beside(path) as file:
            file.execute("insert into removed values (?)", (REMOVED[::-1],))
            file.execute("pragma journal_mode = delete")
        self.sound = path.read_bytes()
        self._loosened = self._without_rules()

    def opened(self) -> SqliteStores:
        return SqliteStores(self.path, self.clock, IdGenerator(self.clock), SqliteOptions(scrub_percent=0))

    def receive(self, stores: SqliteStores, attempt: str, group: str = "workers") -> None:
        receiver = Receiver(stores.leases, self.log, group)
        receiver.new = LeaseGroup(len(group))
        self.log.watermark()
        receiver.step(receive=ReceiveRequest(1, None), partitions=[1], attempt=IdempotencyKey(attempt, b"\xff"))

    def _without_rules(self) -> bytes:
        """The same, where a column may be null, and no trigger runs."""
        with beside(self.path) as file:
            file.execute("pragma writable_schema = on")
            file.execute("update sqlite_schema set sql = replace(sql, 'not null', '') where type = 'table'")
            file.execute("delete from sqlite_schema where type = 'trigger'")
        return self.path.read_bytes()

    def columns(self, table: str) -> Sequence[str]:
        with beside(self.path) as file:
            return [column for _, column, *_ in file.execute(f"pragma table_info({table})")]

    def is_changed(self, table: str, column: str, value: str) -> bool:
        """Change a column of all rows; False if the table does not take it."""
        self.path.write_bytes(self._loosened)
        with beside(self.path) as file:
            try:
                file.execute(f"update or replace {table} set {column} = {value.format(column)}")  # noqa: S608 - of the schema
            except (apsw.ConstraintError, apsw.MismatchError):
                return False
            return file.changes() > 0

    def calls(self, stores: SqliteStores) -> Iterator[Callable[[], object]]:
        """Calls of all parts of the store, each with a look at what it answers."""
        log, queue, key = self.log, self.queue, self.queue.uuid
        log.store = stores.messages
        messages, metadata, offsets, leases, tasks = (
            stores.messages,
            stores.metadata,
            stores.offsets,
            stores.leases,
            stores.tasks,
        )

        def read(partition: int, **how: Any) -> None:
            assert {*log.bodies(partition, upto=MAX_ID, **how)} <= self.bodies | {b"new", b"put"}

        for partition, newest_first, skip_corrupt, limit in product((1, 2), (False, True), (False, True), (10, 4000)):
            yield lambda: read(partition, newest_first=newest_first, skip_corrupt=skip_corrupt, limit=limit)  # noqa: B023 - called at once
        for partition, found in ((1, self.ids[0]), (2, self.packed[5])):
            place = located([(partition, found)])
            yield lambda: done(messages.fetch(queue, place, now_ticks=self.clock.now_ticks()))  # noqa: B023 - the same
            yield lambda: log.read(partition, upto=MAX_ID, with_bodies=False)  # noqa: B023 - the same
            yield lambda: done(messages.inspect([queue.partition(partition)], now_ticks=self.clock.now_ticks()))  # noqa: B023 - the same
        yield lambda: done(
            messages.count_span(
                queue.partition(2), Span(ZERO_ID, MAX_ID), now_ticks=self.clock.now_ticks(), limit=99, step=10
            )
        )
        yield lambda: log.add(b"new")
        yield lambda: done(messages.append(self.once))
        yield lambda: done(metadata.find_queue("app", "log"))
        yield lambda: all_of(Queue, metadata.list_queues("app"))
        yield lambda: all_of(Queue, metadata.list_named("app", "app:demo"))
        yield lambda: all_of(PrincipalKey, metadata.keys())
        yield lambda: all_of(UUID, metadata.removed())
        yield lambda: done(metadata.create_queue(queue))
        yield lambda: done(metadata.replace_queue(queue, queue._replace(partitions=5)))
        yield lambda: done(offsets.read_offsets(key, "readers"))
        yield lambda: all_of(str, offsets.list_groups(key))
        yield lambda: done(offsets.change_offsets(key, "readers", OffsetChange({1: self.ids[1]}, 1)))
        yield lambda: done(leases.find_group(key, "workers"))
        yield lambda: all_of(str, leases.list_groups(key))
        yield lambda: done(leases.count(key, "workers", [1]))
        yield lambda: done(leases.held(key, "workers", 1, after=ZERO_ID, limit=10))
        for attempt in ("a", "another"):
            yield lambda: self.receive(stores, attempt)  # noqa: B023 - called at once
        yield lambda: done(tasks.find_task(key, "purge"))
        yield lambda: all_of(StoredTask, tasks.list_tasks(key))
        yield lambda: all_of(StoredTask, tasks.open_tasks())
        yield lambda: done(tasks.change_task(self.task, self.task.changed(reason="changed")))
        yield lambda: log.put((1, self.ids[1]), body=b"put")
        yield lambda: log.delete((1, self.ids[0]), (2, self.packed[3]))
        yield lambda: done(messages.delete_span(queue, 2, Span(ZERO_ID, self.packed[9]), most=100))
        yield stores.file.purger.has_refuse
        yield lambda: done(stores.file.purger.purge(100))


def all_of(kind: type, found: Future[Sequence[Any]]) -> None:
    assert all(isinstance(one, kind) for one in done(found))


@pytest.fixture
def filled(tmp_path: Path, clock: ManualClock) -> Filled:
    return Filled(tmp_path / "queuey.db", clock)


def answered(call: Callable[[], object]) -> None:
    """A call has an answer, or an error that was foreseen. Those of SQLite are met by the upkeep, which purges."""
    try:
        call()
    except apsw.Error:
        pass
    except QueueyError as error:
        if type(error) is QueueyError:
            raise


def threads_of(stores: SqliteStores) -> Mapping[str, bool]:
    file = stores.file
    assert file.upkeep is not None
    running = (file.committer._thread, file.upkeep._thread, stores.metadata._lookups._thread)
    return {str(one): one is not None and one.is_alive() for one in running}


@pytest.mark.parametrize("table", TABLES)
def test_any_value_has_a_sound_answer_or_a_refusal_and_ends_no_thread(
    filled: Filled, table: str, chance: random.Random
) -> None:
    wanted = [*product(filled.columns(table), VALUES)]
    chance.shuffle(wanted)
    tried = 0
    for column, value in wanted:
        if not filled.is_changed(table, column, value):
            continue
        tried += 1
        damaged = filled.path.read_bytes()
        try:
            stores = filled.opened()
        except ConfigurationError:
            assert table in ("moment", "lease_moment"), (column, value)
        else:
            with closing(stores), turning_loop() as inbox:
                carry_on_loop(stores, inbox)
                for call in filled.calls(stores):
                    answered(call)
                assert all(threads_of(stores).values()), (column, value)
                stores.use_loop(None)
        filled.path.write_bytes(damaged)
        with beside(filled.path) as connection:
            for _ in Scrub(connection).steps():
                pass
        answered(lambda: verify(filled.path))
        answered(lambda: repair(filled.path))
        if tried == DRAWN:
            return
    assert tried, "nothing was changed"


def changed(filled: Filled, statement: str) -> None:
    filled.path.write_bytes(filled.sound)
    with beside(filled.path) as file:
        file.execute(statement)


@pytest.mark.parametrize("table", ["removed", "dropped"])
def test_a_queue_that_was_removed_is_known_by_its_bytes_whatever_their_kind(filled: Filled, table: str) -> None:
    """They were no text, so no server began, and a repair kept them."""
    changed(filled, f"update {table} set queue = cast(queue as text)")  # noqa: S608 - of this test
    assert "removed queues that make no sense" in [damage.what for damage in verify(filled.path)]

    with closing(filled.opened()) as stores:
        for queue in done(stores.metadata.removed()):
            done(stores.messages.drop(queue))
            done(stores.metadata.forget_removed(queue))
        while stores.file.purger.has_refuse():
            done(stores.file.purger.purge(100))
        filled.log.store = stores.messages
        assert {*filled.log.bodies(1), *filled.log.bodies(2)} == filled.bodies
    with beside(filled.path) as file:
        assert file.execute(f"select * from {table}").fetchall() == []  # noqa: S608 - of this test

    changed(filled, f"update {table} set queue = cast(queue as text)")  # noqa: S608 - the same
    repair(filled.path)
    assert [*verify(filled.path)] == []


def test_no_other_queues_messages_go_with_a_dropped_one_that_makes_no_sense(filled: Filled) -> None:
    """An empty one was the beginning of all keys."""
    changed(filled, "update or replace dropped set queue = x''")

    with closing(filled.opened()) as stores:
        done(stores.file.purger.purge(1000))
        filled.log.store = stores.messages
        assert {*filled.log.bodies(1), *filled.log.bodies(2)} == filled.bodies


@pytest.mark.parametrize("column", ["body", "key", "content_type", "headers", "checksum"])
@pytest.mark.parametrize("newest_first", [False, True])
def test_a_message_of_which_bytes_became_text_is_named_and_stepped_over(
    filled: Filled, column: str, newest_first: bool
) -> None:
    """The page that had it was refused for ever, and could not be stepped over."""
    changed(filled, f"update messages set {column} = cast(x'ff' as text) where seq = 1")  # noqa: S608 - of this test

    with closing(filled.opened()) as stores:
        log = filled.log
        log.store = stores.messages
        with pytest.raises(CorruptMessage, match=filled.ids[0].hex):
            log.read(newest_first=newest_first)
        with pytest.raises(CorruptMessage, match=filled.ids[0].hex):
            log.fetch((1, filled.ids[0]))
        page = log.read(newest_first=newest_first, skip_corrupt=True)
        assert len(page.messages) == 3
        assert page.corrupt == 1
        assert len(log.read(with_bodies=False).messages) == 4
        log.delete((1, filled.ids[0]))
        assert len(log.bodies(newest_first=newest_first)) == 3


@pytest.mark.parametrize("column", ["head", "rest"])
def test_a_pack_of_which_bytes_became_text_is_named_and_stepped_over(filled: Filled, column: str) -> None:
    changed(filled, f"update packs set {column} = cast(x'ff' as text)")  # noqa: S608 - of this test

    with closing(filled.opened()) as stores:
        log = filled.log
        log.store = stores.messages
        with pytest.raises(CorruptMessage):
            log.read(2)
        assert not log.bodies(2, skip_corrupt=True)
        assert len(log.bodies(1)) == 4


def test_a_damaged_answer_refuses_its_key_and_leaves_commits_to_the_loop(filled: Filled) -> None:
    """Each repetition was answered as an error of the server, and took commits from the loop for seconds."""
    changed(filled, "update idempotency set digest = cast(x'ff' as text)")

    with closing(filled.opened()) as stores, turning_loop() as inbox:
        carry_on_loop(stores, inbox)
        with pytest.raises(StorageUnavailable, match="makes no sense"):
            done(stores.messages.append(filled.once))
        assert stores.file.committer.writer.times.is_quick
        stores.use_loop(None)


@pytest.mark.parametrize("table", ["offsets", "lease_groups"])
def test_a_name_that_is_no_text_any_more_refuses_the_list_in_words(filled: Filled, table: str) -> None:
    changed(filled, f"update {table} set name = cast(name as blob)")  # noqa: S608 - of this test

    with closing(filled.opened()) as stores:
        store: Any = stores.offsets if table == "offsets" else stores.leases
        with pytest.raises(StorageUnavailable, match="no text any more"):
            done(store.list_groups(filled.queue.uuid))


@pytest.mark.parametrize("column", ["digest", "principal", "label", "created", "checksum"])
def test_no_key_takes_rights_from_others_whatever_became_of_it(filled: Filled, column: str) -> None:
    changed(filled, "select 1")
    with closing(filled.opened()) as stores:
        done(stores.metadata.add_key(PrincipalKey("app:demo", b"\xfe" * 32, "sound", 2)))
    with beside(filled.path) as file:
        file.execute(f"update app_keys set {column} = cast(x'ff' as text) where label = 'a'")  # noqa: S608 - of this test

    with closing(filled.opened()) as stores:
        assert [key.label for key in done(stores.metadata.keys())] == ["sound"]


def test_a_checksum_that_is_no_number_any_more_ends_no_repair(filled: Filled) -> None:
    changed(filled, "update offsets set checksum = cast(x'ff' as text)")

    (told,) = repair(filled.path).mended

    assert "is taken as it stands" in told
    assert [*verify(filled.path)] == []
