"""The outbox as a table of SQLAlchemy.

::

    outbox = SqlOutbox(metadata)          # a table beside yours; create it as you create those

    with Session(engine) as session:
        session.add(order)
        outbox.add(session, "orders", NewMessage.of_json({"order": 7}))
        session.commit()                   # both, or neither

    OutboxRelay(outbox.on(engine), Client()).run()
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from sqlalchemy import (
    BigInteger,
    Column,
    Engine,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    delete,
    insert,
    select,
    update,
)

from qdo.adapters.outbox.rows import OutboxRow, new_row
from qdo.client import NewMessage

__all__ = ["SqlOutbox", "SqlRows"]

TABLE = "queuey_outbox"
_ID = BigInteger().with_variant(Integer, "sqlite")
"""SQLite counts up only integers of this type."""
_LARGE = LargeBinary(1 << 30)


class Executes(Protocol):
    """A session or a connection of SQLAlchemy."""

    def execute(self, statement: Any, /) -> Any: ...


class SqlOutbox:
    """A table of messages that wait to be sent."""

    def __init__(self, metadata: MetaData | None = None, name: str = TABLE) -> None:
        """:param metadata: of your own tables, so that they are created and migrated together; None for one of its own."""
        self.table = Table(
            name,
            MetaData() if metadata is None else metadata,
            Column("id", _ID, primary_key=True, autoincrement=True),
            Column("queue", String(50), nullable=False),
            Column("body", _LARGE, nullable=False),
            Column("content_type", String(255)),
            Column("fields", Text, nullable=False),
            Column("idempotency_key", String(255), nullable=False, unique=True),
            Column("refused", Text),
        )

    def add(self, session: Executes, queue: str, message: NewMessage | bytes | str) -> str:
        """Send a message if the transaction is committed.

        :param session: a session or a connection, within the transaction. With an ``AsyncSession``:
            ``await session.run_sync(outbox.add, "orders", message)``.
        :returns: the idempotency key under which it is stored.
        :raises InvalidParameter: the body is neither text nor bytes.
        """
        row = new_row(queue, message)
        session.execute(insert(self.table).values(row))
        return str(row["idempotency_key"])

    def on(self, engine: Engine) -> SqlRows:
        """The rows in one database, for a relay."""
        return SqlRows(self.table, engine)


class SqlRows:
    """The rows of an outbox, each change in a transaction of its own."""

    def __init__(self, table: Table, engine: Engine) -> None:
        self._table, self._engine = table, engine

    def waiting(self, limit: int, after: int) -> Sequence[OutboxRow]:
        columns, number = [self._table.c[name] for name in OutboxRow._fields], self._table.c.id
        wanted = select(*columns).where(self._table.c.refused.is_(None), number > after).order_by(number).limit(limit)
        with self._engine.connect() as connection:
            return [OutboxRow(*row) for row in connection.execute(wanted)]

    def delete(self, ids: Sequence[int]) -> None:
        with self._engine.begin() as connection:
            connection.execute(delete(self._table).where(self._table.c.id.in_(ids)))

    def refuse(self, row_id: int, reason: str) -> None:
        with self._engine.begin() as connection:
            connection.execute(update(self._table).where(self._table.c.id == row_id).values(refused=reason))
