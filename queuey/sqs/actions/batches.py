"""What all batches have in common."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from queuey.errors import QueueyError
from queuey.sqs.errors import SqsError, as_sqs, shown

__all__ = ["MAX_ENTRIES", "check_entries", "failed"]

MAX_ENTRIES = 10
_ID = re.compile(r"[A-Za-z0-9_-]{1,80}")


def check_entries(entries: Sequence[Mapping[str, Any]], name: str) -> None:
    """:param name: what one entry is called.
    :raises SqsError: the whole batch is refused, and nothing of it is done.
    """
    if not entries:
        raise SqsError("EmptyBatchRequest", f"There should be at least one {name} in the request.")
    if len(entries) > MAX_ENTRIES:
        text = f"Maximum number of entries per request are {MAX_ENTRIES}. You have sent {len(entries)}."
        raise SqsError("TooManyEntriesInBatchRequest", text)
    ids = [entry.get("Id", "") for entry in entries]
    if not all(map(_ID.fullmatch, ids)):
        raise SqsError(
            "InvalidBatchEntryId",
            "A batch entry id can only contain alphanumeric characters, hyphens and underscores. It can be at most 80 "
            "letters long.",
        )
    if len({*ids}) < len(ids):
        repeated = next(id_ for at, id_ in enumerate(ids) if id_ in ids[:at])
        raise SqsError("BatchEntryIdsNotDistinct", f"Id {repeated} repeated.")


def failed(id_: str, error: QueueyError) -> dict[str, Any]:
    """An entry of ``Failed``."""
    said = as_sqs(error)
    return {"Id": id_, "SenderFault": said.status < 500, "Code": said.query_code, "Message": shown(str(said))}
