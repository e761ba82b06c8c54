"""Values of the client, and their forms on the wire."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import qdo
from qdo.client import Client, Message, NewMessage
from qdo.client.moments import moment_to_wire
from qdo.client.values import address, principals_from_wire
from queuey.errors import InvalidMessageId, InvalidParameter, TaskNotFound
from queuey.ids import EPOCH_TICKS, MAX_TICKS, MessageId, parse_timestamp
from tests.support.client_answers import ADDED, HEX
from tests.support.scripted_server import Say, Script


@pytest.mark.parametrize(
    "message",
    [
        NewMessage('{"a": 1}', content_type="application/json; charset=utf-8"),
        NewMessage("x", key="schlüssel"),
        NewMessage("x", content_type="☃"),
        NewMessage("x", key="a blank behind "),
        NewMessage("x", key=" a blank before"),
        NewMessage("x", key="\x7f"),
        NewMessage("x", content_type="text/plain "),
    ],
)
def test_what_cannot_go_raw_goes_as_a_batch_of_one(client: Client, script: Script, message: NewMessage) -> None:
    script.say(ADDED)

    client.append("q", message)

    (asked,) = script.asked
    assert asked.headers["Content-Type"] == "application/vnd.queuey.batch+json"
    assert json.loads(asked.body) == {"messages": [message.to_wire()]}
    assert asked.headers["Idempotency-Key"]


def test_ids_are_asked_for_in_portions_a_path_can_hold(client: Client, script: Script) -> None:
    script.say(*[Say(200, b'{"messages":[]}')] * 3)

    client.get("q", [f"1:{HEX}"] * 201)

    assert [asked.path.count("1%3A") for asked in script.asked] == [100, 100, 1]


def test_lists_follow_the_query_of_their_link_and_nothing_else_of_it(client: Client, script: Script) -> None:
    link = {"Link": '<http://elsewhere.example/x?limit=1&offset=b%26c&details=true>; rel="next"'}
    script.say(Say(200, b'{"queues":[{"queue_name":"a"}]}', link), Say(200, b'{"queues":[{"queue_name":"b"}]}'))

    assert [queue.name for queue in client.queues(page_size=1)] == ["a", "b"]
    assert script.asked[1].path == "/v1/app?limit=1&offset=b%26c&details=true"


def test_names_are_quoted_in_paths(client: Client, script: Script) -> None:
    script.say(Say(200))

    client.delete_queue("a b?c")

    assert script.asked[0].path == "/v1/app/a%20b%3Fc"


@given(st.binary(), st.none() | st.text(), st.none() | st.text(min_size=1))
def test_a_message_survives_its_wire_form(body: bytes, content_type: str | None, key: str | None) -> None:
    entry = NewMessage(body, content_type=content_type, key=key).to_wire()

    read = Message.from_wire(json.loads(json.dumps({**entry, "message_id": HEX, "partition": 3})))

    assert read == Message(MessageId.parse(HEX), 3, body, content_type, key)


@given(st.datetimes(datetime(1970, 1, 1), datetime(5000, 1, 1), timezones=st.timezones()))  # noqa: DTZ001 -- bounds
def test_a_moment_survives_its_wire_form(moment: datetime) -> None:
    wire = moment_to_wire(moment)

    since = (moment.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds()
    assert len(wire.split(".")[1]) == 7
    assert parse_timestamp(wire) <= MAX_TICKS if since >= 0 else wire.startswith("-")
    assert abs(float(wire) - since) < 0.001


def test_a_moment_without_a_time_zone_is_refused() -> None:
    with pytest.raises(InvalidParameter, match=r"since: .* has no time zone"):
        moment_to_wire(datetime(2026, 1, 1), "since")  # noqa: DTZ001 -- what is refused


def test_an_id_is_a_moment_and_a_place() -> None:
    message = Message(MessageId.parse(HEX), 12, b"")

    assert moment_to_wire(message.id) == HEX
    assert address(message) == f"12:{HEX}"


@pytest.mark.parametrize(
    ("wire", "names"), [(None, ()), ("", ()), ("app:a, bid:b@c.d", ("app:a", "bid:b@c.d")), (["app:a"], ("app:a",))]
)
def test_principals_come_as_text_or_as_a_list(wire: Any, names: tuple[str, ...]) -> None:
    assert principals_from_wire(wire) == names


def test_what_the_package_offers_is_what_it_says() -> None:
    offered = {name for name in vars(qdo) if not name.startswith("_") and name[0].isupper()}

    late = {getattr(qdo, name).__name__ for name in (*qdo._OF_WORKERS, *qdo._OF_TASKS)}

    assert offered | late == set(qdo.__all__)


def test_ticks_and_wire_agree_on_1970() -> None:
    assert parse_timestamp(moment_to_wire(datetime(1970, 1, 1, tzinfo=UTC))) == EPOCH_TICKS


# Places and names that would make another path, such as that of the queue, which a deletion would remove.
ELSEWHERE = ["", ".", "..", "/", "messages", "tasks", "leases/workers", "offsets/group", f"1:{HEX}/.."]
NO_PLACES = [*ELSEWHERE, None, 7, b"1:2", MessageId.parse(HEX), [""], [f"1:{HEX}", ""], [f"1:{HEX}"] * 100 + [None]]


@pytest.mark.parametrize("where", NO_PLACES, ids=lambda where: repr(where)[:30])
def test_what_is_no_place_asks_for_nothing(client: Client, script: Script, where: Any) -> None:
    with pytest.raises(InvalidMessageId, match="is no place of a message"):
        client.delete("q", where)
    with pytest.raises(InvalidMessageId):
        client.get("q", where)
    with pytest.raises(InvalidMessageId):
        client.get_raw("q", where)
    with pytest.raises(InvalidMessageId):
        client.put("q", where, "body")
    with pytest.raises(InvalidMessageId):
        client.put("q", [], "body")

    assert script.asked == []


@pytest.mark.parametrize("name", ["", ".", "..", "redrive:a/b"])
def test_what_is_no_name_of_a_task_asks_for_nothing(client: Client, script: Script, name: str) -> None:
    with pytest.raises(TaskNotFound):
        client.cancel_task("q", name)
    with pytest.raises(TaskNotFound):
        client.task("q", name)
    with pytest.raises(TaskNotFound):
        next(client.watch_task("q", name))

    assert script.asked == []


@pytest.mark.parametrize("name", ["key", "content_type", "idempotency_key"])
@pytest.mark.parametrize("value", [b"text", 5])
def test_what_is_no_text_is_not_made_one(name: str, value: Any) -> None:
    with pytest.raises(InvalidParameter, match=f"^{name}: .* is no text"):
        NewMessage("x", **{name: value})


def test_a_text_without_a_form_in_utf_8_is_no_body(client: Client, script: Script) -> None:
    with pytest.raises(InvalidParameter, match=r"^body: "):
        client.append("q", "\ud800")

    assert script.asked == []


@pytest.mark.parametrize("name", ["partition", "principles", "type"])
def test_a_setting_that_is_none_is_not_left_out(client: Client, script: Script, name: str) -> None:
    unknown: Any = {name: "4"}
    with pytest.raises(InvalidParameter, match=f"^{name}: .*expected partitions, kind"):
        client.create_queue("q", **unknown)
    with pytest.raises(InvalidParameter, match=f"^{name}: .*expected partitions, kind"):
        client.update_queue("q", **unknown)

    assert script.asked == []


@pytest.mark.parametrize("queues", [[], ["a,b"], [""]])
def test_what_names_no_queue_asks_for_nothing(client: Client, script: Script, queues: list[str]) -> None:
    with pytest.raises(InvalidParameter, match=r"^queues: "):
        next(client.follow(queues))
    with pytest.raises(InvalidParameter, match=r"^queues: "):
        client.news(queues, 0)
    with pytest.raises(InvalidParameter, match=r"^queues: "):
        client.news("a", 0)

    assert script.asked == []
