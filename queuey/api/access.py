"""Who calls, and the one way from a name to a queue: it is found, and the caller may do this with it."""

from __future__ import annotations

from queuey.api.params import is_queue_name
from queuey.errors import Forbidden, QueueNotFound
from queuey.model import Queue
from queuey.security.permissions import Identity, Permission, permits
from queuey.service import Service

_RECENT = 1000
"""Authorization headers whose identity is at hand, for a second at most."""


async def refresh_keys(service: Service) -> None:
    """Look anew at the application keys in force, and at what they prove."""
    service.recent.clear()
    await service.keys.refresh()


def identify(service: Service, header: str) -> Identity:
    """The caller; what a header of application keys proved is remembered until the keys are looked at anew.

    :raises Unauthenticated, Throttled: as of :class:`~queuey.security.identity.Identifier`.
    """
    identity = service.recent.get(header)
    if identity is None:
        identity = service.identifier.identify(header)
        if identity.is_lasting and len(service.recent) < _RECENT:
            service.recent[header] = identity
    return identity


async def allowed(
    service: Service, identity: Identity, permission: Permission, application: str, name: str
) -> Queue | None:
    """The queue of this name, None if none is named.

    :raises Forbidden: the caller may not do this there, or may not even learn whether there is such a queue (G19).
    :raises QueueNotFound: there is none.
    """
    queue = service.queues.cached(application, name)
    if queue is None and is_queue_name(name):
        queue = await service.queues.find(application, name)
    if not permits(permission, identity, application, name, queue):
        raise Forbidden
    if name and queue is None:
        raise QueueNotFound
    return queue
