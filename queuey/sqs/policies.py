"""Policies of queues: which other accounts may do what there.

The owner of a queue may do everything. A policy only adds to that: its statements allow actions to accounts, which are
applications of this server. Some actions stay the owner's (:data:`OWNERS_ACTIONS`). What a policy can say at Amazon's
service and cannot be kept here, such as conditions and denials, is refused when it is set, so that nobody relies on it.
So is a statement about another queue, which would open this one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import orjson

from queuey.sqs.errors import SqsError, invalid_parameter, shown
from queuey.sqs.shapes import ACTIONS

__all__ = ["MAX_ACTIONS", "MAX_STATEMENTS", "MAX_TEXT", "OWNERS_ACTIONS", "Policy", "Statement", "policy_of"]

MAX_STATEMENTS = 20
MAX_ACTIONS = 7
"""Of one statement that AddPermission makes."""
OWNERS_ACTIONS = frozenset(
    [
        "AddPermission",
        "CancelMessageMoveTask",
        "CreateQueue",
        "DeleteQueue",
        "ListMessageMoveTasks",
        "ListQueueTags",
        "ListQueues",
        "RemovePermission",
        "SetQueueAttributes",
        "StartMessageMoveTask",
        "TagQueue",
        "UntagQueue",
    ]
)
"""Actions that no policy opens to another account, neither by name nor by ``*``."""
MAX_TEXT = 8192
"""Characters of a policy of any kind."""
_ANY = "*"
_VERSIONS = ("2008-10-17", "2012-10-17")
_PARTS = frozenset(["Sid", "Effect", "Principal", "Action", "Resource"])


class Statement(NamedTuple):
    """One permission."""

    label: str
    """Its ``Sid``; empty if it has none."""
    accounts: tuple[str, ...]
    """Account numbers, or ``*`` for every caller with a valid signature."""
    actions: tuple[str, ...]
    """Names of actions, or ``*``."""
    resources: tuple[str, ...] = (_ANY,)
    """ARNs of queues, or ``*``."""

    def allows(self, action: str, account: str) -> bool:
        is_named = _ANY in self.actions or action in self.actions or action.removesuffix("Batch") in self.actions
        return is_named and (_ANY in self.accounts or account in self.accounts)

    def shown(self, arn: str) -> dict[str, Any]:
        """As the document has it."""
        principals = [one if one == _ANY else f"arn:aws:iam::{one}:root" for one in self.accounts]
        actions = [f"SQS:{name}" for name in self.actions]
        return {
            **({"Sid": self.label} if self.label else {}),
            "Effect": "Allow",
            "Principal": {"AWS": principals[0] if len(principals) == 1 else principals},
            "Action": actions[0] if len(actions) == 1 else actions,
            "Resource": arn,
        }


class Policy(NamedTuple):
    """All permissions of a queue."""

    statements: Sequence[Statement] = ()

    def allows(self, action: str, account: str) -> bool:
        """Whether another account may do this."""
        return action not in OWNERS_ACTIONS and any(one.allows(action, account) for one in self.statements)

    def check_resources(self, is_this: Callable[[str], bool]) -> None:
        """:param is_this: whether an ARN is that of the queue.
        :raises SqsError: a statement is about another queue.
        """
        for one in self.statements:
            for resource in one.resources:
                if resource != _ANY and not is_this(resource):
                    raise _wrong(f"Resource must be the ARN of this queue, or *, and not {shown(resource)}")

    def document(self, arn: str) -> str:
        """The policy as JSON, in one spelling for equal policies.

        :raises SqsError: it is longer than a queue keeps.
        """
        content = {
            "Version": "2012-10-17",
            "Id": f"{arn}/SQSDefaultPolicy",
            "Statement": [one.shown(arn) for one in self.statements],
        }
        text = orjson.dumps(content).decode()
        if len(text) > MAX_TEXT:
            raise SqsError("OverLimit", f"The policy has {len(text)} characters, the maximum allowed is {MAX_TEXT}.")
        return text

    def with_statement(self, added: Statement) -> Policy:
        """:raises SqsError: there is one with this label, or there are too many."""
        if any(one.label == added.label for one in self.statements):
            raise invalid_parameter(
                f"Value {shown(added.label)} for parameter Label is invalid. Reason: Already exists."
            )
        if len(self.statements) == MAX_STATEMENTS:
            raise SqsError("OverLimit", f"A policy has at most {MAX_STATEMENTS} statements.")
        return Policy([*self.statements, added])

    def without(self, label: str) -> Policy:
        """:raises SqsError: there is none with this label."""
        kept = [one for one in self.statements if not label or one.label != label]
        if len(kept) == len(self.statements):
            raise invalid_parameter(f"Value {shown(label)} for parameter Label is invalid. Reason: can't find label.")
        return Policy(kept)


@lru_cache(1024)
def policy_of(text: str) -> Policy:
    """A policy in the form that a queue keeps, or as a client sets it; an empty text is none.

    :raises SqsError: it is no policy, or says something that this server cannot keep.
    """
    if not text:
        return Policy()
    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError:
        raise _wrong("it is not JSON") from None
    if not isinstance(document, dict) or len(text) > MAX_TEXT:
        raise _wrong(f"it must be a JSON object of at most {MAX_TEXT} characters")
    if unknown := [*document.keys() - {"Version", "Id", "Statement"}]:
        raise _wrong(f"this server does not know {shown(unknown[0])}")
    if document.get("Version", _VERSIONS[0]) not in _VERSIONS:
        raise _wrong(f"Version must be {' or '.join(_VERSIONS)}")
    given = document.get("Statement")
    statements = given if isinstance(given, list) else [given]
    if len(statements) > MAX_STATEMENTS:
        raise _wrong(f"at most {MAX_STATEMENTS} statements")
    found = [*map(_statement, statements)]
    labels = [one.label for one in found if one.label]
    if len({*labels}) < len(labels):
        raise _wrong("two statements have one Sid")
    return Policy(found)


def _wrong(why: str) -> SqsError:
    return SqsError("InvalidAttributeValue", f"Invalid value for the parameter Policy. Reason: {why}.")


def _statement(given: Any) -> Statement:
    if not isinstance(given, dict):
        raise _wrong("each statement must be an object")
    if unknown := [*given.keys() - _PARTS]:
        raise _wrong(f"this server does not keep {shown(unknown[0])}")
    if given.get("Effect") != "Allow":
        raise _wrong("this server keeps statements with Effect Allow alone: what nobody allows is denied")
    label = given.get("Sid", "")
    if not isinstance(label, str) or (not label and "Sid" in given):
        raise _wrong("Sid must be a text")
    principal = given.get("Principal")
    if isinstance(principal, Mapping) and [*principal] == ["AWS"]:
        principal = principal["AWS"]
    accounts = tuple([_account(one) for one in _texts("Principal", principal)])
    actions = tuple([_action(one) for one in _texts("Action", given.get("Action"))])
    return Statement(label, accounts, actions, tuple(_texts("Resource", given.get("Resource", _ANY))))


def _texts(name: str, given: Any) -> Iterable[str]:
    found = given if isinstance(given, list) else [given]
    if not found or not all(isinstance(one, str) for one in found):
        raise _wrong(f"{name} must be a text or a list of texts")
    return found


def _account(text: str) -> str:
    if text == _ANY:
        return text
    parts = text.split(":")
    number = parts[4] if len(parts) == 6 and parts[:3] == ["arn", "aws", "iam"] and parts[5] == "root" else text
    if not (number.isascii() and number.isdigit() and len(number) == 12):
        raise _wrong(f"{shown(text)} is no account: expected 12 digits, arn:aws:iam::ACCOUNT:root, or *")
    return number


def _action(text: str) -> str:
    name = text.partition(":")[2] if text[:4].lower() == "sqs:" else text
    if name == _ANY:
        return name
    known = {one.lower(): one for one in ACTIONS}.get(name.lower())
    if known is None:
        raise _wrong(f"{shown(text)} is no action of SQS")
    return known
