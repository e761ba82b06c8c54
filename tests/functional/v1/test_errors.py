"""Refusals: their keys, texts and shapes (queuey-api-v1 sections 1, 2.2 and 2.3)."""

from __future__ import annotations

import json
from typing import Any

import pytest
import requests

from queuey.errors import error_classes
from tests.support.client import BATCH, Server, refused
from tests.support.servers import APPLICATIONS, RunningServer

ABSENT_ID = "1f9f6640e56711f189bf02fc00000001"


@pytest.fixture
def running(shipped_server: RunningServer) -> RunningServer:
    """Of a refusal nothing is about a store."""
    return shipped_server


def test_a_field_that_is_no_integer(server: Server) -> None:
    texts = refused(server.create(partitions="fred"), 400, "partitions")

    assert texts == {"partitions": '"fred" is not a number'}


@pytest.mark.parametrize("text", ["2.7", "1.5", "1e3", "0x10", "٣", "1_000", "--1", "+"])
def test_an_integer_is_decimal_digits(server: Server, text: str) -> None:
    name = server.queue()

    assert refused(server.get(name, limit=text), 400, "limit") == {"limit": f'"{text}" is not a number'}
    refused(server.create(partitions=text), 400, "partitions")


@pytest.mark.parametrize(
    ("partitions", "text"),
    [
        ("0", "0 is less than minimum value 1"),
        ("-1", "-1 is less than minimum value 1"),
        ("201", "201 is greater than maximum value 200"),
    ],
)
def test_partitions_out_of_range(server: Server, partitions: str, text: str) -> None:
    name = server.queue()

    assert refused(server.create(partitions=partitions), 400, "partitions") == {"partitions": text}
    assert refused(server.call("PUT", name, data={"partitions": partitions}), 400, "partitions") == {"partitions": text}


@pytest.mark.parametrize(
    ("partition", "text"),
    [("0", "0 is less than minimum value 1"), ("4", "4 is greater than maximum value 1")],
)
def test_a_partition_the_queue_does_not_have(server: Server, partition: str, text: str) -> None:
    name = server.queue()

    assert refused(server.post(name, x_partition=partition), 400, "partition") == {"partition": text}
    batch = server.post_batch(name, {"body": "a"}, {"body": "b", "partition": int(partition)})
    assert refused(batch, 400, "1.partition") == {"1.partition": text}


@pytest.mark.parametrize(
    ("limit", "text"),
    [
        ("0", "0 is less than minimum value 1"),
        ("-5", "-5 is less than minimum value 1"),
        ("1001", "1001 is greater than maximum value 1000"),
    ],
)
def test_a_limit_out_of_range(server: Server, limit: str, text: str) -> None:
    assert refused(server.get(server.queue(), limit=limit), 400, "limit") == {"limit": text}


@pytest.mark.parametrize(
    ("ttl", "text"),
    [
        ("fred", '"fred" is not a number'),
        ("0", "0 is less than minimum value 1"),
        ("-1", "-1 is less than minimum value 1"),
        ("33554433", "33554433 is greater than maximum value 33554432"),
    ],
)
def test_a_bad_ttl_has_exactly_one_key(server: Server, ttl: str, text: str) -> None:
    name = server.queue()

    assert refused(server.post(name, x_ttl=ttl), 400, "ttl") == {"ttl": text}
    assert refused(server.post_batch(name, {"body": "x", "ttl": ttl}), 400, "0.ttl") == {"0.ttl": text}
    assert server.everything(name) == []


def test_an_unknown_order(server: Server) -> None:
    texts = refused(server.get(server.queue(), order="undefined"), 400, "order")

    assert texts == {"order": '"undefined" is not one of descending, ascending'}


@pytest.mark.parametrize("field", ["type", "consistency"])
def test_a_word_that_is_none_of_those_allowed(server: Server, field: str) -> None:
    for answer in (server.create(**{field: "odd"}), server.call("PUT", server.queue(), data={field: "odd"})):
        assert refused(answer, 400, field)[field].startswith('"odd" is not one of ')


def test_an_empty_body_is_required(server: Server) -> None:
    name = server.queue()

    assert refused(server.post(name, b""), 400, "body") == {"body": "Required"}
    assert refused(server.post_batch(name, {"body": ""}), 400, "0.body") == {"0.body": "Required"}
    assert refused(server.post_batch(name, {"ttl": 5}), 400, "0.body") == {"0.body": "Required"}


@pytest.mark.parametrize(
    "principles", ["joe", "app:", "bid:joe", "app:a b", "user:joe", ",", "app:a,,app:b", "bid:@x.org"]
)
def test_a_bad_list_of_principals(server: Server, principles: str) -> None:
    refused(server.create(principles=principles), 400, "principles")
    refused(server.call("PUT", server.queue(), data={"principles": principles}), 400, "principles")


def test_all_failing_fields_are_told_together(server: Server) -> None:
    answer = server.create(partitions="fred", type="odd", consistency="odder", principles="?")

    refused(answer, 400, "partitions", "type", "consistency", "principles")


def test_all_failing_parameters_of_a_read_are_told_together(server: Server) -> None:
    answer = server.get(server.queue(), limit="x", order="y", since="z", partitions="w", until="v", columns="u")

    refused(answer, 400, "limit", "order", "since", "partitions", "until", "columns")


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"{}", b"null", b'"x"', b'{"messages": 1}', b'{"message": []}'])
def test_a_batch_that_is_not_json_or_has_no_messages(server: Server, body: bytes) -> None:
    answer = server.post(server.queue(), body, content_type=BATCH)

    refused(answer, 400, "InvalidParameter")


def test_fewer_partitions_than_now(server: Server) -> None:
    name = server.queue(partitions=3)

    refused(server.call("PUT", name, data={"partitions": 2}), 400, "InvalidUpdate")
    assert server.settings(name)["partitions"] == 3


def test_a_malformed_list_of_ids(server: Server) -> None:
    refused(server.call("GET", server.queue(), "not-an-id"), 400, "InvalidMessageID")


@pytest.mark.parametrize("name", ["never-made", "x" * 51, "a:b", "a,b", "a b", "ü"])
def test_an_unknown_queue_or_an_impossible_name(server: Server, name: str) -> None:
    refused(server.get(name), 404, "InvalidQueueName")
    refused(server.post(name), 404, "InvalidQueueName")
    refused(server.call("PUT", name, data={"partitions": 2}), 404, "InvalidQueueName")
    refused(server.call("DELETE", name), 404, "InvalidQueueName")
    refused(server.call("GET", name, ABSENT_ID), 404, "InvalidQueueName")


@pytest.mark.parametrize("application", ["nobody", "Queuey", "queuey ", "fresh-", "_"])
@pytest.mark.parametrize("key", ["wrong" * 8, None, APPLICATIONS["queuey"][0]], ids=["wrong", "none", "of another"])
def test_an_unknown_application_is_404_before_anyone_is_asked_who_they_are(
    server: Server, application: str, key: str | None
) -> None:
    with server.seen_by(key) as caller:
        caller.application = application
        refused(caller.call("GET"), 404, "ApplicationNotFound")
        refused(caller.post("queue"), 404, "ApplicationNotFound")


@pytest.mark.parametrize("path", ["/", "/v2/queuey", "/v1/queuey/q/m/x", "/favicon.ico", "/admin", "//"])
def test_an_unknown_path_is_404(server: Server, path: str) -> None:
    refused(server.request("GET", path), 404, "NotFound")


@pytest.mark.parametrize(
    ("method", "below", "allowed"),
    [
        ("PUT", [], {"GET", "POST"}),
        ("DELETE", [], {"GET", "POST"}),
        ("PATCH", [], {"GET", "POST"}),
        ("PATCH", ["q"], {"GET", "POST", "PUT", "DELETE"}),
        ("POST", ["q", ABSENT_ID], {"GET", "PUT", "DELETE"}),
        ("PATCH", ["q", ABSENT_ID], {"GET", "PUT", "DELETE"}),
        ("OPTIONS", [], {"GET", "POST"}),
        ("OPTIONS", ["q"], {"GET", "POST", "PUT", "DELETE"}),
        ("BREW", ["q"], {"GET", "POST", "PUT", "DELETE"}),
    ],
)
def test_a_method_not_offered_is_405_and_names_those_that_are(
    server: Server, method: str, below: list[str], allowed: set[str]
) -> None:
    answer = server.call(method, *below)

    refused(answer, 405, "MethodNotAllowed")
    named = {word.strip() for word in answer.headers["Allow"].split(",")}
    assert named - {"HEAD", "OPTIONS"} == allowed


def test_head_is_get_without_the_body(server: Server) -> None:
    name = server.queue()
    key = server.add(name)["key"]

    for below in ([], [name], [name, key], ["absent"], [name, "not-an-id"]):
        told, headed = server.call("GET", *below), server.call("HEAD", *below)
        assert (headed.status_code, headed.content) == (told.status_code, b"")
        assert headed.headers["Content-Type"] == told.headers["Content-Type"]


@pytest.mark.parametrize("slash", ["", "/"])
def test_every_path_answers_with_and_without_a_slash_and_no_redirect(server: Server, slash: str) -> None:
    name = server.queue()
    key = server.add(name)["key"]

    for method, path, status in (
        ("GET", "/v1/queuey", 200),
        ("POST", "/v1/queuey", 201),
        ("GET", f"/v1/queuey/{name}", 200),
        ("POST", f"/v1/queuey/{name}", 201),
        ("PUT", f"/v1/queuey/{name}", 200),
        ("GET", f"/v1/queuey/{name}/{key}", 200),
        ("PUT", f"/v1/queuey/{name}/{key}", 200),
        ("DELETE", f"/v1/queuey/{name}/{key}", 200),
        ("DELETE", f"/v1/queuey/{name}", 200),
        ("GET", "/__heartbeat__", 200),
    ):
        is_message = (method, path.count("/")) in (("POST", 3), ("PUT", 4))
        body = b"x" if is_message else None
        assert server.request(method, path + slash, data=body).status_code == status, (method, path + slash)


def some_answers(server: Server) -> list[requests.Response]:
    name = server.queue()
    with server.seen_by(None) as nobody, server.seen_by("wrong" * 8) as stranger:
        return [
            server.get(name),
            server.get("absent"),
            server.get(name, limit=0),
            server.post(name),
            server.request("GET", "/nowhere"),
            server.call("PATCH"),
            nobody.get(name),
            stranger.get(name),
        ]


def test_every_answer_is_json_and_says_so_and_is_not_to_be_sniffed(server: Server) -> None:
    for answer in some_answers(server):
        assert answer.headers["Content-Type"].split(";")[0] == "application/json"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert isinstance(answer.json(), dict)


def test_every_refusal_has_the_members_of_the_shape(server: Server) -> None:
    for answer in some_answers(server):
        if answer.status_code < 400:
            continue
        told: dict[str, Any] = answer.json()
        assert {"status", "error_msg", "code", "detail", "type", "retriable", "request_id", "errors"} <= set(told)
        assert told["status"] == "error"
        assert error_classes()[told["code"]].status == answer.status_code
        assert told["retriable"] is False
        assert told["request_id"] == answer.headers["X-Request-Id"]
        assert isinstance(told["detail"], str)
        assert told["code"] in told["type"]
        assert all(set(error) == {"field", "code", "detail"} for error in told["errors"])


def test_the_list_of_errors_says_what_error_msg_says(server: Server) -> None:
    told = server.create(partitions="fred", type="odd").json()

    assert {error["field"]: error["detail"] for error in told["errors"]} == told["error_msg"]
    assert told["code"] == "InvalidParameter"


def test_a_refusal_as_problem_json(server: Server) -> None:
    answer = server.call("GET", server.queue(), params={"limit": 0}, headers={"Accept": "application/problem+json"})

    assert answer.status_code == 400
    assert answer.headers["Content-Type"] == "application/problem+json"
    told = answer.json()
    assert told["status"] == 400
    assert {"type", "title", "detail", "instance", "code", "retriable", "request_id", "errors"} <= set(told)
    assert "error_msg" not in told
    assert told["errors"][0]["field"] == "limit"


def test_a_success_asked_for_as_problem_json_is_json(server: Server) -> None:
    answer = server.call("GET", server.queue(), headers={"Accept": "application/problem+json, application/json"})

    assert (answer.status_code, answer.headers["Content-Type"]) == (200, "application/json")


def test_a_request_id_is_made_or_taken(server: Server) -> None:
    name = server.queue()

    made = server.get(name).headers["X-Request-Id"]
    taken = server.call("GET", name, headers={"X-Request-Id": "my-id_1.2:3"})

    assert made
    assert made != server.get(name).headers["X-Request-Id"]
    assert taken.headers["X-Request-Id"] == "my-id_1.2:3"


@pytest.mark.parametrize("unsafe", ["x" * 129, "a b", 'a"b', "<b>", "ü".encode().decode("latin-1")])
def test_a_request_id_that_is_long_or_odd_is_not_taken(server: Server, unsafe: str) -> None:
    answer = server.call("GET", "absent", headers={"X-Request-Id": unsafe.encode("latin-1")})

    assert answer.headers["X-Request-Id"] != unsafe
    assert unsafe not in answer.text
    assert answer.json()["request_id"] == answer.headers["X-Request-Id"]


def test_a_request_id_of_128_characters_is_taken(server: Server) -> None:
    answer = server.call("GET", "absent", headers={"X-Request-Id": "x" * 128})

    assert answer.headers["X-Request-Id"] == "x" * 128


def test_no_refusal_repeats_a_body_or_a_key(server: Server) -> None:
    name = server.queue()
    secret = "s3cr3t" * 5

    for answer in (
        server.post(name, json.dumps({"messages": secret}), content_type=BATCH),
        server.post(name, "{" + secret, content_type=BATCH),
        server.post(name, secret, x_partition=9),
        server.call("GET", name, headers={"Authorization": f"Application {secret}"}),
    ):
        assert answer.status_code >= 400
        assert secret not in answer.text


@pytest.mark.parametrize(
    "accept",
    ["*/*", "application/*", "application/json", "text/html, */*;q=0.1", "", "text/html", "image/png", "text/*"],
)
def test_what_asks_for_nothing_we_know_gets_json_as_ever(server: Server, accept: str) -> None:
    answer = server.call("GET", server.queue(), headers={"Accept": accept})

    assert (answer.status_code, answer.headers["Content-Type"]) == (200, "application/json")
