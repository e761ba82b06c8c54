"""Clients for frameworks whose threads and processes are not ours."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from weakref import WeakSet

from qdo.client import Client
from qdo.client.given import check_seconds
from qdo.client.wire import check_group
from queuey.errors import ConfigurationError, InvalidParameter, LeaseGroupNotFound, QueueNotFound
from queuey.ids import ZERO_ID, MessageId

__all__ = ["ThreadClients", "check_receiving", "is_done", "make_job_queue"]


class ThreadClients:
    """A client for each thread. A process that was forked has clients of its own.

    A client goes when its thread has ended, and the last of the messages that it received: some servers begin a thread for
    each request.
    """

    def __init__(self, make_client: Callable[[], Client]) -> None:
        self._make_client = make_client
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._made = WeakSet[Client]()
        self._own = threading.local()

    def get(self) -> Client:
        """The client of this thread."""
        if self._process != os.getpid():
            self._process, self._made = os.getpid(), WeakSet()
            self._own, self._lock = threading.local(), threading.Lock()
        found: Client | None = getattr(self._own, "client", None)
        if found is None:
            found = self._own.client = self._make_client()
            with self._lock:
                self._made.add(found)
        return found

    def close(self) -> None:
        """End the connections of all threads. Their leases are not extended any more."""
        with self._lock:
            made, self._made, self._own = [*self._made], WeakSet(), threading.local()
        for client in made:
            client.close()


def make_job_queue(client: Client, name: str) -> None:
    """Make a queue whose messages go once they are acknowledged, if there is none of this name."""
    if client.find_queue(name) is None:
        client.create_queue(name, retention="acknowledged")


def check_receiving(group: str, visibility: float | None) -> None:
    """Check the name of a lease group, and the length of its leases; None for the group's own.

    :raises ConfigurationError: no group can have this name, or no lease this length.
    """
    try:
        check_group(group)
        if visibility is not None:
            check_seconds("visibility", visibility, 0)
    except InvalidParameter as error:
        raise ConfigurationError(str(error)) from error


def is_done(client: Client, queue: str, group: str) -> bool:
    """Whether a group has settled all messages of a queue, and none is scheduled."""
    try:
        info = client.queue_info(queue)
        found = client.lease_group(queue, group)
    except QueueNotFound:
        return True
    except LeaseGroupNotFound:
        return not (info.depth or info.scheduled)
    done = {one.number: MessageId.parse(one.done_up_to) if one.done_up_to else ZERO_ID for one in found.partitions}
    is_behind = any(one.newest is not None and one.newest > done[one.number] for one in info.partitions)
    return not (is_behind or info.scheduled or any(one.held for one in found.partitions))
