"""What offset groups and lease groups have in common: their names in the path, and the pages of their names."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from queuey.api.params import Problems, group_name, integer
from queuey.api.queues import next_link
from queuey.errors import InvalidParameter
from queuey.future import Future
from queuey.http.exchange import Answer, Call, json_answer

__all__ = ["MAX_GROUPS", "group_of", "groups_page"]

MAX_GROUPS = 1000
"""Groups in one page."""


def group_of(call: Call) -> str:
    """The group that the path names.

    :raises InvalidParameter: it is no name of a group.
    """
    try:
        return group_name(call.below)
    except ValueError as error:
        raise InvalidParameter(problems={"group": str(error)}) from error


async def groups_page(call: Call, names: Callable[[str, int], Future[Sequence[str]]]) -> Answer:
    """One page of groups by name.

    :param names: gives up to a number of names, from a name on.
    """
    query, problems = call.query, Problems()
    limit = problems.take("limit", integer(1, MAX_GROUPS), query.get("limit"), MAX_GROUPS)
    problems.check()
    found = await names(query.get("offset", ""), limit + 1)
    following = found[limit] if len(found) > limit else None
    return json_answer(
        {"status": "ok", "groups": [{"group": name} for name in found[:limit]]}, headers=next_link(call, following)
    )
