"""The job: it names the crash of a report."""

from __future__ import annotations

import json
import logging
import os
import re
import threading

from qdo import Client, Context, Message, NewMessage

log = logging.getLogger(__name__)

PROCESSED = "crashes.processed"
_NOT_AT_FAULT = re.compile(r"raise|abort|mozalloc_.*|operator new")
_FRAMES = 3
_local = threading.local()


def process(message: Message, context: Context) -> None:
    """Append a report's signature to :data:`PROCESSED`. A job that runs again appends nothing twice.

    The result is the same each time, so the server knows a repeat by its key. It does not say who did the job, or when.

    :raises ValueError: the message is no report.
    """
    report = json.loads(message.body)
    result = {"number": report["number"], "product": report["product"], "signature": signature(report["frames"])}
    once = f"{message.partition}-{message.id.hex}"
    if client().append(PROCESSED, NewMessage(json.dumps(result), idempotency_key=once)).repeated:
        log.warning("report %d had been processed by a worker that could not record it", report["number"])


def signature(frames: list[dict[str, str]]) -> str:
    """The first functions of the stack that tell something about the fault.

    >>> signature([{"function": "abort"}, {"function": "dom::Paint"}, {"function": "js::Send"}])
    'dom::Paint | js::Send'
    """
    functions = [frame["function"] for frame in frames]
    return " | ".join([name for name in functions if not _NOT_AT_FAULT.fullmatch(name)][:_FRAMES])


def client() -> Client:
    """The client of this thread, for the server that the worker reads from."""
    found: Client | None = getattr(_local, "client", None)
    if found is None:
        url = os.environ.get("QUEUEY_URL", "http://127.0.0.1:5000")
        application = os.environ.get("QUEUEY_APPLICATION", "demo")
        found = _local.client = Client(url, application, os.environ.get("QUEUEY_KEY"))
    return found
