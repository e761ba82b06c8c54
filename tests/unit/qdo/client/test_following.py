"""Pages and following: nothing is missed, and nothing comes twice."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from qdo.client import Client, Page
from queuey.errors import (
    BrokenStream,
    Forbidden,
    InvalidParameter,
    QueueNotFound,
    error_classes,
)
from tests.support.client_answers import HEX, KEY, UNAVAILABLE
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

    with pytest.raises(BrokenStream, match="a line that does not belong in a stream"):
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


def test_several_queues_are_followed_each_page_of_one(client: Client, script: Script) -> None:
    def of(queue: str, body: str, cursor: str) -> dict[str, Any]:
        return {"queue": queue, **came(body, cursor)}

    gone = {"refused": {"queue": "gone", "code": "Forbidden", "detail": "because"}}
    opened = {"open": {"queues": ["a", "b"], "cursor": "c0", "watermark": "9.0000000"}}
    script.say(
        lines(gone, opened, of("a", "1", "c1"), of("a", "2", "c2"), of("b", "3", "c3"), of("a", "4", "c4")),
        lines(gone, opened, of("gone", "5", "c5"), gone),
        lines({"reset": {"queue": "a", "code": "QueueNotFound", "detail": "because"}}, of("b", "6", "c6")),
        lines({"end": {"rows": 0, "code": "QueueNotFound", "detail": "because", "retriable": False}}),
    )
    pages: list[Page] = []

    with pytest.raises(QueueNotFound):
        pages.extend(client.follow(["a", "b", "gone"]))

    assert [(page.queue, page.cursor, [one.text for one in page.messages], type(page.refused)) for page in pages] == [
        ("gone", "", [], Forbidden),
        ("a", "c2", ["1", "2"], type(None)),
        ("b", "c3", ["3"], type(None)),
        ("a", "c4", ["4"], type(None)),
        ("gone", "c5", ["5"], type(None)),
        ("gone", "c5", [], Forbidden),
        ("a", "c5", [], QueueNotFound),
        ("b", "c6", ["6"], type(None)),
    ]
    assert [asked.path.partition("?")[2] for asked in script.asked] == [
        "queues=a%2Cb%2Cgone&follow=true",
        *(f"queues=a%2Cb%2Cgone&cursor=c{number}&follow=true" for number in (4, 5, 6)),
    ]


@pytest.mark.parametrize("limit", [{"end_after_seconds": -1}, {"idle_seconds": 0}, {"idle_seconds": float("nan")}])
def test_a_limit_that_cannot_be_one_is_refused(client: Client, script: Script, limit: dict[str, float]) -> None:
    with pytest.raises(InvalidParameter, match=next(iter(limit))):
        next(client.follow("q", **limit))  # type: ignore[arg-type]  # of what type a limit is
    assert script.asked == []


def test_time_that_is_over_asks_for_nothing(client: Client, script: Script) -> None:
    assert list(client.follow("q", end_after_seconds=0)) == []
    assert script.asked == []


def test_a_follower_that_is_closed_ends_and_asks_for_nothing_more(client: Client, script: Script) -> None:
    script.say(lines(OPEN, came("a", "c1")))

    with client.follow("q") as pages:
        next(pages)

    assert list(pages) == []
    assert len(script.asked) == 1


def test_a_follower_that_is_closed_while_a_server_is_away_sends_nothing_again(script: Script) -> None:
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        pages.close()

    script.say(*[replace(UNAVAILABLE, headers={"Retry-After": "30"})] * 4)
    with Client(script.url, "app", KEY, retries=3, sleep=sleep) as client:
        pages = client.follow("q")
        assert list(pages) == []

    assert len(script.asked) == 1
    assert pauses == [10]


def test_a_server_that_is_away_does_not_keep_a_follower_from_its_ticks(client: Client, script: Script) -> None:
    script.say(lines(OPEN, came("a", "c1")), *[lines()] * 9, lines(came("b", "c2")))

    found: list[Page] = []
    with client.follow("q", idle_seconds=1e-9) as pages:
        while not found or found[-1].cursor != "c2":
            found.append(next(pages))

    ticks = [page.cursor for page in found if not page.messages]
    assert [message.text for page in found for message in page.messages] == ["a", "b"]
    assert ticks.count("c1") >= 9


@pytest.mark.parametrize("wrong", [{"queue": ["a", ""]}, {"queue": ["a,b"]}, {"queue": ["a"], "partitions": [1]}])
def test_what_cannot_be_followed_together_is_refused_before_it_is_sent(
    client: Client, script: Script, wrong: dict[str, Any]
) -> None:
    with pytest.raises(InvalidParameter):
        next(client.follow(**wrong))
    assert script.asked == []
