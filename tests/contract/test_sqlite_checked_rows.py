"""A flipped bit in a row of a small table: the row's reader says so, the search for damage names it, a repair mends it."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

from qdo.client import NewMessage
from queuey.clock import ManualClock
from queuey.errors import ConfigurationError, StorageUnavailable
from queuey.ids import IdGenerator
from queuey.model import PrincipalKey
from queuey.storage.contract.common import done
from queuey.storage.sqlite import SqliteStores
from queuey.storage.sqlite.checked_rows import CHECKED_TABLES, CheckedTable, with_checksum, without_checksum
from queuey.storage.sqlite.repairing import repair
from queuey.storage.sqlite.scrub import Scrub
from queuey.storage.sqlite.verify import verify
from tests.support.node import Node
from tests.support.servers import EndedEarly, eventually
from tests.support.sqlite_beside import beside

TABLES: Mapping[str, CheckedTable] = {table.name: table for table in CHECKED_TABLES}


@pytest.fixture
def ended(tmp_path: Path) -> Node:
    """A server that has ended, with a row in each small table."""
    with Node(tmp_path) as node:
        client = node.client()
        client.create_queue("q", principals=["app:demo"])
        client.append_batch("q", [NewMessage(b"one"), NewMessage(b"two")], idempotency_key="once")
        client.receive("q", "workers", 1, attempt="a")
        client.commit_offsets("q", "readers", {1: client.read("q").messages[0].id})
        client.create_queue("purged")
        client.purge("purged")
        node.terminate()
        assert node.ended() == 0
    return node


def searched(path: Path) -> list[str]:
    with beside(path) as connection:
        scrub = Scrub(connection)
        for _ in scrub.steps():
            pass
    return [finding.what for finding in scrub.found]


def flipped(value: Any, chance: random.Random) -> Any:
    """A value with one bit flipped."""
    if isinstance(value, str):
        return flipped(value.encode(), chance)
    if isinstance(value, bytes):
        at, content = chance.randrange(8 * len(value)), bytearray(value)
        content[at // 8] ^= 1 << at % 8
        return bytes(content)
    return value ^ 1 << chance.randrange(40) if isinstance(value, int) else value + 1.0


def damage(path: Path, table: CheckedTable, column: str, chance: random.Random) -> None:
    """Flip a bit of a column in the last row that has something there."""
    with beside(path) as file:
        file.execute("drop trigger if exists queue_changed")
        file.execute("drop trigger if exists lease_group_reset")
        keys = ", ".join(table.key)
        rows = file.execute(f"select {keys}, {column} from {table.name}").fetchall()  # noqa: S608 - of the schema
        for *key, value in reversed(rows):
            if value not in (None, "", b""):
                kind = "cast(? as text)" if isinstance(value, str) else "?"
                where = " and ".join(f"{name} = ?" for name in table.key)
                changed = (flipped(value, chance), *key)
                file.execute(f"update {table.name} set {column} = {kind} where {where}", changed)  # noqa: S608 - the same
                return
        raise AssertionError(f"no row of {table.name} has a {column}")


EMPTY = {("queues", "leases"), ("queues", "attributes"), ("lease_groups", "start_tail")}
"""Columns that have nothing in these rows."""


@pytest.mark.parametrize("name", TABLES)
def test_the_search_names_each_column_that_changes(ended: Node, name: str, chance: random.Random) -> None:
    table = TABLES[name]
    assert searched(ended.database) == []
    sound = ended.database.read_bytes()
    for column in (*table.columns, "checksum"):
        if (name, column) in EMPTY:
            continue
        damage(ended.database, table, column, chance)

        found = searched(ended.database)

        assert any(f"row that does not match its checksum, {name}" in one for one in found), (column, found)
        ended.database.write_bytes(sound)


@pytest.mark.parametrize("name", TABLES)
def test_a_repair_takes_a_row_as_it_stands_or_leaves_it_out(ended: Node, name: str, chance: random.Random) -> None:
    table = TABLES[name]
    damage(ended.database, table, "checksum", chance)

    (told,) = repair(ended.database).mended

    assert told.startswith(name)
    assert ("is taken as it stands" in told) is table.is_kept
    assert [*verify(ended.database)] == []
    with ended:
        client = ended.client()
        assert [message.body for message in client.read("q").messages] == [b"one", b"two"]
        assert len(client.receive("q", "workers", 2)) == 1


def refusals(node: Node) -> Mapping[str, str]:
    """What the server says of each call that needs a small table."""
    client, said = node.client(), {}
    calls: Mapping[str, Callable[[], object]] = {
        "queues": lambda: client.read("q"),
        "offsets": lambda: client.offsets("q", "readers"),
        "lease_groups": lambda: client.receive("q", "workers", 1),
        "tasks": lambda: [*client.tasks("purged")],
        "idempotency": lambda: client.append_batch(
            "q", [NewMessage(b"one"), NewMessage(b"two")], idempotency_key="once"
        ),
        "lease_attempts": lambda: client.receive("q", "workers", 1, attempt="a"),
    }
    for name, call in calls.items():
        try:
            call()
        except StorageUnavailable as error:
            said[name] = str(error)
    return said


@pytest.mark.parametrize("name", ["queues", "offsets", "lease_groups", "tasks", "idempotency", "lease_attempts"])
def test_a_reader_of_a_damaged_row_gets_an_error_and_readiness_says_so(
    ended: Node, name: str, chance: random.Random
) -> None:
    damage(ended.database, TABLES[name], "checksum", chance)
    with ended:
        said = refusals(ended)

        assert name in said
        eventually(lambda: f"does not match its checksum, {name}" in ended.get("/__heartbeat__").text)


@pytest.mark.parametrize("name", ["moment", "lease_moment"])
def test_a_server_does_not_go_on_from_a_damaged_moment(ended: Node, name: str, chance: random.Random) -> None:
    damage(ended.database, TABLES[name], "checksum", chance)

    with pytest.raises(EndedEarly) as refused:
        ended.start()

    assert "the store's note of its newest moment is damaged" in refused.value.said
    assert "Traceback" not in refused.value.said
    assert "queuey verify --repair" in refused.value.said


def test_a_damaged_key_gives_no_rights_and_takes_none_from_others(tmp_path: Path, chance: random.Random) -> None:
    path, clock = tmp_path / "queuey.db", ManualClock()
    with closing(SqliteStores(path, clock, IdGenerator(clock))) as stores:
        for at, name in enumerate((b"a", b"b")):
            done(stores.metadata.add_key(PrincipalKey("app:demo", name * 32, f"label {at}", at)))
    sound = path.read_bytes()
    for change in ("principal = cast(x'ff' as text)", "label = x'ff'", "digest = 'text'", "created = 0.5"):
        with beside(path) as file:
            file.execute(f"update app_keys set {change} where label = 'label 1'")  # noqa: S608 - of the line above
        assert labels_of_keys(path, clock) == ["label 0"], change
        path.write_bytes(sound)
    for column in TABLES["app_keys"].columns:
        damage(path, TABLES["app_keys"], column, chance)
        assert labels_of_keys(path, clock) == ["label 0"], column
        path.write_bytes(sound)


def labels_of_keys(path: Path, clock: ManualClock) -> list[str]:
    with closing(SqliteStores(path, clock, IdGenerator(clock))) as stores:
        return [key.label for key in done(stores.metadata.keys())]


def test_rows_are_read_with_their_checksum_alone() -> None:
    row = with_checksum(("a", b"a", 1, 1.5, None))

    assert without_checksum(row) == ("a", b"a", 1, 1.5, None)
    for changed in (
        ("a", "a", 1, 1.5, None),
        (b"a", b"a", 1, 1.5, None),
        ("a", b"a", 1.0, 1.5, None),
        ("a", b"a", 1, 1.5, 0),
    ):
        with pytest.raises(ValueError, match="does not match its checksum"):
            without_checksum((*changed, row[-1]))


def test_a_table_out_of_order_ends_the_search(ended: Node) -> None:
    (table,) = [one for one in CHECKED_TABLES if one.name == "queues"]

    class OutOfOrder:
        """What a walk through damaged pages may give: the same rows again and again."""

        def execute(self, _: str, __: object) -> apsw.Cursor:
            return connection.execute(
                "select 'tt', 'ttbiittttttt', cast('a' as blob), cast('q' as blob), "
                "null, null, null, null, null, null, null, null, null, null, null, 0"
            )

    with beside(ended.database) as connection, pytest.raises(ValueError, match="queues are out of order"):
        for _ in table.pages(OutOfOrder()):  # type: ignore[arg-type]
            pass


def test_what_is_no_text_any_more_is_found_and_stays_found(ended: Node) -> None:
    with beside(ended.database) as file:
        file.execute("update queues set kind = cast(x'ff' as text) where name = 'q'")

    (told,) = repair(ended.database).mended

    assert told.startswith("queues/")
    assert any("row that does not match its checksum, queues/" in one for one in searched(ended.database))
    with pytest.raises(ConfigurationError, match="there is no store"):
        repair(ended.database.with_name("none.db"))
