"""What a call's head says, and what it costs to find out: anybody may send one."""

from __future__ import annotations

from unittest.mock import Mock
from uuid import UUID

import pytest

from queuey.api.cursors import highest_named, parse_cursor, parse_several
from queuey.errors import BadPath, InvalidParameter, PathTooLong
from queuey.http import exchange as calls
from queuey.http.exchange import ARROW, EVENTS, MAX_ACCEPT, MAX_ESCAPES, NDJSON, PROBLEM, Answer, Call, parse_query
from queuey.http.routing import check_path, decode_path
from queuey.model import MAX_PARTITIONS, Queue
from queuey.server.http1 import parse_head

ALL = (EVENTS, NDJSON, ARROW, PROBLEM)


def accepting(accept: str) -> Call:
    return Call("GET", "/v1/demo/q", "", {"accept": accept})


def test_accept_is_taken_apart_once(monkeypatch: pytest.MonkeyPatch) -> None:
    parse = Mock(side_effect=calls._qualities)
    monkeypatch.setattr(calls, "_qualities", parse)
    call = accepting(f"{NDJSON}, {EVENTS};q=0.5, {ARROW};q=0, application/json;q=0.7")

    assert [kind for kind in ALL for _ in range(2) if call.accepts(kind)] == [NDJSON, NDJSON]
    parse.assert_called_once()


def test_a_long_accept_counts_as_none(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = NDJSON + "," * (MAX_ACCEPT - len(NDJSON))

    assert accepting(whole).accepts(NDJSON)
    monkeypatch.setattr(calls, "_qualities", None)  # nothing looks at its parts
    assert not accepting(whole + ",").accepts(NDJSON)


def test_a_query_has_few_escapes() -> None:
    assert parse_query("key=" + "%41" * MAX_ESCAPES) == {"key": "A" * MAX_ESCAPES}
    with pytest.raises(InvalidParameter, match="escapes"):
        parse_query("key=" + "%" * (MAX_ESCAPES + 1))


@pytest.mark.parametrize("text", ["limit=%ff", "%ed%a0%80=1", "since=%c3%28"])
def test_a_query_that_is_no_text_is_named(text: str) -> None:
    with pytest.raises(InvalidParameter) as refused:
        parse_query(text)

    assert refused.value.problems == {"query": "has bytes that are not UTF-8"}


def test_a_path_has_few_escapes() -> None:
    assert decode_path("/v1/demo/" + "%41" * MAX_ESCAPES) == "/v1/demo/" + "A" * MAX_ESCAPES
    with pytest.raises(BadPath):
        check_path(decode_path("/v1/demo/" + "%" * (MAX_ESCAPES + 1)))
    with pytest.raises(PathTooLong):
        check_path(decode_path("/v1/demo/" + "%41" * (MAX_ESCAPES + 1)))


def test_a_cursor_of_several_queues_names_few_places() -> None:
    queue = Queue("demo", "q", UUID(int=1), 0, partitions=MAX_PARTITIONS)
    place = f"~{queue.uuid.hex}.1-{MAX_PARTITIONS}." + "0" * 31

    assert len(parse_several("several~" + "0" * 31 + place * 2, [queue]).apart) == MAX_PARTITIONS
    with pytest.raises(InvalidParameter, match="cursor"):
        parse_several("several~" + "0" * 31 + place * 3, [queue])


FAR = "f" * 15 + "0" * 16
"""A place that no watermark comes to."""


@pytest.mark.parametrize("named", ["1-200", "0-999", "1-2", "3-200", "1", "2", "0", "3", "999"])
def test_a_cursor_stands_for_partitions_that_the_queue_has(named: str) -> None:
    queue = Queue("demo", "q", UUID(int=1), 0, partitions=2)
    first, _, last = named.partition("-")
    wanted = [number for number in (1, 2) if int(first) <= number <= int(last or first)]

    places = parse_cursor(queue, f"{queue.uuid.hex}~{named}.{FAR}").places
    apart = parse_several(f"several~{'0' * 31}~{queue.uuid.hex}.{named}.{FAR}", [queue]).apart

    assert list(places) == wanted
    assert {partition.number for partition in apart} == {2, *wanted}


def test_a_cursor_of_many_narrow_queues_has_few_places() -> None:
    """7 KB of cursor became 20,000 places, and those went back with each message."""
    queues = [Queue("demo", f"q{number}", UUID(int=number), 0) for number in range(5)]
    text = f"several~{'0' * 31}" + "".join(f"~{queue.uuid.hex}.1-200.{FAR}" for queue in queues)

    assert len(parse_several(text, queues).apart) == len(queues)


def test_a_cursor_of_one_queue_names_few_places() -> None:
    queue = Queue("demo", "q", UUID(int=1), 0, partitions=MAX_PARTITIONS)
    place = f"~1-{MAX_PARTITIONS}." + "0" * 31

    assert len(parse_cursor(queue, queue.uuid.hex + place * 2).places) == MAX_PARTITIONS
    with pytest.raises(InvalidParameter, match="cursor"):
        parse_cursor(queue, queue.uuid.hex + place * 3)


def test_the_partitions_that_a_cursor_names_are_known_before_it_is_read() -> None:
    one, two = UUID(int=1).hex, UUID(int=2).hex

    assert highest_named(f"{one}.all~1-3.{FAR}~2.{FAR}") == {one: 3}
    assert highest_named(f"{one}~7.{FAR}") == {one: 7}
    assert highest_named(f"several~{FAR}~{one}.1-4.{FAR}~{two}.12.{FAR}~{one}.2.{FAR}") == {one: 4, two: 12}
    assert highest_named("no cursor") == highest_named("") == {}


@pytest.mark.parametrize(
    ("said", "lasts"),
    [("keep-alive", True), ("close", False), ("a, \tClose ,b", False), ("closed", True), ("a close", True), ("", True)],
)
def test_a_connection_ends_where_its_head_says_so(said: str, lasts: bool) -> None:
    assert parse_head(f"GET / HTTP/1.1\r\nHost: q\r\nConnection: {said}\r\n\r\n".encode()).lasting is lasts


def test_media_types_have_no_case() -> None:
    assert accepting("Application/X-NDJSON;Q=0.5").accepts(NDJSON)


def test_an_answer_that_ends_with_its_head_has_no_length() -> None:
    assert [Answer(status, b"x").length for status in (200, 204, 304, 404)] == [1, None, None, 1]
