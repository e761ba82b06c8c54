"""Translates the driver's errors into ours (G10)."""

from __future__ import annotations

import logging

from cassandra import (
    ConsistencyLevel,
    InvalidRequest,
    OperationTimedOut,
    ReadFailure,
    ReadTimeout,
    Unauthorized,
    Unavailable,
)
from cassandra.cluster import NoHostAvailable
from cassandra.connection import ConnectionShutdown
from cassandra.pool import NoConnectionsAvailable
from cassandra.protocol import OverloadedErrorMessage, SyntaxException

from queuey.errors import OutcomeUnknown, QueueyError, StorageUnavailable

__all__ = ["TooManyTombstones", "is_of_tables", "our_error"]

log = logging.getLogger(__name__)

_NOT_SENT = (Unavailable, NoConnectionsAvailable, OverloadedErrorMessage, InvalidRequest, SyntaxException, Unauthorized)
"""Errors of statements that were not carried out. For NoHostAvailable see :func:`_nothing_was_sent`."""


_GONE = ("does not exist", "doesn't exist", "unconfigured table", "Undefined column name")
"""Words of a node that lacks a keyspace, a table or a column."""
_WHY = {
    NoHostAvailable: "no node can be reached",
    Unavailable: "too few of the nodes that have a copy are up",
    OperationTimedOut: "no answer came in time",
    ReadTimeout: "too few nodes answered in time",
    ReadFailure: "a node could not read what was asked for, and its log says why",
    ConnectionShutdown: "the connection to the node ended",
}
"""In words for an operator."""
_TOO_MANY_TOMBSTONES = 1
"""Cassandra's number for a read that a node gave up over tombstones."""
_LACKING = "the server lacks tables in Cassandra: nothing was stored; /__heartbeat__ and its log say which"


class TooManyTombstones(StorageUnavailable):
    """A node steps over no more tombstones than its tombstone_failure_threshold says: read less at once."""

    @property
    def code(self) -> str:
        return StorageUnavailable.__name__


def is_of_tables(error: BaseException) -> bool:
    """Whether a node says that a keyspace, a table or a column is gone."""
    refusals = (
        error.errors.values() if isinstance(error, NoHostAvailable) and isinstance(error.errors, dict) else [error]
    )
    return any(isinstance(one, InvalidRequest) and any(word in str(one) for word in _GONE) for one in refusals)


def _nothing_was_sent(error: BaseException) -> bool:
    """Whether an error proves that no node can have taken the statement."""
    if isinstance(error, NoHostAvailable):
        reasons = error.errors.values() if isinstance(error.errors, dict) else [error]
        return all(isinstance(reason, (*_NOT_SENT, ConnectionRefusedError)) for reason in reasons)
    return isinstance(error, _NOT_SENT)


def _may_be_decided(error: BaseException) -> bool:
    """Whether a lightweight transaction may be carried out though a node refused it.

    It is decided by the serial level. What is decided is then written by a level of its own. A node that sees another one go
    away in between, or has too many hints waiting, refuses that write. The next transaction on these rows completes it.
    """
    if isinstance(error, Unavailable):
        return not ConsistencyLevel.is_serial(error.consistency)
    return isinstance(error, OverloadedErrorMessage)


def our_error(error: BaseException, *, writes: bool, alone: bool = True, decides: bool = False) -> QueueyError:
    """The driver's error as ours (G10).

    It is a refusal only if nothing can have been written. Every error that is not known to be harmless means an unknown
    outcome. That includes the server error 0x1700, which the driver raises as a bare ErrorMessage: a lightweight
    transaction whose end is not known.

    :param alone: no other node was asked to do the same.
    :param decides: the statement is a lightweight transaction.
    """
    if isinstance(error, QueueyError):
        return error
    what = type(error).__name__
    is_decided = decides and _may_be_decided(error)
    if not writes or (alone and _nothing_was_sent(error) and not is_decided):
        if _is_of_tombstones(error):
            return TooManyTombstones(f"Cassandra did not take the request ({_WHY[ReadFailure]}, tombstones): try again")
        if not isinstance(error, (Unavailable, ReadTimeout, OperationTimedOut, NoHostAvailable, ConnectionShutdown)):
            log.warning("Cassandra refused a statement: %s: %s", what, error)
        if is_of_tables(error):
            return StorageUnavailable(_LACKING)
        why = f"{_WHY[type(error)]}, {what}" if type(error) in _WHY else what
        return StorageUnavailable(f"Cassandra did not take the request ({why}): nothing was stored, try again")
    return OutcomeUnknown(
        f"Cassandra did not say in time whether it stored this ({what}): "
        "repeat it only with the same idempotency key or message id"
    )


def _is_of_tombstones(error: BaseException) -> bool:
    """Whether a node gave a read up over tombstones. Another one may have failed for another reason."""
    return isinstance(error, ReadFailure) and _TOO_MANY_TOMBSTONES in (error.error_code_map or {}).values()
