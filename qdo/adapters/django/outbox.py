"""The outbox as a table of Django.

::

    with transaction.atomic():
        order.save()
        outbox.add("orders", NewMessage.of_json({"order": order.pk}))  # both, or neither
"""

from __future__ import annotations

from collections.abc import Sequence

from django.db import close_old_connections

from qdo.adapters.django.models import OutboxMessage
from qdo.adapters.outbox.rows import OutboxRow, new_row
from qdo.client import NewMessage

__all__ = ["DjangoRows", "aadd", "add"]


def add(queue: str, message: NewMessage | bytes | str, *, using: str | None = None) -> str:
    """Send a message if the transaction is committed.

    :param using: the database; None for the one that Django's routers choose.
    :returns: the idempotency key under which it is stored.
    :raises InvalidParameter: the body is neither text nor bytes.
    """
    return str(OutboxMessage.objects.using(using).create(**new_row(queue, message)).idempotency_key)


async def aadd(queue: str, message: NewMessage | bytes | str, *, using: str | None = None) -> str:
    """As :func:`add`, for views that are ``async def``."""
    made = await OutboxMessage.objects.using(using).acreate(**new_row(queue, message))
    return str(made.idempotency_key)


class DjangoRows:
    """The rows in one database, for a relay."""

    def __init__(self, using: str = "default") -> None:
        self._using = using

    def waiting(self, limit: int, after: int) -> Sequence[OutboxRow]:
        close_old_connections()  # no request of Django ends here, which would do it
        rows = OutboxMessage.objects.using(self._using).filter(refused=None, pk__gt=after).order_by("id")
        return [OutboxRow(*row) for row in rows.values_list(*OutboxRow._fields)[:limit]]

    def delete(self, ids: Sequence[int]) -> None:
        OutboxMessage.objects.using(self._using).filter(pk__in=ids).delete()

    def refuse(self, row_id: int, reason: str) -> None:
        OutboxMessage.objects.using(self._using).filter(pk=row_id).update(refused=reason)
