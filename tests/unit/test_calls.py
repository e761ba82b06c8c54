"""What a call's head says, and what it costs to find out: anybody may send one."""

from __future__ import annotations

from unittest.mock import Mock
from uuid import UUID

import pytest

from queuey.api import calls
from queuey.api.calls import ARROW, EVENTS, MAX_ACCEPT, MAX_ESCAPES, NDJSON, PROBLEM, Call, parse_query
from queuey.api.cursors import parse_several
from queuey.api.routes import check_path, decode_path
from queuey.doors.http import parse_head
from queuey.errors import BadPath, InvalidParameter, PathTooLong
from queuey.model import MAX_PARTITIONS, Queue

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


@pytest.mark.parametrize(
    ("said", "lasts"),
    [("keep-alive", True), ("close", False), ("a, \tClose ,b", False), ("closed", True), ("a close", True), ("", True)],
)
def test_a_connection_ends_where_its_head_says_so(said: str, lasts: bool) -> None:
    assert parse_head(f"GET / HTTP/1.1\r\nHost: q\r\nConnection: {said}\r\n\r\n".encode()).lasting is lasts
