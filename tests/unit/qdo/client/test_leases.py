"""Requests of leases, as they are sent and repeated."""

from __future__ import annotations

import json
from typing import Any

import pytest

from qdo.client import Client, Extend, ExtendAll, NewMessage, Receive, Reject, Release, Settle
from qdo.client.extending import HeldLease
from qdo.client.leases import _REPEATS
from qdo.client.steps import NoAnswer, Pause, Reply, Request
from queuey.errors import InvalidParameter, OutcomeUnknown, StaleReceipt
from tests.support.client_answers import HEX, UNAVAILABLE
from tests.support.scripted_server import DROP, Say, Script, refusal

LEASED = {
    "message_id": HEX,
    "timestamp": "1",
    "partition": 2,
    "body": "x",
    "deliveries": 1,
    "failures": 0,
    "first_delivered": "1795236650.0128320",
    "receipt": "r",
    "visible_at": "1795236680.0128320",
}


def says(**members: Any) -> Say:
    return Say(200, json.dumps({"status": "ok", **members}).encode())


def bodies(script: Script) -> list[dict[str, Any]]:
    return [json.loads(asked.body) for asked in script.asked]


def test_a_receive_says_only_what_was_asked_for(client: Client, script: Script) -> None:
    script.say(says(messages=[]), says(messages=[LEASED]))

    assert client.receive("q", "g") == []
    (found,) = client.receive(
        "q", "g", 5, visibility=0, wait=20, pop=True, partitions=[1, 3], receiver="me", attempt="a"
    )

    first, second = bodies(script)
    assert len(first.pop("attempt")) == 32
    assert first == {"receive": {"max": 1}}
    assert second == {
        "attempt": "a",
        "receiver": "me",
        "receive": {"max": 5, "visibility": 0, "wait": 20, "pop": True, "partitions": [1, 3]},
    }
    assert {asked.path for asked in script.asked} == {"/v1/app/q/leases/g"}
    assert (found.text, found.receipt, found.queue, found.group) == ("x", "r", "q", "g")


def test_a_repeat_is_the_same_request_and_another_call_is_another(client: Client, script: Script) -> None:
    script.say(DROP, UNAVAILABLE, refusal(504, "OutcomeUnknown"), says(messages=[LEASED]), says(messages=[]))

    assert len(client.receive("q", "g", pop=True)) == 1
    client.receive("q", "g", pop=True)

    *repeats, other = [asked.body for asked in script.asked]
    assert (len(repeats), len({*repeats})) == (4, 1)
    assert other not in repeats


def test_a_receive_that_is_never_answered_is_an_unknown_outcome(client: Client, script: Script) -> None:
    script.say(DROP, DROP, DROP, DROP)

    with pytest.raises(OutcomeUnknown):
        client.receive("q", "g", pop=True)


def test_a_repeat_that_the_server_would_not_know_is_not_sent(
    client: Client, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qdo.client.leases._REPEATS", _REPEATS.__class__(within_seconds=0))
    script.say(DROP, UNAVAILABLE, says(messages=[]))

    with pytest.raises(OutcomeUnknown):
        client.receive("q", "g", pop=True)
    assert len(script.asked) == 1

    # A request that was refused is not known to the server in any case.
    assert client.receive("q", "g", pop=True) == []
    assert len(script.asked) == 3


def test_everything_has_its_form_on_the_wire(client: Client, script: Script) -> None:
    script.say(
        says(
            settled={"acknowledged": 1, "released": 2, "extended": 3, "rejected": 4, "stale": ["c"]},
            appended=[{"queue": "results", "messages": [{"key": HEX, "timestamp": "1", "partition": 2}]}],
            messages=[LEASED],
            full=True,
        )
    )

    done = client.settle(
        "q",
        "g",
        Settle(
            acknowledge=["a"],
            release=[Release("b"), Release("c", 30, count=False)],
            extend=[Extend("d", 60)],
            reject=[Reject("e"), Reject("f", "why")],
            append={"results": ["text", b"\xff", NewMessage("x", key="k")]},
            receive=Receive(),
            attempt="mine",
        ),
    )

    assert bodies(script) == [
        {
            "attempt": "mine",
            "acknowledge": ["a"],
            "release": [{"receipt": "b"}, {"receipt": "c", "delay": 30, "count": False}],
            "extend": [{"receipt": "d", "visibility": 60}],
            "reject": [{"receipt": "e"}, {"receipt": "f", "reason": "why"}],
            "append": [
                {
                    "queue": "results",
                    "messages": [{"body": "text"}, {"body": "/w==", "encoding": "base64"}, {"body": "x", "key": "k"}],
                }
            ],
            "receive": {"max": 1},
        }
    ]
    assert (done.acknowledged, done.released, done.extended, done.rejected, done.stale) == (1, 2, 3, 4, ("c",))
    assert [(place.id.hex, place.partition) for place in done.appended["results"]] == [(HEX, 2)]
    assert (done.messages[0].text, done.is_full) == ("x", True)


def test_what_only_extends_needs_no_attempt(client: Client, script: Script) -> None:
    script.say(says(), says(settled={"stale": []}))

    client.settle("q", "g", Settle(extend=ExtendAll("me", 60)))
    client.settle("q", "g", Settle(extend=[Extend("r", 60)]))

    assert bodies(script) == [
        {"extend": {"receiver": "me", "visibility": 60}},
        {"extend": [{"receipt": "r", "visibility": 60}]},
    ]


def test_a_stale_receipt_is_an_error_of_the_one_message(client: Client, script: Script) -> None:
    script.say(says(messages=[LEASED]), says(settled={"stale": ["r"]}), refusal(409, "StaleReceipt"))
    (delivery,) = client.receive("q", "g")

    with pytest.raises(StaleReceipt, match=HEX):
        delivery.acknowledge()
    with pytest.raises(StaleReceipt, match="because"):
        client.settle("q", "g", Settle(acknowledge=[delivery], append={"q": ["x"]}))


@pytest.mark.parametrize("group", ["", ".", ".."])
def test_a_name_that_would_make_another_path_is_refused_before_it_is_sent(
    client: Client, script: Script, group: str
) -> None:
    for call in (
        lambda: client.receive("q", group),
        lambda: client.lease_group("q", group),
        lambda: client.set_lease_group("q", group),
        lambda: client.forget_lease_group("q", group),
        lambda: next(client.leases("q", group)),
    ):
        with pytest.raises(InvalidParameter, match="group"):
            call()

    assert script.asked == []


@pytest.mark.parametrize("wrong", ["text", b"bytes", [{"a": 1}], [None]])
def test_what_is_no_list_of_messages_is_not_appended(client: Client, script: Script, wrong: Any) -> None:
    with pytest.raises(InvalidParameter):
        client.settle("q", "g", Settle(append={"results": wrong}))

    assert script.asked == []


def test_a_group_that_is_to_begin_somewhere_is_not_made_twice(client: Client, script: Script) -> None:
    """The second of two such requests finds a group that has begun."""
    script.say(DROP, DROP, says(settings={"visibility": 5}))

    with pytest.raises(OutcomeUnknown):
        client.set_lease_group("q", "g", start="end")
    assert client.set_lease_group("q", "g", visibility=5, k=None) == {"visibility": 5}

    assert bodies(script) == [{"start": "end"}, {"visibility": 5}, {"visibility": 5}]


def test_leases_of_a_group_that_was_reset_keep_no_others_from_being_extended(script: Script) -> None:
    """One receipt that is none refuses the request, and all of them would run out."""
    refused, none = refusal(400, "InvalidReceipt"), says(settled={"stale": []})
    script.say(says(messages=[{**LEASED, "receipt": receipt} for receipt in "abcd"]))
    with Client(script.url, "app") as client:
        kept = [delivery._held for delivery in client.receive("q", "g", 4)]
        script.say(refused, none, refused, refused, none)

        ended = client._do(client._extended([held for held in kept if held is not None]))

    asked = ["".join(one["receipt"] for one in body["extend"]) for body in bodies(script)[1:]]
    assert asked == ["abcd", "ab", "cd", "c", "d"]
    assert ended == {"c"}


def test_an_extension_ends_in_time_for_another_before_the_lease_runs_out() -> None:
    with Client("http://queuey.example", retries=9) as client:
        steps = client._extended(
            [HeldLease("q", "g", receipt, seconds, due=0) for receipt, seconds in (("a", 60), ("b", 30))]
        )
        asked = next(steps)
        assert isinstance(asked, Request)
        assert (asked.connect_seconds, asked.silence_seconds) == (10, 10)
        assert isinstance(steps.send(NoAnswer("timed out")), Pause)
        assert next(steps) == asked
        with pytest.raises(OutcomeUnknown):
            steps.send(Reply(429, "", {"Retry-After": "11"}, b"", asked.url))


def test_an_extension_of_all_leases_ends_in_time_for_another_too() -> None:
    """A worker sends these, and a connection that is dead would take half a minute to say so."""
    with Client("http://queuey.example") as client:
        heartbeat = next(client._settle("q", "g", Settle(extend=ExtendAll("me", 30))))
        other = next(client._settle("q", "g", Settle(acknowledge=["r"])))

    assert isinstance(heartbeat, Request)
    assert isinstance(other, Request)
    assert (heartbeat.silence_seconds, other.silence_seconds) == (10, 30)


@pytest.mark.parametrize("seconds", [0, -1, 43_201, pytest.param(10**400, id="huge")])
def test_an_extension_that_extends_nothing_is_waited_for_as_long_as_any_request(seconds: float) -> None:
    with Client("http://queuey.example") as client:
        asked = next(client._settle("q", "g", Settle(extend=ExtendAll("me", seconds))))

    assert isinstance(asked, Request)
    assert asked.silence_seconds == 30


def test_a_lost_extension_is_not_repeated_until_all_others_are_late(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("qdo.client.endpoint.time.monotonic", lambda: now)
    with Client("http://queuey.example", retries=9, timeout_seconds=5) as client:
        steps = client._extended([HeldLease("q", "g", "a", 1.5, due=0)])
        asked = next(steps)
        assert isinstance(asked, Request)
        assert asked.silence_seconds == 1
        now = 2.1
        with pytest.raises(OutcomeUnknown):
            steps.send(NoAnswer("timed out"))
