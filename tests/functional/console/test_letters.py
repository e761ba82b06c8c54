"""Dead letters that are many, large, or have long reasons."""

from __future__ import annotations

import json
import re
from html import unescape

import pytest

from tests.support.client import BATCH, Server
from tests.support.visitors import Visitor


def give_up(v1: Server, queue: str, bodies: list[str], reason: str) -> None:
    """Each message becomes a dead letter of the group ``workers``; an empty one is one that is there."""
    for body in filter(None, bodies):
        v1.post(queue, body)
    for _ in bodies:
        (held,) = v1.call("POST", queue, "leases", "workers", json={"receive": {}}).json()["messages"]
        rejected = [{"receipt": held["receipt"], "reason": reason}]
        assert v1.call("POST", queue, "leases", "workers", json={"reject": rejected}).status_code == 200


def test_letters_that_one_page_has_no_room_for_are_on_the_next(owner: Visitor, v1: Server) -> None:
    queue, rest = v1.queue(), "x" * 900_000
    give_up(v1, queue, [f"letter {number} {rest}" for number in range(6)], "too large")
    seen: list[str] = []
    path: str | None = f"/console/a/queuey/{queue}/l/workers/dead"

    while path is not None:
        page = owner.get(path)
        found = re.findall(r"<pre>letter (\d)", page)
        assert 0 < len(found) < 6
        seen += found
        following = re.search(r'rel="next" href="([^"]*)"', page)
        path = None if following is None else unescape(following[1])

    assert seen == ["5", "4", "3", "2", "1", "0"]


def test_a_message_without_room_on_a_page_is_not_shown_as_empty(owner: Visitor, v1: Server) -> None:
    queue = v1.queue()
    for _ in range(6):
        v1.post(queue, "x" * 900_000)

    page = owner.get(f"/console/a/queuey/{queue}/messages")

    assert page.count("There was no room for it here") > 0
    assert "0 B" not in page


def test_a_long_reason_leads_to_its_letters(owner: Visitor, v1: Server) -> None:
    queue, base = v1.queue(), "/console/a/queuey/{}/l/workers/dead"
    give_up(v1, queue, ["job"], "ValueError: no  such part, " + "and no other either, " * 12)
    page = owner.get(base.format(queue))
    (tag,) = re.findall(r'<a class="tag" href="([^"]*)"', page)

    chosen = owner.get(unescape(tag))
    reason = re.findall(r'name="reason" value="([^"]*)"', chosen)[0]
    preview = owner.request(
        "POST",
        base.format(queue) + "/preview",
        data={"csrf": owner.csrf(base.format(queue)), "reason": unescape(reason)},
    )

    assert "Retry this one" in chosen
    assert re.search(r"Retry <span[^>]*>1</span> dead letters", preview.text)


def letter_of(v1: Server, queue: str, **message: object) -> str:
    """The place of the dead letter that a message becomes."""
    document = {"messages": [message]}
    v1.call("POST", queue, data=json.dumps(document).encode(), headers={"Content-Type": BATCH})
    give_up(v1, queue, [""], "no such part")
    (letter,) = v1.call("GET", f"{queue}-dead").json()["messages"]
    return f"{letter['partition']}:{letter['message_id']}"


def test_an_edit_leaves_ends_of_lines_and_headers_as_they_were(owner: Visitor, v1: Server) -> None:
    queue, headers = v1.queue(), {"Kind": "order", "Note": "two\nlines: here", "Wide": "  x "}
    place = letter_of(v1, queue, body="a;b\r\n1;2\r\n", headers=headers)
    edit = f"/console/a/queuey/{queue}/l/workers/dead/edit/{place}"
    assert "stay as they are: Note, Wide" in owner.get(edit)

    owner.send(edit, body="a;b\r\n1;3\r\n", headers="Kind: order\r\n")

    sent = v1.call("GET", queue).json()["messages"][-1]
    assert sent["body"] == "a;b\r\n1;3\r\n"
    assert {name: sent["headers"][name] for name in headers} == headers


@pytest.mark.parametrize("body", ["a\0b", "a\rb", "a\nb\r\n"])
def test_a_text_that_a_browser_would_change_is_not_edited(owner: Visitor, v1: Server, body: str) -> None:
    queue = v1.queue()
    place = letter_of(v1, queue, body=body)

    page = owner.get(f"/console/a/queuey/{queue}/l/workers/dead/edit/{place}", status=400)

    assert "retry the letter as it is" in page
