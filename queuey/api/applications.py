"""The applications of a server, for its operators."""

from __future__ import annotations

from bisect import bisect_left

from queuey.api.params import Problems, integer
from queuey.api.queues import next_link
from queuey.http.exchange import Answer, Call, Target, json_answer
from queuey.service import Service

_PAGE = 1000


async def list_applications(service: Service, call: Call, target: Target) -> Answer:
    """The applications that have a key, by name.

    An application that has queues but no key is not listed: no path leads to it. Keys are in memory, so listing does
    not read the store.
    """
    query, problems = call.query, Problems()
    limit = problems.take("limit", integer(1, _PAGE), query.get("limit"), _PAGE)
    problems.check()
    names = service.keys.applications
    first = bisect_left(names, query.get("offset", ""))
    page, rest = names[first : first + limit], names[first + limit :]
    listed = [{"application": name} for name in page]
    return json_answer({"status": "ok", "applications": listed}, headers=next_link(call, rest[0] if rest else None))
