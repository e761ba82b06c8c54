"""A purge gives back space some at a time, however large it is and however many queues it was of."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from queuey.clock import ManualClock
from queuey.errors import QueueNotFound
from queuey.ids import IdGenerator
from queuey.model import IdempotencyKey
from queuey.storage.contract.common import QueueLog, done, draft
from queuey.storage.sqlite import SqliteStores, purging
from queuey.storage.sqlite.readers import Reader
from tests.support.sqlite_beside import beside

pytestmark = pytest.mark.usefixtures("only_the_test_tidies")

QUEUES = 40


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def stores(tmp_path: Path, clock: ManualClock) -> Iterator[SqliteStores]:
    stores = SqliteStores(tmp_path / "queuey.db", clock, IdGenerator(clock))
    yield stores
    stores.close()


@pytest.fixture
def log(stores: SqliteStores, clock: ManualClock) -> QueueLog:
    return QueueLog(stores.messages, clock)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Statements that readers ran."""
    found: list[str] = []
    ask = Reader.ask

    def noted(self: Reader, sql: str, *given: Any) -> Any:
        found.append(sql)
        return ask(self, sql, *given)

    monkeypatch.setattr(Reader, "ask", noted)
    return found


def rows(stores: SqliteStores, table: str) -> int:
    with stores.file.readers.lend() as reader:
        ((number,),) = reader.ask(f"select count(*) from {table}", (), list)  # noqa: S608 - of this test
    return int(number)


@pytest.mark.parametrize("is_dropped", [False, True])
def test_large_messages_go_in_several_transactions(
    stores: SqliteStores, log: QueueLog, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, is_dropped: bool
) -> None:
    """All appends wait for each."""
    monkeypatch.setattr(purging, "_MOST_BYTES", 1 << 19)
    for number in range(40):
        log.append(draft(bytes(100_000), ttl_seconds=5), idempotency=IdempotencyKey(str(number), b"", 5))
    if is_dropped:
        done(stores.messages.drop(log.queue.uuid))
    else:
        clock.advance(60)
    left = [rows(stores, "messages")]

    while stores.file.purger.has_refuse():
        done(stores.file.purger.purge(2000))
        left.append(rows(stores, "messages"))
        assert rows(stores, "idempotency") == 0, "what else there is does not wait for them"

    assert left[0] == 40
    assert left[-1] == 0
    assert max(before - after for before, after in pairwise(left)) <= 10


def test_many_dropped_queues_go_together(stores: SqliteStores, clock: ManualClock) -> None:
    for _ in range(QUEUES):
        log = QueueLog(stores.messages, clock)
        log.add(b"gone")
        done(stores.messages.drop(log.queue.uuid))
    purges = 0

    while stores.file.purger.has_refuse():
        done(stores.file.purger.purge(2000))
        purges += 1

    assert rows(stores, "messages") == rows(stores, "dropped") == 0
    assert purges <= QUEUES // purging._QUEUES + 1


def test_dropped_queues_that_wait_for_their_turn_are_not_asked_for(
    stores: SqliteStores, clock: ManualClock, asked: list[str]
) -> None:
    """Each turn asked for each of them, so a hundred thousand stopped all purges."""
    for _ in range(QUEUES):
        done(stores.messages.drop(UUID(bytes=clock.now_ticks().to_bytes(16))))
        clock.advance(1)
    clock.advance(3600)

    asked.clear()
    assert stores.file.purger.has_refuse()

    assert len(asked) == 1


def test_a_dropped_queue_is_forgotten_some_time_after_its_rows(
    stores: SqliteStores, log: QueueLog, clock: ManualClock
) -> None:
    log.add(b"gone")
    done(stores.messages.drop(log.queue.uuid))
    clock.advance(3600)
    while stores.file.purger.has_refuse():
        done(stores.file.purger.purge(2000))

    with pytest.raises(QueueNotFound):
        log.add(b"ghost")
    clock.advance(3600)
    assert not stores.file.purger.has_refuse()

    assert stores.file.dropped == set()


def test_pages_of_any_size_go_in_several_transactions(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They counted as pages of a new file."""
    monkeypatch.setattr(purging, "_MOST_BYTES", 1 << 19)
    path = tmp_path / "old.db"
    SqliteStores(path, clock, IdGenerator(clock)).close()
    with beside(path) as file:
        for change in ("journal_mode = delete", "page_size = 65536"):
            file.execute(f"pragma {change}")
        file.execute("vacuum")
    with closing(SqliteStores(path, clock, IdGenerator(clock))) as stores:
        log = QueueLog(stores.messages, clock)
        for _ in range(40):
            log.append(draft(bytes(100_000), ttl_seconds=5))
        clock.advance(60)

        done(stores.file.purger.purge(2000))

        assert 30 <= rows(stores, "messages") < 40
