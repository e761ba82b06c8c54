"""The hooks that settings of 2012 name (queuey-api-v1 13.1)."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from qdo.client import Client, NewMessage
from queuey.errors import KeyReused, MessageTooLarge
from queuey.model.dead_letters import DEAD_LETTER_SECONDS

__all__ = ["ERROR_QUEUE", "dict_context", "log_failure", "save_failed_message"]

ERROR_QUEUE = "qdo_error"
_BODY = ("body", "encoding")

log = logging.getLogger(__name__)


@contextmanager
def dict_context() -> Iterator[dict[str, Any]]:
    """A ``job_context``: an empty dict for the life of the process."""
    yield {}


def log_failure(message: Mapping[str, Any], context: Any, queue: str, exc: BaseException, queuey_conn: Client) -> None:
    """A ``job_failure``: log a line, without the body.

    :param queue: ``<queue>-<partition>``.
    """
    log.error("message %s in %s failed", message["message_id"], queue, exc_info=exc)


def save_failed_message(
    message: Mapping[str, Any], context: Any, queue: str, exc: BaseException, queuey_conn: Client
) -> None:
    """A ``job_failure``: store the message as JSON in :data:`ERROR_QUEUE`.

    It is stored with its queue for 30 days.

    Where the server takes no JSON of that size, the body is left out. The message itself stays in its queue until its TTL.

    :param queue: ``<queue>-<partition>``.
    """
    entry = {**message, "queue": queue}
    once = f"error-{message['message_id']}-{queue}"
    try:
        _save(queuey_conn, entry, once)
    except MessageTooLarge:
        _save(queuey_conn, {name: value for name, value in entry.items() if name not in _BODY}, once)


def _save(client: Client, entry: Mapping[str, Any], once: str) -> None:
    with suppress(KeyReused):  # then it is stored already
        client.append(ERROR_QUEUE, NewMessage(json.dumps(entry), ttl_seconds=DEAD_LETTER_SECONDS, idempotency_key=once))
