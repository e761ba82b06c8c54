"""Calls about lease groups: part of each client."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any, Generic, Unpack

from qdo.client.encoding import to_json
from qdo.client.endpoint import Endpoint
from qdo.client.extending import MIN_EXTENSION_SECONDS, HeldLease
from qdo.client.given import check_list, check_text
from qdo.client.lease_groups import LeaseGroup
from qdo.client.lease_values import D, ExtendAll, Lease, Queues, Receive, ReceiveOptions, Release, Settle, Settled
from qdo.client.moments import moment_to_wire, place_to_wire
from qdo.client.steps import ALLOWED, FORBIDDEN, Listing, Repeats, Reply, Steps, call, listing
from qdo.client.values import Appended
from qdo.client.wire import group_path, queue_path
from queuey.errors import InvalidParameter, InvalidReceipt, KeyReused
from queuey.ids import MessageId, unique_bytes

__all__ = ["LeaseCalls", "Popped"]

_MOST_WAIT_SECONDS = 60
"""Of a receive, at every server."""

_MOST_VISIBILITY_SECONDS = 43_200
"""Of a lease, at every server."""

_REPEATS = Repeats(within_seconds=240)
"""A server knows an attempt for five minutes. A later repeat would receive, or pop, other messages."""


def _held_seconds(wanted: Mapping[str, Any]) -> float:
    """How long the server may hold back its answer. A wait that it refuses holds back nothing."""
    wait = wanted.get("receive", {}).get("wait", 0)
    return wait if isinstance(wait, int | float) and 0 <= wait <= _MOST_WAIT_SECONDS else 0.0


class Popped(Generic[D]):
    """Messages that cancelled pops have got. The next pop of the same group gets them."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str], list[D]] = {}

    def keep(self, messages: Sequence[D]) -> None:
        for one in messages:
            self._kept.setdefault((one.queue, one.group), []).append(one)

    def take(self, queue: Queues, group: str, what: Settle) -> tuple[D, ...]:
        """Messages for a request that does nothing but pop."""
        wanted = what.receive
        if wanted is None or not wanted.pop or what != Settle(receive=wanted, receiver=what.receiver):
            return ()
        taken: list[D] = []
        for name in [queue] if isinstance(queue, str) else queue:
            left: list[D] = []
            for one in self._kept.pop((name, group), ()):
                fits = not wanted.partitions or one.partition in wanted.partitions
                (taken if fits and len(taken) < wanted.max_messages else left).append(one)
            if left:
                self._kept[name, group] = left
        return tuple(taken)

    def left(self) -> list[D]:
        """Messages that no pop took."""
        return [one for kept in self._kept.values() for one in kept]


class LeaseCalls(ABC, Generic[D]):
    """Receives messages under leases, and settles the leases."""

    application: str
    _endpoint: Endpoint
    _delivery: type[D]
    _extender: Any
    _popped: Popped[D]

    @abstractmethod
    def _do(self, steps: Steps[Any]) -> Any:
        """Carry out a call: at once, or when its coroutine is awaited."""

    @call
    def receive(
        self,
        queue: Queues,
        group: str,
        max_messages: int = 1,
        *,
        receiver: str | None = None,
        attempt: str | None = None,
        **options: Unpack[ReceiveOptions],
    ) -> Steps[list[D]]:
        """Messages that no other receiver of the group has, each under a lease.

        The first use of a group makes it. The request has an attempt id: if its answer is lost, the client asks again and
        gets the same messages, also after a pop. The leases run from the first request.

        :param queue: one queue. Or up to 100 queues of the application, with groups of this name: a list in the order in
            which they are looked at, or a mapping of names to weights, 1 to 1,000.
        :param max_messages: 1 to 1,000. The server may give fewer, so that the answer stays below about 1 MiB.
        :param receiver, attempt: as in :class:`Settle`.
        :param options: ``wait``: seconds to hold back an answer without messages, 0 to 60. ``visibility``: seconds of the
            leases, 0 to 43,200; by default the group's. ``pop``: acknowledge the messages in the same step. ``partitions``:
            where to look; by default everywhere. ``order``: of several queues, see :class:`Receive`.
        :raises OutcomeUnknown: no request was answered. Messages may be leased; they come again when the leases run out.
            Messages of a pop may be gone, unless the call is repeated with the same ``attempt`` within five minutes.
        :raises KeyReused: the attempt was used for another request. Nothing was done.
        """
        wanted = Settle(receive=Receive(max_messages, **options), receiver=receiver, attempt=attempt)
        done = yield from self._settle(queue, group, wanted)
        return [*done.messages]

    def _received_for_block(
        self, queue: Queues, group: str, receiver: str | None, options: ReceiveOptions
    ) -> Steps[D | None]:
        """One message under a lease.

        :raises InvalidParameter: a pop is asked for.
        """
        if options.get("pop"):
            raise InvalidParameter(problems={"pop": "a message that is popped has no lease: use receive"})
        done = yield from self._settle(queue, group, Settle(receive=Receive(**options), receiver=receiver))
        return next(iter(done.messages), None)

    @call
    def settle(self, queue: Queues, group: str, what: Settle) -> Steps[Settled[D]]:
        """End or extend leases, append, and receive, in one request.

        A repeat after a lost answer does nothing twice.

        :param queue: as for :meth:`receive`; with several, the leases may be of any of them.
        :returns: what was done, and the stale receipts, with which nothing was done.
        :raises StaleReceipt: a lease had ended, and there is something to append. Nothing was settled or appended.
        :raises InvalidReceipt: a receipt is none, or of another queue or group, or stands twice. Nothing was done.
        :raises OutcomeUnknown: no request was answered, so all of this may have been done or none of it.
        """
        if not isinstance(what, Settle):
            raise InvalidParameter(problems={"what": f"{what!r}: expected a Settle"})
        return self._settle(queue, group, what)

    @call
    def withdraw(self, queue: Queues, group: str, attempt: str) -> Steps[bool]:
        """End a receive, or a settle, of another thread or task, by the attempt that it was given.

        If it waits for messages, it waits no more, and raises KeyReused there. If it has got some, it returns them.

        :param queue, group: as in that request.
        :returns: whether the server had not carried it out; then it never will. False: what it settles and appends is done.
        :raises InvalidParameter: the attempt is no text.
        """
        check_text("attempt", attempt)
        try:
            yield from self._step(queue, group, {"attempt": attempt})
        except KeyReused:
            return False
        return True

    def _settle(self, queue: Queues, group: str, what: Settle) -> Steps[Settled[D]]:
        _check_queues(queue)
        wanted = what.to_wire()
        if not what.only_extends:
            wanted["attempt"] = what.attempt or unique_bytes().hex()
        if popped := self._popped.take(queue, group, what):
            return Settled(messages=popped)
        # Whoever names an attempt repeats it, and gets the same messages.
        withdrawn = what.receive is not None and what.attempt is None
        withdraw = partial(self._withdrawn, queue, group, what, wanted) if withdrawn else None
        answer = yield from self._step(queue, group, wanted, withdraw, **_in_time(what))
        return self._settled(queue, group, what, answer)

    def _withdrawn(self, queue: Queues, group: str, what: Settle, wanted: dict[str, Any]) -> Steps[None]:
        """Give back the messages of a receive that nobody waits for any more.

        The messages of a pop cannot be given back: the next pop gets them.
        """
        if (yield from LeaseCalls.withdraw.steps(self, queue, group, wanted["attempt"])):
            return
        try:
            answer = yield from self._step(queue, group, wanted)
        except KeyReused:
            return
        messages = self._settled(queue, group, what, answer).messages
        if what.receive is not None and what.receive.pop:
            self._popped.keep(messages)
        elif messages:
            yield from self._settle(queue, group, Settle(release=[Release(one, count=False) for one in messages]))

    def _settled(self, queue: Queues, group: str, what: Settle, answer: Reply) -> Settled[D]:
        arrived, date, told = time.monotonic(), _date_of(answer), answer.json()
        counted = told.get("settled", {})
        stale = tuple(counted.get("stale", ()))
        what.note(stale)
        return Settled(
            counted.get("acknowledged", 0),
            counted.get("released", 0),
            counted.get("extended", 0),
            counted.get("rejected", 0),
            stale,
            {entry["queue"]: tuple(map(Appended.from_wire, entry["messages"])) for entry in told.get("appended", ())},
            tuple(
                self._delivery.handed_out(entry, self, _held(entry, name, group, date, arrived), name, group)
                for entry, name in ((entry, entry.get("queue", queue)) for entry in told.get("messages", ()))
            ),
            told.get("full", False),
        )

    @listing
    def lease_groups(self, queue: str, *, start: str = "", page_size: int = 1000) -> Listing[str]:
        """The lease groups of a queue by name.

        Each page is requested when the iteration reaches it.

        :param start: the first name; it need not exist.
        """
        path, params = queue_path(self.application, queue), {"limit": page_size, "offset": start}
        return self._endpoint.listed(
            *path, "leases", params=params, read=lambda page: (entry["group"] for entry in page["groups"])
        )

    @call
    def lease_group(self, queue: str, group: str, *, backlog: bool = False) -> Steps[LeaseGroup]:
        """The settings of a group, and what it holds in each partition.

        :param backlog: count also the messages that are visible, hidden and delayed. That costs the more the more there are;
            beyond 10,000 new ones in a partition, the number is that of all messages that the queue has there.
        :raises LeaseGroupNotFound: there is no such group; the first receive makes it.
        :raises ClockUnsafe: with ``backlog``: nobody may read now.
        """
        params = {"backlog": "true"} if backlog else None
        answer = yield from self._endpoint.ask("GET", *self._lease_path(queue, group), params=params)
        return LeaseGroup.from_wire(answer.json())

    @call
    def set_lease_group(self, /, queue: str, group: str, **settings: Any) -> Steps[Mapping[str, Any]]:
        """Make a group, or change the settings that are given and keep the rest.

        :param settings: by their names on the wire, among them: ``visibility``, seconds; ``max_failures``, 0 for no end;
            ``dead_letter_queue``; ``backoff``, a mapping with any of ``first``, ``factor``, ``most``, ``jitter``; ``order``,
            ``none`` or ``key``; ``per_key``; ``k``, a number or ``auto``; ``max_leased``; ``max_held``; ``paused_until``, a moment, 0 to go on;
            ``paused_reason``. For a new group also ``start``: ``beginning``, ``end`` or a moment; and ``exact``.
        :returns: all settings as they are now.
        :raises InvalidParameter: a setting is unknown or outside its range. Nothing changed.
        :raises Conflict: the queue would be its own dead-letter queue, or dead letters would come back by others. Nothing changed.
        """
        wanted = {name: value for name, value in settings.items() if value is not None}
        if isinstance(wanted.get("start"), datetime | MessageId | str):
            wanted["start"] = place_to_wire(wanted["start"], "start")
        if isinstance(wanted.get("paused_until"), datetime | str):
            wanted["paused_until"] = float(moment_to_wire(wanted["paused_until"], "paused_until", ago=False))
        path = self._lease_path(queue, group)
        repeats = Repeats(allowed="start" not in wanted)  # the second of two finds a group that has begun
        answer = yield from self._endpoint.ask("PUT", *path, data=to_json(wanted), headers=_JSON, repeats=repeats)
        settings_now: Mapping[str, Any] = answer.json()["settings"]
        return settings_now

    @call
    def reset_lease_group(
        self, queue: str, group: str, to: datetime | MessageId | str, *, preview: bool = False
    ) -> Steps[Mapping[str, Any]]:
        """Let a group begin anew at another place, with its settings. Its leases and receipts end.

        A lost answer is not repeated: a repeat would end leases that were made in between.

        :param to: ``beginning``, ``end``, the moment of the first message to hand out, or the id of a message, behind
            which the group goes on.
        :param preview: change nothing.
        :returns: ``to``, the id behind which the group goes on, and ``before``, what each partition held.
        :raises LeaseGroupNotFound: there is no such group.
        """
        data = to_json({"to": place_to_wire(to, "to"), "preview": preview})
        path = (*self._lease_path(queue, group), "reset")
        repeats = ALLOWED if preview else FORBIDDEN  # a repeat would end the leases that were made in between
        answer = yield from self._endpoint.ask("POST", *path, data=data, headers=_JSON, repeats=repeats)
        found: Mapping[str, Any] = answer.json()
        return found

    @call
    def forget_lease_group(self, queue: str, group: str) -> Steps[None]:
        """Forget a group with its leases and settings, whether or not it exists.

        Its receipts are invalid from now on. A later group of the same name begins anew. A lost answer is not repeated: a
        repeat would forget that one.
        """
        yield from self._endpoint.ask("DELETE", *self._lease_path(queue, group), repeats=FORBIDDEN)

    @listing
    def leases(self, queue: str, group: str, *, page_size: int = 1000) -> Listing[Lease]:
        """The messages that a group holds: leased, or waiting to be handed out again.

        They come by partition, in the order of their ids. Each page is requested when the iteration reaches it.

        :raises LeaseGroupNotFound: there is no such group.
        """
        params = {"leased": "true", "limit": page_size}
        return self._endpoint.listed(
            *self._lease_path(queue, group), params=params, read=lambda page: map(Lease.from_wire, page["leases"])
        )

    def _lease_path(self, queue: str, group: str) -> tuple[str, ...]:
        return group_path(self.application, queue, "leases", group)

    def _step(
        self,
        queue: Queues,
        group: str,
        wanted: dict[str, Any],
        withdraw: Callable[[], Steps[None]] | None = None,
        **how: Any,
    ) -> Steps[Reply]:
        params: dict[str, Any] = {}
        _check_queues(queue)
        if isinstance(queue, str):
            path = self._lease_path(queue, group)
        else:
            path, params = ("v1", self.application), {"receive": group}
            wanted["queues"] = dict(queue) if isinstance(queue, Mapping) else [*queue]
        return self._endpoint.ask(
            "POST",
            *path,
            params=params,
            data=to_json(wanted),
            headers=_JSON,
            held_seconds=_held_seconds(wanted),
            withdraw=withdraw,
            **{"repeats": _REPEATS, **how},
        )

    def _extended(self, leases: Sequence[HeldLease]) -> Steps[Collection[str]]:
        """Extend leases of one group, and return the receipts of those that had ended.

        Those of a group that was forgotten or reset are refused, and others with them: they are found by halves. An attempt
        ends in time for another one before the shortest of these leases runs out.
        """
        patience = max(min(lease.seconds for lease in leases) / 3, MIN_EXTENSION_SECONDS)
        repeats = Repeats(within_seconds=2 * patience, longest_pause_seconds=patience)
        wanted = {"extend": [{"receipt": lease.receipt, "visibility": lease.seconds} for lease in leases]}
        try:
            answer = yield from self._step(
                leases[0].queue, leases[0].group, wanted, repeats=repeats, patience_seconds=patience
            )
        except InvalidReceipt:
            if len(leases) == 1:
                return frozenset([leases[0].receipt])
            half = len(leases) // 2
            first = yield from self._extended(leases[:half])
            return frozenset(first).union((yield from self._extended(leases[half:])))
        return frozenset(answer.json()["settled"]["stale"])


_JSON = {"Content-Type": "application/json"}


def _in_time(what: Settle) -> dict[str, float]:
    """An attempt to extend all leases of a receiver ends in time for another one before they run out.

    Where it ends the leases, or is refused, there is nothing to be in time for.
    """
    if not isinstance(what.extend, ExtendAll) or not isinstance(what.extend.seconds, int | float):
        return {}
    if not 0 < what.extend.seconds <= _MOST_VISIBILITY_SECONDS:
        return {}
    return {"patience_seconds": max(what.extend.seconds / 3, MIN_EXTENSION_SECONDS)}


def _check_queues(queue: Queues) -> None:
    """:raises InvalidParameter: this is neither one queue nor several."""
    if not isinstance(queue, str | Mapping):
        check_list("queue", queue, "a name, a list of names, or weights by name")


def _date_of(answer: Reply) -> float | None:
    """Seconds since 1970 by the server's clock."""
    date = answer.headers.get("Date")
    return parsedate_to_datetime(date).timestamp() if date else None


def _held(entry: Mapping[str, Any], queue: str, group: str, date: float | None, arrived: float) -> HeldLease | None:
    """What is to be known of a lease to extend it; None after a pop.

    :param date: of the answer.
    :param arrived: when the answer came, on the monotonic clock.
    """
    if "receipt" not in entry:
        return None
    # How long the lease lasts is known by the server's clock alone. The answer's date is up to a second too early, so a third
    # of what seems to be left is in time for any lease of more than half a second.
    left = 0.0 if date is None else float(entry["visible_at"]) - date
    return HeldLease(queue, group, entry["receipt"], left, arrived + max(left, 0.0) / 3)
