"""Copies of packs beside the file of an embedded store: used wherever they stand for their packs, and never anywhere else."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from queuey.clock import ManualClock
from queuey.ids import MAX_ID, ZERO_ID, IdGenerator, MessageId
from queuey.model import Message
from queuey.storage.contract.common import QueueLog, StoreContract, draft
from queuey.storage.sqlite import SqliteOptions, SqliteStores, packs, tidying
from queuey.storage.sqlite import pages as sqlite_pages
from queuey.storage.sqlite import read_cache as sqlite_read_cache
from queuey.storage.sqlite.backup import backup
from queuey.storage.sqlite.health import DiskHealth
from queuey.storage.sqlite.pages import PageBuilder
from queuey.storage.sqlite.rows import key_of
from tests.support.sqlite_beside import beside

Read = list[Message]


@pytest.mark.usefixtures("only_the_test_tidies")
class TestCachedRuns(StoreContract):
    """Packs of 4 messages, cached runs of 16, pages of up to 20."""

    @pytest.fixture(autouse=True)
    def _small(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name, value in (("LEAST", 2), ("MOST", 4)):
            monkeypatch.setattr(packs, name, value)
        monkeypatch.setattr(sqlite_pages, "RUN_MESSAGES", 16)

    @pytest.fixture
    def reopen(self, tmp_path: Path, clock: ManualClock) -> Iterator[Callable[..., SqliteStores]]:
        opened: list[SqliteStores] = []

        def open_again(megabytes: int = 8) -> SqliteStores:
            if opened:
                opened.pop().close()
            opened.append(
                SqliteStores(tmp_path / "queuey.db", clock, IdGenerator(clock), SqliteOptions(read_cache_mb=megabytes))
            )
            return opened[0]

        yield open_again
        opened[0].close()

    @pytest.fixture
    def stores(self, reopen: Callable[..., SqliteStores]) -> SqliteStores:
        return reopen()

    @pytest.fixture
    def ids(self, log: QueueLog) -> list[MessageId]:
        """Of a hundred messages: six cached runs, and four messages that are in packs alone."""
        drafts = [
            draft(
                b"body %d" % number,
                key=f"k{number}" if number % 3 else None,
                content_type=None if number % 2 else "a/b",
            )
            for number in range(100)
        ]
        return [place.id for place in log.append(*drafts).placed]

    @pytest.fixture
    def whole(self, ids: list[MessageId], log: QueueLog, stores: SqliteStores) -> Read:
        """What is to be read, once most of it is in cached runs."""
        found = pages(log)
        assert cached_runs(stores) == []
        pages(log)
        copy(stores)
        assert cached_runs(stores) == [16] * 6
        assert [message.id for message in found] == ids
        return found

    def test_what_is_read_twice_is_copied_and_read_from_the_copy(
        self, whole: Read, log: QueueLog, copies: list[bool]
    ) -> None:
        assert pages(log) == whole
        assert copies == [True] * 6 + [False]
        bare = pages(log, with_bodies=False)
        assert copies == [True] * 6 + [False] + [True] * 6 + [False]
        assert [(message.id, message.expires_ticks) for message in bare] == [
            (message.id, message.expires_ticks) for message in whole
        ]
        assert not any(message.body or message.key or message.content_type for message in bare)

    def test_what_is_read_once_or_a_few_at_a_time_is_not(
        self, ids: list[MessageId], log: QueueLog, stores: SqliteStores
    ) -> None:
        pages(log)
        for _ in range(3):
            pages(log, limit=15)
            log.read(limit=20, newest_first=True)
        copy(stores)

        assert cached_runs(stores) == []

    def test_wherever_a_reader_begins_and_ends_nothing_is_missed(
        self, whole: Read, log: QueueLog, copies: list[bool]
    ) -> None:
        for begin in range(0, 100, 7):
            for end in range(begin, 100, 9):
                after, upto = whole[begin].id, whole[end].id
                assert pages(log, after=after, upto=upto) == whole[begin + 1 : end + 1]
        assert any(copies)

    def test_a_reader_that_begins_elsewhere_meets_them_soon(
        self, whole: Read, log: QueueLog, copies: list[bool]
    ) -> None:
        assert pages(log, after=whole[5].id) == whole[6:]

        assert copies == [False] + [True] * 5 + [False]

    def test_a_deleted_or_changed_message_takes_its_cached_run_along(
        self, whole: Read, log: QueueLog, stores: SqliteStores
    ) -> None:
        log.delete((1, whole[20].id))
        log.put((1, whole[40].id), body=b"changed")

        assert cached_runs(stores) == [16] * 4
        found = pages(log)
        assert [message.id for message in found] == [message.id for message in whole if message != whole[20]]
        assert found[39].body == b"changed"

    def test_a_message_put_between_packs_is_seen(self, whole: Read, log: QueueLog, stores: SqliteStores) -> None:
        between = MessageId(whole[23].ticks, whole[23].tail + 1)
        log.put((1, between), body=b"between")

        assert [message.id for message in pages(log)][24] == between
        copy(stores)
        assert cached_runs(stores) == [16, 8, 8, 16, 16, 16, 16]
        assert [message.id for message in pages(log)][24] == between

    def test_packs_made_between_others_are_seen(self, whole: Read, log: QueueLog, stores: SqliteStores) -> None:
        between = [MessageId(whole[23].ticks, whole[23].tail + number) for number in range(1, 30)]
        for message_id in between:
            log.put((1, message_id), body=b"between")
        expected = [message.id for message in whole]
        expected[24:24] = between

        for _ in range(4):
            assert [message.id for message in pages(log)] == expected
            while stores.messages.tidying.pack_some():
                pass
            copy(stores)
        assert [message.id for message in pages(log)] == expected

    def test_expired_messages_are_not_read_from_a_copy(
        self, log: QueueLog, stores: SqliteStores, clock: ManualClock
    ) -> None:
        log.append(*[draft(b"%d" % number, ttl_seconds=50 if number == 18 else 3600) for number in range(40)])
        whole = pages(log)
        pages(log)
        copy(stores)
        assert cached_runs(stores) == [16, 16]

        clock.advance(60)

        assert pages(log) == [message for message in whole if message.body != b"18"]

    @pytest.mark.parametrize("harm", ["flip", "cut", "empty", "shift"])
    def test_a_copy_that_is_damaged_is_passed_over_and_made_anew(
        self, whole: Read, log: QueueLog, stores: SqliteStores, tmp_path: Path, harm: str, copies: list[bool]
    ) -> None:
        (file,) = (tmp_path / "queuey.db-read-cache").iterdir()
        data = bytearray(file.read_bytes())
        if harm == "flip":
            data[700] ^= 4
        harmed = {"flip": data, "cut": data[:2000], "empty": b"", "shift": data[16:] + data[:16]}
        file.write_bytes(bytes(harmed[harm]))

        assert pages(log) == whole
        assert not all(copies[:6])
        for _ in range(3):
            copy(stores)
            assert pages(log) == whole
        copies.clear()
        pages(log)
        assert copies == [True] * 6 + [False]

    def test_they_are_there_after_a_restart_and_not_in_a_backup(
        self, whole: Read, reopen: Callable[..., SqliteStores], log: QueueLog, tmp_path: Path, copies: list[bool]
    ) -> None:
        backup(tmp_path / "queuey.db", tmp_path / "copy.db")
        with beside(tmp_path / "copy.db") as copied:
            assert copied.execute("select count(*) from cached_runs").fetchall() == [(0,)]
        log.store = reopen().messages

        assert pages(log) == whole
        assert copies == [True] * 6 + [False]

    def test_files_that_are_gone_after_a_restart_are_not_missed(
        self,
        whole: Read,
        stores: SqliteStores,
        reopen: Callable[..., SqliteStores],
        log: QueueLog,
        tmp_path: Path,
        copies: list[bool],
    ) -> None:
        stores.close()
        (tmp_path / "queuey.db-read-cache" / "00000001.runs").unlink()
        stores = reopen()
        log.store = stores.messages

        for _ in range(4):
            assert pages(log) == whole
            copy(stores)
        copies.clear()
        assert pages(log) == whole
        assert copies == [True] * 6 + [False]

    def test_files_that_nobody_reads_make_room(
        self,
        whole: Read,
        log: QueueLog,
        stores: SqliteStores,
        tmp_path: Path,
        clock: ManualClock,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """Those in use stay: a reader of more than there is room for would have all of it copied each time."""
        monkeypatch.setattr(sqlite_read_cache, "FILE_BYTES", 1)
        folder, made = tmp_path / "queuey.db-read-cache", stores.messages.tidying.cache
        log.append(*[draft(b"more %d" % number, 2, ttl_seconds=36000) for number in range(32)])
        pages(log, 2), pages(log, 2)
        copy(stores)
        assert len(list(folder.iterdir())) == 3
        assert made is not None
        monkeypatch.setattr(made, "_most_bytes", made.folder.bytes)

        log.append(*[draft(b"no room", 3, ttl_seconds=36000)] * 32)
        for _ in range(3):
            clock.advance(1000)
            assert len(pages(log, 2)) == len(pages(log, 3)) == 32
            copy(stores)
        assert len(cached_runs(stores)) == 8
        clock.advance(700)
        for _ in range(2):
            copy(stores)

        assert len(list(folder.iterdir())) == 4
        assert len(cached_runs(stores)) == 4
        assert len(pages(log, 2)) == len(pages(log, 3)) == 32

    def test_files_of_which_nothing_is_left_are_removed(
        self, whole: Read, log: QueueLog, stores: SqliteStores, tmp_path: Path, clock: ManualClock
    ) -> None:
        log.delete(*[(1, message.id) for message in whole[::4]])
        assert cached_runs(stores) == []

        clock.advance(61)
        copy(stores)

        assert list((tmp_path / "queuey.db-read-cache").iterdir()) == []

    def test_they_go_first_when_the_disk_is_short(
        self, whole: Read, log: QueueLog, stores: SqliteStores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(DiskHealth, "is_short_of_room", lambda _self: True)
        copy(stores)

        assert cached_runs(stores) == []
        assert list((tmp_path / "queuey.db-read-cache").iterdir()) == []
        for _ in range(3):
            assert pages(log) == whole
            copy(stores)
        assert cached_runs(stores) == []

    def test_none_are_kept_where_the_setting_says_so(
        self, ids: list[MessageId], log: QueueLog, reopen: Callable[..., SqliteStores], tmp_path: Path
    ) -> None:
        stores = reopen(0)
        log.store = stores.messages
        for _ in range(3):
            assert [message.id for message in pages(log)] == ids
            copy(stores)

        assert cached_runs(stores) == []
        assert not (tmp_path / "queuey.db-read-cache").exists()

    def test_what_changes_while_it_is_copied_is_not_kept(
        self, ids: list[MessageId], log: QueueLog, stores: SqliteStores, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        read_run = sqlite_read_cache.read_run

        def changed_meanwhile(*given: Any) -> Any:
            made = read_run(*given)
            log.delete((1, ids[3]))
            log.put((1, ids[20]), body=b"changed")
            return made

        pages(log), pages(log)
        monkeypatch.setattr(tidying, "read_run", changed_meanwhile)
        copy(stores)

        assert sum(cached_runs(stores)) < 96
        found = pages(log)
        assert [message.id for message in found] == [id_ for id_ in ids if id_ != ids[3]]
        assert found[19].body == b"changed"

    def test_readers_miss_nothing_while_cached_runs_come_and_go(
        self, whole: Read, log: QueueLog, stores: SqliteStores
    ) -> None:
        stay = [message.id for number, message in enumerate(whole) if number % 10]
        wrong: list[Any] = []
        over = threading.Event()

        def read_on() -> None:
            while not over.is_set():
                found = [message.id for message in pages(log) if message.id in stay]
                if found != stay:
                    wrong.append(found)

        readers = [threading.Thread(target=read_on) for _ in range(2)]
        for reader in readers:
            reader.start()
        for message in whole[::10]:
            log.delete((1, message.id))
            while stores.messages.tidying.run():
                pass
        over.set()
        for reader in readers:
            reader.join()

        assert wrong == []

    def test_who_passes_over_a_cached_run_reads_its_packs_as_they_were(
        self, whole: Read, log: QueueLog, stores: SqliteStores, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The page is of one state of the database, also where the cached run is the last that the span has."""

        def refused(self: sqlite_read_cache.ReadCache, *given: Any, **named: Any) -> None:
            log.delete((1, whole[3].id))
            log.append(*[draft(b"of another", 2)] * 4)

        monkeypatch.setattr(sqlite_read_cache.ReadCache, "_opened", refused)

        assert list(log.read(upto=whole[15].id, limit=20).messages) == whole[:16]

    @pytest.mark.parametrize("by", ["nothing", "a file"])
    def test_the_folder_may_be_taken_away_at_any_time(
        self, whole: Read, log: QueueLog, stores: SqliteStores, tmp_path: Path, copies: list[bool], by: str
    ) -> None:
        folder = tmp_path / "queuey.db-read-cache"
        assert pages(log) == whole
        shutil.rmtree(folder)
        if by == "a file":
            folder.write_text("in its place")
        log.append(*[draft(b"more", 2)] * 40)

        for _ in range(4):
            assert pages(log) == whole
            assert len(pages(log, 2)) == 40
            copy(stores)

        copies.clear()
        assert len(pages(log, 2)) == 40
        assert any(copies) == (by == "nothing")

    def test_messages_with_many_names_are_copied_as_well(
        self, log: QueueLog, stores: SqliteStores, copies: list[bool], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A name that a pack has once is in a cached run with each of its messages."""
        monkeypatch.setattr(sqlite_read_cache, "MOST_BYTES", 4000)
        for number in range(16):
            log.append(*[draft(b"x" * 100, key=f"{number}" * 100)] * 4)
        for _ in range(2):
            found = pages(log, max_bytes=4000)
        copy(stores)
        copies.clear()

        assert pages(log, max_bytes=4000) == found
        assert any(copies)

    def test_there_is_no_more_where_all_that_is_left_has_expired(
        self, log: QueueLog, stores: SqliteStores, clock: ManualClock
    ) -> None:
        ids = [
            place.id
            for place in log.append(
                *[draft(b"%d" % number, ttl_seconds=5 if number in (16, 17) else 3600) for number in range(40)]
            ).placed
        ]
        pages(log), pages(log)
        copy(stores)
        assert cached_runs(stores) == [16, 16]
        clock.advance(60)

        page = log.read(upto=ids[17], limit=20)

        assert ([message.id for message in page.messages], page.more) == (ids[:16], False)

    def test_what_else_lies_in_the_folder_is_left_alone(
        self, whole: Read, log: QueueLog, reopen: Callable[..., SqliteStores], tmp_path: Path
    ) -> None:
        other = tmp_path / "queuey.db-read-cache" / "copy of 1.runs"
        other.write_text("mine")
        stores = reopen()
        log.store = stores.messages
        assert pages(log) == whole

        stores = reopen(0)
        log.store = stores.messages

        assert pages(log) == whole
        assert cached_runs(stores) == []
        assert [file.name for file in other.parent.iterdir()] == [other.name]

    def test_none_is_made_around_messages_that_have_expired(
        self, log: QueueLog, stores: SqliteStores, clock: ManualClock
    ) -> None:
        """While the run of these was there it was neither found nor forgotten with its packs, and made again in vain."""
        ids = [id_ for number in range(4) for id_ in log.add(b"%d" % number)]
        expiring = [place.id for place in log.append(*[draft(b"gone", ttl_seconds=5)] * 16).placed]
        log.append(*[draft(b"stays")] * 12)
        for _ in range(2):
            pages(log, after=ids[-1], upto=expiring[-1])
        copy(stores)
        assert cached_runs(stores) == [16]
        clock.advance(60)

        for body in (b"0", b"new", b"newer"):
            log.put((1, ids[0]), body=body)
            stores.messages.tidying.loose[key_of(log.queue.partition(1))] = ZERO_ID
            for _ in range(3):
                assert [message.body for message in pages(log)][:4] == [body, b"1", b"2", b"3"]
                copy(stores)

    def test_a_dropped_queue_leaves_none(self, whole: Read, log: QueueLog, stores: SqliteStores) -> None:
        stores.messages.drop(log.queue.uuid).wait()
        while stores.file.purger.has_refuse() and stores.file.purger.purge(2000).wait():
            pass

        assert cached_runs(stores) == []


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of each page since: whether it came from a cached run."""
    found: list[bool] = []
    page = PageBuilder.page

    def noted(self: PageBuilder, *given: object) -> object:
        made = page(self, *given)  # type: ignore[arg-type]
        found.append(self.is_cached)
        return made

    monkeypatch.setattr(PageBuilder, "page", noted)
    return found


def pages(
    log: QueueLog,
    partition: int = 1,
    *,
    after: MessageId = ZERO_ID,
    upto: MessageId = MAX_ID,
    limit: int = 20,
    **how: Any,
) -> Read:
    """All of a span, read as a stream is."""
    found: Read = []
    more = True
    while more:
        page = log.read(
            partition,
            after=after,
            upto=min(upto, MessageId.last_of(log.watermark())),
            limit=limit,
            **how,
        )
        assert len(page.messages) <= limit
        found += page.messages
        more = page.more
        if page.messages:
            after = page.messages[-1].id
    return found


def copy(stores: SqliteStores) -> None:
    """What the upkeep does, until there is nothing more to do."""
    while stores.messages.tidying.run():
        pass


def cached_runs(stores: SqliteStores) -> list[int]:
    """Messages of each, in order."""
    with stores.file.readers.lend() as reader:
        rows = reader.ask("select messages from cached_runs order by partition_key, last_ticks, last_tail", (), list)
    return [messages for (messages,) in rows]
