"""Which calls speak SQS.

This module loads nothing of SQS: it is asked about each call of the server.
"""

from __future__ import annotations

import re

from queuey.http.exchange import Call

__all__ = ["FORM", "TARGET", "is_sqs"]

TARGET = "AmazonSQS."
FORM = "application/x-www-form-urlencoded"
_QUEUE_PATH = re.compile(r"/[0-9]{12}/[^/]+/?")


def is_sqs(call: Call) -> bool:
    """By the header ``X-Amz-Target``; a form or an action at ``/``; or the path of a queue's URL."""
    target = call.headers.get("x-amz-target")
    if target is not None:
        return target.startswith(TARGET)
    if call.path == "/":
        return call.media_type == FORM or _has_parameter(call.query_string, "Action")
    return call.path[1:2].isdigit() and _QUEUE_PATH.fullmatch(call.path) is not None


def _has_parameter(text: str, name: str) -> bool:
    return text.startswith(f"{name}=") or f"&{name}=" in text
