"""Rows of small tables, each with a checksum of its own.

SQLite does not notice a flipped bit in a value. In these tables it would be another principal of a queue, an offset behind
messages that nobody got, or an answer that nobody gave.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import apsw
from google_crc32c import value as crc32c

from queuey.storage.sqlite.transaction import Row

__all__ = ["CHECKED_TABLES", "CheckedTable", "StoredRow", "names_in", "with_checksum", "without_checksum"]

_LETTERS: Final = {str: "t", bytes: "b", int: "i", float: "r", type(None): "n"}
"""How what SQLite's ``typeof`` says of a value begins."""


def with_checksum(values: Row) -> Row:
    """A row as it is stored: its values, and behind them their checksum."""
    return *values, _checksum("".join([_LETTERS[type(value)] for value in values]), values)


def without_checksum(row: Row) -> Row:
    """The values of a stored row.

    :raises ValueError: they do not match their checksum.
    """
    values = row[:-1]
    if with_checksum(values) != row:
        raise ValueError("a row does not match its checksum")
    return values


def _checksum(types: str, values: Row) -> int:
    """The checksum of values: the CRC32C of their types, and of the CRC32C of each text and each bytes.

    :param types: the letters of the values.
    :param values: texts as such, or as their bytes.
    """
    told = [
        crc32c(value) if type(value) is bytes else crc32c(value.encode()) if type(value) is str else value
        for value in values
    ]
    checksum: int = crc32c(f"{types}{told}".encode())
    return checksum


class _Place(NamedTuple):
    """A key as it stands in a file, damaged or not: texts are bytes, since they may be no UTF-8 any more."""

    types: str
    """The letters of its values."""
    values: Row

    @property
    def rank(self) -> list[tuple[int, Any]]:
        """Its place in the order of SQLite."""
        return [("nirtb".index(letter), value) for letter, value in zip(self.types, self.values, strict=True)]

    @property
    def parameters(self) -> str:
        """What takes these values in a statement."""
        return ", ".join("cast(? as text)" if letter == "t" else "?" for letter in self.types)


class StoredRow(NamedTuple):
    """A row as it stands in a file, damaged or not."""

    place: _Place
    types: str
    values: Row
    """Texts are bytes."""
    checksum: Any

    @property
    def is_sound(self) -> bool:
        """Whether it matches its checksum, and its texts are texts."""
        return bool(self.checksum == self.sum) and all(
            _text(value) is not None for letter, value in zip(self.types, self.values, strict=True) if letter == "t"
        )

    @property
    def sum(self) -> int:
        """What its checksum has to be."""
        return _checksum(self.types, self.values)


class CheckedTable(NamedTuple):
    """A table whose rows have checksums."""

    name: str
    key: Sequence[str]
    """The columns in whose order the rows lie."""
    first: _Place
    """A key before all others."""
    columns: Sequence[str]
    """What a checksum covers, in this order."""
    shown: Sequence[str] = ()
    """Those that tell an operator which row it is."""
    is_kept: bool = True
    """Whether a repair takes a damaged row as it stands. It leaves out what can be made anew, and what gives rights."""

    def pages(self, connection: apsw.Connection) -> Iterator[list[StoredRow]]:
        """All rows, some at a time, each page in a read transaction of its own.

        :raises ValueError: the rows are out of order.
        """
        page = self._page(connection, self.first)
        while page:
            yield page
            last = page[-1].place
            page = self._page(connection, last)
            if page and page[-1].place.rank <= last.rank:
                raise ValueError(f"rows of the table {self.name} are out of order")

    def _page(self, connection: apsw.Connection, after: _Place) -> list[StoredRow]:
        key, order = len(self.key), ", ".join(self.key)
        columns = map(_as_it_stands, (*self.key, *self.columns))
        read = ", ".join((_types(self.key), _types(self.columns), *columns, _CHECKSUM))
        where = f"({order}) > ({after.parameters}) order by {order} limit {_ROWS}"
        rows: list[Row] = connection.execute(f"select {read} from {self.name} where {where}", after.values).fetchall()  # noqa: S608 - names of the schema
        return [
            StoredRow(_Place(key_types, tuple(values[:key])), types, tuple(values[key:]), checksum)
            for key_types, types, *values, checksum in rows
        ]

    def mend(self, connection: apsw.Connection, row: StoredRow) -> None:
        """Take a damaged row as it stands, or leave it out."""
        where = f"where ({', '.join(self.key)}) = ({row.place.parameters})"
        if self.is_kept:
            connection.execute(f"update {self.name} set checksum = ? {where}", (row.sum, *row.place.values))  # noqa: S608 - names of the schema
        else:
            connection.execute(f"delete from {self.name} {where}", row.place.values)  # noqa: S608 - the same

    def described(self, row: StoredRow) -> str:
        """Which row it is, for an operator."""
        shown = (value for column, value in zip(self.columns, row.values, strict=True) if column in self.shown)
        return "/".join([self.name, *map(_readable, shown)])


def _types(columns: Sequence[str]) -> str:
    return " || ".join(f"substr(typeof({column}), 1, 1)" for column in columns)


def _as_it_stands(column: str) -> str:
    return f"iif(typeof({column}) = 'text', cast({column} as blob), {column})"


_CHECKSUM = "iif(typeof(checksum) = 'integer', checksum, null)"
"""What matches no row, and can be read, where a checksum is no number any more."""


def names_in(rows: Iterable[Row]) -> list[str]:
    """The names in rows of one column.

    :raises ValueError: one is no text any more.
    """
    names = [name for (name,) in rows]
    if not all(isinstance(name, str) for name in names):
        raise ValueError("a name is no text any more")
    return names


def _text(value: bytes) -> str | None:
    """``None`` if these bytes are no UTF-8."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def _readable(value: Any) -> str:
    if not isinstance(value, bytes):
        return str(value)
    text = _text(value)
    return text if text is not None and text.isprintable() else value.hex()


_ROWS = 256
"""Read at once: less than a millisecond."""
_NUMBERS = _Place("i", (-(2**63),))

CHECKED_TABLES: Final = (
    CheckedTable(
        "queues",
        ("application", "name"),
        _Place("tt", (b"", b"")),
        (
            "application",
            "name",
            "uuid",
            "created",
            "partitions",
            "kind",
            "consistency",
            "principals",
            "leases",
            "retention",
            "attributes",
        ),
        shown=("application", "name"),
    ),
    CheckedTable(
        "app_keys",
        ("digest",),
        _Place("b", (b"",)),
        ("digest", "principal", "label", "created"),
        shown=("principal", "label"),
        is_kept=False,
    ),
    CheckedTable(
        "offsets",
        ("queue", "name", "partition"),
        _Place("bti", (b"", b"", 0)),
        ("queue", "name", "partition", "ticks", "tail", "generation", "set_ticks"),
        shown=("queue", "name", "partition"),
    ),
    CheckedTable(
        "lease_groups",
        ("queue", "name"),
        _Place("bt", (b"", b"")),
        ("queue", "name", "token", "start_ticks", "start_tail", "settings"),
        shown=("queue", "name"),
    ),
    CheckedTable(
        "tasks",
        ("queue", "name"),
        _Place("bt", (b"", b"")),
        ("queue", "name", "is_open", "document"),
        shown=("queue", "name"),
    ),
    CheckedTable(
        "idempotency",
        ("seq",),
        _NUMBERS,
        ("seq", "place", "queue", "key", "digest", "answer", "expires"),
        shown=("queue",),
        is_kept=False,
    ),
    CheckedTable(
        "lease_attempts",
        ("seq",),
        _NUMBERS,
        ("place", "queue", "token", "key", "digest", "answer"),  # "expires" may be bound anew, with the clock of leases
        shown=("queue",),
        is_kept=False,
    ),
    CheckedTable("moment", ("only",), _NUMBERS, ("boot", "elapsed", "last"), is_kept=False),
    CheckedTable("lease_moment", ("only",), _NUMBERS, ("boot", "elapsed", "ticks"), is_kept=False),
)
