"""The rights of each caller: an enum and one table (queuey-api-v1 section 3.3).

A credential proves a principal. It may carry less than all that the principal may do: only one
application's paths, only some queues, only some verbs. This module decides that too, and no other does:
:func:`permits` first asks which principals act in this call, then the table what they may.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum

from queuey.model import Queue, QueueKind
from queuey.security.principals import app_principal, application_of, is_user, operator_among, operator_of


class Permission(Enum):
    """What a call needs."""

    NONE = "nothing: anyone may"
    APPLICATIONS = "list the applications"
    LIST = "list the queues of an application"
    MINE = "list the queues that name the caller"
    MINT = "get a token"
    CREATE = "create a queue"
    CONFIGURE = "change, delete or inspect a queue"
    APPEND = "add and overwrite messages"
    VIEW = "read messages, and the offsets of groups"
    DELETE = "delete messages"
    COMMIT = "set, reset and forget the offsets of groups"
    RECEIVE = "receive messages, and settle them"


_VERB = {
    Permission.LIST: "list",
    Permission.MINE: "list",
    Permission.CREATE: "create",
    Permission.CONFIGURE: "configure",
    Permission.APPEND: "append",
    Permission.VIEW: "read",
    Permission.DELETE: "delete",
    Permission.COMMIT: "commit",
    Permission.RECEIVE: "receive",
}
VERBS = tuple(dict.fromkeys(_VERB.values()))
"""The words by which a token is restricted. None stands for getting a token: no token begets another."""


@dataclass(frozen=True, slots=True)
class Grant:
    """What one credential proves: a principal, and some or all of its rights."""

    principal: str
    expires_ticks: int | None = None
    """From this moment on it proves nothing; None for a credential without an end."""
    application: str | None = None
    """The one application on whose paths it counts; None for all."""
    queues: frozenset[str] | None = None
    """Names of the queues it is for; None for all, and for what is no single queue's."""
    verbs: frozenset[str] | None = None
    """Some of :data:`VERBS`; None for everything, getting tokens included."""
    key: bytes | None = field(default=None, repr=False)
    """SHA-256 of the key that was shown, an application's or an operator's; None for any other credential."""

    @property
    def is_whole(self) -> bool:
        """Whether it carries all rights of its principal."""
        return self.application is None and self.queues is None and self.verbs is None

    def covers(self, permission: Permission, application: str, name: str) -> bool:
        """Whether it counts for this.

        :param name: the queue's, empty for a call that is about no single queue.
        """
        return (
            self.application in (None, application)
            and (self.verbs is None or _VERB.get(permission) in self.verbs)
            and (self.queues is None or (name != "" and name in self.queues))
        )


class Identity:
    """The caller: what all credentials of a request prove together."""

    __slots__ = ("_keys", "_partly", "_wholly", "expires_ticks", "is_lasting", "operator", "principals")

    def __init__(self, grants: Iterable[Grant] = ()) -> None:
        some = frozenset(grants)
        self._wholly = frozenset([grant.principal for grant in some if grant.is_whole])
        self._keys = {grant.principal: grant.key for grant in some if grant.key is not None}
        self._partly = tuple(grant for grant in some if not grant.is_whole)
        self.principals = self._wholly.union([grant.principal for grant in self._partly])
        """All that the credentials prove, whether or not they count for a call."""
        self.operator = operator_among(self._wholly)
        """The operator that was proven, as ``operator:NAME``; None if none was."""
        ends = [grant.expires_ticks for grant in some if grant.expires_ticks is not None]
        self.expires_ticks = min(ends) if ends else None
        """When the first of the credentials proves nothing more; None if none ends by itself."""
        self.is_lasting = not ends
        """Whether no credential ends by itself."""

    def __eq__(self, other: object) -> bool:
        """Whether they may do the same, for as long."""
        return isinstance(other, Identity) and self._all() == other._all()

    def __hash__(self) -> int:
        return hash(self._all())

    def _all(self) -> tuple[object, ...]:
        return self._wholly, frozenset(self._partly), self.expires_ticks

    @property
    def is_restricted(self) -> bool:
        """Whether a credential carries less than all rights of its principal."""
        return bool(self._partly)

    def counted_as(self, application: str) -> str:
        """Whose a call on the paths of ``application`` is in the metrics.

        It is the operator's, or else the application's.
        """
        return self.operator or application

    def key_of(self, principal: str) -> bytes | None:
        """SHA-256 of the key that proves a principal.

        None if something else proves it, or nothing.
        """
        return self._keys.get(principal)

    def acting(self, permission: Permission, application: str, name: str = "") -> frozenset[str]:
        """The principals that count for a call.

        :param name: as of :meth:`Grant.covers`.
        """
        if not self._partly:
            return self._wholly
        covering = [grant.principal for grant in self._partly if grant.covers(permission, application, name)]
        return self._wholly.union(covering)


ANONYMOUS = Identity()
"""A caller without a credential of a known scheme."""


def _anyone(principals: frozenset[str], application: str, queue: Queue | None) -> bool:
    return True


def _anybody_proven(principals: frozenset[str], application: str, queue: Queue | None) -> bool:
    return bool(principals)


def _operator(principals: frozenset[str], application: str, queue: Queue | None) -> bool:
    return operator_among(principals) is not None


def _owner(principals: frozenset[str], application: str, queue: Queue | None) -> bool:
    """The application itself, or an operator."""
    return f"app:{application}" in principals or _operator(principals, application, queue)


def _holder(principals: frozenset[str], application: str, queue: Queue | None) -> bool:
    """Those the queue names; its owner if it names nobody; an operator in any case."""
    if queue is None or not queue.principals:
        return _owner(principals, application, queue)
    return not principals.isdisjoint(queue.principals) or _operator(principals, application, queue)


def _viewer(principals: frozenset[str], application: str, queue: Queue | None) -> bool:
    public = queue is not None and queue.kind is QueueKind.PUBLIC
    return public or _holder(principals, application, queue)


_RULES: dict[Permission, Callable[[frozenset[str], str, Queue | None], bool]] = {
    Permission.NONE: _anyone,
    Permission.APPLICATIONS: _operator,
    Permission.LIST: _owner,
    Permission.MINE: _anybody_proven,
    Permission.MINT: _anybody_proven,
    Permission.CREATE: _owner,
    Permission.CONFIGURE: _owner,
    Permission.APPEND: _owner,
    Permission.VIEW: _viewer,
    Permission.DELETE: _holder,
    Permission.COMMIT: _holder,
    Permission.RECEIVE: _holder,
}


def permits(permission: Permission, identity: Identity, application: str, name: str, queue: Queue | None) -> bool:
    """Whether this caller may do this.

    :param name: of the queue that is asked for, empty if none is.
    :param queue: None if there is no such queue: then only the owner of the application may learn so (G19).
    """
    return _RULES[permission](identity.acting(permission, application, name), application, queue)


def is_for(identity: Identity, application: str, name: str) -> bool:
    """Whether a caller that may append to some queue has any right of the owner's on this one, which need not exist."""
    return any(permits(permission, identity, application, name, None) for permission in _OF_QUEUES)


_OF_QUEUES = (
    Permission.CONFIGURE,
    Permission.APPEND,
    Permission.VIEW,
    Permission.DELETE,
    Permission.COMMIT,
    Permission.RECEIVE,
)


def rights_of(identity: Identity, application: str, queue: Queue) -> dict[str, bool]:
    """Whether this caller may do what each of :data:`VERBS` says, for an existing queue and its application."""
    return {
        verb: permits(permission, identity, application, queue.name, queue)
        for permission, verb in _VERB.items()
        if permission is not Permission.MINE  # which everybody with an identity may
    }


def may_mint(identity: Identity, application: str, principal: str) -> bool:
    """Whether this caller may get a token of ``principal`` for ``application``.

    Each for itself, and an application for its users, whom it may name in its queues as it likes. No application for
    another. An operator for the users of any application, but neither for an application, under whose name its calls
    would count, nor for itself: no token proves an operator.
    """
    if operator_of(principal) is not None:
        return False
    acting = identity.acting(Permission.MINT, application)
    return principal in acting or (_owner(acting, application, None) and is_user(principal))


def key_behind(identity: Identity, application: str, principal: str) -> tuple[str, bytes] | None:
    """The key by which this caller may get such a token.

    It is the application that the key was used for, and the key's SHA-256.

    None if the caller proves the principal by something else than a key.
    """
    acting = identity.acting(Permission.MINT, application)
    by = principal if principal in acting else app_principal(application)
    if by not in acting:
        by = operator_among(acting) or by
    key = identity.key_of(by)
    return None if key is None else (application_of(by) or application, key)
