"""Queues: create, list, update, delete (queuey-api-v1 section 4)."""

from __future__ import annotations

import re
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.support.client import Server, new_name, refused


def test_create_without_fields_takes_the_defaults(server: Server) -> None:
    answer = server.call("POST")

    assert answer.status_code == 201
    told = answer.json()
    assert re.fullmatch(r"[0-9a-f]{32}", told.pop("queue_name"))
    assert told == {"status": "ok", "partitions": 1, "type": "user", "consistency": "strong", "principles": None}


def test_create_echoes_what_was_given(server: Server) -> None:
    name = new_name()

    answer = server.create(
        name, partitions=4, type="public", consistency="very_strong", principles="app:other, bid:joe@example.com"
    )

    assert answer.status_code == 201
    assert answer.json() == {
        "status": "ok",
        "queue_name": name,
        "partitions": 4,
        "type": "public",
        "consistency": "very_strong",
        "principles": "app:other, bid:joe@example.com",
    }


def test_create_takes_multipart_forms(server: Server) -> None:
    name = new_name()

    answer = server.call("POST", files={"queue_name": (None, name), "partitions": (None, "3")})

    assert answer.status_code == 201
    assert answer.json()["queue_name"] == name
    assert answer.json()["partitions"] == 3


PART = b'--b\r\nContent-Disposition: form-data; name="queue_name"\r\n'
MULTIPART = "multipart/form-data; boundary=b"
URLENCODED = "application/x-www-form-urlencoded"


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("multipart/form-data", PART + b"\r\nx\r\n--b--"),
        (MULTIPART, PART + b"\r\nx\r\n"),
        (MULTIPART, PART + b"\r\n\xff\r\n--b--"),
        (MULTIPART, PART + b"Content-Transfer-Encoding: base64\r\n\r\neA==\r\n--b--"),
        (MULTIPART, b"--b\r\nContent-Disposition: form-data; name*=utf-8''queue_name\r\n\r\nx\r\n--b--"),
        (MULTIPART, b"--b\r\nContent-Type: multipart/mixed; boundary=c\r\n\r\n--c\r\n\r\nx\r\n--c--\r\n--b--"),
        (MULTIPART, b"--b\r\nContent-Disposition: form-data" + b"; a=b" * 12_000 + b"\r\n\r\nx\r\n--b--"),
        (MULTIPART, b"--b\r\n" + b"X-Header: y\r\n" * 4000 + b"\r\nx\r\n--b--"),
        (MULTIPART, (PART + b"\r\nx\r\n") * 1000 + b"--b--"),
        (MULTIPART + "b" * 300, b"--b--"),
        (URLENCODED, b"queue_name=\xff"),
        (URLENCODED, b"&".join(b"field%d=x" % number for number in range(101))),
    ],
    ids=lambda value: str(value[:30]),
)
def test_what_is_no_form_is_refused(server: Server, content_type: str, body: bytes) -> None:
    name = server.queue()
    for answer in (
        server.call("POST", data=body, headers={"Content-Type": content_type}),
        server.call("PUT", name, data=body, headers={"Content-Type": content_type}),
    ):
        refused(answer, 400, "body")


@pytest.mark.parametrize("content_type", [MULTIPART, URLENCODED, "application/json"])
def test_a_form_has_64_kib_at_most(server: Server, content_type: str) -> None:
    name, body = server.queue(), b"x" * ((64 << 10) + 1)

    refused(server.call("POST", data=body, headers={"Content-Type": content_type}), 413, "MessageTooLarge")
    refused(server.call("PUT", name, data=body, headers={"Content-Type": content_type}), 413, "MessageTooLarge")
    refused(server.call("PUT", name, "offsets", "mail", data=body), 413, "MessageTooLarge")


@pytest.mark.parametrize("ways", [("POST",), ("PUT", "a queue")])
@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"data": b'{"principles": ""}', "headers": {"Content-Type": "application/json"}}, "body"),
        ({"data": b"principles=", "headers": {"Content-Type": "text/plain"}}, "body"),
        ({"data": b"principles="}, "body"),
        ({"data": b"--x--", "headers": {"Content-Type": "multipart/form-data"}}, "body"),
        ({"data": b"&&", "headers": {"Content-Type": "application/x-www-form-urlencoded"}}, "body"),
        ({"data": {"principals": "bid:joe@example.org"}}, "principals"),
        ({"data": {"Type": "public"}}, "Type"),
        ({"data": {"colour": "blue"}}, "colour"),
        ({"data": [("type", "user"), ("type", "public")]}, "type"),
        ({"params": {"principles": "bid:joe@example.org"}}, "principles"),
        ({"params": {"type": "user"}, "data": {"type": "user"}}, "type"),
    ],
)
def test_settings_that_are_not_understood_are_refused_and_nothing_changes(
    server: Server, ways: tuple[str, ...], given: dict[str, Any], field: str
) -> None:
    """Otherwise other people could read the queue than the caller meant."""
    name = server.queue(principles="bid:ann@example.org")
    method, *below = ways

    answer = server.call(method, *[name for _ in below], **given)

    refused(answer, 400, field)
    assert server.settings(name)["principles"] == "bid:ann@example.org"


def test_a_parameter_that_is_no_setting_is_ignored(server: Server) -> None:
    assert server.call("POST", params={"_": "1795236650"}).status_code == 201


def test_an_empty_body_of_any_type_takes_the_defaults(server: Server) -> None:
    assert server.call("POST", data=b"", headers={"Content-Type": "application/json"}).json()["partitions"] == 1


def test_create_with_another_if_none_match_is_refused(server: Server) -> None:
    """It would change the settings of a queue that exists."""
    refused(server.call("POST", headers={"If-None-Match": '"*"'}), 400, "If-None-Match")


def test_an_empty_field_is_an_absent_field(server: Server) -> None:
    answer = server.call(
        "POST", data={"queue_name": "", "partitions": "", "type": "", "consistency": "", "principles": ""}
    )

    assert answer.status_code == 201
    told = answer.json()
    assert re.fullmatch(r"[0-9a-f]{32}", told["queue_name"])
    assert (told["partitions"], told["type"], told["consistency"]) == (1, "user", "strong")


@pytest.mark.parametrize("partitions", [1, 2, 199, 200])
def test_create_takes_1_to_200_partitions(server: Server, partitions: int) -> None:
    assert server.create(partitions=partitions).json()["partitions"] == partitions


def test_an_integer_may_carry_a_sign(server: Server) -> None:
    assert server.create(partitions="+2").json()["partitions"] == 2


@pytest.mark.parametrize("consistency", ["weak", "strong", "very_strong"])
def test_create_takes_each_consistency_level(server: Server, consistency: str) -> None:
    assert server.create(consistency=consistency).json()["consistency"] == consistency


def test_a_name_may_have_50_characters_of_letters_digits_underscore_dash_and_dot(server: Server) -> None:
    for name in ("a", "A-b_c.9", "x" * 50, "...", "-", "1"):
        assert server.create(name).status_code == 201
        assert server.call("GET", name).status_code == 200


def test_create_again_is_201_and_keeps_the_messages(server: Server) -> None:
    name = server.queue()
    server.add(name, "kept")

    assert server.create(name).status_code == 201

    assert server.bodies(name) == ["kept"]


def test_create_with_if_none_match_refuses_a_queue_that_exists(server: Server) -> None:
    name = new_name()

    first = server.call("POST", data={"queue_name": name}, headers={"If-None-Match": "*"})
    second = server.call("POST", data={"queue_name": name}, headers={"If-None-Match": "*"})

    assert first.status_code == 201
    refused(second, 409, "QueueExists")


def test_list_without_details_has_names_only(fresh: Server) -> None:
    names = sorted(fresh.queue() for _ in range(3))

    answer = fresh.call("GET")

    assert answer.status_code == 200
    assert answer.json()["status"] == "ok"
    queues = answer.json()["queues"]
    assert sorted(queues, key=lambda queue: str(queue["queue_name"])) == [{"queue_name": name} for name in names]


def test_list_of_an_application_without_queues_is_empty(fresh: Server) -> None:
    assert fresh.call("GET").json() == {"status": "ok", "queues": []}


def test_list_without_limit_gives_all(fresh: Server) -> None:
    names = {f"n{number:04d}" for number in range(130)}
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(fresh.create, names))

    queues = fresh.call("GET").json()["queues"]

    assert {queue["queue_name"] for queue in queues} == names
    assert len(queues) == 130


def test_list_pages_by_offset_inclusive_without_gap_or_repeat(fresh: Server) -> None:
    names = {f"n{number:02d}" for number in range(10)}
    for name in names:
        fresh.create(name)

    seen: list[str] = []
    offset = ""
    while True:
        page = fresh.call("GET", params={"limit": 4, "offset": offset}).json()["queues"]
        found = [queue["queue_name"] for queue in page]
        if offset:
            assert found[0] == offset
            found = found[1:]
        if not found:
            break
        seen += found
        offset = found[-1]

    assert len(seen) == 10
    assert set(seen) == names


def test_list_limited_with_more_to_come_links_to_the_next_page(fresh: Server) -> None:
    names = {f"n{number}" for number in range(5)}
    for name in names:
        fresh.create(name)

    seen: list[str] = []
    path = f"/v1/{fresh.application}?limit=2"
    for _ in range(3):
        answer = fresh.request("GET", path)
        seen += [queue["queue_name"] for queue in answer.json()["queues"]]
        following = answer.links.get("next")
        if following is None:
            break
        path = following["url"].removeprefix(fresh.url)

    assert following is None
    assert len(seen) == 5
    assert set(seen) == names


@pytest.fixture(scope="module")
def crowd() -> list[str]:
    """Names for more queues than one page of the store, twice over and one more."""
    return [f"n{number:05d}" for number in range(2001)]


# Pages of a store join in the contract of stores; this is about the pages that the service joins.
@pytest.mark.parametrize("running", ["shipped"], indirect=True)
def test_a_list_of_any_length_is_whole(fresh: Server, crowd: list[str]) -> None:
    with ThreadPoolExecutor(8) as threads:
        made = list(threads.map(fresh.create, crowd))
    assert {answer.status_code for answer in made} == {201}

    for start, limit in ((0, None), (1, None), (1000, None), (1001, None), (0, 1000), (0, 1001), (0, 2000), (1, 2000)):
        params = {"offset": crowd[start], "limit": limit}
        queues = fresh.call("GET", params=params).json()["queues"]
        wanted = crowd[start:] if limit is None else crowd[start : start + limit]
        assert [queue["queue_name"] for queue in queues] == wanted


def test_list_starts_at_the_queue_named_by_offset_so_one_can_be_asked_for(fresh: Server) -> None:
    for name in ("aaa", "bbb", "ccc"):
        fresh.create(name)

    answer = fresh.call("GET", params={"details": "true", "limit": 1, "offset": "bbb"})

    (found,) = answer.json()["queues"]
    assert found["queue_name"] == "bbb"


def test_list_with_an_offset_that_does_not_exist_starts_at_the_next(fresh: Server) -> None:
    for name in ("aaa", "ccc"):
        fresh.create(name)

    answer = fresh.call("GET", params={"offset": "bbb"})

    assert answer.json()["queues"] == [{"queue_name": "ccc"}]


def test_list_with_details_has_the_settings(server: Server) -> None:
    before = time.time()
    name = server.queue(partitions=3, type="public", consistency="weak", principles="app:other,bid:joe@example.com")

    found = server.settings(name)

    assert isinstance(found["created"], float | int)
    assert before - 1 <= found.pop("created") <= time.time() + 1
    assert found == {
        "queue_name": name,
        "application": "queuey",
        "partitions": 3,
        "type": "public",
        "consistency": "weak",
        "principles": "app:other,bid:joe@example.com",
    }


def test_details_leave_out_principles_that_were_never_set(server: Server) -> None:
    assert "principles" not in server.settings(server.queue())


def test_list_with_count_sums_all_partitions_and_has_the_settings(fresh: Server) -> None:
    name = fresh.queue(partitions=3)
    for partition in (1, 2, 3):
        fresh.fill(name, "a", "b", partition=partition)

    (found,) = fresh.call("GET", params={"include_count": "true"}).json()["queues"]

    assert found["count"] == 6
    assert found["partitions"] == 3
    assert found["application"] == fresh.application


def test_a_deleted_message_is_not_counted(fresh: Server) -> None:
    name = fresh.queue()
    first, _ = fresh.fill(name, "a", "b")
    fresh.call("DELETE", name, first)

    (found,) = fresh.call("GET", params={"include_count": "true"}).json()["queues"]

    assert found["count"] == 1


@pytest.mark.parametrize("word", ["true", "True", "1", "no", "anything"])
def test_any_other_text_is_true(fresh: Server, word: str) -> None:
    fresh.queue()

    (found,) = fresh.call("GET", params={"details": word}).json()["queues"]

    assert "partitions" in found


@pytest.mark.parametrize("word", ["false", "False", "FALSE", "0", ""])
def test_the_words_for_false(fresh: Server, word: str) -> None:
    name = fresh.queue()

    found = fresh.call("GET", params={"details": word, "include_count": word}).json()["queues"]

    assert found == [{"queue_name": name}]


def test_update_changes_the_settings_sent_and_tells_them(server: Server) -> None:
    name = server.queue(partitions=2)
    created = server.settings(name)["created"]

    answer = server.call(
        "PUT", name, data={"partitions": 5, "type": "public", "consistency": "weak", "principles": "app:other"}
    )

    assert answer.status_code == 200
    told = answer.json()
    told.pop("consistency", None)
    assert told == {
        "status": "ok",
        "queue_name": name,
        "partitions": 5,
        "type": "public",
        "created": created,
        "principles": ["app:other"],
    }
    assert server.settings(name)["consistency"] == "weak"


def test_update_without_principals_tells_an_empty_list(server: Server) -> None:
    assert server.call("PUT", server.queue(), data={"partitions": 2}).json()["principles"] == []


def test_update_takes_multipart(server: Server) -> None:
    name = server.queue(partitions=2)

    answer = server.call("PUT", name, files={"partitions": (None, "4")})

    assert answer.status_code == 200
    assert answer.json()["partitions"] == 4


def test_update_to_the_same_number_of_partitions_is_no_error(server: Server) -> None:
    assert server.call("PUT", server.queue(partitions=3), data={"partitions": 3}).status_code == 200


def test_a_partition_gained_takes_messages_and_the_old_ones_stay(server: Server) -> None:
    name = server.queue()
    server.fill(name, "old")

    server.call("PUT", name, data={"partitions": 2})
    server.fill(name, "new", partition=2)

    assert server.bodies(name, partitions="1,2") == ["old", "new"]


def test_update_of_an_absent_queue_is_404(server: Server) -> None:
    refused(server.call("PUT", new_name(), data={"partitions": 2}), 404, "InvalidQueueName")


def test_delete_removes_the_queue_and_its_messages(server: Server) -> None:
    name = server.queue()
    key = server.add(name)["key"]

    answer = server.call("DELETE", name)

    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})
    refused(server.call("GET", name), 404, "InvalidQueueName")
    refused(server.post(name), 404, "InvalidQueueName")
    refused(server.call("GET", name, key), 404, "InvalidQueueName")
    refused(server.call("DELETE", name), 404, "InvalidQueueName")


@pytest.mark.parametrize(
    ("given", "field"),
    [({"params": {"partition": "2"}}, "query"), ({"json": {"ids": []}}, "body"), ({"data": b"x"}, "body")],
)
def test_a_deletion_that_was_meant_for_a_part_removes_nothing(
    server: Server, given: dict[str, Any], field: str
) -> None:
    name = server.queue()
    server.add(name, "kept")
    server.call("PUT", name, "offsets", "mail", json={"offsets": {"1": server.read(name)[0]["message_id"]}})

    refused(server.call("DELETE", name, **given), 400, field)
    refused(server.call("DELETE", name, "offsets", "mail", **given), 400, field)

    assert server.bodies(name) == ["kept"]


def test_delete_takes_the_queue_off_the_list(fresh: Server) -> None:
    gone, kept = fresh.queue(), fresh.queue()

    fresh.call("DELETE", gone)

    assert fresh.call("GET").json()["queues"] == [{"queue_name": kept}]


def test_a_queue_made_anew_has_nothing_of_its_former_self(server: Server) -> None:
    name = server.queue(partitions=5, type="public")
    key = server.add(name, x_partition=1)["key"]
    server.call("DELETE", name)

    server.create(name)

    assert server.settings(name)["partitions"] == 1
    assert server.settings(name)["type"] == "user"
    assert server.everything(name) == []
    assert server.fetch(name, key) == []
