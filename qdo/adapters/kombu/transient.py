"""Queues of kombu that end with their consumer: replies to remote control, events, broadcasts, results.

Such a queue is no queue of the server, so none is left behind when its process dies. It is a place in the log of each exchange
that it is bound to: what comes behind that place, and has a fitting routing key, is in the queue. A queue without a binding
is in the log of the default exchange, under its own name.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Callable

from qdo.adapters.kombu.bindings import Ask, Binding
from qdo.adapters.kombu.payloads import log_name, payload_of
from qdo.client import Client, FollowedPages, Message
from queuey.errors import CursorLost, QueueNotFound, QueueyError

__all__ = ["Listener", "TransientQueue", "TransientQueues", "transient_queues"]

log = logging.getLogger(__name__)

PAUSE_SECONDS = 1.0
"""Before a request that failed is sent again."""
MOST_BUFFERED = 1000
"""Messages that wait for a consumer."""
MOST_QUEUES = 1000
"""Of one process. Beyond this the one that was declared the longest time ago, and is not consumed, is forgotten."""


Listener = Callable[[Message, bool], bool]
"""Gets a message, and whether it may wait for room. It returns False if it takes no more messages."""


class TransientQueue:
    """One of these queues, for all connections of the process."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._bindings: dict[Binding, str] = {}
        """Each with the cursor at which it began."""
        self._default_cursor = ""
        self._buffer: deque[Message] = deque()
        self._changed = threading.Condition()
        self._listener: Listener | None = None
        self._stop = threading.Event()
        self._followed: dict[str, FollowedPages | None] = {}
        """What is read of the log of each exchange; None while nothing is."""

    def begin(self, ask: Ask) -> None:
        """Begin now, as a queue without a binding."""
        self._default_cursor = ask(lambda client: _end_of(client, log_name("")))

    def bind(self, binding: Binding, ask: Ask) -> None:
        """Begin now with the log of an exchange."""
        if binding not in self._bindings:
            cursor = ask(lambda client: _end_of(client, log_name(binding.exchange)))
            with self._changed:
                self._bindings[binding] = cursor

    def unbind(self, fits: Callable[[Binding], bool]) -> None:
        """Get nothing any more of what these bindings lead here."""
        with self._changed:
            self._bindings = {binding: cursor for binding, cursor in self._bindings.items() if not fits(binding)}

    @property
    def is_consumed(self) -> bool:
        return self._listener is not None

    def follow(self, make_client: Callable[[], Client]) -> None:
        """Read, if nothing reads yet."""
        with self._changed:
            logs: dict[str, str] = {}
            for binding, cursor in self._bindings.items():
                logs.setdefault(binding.exchange, cursor)
            logs = logs or {"": self._default_cursor}
            for exchange in logs.keys() - self._followed:
                self._followed[exchange] = None
                given = (make_client, exchange, logs[exchange])
                threading.Thread(target=self._run, args=given, name=f"follow-{exchange}", daemon=True).start()

    def listen(self, listener: Listener) -> None:
        """Give messages to this from now on, in place of any other; first those that are here."""
        with self._changed:
            self._listener = listener
            while self._buffer and listener(self._buffer[0], False):
                self._buffer.popleft()
            self._changed.notify_all()

    def is_heard_by(self, listener: Listener | None) -> bool:
        return listener is not None and self._listener is listener

    def take(self) -> Message | None:
        with self._changed:
            found = self._buffer.popleft() if self._buffer else None
            self._changed.notify_all()
            return found

    def put_back(self, message: Message) -> None:
        with self._changed:
            self._buffer.appendleft(message)

    def end(self) -> None:
        """Read no more. No request of this queue waits at the server from now on."""
        self._stop.set()
        with self._changed:
            self._listener = None
            self._buffer.clear()
            self._changed.notify_all()
            followed = [*self._followed.values()]
        for pages in followed:
            if pages is not None:
                pages.close()

    def _leading_here(self, exchange: str) -> list[Binding]:
        """The bindings to an exchange as they are now; in the log of the default one, the queue's own name."""
        if not exchange:
            return [Binding("", "direct", self.name, self.name)]
        with self._changed:
            return [binding for binding in self._bindings if binding.exchange == exchange]

    def _run(self, make_client: Callable[[], Client], exchange: str, cursor: str) -> None:
        name = log_name(exchange)
        with make_client() as client:
            while not self._stop.is_set():
                try:
                    for page in self._begin_to_follow(client, exchange, cursor):
                        cursor, bindings = page.cursor, self._leading_here(exchange)
                        for message in page.messages:
                            key = payload_of(message, "")["properties"]["delivery_info"].get("routing_key", "")
                            if any(binding.takes(key) for binding in bindings):
                                self._give(message)
                except (QueueNotFound, CursorLost):
                    cursor = "" if self._stop.is_set() else self._again(client, name)
                except QueueyError as error:
                    log.warning("queue %s: still following %s: %s", self.name, name, error)
                    self._stop.wait(PAUSE_SECONDS)
                except Exception:  # if this thread ended, the queue would get nothing any more
                    log.exception("queue %s: still following %s behind a message that cannot be read", self.name, name)
                    self._stop.wait(PAUSE_SECONDS)

    def _begin_to_follow(self, client: Client, exchange: str, cursor: str) -> FollowedPages:
        pages = client.follow(log_name(exchange), cursor=cursor or None)
        with self._changed:
            self._followed[exchange] = pages
            if self._stop.is_set():
                pages.close()
        return pages

    def _again(self, client: Client, name: str) -> str:
        """The log was deleted: make it, and read it from its beginning."""
        try:
            client.create_queue(name)
        except QueueyError as error:
            log.warning("queue %s: the log %s cannot be made: %s", self.name, name, error)
            self._stop.wait(PAUSE_SECONDS)
        return ""

    def _give(self, message: Message) -> None:
        """Give a message to the listener, or keep it for one."""
        while not self._stop.is_set():
            with self._changed:
                listener = self._listener
                if listener is None and len(self._buffer) < MOST_BUFFERED:
                    self._buffer.append(message)
                    return
                if listener is None:
                    self._changed.wait()
                    continue
            if listener(message, True):
                return
            with self._changed:
                if self._listener is listener:
                    self._listener = None


class TransientQueues:
    """The transient queues of this process: one connection may declare what another one consumes."""

    def __init__(self) -> None:
        self._queues: dict[tuple[str, str, str], TransientQueue] = {}
        self._lock = threading.RLock()

    def declare(self, key: tuple[str, str, str], ask: Ask) -> TransientQueue:
        """:param key: the server, the application, and the name."""
        with self._lock:
            found = self._queues.get(key)
            if found is None:
                found = TransientQueue(key[-1])
                found.begin(ask)
                self._queues[key] = found
                self._bound(key)
            return found

    def _bound(self, newest: tuple[str, str, str]) -> None:
        if len(self._queues) > MOST_QUEUES:
            unused = (key for key, queue in self._queues.items() if not queue.is_consumed and key != newest)
            if (oldest := next(unused, None)) is not None:
                self._queues.pop(oldest).end()

    def get(self, key: tuple[str, str, str]) -> TransientQueue | None:
        return self._queues.get(key)

    def delete(self, key: tuple[str, str, str]) -> None:
        with self._lock:
            found = self._queues.pop(key, None)
        if found is not None:
            found.end()

    def forget_all(self) -> None:
        """A process that was forked has none of the threads."""
        self._queues = {}
        self._lock = threading.RLock()


transient_queues = TransientQueues()
os.register_at_fork(after_in_child=transient_queues.forget_all)


def _end_of(client: Client, name: str) -> str:
    """A cursor behind what a log has now."""
    try:
        return client.survey(name).cursor
    except QueueNotFound:
        client.create_queue(name)
        return client.survey(name).cursor
