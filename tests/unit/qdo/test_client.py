"""The client: what is repeated, what is not, and which error says so."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import qdo
from qdo.client import Client, Message, NewMessage, QueueSettings, StreamEnd
from qdo.client.values import address, moment_to_wire, principals_from_wire
from queuey.errors import (
    BadRequest,
    BrokenStream,
    ConfigurationError,
    Conflict,
    Forbidden,
    InProgress,
    InvalidApplicationKey,
    InvalidParameter,
    NotFound,
    OutcomeUnknown,
    QueueExists,
    QueueNotFound,
    QueueyError,
    ServerUnreachable,
    StorageUnavailable,
    Throttled,
    error_classes,
)
from queuey.ids import EPOCH_TICKS, MAX_TICKS, MessageId, parse_timestamp
from tests.support.scripted_server import DROP, Say, Script, refusal, scripted_server

KEY = "0123456789abcdef" * 2
HEX = "1f9f6640e56711f189bf02fc00000001"
ADDED = Say(201, json.dumps({"messages": [{"key": HEX, "timestamp": "1", "partition": 2}]}).encode())
MADE = Say(201, b'{"queue_name":"q","partitions":1,"type":"user","consistency":"strong","principles":null}')
UNAVAILABLE = refusal(503, "StorageUnavailable")


@pytest.fixture
def script() -> Iterator[Script]:
    with scripted_server() as script:
        yield script


@pytest.fixture
def pauses() -> list[float]:
    return []


@pytest.fixture
def client(script: Script, pauses: list[float]) -> Iterator[Client]:
    with Client(script.url, "app", KEY, retries=3, timeout_seconds=5, sleep=pauses.append) as client:
        yield client


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


def test_what_was_refused_unstored_is_repeated_in_any_case(client: Client, script: Script) -> None:
    script.say(UNAVAILABLE, MADE)

    assert client.create_queue("q", only_new=True) == QueueSettings("q", 1, "user", "strong")


def test_a_queue_without_a_name_is_named_here_so_that_a_repeat_makes_no_second(client: Client, script: Script) -> None:
    script.say(DROP, MADE)

    client.create_queue(partitions=3)

    first, second = script.asked
    assert first.body == second.body
    assert b"queue_name=" in first.body
    assert b"partitions=3" in first.body


def test_a_deletion_whose_answer_was_lost_is_done_if_the_queue_is_gone(client: Client, script: Script) -> None:
    script.say(DROP, refusal(404, "QueueNotFound"))

    client.delete_queue("q")

    assert [asked.method for asked in script.asked] == ["DELETE", "DELETE"]


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


# Errors.


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


@pytest.mark.parametrize("body", [b"<html>", b"[]", b'"crash id 1"', b'{"error_msg": "text"}', b"\xff"])
def test_what_a_proxy_says_is_an_error_by_its_status(client: Client, script: Script, body: bytes) -> None:
    script.say(Say(500, body))

    with pytest.raises(QueueyError, match="HTTP 500"):
        client.read("q")


def test_a_redirect_is_not_followed(client: Client, script: Script) -> None:
    script.say(Say(302, b"", {"Location": "http://127.0.0.1:1/"}))

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


@pytest.mark.parametrize("url", ["", "localhost:5000", "ftp://host", "http://", "http://host?x", "http://a b"])
def test_what_is_no_address_is_refused_before_anything_is_sent(url: str) -> None:
    with pytest.raises(ConfigurationError, match="is no address of a server"):
        Client(url)


@pytest.mark.parametrize("key", ["new\nline", "ümläut"])
def test_a_key_that_cannot_be_sent_is_refused(key: str) -> None:
    with pytest.raises(InvalidApplicationKey):
        Client("http://127.0.0.1:1", "app", key)


@pytest.mark.parametrize("value", ["00-1\nX-TTL: 1", "☃"])
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


def test_another_server_that_answers_is_not_taken_for_queuey(client: Client, script: Script) -> None:
    script.say(Say(200, b"<html>"))

    with pytest.raises(QueueyError, match="/v1/app/q is not Queuey"):
        client.queue_info("q")


# Values on the wire.


@pytest.mark.parametrize(
    "message",
    [
        NewMessage('{"a": 1}', content_type="application/json; charset=utf-8"),
        NewMessage("x", key="schlüssel"),
        NewMessage("x", content_type="☃"),
    ],
)
def test_what_cannot_go_raw_goes_as_a_batch_of_one(client: Client, script: Script, message: NewMessage) -> None:
    script.say(ADDED)

    client.append("q", message)

    (asked,) = script.asked
    assert asked.headers["Content-Type"] == "application/json"
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

    client.delete_queue("a/b?c")

    assert script.asked[0].path == "/v1/app/a%2Fb%3Fc"


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
    with pytest.raises(ValueError, match="no time zone"):
        moment_to_wire(datetime(2026, 1, 1))  # noqa: DTZ001 -- what is refused


def test_an_id_is_a_moment_and_a_place() -> None:
    message = Message(MessageId.parse(HEX), 12, b"")

    assert moment_to_wire(message.id) == HEX
    assert address(message) == f"12:{HEX}"


@pytest.mark.parametrize(
    ("wire", "names"), [(None, ()), ("", ()), ("app:a, bid:b@c.d", ("app:a", "bid:b@c.d")), (["app:a"], ("app:a",))]
)
def test_principals_come_as_text_or_as_a_list(wire: Any, names: tuple[str, ...]) -> None:
    assert principals_from_wire(wire) == names


# Streams.

END = {"rows": 2, "cursor": "c", "more": False, "watermark": "1.0000000"}
LINES = [json.dumps({"message_id": HEX, "partition": 1, "body": text}).encode() for text in ("a", "b")]
MARK = json.dumps({"end": END}).encode()


def test_a_whole_stream_gives_its_rows_and_its_end(client: Client, script: Script) -> None:
    script.say(Say(200, b"\n".join([*LINES, MARK, b""])))

    with client.stream_ndjson("q") as stream:
        bodies = [message.text for message in stream]

    assert (bodies, stream.end) == (["a", "b"], StreamEnd(2, "c", more=False, watermark="1.0000000"))
    assert script.asked[0].headers["Accept"] == "application/x-ndjson"


@pytest.mark.parametrize(
    "answer",
    [
        Say(200, b""),
        Say(200, b"\n".join(LINES)),
        Say(200, b"\n".join(LINES), cut=True),
        Say(200, b"\n".join([LINES[0], MARK])),
        Say(200, b"\n".join([*LINES, LINES[0], MARK])),
        Say(200, b"\n".join([*LINES, MARK[:-5]])),
        Say(200, b"\n".join([*LINES, MARK, LINES[0]])),
    ],
    ids=["empty", "no mark", "cut", "row lost", "row too many", "mark cut", "rows after the mark"],
)
def test_a_stream_that_broke_is_refused(client: Client, script: Script, answer: Say) -> None:
    script.say(answer)

    with client.stream_ndjson("q") as stream, pytest.raises(BrokenStream):
        list(stream)


def arrow(marked_rows: int | None) -> bytes:
    schema = pa.schema([("body", pa.binary())])
    out = io.BytesIO()
    with pa.ipc.new_stream(out, schema) as writer:
        writer.write_batch(pa.record_batch([[b"a", b"b"]], schema=schema))
        if marked_rows is not None:
            told = {"rows": str(marked_rows), "next": "c", "more": "0", "watermark": "1.0000000"}
            empty = pa.RecordBatch.from_pylist([], schema=schema)
            writer.write_batch(empty, custom_metadata={f"queuey.{name}": text for name, text in told.items()})
    return out.getvalue()


def test_a_whole_arrow_stream_gives_its_batches_and_its_end(client: Client, script: Script) -> None:
    script.say(Say(200, arrow(2)))

    with client.read_arrow("q", columns=["body"]) as stream:
        rows = [body for batch in stream for body in batch.column("body").to_pylist()]

    assert (rows, stream.end) == ([b"a", b"b"], StreamEnd(2, "c", more=False, watermark="1.0000000"))
    assert stream.schema.names == ["body"]
    assert "columns=body" in script.asked[0].path


@pytest.mark.parametrize(
    "answer",
    [
        Say(200, b""),
        Say(200, arrow(None)),
        Say(200, arrow(3)),
        Say(200, arrow(2)[:300]),
        Say(200, arrow(2)[:300], cut=True),
    ],
    ids=["empty", "no mark", "row lost", "closed early", "cut"],
)
def test_an_arrow_stream_that_broke_is_refused(client: Client, script: Script, answer: Say) -> None:
    script.say(answer)

    with client.read_arrow("q") as stream, pytest.raises(BrokenStream):
        list(stream)


# Pages and following.


def page(*bodies: str, cursor: str, more: bool) -> Say:
    entries = [{"message_id": HEX, "partition": 1, "body": body} for body in bodies]
    headers = {"Queuey-Cursor": cursor, "Queuey-Watermark": "9.0000000", "Queuey-More": str(more).lower()}
    return Say(200, json.dumps({"messages": entries}).encode(), headers)


def test_iterating_ends_at_the_first_pages_watermark(client: Client, script: Script) -> None:
    script.say(page("a", cursor="c1", more=True), page("b", cursor="c2", more=False))

    assert [message.text for message in client.iterate("q", since="5")] == ["a", "b"]
    assert [asked.path.partition("?")[2] for asked in script.asked] == [
        "partitions=all&since=5&limit=1000",
        "cursor=c1&until=9.0000000&limit=1000",
    ]


def lines(*entries: dict[str, Any], cut: bool = False) -> Say:
    """A piece of a stream, then the end of the connection."""
    text = b"".join(json.dumps(entry).encode() + b"\n" for entry in entries)
    return Say(200, text[:-9] if cut else text, {"Content-Type": "application/x-ndjson"}, cut=cut)


def came(body: str, cursor: str) -> dict[str, Any]:
    return {"message_id": HEX, "partition": 1, "body": body, "cursor": cursor}


OPEN = {"open": {"queue": "q", "cursor": "c0", "watermark": "9.0000000"}}
STOPS = {"end": {"rows": 1, "cursor": "c1", "code": "ServerStopping", "detail": "", "retriable": True}}


def test_a_follower_goes_on_behind_the_last_whole_line(client: Client, script: Script, pauses: list[float]) -> None:
    script.say(
        lines(OPEN, came("a", "c1"), came("lost on its way", "c2"), cut=True),
        *[UNAVAILABLE] * 8,
        lines(OPEN, STOPS),
        DROP,
        lines(came("b", "c2")),
    )

    pages = client.follow("q", partitions=[2, 1])
    first, second = next(pages), next(pages)

    assert (first.messages[0].text, first.cursor, first.watermark) == ("a", "c1", "9.0000000")
    assert second.messages[0].text == "b"
    assert "partitions=2%2C1&follow=true" in script.asked[0].path
    assert [asked.path.partition("?")[2] for asked in script.asked[1:10]] == ["cursor=c1&follow=true"] * 9
    assert all(asked.headers["Accept"] == "application/x-ndjson" for asked in script.asked)
    assert max(pauses) <= 10


def test_what_came_before_a_line_that_is_none_is_not_lost(client: Client, script: Script) -> None:
    """The next connection begins behind it."""
    spoilt = lines(OPEN, came("a", "c1"), came("b", "c2")).body + b"upstream timed out\n"
    script.say(Say(200, spoilt, {"Content-Type": "application/x-ndjson"}), lines(came("c", "c3")))

    pages = client.follow("q")

    assert [message.text for message in next(pages).messages] == ["a", "b"]
    assert [message.text for message in next(pages).messages] == ["c"]
    assert "cursor=c2" in script.asked[1].path


def test_pauses_grow_while_nothing_comes(client: Client, script: Script, pauses: list[float]) -> None:
    script.say(lines(OPEN, came("a", "c1")), *[lines()] * 5, lines(came("b", "c2")))

    pages = client.follow("q")
    next(pages)
    next(pages)

    assert [0.5 * 0.2 * 2**turn <= pause <= 0.2 * 2**turn for turn, pause in enumerate(pauses)] == [True] * 6


@pytest.mark.parametrize("code", ["CursorLost", "QueueNotFound", "Forbidden", "Unauthenticated"])
def test_a_follower_ends_with_what_no_waiting_mends(client: Client, script: Script, code: str) -> None:
    script.say(lines(OPEN, came("a", "c1")), lines({"reset": {"queue": "q", "code": code, "detail": "because"}}))

    pages = client.follow("q")
    next(pages)

    with pytest.raises(error_classes()[code], match="because"):
        next(pages)


def test_a_line_that_can_never_be_read_is_not_asked_for_for_ever(client: Client, script: Script) -> None:
    poison = Say(200, lines(OPEN, came("a", "c1")).body + b"no line\n", {"Content-Type": "application/x-ndjson"})
    script.say(*[poison] * 50)

    with pytest.raises(BrokenStream, match="no line of a stream"):
        list(client.follow("q"))

    assert len(script.asked) == 5


def test_what_is_no_stream_of_lines_is_not_followed(client: Client, script: Script) -> None:
    script.say(Say(200, b"<html>\n"))

    with pytest.raises(BrokenStream):
        next(client.follow("q"))


def test_a_follower_of_nothing_says_so_at_once(client: Client, script: Script) -> None:
    script.say(refusal(404, "QueueNotFound"))

    with pytest.raises(QueueNotFound):
        next(client.follow("q"))


def test_what_the_package_offers_is_what_it_says() -> None:
    offered = {name for name in vars(qdo) if not name.startswith("_") and name[0].isupper()}

    late = {found.__name__ for found in (qdo.Context, qdo.RetryPolicy, qdo.StopWorker, qdo.Worker)}

    assert offered | late == set(qdo.__all__)


def test_ticks_and_wire_agree_on_1970() -> None:
    assert parse_timestamp(moment_to_wire(datetime(1970, 1, 1, tzinfo=UTC))) == EPOCH_TICKS
