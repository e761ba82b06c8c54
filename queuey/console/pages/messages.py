"""Messages of a queue, from any place, without consuming them."""

from __future__ import annotations

import shlex
from base64 import b64decode
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from queuey.console.pages.page import ConsolePage, PageAnswer, address, goes_to
from queuey.console.pages.stories import story_in
from queuey.console.pages.told import told
from queuey.console.pages.whereabouts import MOST_GROUPS, whereabouts
from queuey.console.pages.workers import failure_of
from queuey.console.shown import body_of, image_type
from queuey.console.visits import Visit
from queuey.errors import MessageNotFound, NotFound
from queuey.http.addresses import scheme_of
from queuey.ids import MessageId
from queuey.model.dead_letters import REDRIVEN_HEADER
from queuey.model.trace_context import TRACEPARENT, trace_id

__all__ = ["PAGES", "fetch", "one_place", "read_page", "rows_of", "with_bodies"]

_PLACES = "partition,message_id,timestamp"
"""Pages are put together without bodies: those of 50 messages are read, and no others."""
ROWS = 50
"""Messages on a page."""
MOST_PLACES = 1_000
"""Ids that a page is chosen from, of all partitions together."""
LEAST_ROWS = 5
"""Messages of each partition that a page reads, however many partitions there are."""
LINE_CHARACTERS = 4_000
"""Characters of a body in a list."""
WHOLE_CHARACTERS = 200_000
"""Characters of a body on the message's own page."""


def show(visit: Visit, application: str, queue: str) -> PageAnswer:
    """Messages from the newest on, the oldest on, or a time or an id."""
    place = visit.query.get("from", "newest")
    at, partition = visit.moment(visit.query.get("at")), visit.query.get("partition", "").strip() or None
    newest_first = place == "newest" or (place == "at" and visit.query.get("order") == "descending")
    rows, following = read_page(visit, application, queue, at, partition, newest_first=newest_first)
    more = None
    if following:
        order = "descending" if newest_first else "ascending"
        more = address(
            "a",
            application,
            queue,
            "messages",
            **{"from": "at", "at": following, "partition": partition, "order": order},
        )
    visit.in_shell_of(
        application,
        "queuey",
        "get",
        queue,
        *(("--until" if newest_first else "--since", at) if at else ()),
        *(("--last", str(ROWS)) if newest_first else ()),
        *(("--partitions", partition) if partition else ()),
    )
    values: dict[str, Any] = {"application": application, "queue": queue, "rows": rows, "more": more, "place": place}
    return PageAnswer("messages.html", {**values, "at": at, "partition": partition, "newest_first": newest_first})


def read_page(
    visit: Visit, application: str, queue: str, at: str | None, partition: str | None, *, newest_first: bool
) -> tuple[Sequence[dict[str, Any]], str | None]:
    """A page of messages of all partitions, merged by their ids.

    :param at: where it begins, inclusive: a message id, or decimal seconds.
    :returns: the messages, and the id at which the next page begins; None at the end.
    """
    survey = None if partition else visit.may(application, queue, survey="true", partitions="1")
    partitions = 1 if survey is None else int(survey.content["partitions"])
    each = max(min(ROWS, MOST_PLACES // partitions), LEAST_ROWS) + 1
    answer = visit.ask(
        application,
        queue,
        limit=each,
        order="descending" if newest_first else "ascending",
        since=at,
        partitions=partition or "all",
        columns=_PLACES,
    )
    found = sorted(answer.content["messages"], key=lambda entry: MessageId.parse(entry["message_id"]))
    if newest_first:
        found.reverse()
    shown = found[: _complete(found, each)]
    page = shown[:ROWS]
    is_cut = len(page) < len(found) or each in Counter(entry["partition"] for entry in found).values()
    following = None
    if is_cut and page:
        following = shown[ROWS]["message_id"] if len(shown) > ROWS else page[-1]["message_id"]
    return rows_of(with_bodies(visit, application, queue, page)), following


def with_bodies(
    visit: Visit, application: str, queue: str, page: Sequence[Mapping[str, Any]]
) -> Sequence[dict[str, Any]]:
    """The messages of a page, as far as one answer has room for their bodies; the others have ``left_out``."""
    places = [f"{entry['partition']}:{entry['message_id']}" for entry in page]
    found = visit.ask(application, queue, ",".join(places)).content["messages"] if places else []
    known = {f"{entry['partition']}:{entry['message_id']}": entry for entry in found}
    return [{**entry, **known.get(place, {"left_out": True})} for place, entry in zip(places, page, strict=True)]


def _complete(found: Sequence[Mapping[str, Any]], each: int) -> int:
    """How many of the merged messages are sure to have no other between them.

    A partition that gave as many as it may can have more behind its last one.
    """
    counts: dict[int, int] = {}
    for number, entry in enumerate(found, 1):
        counts[entry["partition"]] = counts.get(entry["partition"], 0) + 1
        if counts[entry["partition"]] == each:
            return number
    return len(found)


def rows_of(entries: Sequence[Mapping[str, Any]], most: int = LINE_CHARACTERS) -> Sequence[dict[str, Any]]:
    """Entries of v1, with their bodies as pages show them."""
    return [{**entry, "shown": body_of(entry, most)} for entry in entries]


def message(visit: Visit, application: str, queue: str, place: str) -> PageAnswer:
    """One message by partition and id, and what lease groups hold of it."""
    entry = fetch(visit, application, queue, place)
    (row,) = rows_of([entry], WHOLE_CHARACTERS)
    visit.in_shell_of(
        application, "queuey", "get", queue, "--since", entry["message_id"], "--until", entry["message_id"]
    )
    visit.in_shell_of(application, "queuey", "rm", queue, place)
    values: dict[str, Any] = {"application": application, "queue": queue, "row": row, "place": place}
    values |= {"story": story_in(entry), "origin_story": story_in(entry, REDRIVEN_HEADER)}
    groups, are_all = whereabouts(visit, application, queue, entry)
    values["most_groups"] = None if are_all else MOST_GROUPS
    failed = any(one["held"] and one["held"]["failures"] for one in groups)
    values |= {"groups": groups, "failure": failure_of(visit, application, entry) if failed else None}
    parent = entry.get("headers", {}).get(TRACEPARENT)
    values["trace"] = trace_id(parent) if isinstance(parent, str) else None
    return PageAnswer("message.html", {**values, **_copies(visit, application, queue, place), "told": told(visit)})


def fetch(visit: Visit, application: str, queue: str, place: str) -> dict[str, Any]:
    """The message at a place.

    :raises MessageNotFound: there is none.
    :raises NotFound: as :func:`one_place`.
    """
    one_place(place)
    found: list[dict[str, Any]] = visit.ask(application, queue, place).content["messages"]
    if not found:
        raise MessageNotFound
    return found[0]


def one_place(text: str) -> str:
    """The place of one message, by its id, with or without its partition.

    :raises NotFound: it is none. v1 has other things than messages at such places, and removes all messages at one.
    """
    partition, colon, message_id = text.rpartition(":")
    try:
        MessageId.parse(message_id)
    except ValueError:
        raise NotFound from None
    if colon and not partition.isdecimal():  # such as another message and a comma
        raise NotFound
    return text


def _copies(visit: Visit, application: str, queue: str, place: str) -> dict[str, str]:
    """The call that reads the message, for a shell and for Python."""
    host = visit.call.headers.get("host", "")
    scheme = scheme_of(visit.call.headers.get("x-forwarded-proto", ""))
    site = f"{scheme}://{host}" if host and all(sign.isalnum() or sign in ".:[]-" for sign in host) else "$QUEUEY_URL"
    target = f"{site}/v1/{application}/{queue}/{place}"
    python = (
        "from qdo.client import Client\n\n"
        f'with Client("{site}", "{application}", key) as client:\n'
        f'    print(client.get("{queue}", "{place}"))'
    )
    return {"curl": f'curl -H "Authorization: Application $QUEUEY_KEY" {shlex.quote(target)}', "python": python}


def picture(visit: Visit, application: str, queue: str, place: str) -> PageAnswer:
    """The body of a message that is a picture. Its first bytes decide that, whatever its content type says."""
    entry = fetch(visit, application, queue, place)
    data = b64decode(entry["body"]) if entry.get("encoding") == "base64" else b""
    media_type = image_type(data)
    if media_type is None:
        raise NotFound("This message is no picture.")
    policy = ("content-security-policy", "default-src 'none'; frame-ancestors 'none'; sandbox")
    return PageAnswer(raw=data, media_type=media_type, headers=[policy])


def delete(visit: Visit, application: str, queue: str, place: str) -> PageAnswer:
    """Delete the message."""
    visit.change("DELETE", [application, queue, one_place(place)])
    return goes_to("a", application, queue, told="deleted")


_QUEUE = "/console/a/{application}/{queue}"
PAGES = (
    ConsolePage(f"{_QUEUE}/messages", show),
    ConsolePage(f"{_QUEUE}/m/{{place}}", message),
    ConsolePage(f"{_QUEUE}/m/{{place}}", delete, "POST"),
    ConsolePage(f"{_QUEUE}/picture/{{place}}", picture),
)
