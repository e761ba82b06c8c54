"""Errors of the client: which one says what, and what is refused before it is sent."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from qdo.client import Client
from queuey.errors import (
    BadRequest,
    ConfigurationError,
    Conflict,
    Forbidden,
    InvalidApplicationKey,
    InvalidParameter,
    NotFound,
    OutcomeUnknown,
    QueueExists,
    QueueNotFound,
    QueueyError,
    Throttled,
    error_classes,
)
from tests.support.client_answers import HEX
from tests.support.scripted_server import DROP, Say, Script, refusal


@pytest.mark.parametrize("code", sorted(error_classes()))
def test_an_error_is_raised_as_the_class_of_its_code(script: Script, code: str) -> None:
    expected = error_classes()[code]
    script.say(refusal(expected.status, code))

    with Client(script.url, retries=0) as client, pytest.raises(expected) as caught:
        client.append("q", "hello")

    assert type(caught.value) is expected
    assert "because" in str(caught.value)


def test_all_problems_of_a_refused_request_come_across(client: Client, script: Script) -> None:
    script.say(refusal(400, "InvalidParameter", error_msg={"ttl": "too long", "partition": "too high"}))

    with pytest.raises(InvalidParameter) as caught:
        client.append("q", "hello")

    assert caught.value.problems == {"ttl": "too long", "partition": "too high"}


def test_a_refusal_that_is_about_no_single_field_says_its_code_once(client: Client, script: Script) -> None:
    said = {"InvalidParameter": "because it is no object"}
    script.say(refusal(400, "InvalidParameter", error_msg=said, detail=said["InvalidParameter"]))

    with pytest.raises(InvalidParameter) as caught:
        client.append("q", "hello")

    assert (str(caught.value), caught.value.problems) == (said["InvalidParameter"], said)


@pytest.mark.parametrize(
    ("status", "family"),
    [(400, BadRequest), (403, Forbidden), (404, NotFound), (409, Conflict), (418, BadRequest), (500, QueueyError)],
)
def test_an_unknown_code_stays_visible_in_its_family(
    client: Client, script: Script, status: int, family: type[QueueyError]
) -> None:
    script.say(refusal(status, "NotYetInvented"))

    with pytest.raises(family, match="NotYetInvented: because") as caught:
        client.append("q", "hello")

    assert type(caught.value) is family


def test_an_error_of_the_first_queuey_has_no_code(client: Client, script: Script) -> None:
    script.say(Say(404, b'{"status":"error","error_msg":{"InvalidQueueName":"no such queue"}}'))

    with pytest.raises(NotFound, match="InvalidQueueName: no such queue"):
        client.read("q")


@pytest.mark.parametrize(
    "body",
    [b"<html>", b"[]", b'"crash id 1"', b'{"error_msg": "text"}', b"\xff", b"[" * 100_000],
    ids=lambda body: body[:9],
)
def test_what_a_proxy_says_is_an_error_by_its_status(client: Client, script: Script, body: bytes) -> None:
    script.say(Say(500, body))

    with pytest.raises(QueueyError, match="HTTP 500"):
        client.read("q")


@pytest.mark.parametrize("place", ["http://127.0.0.1:1/", "http://[nowhere", "\xff"])
def test_a_redirect_is_not_followed(client: Client, script: Script, place: str) -> None:
    script.say(Say(302, b"", {"Location": place}))

    with pytest.raises(QueueyError, match="HTTP 302"):
        client.read("q")
    assert len(script.asked) == 1


def test_the_callers_headers_of_a_refusal_are_kept(script: Script) -> None:
    script.say(Say(429, refusal(429, "Throttled").body, {"Retry-After": "9"}))

    with Client(script.url, retries=0) as client, pytest.raises(Throttled) as caught:
        client.read("q")

    assert caught.value.headers == {"Retry-After": "9"}


def test_a_new_queue_that_exists_is_refused(client: Client, script: Script) -> None:
    script.say(refusal(409, "QueueExists"))

    with pytest.raises(QueueExists):
        client.create_queue("q", only_new=True)
    assert script.asked[0].headers["If-None-Match"] == "*"


@pytest.mark.parametrize(
    "url",
    [
        "",
        "localhost:5000",
        "ftp://host",
        "http://",
        "http://host?x",
        "http://a b",
        "http://a:99999",
        "http://a:b",
        "http://[::1",
        "http://:5000",
        "http://a..b",
        "http://%zz",
    ],
)
def test_what_is_no_address_is_refused_before_anything_is_sent(url: str) -> None:
    with pytest.raises(ConfigurationError, match="is no address of a server"):
        Client(url)


def test_a_password_in_an_address_is_refused_and_not_shown() -> None:
    with pytest.raises(ConfigurationError, match="give a key or a token") as caught:
        Client("http://me:secret@host")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("key", ["new\nline", "ümläut"])
def test_a_key_that_cannot_be_sent_is_refused(key: str) -> None:
    with pytest.raises(InvalidApplicationKey):
        Client("http://127.0.0.1:1", "app", key)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../other"])
def test_a_name_that_would_ask_another_path_is_refused(client: Client, script: Script, name: str) -> None:
    with pytest.raises(QueueNotFound):
        client.append(name, "hello")
    with pytest.raises(QueueNotFound):
        client.delete_queue(name)
    with pytest.raises(InvalidParameter, match="is no name of a group"):
        client.lease_group("q", name)
    assert script.asked == []


def test_an_empty_name_is_no_wish_for_a_drawn_one(client: Client, script: Script) -> None:
    with pytest.raises(InvalidParameter, match="queue_name"):
        client.create_queue("")
    assert script.asked == []


@pytest.mark.parametrize("value", ["00-1\nX-TTL: 1", "☃", "\x7f", "a blank behind "])
def test_headers_that_cannot_be_sent_are_refused(client: Client, script: Script, value: str) -> None:
    with pytest.raises(BadRequest, match="cannot be sent"):
        client.append("q", "hello", headers={"traceparent": value})
    assert script.asked == []


@pytest.mark.parametrize("given", [{"queues": []}, {"verbs": ()}, {"queues": [""]}, {"verbs": "read"}])
def test_an_empty_restriction_of_a_token_is_refused_here(client: Client, script: Script, given: dict[str, Any]) -> None:
    """In a form it could be taken for none."""
    with pytest.raises(InvalidParameter, match=next(iter(given))):
        client.new_token(**given)
    assert script.asked == []


def test_an_empty_principal_is_refused_here(client: Client, script: Script) -> None:
    """It would clear the list."""
    with pytest.raises(InvalidParameter, match="principals"):
        client.update_queue("q", principals=[""])
    assert script.asked == []


@pytest.mark.parametrize("name", ["", ".", ".."])
def test_a_name_that_would_make_another_path_is_no_queue(client: Client, script: Script, name: str) -> None:
    with pytest.raises(QueueNotFound):
        client.delete_queue(name)
    assert script.asked == []


@pytest.mark.parametrize("name", ["", ".", ".."])
def test_a_name_that_would_make_another_path_is_no_group(client: Client, script: Script, name: str) -> None:
    with pytest.raises(InvalidParameter, match="group"):
        client.delete_offsets("q", name)
    with pytest.raises(QueueNotFound):
        client.offsets(name, "mail")
    assert script.asked == []


def test_a_commit_is_repeated_and_a_reset_is_not(client: Client, script: Script) -> None:
    script.say(DROP, Say(200, b'{"offsets":[]}'), DROP)

    assert client.commit_offsets("q", "mail", {2: HEX}, generation=3) == []
    with pytest.raises(OutcomeUnknown):
        client.reset_offsets("q", "mail", "end")

    assert [asked.path for asked in script.asked] == ["/v1/app/q/offsets/mail"] * 3
    committed = {"offsets": [{"partition": 2, "message_id": HEX}], "generation": 3}
    assert [json.loads(asked.body) for asked in script.asked[:2]] == [committed] * 2


_CALLS: dict[str, Callable[[Client], object]] = {
    "heartbeat": lambda client: client.heartbeat(),
    "settings": lambda client: client.queue_info("q"),
    "page": lambda client: client.read("q"),
    "raw": lambda client: client.get_raw("q", HEX),
    "list": lambda client: list(client.queues()),
    "append": lambda client: client.append("q", "hello"),
    "deletion": lambda client: client.delete("q", HEX),
    "receive": lambda client: client.receive("q", "g"),
    "lines": lambda client: list(client.stream_ndjson("q")),
    "following": lambda client: next(iter(client.follow("q"))),
}


_FOREIGN = [b"<html>", b"[]", b'{"messages":3}', b'{"messages":[{}],"queues":[{}]}']
_OBJECT_IS_ENOUGH = ("deletion",)


@pytest.mark.parametrize(
    ("name", "body"),
    [(name, body) for name in _CALLS for body in _FOREIGN if not (name in _OBJECT_IS_ENOUGH and body[:1] == b"{")],
)
def test_another_server_that_answers_is_not_taken_for_queuey(
    client: Client, script: Script, name: str, body: bytes
) -> None:
    script.say(Say(200, body, {"Content-Type": "text/html"}))

    with pytest.raises(QueueyError, match="is not Queuey: is the address right"):
        _CALLS[name](client)

    assert len(script.asked) == 1


def test_a_page_whose_headers_were_taken_away_is_refused(client: Client, script: Script) -> None:
    script.say(Say(200, b'{"messages":[]}', {"Content-Type": "application/json"}))

    with pytest.raises(QueueyError, match="headers that begin with Queuey-"):
        client.read("q")


def test_an_answer_that_is_nested_too_deeply_is_none_of_queuey(client: Client, script: Script) -> None:
    script.say(Say(200, b'{"messages":' * 100_000), Say(200, b'{"messages":' * 100_000))

    with pytest.raises(QueueyError, match="is not Queuey"):
        client.read("q")
    with pytest.raises(QueueyError, match="is not Queuey"):
        client.append("q", "hello")


@pytest.mark.parametrize("name", ["", "a b", "a:b", "ü"])
def test_a_header_needs_a_name(client: Client, script: Script, name: str) -> None:
    with pytest.raises(BadRequest, match="cannot be sent"):
        client.append("q", "hello", headers={name: "x"})

    assert script.asked == []
