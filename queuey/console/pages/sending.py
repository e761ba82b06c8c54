"""Sending one message, now or at a later time."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from typing import Any

import orjson

from queuey.console.pages.page import ConsolePage, PageAnswer, goes_to
from queuey.console.visits import Visit
from queuey.errors import InvalidParameter, QueueyError
from queuey.http.exchange import BATCH_JSON

__all__ = ["PAGES", "digest_of", "entry_of", "new_once", "once_of", "send_again"]

_NUMBERS = ("partition", "ttl")
MOST_DIGITS = 18
"""Of a number in a form: JSON takes no larger ones."""
_TEXTS = ("key", "content_type", "idempotency_key")


def form(visit: Visit, application: str, queue: str) -> PageAnswer:
    """The form for a message."""
    visit.in_shell_of(application, "queuey", "put", queue, "hello", "--delay", "10m")
    return PageAnswer("send.html", {"application": application, "queue": queue, "once": new_once()})


def new_once() -> str:
    """What names a form, so that a second click sends nothing twice."""
    return secrets.token_urlsafe(12)


def once_of(visit: Visit, *parts: Any) -> Mapping[str, str]:
    """The idempotency key of what a form sends; none if the form has no name."""
    digest = digest_of(visit, *parts)
    return {} if digest is None else {"idempotency_key": f"console-{digest}"}


def digest_of(visit: Visit, *parts: Any) -> str | None:
    """What names what a form sends, in hexadecimal; None if the form has no name.

    It depends on what is sent: a form that is filled in anew sends something else.
    """
    if "once" not in visit.form:
        return None
    return hashlib.sha256(orjson.dumps([visit.form["once"], *parts])).hexdigest()


def send(visit: Visit, application: str, queue: str) -> PageAnswer:
    """Store the message of the form."""
    entry = entry_of(visit)
    document = {"messages": [{**once_of(visit, entry), **entry}]}
    stored = visit.change("POST", [application, queue], document=document, headers={"content-type": BATCH_JSON})
    (entry,) = stored.content["messages"]
    return goes_to("a", application, queue, "m", f"{entry['partition']}:{entry['key']}", told="sent")


def send_again(
    visit: Visit, application: str, queue: str, entry: Mapping[str, Any], once: str, instead_of: tuple[str, str]
) -> PageAnswer:
    """Store a message, delete another one in whose place it is, and show it.

    If the server stops in between, or refuses to delete the other one, that is still there. Sent again with the same text,
    the message is not stored twice.

    :param once: names this message within a day.
    :param instead_of: the queue and the place of the other one.
    """
    document = {"messages": [{**entry, "idempotency_key": once}]}
    stored = visit.change("POST", [application, queue], document=document, headers={"content-type": BATCH_JSON})
    said = "sent"
    try:
        visit.change("DELETE", [application, *instead_of])
    except QueueyError:
        said = "sent-beside"
    (one,) = stored.content["messages"]
    return goes_to("a", application, queue, "m", f"{one['partition']}:{one['key']}", told=said)


def entry_of(visit: Visit) -> dict[str, Any]:
    """The message of a form, as v1 takes it in a batch.

    :raises InvalidParameter: a number is none, or a header is no line of a name and a value, or there twice.
    """
    given = visit.form
    entry: dict[str, Any] = {"body": given.get("body", "").replace("\r\n", "\n")}
    entry |= {name: given[name] for name in _TEXTS if name in given}
    for name in _NUMBERS:
        if name in given:
            if not (given[name].strip().isdecimal() and len(given[name]) <= MOST_DIGITS):
                raise InvalidParameter(
                    problems={name: f"must be a plain decimal number of at most {MOST_DIGITS} digits"}
                )
            entry[name] = int(given[name])
    if "delay" in given:
        entry["delay"] = visit.number("delay", "a number of seconds")
    headers = [line.partition(":") for line in given.get("headers", "").splitlines() if line.strip()]
    if any(not colon or not name.strip() for name, colon, _ in headers):
        raise InvalidParameter(problems={"headers": "must be lines of the form name: value"})
    if headers:
        entry["headers"] = {name.strip(): value.strip() for name, _, value in headers}
        if len(entry["headers"]) < len(headers):
            raise InvalidParameter(problems={"headers": "has a name twice; a message has one value for each"})
    return entry


PAGES = (
    ConsolePage("/console/a/{application}/{queue}/send", form),
    ConsolePage("/console/a/{application}/{queue}/send", send, "POST"),
)
