"""The homes of lease groups: where several servers use one group at once, one of them carries out the steps of all.

Each step is a compare-and-set on the whole group. Servers that make steps of one group at once have to take turns, and
each has to learn what the others changed. So they choose one of them, the group's home, and hand their steps over to it.
There the steps share transactions, as those of one server do. A server that wins all its transactions never sees that
others want some as well, so the home tells it.

This is a hint and no right. Exactness stays with the compare-and-set: a server whose group's home cannot be reached, or
that knows other servers than the home does, carries its steps out itself. Each data centre has a home of its own, and weak
groups have none.
"""

from __future__ import annotations

import logging
import secrets
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from hashlib import blake2b
from math import inf
from time import perf_counter
from typing import TypeVar
from uuid import UUID

from queuey._version import __version__
from queuey.errors import OutcomeUnknown, QueueyError, StorageUnavailable
from queuey.future import Future, start
from queuey.ids import TICKS_PER_SECOND
from queuey.locks import new_lock
from queuey.model import Consistency
from queuey.model.lease_steps import LeaseOutcome, LeaseStep
from queuey.storage.cassandra.lease_ahead import AHEAD_SECONDS
from queuey.storage.cassandra.lease_heads import GroupPlace
from queuey.storage.cassandra.lease_wire import (
    HandedOver,
    Meeting,
    decode_answer,
    decode_call,
    encode_answer,
    encode_meeting,
    encode_step,
)
from queuey.storage.cassandra.lease_work import awaited
from queuey.storage.cassandra.link_channel import Contact
from queuey.storage.cassandra.links import Link, LinkLost, Links, NotTaken
from queuey.storage.cassandra.server import CassandraServer
from queuey.storage.cassandra.session import is_forked

__all__ = ["AtHomeElsewhere", "LeaseHomes"]

log = logging.getLogger(__name__)

K = TypeVar("K")
V = TypeVar("V")

LISTED_SECONDS = 5.0
"""How long the list of servers is used."""
AWAY_SECONDS = 10.0
"""A server that took no call is not asked again for this time."""
ALONE_SECONDS = 10.0
"""If no other server has used a group for this time, the one that does carries its steps out itself again."""
TELLS_SECONDS = 0.25
"""The home of a group tells another server that they have met once in this time at most."""
PATIENCE_SECONDS = 5.0
"""How long a server may take for a step, beside the time limits of its own."""
_MOST_PLACES = 10_000
"""Groups whose home is remembered, and meetings."""
_NAME_BITS = 32
_HEARD = b"heard"
_LOST = (
    "the server that carries out the steps of this lease group has not answered: the step may be done, and a repeat of its "
    "attempt finds out"
)


class AtHomeElsewhere(Exception):
    """The group has got a home at another server: nothing is done here, hand the step over."""


class LeaseHomes:
    """The homes of the groups that one server uses, and its steps for others. Thread-safe.

    Until it is started, each group is at home on this server.
    """

    def __init__(
        self, server: CassandraServer, carry_out: Callable[[LeaseStep], Future[LeaseOutcome]], links: Links | None
    ) -> None:
        """:param carry_out: carries out a step of one group on this server. A future that has an error at once has done
        nothing.
        :param links: None if other servers cannot reach this one.
        """
        self._server, self._carry_out, self._links = server, carry_out, links
        self._patience = PATIENCE_SECONDS + server.timing.request_seconds
        """Seconds until a step that is handed over is given up."""
        self.name = secrets.randbits(_NAME_BITS) if links is None else _name(links.contact)
        """Of this server in the names of its steps."""
        self._lock = new_lock()
        self._homes: OrderedDict[GroupPlace, Contact] = OrderedDict()
        """Of groups that are at home on another server."""
        self._users: OrderedDict[GroupPlace, dict[UUID, float]] = OrderedDict()
        """Of groups that others use here: when each server did so last, if it did lately, this one included."""
        self._open: dict[UUID, Link] = {}
        self._told: OrderedDict[tuple[GroupPlace, UUID], float] = OrderedDict()
        """When a server was told last that it uses a group whose home is this one."""
        self._away: dict[UUID, float] = {}
        """Servers that are not asked, until when."""
        self._listed: tuple[Contact, ...] = ()
        self._listed_until = 0.0

    def start(self) -> None:
        """Take steps of other servers, and choose homes from now on."""
        if self._links is not None:
            self._links.start(self._take, self._server.session.cluster.loop)

    def stop(self) -> None:
        """Hand nothing over and take nothing any more. May be called again.

        In the child of a fork this does nothing: the connections are the parent's.
        """
        if is_forked(self._server.session):
            return
        if self._links is not None:
            self._links.stop(PATIENCE_SECONDS)
        with self._lock:
            links, self._open = [*self._open.values()], {}
            self._homes.clear()
        for link in links:
            link.end()

    # Of this server's steps

    def meet(self, place: GroupPlace, names: Collection[int]) -> None:
        """Other servers use this exact group at once: choose its home. This may wait for the nodes to say which servers there
        are.

        :param names: of those servers, in the names of their steps.
        """
        awaited(start(self._meet(place, names)))

    async def _meet(self, place: GroupPlace, names: Collection[int]) -> None:
        if self._links is None:
            return
        own, now = self._links.contact, self._server.clock.elapsed()
        others = await self._others(now)
        found = max([own, *others], key=lambda contact: _weight(contact, place))
        if found is not own:
            with self._lock:
                _remember(self._homes, place, found)
            return
        for other in others:
            if _name(other) in names and now - self._told.get((place, other.server), -inf) >= TELLS_SECONDS:
                with self._lock:
                    _remember(self._told, (place, other.server), now)
                self._link(other).call(encode_meeting(Meeting(*place)))  # a hint: nobody waits for the answer

    async def _met_by(self, server: UUID, place: GroupPlace) -> bytes:
        """Another server uses a group at once, and takes itself for its home."""
        if all(server != known.server for known in self._listed):
            self._listed_until = 0.0
        await self._meet(place, ())
        return _HEARD

    def home(self, place: GroupPlace) -> Contact | None:
        """The server that is the group's home; None if it is this one."""
        return self._homes.get(place)

    async def hand_over(self, home: Contact, place: GroupPlace, step: LeaseStep) -> LeaseOutcome | None:
        """Let the home carry out a step of one group.

        :returns: None if it has not taken the step, and nothing is done: this server carries it out.
        :raises QueueyError: what the home raised.
        :raises OutcomeUnknown: the answer did not come; a repeat of the attempt finds out.
        """
        link, observer = self._link(home), self._server.observer.leases
        try:
            answer = await link.call(encode_step(step, self._changed(step), self._given_up_at()))
        except (NotTaken, LinkLost) as error:
            self._forget(place)
            if link.has_ended:
                self._has_left(home)
            is_refused = isinstance(error, NotTaken)
            observer.handed_over("refused" if is_refused else "unknown")
            if is_refused:
                return None
            raise OutcomeUnknown(_LOST) from error
        observer.handed_over("done")
        if answer[0]:
            self._forget(place)
        return decode_answer(answer[1:])

    def _changed(self, step: LeaseStep) -> Sequence[int]:
        """What the home is not to hand out as it has read it: a server sees its own deletes at once."""
        (one,) = step.groups
        return self._server.changed.among(one.queue.uuid, one.receive_from, perf_counter() - AHEAD_SECONDS)

    def _given_up_at(self) -> int:
        """The moment in ticks from which on this server waits no more for a step that it hands over now."""
        return self._server.clock.now_ticks() + round(self._patience * TICKS_PER_SECOND)

    def note_own(self, place: GroupPlace) -> None:
        """This server carries out a step of its own."""
        users = self._users.get(place)
        if users is not None and self._links is not None:
            users[self._links.contact.server] = self._server.clock.elapsed()

    def _forget(self, place: GroupPlace) -> None:
        with self._lock:
            self._homes.pop(place, None)

    def _has_left(self, home: Contact) -> None:
        """Ask this server nothing for some time."""
        with self._lock:
            self._away[home.server] = self._server.clock.elapsed() + AWAY_SECONDS
            for place in [place for place, contact in self._homes.items() if contact == home]:
                del self._homes[place]

    async def _others(self, now: float) -> list[Contact]:
        """The servers of this version and data centre that can be asked."""
        if now >= self._listed_until:
            self._listed_until = now + LISTED_SECONDS
            session = self._server.session
            try:
                rows = await session.ask("server_contacts", (), session.to_read(Consistency.WEAK))
            except QueueyError as error:
                log.debug("the servers of this keyspace are not known: %s", error)
            else:
                self._listed = tuple(
                    Contact(server, host, port, key)
                    for server, version, centre, host, port, key in rows
                    if host is not None and version == __version__ and centre == session.options.data_centre
                )
        with self._lock:
            self._away = {server: until for server, until in self._away.items() if until > now}
        own = None if self._links is None else self._links.contact.server
        return [one for one in self._listed if one.server != own and one.server not in self._away]

    def _link(self, home: Contact) -> Link:
        with self._lock:
            link = self._open.get(home.server)
            if link is None or link.has_ended:
                caller = UUID(int=0) if self._links is None else self._links.contact.server
                link = self._open[home.server] = Link(home, caller, self._patience, self._server.session.cluster.loop)
                self._open = {server: one for server, one in self._open.items() if not one.has_ended}
            return link

    # Of other servers' steps

    def _take(self, server: UUID, payload: bytes) -> Future[bytes]:
        """Do what another server asks for, without a wait: the same thread says that this server is there."""
        try:
            asked = decode_call(payload)
        except ValueError as error:
            log.warning("what server %s asks for cannot be read: %s", server, error)
            return Future.failed(NotTaken())
        if isinstance(asked, HandedOver):
            return self._take_step(server, *asked)
        return start(self._met_by(server, (asked.queue, asked.name)))

    def _take_step(self, server: UUID, step: LeaseStep, changed: Sequence[int], until: int) -> Future[bytes]:
        """Carry out a step, unless it comes too late.

        Then this server has stood still. Meanwhile the step may have been repeated elsewhere, and its attempt forgotten.
        """
        if self._server.clock.now_ticks() > until:
            return Future.failed(NotTaken())
        (one,) = step.groups
        if changed:
            self._server.changed.note([one.queue.partition(number) for number in changed])
        outcome = self._carry_out(step)
        if outcome.done and _is_refused(outcome):
            return Future.failed(NotTaken())
        is_alone = self._note_use((one.queue.uuid, one.name), server)
        told: Future[bytes] = Future()

        def carried(outcome: Future[LeaseOutcome]) -> None:
            answer: LeaseOutcome | BaseException
            try:
                answer = outcome.result()
            except AtHomeElsewhere:  # the two servers do not know the same others
                told.set_error(NotTaken())
                return
            except BaseException as error:  # noqa: BLE001 - the other server's caller gets it
                answer = error
            told.set_result(bytes([is_alone]) + encode_answer(answer))

        outcome.add_done_callback(carried)
        return told

    def _note_use(self, place: GroupPlace, server: UUID) -> bool:
        """Another server uses a group here.

        :returns: whether no other one, and not this one either, has done so in the last seconds.
        """
        now = self._server.clock.elapsed()
        users = self._users.get(place)
        if users is None:
            assert self._links is not None  # noqa: S101 - or nobody could call
            users = {self._links.contact.server: now}
            with self._lock:
                _remember(self._users, place, users)
        users[server] = now
        for user, used in [*users.items()]:
            if now - used > ALONE_SECONDS:
                users.pop(user, None)
        return not {*users} - {server}


def _remember(known: OrderedDict[K, V], key: K, value: V) -> None:
    """Keep the last ones."""
    known[key] = value
    while len(known) > _MOST_PLACES:
        known.popitem(last=False)


def _name(contact: Contact) -> int:
    return contact.server.int & (1 << _NAME_BITS) - 1


def _is_refused(outcome: Future[LeaseOutcome]) -> bool:
    """Whether nothing is done here: the store is closed or has too many calls, or the group is at home elsewhere."""
    try:
        outcome.result()
    except (StorageUnavailable, AtHomeElsewhere):
        return True
    except Exception:  # noqa: BLE001 - the other server's caller gets it
        return False
    return False


def _weight(contact: Contact, place: GroupPlace) -> bytes:
    """The server with the greatest one is the home: all servers agree, and one that comes or goes moves few groups."""
    queue, name = place
    return blake2b(contact.server.bytes + queue.bytes + name.encode(), digest_size=16).digest()
