"""The client of tasks: one for each thread, from the environment."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

from qdo.client import Client
from qdo.client.values import Appended, NewMessage, address
from queuey.errors import QueueNotFound

__all__ = ["append", "append_batch", "default_client", "delete", "make_queue"]

T = TypeVar("T")
_VARIABLES = ("QUEUEY_URL", "QUEUEY_APPLICATION", "QUEUEY_KEY", "QUEUEY_TOKEN")


class _Clients(threading.local):
    """The client of this thread, and the variables and the process that it was made from."""

    client: Client | None = None
    made_from: Sequence[str | None] = ()


_clients = _Clients()


def default_client() -> Client:
    """The client of this thread, from the environment as it is now."""
    named = [*(os.environ.get(name) for name in _VARIABLES), str(os.getpid())]
    if _clients.client is None or _clients.made_from != named:
        if _clients.client is not None:
            _clients.client.close()
        _clients.client, _clients.made_from = Client(), named
    return _clients.client


def make_queue(client: Client, name: str) -> None:
    """Make a queue if there is none of this name."""
    if client.find_queue(name) is None:
        client.create_queue(name)


def append(queue: str, message: NewMessage) -> str:
    """Store a message; the queue is made if there is none.

    :returns: the id of the task.
    """
    client = default_client()
    return _id(queue, _in_queue(client, queue, lambda: client.append(queue, message)))


def append_batch(queue: str, messages: Sequence[NewMessage]) -> list[str]:
    """As :func:`append`; all are stored, or none."""
    client = default_client()
    return [_id(queue, one) for one in _in_queue(client, queue, lambda: client.append_batch(queue, messages))]


def delete(queue: str, place: str) -> None:
    """Remove a message by its place, ``<partition>:<id>``."""
    default_client().delete(queue, place)


def _in_queue(client: Client, queue: str, store: Callable[[], T]) -> T:
    try:
        return store()
    except QueueNotFound:
        make_queue(client, queue)
        return store()


def _id(queue: str, appended: Appended) -> str:
    return f"{queue}/{address(appended)}"
