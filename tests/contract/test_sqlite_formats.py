"""A store's file through the versions: one from before there were packs is all there, and that version is refused from then on."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from uuid import UUID

import apsw
import pytest

from queuey.clock import ManualClock
from queuey.errors import ConfigurationError, QueueNotFound, StorageReadOnly
from queuey.ids import ZERO_ID, IdGenerator, MessageId
from queuey.model import AppendRequest, Draft, IdempotencyKey, Message, Offset, Queue
from queuey.storage.contract.common import SECOND, Log, client_id, done, draft
from queuey.storage.sqlite import SqliteStore, packs
from tests.support.disk import small_disk
from tests.support.servers import eventually
from tests.support.sqlite_beside import beside

_BEGAN = ManualClock().now_ticks()
_TAIL = -5025199230942195533
QUEUE = Queue("app", "log", UUID(int=1), _BEGAN, 2, principals=("app:other",))
GONE = Queue("app", "gone", UUID(int=2), _BEGAN)
BATCH = [
    Draft(
        number % 2 + 1,
        b"%d\xff" % number,
        1000 if number % 5 else 5,
        "text/plain" if number % 2 else None,
        None if number % 3 else "kü",
    )
    for number in range(12)
]
PUT, DELETED = 3, 4
"""Which of the batch were put anew, after a second, and deleted."""
LATER = _BEGAN + 61 * SECOND

_MOMENT_OF_FORMAT_0 = "insert or replace into moment (only, boot, elapsed, last) values (1, ?1, ?2, ?3)"

Open = Callable[..., Log]


@pytest.fixture
def clock() -> ManualClock:
    clock = ManualClock()
    clock.advance(3)
    return clock


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file that the last version without packs wrote."""
    path = tmp_path / "queuey.db"
    with beside(path) as file:
        file.execute((Path(__file__).parent / "format_0.sql").read_text(encoding="utf-8"))
        file.execute("pragma journal_mode = wal")
    return path


@pytest.fixture
def opened(path: Path, clock: ManualClock) -> Iterator[Open]:
    """The queue, in the file as it is opened now."""
    stores: list[SqliteStore] = []

    def opened(*, serve: bool = True) -> Log:
        for store in stores:
            store.close()
        stores.append(SqliteStore(path, clock, IdGenerator(clock), serve=serve))
        log = Log(stores[-1], clock)
        log.queue = QUEUE
        return log

    yield opened
    for store in stores:
        store.close()


def _id(number: int) -> MessageId:
    """Of one of the batch."""
    return MessageId(_BEGAN + 2 + number, _TAIL)


def _message(number: int) -> Message:
    if number == PUT:
        return Message(*_id(PUT), _BEGAN + 1001 * SECOND + 3, "a/b", None, b"put")
    _, body, ttl_seconds, content_type, key, *_ = BATCH[number]
    return Message(*_id(number), _id(number).ticks + ttl_seconds * SECOND, content_type, key, body)


def _kept(partition: int, *, expired: bool = False) -> list[Message]:
    there = [at for at in range(12) if BATCH[at].partition == partition and at != DELETED]
    return [_message(at) for at in there if at % 5 or not expired]


def test_what_an_earlier_version_stored_is_there(opened: Open, clock: ManualClock) -> None:
    log = opened()

    for partition in (1, 2):
        expected = _kept(partition)
        assert [*log.read(partition).messages] == expected
        assert [*log.read(partition, newest_first=True).messages] == expected[::-1]
        ids = log.read(partition, with_bodies=False, after=expected[1].id).messages
        assert [message.id for message in ids] == [message.id for message in expected[2:]]
    assert [*log.fetch(*[(at % 2 + 1, _id(at)) for at in (0, PUT, DELETED)])] == [_message(0), _message(PUT), None]
    assert log.survey(limit=10, every=2) == (_id(10), 5, False, [_id(2), _id(8)])
    assert log.inspect(1)[0][:3] == (6, 1, _id(0))
    clock.advance(60)
    assert [*log.read().messages][:-1] == _kept(1, expired=True)
    assert (log.bodies()[-1], log.read().messages[-1].ticks) == (b"later", LATER)


@pytest.mark.parametrize("is_new", [False, True])
def test_its_pages_stay_as_large_as_they_are(path: Path, clock: ManualClock, is_new: bool) -> None:
    """And the log is measured by them, which says when it is to be copied."""
    if is_new:
        path.unlink()
    with closing(SqliteStore(path, clock, IdGenerator(clock))) as store:
        done(store.create_queue(QUEUE))
        done(store.append(AppendRequest(QUEUE, [draft(b"x" * 100_000)])))

        log = path.with_name("queuey.db-wal")
        eventually(
            lambda: store._guard.log_bytes == pytest.approx(log.stat().st_size, rel=0.02)
        )  # the keeper may write
        with beside(path) as file:
            assert file.execute("pragma page_size").fetchall() == [(8192 if is_new else 4096,)]


def test_it_stands_beside_the_messages(opened: Open) -> None:
    store = opened().store
    assert isinstance(store, SqliteStore)

    assert done(store.find_queue("app", "log")) == QUEUE
    assert [*done(store.list_named("app", "app:other"))] == [QUEUE]
    assert [*done(store.removed())] == [GONE.uuid]
    assert [key.label for key in done(store.keys())] == ["label"]
    assert done(store.read_offsets(QUEUE.uuid, "group")) == {1: Offset(_id(2), 7, _BEGAN + SECOND)}
    with pytest.raises(QueueNotFound):
        done(store.append(AppendRequest(GONE, [Draft(1, b"ghost", 10)])))


def test_repeats_of_what_an_earlier_version_stored_are_told_so(opened: Open) -> None:
    """G7."""
    appended = opened().append(*BATCH, once=IdempotencyKey("batch", b"d"))

    assert appended.repeated
    assert [*appended.placed] == [(BATCH[number].partition, _id(number)) for number in range(12)]


@pytest.mark.usefixtures("only_the_test_tidies")
def test_an_earlier_version_s_messages_are_packed_as_others_are(
    opened: Open, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("LEAST", 2), ("MOST", 4)):
        monkeypatch.setattr(packs, name, value)
    log = opened()
    store = log.store
    assert isinstance(store, SqliteStore)
    placed = log.append(*[draft(b"new %d" % number) for number in range(6)]).placed
    log.put((1, client_id(_BEGAN)), body=b"before all")
    before = [*log.read().messages]

    store._loose[QUEUE.uuid.bytes + b"\1"] = ZERO_ID
    while store.seal_some():
        pass

    with beside(path) as file:
        sizes = file.execute("select messages from packs order by last_ticks").fetchall()
    assert sizes == [(4,), (2,), (4,), (2,)]
    assert [*log.read().messages] == before
    assert [message.id for message in before[-6:]] == [place.id for place in placed]
    log = opened()
    assert [*log.read().messages] == before
    log.delete((1, _id(6)), (1, placed[0].id))
    assert [message.id for message in log.read().messages] == [
        message.id for message in before if message.id not in (_id(6), placed[0].id)
    ]


def test_a_version_that_knows_no_packs_is_refused_once_there_may_be_some(opened: Open, path: Path) -> None:
    """It asks for no format: it would serve a part of what was acknowledged, and store among the rest (G1, G3)."""
    opened()

    with beside(path) as older, pytest.raises(apsw.ConstraintError, match="a later version of queuey wrote it"):
        older.execute(_MOMENT_OF_FORMAT_0, ("boot", 1.0, 1))


def test_a_command_leaves_the_file_to_the_server_that_has_it(opened: Open, path: Path) -> None:
    """``queuey key new`` of a new version, while the server is still the old one."""
    opened(serve=False)

    with beside(path) as older:
        older.execute(_MOMENT_OF_FORMAT_0, ("boot", 1.0, 1))


def test_it_is_read_where_nothing_can_be_written(path: Path, clock: ManualClock, tmp_path: Path) -> None:
    """G18, though the file cannot become one of this version."""
    with small_disk(tmp_path, 4) as disk:
        moved = disk.path / path.name
        shutil.copy(path, moved)
        moved.with_name(moved.name + ".lock").touch()
        disk.remount("ro")
        store = SqliteStore(moved, clock, IdGenerator(clock))
        log = Log(store, clock)
        log.queue = QUEUE

        assert [*log.read().messages] == _kept(1)
        assert log.fetch((1, _id(0)), (1, _id(DELETED))) == [_message(0), None]
        assert log.survey(limit=10).messages == 5
        assert log.inspect(1)[0].depth == 6
        with pytest.raises(StorageReadOnly):
            log.add(b"more")
        store.close()


def test_a_newer_version_s_file_is_refused_where_nothing_can_be_written(
    path: Path, clock: ManualClock, tmp_path: Path
) -> None:
    with beside(path) as newer:
        newer.execute("pragma user_version = 2")
    with small_disk(tmp_path, 4) as disk:
        moved = disk.path / path.name
        shutil.copy(path, moved)
        moved.with_name(moved.name + ".lock").touch()
        disk.remount("ro")

        with pytest.raises(ConfigurationError, match="format 2, and this version of queuey knows 1"):
            SqliteStore(moved, clock, IdGenerator(clock))
