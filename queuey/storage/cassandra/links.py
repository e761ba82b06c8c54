"""Connections on which one server of a keyspace asks another to do something.

A call is some bytes, and so is its answer. Every program that can read the keyspace's table of servers may call: each server puts
a key of its own there, new with each start, and both ends prove that they know it. Each frame has a digest by a key of
its connection and direction, so nobody else can add, change or repeat one. Frames are not encrypted.
"""

from __future__ import annotations

import logging
import secrets
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from ipaddress import ip_address
from time import perf_counter
from uuid import UUID, uuid4

from queuey.future import Future, settled_together
from queuey.locks import new_lock
from queuey.storage.cassandra.link_channel import KEY_BYTES, Channel, Contact, Entries, answer_call, call
from queuey.storage.cassandra.socket_loop import SocketLoop

__all__ = ["Link", "LinkLost", "Links", "NotTaken", "towards"]

log = logging.getLogger(__name__)

IDLE_SECONDS = 60.0
"""A link without calls ends after this time."""
MOST_CALLS = 1000
"""Calls of one link at a time."""
MOST_LINKS = 100
"""Connections that a server takes at a time. Where there are more, one that has proved nothing yet makes room."""
_LOOK_SECONDS = 0.5
SILENT_SECONDS = 3.0
"""A server that answers nothing for this time, not even whether it is there, is stopped or out of reach."""
_ARE_YOU_THERE = 0
"""The number of a call that is answered at once. The others have numbers from 1 on."""
_NOT_TAKEN = b""
_GOODBYE = (_ARE_YOU_THERE, b"goodbye")
"""All calls that were taken have their answers, and no other one will be taken."""
_GOODBYE_SECONDS = 1.0


class NotTaken(Exception):
    """The other server has not begun this call, and will not."""


class LinkLost(Exception):
    """The answer did not come: nobody knows whether the call was carried out."""


class _Call:
    """A call that has no answer yet."""

    __slots__ = ("future", "is_sent", "since")

    def __init__(self) -> None:
        self.future: Future[bytes] = Future()
        self.since = perf_counter()
        self.is_sent = False


def _give_up(calls: Sequence[_Call], *, is_goodbye: bool = False) -> None:
    """:param is_goodbye: the other end has said so, and has not taken these."""
    with settled_together():
        for call in calls:
            call.future.set_error(LinkLost() if call.is_sent and not is_goodbye else NotTaken())


class Link:
    """Calls of this server at another one. Thread-safe."""

    def __init__(self, contact: Contact, caller: UUID, patience_seconds: float, home: SocketLoop) -> None:
        """:param patience_seconds: a call that has no answer after this time is lost; the others go on.
        :param home: where the connection lives.
        """
        self.contact, self._caller, self._patience, self._home = contact, caller, patience_seconds, home
        self.has_ended = False
        """No call is taken any more."""
        self._is_goodbye = False
        self._lock = new_lock()
        self._number = 0
        self._calls: dict[int, _Call] = {}
        """By number, the oldest first."""
        self._early: Entries = []
        """Calls that wait for the connection."""
        self._used = self._heard = self._asked = self._looked = perf_counter()
        """When the last call was made, the last frame came, the other end was asked last whether it is there, and this was looked
        after last."""
        self._channel: Channel | None = None
        try:
            threading.Thread(target=self._connect, name="link", daemon=True).start()
        except RuntimeError as error:  # the system gives no further thread
            self._log("cannot be made", error)
            self.end()

    def call(self, payload: bytes) -> Future[bytes]:
        """Ask the other server.

        :returns: its answer, never empty; :class:`NotTaken` or :class:`LinkLost` as an error.
        """
        call = _Call()
        with self._lock:
            if self.has_ended or len(self._calls) >= MOST_CALLS:
                return Future.failed(NotTaken())
            self._number += 1
            number, channel = self._number, self._channel
            self._calls[number] = call
            self._used = call.since
            if channel is None:
                self._early.append((number, payload))
        if channel is not None:
            channel.put(number, payload)
        return call.future

    def end(self) -> None:
        """Take no more calls, and fail those without an answer. May be called again."""
        with self._lock:
            self.has_ended = True
            calls, self._calls, channel = [*self._calls.values()], {}, self._channel
        if channel is not None:
            channel.soon(channel.close)
        _give_up(calls, is_goodbye=self._is_goodbye)

    def _connect(self) -> None:
        try:
            channel = call(self.contact, self._caller)
        except Exception as error:  # noqa: BLE001 - whatever the table of servers says, no call may wait for ever
            self._log("cannot be made", error)
            self.end()
            return
        channel.live(self._home, self)
        with self._lock:
            early, self._early, self._channel = self._early, [], channel
            has_ended = self.has_ended
            for entry in early:
                channel.put(*entry)
        if has_ended:
            channel.soon(channel.close)
        else:
            self._look_later()

    def _log(self, how: str, error: Exception) -> None:
        log.info("the link to the server at %s:%d %s: %s", self.contact.host, self.contact.port, how, error)

    # On the loop

    def sends(self, entries: Entries) -> Entries:
        """Those that may be sent: of a call that was given up meanwhile it was said that it is not begun."""
        with self._lock:
            entries = [entry for entry in entries if entry[0] == _ARE_YOU_THERE or entry[0] in self._calls]
            for number, _ in entries:
                if number != _ARE_YOU_THERE:
                    self._calls[number].is_sent = True
        return entries

    def sent(self, entries: Entries) -> None:
        """Calls have gone out. Their answers say the rest."""

    def got(self, entries: Entries) -> None:
        """Answers have come."""
        self._heard = perf_counter()
        self._is_goodbye = _GOODBYE in entries
        with self._lock:
            found = [(self._calls.pop(number, None), answer) for number, answer in entries]
        with settled_together():
            for call, answer in found:
                if call is None:
                    continue
                if answer == _NOT_TAKEN:
                    call.future.set_error(NotTaken())
                else:
                    call.future.set_result(answer)
        if self._is_goodbye:
            self.end()

    def ended(self, error: Exception) -> None:
        """The connection has ended."""
        if not self.has_ended:
            self._log("is lost", error)
        self.end()

    def _look_later(self) -> None:
        channel = self._channel
        assert channel is not None  # noqa: S101 - it is looked after once there is one
        self._home.later(_LOOK_SECONDS, lambda: channel.soon(self._look))

    def _look(self) -> None:
        """End if nobody calls any more, or nothing comes from the other end."""
        now = perf_counter()
        if now - self._looked > 2 * _LOOK_SECONDS:
            self._heard = now  # this server was blocked itself, and has not read yet what arrived meanwhile
        self._looked = now
        self._give_up(now - self._patience)
        with self._lock:
            oldest = next(iter(self._calls.values()), None)
            self.has_ended = self.has_ended or (oldest is None and now - self._used > IDLE_SECONDS)
        if not self.has_ended and oldest is not None:
            self._look_after(oldest, now)
        if self.has_ended:
            self.end()
        else:
            self._look_later()

    def _give_up(self, moment: float) -> None:
        """Wait no more for the answers of calls that were made before this moment."""
        late: list[_Call] = []
        with self._lock:
            while self._calls:
                number = next(iter(self._calls))
                if self._calls[number].since >= moment:
                    break
                late.append(self._calls.pop(number))
        _give_up(late)

    def _look_after(self, oldest: _Call, now: float) -> None:
        assert self._channel is not None  # noqa: S101 - see above
        silent_since = max(self._heard, oldest.since)
        if now - silent_since > SILENT_SECONDS:
            self._log("has ended", TimeoutError(f"nothing came for {SILENT_SECONDS:g} s"))
            self.has_ended = True
        elif now - max(silent_since, self._asked) > _LOOK_SECONDS:
            self._asked = now
            self._channel.put(_ARE_YOU_THERE, b"")


class _Caller:
    """A server that calls this one."""

    def __init__(self, links: Links, channel: Channel, server: UUID) -> None:
        self._links, self._channel, self._server = links, channel, server
        self._lock = new_lock()
        self._open: set[int] = set()
        """Numbers of calls that were taken, and whose answers are not sent yet."""

    def got(self, entries: Entries) -> None:
        """Calls have come."""
        for number, payload in entries:
            self._take(number, payload)

    def _take(self, number: int, payload: bytes) -> None:
        def answered(answer: Future[bytes]) -> None:
            try:
                found = answer.result()
            except NotTaken:
                found = _NOT_TAKEN
            self._channel.put(number, found)

        if number == _ARE_YOU_THERE:
            self._channel.put(_ARE_YOU_THERE, b"")
        elif self._links.note_taken():
            with self._lock:
                self._open.add(number)
            self._links.take(self._server, payload).add_done_callback(answered)
        else:
            self._channel.put(number, _NOT_TAKEN)

    def sends(self, entries: Entries) -> Entries:
        """All of them."""
        return entries

    def sent(self, entries: Entries) -> None:
        """Answers have gone out."""
        self._note_answered([number for number, _ in entries])

    def say_goodbye(self) -> None:
        """All calls that were taken have their answers: the other end ends the connection once it knows."""
        self._channel.put(*_GOODBYE)

    def _note_answered(self, numbers: Sequence[int]) -> None:
        with self._lock:
            sent = self._open.intersection(numbers)
            self._open -= sent
        self._links.note_answered(len(sent))

    def ended(self, error: Exception) -> None:
        """The connection has ended; nobody waits for the answers that are not sent."""
        log.debug("the link of server %s has ended: %s", self._server, error)
        with self._lock:
            left = [*self._open]
        self._note_answered(left)
        self._links.note_ended(self)


class Links:
    """Takes the calls of other servers, at an address of its own. Thread-safe."""

    def __init__(self, host: str, port: int = 0) -> None:
        """Listen; calls are taken from :meth:`start` on.

        :param port: 0 for any that is free.
        :raises OSError: this machine has no such address, another program has the port, or the address is that of any
            machine, so nobody could find this one by it.
        """
        if port >= 1 << 16:
            raise OSError(f"there is no port {port}")
        self._listener = socket.create_server((host, port), family=_family(host))
        address = self._listener.getsockname()
        if ip_address(address[0]).is_unspecified:
            self._listener.close()
            raise OSError(f"{address[0]} is the address of no machine")
        self.contact = Contact(uuid4(), address[0], address[1], secrets.token_bytes(KEY_BYTES))
        """How others reach this server."""
        self.take: Callable[[UUID, bytes], Future[bytes]] = _take_nothing
        """Carries out a call of a server; its error is :class:`NotTaken` or none."""
        self._changed = threading.Condition(new_lock())
        self._strangers: dict[socket.socket, None] = {}
        """Connections that have not proved yet that they know the key, the oldest first."""
        self._callers: dict[_Caller, socket.socket] = {}
        self._under_way = 0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="links", daemon=True)

    def start(self, take: Callable[[UUID, bytes], Future[bytes]], home: SocketLoop) -> None:
        """Take calls.

        :param take: see :attr:`take`.
        :param home: where the connections live.
        """
        self.take, self._home = take, home
        self._thread.start()

    def stop(self, seconds: float) -> None:
        """Take no more calls, and wait a while for those under way. May be called again.

        If they all end, other servers know that the calls without an answer were not taken.
        """
        with self._changed:
            self._stopped.set()
            if self._changed.wait_for(lambda: not self._under_way, seconds):
                for caller in self._callers:
                    caller.say_goodbye()
                self._changed.wait_for(lambda: not self._callers, _GOODBYE_SECONDS)
            connections = [*self._strangers, *self._callers.values()]
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def note_taken(self) -> bool:
        """A call came; False if it is not to be taken."""
        with self._changed:
            if self._stopped.is_set() or self._under_way >= MOST_CALLS * 2:
                return False
            self._under_way += 1
            return True

    def note_answered(self, number: int) -> None:
        """This number of calls that were taken have their answers."""
        with self._changed:
            self._under_way -= number
            if self._stopped.is_set() and not self._under_way:
                self._changed.notify_all()

    def _listen(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError as error:
                if self._stopped.is_set():
                    return
                log.warning("calls of other servers are not taken for a moment: %s", error)
                self._stopped.wait(_LOOK_SECONDS)
                continue
            with self._changed:
                is_taken = not self._stopped.is_set() and self._makes_room()
                if is_taken:
                    self._strangers[connection] = None
            if not (is_taken and self._greets(connection)):
                connection.close()

    def _greets(self, connection: socket.socket) -> bool:
        """Begin to greet the other end, unless the system gives no thread for it."""
        try:
            threading.Thread(target=self._serve, args=[connection], name="link-calls", daemon=True).start()
        except RuntimeError as error:
            log.warning("calls of another server are not taken: %s", error)
            with self._changed:
                self._strangers.pop(connection, None)
            return False
        return True

    def _makes_room(self) -> bool:
        """For one connection more: whoever knows the key proves it at once, so those that have not yet can go."""
        if len(self._strangers) + len(self._callers) < MOST_LINKS:
            return True
        for stranger in self._strangers:
            del self._strangers[stranger]
            with suppress(OSError):
                stranger.shutdown(socket.SHUT_RDWR)
            return True
        return False

    def _serve(self, connection: socket.socket) -> None:
        """Greet the other end. Then the loop serves it."""
        try:
            channel, server = answer_call(connection, self.contact.key)
        except OSError as error:
            log.debug("a connection was refused: %s", error)
            with self._changed:
                self._strangers.pop(connection, None)
            connection.close()
            return
        caller = _Caller(self, channel, server)
        with self._changed:
            self._strangers.pop(connection, None)
            self._callers[caller] = connection
        channel.live(self._home, caller)

    def note_ended(self, caller: _Caller) -> None:
        """A connection has ended."""
        with self._changed:
            self._callers.pop(caller, None)
            self._changed.notify_all()


def _take_nothing(server: UUID, payload: bytes) -> Future[bytes]:
    return Future.failed(NotTaken())


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def towards(addresses: Sequence[tuple[str, int]]) -> str | None:
    """The address from which this machine reaches the first of these that is on another machine.

    If it reaches none, that from which it reaches one on this machine; None if it reaches none at all.
    """
    here = None
    for host, port in addresses:
        with suppress(OSError):
            family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
            with socket.socket(family, kind) as found:
                found.connect(address)
                own = str(found.getsockname()[0])
            if not ip_address(own).is_loopback:
                return own
            here = here or own
    return here
