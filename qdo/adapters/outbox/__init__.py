"""An outbox: messages that are written in a transaction of a database, and sent once it is committed.

A program adds messages to a table, in the transaction of what they tell about. So they are sent if that is committed, and only
then. A *relay* appends them to their queues and deletes the rows. Each row has an idempotency key: if a relay dies between the two,
the next one appends the message again, and it is stored once.

:mod:`qdo.adapters.outbox.sqlalchemy` is the table for SQLAlchemy, :mod:`qdo.adapters.django` the one for Django.
"""

from __future__ import annotations

from qdo.adapters.outbox.relay import OutboxRelay
from qdo.adapters.outbox.rows import OutboxRow, OutboxTable, new_row

__all__ = ["OutboxRelay", "OutboxRow", "OutboxTable", "new_row"]
