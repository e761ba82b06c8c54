"""Conditions on the settings of a queue: their ETag, and If-Match (RFC 9110, 8.8.3 and 13.1.1)."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable

import orjson

from queuey.model import Queue

__all__ = ["if_match", "settings_tag"]

_TAG = r'(?:W/)?"[\x21\x23-\x7e]*"'
_TAGS = re.compile(rf"[ \t,]*{_TAG}(?:[ \t]*,[ \t,]*{_TAG})*[ \t,]*")
_EACH_TAG = re.compile(_TAG)
MAX_TAGS = 4096
"""Characters of an If-Match header."""


def settings_tag(queue: Queue) -> str:
    """The ETag of a queue's settings.

    It is of this incarnation, and of what v1 changes: neither the messages nor the attributes of the SQS door count. It is a
    strong one, since If-Match compares no others.
    """
    settings = (
        queue.uuid.hex,
        queue.partitions,
        queue.kind,
        queue.consistency,
        queue.retention,
        queue.principals,
        queue.leases.text,
    )
    return f'"{hashlib.sha256(orjson.dumps(settings)).hexdigest()[:32]}"'


def if_match(text: str) -> Callable[[Queue], bool]:
    """What an If-Match header asks of a queue that exists.

    ``*`` asks for nothing more. A weak tag is never equal to a strong one.

    :raises ValueError: it is neither ``*`` nor a list of tags.
    """
    if text.strip(" \t") == "*":
        return lambda _: True
    if len(text) > MAX_TAGS or not _TAGS.fullmatch(text):
        raise ValueError('expected * or the ETag of the settings, such as "5d41402abc4b2a76b9719d911017c592"')
    tags = frozenset(_EACH_TAG.findall(text))
    return lambda queue: settings_tag(queue) in tags
