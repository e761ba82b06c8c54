"""Actions that change what a queue's policy allows to others."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from queuey.security.permissions import Permission
from queuey.sqs.actions.queues import change_attributes
from queuey.sqs.attributes import QueueAttributes
from queuey.sqs.errors import SqsError, invalid_parameter, shown
from queuey.sqs.policies import MAX_ACTIONS, OWNERS_ACTIONS, Statement
from queuey.sqs.request import SqsRequest
from queuey.sqs.shapes import ACTIONS

__all__ = ["add_permission", "remove_permission"]

_LABEL = re.compile(r"[A-Za-z0-9_-]{1,80}")
_ACCOUNT = re.compile(r"[0-9]{12}")


async def add_permission(asked: SqsRequest) -> Mapping[str, Any]:
    """Add a statement to the policy."""
    queue, values = await asked.queue(Permission.CONFIGURE), asked.values
    label, accounts, actions = values["Label"], values["AWSAccountIds"], values["Actions"]
    if not _LABEL.fullmatch(label):
        raise invalid_parameter(
            f"Value {shown(label)} for parameter Label is invalid. Reason: 1 to 80 letters, digits, hyphens or underscores."
        )
    if len(actions) > MAX_ACTIONS:
        raise SqsError("OverLimit", f"{len(actions)} Actions were found, maximum allowed is {MAX_ACTIONS}.")
    for account in accounts:
        if not _ACCOUNT.fullmatch(account):
            raise invalid_parameter(
                f"Value {shown(account)} for parameter PrincipalId is invalid. Reason: Unable to verify."
            )
    for action in actions:
        _check_action(action)
    added = Statement(label, tuple(accounts), tuple(actions))

    def change(before: QueueAttributes) -> QueueAttributes:
        return before.with_policy(before.policy.with_statement(added), asked.arn_of(queue))

    await change_attributes(asked, queue, change)
    return {}


def _check_action(action: str) -> None:
    """:raises SqsError: there is no such action, or it is one that its owner keeps."""
    if action in OWNERS_ACTIONS:
        reason = "Only the queue owner is allowed to invoke this action."
    elif action == "*" or action in ACTIONS:
        return
    else:
        reason = "Please refer to the appropriate WSDL for a list of valid actions."
    raise invalid_parameter(f"Value SQS:{shown(action)} for parameter ActionName is invalid. Reason: {reason}")


async def remove_permission(asked: SqsRequest) -> Mapping[str, Any]:
    """Remove a statement from the policy by its label."""
    queue, label = await asked.queue(Permission.CONFIGURE), asked.values["Label"]

    def change(before: QueueAttributes) -> QueueAttributes:
        return before.with_policy(before.policy.without(label), asked.arn_of(queue))

    await change_attributes(asked, queue, change)
    return {}
