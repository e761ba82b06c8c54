"""What each principal may do: an enum and one table (queuey-api-v1 section 3.3)."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from queuey.model import Queue, QueueKind


class Permission(Enum):
    """What a call needs."""

    NONE = "nothing: anyone may"
    LIST = "list the queues of an application"
    CREATE = "create a queue"
    CONFIGURE = "change, delete or inspect a queue"
    APPEND = "add and overwrite messages"
    VIEW = "read messages"
    DELETE = "delete messages"


def _anyone(principals: frozenset[str], application: str, queue: Queue | None) -> bool:
    return True


def _owner(principals: frozenset[str], application: str, queue: Queue | None) -> bool:
    return f"app:{application}" in principals


def _holder(principals: frozenset[str], application: str, queue: Queue | None) -> bool:
    """Those the queue names; its owner if it names nobody."""
    if queue is None or not queue.principals:
        return _owner(principals, application, queue)
    return not principals.isdisjoint(queue.principals)


def _viewer(principals: frozenset[str], application: str, queue: Queue | None) -> bool:
    public = queue is not None and queue.kind is QueueKind.PUBLIC
    return public or _holder(principals, application, queue)


_RULES: dict[Permission, Callable[[frozenset[str], str, Queue | None], bool]] = {
    Permission.NONE: _anyone,
    Permission.LIST: _owner,
    Permission.CREATE: _owner,
    Permission.CONFIGURE: _owner,
    Permission.APPEND: _owner,
    Permission.VIEW: _viewer,
    Permission.DELETE: _holder,
}


def permits(permission: Permission, principals: frozenset[str], application: str, queue: Queue | None) -> bool:
    """Whether these principals may do this.

    :param queue: None if there is no such queue: then only the owner of the application may learn so (G19).
    """
    return _RULES[permission](principals, application, queue)
