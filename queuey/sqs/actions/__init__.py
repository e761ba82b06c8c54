"""What each action of SQS does, by its name."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from queuey.sqs.actions import move_tasks, permissions, purging, queues, receiving, sending
from queuey.sqs.request import SqsRequest

__all__ = ["FUNCTIONS", "Function"]

Function = Callable[[SqsRequest], Coroutine[Any, None, Mapping[str, Any]]]
"""Carries out a request, and returns the members of its answer."""

FUNCTIONS: Mapping[str, Function] = {
    "AddPermission": permissions.add_permission,
    "CancelMessageMoveTask": move_tasks.cancel_message_move_task,
    "ChangeMessageVisibility": receiving.change_message_visibility,
    "ChangeMessageVisibilityBatch": receiving.change_message_visibility_batch,
    "CreateQueue": queues.create_queue,
    "DeleteMessage": receiving.delete_message,
    "DeleteMessageBatch": receiving.delete_message_batch,
    "DeleteQueue": queues.delete_queue,
    "GetQueueAttributes": queues.get_queue_attributes,
    "GetQueueUrl": queues.get_queue_url,
    "ListDeadLetterSourceQueues": queues.list_dead_letter_source_queues,
    "ListMessageMoveTasks": move_tasks.list_message_move_tasks,
    "ListQueueTags": queues.list_queue_tags,
    "ListQueues": queues.list_queues,
    "PurgeQueue": purging.purge_queue,
    "ReceiveMessage": receiving.receive_message,
    "RemovePermission": permissions.remove_permission,
    "SendMessage": sending.send_message,
    "SendMessageBatch": sending.send_message_batch,
    "SetQueueAttributes": queues.set_queue_attributes,
    "StartMessageMoveTask": move_tasks.start_message_move_task,
    "TagQueue": queues.tag_queue,
    "UntagQueue": queues.untag_queue,
}
"""All 23 actions."""
