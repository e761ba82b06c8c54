"""Entries of cached runs whose values have changed: no page shows it, none is refused."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from queuey.clock import ManualClock
from queuey.ids import MAX_ID, ZERO_ID, IdGenerator, MessageId
from queuey.model import Message
from queuey.storage.contract.common import QueueLog, draft
from queuey.storage.sqlite import SqliteStores, packs
from queuey.storage.sqlite import pages as sqlite_pages
from tests.support.sqlite_beside import beside

pytestmark = pytest.mark.usefixtures("only_the_test_tidies")

LATER = "{} | 1152921504606846976"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def stores(tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> Iterator[SqliteStores]:
    """Packs of 4 messages, cached runs of 16."""
    for name, value in (("LEAST", 2), ("MOST", 4)):
        monkeypatch.setattr(packs, name, value)
    monkeypatch.setattr(sqlite_pages, "RUN_MESSAGES", 16)
    stores = SqliteStores(tmp_path / "queuey.db", clock, IdGenerator(clock))
    yield stores
    stores.close()


@pytest.fixture
def log(stores: SqliteStores, clock: ManualClock) -> QueueLog:
    """Forty messages, most of them in cached runs; one expires before the others."""
    log = QueueLog(stores.messages, clock)
    log.append(*[draft(b"%d" % number, ttl_seconds=50 if number == 18 else 3600) for number in range(40)])
    bodies(log), bodies(log)
    while stores.messages.tidying.run():
        pass
    return log


def read(log: QueueLog, after: MessageId = ZERO_ID) -> Sequence[Message]:
    """All messages after an id, as a stream has them."""
    found, more = list[Message](), True
    while more:
        page = log.read(after=after, upto=MAX_ID, limit=20)
        found += page.messages
        more, after = page.more, page.messages[-1].id
    return found


def bodies(log: QueueLog, after: MessageId = ZERO_ID) -> Sequence[int]:
    return [int(message.body) for message in read(log, after)]


@pytest.mark.parametrize("value", [LATER, "{} + 1", "-1", "0", "0.5", "x'ff'", "cast(x'ff' as text)"])
def test_an_entry_that_is_damaged_is_passed_over(log: QueueLog, tmp_path: Path, value: str) -> None:
    """One that had no number in it refused the page, and one with a large one asked for more memory than there is."""
    ids = [message.id for message in read(log)]
    path = tmp_path / "queuey.db"
    with beside(path) as file:
        columns = [column for _, column, *_ in file.execute("pragma table_info(cached_runs)")]
        assert file.execute("select messages from cached_runs").fetchall() == [(16,), (16,)]
        file.execute("create table sound as select * from cached_runs")
    for column in columns[1:]:
        with beside(path) as file:
            file.execute(f"update cached_runs set {column} = {value.format(column)}")  # noqa: S608 - of this test

        for begin in (0, 2, 21):
            assert bodies(log, ids[begin]) == [*range(begin + 1, 40)], column

        with beside(path) as file:
            file.execute("insert or replace into cached_runs select * from sound")


def test_an_entry_with_a_later_expiry_shows_nothing_that_has_expired(
    log: QueueLog, clock: ManualClock, tmp_path: Path
) -> None:
    with beside(tmp_path / "queuey.db") as file:
        file.execute(f"update cached_runs set earliest = {LATER.format('earliest')}")  # noqa: S608 - of this test
    clock.advance(60)

    assert bodies(log) == [number for number in range(40) if number != 18]
