"""Messages for one lease group alone: the others pass them over.

A dead letter goes back to a queue as a new message. The group that gave it up shall try it again, and other groups, which
are done with it, shall not see it a second time. So the message says in a header for which group it is. To the other
groups it is as if it were not there; readers read it.

If it becomes a dead letter again, the letter has the header too: it says for which group the message was. All groups of
the dead-letter queue get the letter.
"""

from __future__ import annotations

from collections.abc import Mapping

from queuey.model.columns import Columns, size_of_headers
from queuey.model.dead_letters import STORY_HEADER
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
    if not size_of_headers(headers):
        return found
    for_others = {one for one in {*headers} if one is not None and _MARK in one and not _is_for(one, group)}
    if not for_others:
        return found
    return Columns.of([found[at] for at, one in enumerate(headers) if one not in for_others])


def _is_for(headers: bytes, group: str) -> bool:
    known = decode_headers(headers)
    return known.get(ONLY_GROUP_HEADER) in (None, group.encode()) or STORY_HEADER in known
