"""Reading on from a cursor, and how an answer says that there is more (G5)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.client import Server, refused

MIB = 1 << 20


def walk(server: Server, queue: str, **params: Any) -> list[str]:
    """All bodies of a read that goes on by cursor until there is no more."""
    seen: list[str] = []
    answer = server.get(queue, **params)
    while True:
        assert answer.status_code == 200, answer.text
        page = [message["body"] for message in answer.json()["messages"]]
        seen += page
        if answer.headers["Queuey-More"] == "false":
            return seen
        assert page, "more to come, yet nothing came"
        assert len(seen) < 1000, "a cursor that does not move on"
        after = {key: params[key] for key in ("limit", "order", "until") if key in params}
        answer = server.get(queue, cursor=answer.headers["Queuey-Cursor"], **after)


@pytest.mark.parametrize("limit", [1, 3, 7, 1000])
@pytest.mark.parametrize("order", ["ascending", "descending"])
def test_pages_by_cursor_join_without_gap_or_repeat(server: Server, limit: int, order: str) -> None:
    name = server.queue(partitions=3)
    bodies = [f"{partition}-{n}" for partition in (1, 2, 3) for n in range(5 * partition)]
    for partition in (1, 2, 3):
        server.fill(name, *(f"{partition}-{n}" for n in range(5 * partition)), partition=partition)

    seen = walk(server, name, partitions="all", limit=limit, order=order)

    assert sorted(seen) == sorted(bodies)
    for group in "123":
        mine = [int(text[2:]) for text in seen if text[0] == group]
        assert mine == sorted(mine, reverse=order == "descending")


def test_a_cursor_is_exclusive_and_sees_what_came_after(server: Server) -> None:
    name = server.queue(partitions=2)
    server.fill(name, "a")
    cursor = server.get(name, partitions="all").headers["Queuey-Cursor"]

    assert server.read(name, cursor=cursor) == []
    server.fill(name, "b")
    server.fill(name, "c", partition=2)

    assert server.bodies(name, cursor=cursor) == ["b", "c"]
    assert server.bodies(name, cursor=cursor) == ["b", "c"]


@pytest.mark.parametrize("partitions", ["1", "2", "1,3", "all"])
def test_a_cursor_alone_reads_on_as_with_all_that_is_usual(server: Server, partitions: str) -> None:
    name = server.queue(partitions=3)
    for partition in (1, 2, 3):
        server.fill(name, "a", "b", "c", partition=partition)
    cursor = server.get(name, partitions=partitions, limit=1).headers["Queuey-Cursor"]

    alone, spelt_out = server.get(name, cursor=cursor), server.get(name, cursor=cursor, limit=100, order="ascending")

    assert alone.json() == spelt_out.json()
    assert [alone.headers[f"Queuey-{kind}"] for kind in ("Cursor", "More")] == [
        spelt_out.headers[f"Queuey-{kind}"] for kind in ("Cursor", "More")
    ]


def test_a_cursor_of_an_empty_read_sees_the_first_message(server: Server) -> None:
    name = server.queue()
    cursor = server.get(name).headers["Queuey-Cursor"]

    server.fill(name, "first")

    assert server.bodies(name, cursor=cursor) == ["first"]


def test_a_cursor_carries_the_partitions_it_was_asked_for(server: Server) -> None:
    name = server.queue(partitions=3)
    for partition in (1, 2, 3):
        server.fill(name, f"old {partition}", partition=partition)
    cursor = server.get(name, partitions="3,1").headers["Queuey-Cursor"]

    for partition in (1, 2, 3):
        server.fill(name, f"new {partition}", partition=partition)

    assert server.bodies(name, cursor=cursor) == ["new 3", "new 1"]


@pytest.mark.parametrize("beside", [{"partitions": "2"}, {"since": "0"}])
def test_a_cursor_stands_in_place_of_since_and_partitions(server: Server, beside: dict[str, str]) -> None:
    name = server.queue(partitions=2)
    cursor = server.get(name).headers["Queuey-Cursor"]

    refused(server.get(name, cursor=cursor, **beside), 400, "cursor")


def test_a_cursor_of_a_queue_made_anew_is_lost(server: Server) -> None:
    name = server.queue()
    server.fill(name, "a")
    cursor = server.get(name).headers["Queuey-Cursor"]
    server.call("DELETE", name)
    server.create(name)
    server.fill(name, "b")

    refused(server.get(name, cursor=cursor), 409, "cursor")
    assert server.get(name, cursor=cursor).json()["code"] == "CursorLost"


def test_a_cursor_is_good_for_its_own_queue_only(server: Server) -> None:
    mine, yours = server.queue(), server.queue()
    server.fill(mine, "a")
    cursor = server.get(mine).headers["Queuey-Cursor"]

    assert server.get(yours, cursor=cursor).status_code in {400, 409}


@pytest.mark.parametrize("altered", ["x", "AAAA", "..", "ü", "a" * 5000, "%00"])
def test_a_cursor_made_up_is_refused(server: Server, altered: str) -> None:
    refused(server.get(server.queue(), cursor=altered), 400, "cursor")


def test_more_is_true_only_if_the_answer_was_cut(server: Server) -> None:
    name = server.queue()
    server.fill(name, "a", "b", "c")

    assert server.get(name, limit=2).headers["Queuey-More"] == "true"
    assert server.get(name, limit=3).headers["Queuey-More"] == "false"
    assert server.get(name).headers["Queuey-More"] == "false"
    assert server.get(name, limit=2, order="descending").headers["Queuey-More"] == "true"


def test_an_answer_is_cut_at_its_cap_of_bytes_and_says_so(server: Server) -> None:
    name = server.queue()
    big = "x" * (1 << 20)
    for number in range(6):
        server.add(name, f"{number}" + big[1:])

    answer = server.get(name)

    assert answer.headers["Queuey-More"] == "true"
    assert 1 <= len(answer.json()["messages"]) < 6
    assert [body[0] for body in walk(server, name)] == list("012345")


@pytest.mark.parametrize("order", ["ascending", "descending"])
def test_pages_cut_by_bytes_join_over_partitions(server: Server, order: str) -> None:
    name = server.queue(partitions=3)
    for partition in (1, 2, 3):
        for number in range(3):
            server.add(name, f"{partition}{number}".ljust(MIB), x_partition=partition)

    seen = [body.rstrip() for body in walk(server, name, partitions="all", order=order)]

    assert sorted(seen) == ["10", "11", "12", "20", "21", "22", "30", "31", "32"]
    for group in "123":
        mine = [text for text in seen if text[0] == group]
        assert mine == sorted(mine, reverse=order == "descending")


def test_messages_deleted_between_pages_leave_no_gap(server: Server) -> None:
    name = server.queue()
    ids = server.fill(name, *(str(number) for number in range(20)))
    first = server.get(name, limit=5)

    server.call("DELETE", name, ",".join(ids[3:9]))

    rest = server.get(name, cursor=first.headers["Queuey-Cursor"], limit=1000)
    assert [message["body"] for message in rest.json()["messages"]] == [str(number) for number in range(9, 20)]


def test_a_reader_of_all_partitions_meets_those_that_are_added(server: Server) -> None:
    name = server.queue(partitions=2)
    server.fill(name, "old")
    cursor = server.get(name, partitions="all").headers["Queuey-Cursor"]
    lines = server.call("GET", name, params={"partitions": "all"}, headers={"Accept": "application/x-ndjson"})
    end = json.loads(lines.content.splitlines()[-1])["end"]

    server.call("PUT", name, data={"partitions": 4})
    server.fill(name, "new", partition=4)

    assert server.bodies(name, cursor=cursor) == ["new"]
    assert server.bodies(name, cursor=end["cursor"]) == ["new"]


def test_a_reader_of_some_partitions_keeps_to_them(server: Server) -> None:
    name = server.queue(partitions=2)
    cursor = server.get(name, partitions="2,1").headers["Queuey-Cursor"]

    server.call("PUT", name, data={"partitions": 3})
    for partition in (1, 2, 3):
        server.fill(name, str(partition), partition=partition)

    assert server.bodies(name, cursor=cursor) == ["2", "1"]


def test_a_cursor_keeps_to_until(server: Server) -> None:
    name = server.queue()
    ids = server.fill(name, *"abcdef")
    first = server.get(name, limit=2, until=ids[4])

    answer = server.get(name, cursor=first.headers["Queuey-Cursor"], until=ids[4])

    assert [message["body"] for message in answer.json()["messages"]] == ["c", "d", "e"]
    assert answer.headers["Queuey-More"] == "false"


def test_a_cursor_of_one_form_is_good_for_the_others(server: Server) -> None:
    name = server.queue(partitions=2)
    for partition in (1, 2):
        server.fill(name, "a", "b", "c", partition=partition)
    page = server.get(name, partitions="all", limit=1)

    lines = server.call(
        "GET",
        name,
        params={"cursor": page.headers["Queuey-Cursor"], "limit": 1},
        headers={"Accept": "application/x-ndjson"},
    )
    *rows, last = [json.loads(line) for line in lines.content.splitlines()]

    assert [row["body"] for row in rows] == ["b", "b"]
    assert server.bodies(name, cursor=last["end"]["cursor"]) == ["c", "c"]
