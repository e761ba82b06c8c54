"""Message move tasks: dead letters go back to the queues that they came from, or to another queue.

A move task is one task of the server on the dead-letter queue (:mod:`queuey.service.tasks.move`). The queue has the
newest of them in the store, and keeps a list of those before it.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

import orjson

from queuey.errors import TaskNotFound, TaskRunning
from queuey.model import Queue
from queuey.model.tasks import StoredTask, TaskState
from queuey.security.access_keys import account_of
from queuey.security.permissions import Permission
from queuey.service.tasks import MOVE
from queuey.service.tasks.move import NO_DESTINATION, NO_SOURCE
from queuey.sqs.actions.queues import change_attributes, sources_of, visible_messages
from queuey.sqs.attributes import GROUP, QueueAttributes, attributes_of, parse_arn
from queuey.sqs.errors import CODES, SqsError, invalid_parameter, shown
from queuey.sqs.messages import unix_ms
from queuey.sqs.request import SqsRequest

__all__ = ["cancel_message_move_task", "list_message_move_tasks", "start_message_move_task"]

_MOST_KEPT = 10
_WORDS = {
    TaskState.RUNNING: "RUNNING",
    TaskState.CANCELLING: "CANCELLING",
    TaskState.DONE: "COMPLETED",
    TaskState.FAILED: "FAILED",
    TaskState.CANCELLED: "CANCELLED",
}
_REASONS = {NO_DESTINATION: CODES["QueueDoesNotExist"][0], NO_SOURCE: "CouldNotDetermineMessageSource"}

Move = Mapping[str, Any]
"""What a client learns of a task: ``id``, ``started`` in milliseconds, ``arn``, ``destination``, ``rate``, ``status``, ``moved``,
``total`` and ``reason``."""


async def start_message_move_task(asked: SqsRequest) -> Mapping[str, Any]:
    """Begin to move the messages that a dead-letter queue has now."""
    values, arn = asked.values, asked.values["SourceArn"]
    dead = await _queue(asked, "SourceArn", arn)
    await asked.named(Permission.RECEIVE, dead.application, dead.name)  # else it moves what the caller may not read
    if not [source async for source in sources_of(asked, dead, most=1)]:
        raise invalid_parameter("Source queue must be configured as a Dead Letter Queue.")
    rate, destination = values.get("MaxNumberOfMessagesPerSecond"), values.get("DestinationArn")
    wanted: dict[str, Any] = {"group": GROUP, "rate": rate or 0, "arn": arn, "destination": destination}
    if destination is not None:
        target = await _queue(asked, "DestinationArn", destination)
        _check_target(dead, target)
        wanted |= {"queue": target.name, "ttl": attributes_of(target).numbers["MessageRetentionPeriod"]}
    newest = await _newest(asked, dead)
    if newest is not None:
        if newest.is_open:
            raise _running()
        await _keep(asked, dead, _move(newest))
    try:
        wanted["upto"] = asked.service.log.newest_ticks(dead)
        task = await asked.service.tasks.begin(dead, MOVE, wanted, total=await visible_messages(asked, dead))
    except TaskRunning:
        raise _running() from None
    return {"TaskHandle": _handle(_move(task))}


def _check_target(dead: Queue, target: Queue) -> None:
    """:raises SqsError: messages of one queue cannot go to the other."""
    if target.uuid == dead.uuid:
        raise invalid_parameter("Source queue arn and destination queue arn cannot be the same.")
    if attributes_of(target).is_fifo != attributes_of(dead).is_fifo:
        raise invalid_parameter("Destination queue must be the same type of queue as the source queue.")


async def _keep(asked: SqsRequest, dead: Queue, ended: Move) -> None:
    """Put a task that has ended on the list, before another one takes its place."""

    def change(before: QueueAttributes) -> QueueAttributes:
        others = [move for move in before.moves if move["id"] != ended["id"]]
        return replace(before, moves=[ended, *others[: _MOST_KEPT - 2]])

    await change_attributes(asked, dead, change)


async def _newest(asked: SqsRequest, dead: Queue) -> StoredTask | None:
    try:
        return await asked.service.tasks.find(dead, MOVE)
    except TaskNotFound:
        return None


def _move(task: StoredTask) -> Move:
    return {
        "id": str(task.id),
        "started": unix_ms(task.started),
        "arn": task.asked["arn"],
        "destination": task.asked["destination"],
        "rate": task.asked["rate"],
        "status": _WORDS[task.state],
        "moved": task.done,
        "total": task.total,
        "reason": _REASONS.get(task.reason, task.reason) if task.state is TaskState.FAILED else "",
    }


def _running() -> SqsError:
    return invalid_parameter(
        "There is already a task running. Only one active task is allowed for a source queue arn at a given time."
    )


def _handle(move: Move) -> str:
    return base64.b64encode(orjson.dumps({"taskId": move["id"], "sourceArn": move["arn"]})).decode()


async def cancel_message_move_task(asked: SqsRequest) -> Mapping[str, Any]:
    """Let a move task move nothing more. What it has moved stays moved."""
    try:
        said = orjson.loads(base64.b64decode(asked.values["TaskHandle"], validate=True))
        wanted, arn = said["taskId"], said["sourceArn"]
    except (ValueError, KeyError, TypeError):
        raise invalid_parameter("Value for parameter TaskHandle is invalid.") from None
    dead = await _queue(asked, "SourceArn", str(arn))
    newest = await _newest(asked, dead)
    if newest is None or str(newest.id) != wanted or newest.state is not TaskState.RUNNING:
        raise SqsError("ResourceNotFoundException", "Task does not exist.")
    task = await asked.service.tasks.cancel(dead, MOVE, UUID(wanted))
    return {"ApproximateNumberOfMessagesMoved": task.done}


async def list_message_move_tasks(asked: SqsRequest) -> Mapping[str, Any]:
    """The last move tasks of a queue, the newest first."""
    most = asked.values.get("MaxResults", 1)
    dead = await _queue(asked, "SourceArn", asked.values["SourceArn"])
    newest = await _newest(asked, dead)
    moves: Sequence[Move] = [] if newest is None else [_move(newest)]
    moves = [*moves, *[move for move in attributes_of(dead).moves if not moves or move["id"] != moves[0]["id"]]]
    return {"Results": [_shown(move) for move in moves[:most]]}


def _shown(move: Move) -> dict[str, Any]:
    found = {
        "Status": move["status"],
        "SourceArn": move["arn"],
        "ApproximateNumberOfMessagesMoved": move["moved"],
        "ApproximateNumberOfMessagesToMove": move["total"],
        "StartedTimestamp": move["started"],
    }
    if move["status"] == "RUNNING":
        found["TaskHandle"] = _handle(move)
    if move["destination"] is not None:
        found["DestinationArn"] = move["destination"]
    if move["rate"]:
        found["MaxNumberOfMessagesPerSecond"] = move["rate"]
    if move["reason"]:
        found["FailureReason"] = move["reason"]
    return found


async def _queue(asked: SqsRequest, name: str, arn: str) -> Queue:
    """A queue of the caller by its ARN."""
    place = parse_arn(arn)
    if place is None:
        raise invalid_parameter(f"Value {shown(arn)} for parameter {name} is invalid. Reason: it is no ARN of a queue.")
    found = None
    if place[0] == account_of(asked.application):
        found = await asked.service.queues.find(asked.application, place[1])
    if found is None:
        text = f"The resource that you specified for the {name} parameter doesn't exist."
        raise SqsError("ResourceNotFoundException", text)
    return await asked.named(Permission.CONFIGURE, asked.application, found.name)
