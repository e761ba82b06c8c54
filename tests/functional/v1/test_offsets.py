"""Offsets of groups over HTTP: committed, claimed, reset, listed and forgotten."""

from __future__ import annotations

from typing import Any

import pytest
import requests

from queuey.api.groups import MAX_GROUPS
from queuey.ids import MessageId
from tests.support.client import Json, Server, refused

GREATEST = (1 << 63) - 1
STEP = 1 << 40


def put(server: Server, queue: str, body: Any, group: str = "mail") -> requests.Response:
    return server.call("PUT", queue, "offsets", group, json=body)


def commit(server: Server, queue: str, *entries: Json, group: str = "mail", **members: Any) -> list[Json]:
    """Change offsets, which must succeed: the entries of the answer."""
    return _entries(put(server, queue, {"offsets": list(entries), **members}, group), group)


def claim(server: Server, queue: str, *partitions: int, generation: int) -> list[Json]:
    return commit(server, queue, *({"partition": number} for number in partitions), generation=generation)


def reset(server: Server, queue: str, **members: Any) -> list[Json]:
    return _entries(put(server, queue, {"reset": True, **members}), "mail")


def show(server: Server, queue: str, group: str = "mail") -> list[Json]:
    return _entries(server.call("GET", queue, "offsets", group), group)


def _entries(answer: requests.Response, group: str) -> list[Json]:
    assert answer.status_code == 200, answer.text
    told = answer.json()
    assert (told["status"], told["group"]) == ("ok", group)
    entries = told["offsets"]
    assert isinstance(entries, list)
    return entries


def ids(entries: list[Json]) -> dict[int, str | None]:
    return {entry["partition"]: entry["message_id"] for entry in entries}


def groups(server: Server, queue: str, **params: Any) -> list[str]:
    answer = server.call("GET", queue, "offsets", params=params)
    assert answer.status_code == 200, answer.text
    return [entry["group"] for entry in answer.json()["groups"]]


@pytest.mark.parametrize("name", ["preview", "generation", "partitions"])
def test_a_member_in_the_address_is_refused(server: Server, name: str) -> None:
    """A reset with ``?preview=true`` was carried out."""
    queue = server.queue()
    server.fill(queue, "a")

    answer = server.call("PUT", queue, "offsets", "mail", params={name: "1"}, json={"reset": True, "to": "end"})

    refused(answer, 400, name)
    assert ids(show(server, queue)) == {1: None}


# Reading and committing


def test_a_group_that_never_was_has_an_empty_offset_in_each_partition(server: Server) -> None:
    name = server.queue(partitions=3)

    entries = show(server, name)

    assert [entry["partition"] for entry in entries] == [1, 2, 3]
    assert {(entry["message_id"], entry["generation"], entry["timestamp"]) for entry in entries} == {(None, 0, None)}
    assert groups(server, name) == []


def test_what_was_committed_is_shown(server: Server) -> None:
    name = server.queue(partitions=2)
    first, second = server.fill(name, "a", "b", partition=2)

    (told,) = commit(server, name, {"partition": 2, "message_id": second}, generation=3)

    assert (told["partition"], told["message_id"], told["generation"]) == (2, second, 3)
    assert float(told["timestamp"]) >= float(MessageId.parse(first).timestamp)
    assert show(server, name)[1] == told
    assert ids(show(server, name)) == {1: None, 2: second}
    assert ids(show(server, name, "Mail")) == {1: None, 2: None}


def test_an_offsets_cursor_reads_what_comes_after_it(server: Server) -> None:
    name = server.queue(partitions=2)
    keys = server.fill(name, "a", "b", "c", partition=2)
    server.fill(name, "elsewhere")

    before = show(server, name)[1]["cursor"]
    commit(server, name, {"partition": 2, "message_id": keys[1]})
    after = show(server, name)[1]["cursor"]

    assert server.bodies(name, cursor=before) == ["a", "b", "c"]
    assert server.bodies(name, cursor=after) == ["c"]


def test_ids_are_taken_as_everywhere_and_given_in_their_wire_form(server: Server) -> None:
    name = server.queue()
    key = server.add(name)["key"]
    dashed = f"{key[:8]}-{key[8:12]}-{key[12:16]}-{key[16:20]}-{key[20:]}".upper()

    assert ids(commit(server, name, {"partition": 1, "message_id": dashed})) == {1: key}


def test_a_former_owner_is_refused_and_nothing_of_its_request_is_stored(server: Server) -> None:
    name = server.queue(partitions=2)
    keys = [server.fill(name, "a", "b", partition=partition) for partition in (1, 2)]
    commit(server, name, {"partition": 1, "message_id": keys[0][0]}, generation=1)

    assert ids(claim(server, name, 1, generation=2)) == {1: keys[0][0]}
    late = {"offsets": [{"partition": n, "message_id": keys[n - 1][1]} for n in (1, 2)], "generation": 1}
    texts = refused(put(server, name, late), 409, "StaleGeneration")

    assert "partition 1" in texts["StaleGeneration"]
    assert "generation 2" in texts["StaleGeneration"]
    assert ids(show(server, name)) == {1: keys[0][0], 2: None}
    assert put(server, name, late | {"generation": 2}).status_code == 200


def test_an_offset_goes_back_only_by_a_reset(server: Server) -> None:
    name = server.queue()
    first, second = server.fill(name, "a", "b")
    commit(server, name, {"partition": 1, "message_id": second}, generation=5)

    refused(
        put(server, name, {"offsets": [{"partition": 1, "message_id": first}], "generation": 6}), 409, "OffsetMovesBack"
    )
    assert show(server, name)[0]["generation"] == 5
    (told,) = commit(server, name, {"partition": 1, "message_id": first}, reset=True)

    assert (told["old_message_id"], told["message_id"], told["generation"]) == (second, first, 6)
    refused(
        put(server, name, {"offsets": [{"partition": 1, "message_id": second}], "generation": 5}),
        409,
        "StaleGeneration",
    )
    assert ids(claim(server, name, 1, generation=6)) == {1: first}


def test_a_generation_rises_by_2_to_the_40_at_once(server: Server) -> None:
    name = server.queue()

    refused(put(server, name, {"offsets": ONE, "generation": GREATEST}), 400, "generation")
    assert claim(server, name, 1, generation=STEP)[0]["generation"] == STEP
    refused(put(server, name, {"offsets": ONE, "generation": 2 * STEP + 1}), 400, "generation")
    assert claim(server, name, 1, generation=2 * STEP)[0]["generation"] == 2 * STEP
    assert show(server, name)[0]["generation"] == 2 * STEP


# Resetting


@pytest.fixture
def stocked(server: Server) -> tuple[str, list[list[str]]]:
    """A queue of two partitions with three messages each, of which the group has finished two in each; the ids."""
    name = server.queue(partitions=2)
    keys = [server.fill(name, "a", "b", "c", partition=partition) for partition in (1, 2)]
    commit(server, name, *({"partition": n, "message_id": keys[n - 1][1]} for n in (1, 2)), generation=1)
    return name, keys


def test_a_reset_to_the_beginning(server: Server, stocked: tuple[str, list[list[str]]]) -> None:
    name, keys = stocked

    entries = reset(server, name, to="beginning")

    assert [entry["old_message_id"] for entry in entries] == [keys[0][1], keys[1][1]]
    assert ids(entries) == ids(show(server, name)) == {1: None, 2: None}
    assert [entry["generation"] for entry in show(server, name)] == [2, 2]


def test_a_reset_to_the_end_of_some_partitions(server: Server, stocked: tuple[str, list[list[str]]]) -> None:
    name, keys = stocked

    assert ids(reset(server, name, to="end", partitions=[2])) == {2: keys[1][2]}
    assert ids(show(server, name)) == {1: keys[0][1], 2: keys[1][2]}


def test_a_reset_to_a_moment_leaves_it_to_be_processed(server: Server, stocked: tuple[str, list[list[str]]]) -> None:
    name, keys = stocked

    entries = reset(server, name, to=MessageId.parse(keys[0][2]).timestamp)

    assert ids(entries)[1] == keys[0][1]
    assert server.bodies(name, cursor=entries[0]["cursor"])[0] == "c"
    assert ids(reset(server, name, to="0")) == {1: None, 2: None}
    assert ids(reset(server, name, to="99999999999")) == {1: keys[0][2], 2: keys[1][2]}


def test_a_reset_to_a_message_takes_it_for_finished(server: Server, stocked: tuple[str, list[list[str]]]) -> None:
    name, keys = stocked

    (told,) = reset(server, name, to=keys[0][0], partitions=[1])

    assert told["message_id"] == keys[0][0]
    assert server.bodies(name, cursor=told["cursor"]) == ["b", "c"]


def test_the_end_is_before_what_is_not_due_yet(server: Server) -> None:
    name = server.queue(partitions=2)
    key = server.add(name, x_partition=1)["key"]
    server.add(name, "later", x_partition=1, x_delay=3600)
    server.add(name, "later", x_partition=2, x_delay=3600)

    assert ids(reset(server, name, to="end")) == {1: key, 2: None}


@pytest.mark.parametrize("to", ["beginning", "end"])
def test_a_preview_says_what_would_be_and_changes_nothing(
    server: Server, stocked: tuple[str, list[list[str]]], to: str
) -> None:
    name, _ = stocked
    before = show(server, name)

    answer = put(server, name, {"reset": True, "to": to, "preview": True}).json()

    assert answer["preview"] is True
    assert show(server, name) == before
    done = put(server, name, {"reset": True, "to": to}).json()
    assert done["preview"] is False
    for shown, made in zip(answer["offsets"], done["offsets"], strict=True):
        assert shown | {"timestamp": None} == made | {"timestamp": None}


def test_a_preview_makes_no_group(server: Server) -> None:
    name = server.queue()

    put(server, name, {"reset": True, "to": "end", "preview": True})

    assert groups(server, name) == []


def test_a_reset_of_single_partitions_to_single_places(server: Server, stocked: tuple[str, list[list[str]]]) -> None:
    name, keys = stocked

    preview = commit(
        server, name, {"partition": 1}, {"partition": 2, "message_id": keys[1][0]}, reset=True, preview=True
    )
    made = commit(server, name, {"partition": 1}, {"partition": 2, "message_id": keys[1][0]}, reset=True)

    assert ids(preview) == ids(made) == ids(show(server, name)) == {1: None, 2: keys[1][0]}


# Groups


def test_groups_are_listed_by_name_and_page_by_page(server: Server) -> None:
    name, elsewhere = server.queue(), server.queue()
    names = sorted(["mail", "Mail", "a.b", "a-b", "a_b", "0", "x" * 100])
    for group in names:
        commit(server, name, {"partition": 1}, group=group)
    commit(server, elsewhere, {"partition": 1}, group="other")

    answer = server.call("GET", name, "offsets", params={"limit": 3})
    further = server.request("GET", answer.links["next"]["url"])

    assert groups(server, name) == groups(server, name, limit=MAX_GROUPS) == names
    assert [entry["group"] for entry in answer.json()["groups"]] == names[:3]
    assert [entry["group"] for entry in further.json()["groups"]] == names[3:6]
    assert groups(server, name, offset=names[5]) == names[5:]
    assert "Link" not in server.call("GET", name, "offsets", params={"limit": 7}).headers


def test_a_group_is_forgotten(server: Server) -> None:
    name = server.queue()
    key = server.add(name)["key"]
    for group in ("mail", "kept"):
        commit(server, name, {"partition": 1, "message_id": key}, group=group, generation=4)

    for _ in range(2):
        answer = server.call("DELETE", name, "offsets", "mail")
        assert (answer.status_code, answer.json()) == (200, {"status": "ok"})

    assert groups(server, name) == ["kept"]
    assert ids(show(server, name)) == {1: None}
    assert claim(server, name, 1, generation=0)[0]["generation"] == 0


def test_a_queue_made_anew_has_no_offsets_of_its_former_self(server: Server) -> None:
    """G9."""
    name = server.queue()
    key = server.add(name)["key"]
    (former,) = commit(server, name, {"partition": 1, "message_id": key}, generation=9)
    server.call("DELETE", name)

    assert server.call("GET", name, "offsets", "mail").status_code == 404
    assert put(server, name, {"offsets": [{"partition": 1}]}).status_code == 404
    server.create(name)

    assert groups(server, name) == []
    assert ids(show(server, name)) == {1: None}
    assert claim(server, name, 1, generation=1)[0]["generation"] == 1
    refused(server.get(name, cursor=former["cursor"]), 409, "cursor")


def test_partitions_that_a_queue_gains_have_offsets_too(server: Server) -> None:
    name = server.queue()
    key = server.add(name)["key"]
    commit(server, name, {"partition": 1, "message_id": key})
    server.call("PUT", name, data={"partitions": 3})

    assert ids(show(server, name)) == {1: key, 2: None, 3: None}
    claim(server, name, 3, generation=0)


# What is refused

ID = "1f9f6640e56711f189bf02fc00000001"
ONE = [{"partition": 1, "message_id": ID}]


@pytest.mark.parametrize(
    ("body", "keys"),
    [
        ({}, ["offsets"]),
        ({"offsets": None}, ["offsets"]),
        ({"offsets": []}, ["offsets"]),
        ({"offsets": {}}, ["offsets"]),
        ({"offsets": [{"partition": 1}] * 3}, ["offsets"]),
        ({"offsets": ["1", {"message_id": ID}]}, ["0", "0.partition", "1.partition"]),
        ({"offsets": [{"partition": 0}, {"partition": 3}]}, ["0.partition", "1.partition"]),
        ({"offsets": [{"partition": "1"}, {"partition": True}]}, ["0.partition", "1.partition"]),
        ({"offsets": [{"partition": 1.0}, {"partition": 1}]}, ["0.partition"]),
        ({"offsets": [{"partition": 2}, {"partition": 2}]}, ["1.partition"]),
        ({"offsets": [{"partition": 1, "message_id": "x"}]}, ["0.message_id"]),
        ({"offsets": [{"partition": 1, "message_id": f"1:{ID}"}]}, ["0.message_id"]),
        ({"offsets": [{"partition": 1, "message_id": 5}]}, ["0.message_id"]),
        ({"offsets": ONE, "generation": -1}, ["generation"]),
        ({"offsets": ONE, "generation": GREATEST + 1}, ["generation"]),
        ({"offsets": ONE, "generation": 1 << 70}, ["generation"]),
        ({"offsets": ONE, "generation": 1.5}, ["generation"]),
        ({"offsets": ONE, "generation": "1"}, ["generation"]),
        ({"offsets": ONE, "generation": True}, ["generation"]),
        ({"offsets": ONE, "reset": "yes"}, ["reset"]),
        ({"offsets": ONE, "reset": True, "generation": 1}, ["generation"]),
        ({"offsets": ONE, "reset": True, "partitions": [1]}, ["partitions"]),
        ({"offsets": ONE, "preview": True}, ["preview"]),
        ({"offsets": ONE, "reset": True, "preview": 1}, ["preview"]),
        ({"offsets": ONE, "reset": True, "to": "end"}, ["offsets"]),
        ({"to": "end"}, ["to"]),
        ({"reset": True}, ["offsets"]),
        ({"reset": True, "to": "middle"}, ["to"]),
        ({"reset": True, "to": ""}, ["to"]),
        ({"reset": True, "to": 5}, ["to"]),
        ({"reset": True, "to": "end", "partitions": []}, ["partitions"]),
        ({"reset": True, "to": "end", "partitions": [3]}, ["partitions"]),
        ({"reset": True, "to": "end", "partitions": [1, 1]}, ["partitions"]),
        ({"reset": True, "to": "end", "partitions": "all"}, ["partitions"]),
        ({"reset": True, "to": "end", "preview": None}, ["preview"]),
        ({"reset": True, "to": "end", "partitions": None}, ["partitions"]),
        ({"reset": None, "offsets": ONE}, ["reset"]),
        ({"offsets": ONE, "generation": None}, ["generation"]),
        ({"reset": True, "to": "end", "partition": [1]}, ["partition"]),
        ({"reset": True, "to": "end", "dry_run": True}, ["dry_run"]),
        ({"offsets": ONE, "generaton": 3}, ["generaton"]),
        ({"offsets": [{"partition": 1, "message-id": ID}]}, ["0.message-id"]),
        ([], ["InvalidParameter"]),
        ("x", ["InvalidParameter"]),
    ],
    ids=str,
)
def test_a_body_that_says_something_else_is_refused_by_name(server: Server, body: Any, keys: list[str]) -> None:
    name = server.queue(partitions=2)

    refused(put(server, name, body), 400, *keys)

    assert groups(server, name) == []


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"\xff",
        b'{"offsets":[],"offsets":[]}',
        b'{"generation":NaN}',
        b'{"a":' + b"[" * 50 + b"]" * 50 + b"}",
    ],
)
def test_a_body_that_is_no_json_object_is_refused(server: Server, raw: bytes) -> None:
    refused(server.call("PUT", server.queue(), "offsets", "mail", data=raw), 400)


@pytest.mark.parametrize("group", ["x" * 101, "a b", "a:b", "a,b", "ä", "a%2Fb"])
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
def test_a_group_has_a_plain_name(server: Server, method: str, group: str) -> None:
    body = {"json": {"offsets": [{"partition": 1}]}} if method == "PUT" else {}
    answer = server.call(method, server.queue(), "offsets", group, **body)

    assert answer.status_code == (404 if "/" in group else 400), answer.text
    if answer.status_code == 400:
        assert set(answer.json()["error_msg"]) <= {"group", "path"}


@pytest.mark.parametrize("limit", ["0", "1001", "x"])
def test_the_limit_of_the_list_is_checked(server: Server, limit: str) -> None:
    refused(server.call("GET", server.queue(), "offsets", params={"limit": limit}), 400, "limit")


def test_methods_that_are_not_offered(server: Server) -> None:
    name = server.queue()

    for method, below, allow in (
        ("POST", ("offsets",), "GET, HEAD"),
        ("DELETE", ("offsets",), "GET, HEAD"),
        ("POST", ("offsets", "mail"), "DELETE, GET, HEAD, PUT"),
    ):
        answer = server.call(method, name, *below, data=b"")
        assert (answer.status_code, answer.headers["Allow"]) == (405, allow)
    assert server.call("GET", name, "offsets", "mail", "more").status_code == 404
