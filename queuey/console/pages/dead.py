"""Dead letters of a lease group: why they died, and the way back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from queuey.console.pages.messages import read_page
from queuey.console.pages.page import ConsolePage, PageAnswer, goes_to
from queuey.console.pages.stories import story_in
from queuey.console.pages.told import end_of, told
from queuey.console.visits import Visit
from queuey.errors import InvalidParameter, QueueNotFound
from queuey.ids import format_timestamp, parse_timestamp

__all__ = ["PAGES"]

_FILTER = ("reason", "key", "header", "since", "until")
_OPTIONS = (*_FILTER, "rate")
MOST_REASONS = 10
REASON_CHARACTERS = 120
"""Of a reason, in the list of them."""


def show(visit: Visit, application: str, queue: str, group: str) -> PageAnswer:
    """The newest letters, their reasons, and the last redrive."""
    settings = visit.ask(application, queue, "leases", group).content["settings"]
    letters = settings["dead_letter_queue"]
    task = visit.may(application, queue, "leases", group, "redrive")
    wanted, at = visit.query.get("reason", ""), visit.moment(visit.query.get("at"))
    try:
        rows, following = read_page(visit, application, letters, at, None, newest_first=True)
    except QueueNotFound:  # it is made with the first dead letter
        rows, following = [], None
    # Without its headers a letter is none. The next page begins with the first one that this one has no room for.
    cut = next((number for number, row in enumerate(rows) if number and "left_out" in row), None)
    if cut is not None:
        rows, following = rows[:cut], rows[cut]["message_id"]
    known = [{**row, "story": story} for row in rows if (story := story_in(row)) and _is_of(story, queue, group)]
    reasons = Counter(_beginning(str(row["story"].get("reason", ""))) for row in known)
    visit.in_shell_of(application, "queuey", "redrive", queue, group, "--status")
    visit.in_shell_of(application, "queuey", "redrive", queue, group, "--cancel")
    visit.in_shell_of(application, "queuey", "redrive", queue, group, "--dry-run")
    values: dict[str, Any] = {"application": application, "queue": queue, "group": group, "letters": letters}
    values |= {
        "rows": [row for row in known if wanted in str(row["story"].get("reason", ""))],
        "reasons": reasons.most_common(MOST_REASONS),
        "looked": len(rows),
        "reason": wanted,
        "at": at,
        "following": following,
        "task": None if task is None else task.content["task"],
    }
    return PageAnswer("dead.html", {**values, "told": told(visit)})


def _beginning(reason: str) -> str:
    """What stands for a reason in an address, and finds it again: a part of it as it is."""
    return next(iter(reason.splitlines()), "")[:REASON_CHARACTERS]


def _is_of(story: Mapping[str, Any], queue: str, group: str) -> bool:
    return story.get("queue") == queue and story.get("group") == group


def preview(visit: Visit, application: str, queue: str, group: str) -> PageAnswer:
    """How many letters a redrive would move; none is moved."""
    document = _document(visit)
    found = visit.preview("POST", [application, queue, "leases", group, "redrive"], document).content
    options = [word for name in _OPTIONS if name in visit.form for word in (f"--{name}", visit.form[name])]
    visit.in_shell_of(
        application, "queuey", "redrive", queue, group, *options, "--group-only" if "group_only" in visit.form else ""
    )
    kept = {name: text for name, text in visit.form.items() if name in (*_FILTER, "one", "rate", "group_only")}
    # As moments: "10m" would be another one by the time that the letters are moved.
    kept |= {name: document["filter"][name] for name in ("since", "until") if name in kept}
    values = {"application": application, "queue": queue, "group": group, "found": found, "kept": kept}
    return PageAnswer("redrive.html", values)


def retry(visit: Visit, application: str, queue: str, group: str) -> PageAnswer:
    """Move the letters that the form names."""
    visit.change("POST", [application, queue, "leases", group, "redrive"], document=_document(visit))
    return goes_to("a", application, queue, "l", group, "dead", told="redriving")


def cancel(visit: Visit, application: str, queue: str, group: str) -> PageAnswer:
    """Let the redrive stop."""
    left = visit.change("DELETE", [application, queue, "leases", group, "redrive"])
    return goes_to("a", application, queue, "l", group, "dead", told=end_of(left.content["task"]))


def _document(visit: Visit) -> dict[str, Any]:
    """What a redrive is asked for.

    :raises InvalidParameter: the rate is no number, the header has no name, or the one letter has no time.
    """
    form = visit.form
    chosen: dict[str, Any] = {name: form[name] for name in ("reason", "key") if name in form}
    chosen |= {name: visit.moment(form[name]) or "" for name in ("since", "until") if name in form}
    if "header" in form:
        name, colon, value = form["header"].partition(":")
        if not (colon and name.strip()):
            raise InvalidParameter(problems={"header": "must have the form name: value"})
        chosen["headers"] = {name.strip(): value.strip()}
    document: dict[str, Any] = {}
    if "one" in form:
        try:
            began = parse_timestamp(form["one"])
        except ValueError as error:
            raise InvalidParameter(problems={"one": "must be the time of a letter"}) from error
        chosen |= {"since": format_timestamp(began), "until": format_timestamp(began + 1)}
    if "rate" in form:
        document["rate"] = visit.number("rate", "a number of letters a second")
    if chosen:
        document["filter"] = chosen
    if form.get("group_only"):
        document["group_only"] = True
    return document


_GROUP = "/console/a/{application}/{queue}/l/{group}/dead"
PAGES = (
    ConsolePage(_GROUP, show),
    ConsolePage(f"{_GROUP}/preview", preview, "POST"),
    ConsolePage(f"{_GROUP}/retry", retry, "POST"),
    ConsolePage(f"{_GROUP}/cancel", cancel, "POST"),
)
