"""What a flipped bit in an embedded store does: an error, or the search for damage finds it. Never a message less and nobody told."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest

from queuey.clock import ManualClock
from queuey.errors import ConfigurationError, CorruptMessage, QueueyError, StorageUnavailable, StoreInUse
from queuey.ids import MAX_ID, IdGenerator
from queuey.model import PrincipalKey
from queuey.storage.contract.common import QueueLog, done, draft
from queuey.storage.sqlite import SqliteOptions, SqliteStores, repairing
from queuey.storage.sqlite import scrub as sqlite_scrub
from queuey.storage.sqlite import verify as sqlite_verify
from queuey.storage.sqlite.checked_rows import CheckedTable
from queuey.storage.sqlite.connections import PAGE_BYTES
from queuey.storage.sqlite.repairing import repair
from queuey.storage.sqlite.scrub import Scrub, queue_at
from queuey.storage.sqlite.verify import Damage, verify
from tests.support.node import Node
from tests.support.servers import eventually
from tests.support.sqlite_beside import beside

INDEX_PAGES = (0x02, 0x0A)
"""First bytes of pages of an index: between its leaves, and a leaf."""
TABLE_PAGES = (0x05, 0x0D)
"""The same of a table."""

TOLD = (CorruptMessage, StorageUnavailable, ConfigurationError)
"""What may be said of damage; the last at start."""


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def chance() -> random.Random:
    return random.Random(20)


@contextmanager
def opened(path: Path, clock: ManualClock, *, serve: bool = True, **how: Any) -> Iterator[SqliteStores]:
    stores = SqliteStores(path, clock, IdGenerator(clock), SqliteOptions(**how), serve=serve)
    try:
        yield stores
    finally:
        stores.close()


@pytest.fixture
def sound(tmp_path: Path, clock: ManualClock) -> tuple[bytes, QueueLog]:
    """A file with messages by themselves and in packs, in three partitions."""
    path = tmp_path / "queuey.db"
    with opened(path, clock) as stores:
        log = QueueLog(stores.messages, clock)
        for partition in (1, 2, 3):
            for number in range(120):
                log.append(draft(b"%d" % number, partition))
            log.append(*[draft(b"packed %d" % number, partition) for number in range(300)])
    return path.read_bytes(), log


def searched(path: Path) -> Counter[str]:
    """What the search for damage finds."""
    with beside(path) as connection:
        scrub = Scrub(connection)
        for _ in scrub.steps():
            pass
    return Counter({finding.what: count for finding, count in scrub.found.items()})


def is_verified(path: Path) -> bool:
    """Whether ``queuey verify`` finds nothing."""
    try:
        return not verify(path)
    except ConfigurationError:
        return False


def outcome(path: Path, clock: ManualClock, log: QueueLog, whole: dict[int, list[bytes]]) -> str:
    found, verified = searched(path), is_verified(path)
    try:
        with opened(path, clock, serve=False) as stores:
            log.store = stores.messages
            read = {number: log.bodies(number, upto=MAX_ID) for number in whole}
            pages = {number: log.bodies(number, upto=MAX_ID, limit=10) for number in whole}
    except QueueyError as error:
        return "error" if isinstance(error, TOLD) and not verified else f"not foreseen, or not found: {error!r}"
    if read == whole and pages == {number: bodies[:10] for number, bodies in whole.items()}:
        return "harmless"
    return "found" if found and not verified else "hidden"


def test_a_sound_file_has_nothing_to_find(tmp_path: Path, sound: tuple[bytes, QueueLog]) -> None:
    assert searched(tmp_path / "queuey.db") == {}


@pytest.mark.parametrize("kind", [INDEX_PAGES, TABLE_PAGES], ids=["indexes", "tables"])
def test_a_flipped_bit_hides_nothing_unnoticed(
    tmp_path: Path, clock: ManualClock, sound: tuple[bytes, QueueLog], chance: random.Random, kind: tuple[int, int]
) -> None:
    """G2 of a store: 14 of 60 such flips in indexes hid up to 229 messages each, in answers of 200."""
    content, log = sound
    path = tmp_path / "queuey.db"
    with opened(path, clock, serve=False) as stores:
        log.store = stores.messages
        whole = {number: log.bodies(number) for number in (1, 2, 3)}
    assert [len(bodies) for bodies in whole.values()] == [420] * 3
    pages = [at for at in range(PAGE_BYTES, len(content), PAGE_BYTES) if content[at] in kind]
    told: Counter[str] = Counter()
    for _ in range(60):
        damaged = bytearray(content)
        damaged[chance.choice(pages) + chance.randrange(PAGE_BYTES)] ^= 1 << chance.randrange(8)
        path.write_bytes(damaged)
        told[outcome(path, clock, log, whole)] += 1

    assert told.keys() <= {"harmless", "error", "found"}
    assert told["found"] or told["error"]


ROW = bytes((11, 0, 46, 6, 6, 6, 5, 0, 0, 92, 0))
"""Before the place of a row of ``messages`` with a body of 40 bytes: the header's length, and the types of the columns."""
PLACE, TICKS, SEAL, BODY = 2, 3, 6, 9


def make_text(path: Path, partition_key: bytes, column: int) -> None:
    """Of a column of the oldest row of ``messages``."""
    content = bytearray(path.read_bytes())
    at = content.rindex(ROW + partition_key) + column
    content[at] = {46: 47, 6: 29, 5: 25, 92: 93}[content[at]]
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("column", "not_led_to", "not_matching"), [(PLACE, 2, 0), (TICKS, 2, 1), (SEAL, 1, 1), (BODY, 1, 1)]
)
def test_text_that_is_none_is_found_and_the_search_goes_on_behind_it(
    tmp_path: Path, clock: ManualClock, column: int, not_led_to: int, not_matching: int
) -> None:
    """Fetching it raises, which ended the search and ``queuey verify``, and nobody was told."""
    path = tmp_path / "queuey.db"
    with opened(path, clock) as stores:
        log = QueueLog(stores.messages, clock)
        for _ in range(3):
            log.add(b"\xff" * 40)
    hide(path, 3)
    make_text(path, log.queue.uuid.bytes + b"\1", column)

    assert searched(path)["messages that the index does not lead to"] == not_led_to
    found = {damage.what: damage.found for damage in verify(path) if damage.partition == 1}
    assert found["messages that the index does not lead to"] == not_led_to
    assert found.get("messages that do not match their checksum", 0) == not_matching


def test_a_queue_whose_name_is_damaged_is_named_by_its_id(tmp_path: Path, sound: tuple[bytes, QueueLog]) -> None:
    key = sound[1].queue.uuid
    with beside(tmp_path / "queuey.db") as file:
        damaged_name = (
            "insert into queues "
            "(application, name, uuid, created, partitions, kind, consistency, principals, leases, retention, attributes, checksum) "
            "values ('app', cast(x'ff' as text), ?, 0, 1, '', '', '[]', '{}', '', '', 0)"
        )
        file.execute(damaged_name, (key.bytes,))

        assert queue_at(file, key.bytes + b"\1") == f"queue {key.hex}"


def hide(path: Path, *seqs: int) -> None:
    """Take these messages from the index, and leave them in the table."""
    whole = "create index messages_in_order on messages (partition_key, ticks, tail, expires)"
    with beside(path) as file:
        file.execute("drop index messages_in_order")
        file.execute(f"{whole} where seq not in ({','.join(map(str, seqs))})")
        file.execute("pragma writable_schema = on")
        file.execute("update sqlite_schema set sql = ? where name = 'messages_in_order'", (whole,))


def test_the_search_beside_requests_stops_writing_and_reading_of_what_misses_messages(
    tmp_path: Path, clock: ManualClock, sound: tuple[bytes, QueueLog]
) -> None:
    """It goes on in the other partitions."""
    path, (_, log) = tmp_path / "queuey.db", sound
    hide(path, 7, 8)

    with opened(path, clock, scrub_percent=100) as stores:
        log.store = stores.messages
        # SQLite's own check may be the first to notice; it does not say what is missing.
        eventually(lambda: "2 messages that the index does not lead to" in str(stores.problems()))

        for look in (log.read, log.count_span, lambda: log.fetch((1, log.read(2).messages[0].id))):
            with pytest.raises(StorageUnavailable, match="queuey verify"):
                look()
        assert len(log.bodies(2)) == 420
        with pytest.raises(StorageUnavailable, match="damaged"):
            log.add(b"more")


@pytest.mark.parametrize(
    "change",
    [
        "update packs set messages = 100 where seq = 1",
        "update packs set first_ticks = first_ticks + 1 where seq = 1",
        "update packs set latest = latest + 1 where seq = 1",
        "update messages set ticks = (select first_ticks + 5 from packs where packs.partition_key = messages.partition_key) where seq = 1",
    ],
)
def test_packs_are_compared_with_what_they_hold(tmp_path: Path, sound: tuple[bytes, QueueLog], change: str) -> None:
    path = tmp_path / "queuey.db"
    with beside(path) as file:
        file.execute(change)

    assert searched(path).total() == 1


@pytest.mark.parametrize("table", ["messages", "packs"])
def test_a_damaged_index_of_expiry_deletes_nothing_that_lives(
    tmp_path: Path, clock: ManualClock, sound: tuple[bytes, QueueLog], table: str
) -> None:
    """The row decides."""
    path, (_, log) = tmp_path / "queuey.db", sound
    index, column = {"messages": ("messages_by_expiry", "expires"), "packs": ("packs_by_expiry", "latest")}[table]
    with beside(path) as file:
        file.execute(f"drop index {index}")
        file.execute(f"create index {index} on {table} ({column} - {2**60})")
        file.execute("pragma writable_schema = on")
        file.execute(
            "update sqlite_schema set sql = ? where name = ?", (f"create index {index} on {table} ({column})", index)
        )

    with opened(path, clock) as stores:
        log.store = stores.messages
        done(stores.file.purger.purge(1000))
        assert len(log.bodies()) == 420


def in_queues(path: Path) -> list[Damage]:
    """SQLite's own check finds some of it as well, but not where it lies."""
    return [damage for damage in verify(path) if damage.queue]


def test_a_repair_builds_the_indexes_anew_and_keeps_what_was(
    tmp_path: Path, clock: ManualClock, sound: tuple[bytes, QueueLog]
) -> None:
    path, (_, log) = tmp_path / "queuey.db", sound
    hide(path, 7, 8)

    (found,) = in_queues(path)
    with opened(path, clock), pytest.raises(StoreInUse):
        repair(path)
    kept = repair(path).kept

    assert found[1:] == (1, 2, "messages that the index does not lead to")
    assert found.queue.endswith(log.queue.uuid.hex)
    assert [*verify(path)] == []
    assert in_queues(kept) == [found]
    with opened(path, clock) as stores:
        log.store = stores.messages
        assert len(log.bodies()) == 420


def test_a_repair_of_no_store_makes_none(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="there is no store"):
        repair(tmp_path / "nothing.db")

    assert [*tmp_path.iterdir()] == []


def test_verify_keeps_its_lock_to_the_end(
    tmp_path: Path, clock: ManualClock, sound: tuple[bytes, QueueLog], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a server that stops takes itself for the last, and removes the log that verify still uses."""
    path, log = tmp_path / "queuey.db", sound[1]
    killed = tmp_path / "killed.db"
    with beside(path) as file:
        file.execute("update messages set body = x'00' where seq = 5")
    with opened(path, clock) as stores:
        log.store = stores.messages
        log.add(b"more")
        for end in ("", "-wal", ".lock"):
            shutil.copyfile(f"{path}{end}", f"{killed}{end}")
    held = []

    def spy(connection: apsw.Connection, partition_key: bytes) -> str:
        held.append(f":{killed.stat().st_ino} " in Path("/proc/locks").read_text())
        return queue_at(connection, partition_key)

    monkeypatch.setattr(sqlite_verify, "queue_at", spy)

    assert in_queues(killed)
    assert held == [True]


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ("update messages set body = x'00' where seq = 5", "messages that do not match their checksum"),
        ("update packs set head = zeroblob(10) where seq = 1", "packs whose list of messages is damaged"),
        ("update packs set rest = zeroblob(10) where seq = 1", "packs whose messages cannot be told from each other"),
    ],
)
def test_verify_looks_at_bodies_too(tmp_path: Path, sound: tuple[bytes, QueueLog], change: str, what: str) -> None:
    path = tmp_path / "queuey.db"
    with beside(path) as file:
        file.execute(change)

    assert [found[1:] for found in verify(path)] == [(1, 1, what)]


def pages_of(path: Path, name: str) -> list[int]:
    """The numbers of the pages of a table or an index."""
    with sqlite3.connect(path) as connection:
        return [page for (page,) in connection.execute("select pageno from dbstat where name = ?", (name,))]


def zero_a_page(path: Path, number: int) -> None:
    content = bytearray(path.read_bytes())
    content[(number - 1) * PAGE_BYTES : number * PAGE_BYTES] = bytes(PAGE_BYTES)
    path.write_bytes(content)


INDEXES = (
    "messages_in_order",
    "messages_by_expiry",
    "packs_in_order",
    "packs_by_expiry",
    "packs_expiring",
    "cached_runs",
    "cached_runs_in_order",
    "idempotency_by_place",
    "lease_attempts_by_place",
    "named",
    "tasks_open",
)


@pytest.mark.parametrize("name", INDEXES)
def test_an_index_whose_page_makes_no_sense_is_built_anew(
    tmp_path: Path, clock: ManualClock, sound: tuple[bytes, QueueLog], name: str
) -> None:
    path, (_, log) = tmp_path / "queuey.db", sound
    zero_a_page(path, pages_of(path, name)[0])
    assert not is_verified(path)

    kept = repair(path).kept

    assert is_verified(path)
    assert not is_verified(kept)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["queuey.db", "queuey.db.before-repair", "queuey.db.lock"]
    with opened(path, clock) as stores:
        log.store = stores.messages
        assert [len(log.bodies(number)) for number in (1, 2, 3)] == [420] * 3


def test_a_table_whose_page_makes_no_sense_is_no_index_and_the_store_stays(
    tmp_path: Path, sound: tuple[bytes, QueueLog]
) -> None:
    path = tmp_path / "queuey.db"
    zero_a_page(path, pages_of(path, "messages")[-1])
    before = path.read_bytes()

    with pytest.raises(ConfigurationError, match=r"cannot be repaired .*restore the last backup"):
        repair(path)

    assert path.read_bytes() == before
    assert sorted(one.name for one in tmp_path.iterdir()) == ["queuey.db", "queuey.db.lock"]


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ("update lease_changes set change = x'00' || substr(change, 2)", "changes of lease groups that do not match"),
        ("update lease_groups set settings = '{'", "settings of lease groups that make no sense"),
        ("update tasks set document = '{'", "tasks that make no sense"),
        ("update queues set leases = '{' where name = 'q'", "queues that make no sense"),
        (
            "update queues set uuid = randomblob(16) where name = 'q'",
            "partitions with messages of a queue that nobody knows",
        ),
        ("delete from named", "index of principals without 1 of its entries, and with 0 that are none"),
    ],
)
def test_verify_looks_at_queues_groups_and_tasks_too(tmp_path: Path, change: str, what: str) -> None:
    with Node(tmp_path) as node:
        client = node.client()
        client.create_queue("q", principals=["app:demo"])
        client.append_batch("q", [b"one", b"two"])
        client.receive("q", "workers", 2)
        client.create_queue("purged")
        client.purge("purged")
        node.terminate()
        assert node.ended() == 0
    assert is_verified(node.database)
    with beside(node.database) as file:
        file.execute(change)

    found = [damage.what for damage in verify(node.database)]

    sums = [one for one in found if one.startswith("row that does not match its checksum")]
    (other,) = set(found) - set(sums)
    assert other.startswith(what)
    assert len(sums) == (change.startswith("update") and "lease_changes" not in change)


@pytest.mark.parametrize("column", ["token", "number"])
def test_verify_comes_to_an_end_whatever_the_order_of_rows(
    tmp_path: Path, sound: tuple[bytes, QueueLog], column: str
) -> None:
    """A number that has become text lies behind all numbers, and says 0: the walk began anew there, without end."""
    path = tmp_path / "queuey.db"
    with beside(path) as file:
        file.execute("insert into lease_changes values (5, 1, 1, 0, x'00'), (5, 1, 2, 0, x'00')")
        file.execute(f"update lease_changes set {column} = 'x' where number = 2")  # noqa: S608 - of this test

    assert "changes of lease groups out of order" in [damage.what for damage in verify(path)]


def test_a_repair_of_rows_out_of_order_says_that_it_cannot(
    tmp_path: Path, sound: tuple[bytes, QueueLog], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "queuey.db"

    def pages(table: CheckedTable, _: object) -> object:
        raise ValueError(f"rows of the table {table.name} are out of order")

    monkeypatch.setattr(CheckedTable, "pages", pages)
    with pytest.raises(ConfigurationError, match=r"cannot be repaired .*restore the last backup"):
        repair(path)

    assert path.read_bytes() == sound[0]


def test_what_sqlite_has_checked_with_all_pages_is_not_checked_again(
    tmp_path: Path, sound: tuple[bytes, QueueLog], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def finds_nothing(_: apsw.Connection, name: str) -> list[str]:
        asked.append(name)
        return ["ok"]

    monkeypatch.setattr(sqlite_scrub, "own_check", finds_nothing)

    assert [*verify(tmp_path / "queuey.db")] == []
    assert asked == []
    monkeypatch.setattr(sqlite_verify, "own_check", lambda *_: ["a page is damaged"])
    assert [damage.what for damage in verify(tmp_path / "queuey.db")] == ["damage of pages, such as: a page is damaged"]
    assert "integrity_check(queues)" in asked


def test_verify_lists_damage_of_the_last_page_as_of_any_other(tmp_path: Path, sound: tuple[bytes, QueueLog]) -> None:
    """It asked for the newest row before it began, and said that the file was no store."""
    path = tmp_path / "queuey.db"
    zero_a_page(path, max(pages_of(path, "messages")))

    assert any("pages that cannot be read" in damage.what for damage in verify(path))


def test_a_repair_takes_no_key_that_is_made_meanwhile(
    tmp_path: Path, clock: ManualClock, sound: tuple[bytes, QueueLog], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It went with the former file."""
    path, keep = tmp_path / "queuey.db", repairing._kept
    key = PrincipalKey("app:demo", b"k" * 32, "made meanwhile", 1)

    def makes_a_key(file: Path) -> Path:
        kept = keep(file)
        with opened(path, clock, serve=False) as stores:
            done(stores.metadata.add_key(key))
        return kept

    with monkeypatch.context() as planted:
        planted.setattr(repairing, "_kept", makes_a_key)
        with pytest.raises(ConfigurationError, match="another command has written"):
            repair(path)

    repair(path)
    with opened(path, clock) as stores:
        assert [*done(stores.metadata.keys())] == [key]
    assert sorted(one.name for one in tmp_path.iterdir()) == ["queuey.db", "queuey.db.before-repair", "queuey.db.lock"]
