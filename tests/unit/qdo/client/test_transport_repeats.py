"""Requests of the client: what is repeated, and what is not."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from qdo.client import Client, NewMessage, QueueSettings
from queuey.errors import (
    InProgress,
    InvalidParameter,
    OutcomeUnknown,
    QueueNotFound,
    ServerUnreachable,
    StorageUnavailable,
)
from tests.support.client_answers import ADDED, HEX, KEY, MADE, UNAVAILABLE
from tests.support.scripted_server import DROP, Say, Script, refusal, scripted_server


def test_every_request_carries_the_key_whatever_a_netrc_says(
    client: Client, script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password secret\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    script.say(ADDED)

    client.append("q", "hello")

    (asked,) = script.asked
    assert asked.headers["Authorization"] == f"Application {KEY}"
    assert (asked.method, asked.path, asked.body) == ("POST", "/v1/app/q", b"hello")


def test_an_append_is_repeated_under_one_idempotency_key(client: Client, script: Script) -> None:
    script.say(DROP, UNAVAILABLE, refusal(504, "OutcomeUnknown"), ADDED)

    added = client.append("q", NewMessage("hello", ttl_seconds=60, partition=2))

    assert (added.id.hex, added.partition) == (HEX, 2)
    assert len(script.asked) == 4
    assert len({asked.headers["Idempotency-Key"] for asked in script.asked}) == 1
    assert {(asked.body, asked.headers["X-TTL"], asked.headers["X-Partition"]) for asked in script.asked} == {
        (b"hello", "60", "2")
    }


@pytest.mark.parametrize(
    "body", [{"a": 1, "b": {"c": 2}}, ["a", "b"], ("a", "b"), iter("ab"), 1, 1.5, None, io.BytesIO(b"x")]
)
def test_what_is_neither_text_nor_bytes_is_refused_before_it_is_sent(client: Client, script: Script, body: Any) -> None:
    """The HTTP library makes a form of a dict, and a chunked body of whatever can be iterated."""
    for call in (
        lambda: client.append("q", body),
        lambda: client.append("q", NewMessage(body)),
        lambda: client.append_batch("q", ["good", body]),
        lambda: client.put("q", HEX, body),
    ):
        with pytest.raises(InvalidParameter):
            call()

    assert script.asked == []


@pytest.mark.parametrize("messages", ["text", b"bytes", bytearray(b"x"), {"a": 1}, NewMessage("one")])
def test_one_message_is_no_batch(client: Client, script: Script, messages: Any) -> None:
    """A text would be stored letter by letter, and a mapping key by key."""
    with pytest.raises(InvalidParameter, match="is no list of messages"):
        client.append_batch("q", messages)

    assert script.asked == []


@pytest.mark.parametrize("value", [{"a": 1, "b": {"c": "ü"}}, [], None, "text", 1.5])
def test_a_json_value_is_stored_with_its_content_type(client: Client, script: Script, value: Any) -> None:
    script.say(ADDED, ADDED)

    client.append("q", json=value)
    client.append_batch("q", (NewMessage.of_json(each, key="k") for each in [value]))

    for asked in script.asked:
        (entry,) = json.loads(asked.body)["messages"]
        assert json.loads(entry["body"]) == value
        assert entry["content_type"] == "application/json"


@pytest.mark.parametrize("wrong", [{"json": float("nan")}, {"json": {1, 2}}, {"json": 1, "message": "x"}, {}])
def test_a_value_without_a_form_in_json_is_refused(client: Client, script: Script, wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidParameter):
        client.append("q", **wrong)

    assert script.asked == []


def test_bytes_of_other_types_are_bytes(client: Client, script: Script) -> None:
    script.say(ADDED, ADDED)

    client.append("q", bytearray(b"a"))  # type: ignore[arg-type]
    client.append("q", memoryview(b"b"))  # type: ignore[arg-type]

    assert [asked.body for asked in script.asked] == [b"a", b"b"]


def test_two_appends_have_two_keys(client: Client, script: Script) -> None:
    script.say(ADDED, ADDED)

    client.append("q", "hello")
    client.append_batch("q", ["hello"])

    assert len({asked.headers["Idempotency-Key"] for asked in script.asked}) == 2


def test_an_append_never_answered_is_an_unknown_outcome(client: Client, script: Script) -> None:
    script.say(DROP, DROP, DROP, DROP)

    with pytest.raises(OutcomeUnknown):
        client.append("q", "hello")


def test_an_append_that_may_be_stored_is_unknown_though_later_attempts_are_refused(
    client: Client, script: Script
) -> None:
    script.say(DROP, UNAVAILABLE, UNAVAILABLE, UNAVAILABLE)

    with pytest.raises(OutcomeUnknown, match="because; the write may or may not be stored"):
        client.append("q", "hello")


def test_an_append_always_refused_is_not_stored(client: Client, script: Script) -> None:
    script.say(*[UNAVAILABLE] * 4)

    with pytest.raises(StorageUnavailable):
        client.append("q", "hello")
    assert len(script.asked) == 4


def test_a_request_still_running_under_the_key_is_waited_for(client: Client, script: Script) -> None:
    script.say(DROP, refusal(409, "InProgress"), ADDED)

    assert client.append("q", "hello").partition == 2


def test_a_request_running_elsewhere_ends_as_what_it_is(client: Client, script: Script) -> None:
    script.say(*[refusal(409, "InProgress")] * 4)

    with pytest.raises(InProgress):
        client.append("q", "hello")


@pytest.mark.parametrize("answer", [DROP, refusal(504, "OutcomeUnknown"), Say(502, b"<html>")])
def test_what_must_not_happen_twice_is_not_repeated(client: Client, script: Script, answer: Say | str) -> None:
    script.say(answer)

    with pytest.raises(OutcomeUnknown):
        client.create_queue("q", only_new=True)
    assert len(script.asked) == 1


@pytest.mark.parametrize("answer", [DROP, refusal(504, "OutcomeUnknown"), Say(502, b"<html>")])
def test_a_conditional_change_is_not_refused_for_its_own_success(
    client: Client, script: Script, answer: Say | str
) -> None:
    script.say(answer, refusal(412, "SettingsChanged"))

    with pytest.raises(OutcomeUnknown):
        client.update_queue("q", if_match='"seen"', partitions=2)
    assert [asked.headers["If-Match"] for asked in script.asked] == ['"seen"']


def test_what_was_refused_unstored_is_repeated_in_any_case(client: Client, script: Script) -> None:
    script.say(UNAVAILABLE, MADE, UNAVAILABLE, MADE)

    assert client.create_queue("q", only_new=True) == QueueSettings("q", 1, "user", "strong")
    assert client.update_queue("q", if_match='"seen"', partitions=1).partitions == 1


def test_a_queue_without_a_name_is_named_here_so_that_a_repeat_makes_no_second(client: Client, script: Script) -> None:
    script.say(DROP, MADE)

    client.create_queue(partitions=3)

    first, second = script.asked
    assert first.body == second.body
    assert b"queue_name=" in first.body
    assert b"partitions=3" in first.body


@pytest.mark.parametrize(
    "delete",
    [
        lambda client: client.delete_queue("q"),
        lambda client: client.forget_lease_group("q", "g"),
        lambda client: client.reset_lease_group("q", "g", "beginning"),
        lambda client: client.delete_offsets("q", "g"),
        lambda client: client.cancel_task("q", "purge"),
    ],
    ids=["queue", "lease group", "leases", "offsets", "task"],
)
def test_a_deletion_whose_answer_was_lost_is_not_repeated(
    client: Client, script: Script, delete: Callable[[Client], Any]
) -> None:
    """Somebody may have made another of this name in between."""
    script.say(UNAVAILABLE, DROP)

    with pytest.raises(OutcomeUnknown):
        delete(client)

    assert len(script.asked) == 2


def test_a_deletion_of_what_is_not_there_is_refused(client: Client, script: Script) -> None:
    script.say(refusal(404, "QueueNotFound"))

    with pytest.raises(QueueNotFound):
        client.delete_queue("q")


def test_a_read_never_answered_is_no_unknown_outcome(client: Client, script: Script) -> None:
    script.say(*[DROP] * 4)

    with pytest.raises(ServerUnreachable):
        client.read("q")


def test_a_cut_answer_is_asked_for_again(client: Client, script: Script) -> None:
    script.say(Say(200, b'{"messages":[', cut=True), Say(200, b'{"messages":[]}'))

    assert client.get("q", f"1:{HEX}") == []


def test_an_answer_that_was_damaged_on_its_way_is_asked_for_again(client: Client, script: Script) -> None:
    script.say(Say(200, b"no gzip", {"Content-Encoding": "gzip"}), MADE)

    assert client.create_queue("q").name == "q"
    assert len(script.asked) == 2


def test_nobody_there_is_said_so() -> None:
    with scripted_server() as script:
        url = script.url

    with (
        Client(url, retries=2, sleep=lambda _: None) as client,
        pytest.raises(ServerUnreachable, match="no server answers"),
    ):
        client.append("q", "hello")


@pytest.mark.parametrize("after", ["Fri, 31 Dec 999999 23:59:59 GMT", "9" * 5000])
def test_a_retry_after_beyond_all_clocks_counts_as_none(
    client: Client, script: Script, pauses: list[float], after: str
) -> None:
    script.say(Say(503, b"{}", {"Retry-After": after}), ADDED)

    client.append("q", "hello")

    assert len(pauses) == 1


def test_retry_after_is_kept_but_not_for_ever(client: Client, script: Script, pauses: list[float]) -> None:
    def refused(after: str) -> Say:
        return Say(429, b"{}", {"Retry-After": after})

    script.say(refused("7"), refused("86400"), refused("soon"), ADDED)

    client.append("q", "hello")

    assert pauses[:2] == [7, 30]
    assert 0 < pauses[2] < 5


def test_pauses_grow_and_are_bounded(script: Script, pauses: list[float]) -> None:
    script.say(*[UNAVAILABLE] * 13)

    with Client(script.url, retries=12, sleep=pauses.append) as client, pytest.raises(StorageUnavailable):
        client.read("q")

    assert pauses[0] == 0
    assert pauses[1] >= 0.2
    assert max(pauses) == pauses[-1] == 5


def test_answers_that_are_lost_are_asked_for_again_without_long_pauses(
    client: Client, script: Script, pauses: list[float]
) -> None:
    """What a growing pause is for is a server that is away, or has too much to do."""
    script.say(DROP, DROP, DROP, ADDED, UNAVAILABLE, DROP, UNAVAILABLE, ADDED)

    client.append("q", "hello")
    client.append("q", "hello")

    assert [pause <= 0.02 for pause in pauses] == [True, True, True, True, True, False]


def test_a_proxy_whose_server_has_gone_is_waited_for_as_the_server_itself(script: Script, pauses: list[float]) -> None:
    """It takes each connection, and breaks it off."""
    script.say(*[DROP] * 6, ADDED)

    with Client(script.url, "app", KEY, retries=6, sleep=pauses.append) as client:
        client.append("q", "hello")

    assert [pause <= 0.02 for pause in pauses] == [True, True, True, False, False, False]
    assert pauses[3:] == sorted(pauses[3:])


@pytest.mark.parametrize(("status", "code"), [(401, "InvalidApplicationKey"), (403, "Forbidden")])
def test_a_credential_that_is_withdrawn_says_nothing_of_an_attempt_before(
    client: Client, script: Script, status: int, code: str
) -> None:
    script.say(DROP, refusal(status, code))

    with pytest.raises(OutcomeUnknown, match="because; the write may or may not be stored"):
        client.append("q", "hello")
