"""How a task stands in a message. Any language can write it; docs/tasks.md describes it.

The body is a JSON object: arguments by name. Headers say the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from qdo.client.values import Message, NewMessage
from queuey.model.headers import header_in_any_case
from queuey.model.schedules import TASK_HEADER

__all__ = [
    "JSON",
    "NAME",
    "NO_JSON",
    "RESULTS",
    "RESULT_OF",
    "ROOT",
    "STATUS",
    "THEN",
    "NextStep",
    "header",
    "new_task",
    "next_steps",
    "root_of",
]

JSON = "application/json"
NO_JSON = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What :func:`msgspec.json.decode` raises: also of text that is no UTF-8, and of what is nested too deeply."""
NAME = TASK_HEADER
RESULTS = "queuey-task-results"
"""The queue for the result. Without it none is stored."""
THEN = "queuey-task-then"
"""The steps that follow: a JSON list of :class:`NextStep`."""
ROOT = "queuey-task-root"
"""In a later step of a chain: the id of its first step."""
RESULT_OF = "queuey-task-result"
"""In a result: the id of the task, or of the first step of its chain."""
STATUS = "queuey-task-status"
"""In a result: ``done``, and the body is the value; or ``failed``, and the body is ``{"reason": ...}``."""


@dataclass(frozen=True, slots=True)
class NextStep:
    """A task that follows another one."""

    task: str
    queue: str
    arguments: Mapping[str, Any]
    into: str | None = None
    """The parameter that gets the value of the step before; None for none."""


def header(message: Message, name: str) -> str | None:
    """A header as text."""
    value = header_in_any_case(message.headers, name)
    return None if value is None else value.decode("utf-8", "replace")


def next_steps(message: Message) -> list[NextStep]:
    """The steps that follow a message's task.

    :raises Exception: one of :data:`NO_JSON`: the header is no list of steps.
    """
    value = header_in_any_case(message.headers, THEN)
    return [] if value is None else msgspec.json.decode(value, type=list[NextStep])


def root_of(queue: str, message: Message) -> str:
    """The id under which the result of a message's task, or of its chain, is stored."""
    return header(message, ROOT) or f"{queue}/{message.partition}:{message.id.hex}"


def new_task(name: str, body: bytes, headers: Mapping[str, str | bytes | None], **more: Any) -> NewMessage:
    """The message of a task."""
    given = {key: value for key, value in headers.items() if value is not None}
    return NewMessage(body, content_type=JSON, headers={NAME: name, **given}, **more)
