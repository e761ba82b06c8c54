"""What lies in a span, without its messages: the plan of a client that reads in parts."""

from __future__ import annotations

import pytest

from tests.support.client import Json, Server, refused


def survey(server: Server, name: str, **params: str) -> list[Json]:
    """The spans."""
    answer = server.get(name, survey="true", **params)
    assert answer.status_code == 200
    found: list[Json] = answer.json()["spans"]
    return found


def test_a_survey_names_the_end_of_each_partition(server: Server) -> None:
    name = server.queue(partitions=3)
    keys = [server.add(name, body, x_partition=1)["key"] for body in (b"a", b"b")]

    answer = server.get(name, survey="true", partitions="all")

    empty = [{"partition": number, "newest": None} for number in (2, 3)]
    assert answer.json() == {"status": "ok", "partitions": 3, "spans": [{"partition": 1, "newest": keys[1]}, *empty]}
    assert server.read(name, cursor=answer.headers["Queuey-Cursor"]) == []


def test_a_survey_counts_and_marks_where_to_cut(server: Server) -> None:
    name = server.queue()
    keys = [server.add(name, b"x")["key"] for _ in range(7)]

    (span,) = survey(server, name, count="100", every="3")
    (cut,) = survey(server, name, count="5", since=keys[1], until=keys[6])

    assert span == {"partition": 1, "newest": keys[6], "messages": 7, "more": False, "marks": [keys[2], keys[5]]}
    assert cut == {"partition": 1, "newest": keys[6], "messages": 5, "more": True, "marks": []}


def test_a_survey_from_a_cursor_is_of_what_came_after_it(server: Server) -> None:
    name = server.queue()
    server.add(name, b"before")
    cursor = server.get(name, survey="true").headers["Queuey-Cursor"]
    key = server.add(name, b"after")["key"]

    (span,) = survey(server, name, cursor=cursor, count="10")

    assert (span["messages"], span["newest"]) == (1, key)


def test_what_no_reader_sees_yet_is_counted_if_asked_for_but_for_what_is_scheduled(server: Server) -> None:
    """``test_cassandra_delay`` has messages that are younger than the read delay."""
    name = server.queue()
    key = server.add(name, b"now")["key"]
    server.add(name, b"later", x_delay=1000)

    (span,) = survey(server, name, count="10", unseen="true")

    assert (span["messages"], span["newest"]) == (1, key)


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({"count": "-1"}, "count"),
        ({"count": "10000001"}, "count"),
        ({"count": "x"}, "count"),
        ({"every": "0"}, "every"),
        ({"count": "10000000", "every": "1"}, "every"),
        ({"since": "never"}, "since"),
    ],
)
def test_a_bad_survey_is_refused(server: Server, params: dict[str, str], field: str) -> None:
    refused(server.get(server.queue(), survey="true", **params), 400, field)


def test_a_survey_is_for_who_may_read(server: Server, anonymous: Server) -> None:
    name = server.queue()

    assert anonymous.get(name, survey="true").status_code in (401, 403)
    assert server.get(name, survey="false").json() == {"status": "ok", "messages": []}
