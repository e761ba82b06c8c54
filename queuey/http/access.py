"""Identifies callers, and finds a queue by name for a caller that may use it."""

from __future__ import annotations

from collections.abc import Callable

from queuey.errors import ApplicationNotFound, Forbidden, QueueNotFound, Unauthenticated
from queuey.http.addresses import client_of
from queuey.http.exchange import Call, Target
from queuey.model import Queue
from queuey.security.permissions import ANONYMOUS, Identity, Permission, permits
from queuey.service import Service
from queuey.service.queues import is_queue_name

NO_CREDENTIAL = (
    "Access was denied: no credential came that this server can use. Send Authorization: Application KEY, with a key of the "
    "application; or a token, where the server trusts their issuer."
)
"""It says nothing about what was asked for."""
_RECENT = 1000
"""Authorization headers whose identity is remembered, for one second at most."""


async def refresh_keys(service: Service) -> None:
    """Load the application keys in force again, and drop what the old ones proved."""
    removed = await service.keys.refresh()
    service.recent.clear()  # only now: calls during the refresh were identified by the old keys
    if removed:
        service.trust.forget()  # a token ends with the application key that it was issued for


def identify(service: Service, header: str, call: Call, *, again: bool = False) -> Identity:
    """The caller that an Authorization header proves.

    :param call: the client that sent it pays for a bad one.
    :param again: check it however many bad ones came: the caller proved itself by this header before, and has waited since
        then; or an issuer has just sent what stands in it.

    What application keys proved is remembered until the keys are loaded again.

    :raises Unauthenticated, Throttled: as of :class:`~queuey.security.identity.Identifier`.
    """
    identity = service.recent.get(header)
    if identity is None:
        client = None if again else client_of(call, service.settings.server.trusted_proxies)
        identity = service.identifier.identify(header, client)
        # Remember no caller that proves nothing: it could send a different header every time and fill the memory.
        if identity.principals and identity.is_lasting and len(service.recent) < _RECENT:
            service.recent[header] = identity
    return identity


def seems_to_be(service: Service, call: Call) -> Identity:
    """The caller as far as it is known now, checked or not.

    It decides whose share of the memory pays, and permits nothing.
    """
    if call.identity is not ANONYMOUS:
        return call.identity
    header = call.headers.get("authorization", "")
    return service.recent.get(header) or service.identifier.recall(header)


def target_at_hand(service: Service, call: Call, identity: Identity, permission: Permission) -> Target | None:
    """The call's target, if memory alone shows that this caller may do this there.

    None if a store has to be asked.
    """
    application, name = call.application, call.queue
    queue = service.queues.cached(application, name)
    if service.keys.stale or not service.keys.knows(application) or (name and queue is None):
        return None
    call.known_as(identity)
    return Target(application, queue) if permits(permission, identity, application, name, queue) else None


async def allowed(
    service: Service,
    identity: Identity,
    permission: Permission,
    application: str,
    name: str,
    opens: Callable[[Queue], bool] = lambda _: False,
) -> Queue | None:
    """The queue of this name, None if none is named.

    A refusal costs one look-up in the store, whether or not the queue exists and whether or not it is cached:
    otherwise the response time and the counters would reveal which queues exist (G19).

    :param opens: whether a queue permits to the caller what the table of rights does not.
    :raises Forbidden: the caller may not do this, or may not even learn whether the queue exists (G19).
    :raises QueueNotFound: there is no such queue.
    """

    def may(queue: Queue | None) -> bool:
        return permits(permission, identity, application, name, queue) or (queue is not None and opens(queue))

    known = queue = service.queues.cached(application, name) if name else None
    if queue is None and name and is_queue_name(name):
        queue = await service.queues.find(application, name)
    if known is not None and not may(queue):
        queue = await service.queues.look_anew(application, name)  # another server may have named the caller since
    if not may(queue):
        raise _refusal(permission, identity, application, name, queue)
    if name and queue is None:
        raise QueueNotFound.named(name)
    return queue


async def identify_again(service: Service, call: Call) -> None:
    """Check that the credential of a caller that waits is still valid, and that its application still exists.

    :raises Unauthenticated: the credential is not valid any more.
    :raises ApplicationNotFound: the application has no keys any more.
    """
    if service.keys.stale:
        await refresh_keys(service)
    if call.application and not service.keys.knows(call.application):
        raise ApplicationNotFound
    expires = call.identity.expires_ticks
    if expires is not None and expires <= service.clock.now_ticks():
        raise Unauthenticated("The credential has come to its end: connect again with a new one.")
    renew, header = call.renew, call.headers.get("authorization", "")
    call.known_as(identify(service, header, call, again=True) if renew is None else renew())


async def queue_again(service: Service, call: Call, queue: Queue, permission: Permission) -> Queue:
    """The queue of a caller that waits, as it is now.

    :raises Forbidden, QueueNotFound: the caller may not do this there any more, or it is another queue by now.
    """
    found = await allowed(service, call.identity, permission, queue.application, queue.name)
    if found is None or found.uuid != queue.uuid:
        raise QueueNotFound.named(queue.name)
    return found


def _refusal(permission: Permission, identity: Identity, application: str, name: str, queue: Queue | None) -> Forbidden:
    """Why a caller may not do this.

    A caller that may not inspect the queue learns nothing of its principals (G19).
    """
    if not identity.principals:
        return Forbidden(NO_CREDENTIAL)
    may_inspect = queue is not None and permits(Permission.CONFIGURE, identity, application, name, queue)
    if may_inspect and permits(permission, identity, application, name, None):
        return Forbidden(
            f"Access was denied: only the principals of queue {name} may do this. Add app:{application} to them to permit "
            "it to the application."
        )
    return Forbidden()
