"""Messages for one lease group alone: the others pass them over.

A dead letter goes back to a queue as a new message. The group that gave it up shall try it again, and other groups, which
are done with it, shall not see it a second time. So the message says in a header for which group it is. To the other
groups it is as if it were not there; readers read it.
"""

from __future__ import annotations

from collections.abc import Mapping

from queuey.model.columns import Columns, size_of_headers
from queuey.model.headers import decode_headers

__all__ = ["ONLY_GROUP_HEADER", "for_group", "only_for"]

ONLY_GROUP_HEADER = "queuey-only-group"
"""The header with the name of the group. Names of HTTP headers come in lower case."""
_MARK = ONLY_GROUP_HEADER.encode()


def only_for(headers: Mapping[str, bytes], group: str) -> dict[str, bytes]:
    """Headers of a message that no other lease group gets."""
    return {**headers, ONLY_GROUP_HEADER: group.encode()}


def for_group(found: Columns, group: str) -> Columns:
    """Those of some messages that a group gets: mostly all of them."""
    headers = found.headers
    if not size_of_headers(headers) or not any(one is not None and _MARK in one for one in headers):
        return found
    return Columns.of([message for message in found if _is_for(message.headers, group)])


def _is_for(headers: bytes | None, group: str) -> bool:
    if headers is None or _MARK not in headers:
        return True
    wanted = decode_headers(headers).get(ONLY_GROUP_HEADER)
    return wanted is None or wanted == group.encode()
