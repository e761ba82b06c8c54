"""Pages and following: nothing is missed, and nothing comes twice."""

from __future__ import annotations

import json
from typing import Any

import pytest

from qdo.client import Client
from queuey.errors import (
    BrokenStream,
    QueueNotFound,
    error_classes,
)
from tests.support.client_answers import HEX, UNAVAILABLE
from tests.support.scripted_server import DROP, Say, Script, refusal


def page(*bodies: str, cursor: str, more: bool) -> Say:
    entries = [{"message_id": HEX, "partition": 1, "body": body} for body in bodies]
    headers = {"Queuey-Cursor": cursor, "Queuey-Watermark": "9.0000000", "Queuey-More": str(more).lower()}
    return Say(200, json.dumps({"messages": entries}).encode(), headers)


def test_iterating_ends_at_the_first_pages_watermark(client: Client, script: Script) -> None:
    script.say(page("a", cursor="c1", more=True), page("b", cursor="c2", more=False))

    assert [message.text for message in client.iterate("q", since="5")] == ["a", "b"]
    assert [asked.path.partition("?")[2] for asked in script.asked] == [
        "partitions=all&since=5&limit=1000",
        "cursor=c1&until=9.0000000&limit=1000",
    ]


def lines(*entries: dict[str, Any], cut: bool = False) -> Say:
    """A piece of a stream, then the end of the connection."""
    text = b"".join(json.dumps(entry).encode() + b"\n" for entry in entries)
    return Say(200, text[:-9] if cut else text, {"Content-Type": "application/x-ndjson"}, cut=cut)


def came(body: str, cursor: str) -> dict[str, Any]:
    return {"message_id": HEX, "partition": 1, "body": body, "cursor": cursor}


OPEN = {"open": {"queue": "q", "cursor": "c0", "watermark": "9.0000000"}}
STOPS = {"end": {"rows": 1, "cursor": "c1", "code": "ServerStopping", "detail": "", "retriable": True}}


def test_a_follower_goes_on_behind_the_last_whole_line(client: Client, script: Script, pauses: list[float]) -> None:
    script.say(
        lines(OPEN, came("a", "c1"), came("lost on its way", "c2"), cut=True),
        *[UNAVAILABLE] * 8,
        lines(OPEN, STOPS),
        DROP,
        lines(came("b", "c2")),
    )

    pages = client.follow("q", partitions=[2, 1])
    first, second = next(pages), next(pages)

    assert (first.messages[0].text, first.cursor, first.watermark) == ("a", "c1", "9.0000000")
    assert second.messages[0].text == "b"
    assert "partitions=2%2C1&follow=true" in script.asked[0].path
    assert [asked.path.partition("?")[2] for asked in script.asked[1:10]] == ["cursor=c1&follow=true"] * 9
    assert all(asked.headers["Accept"] == "application/x-ndjson" for asked in script.asked)
    assert max(pauses) <= 10


def test_what_came_before_a_line_that_is_none_is_not_lost(client: Client, script: Script) -> None:
    """The next connection begins behind it."""
    spoilt = lines(OPEN, came("a", "c1"), came("b", "c2")).body + b"upstream timed out\n"
    script.say(Say(200, spoilt, {"Content-Type": "application/x-ndjson"}), lines(came("c", "c3")))

    pages = client.follow("q")

    assert [message.text for message in next(pages).messages] == ["a", "b"]
    assert [message.text for message in next(pages).messages] == ["c"]
    assert "cursor=c2" in script.asked[1].path


def test_pauses_grow_while_nothing_comes(client: Client, script: Script, pauses: list[float]) -> None:
    script.say(lines(OPEN, came("a", "c1")), *[lines()] * 5, lines(came("b", "c2")))

    pages = client.follow("q")
    next(pages)
    next(pages)

    assert [0.5 * 0.2 * 2**turn <= pause <= 0.2 * 2**turn for turn, pause in enumerate(pauses)] == [True] * 6


@pytest.mark.parametrize("code", ["CursorLost", "QueueNotFound", "Forbidden", "Unauthenticated"])
def test_a_follower_ends_with_what_no_waiting_mends(client: Client, script: Script, code: str) -> None:
    script.say(lines(OPEN, came("a", "c1")), lines({"reset": {"queue": "q", "code": code, "detail": "because"}}))

    pages = client.follow("q")
    next(pages)

    with pytest.raises(error_classes()[code], match="because"):
        next(pages)


def test_a_line_that_can_never_be_read_is_not_asked_for_for_ever(client: Client, script: Script) -> None:
    poison = Say(200, lines(OPEN, came("a", "c1")).body + b"no line\n", {"Content-Type": "application/x-ndjson"})
    script.say(*[poison] * 50)

    with pytest.raises(BrokenStream, match="no line of a stream"):
        list(client.follow("q"))

    assert len(script.asked) == 5


def test_what_is_no_stream_of_lines_is_not_followed(client: Client, script: Script) -> None:
    script.say(Say(200, b"<html>\n"))

    with pytest.raises(BrokenStream):
        next(client.follow("q"))


def test_a_follower_of_nothing_says_so_at_once(client: Client, script: Script) -> None:
    script.say(refusal(404, "QueueNotFound"))

    with pytest.raises(QueueNotFound):
        next(client.follow("q"))
