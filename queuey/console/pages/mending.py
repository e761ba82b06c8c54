"""Editing a dead letter, and sending it again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from queuey.console.pages.messages import fetch
from queuey.console.pages.page import ConsolePage, PageAnswer
from queuey.console.pages.sending import entry_of, send_again
from queuey.console.pages.stories import story_in
from queuey.console.visits import Visit
from queuey.errors import InvalidParameter, NotFound
from queuey.model.dead_letters import ALONE_TYPE, REDRIVEN_HEADER, STORY_HEADER, story_of, with_origin

__all__ = ["PAGES"]


def form(visit: Visit, application: str, queue: str, group: str, place: str) -> PageAnswer:
    """The form with what the letter's message was."""
    letters, letter, story = _letter(visit, application, queue, group, place)
    headers = {name: value for name, value in _headers(letter).items() if _is_line(value)}
    visit.in_shell_of(application, "qdo", "dead", "show", queue, str(story.get("message_id", "")))
    values: dict[str, Any] = {"application": application, "queue": queue, "group": group, "place": place}
    values |= {"letter": letter, "letters": letters, "story": story, "headers": headers}
    values["others"] = [name for name in _headers(letter) if name not in headers]
    return PageAnswer("mend.html", values)


def send(visit: Visit, application: str, queue: str, group: str, place: str) -> PageAnswer:
    """Store the message of the form in the queue that the letter came from, then delete the letter."""
    letters, letter, _ = _letter(visit, application, queue, group, place)
    entry = entry_of(visit)
    if "\r\n" in letter["body"]:
        entry["body"] = entry["body"].replace("\n", "\r\n")
    kept = {name: value for name, value in _headers(letter).items() if not _is_line(value)}
    entry["headers"] = {**kept, **entry.get("headers", {}), **_origin(letter)}
    once = f"edited {letter['partition']}:{letter['message_id']}"
    return send_again(visit, application, queue, entry, once, (letters, place))


def _letter(
    visit: Visit, application: str, queue: str, group: str, place: str
) -> tuple[str, Mapping[str, Any], Mapping[str, Any]]:
    """The name of the queue of letters, the letter, and its story.

    :raises NotFound: it is no letter of this group.
    :raises InvalidParameter: there is no text to edit.
    """
    letters = visit.ask(application, queue, "leases", group).content["settings"]["dead_letter_queue"]
    letter = fetch(visit, application, letters, place)
    story = story_in(letter)
    if story is None or (story.get("queue"), story.get("group")) != (queue, group):
        raise NotFound("This is no dead letter of this group.")
    if (
        letter.get("content_type") == ALONE_TYPE
        or letter.get("encoding") == "base64"
        or not _comes_back(letter["body"])
    ):
        raise InvalidParameter(problems={"body": "is no text that a page can edit: retry the letter as it is"})
    return letters, letter, story


def _comes_back(body: str) -> bool:
    """Whether a browser sends a text back as it was: it keeps no NUL, and makes all ends of lines alike."""
    rest = body.replace("\r\n", "")
    return "\0" not in body and "\r" not in rest and ("\n" not in rest or rest == body)


def _is_line(value: object) -> bool:
    """Whether a header's value can be edited: a line of the form has it as it is."""
    return isinstance(value, str) and value == value.strip() and "\0" not in value and len(value.splitlines()) <= 1


def _origin(letter: Mapping[str, Any]) -> Mapping[str, str]:
    """The header that says which message the letter was; none if its story is not whole."""
    try:
        story = story_of({STORY_HEADER: letter["headers"][STORY_HEADER].encode()})
    except ValueError:
        return {}
    return {name: value.decode() for name, value in with_origin({}, story).items()}


def _headers(letter: Mapping[str, Any]) -> Mapping[str, Any]:
    """The headers of the message that the letter was."""
    ours = (STORY_HEADER, REDRIVEN_HEADER)
    return {name: value for name, value in letter.get("headers", {}).items() if name not in ours}


_EDIT = "/console/a/{application}/{queue}/l/{group}/dead/edit/{place}"
PAGES = (
    ConsolePage(_EDIT, form),
    ConsolePage(_EDIT, send, "POST"),
)
