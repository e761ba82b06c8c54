"""Messages kept together in an embedded store's file, and copies of them: all that is promised of messages, and when it is done."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from queuey.clock import ManualClock
from queuey.errors import (
    CorruptMessage,
)
from queuey.future import Future, start
from queuey.ids import MAX_ID, ZERO_ID, IdGenerator, MessageId
from queuey.model import Appended, AppendRequest, Columns, Consistency, Drafts, Page, ReadRequest, Span
from queuey.storage.contract import MessageStoreContract
from queuey.storage.contract.common import SECOND, QueueLog, StoreContract, done, draft
from queuey.storage.sqlite import SqliteMessages, SqliteStores, packs
from queuey.storage.sqlite import pages as sqlite_pages
from queuey.storage.sqlite.rows import key_of, partition_of
from queuey.storage.sqlite.statements import SQL
from tests.support.sqlite_beside import beside

Reopen = Callable[[], SqliteStores]


class _ColumnMessages(SqliteMessages):
    """What is appended comes by column, as Arrow does, and is made ready before the committer has it."""

    def append(self, request: AppendRequest) -> Future[Appended]:
        return super().append(request._replace(drafts=Drafts.of(request.drafts)) if request.drafts else request)


class _PackingMessages(_ColumnMessages):
    """Packs whatever it can before each look."""

    def read(self, request: ReadRequest, **how: Any) -> Future[Page]:
        self.put_together(key_of(request.partition))
        return super().read(request, **how)

    def put_together(self, partition_key: bytes) -> None:
        self.tidying.loose[partition_key] = ZERO_ID
        while self.tidying.pack_some():
            pass


def stores_of(kind: type[SqliteMessages], folder: Path, clock: ManualClock, ids: IdGenerator) -> SqliteStores:
    """Stores whose messages are of another kind."""
    stores = SqliteStores(folder / "queuey.db", clock, ids)
    stores.messages = kind(stores.file)
    return stores


@pytest.mark.usefixtures("only_the_test_tidies")
class TestPacks(MessageStoreContract):
    """All that is promised of messages, with hardly a message that was never in a pack."""

    histories = 25

    @pytest.fixture
    def stores(
        self, tmp_path: Path, clock: ManualClock, ids: IdGenerator, monkeypatch: pytest.MonkeyPatch
    ) -> Iterator[SqliteStores]:
        for name, value in (("LEAST", 2), ("MOST", 4), ("MOST_BYTES", 100)):
            monkeypatch.setattr(packs, name, value)
        stores = stores_of(_PackingMessages, tmp_path, clock, ids)
        yield stores
        stores.close()


class _CachingMessages(_PackingMessages):
    """Makes cached runs of what it packed, and goes on where a page ended before one, or with it."""

    def read(self, request: ReadRequest, **how: Any) -> Future[Page]:
        return start(self._whole(request, how))

    def put_together(self, partition_key: bytes) -> None:
        super().put_together(partition_key)
        assert self.tidying.cache is not None
        for _ in range(2):
            last = MessageId.last_of(self.watermark(Consistency.STRONG))
            self.tidying.cache.was_read(partition_key, ReadRequest(partition_of(partition_key), Span(), 1000), last)
        while self.tidying.run():
            pass

    async def _whole(self, request: ReadRequest, how: dict[str, Any]) -> Page:
        page = await _PackingMessages.read(self, request, **how)
        while page.more and page.messages and not request.newest_first:
            left = request.limit - len(page.messages)
            room = request.max_bytes - Columns.of(page.messages).size
            if left < 1 or room < 1:
                break
            behind = Span(page.messages[-1].id, request.span.upto)
            rest = await SqliteMessages.read(self, request._replace(span=behind, limit=left, max_bytes=room), **how)
            if Columns.of(rest.messages).size > room:
                break
            page = Page([*page.messages, *rest.messages], rest.more, page.corrupt + rest.corrupt)
        return page


@pytest.mark.usefixtures("only_the_test_tidies")
class TestCachedRuns(MessageStoreContract):
    """All that is promised of messages, with most of them read from cached_runs wherever a page has room for one."""

    histories = 20

    @pytest.fixture
    def stores(
        self, tmp_path: Path, clock: ManualClock, ids: IdGenerator, monkeypatch: pytest.MonkeyPatch
    ) -> Iterator[SqliteStores]:
        for name, value in (("LEAST", 2), ("MOST", 2), ("MOST_BYTES", 100)):
            monkeypatch.setattr(packs, name, value)
        monkeypatch.setattr(sqlite_pages, "RUN_MESSAGES", 4)
        stores = stores_of(_CachingMessages, tmp_path, clock, ids)
        yield stores
        stores.close()


@pytest.mark.usefixtures("only_the_test_tidies")
class TestPacksInTheFile(StoreContract):
    """When messages are kept together, and when one by one."""

    @pytest.fixture(params=[SqliteMessages, _ColumnMessages])
    def stores(
        self, request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock, ids: IdGenerator
    ) -> Iterator[SqliteStores]:
        stores = stores_of(request.param, tmp_path, clock, ids)
        yield stores
        stores.close()

    def kept(self, folder: Path) -> tuple[list[int], int]:
        """The sizes of the packs in order, and how many messages are in none."""
        with beside(folder / "queuey.db") as file:
            sizes: Any = file.execute("select messages from packs order by partition_key, last_ticks").fetchall()
            rows: Any = file.execute("select count(*) from messages").fetchall()
        return [size for (size,) in sizes], rows[0][0]

    def test_a_batch_is_kept_in_packs_by_partition(self, log: QueueLog, tmp_path: Path) -> None:
        drafts = [draft(b"%d" % number, number % 2 + 1) for number in range(600)] + [draft(b"few", 3)] * 3

        appended = log.append(*drafts)

        assert self.kept(tmp_path) == ([250, 50, 250, 50], 3)
        assert [place.partition for place in appended.placed] == [draft.partition for draft in drafts]
        for number in (1, 2, 3):
            here = [
                (place.id, draft.body)
                for place, draft in zip(appended.placed, drafts, strict=True)
                if draft.partition == number
            ]
            assert [(message.id, message.body) for message in log.read(number, limit=1000).messages] == here
            assert log.fetch((number, here[1][0]))[0] == log.read(number, limit=2).messages[1]

    @pytest.mark.parametrize(
        "numbers",
        [[3] * 80, [1, 2] * 40, [2] * 40 + [1] * 40, [1, 2] * 39 + [2, 1], [1, *[2] * 50], [1] * 40 + [2] * 40 + [1]],
        ids=["one", "in turn", "one after the other", "nearly in turn", "one alone", "there and back"],
    )
    def test_each_message_of_a_batch_goes_where_it_is_to_go(self, log: QueueLog, numbers: list[int]) -> None:
        drafts = [draft(b"%d" % at, number, 60 + at % 2) for at, number in enumerate(numbers)]

        placed = log.append(*drafts).placed

        assert [place.partition for place in placed] == numbers
        for number in {*numbers}:
            found = log.read(number, limit=1000).messages
            here = [(place.id, drafts[at]) for at, place in enumerate(placed) if place.partition == number]
            assert [(message.id, message.body) for message in found] == [(id_, draft.body) for id_, draft in here]
            assert [message.expires_ticks - message.ticks for message in found] == [
                draft.ttl_seconds * SECOND for _, draft in here
            ]

    def test_no_statement_of_a_reader_is_planned_twice(self, stores: SqliteStores, log: QueueLog) -> None:
        """Left to itself SQLite plans a statement anew whenever a value bound to it changes."""
        ids = [place.id for place in log.append(*[draft()] * 600).placed] + log.add(b"loose")
        planned: list[Any] = []

        def look(turn: int) -> None:
            for newest_first in (False, True):
                for with_bodies in (False, True):
                    log.read(1, ids[turn], ids[-1 - turn], newest_first=newest_first, with_bodies=with_bodies)
            log.count_span(ids[turn], ids[-1 - turn], limit=300 + turn, step=100)
            log.fetch((1, ids[turn]))
            log.inspect(1)

        def allow(*asked: Any) -> int:
            planned.append(asked)
            return apsw.SQLITE_OK

        with stores.file.readers.lend() as reader:  # the one that is lent first
            reader._connection.authorizer = allow
        look(0)
        assert planned
        planned.clear()
        look(1)
        assert planned == []

    def test_large_messages_are_kept_one_by_one(self, log: QueueLog, tmp_path: Path) -> None:
        log.append(*[draft(b"x" * 5000)] * 40)

        assert self.kept(tmp_path) == ([], 40)

    def test_a_scheduled_message_between_those_of_a_batch_keeps_its_place(
        self, log: QueueLog, clock: ManualClock, tmp_path: Path
    ) -> None:
        due = clock.now_ticks() + 50 + 1
        log.append(draft(b"scheduled", due_ticks=due))
        clock.step(-0.000001)

        ids = [place.id for place in log.append(*[draft(b"batch")] * 100).placed]

        clock.advance(1)
        assert ids[0].ticks < due < ids[-1].ticks
        read = [message.id for message in log.read(limit=1000).messages]
        assert len(read) == 101
        assert read == sorted(read)
        assert self.kept(tmp_path) == ([], 101)

    def test_one_deleted_or_put_message_takes_its_pack_apart_and_no_other(self, log: QueueLog, tmp_path: Path) -> None:
        ids = [place.id for place in log.append(*[draft(b"%d" % number, key="k") for number in range(500)]).placed]

        log.delete((1, ids[3]), (1, ids[200]))
        log.put((1, ids[4]), body=b"put")

        assert self.kept(tmp_path) == ([250], 248)
        left = {message.id: message for message in log.read(limit=1000).messages}
        assert [*left] == [id_ for id_ in ids if id_ not in (ids[3], ids[200])]
        assert (left[ids[4]].body, left[ids[5]].body, left[ids[5]].key) == (b"put", b"5", "k")

    def test_what_many_read_one_by_one_is_packed_for_the_next(
        self, log: QueueLog, stores: SqliteStores, tmp_path: Path
    ) -> None:
        for number in range(900):
            log.append(draft(b"%d" % number, content_type="text/plain" if number % 3 else None), draft(b"", 2))
        before, survey = log.read(limit=10_000), log.count_span(limit=5000, step=100)
        page = log.read(limit=300)
        assert page.more
        assert log.read(limit=300, after=page.messages[-1].id).more

        while stores.messages.tidying.pack_some():
            pass

        assert self.kept(tmp_path) == ([250, 250, 250], 900 + 150)
        assert [*log.read(limit=10_000).messages] == [*before.messages]
        assert log.count_span(limit=5000, step=100) == survey

    @pytest.mark.parametrize(
        ("singles", "batch", "size"), [(1, 250, 10), (20, 250, 10), (0, 60, 1000), (0, 40, 1900), (70, 0, 3000)]
    )
    def test_what_lies_as_well_as_it_can_is_not_tried_again(
        self, tmp_path: Path, clock: ManualClock, singles: int, batch: int, size: int
    ) -> None:
        """A few messages between full packs, packs full by bytes, and messages too large: each reader of many had all read again."""
        stores = SqliteStores(tmp_path / "queuey.db", clock, IdGenerator(clock))
        log = QueueLog(stores.messages, clock)
        for _ in range(8):
            for _ in range(singles):
                log.append(draft(b"x" * size))
            log.append(*[draft(b"x" * size)] * batch)
        more = [False] * 3

        for turn in range(3):
            more[turn] = log.read(limit=300).more and log.read(limit=300, with_bodies=False).more
            last = [*stores.messages.tidying.loose]
            while stores.messages.tidying.pack_some():
                pass
        stores.close()

        assert more == [True] * 3
        assert last == []

    def test_what_expired_between_is_gone_when_the_rest_is_packed(
        self, log: QueueLog, stores: SqliteStores, clock: ManualClock, tmp_path: Path
    ) -> None:
        for number in range(600):
            log.append(draft(b"%d" % number, ttl_seconds=5 if number % 2 else 3600))
        log.append(*[draft(ttl_seconds=5)] * 40)
        log.append(*[draft(b"last")] * 20, *[draft(b"last", ttl_seconds=5)] * 20)
        log.append(*[draft(b"later")] * 600)
        clock.advance(60)
        before = log.read(limit=10_000).messages
        assert len(before) == 300 + 20 + 600
        assert log.read(limit=250).more

        while stores.messages.tidying.pack_some():
            pass

        sizes, _ = self.kept(tmp_path)
        assert sizes[0] == 250
        assert [*log.read(limit=10_000).messages] == [*before]
        assert log.inspect(1)[0].depth == len(before)

    def test_a_count_of_packs_and_rows_is_that_of_their_ids(self, log: QueueLog, clock: ManualClock) -> None:
        for count in (40, 1, 300, 7, 33):
            log.append(*[draft()] * count)
            log.append(*[draft(ttl_seconds=5)] * (count // 10), *[draft()] * count)
        clock.advance(60)
        ids = [message.id for message in log.read(limit=10_000).messages]

        for after, upto in ((ZERO_ID, None), (ids[10], ids[-10]), (ids[41], ids[41]), (ids[100], ids[130])):
            inside = [id_ for id_ in ids if after < id_ <= (upto or MAX_ID)]
            for limit, step in ((10_000, 50), (100, 7), (0, 0), (len(inside), 1)):
                found = log.count_span(after, upto, limit=limit, step=step)
                counted = inside[:limit]
                assert found.newest == (inside[-1] if inside else None)
                assert (found.messages, found.more) == (len(counted), len(inside) > limit)
                assert [*found.split_points] == (counted[step - 1 :: step] if step else [])

    def test_the_room_of_packs_is_given_back(
        self, log: QueueLog, stores: SqliteStores, clock: ManualClock, tmp_path: Path
    ) -> None:
        dropped = QueueLog(stores.messages, clock)
        dropped.append(*[draft()] * 300)
        log.append(*[draft(ttl_seconds=5)] * 300)
        log.append(*[draft(b"kept")] * 100, *[draft(ttl_seconds=5)] * 100)
        done(stores.messages.drop(dropped.queue.uuid))
        clock.advance(60)

        while stores.file.purger.has_refuse():
            done(stores.file.purger.purge(7))

        assert self.kept(tmp_path) == ([200], 0)
        assert log.bodies(limit=1000) == [b"kept"] * 100
        assert log.inspect(1)[0][:2] == (100, 0)

    @pytest.mark.parametrize("piece", ["head", "rest"])
    def test_a_damaged_pack_is_noticed_and_may_be_stepped_over(self, log: QueueLog, tmp_path: Path, piece: str) -> None:
        """G6."""
        ids = [place.id for place in log.append(*[draft(b"body %d" % number) for number in range(100)]).placed]
        log.append(*[draft(b"sound")] * 100)
        with beside(tmp_path / "queuey.db") as file:
            rows: Any = file.execute(f"select {piece} from packs order by seq limit 1").fetchall()  # noqa: S608
            data: bytes = rows[0][0]
            at = data.index(b"body 42") if piece == "rest" else 100
            changed = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
            file.execute(f"update packs set {piece} = ? where seq = 1", (changed,))  # noqa: S608

        bad = ids[42] if piece == "rest" else ids[0]
        for look in (
            lambda: log.read(limit=1000),
            lambda: log.read(limit=1000, newest_first=True),
            lambda: log.fetch((1, bad)),
        ):
            with pytest.raises(CorruptMessage, match=bad.hex):
                look()
        page = log.read(skip_corrupt=True, limit=1000)
        assert page.corrupt == (1 if piece == "rest" else 100)
        assert len(page.messages) == 200 - page.corrupt

    def test_a_change_of_several_messages_is_not_made_in_part(self, log: QueueLog, tmp_path: Path) -> None:
        """G10: the second of them is in a pack whose messages cannot be told from each other."""
        (row,) = log.add(b"row")
        first, second = (log.append(*[draft(b"%d" % number)] * 40).placed[7].id for number in range(2))
        before = [*log.read().messages]
        wanted = [(1, id_) for id_ in (row, first, second)]
        with beside(tmp_path / "queuey.db") as file:
            file.execute("update packs set head_crc = head_crc - 1 where seq = 2")

            for change in (lambda: log.delete(*wanted), lambda: log.put(*wanted, body=b"put")):
                with pytest.raises(CorruptMessage):
                    change()

            file.execute("update packs set head_crc = head_crc + 1 where seq = 2")
        assert [*log.read().messages] == before
        log.delete(*wanted)
        assert len(log.read().messages) == len(before) - 3

    def test_a_count_of_the_beginning_looks_at_no_pack_behind_it(self, log: QueueLog, tmp_path: Path) -> None:
        ids = [log.append(*[draft()] * 40).placed[0].id for _ in range(60)]
        steps = 0

        def step() -> bool:
            nonlocal steps
            steps += 1
            return False

        taken = []
        with beside(tmp_path / "queuey.db") as file:
            file.set_progress_handler(step, 1)
            for end in (ids[2], ids[59]):
                steps = 0
                file.execute(SQL["packs_in"], (log.queue.uuid.bytes + b"\1", *ZERO_ID, *end, 0)).fetchall()
                taken.append(steps)

        assert taken[0] * 3 < taken[1], "it costs what the span has, not what the partition has"

    @pytest.mark.parametrize("newest_first", [False, True])
    @pytest.mark.parametrize("bad", [[0], [99], [42], [42, 43, 60], [0, 1, 98, 99]], ids=str)
    def test_each_damaged_message_of_a_pack_is_counted_on_one_page(
        self, log: QueueLog, tmp_path: Path, *, newest_first: bool, bad: list[int]
    ) -> None:
        log.add(b"before")
        log.append(*[draft(b"body %02d" % number) for number in range(100)])
        log.add(b"after")
        with beside(tmp_path / "queuey.db") as file:
            rows: Any = file.execute("select rest from packs").fetchall()
            data: bytes = rows[0][0]
            for number in bad:
                data = data.replace(b"body %02d" % number, b"bodi %02d" % number)
            file.execute("update packs set rest = ?", (data,))

        for limit in (1, 7, 30, 250):
            after, upto, more, corrupt = ZERO_ID, MAX_ID, True, 0
            while more:
                page = log.read(1, after, upto, limit=limit, newest_first=newest_first, skip_corrupt=True)
                more, corrupt, last = page.more, corrupt + page.corrupt, page.messages[-1].id
                after, upto = (after, last.before()) if newest_first else (last, upto)
            assert corrupt == len(bad)

    def test_readers_see_each_message_once_while_packs_come_and_go(
        self, stores: SqliteStores, clock: ManualClock
    ) -> None:
        log = QueueLog(stores.messages, clock)
        kept = [log.append(draft(b"kept"), *[draft(b"goes")] * 40).placed[0].id for _ in range(20)]
        ids = [message.id for message in log.read(limit=10_000).messages]
        going = [id_ for id_ in ids if id_ not in kept]
        failures: list[object] = []
        ended = threading.Event()

        def look() -> None:
            while not ended.is_set():
                found = [message.id for message in log.read(limit=10_000).messages]
                if found != sorted({*found}) or not {*kept} <= {*found} <= {*ids}:
                    failures.append(found)
                if any(message is None for message in log.fetch(*[(1, id_) for id_ in kept[::5]])):
                    failures.append("fetch")
                if not len(kept) <= log.count_span(limit=10_000).messages <= len(ids):
                    failures.append("survey")

        readers = [threading.Thread(target=look) for _ in range(2)]
        for reader in readers:
            reader.start()
        for at in range(0, len(going), 8):
            log.delete(*[(1, id_) for id_ in going[at : at + 8]])
            log.store.tidying.loose[log.queue.uuid.bytes + b"\1"] = ZERO_ID  # type: ignore[attr-defined]
            while stores.messages.tidying.pack_some():
                pass
        ended.set()
        for reader in readers:
            reader.join()

        assert failures == []
        assert [message.id for message in log.read(limit=10_000).messages] == kept
