"""Message move tasks: dead letters go back to the queues that they came from, or to another queue.

Each queue of which the dead-letter queue has letters gets a redrive of its own (:mod:`queuey.service.tasks.redrive`). A
move task is all of them together; the dead-letter queue keeps a list of its last ones.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import uuid4

import orjson

from queuey.errors import TaskNotFound, TaskRunning
from queuey.model import Queue
from queuey.model.tasks import StoredTask, TaskState
from queuey.security.permissions import Permission
from queuey.service.tasks.redrive import redrive_name
from queuey.sqs.actions.queues import change_attributes, sources_of
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
_OPEN = ("RUNNING", "CANCELLING")

Move = Mapping[str, Any]
"""``id``, ``started`` in milliseconds, ``arn``, ``queues`` (the names of the sources), what was asked for; once it has
ended also ``status``, ``moved`` and ``reason``."""


async def start_message_move_task(asked: SqsRequest) -> Mapping[str, Any]:
    """Begin to move the dead letters that a queue has now."""
    values, arn = asked.values, asked.values["SourceArn"]
    dead = await _queue(asked, "SourceArn", arn)
    sources = [source async for source in sources_of(asked, dead)]
    if not sources:
        raise invalid_parameter("Source queue must be configured as a Dead Letter Queue.")
    rate = values.get("MaxNumberOfMessagesPerSecond")
    destination = values.get("DestinationArn")
    target = None if destination is None else await _queue(asked, "DestinationArn", destination)
    moves = [await _as_now(asked, move) for move in attributes_of(dead).moves]
    if any(move["status"] in _OPEN for move in moves):
        raise _running()
    wanted: dict[str, Any] = {"from": dead.name, "match": {}, "rate": (rate or 0) / len(sources)}
    if target is not None:
        wanted["queue"] = target.name
    for source in sources:
        try:
            await asked.service.tasks.redrive(source, GROUP, wanted)
        except TaskRunning:
            raise _running() from None
    move = {
        "id": str(uuid4()),
        "started": unix_ms(asked.now_ticks),
        "arn": arn,
        "destination": destination,
        "rate": rate,
        "queues": [source.name for source in sources],
    }
    kept = moves[: _MOST_KEPT - 1]

    def change(before: QueueAttributes) -> QueueAttributes:
        return replace(before, moves=[move, *kept])

    await change_attributes(asked, dead, change)
    return {"TaskHandle": _handle(move)}


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
    for move in attributes_of(dead).moves:
        now = await _as_now(asked, move)
        if move["id"] == wanted and now["status"] == "RUNNING":
            for name in move["queues"]:
                source = await asked.service.queues.find(dead.application, name)
                if source is not None:
                    await asked.service.tasks.cancel(source, redrive_name(GROUP))
            return {"ApproximateNumberOfMessagesMoved": now["moved"]}
    raise SqsError("ResourceNotFoundException", "Task does not exist.")


async def list_message_move_tasks(asked: SqsRequest) -> Mapping[str, Any]:
    """The last move tasks of a queue, the newest first."""
    most = asked.values.get("MaxResults", 1)
    dead = await _queue(asked, "SourceArn", asked.values["SourceArn"])
    moves = [await _as_now(asked, move) for move in attributes_of(dead).moves[:most]]
    return {"Results": [_shown(move) for move in moves]}


def _shown(move: Move) -> dict[str, Any]:
    found = {
        "Status": move["status"],
        "SourceArn": move["arn"],
        "ApproximateNumberOfMessagesMoved": move["moved"],
        "StartedTimestamp": move["started"],
    }
    if move["status"] == "RUNNING":
        found["TaskHandle"] = _handle(move)
    if "total" in move:
        found["ApproximateNumberOfMessagesToMove"] = move["total"]
    if move.get("destination") is not None:
        found["DestinationArn"] = move["destination"]
    if move.get("rate") is not None:
        found["MaxNumberOfMessagesPerSecond"] = move["rate"]
    if move.get("reason"):
        found["FailureReason"] = move["reason"]
    return found


async def _as_now(asked: SqsRequest, move: Move) -> Move:
    """A move task with its status now."""
    if "status" in move:
        return move
    tasks: list[StoredTask] = []
    for name in move["queues"]:
        source = await asked.service.queues.find(asked.application, name)
        if source is not None:
            try:
                found = await asked.service.tasks.find(source, redrive_name(GROUP))
            except TaskNotFound:
                continue
            if unix_ms(found.started) <= move["started"]:
                tasks.append(found)
    status, reason = _status(tasks)
    now: dict[str, Any] = {**move, "status": status, "moved": sum([task.done for task in tasks])}
    if status in _OPEN:
        now["total"] = max([task.total for task in tasks], default=0)
    if reason:
        now["reason"] = reason if await _has_destination(asked, move) else CODES["QueueDoesNotExist"][0]
    return now


async def _has_destination(asked: SqsRequest, move: Move) -> bool:
    """Whether letters can go where they were to go; without a destination each has its own."""
    place = None if move["destination"] is None else parse_arn(move["destination"])
    return place is None or await asked.service.queues.find(asked.application, place[1]) is not None


def _status(tasks: Sequence[StoredTask]) -> tuple[str, str]:
    """The status of all of them together, and why one failed."""
    for state in (TaskState.RUNNING, TaskState.CANCELLING, TaskState.FAILED, TaskState.CANCELLED):
        for task in tasks:
            if task.state is state:
                return _WORDS[state], task.reason if state is TaskState.FAILED else ""
    return _WORDS[TaskState.DONE], ""


async def _queue(asked: SqsRequest, name: str, arn: str) -> Queue:
    """A queue of the caller by its ARN."""
    place = parse_arn(arn)
    if place is None:
        raise invalid_parameter(f"Value {shown(arn)} for parameter {name} is invalid. Reason: it is no ARN of a queue.")
    found = None
    if asked.service.keys.application_of_account(place[0]) == asked.application:
        found = await asked.service.queues.find(asked.application, place[1])
    if found is None:
        text = f"The resource that you specified for the {name} parameter doesn't exist."
        raise SqsError("ResourceNotFoundException", text)
    return await asked.named(Permission.CONFIGURE, asked.application, found.name)
