"""The errors that answers mean. Errors are found by their code."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple

from qdo.client.steps import NoAnswer, Reply
from queuey.errors import (
    BadRequest,
    Conflict,
    Forbidden,
    InProgress,
    InvalidApplicationKey,
    InvalidParameter,
    MessageTooLarge,
    NotFound,
    OutcomeUnknown,
    QueueNotFound,
    QueueyError,
    ServerUnreachable,
    StorageUnavailable,
    Throttled,
    Unauthenticated,
    error_classes,
)

__all__ = ["Failure", "error_from", "failure_of", "last_word", "may_pass"]

_FAMILIES: Mapping[int, type[QueueyError]] = {
    401: Unauthenticated,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    413: MessageTooLarge,
    429: Throttled,
    502: OutcomeUnknown,
    503: StorageUnavailable,
    504: OutcomeUnknown,
}
"""The class for an answer with an unknown code, or for one of a proxy."""

_BY_PROXY = " through the proxy of the environment (the variable no_proxy names hosts to reach without it)"
_NO_CREDENTIAL = "Access was denied: no credential came"
"""So a server begins where it has nothing else to say."""


class Failure(NamedTuple):
    """What went wrong with one attempt."""

    error: QueueyError
    again: bool
    """Another attempt may succeed."""
    unanswered: bool
    """The request may have been carried out."""
    retry_after: str | None = None


def failure_of(root: str, outcome: Reply | NoAnswer, *, has_credential: bool = True) -> Failure:
    """What an attempt failed with.

    :param root: the address of the server.
    :param outcome: no success.
    :param has_credential: the request had a key or a token.
    """
    if isinstance(outcome, Reply):
        error = _in_words(error_from(outcome), root, has_credential=has_credential)
        unanswered = isinstance(error, OutcomeUnknown)
        again = unanswered or outcome.status in {429, 503} or isinstance(error, InProgress)
        return Failure(error, again, unanswered, outcome.headers.get("Retry-After"))
    if outcome.never_sent:
        way = _BY_PROXY if outcome.by_proxy else ""
        return Failure(ServerUnreachable(f"no server answers at {root}{way}"), again=True, unanswered=False)
    if outcome.is_final:
        return Failure(ServerUnreachable(f"{root}: {outcome}"), again=False, unanswered=False)
    return Failure(ServerUnreachable(f"no answer from {root}: {outcome}"), again=True, unanswered=True)


def last_word(failure: Failure, method: str, *, lost: bool) -> QueueyError:
    """What is true after all attempts (G10).

    The refusal of the last one does not undo what an earlier one stored.

    :param lost: an attempt may have been carried out.
    """
    if method == "GET":
        unanswered = isinstance(failure.error, OutcomeUnknown)
        return StorageUnavailable(str(failure.error)) if unanswered else failure.error
    # A credential may be withdrawn between two attempts.
    is_open = failure.again or isinstance(failure.error, Unauthenticated | Forbidden)
    if lost and is_open and not isinstance(failure.error, OutcomeUnknown):
        return OutcomeUnknown(f"{failure.error}; the write may or may not be stored")
    return failure.error


def error_from(answer: Reply) -> QueueyError:
    """The error in an answer, of the class that the server raised.

    If this version does not know the code, the text of the family's error shows it.
    """
    headers = {name: answer.headers[name] for name in ("Retry-After",) if name in answer.headers}
    try:
        told = json.loads(answer.body)
        texts = {str(field): str(text) for field, text in told["error_msg"].items()}
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        family = _family(answer.status)
        return family(f"HTTP {answer.status} {answer.reason}".rstrip(), headers=headers)
    said = told.get("detail") or "; ".join(f"{field}: {text}" for field, text in texts.items())
    code = told.get("code", "")
    found = error_classes().get(code)
    if found is None:
        return _family(answer.status)(f"{code}: {said}" if code else said, headers=headers)
    if issubclass(found, InvalidParameter):
        return found(said) if code in texts else found(problems=texts)  # the first is about no single field
    return found(said, headers=headers)


def _in_words(error: QueueyError, root: str, *, has_credential: bool) -> QueueyError:
    """The same error, with what a program does in place of what a request has.

    That is where it gives its credential, or how it makes a queue. What a server says of its own stays.
    """
    if isinstance(error, InvalidApplicationKey) and str(error) == str(InvalidApplicationKey()):
        return InvalidApplicationKey(
            f"{root} does not know the application key: QUEUEY_KEY, key= or a context gives it"
        )
    if isinstance(error, QueueNotFound):
        return error.saying(": create_queue makes it")
    if isinstance(error, Forbidden) and not has_credential and str(error).startswith(_NO_CREDENTIAL):
        return Forbidden(f"no key was given for {root}: set QUEUEY_KEY, or pass key= with the address")
    return error


def may_pass(error: QueueyError) -> bool:
    """Whether the same request may succeed later without anybody changing it.

    Other errors are not worth a repeat.

    >>> may_pass(Throttled()), may_pass(OutcomeUnknown()), may_pass(Forbidden())
    (True, True, False)
    """
    # An error without a known class is a fault of the server, or of something in front of it.
    return error.retriable or isinstance(error, OutcomeUnknown | InProgress) or type(error) is QueueyError


def _family(status: int) -> type[QueueyError]:
    return _FAMILIES.get(status, BadRequest if 400 <= status < 500 else QueueyError)
