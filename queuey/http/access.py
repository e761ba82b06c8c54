"""Who calls, and the one way from a name to a queue: it is found, and the caller may do this with it."""

from __future__ import annotations

from queuey.api.params import is_queue_name
from queuey.errors import Forbidden, QueueNotFound
from queuey.http.exchange import Call, Target
from queuey.model import Queue
from queuey.security.permissions import ANONYMOUS, Identity, Permission, permits
from queuey.service import Service

_RECENT = 1000
"""Authorization headers whose identity is at hand, for a second at most."""


async def refresh_keys(service: Service) -> None:
    """Look anew at the application keys in force, and at what they prove."""
    removed = await service.keys.refresh()
    service.recent.clear()  # after it: meanwhile calls were identified by the keys of before
    if removed:
        service.trust.forget()  # tokens end with the application key that they were got with


def identify(service: Service, header: str) -> Identity:
    """The caller; what a header of application keys proved is remembered until the keys are looked at anew.

    :raises Unauthenticated, Throttled: as of :class:`~queuey.security.identity.Identifier`.
    """
    identity = service.recent.get(header)
    if identity is None:
        identity = service.identifier.identify(header)
        # A caller who proves nothing is not remembered: anybody can send another such header each time.
        if identity.principals and identity.is_lasting and len(service.recent) < _RECENT:
            service.recent[header] = identity
    return identity


def at_hand(service: Service, call: Call) -> Identity:
    """What is known of a call's sender now, checked or not yet: it says who pays, and permits nothing."""
    if call.identity is not ANONYMOUS:
        return call.identity
    header = call.headers.get("authorization", "")
    return service.recent.get(header) or service.identifier.recall(header)


def target_at_hand(service: Service, call: Call, permission: Permission) -> Target | None:
    """What a call is about, if what is at hand says that it is allowed, so that nobody need be asked; else None."""
    application, name = call.application, call.queue
    identity = service.recent.get(call.headers.get("authorization", ""))
    queue = service.queues.cached(application, name)
    if identity is None or service.keys.stale or not service.keys.knows(application) or (name and queue is None):
        return None
    call.identity = identity
    return Target(application, queue) if permits(permission, identity, application, name, queue) else None


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
