"""Callers, and the one way from a name to a queue: it is found, and the caller may do this with it."""

from __future__ import annotations

import re

from queuey.errors import Forbidden, QueueNotFound
from queuey.http.exchange import Call, Target
from queuey.model import Queue
from queuey.security.permissions import ANONYMOUS, Identity, Permission, permits
from queuey.service import Service

_QUEUE_NAME = re.compile(r"[A-Za-z0-9_.-]{1,50}")
_RECENT = 1000
"""Authorization headers whose identity is at hand, for a second at most."""


async def refresh_keys(service: Service) -> None:
    """Look anew at the application keys in force, and at what they prove."""
    removed = await service.keys.refresh()
    service.recent.clear()  # after it: meanwhile calls were identified by the keys of before
    if removed:
        service.trust.forget()  # tokens end with the application key that they were got with


def identify(service: Service, header: str) -> Identity:
    """The caller, by an Authorization header; what application keys proved is remembered until the keys are looked at anew.

    :raises Unauthenticated, Throttled: as of :class:`~queuey.security.identity.Identifier`.
    """
    identity = service.recent.get(header)
    if identity is None:
        identity = service.identifier.identify(header)
        # A caller that proves nothing is not remembered: anybody can send another such header each time.
        if identity.principals and identity.is_lasting and len(service.recent) < _RECENT:
            service.recent[header] = identity
    return identity


def seems_to_be(service: Service, call: Call) -> Identity:
    """What is known now of a call's caller, checked or not: this decides whose share pays, and permits nothing."""
    if call.identity is not ANONYMOUS:
        return call.identity
    header = call.headers.get("authorization", "")
    return service.recent.get(header) or service.identifier.recall(header)


def target_at_hand(service: Service, call: Call, identity: Identity, permission: Permission) -> Target | None:
    """The call's target, if memory alone says that this caller may do this with it; None where a store has to be asked."""
    application, name = call.application, call.queue
    queue = service.queues.cached(application, name)
    if service.keys.stale or not service.keys.knows(application) or (name and queue is None):
        return None
    call.known_as(identity)
    return Target(application, queue) if permits(permission, identity, application, name, queue) else None


def is_queue_name(text: str) -> bool:
    """1 to 50 letters, digits, ``_``, ``-`` and ``.``; not only one or two dots."""
    return _QUEUE_NAME.fullmatch(text) is not None and text not in (".", "..")


async def allowed(
    service: Service, identity: Identity, permission: Permission, application: str, name: str
) -> Queue | None:
    """The queue of this name, None if none is named.

    A refusal costs one look-up in the store whether or not there is such a queue, and whether or not it is at
    hand: otherwise its time and the counters would tell (G19).

    :raises Forbidden: the caller may not do this there, or may not even learn whether there is such a queue (G19).
    :raises QueueNotFound: there is none.
    """
    known = queue = service.queues.cached(application, name)
    if queue is None and is_queue_name(name):
        queue = await service.queues.find(application, name)
    if not permits(permission, identity, application, name, queue):
        if known is not None:
            await service.queues.look_anew(application, name)
        raise Forbidden
    if name and queue is None:
        raise QueueNotFound
    return queue
