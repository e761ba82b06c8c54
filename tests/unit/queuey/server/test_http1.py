"""The head of a request: taken if every program reads it the same, refused otherwise; and the head of an answer."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from queuey.errors import HeadersTooLarge, MalformedRequest, PathTooLong, QueueyError
from queuey.http.exchange import NOT_ASCII
from queuey.server import http1 as http
from queuey.server.http1 import MAX_HEADER_BYTES, MAX_HEADERS, RequestHead, answer_head, check_beginning, parse_head

LINE = b"POST /v1/demo/q HTTP/1.1"


def request(*lines: bytes, line: bytes = LINE, host: bytes = b"Host: q") -> bytes:
    return b"\r\n".join([line, *([host] if host else []), *lines]) + b"\r\n\r\n"


def headers(*lines: bytes) -> Mapping[str, str]:
    return parse_head(request(*lines)).headers


def test_a_head_is_taken_apart() -> None:
    head = parse_head(request(b"Content-Length: 5", b"X-TTL: 60", line=b"POST /v1/demo/a%20b?limit=1&x=%20 HTTP/1.1"))

    assert head == RequestHead(
        "POST",
        "/v1/demo/a b",
        "limit=1&x=%20",
        {"host": "q", "content-length": "5", "x-ttl": "60"},
        length=5,
        lasting=True,
        knows_chunks=True,
    )


@pytest.mark.parametrize(
    ("target", "path", "query"),
    [
        (b"/", "/", ""),
        (b"/a?", "/a", ""),
        (b"/a?b?c", "/a", "b?c"),
        (b"http://q/a?b", "/a", "b"),
        (b"HTTPS://q:1/a", "/a", ""),
        (b"http://q", "/", ""),
        (b"/%zz", "/%zz", ""),
        (b"/%ff", "/\ufffd", ""),
    ],
)
def test_a_target_is_a_path_and_a_query(target: bytes, path: str, query: str) -> None:
    head = parse_head(request(line=b"GET " + target + b" HTTP/1.1"))

    assert (head.path, head.query) == (path, query)


@pytest.mark.parametrize("method", [b"ODD", b"get", b"PROPFIND", b"CONNECT", b"M-SEARCH", b"SOURCE", b"PRI", b"X" * 32])
def test_a_method_that_nothing_has_is_a_method(method: bytes) -> None:
    """What no resource offers is refused with 405, like any other that is not offered."""
    assert parse_head(request(line=method + b" /a HTTP/1.1")).method == method.decode()


def test_names_are_compared_without_case_and_values_are_bare() -> None:
    found = headers(b"x-TTL:60", b"AUTHORIZATION: \t a b \t ", b"X-Empty:", b"X-Blank:   ")

    assert found == {"host": "q", "x-ttl": "60", "authorization": "a b", "x-empty": "", "x-blank": ""}


def test_a_header_that_came_twice_has_both_values() -> None:
    assert headers(b"X-TTL: 1", b"Accept: a", b"x-ttl: 2")["x-ttl"] == "1, 2"


def test_a_value_that_is_not_ascii_is_one_that_nothing_takes() -> None:
    found = headers(b"X-Key: \xc3\xbc", b"X-TTL: 1", b"X-Two: a", b"X-Two: \xff")

    assert (found["x-key"], found["x-ttl"], found["x-two"]) == (NOT_ASCII, "1", NOT_ASCII)


def test_a_name_with_underscores_is_another_name() -> None:
    assert headers(b"X_TTL: 1", b"X-TTL: 2") == {"host": "q", "x_ttl": "1", "x-ttl": "2"}


@pytest.mark.parametrize(
    ("raw", "lasting", "knows_chunks"),
    [
        (request(), True, True),
        (request(b"Connection: keep-alive"), True, True),
        (request(b"Connection: close"), False, True),
        (request(b"Connection: x, CLOSE"), False, True),
        (request(b"Connection: x", b"Connection: close"), False, True),
        (request(b"Connection: closed"), True, True),
        (request(b"Connection: upgrade", b"Upgrade: h2c"), True, True),
        (request(b"Transfer-Encoding: chunked"), False, True),
        (request(line=b"GET / HTTP/1.0", host=b""), False, False),
        (request(b"Connection: keep-alive", line=b"GET / HTTP/1.0"), False, False),
    ],
)
def test_a_connection_lasts_if_the_client_wants_it_and_the_next_request_can_be_found(
    raw: bytes, lasting: bool, knows_chunks: bool
) -> None:
    head = parse_head(raw)

    assert (head.lasting, head.knows_chunks) == (lasting, knows_chunks)


def test_the_end_of_chunks_is_not_known() -> None:
    assert parse_head(request(b"Transfer-Encoding: chunked")).length is None


@pytest.mark.parametrize(
    "raw",
    [
        request(b"Content-Length: 5", b"Content-Length: 5"),
        request(b"Content-Length: 5", b"Content-Length: 6"),
        request(b"Content-Length: 5", b"Transfer-Encoding: chunked"),
        request(b"Transfer-Encoding: chunked", b"Content-Length: 5"),
        request(b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked"),
        request(b"Transfer-Encoding: identity"),
        request(b"Transfer-Encoding: chunked, identity"),
        request(b"Transfer-Encoding:"),
        *(
            request(b"Content-Length: " + text)
            for text in (b"+5", b"-5", b"0x5", b"5,5", b"5 5", b"", b"_5", b"9" * 30)
        ),
        request(b"Content-Length : 5"),
        request(b" Content-Length: 5"),
        request(b"X-Key: a\r\n folded"),
        request(b"X-Key: a\nX-TTL: 1"),
        request(b"X-Key: a\rb"),
        request(b"X-Key: a\x00b"),
        request(b"X-Key: a\x7fb"),
        request(b"X-\x00: a"),
        request(b"X Key: a"),
        request(b"X-Ke\xfc: a"),
        request(b": a"),
        request(b"X-Key"),
        request(b"Host: other"),
        request(b"host: q"),
        request(host=b""),
        request(line=b"GET  / HTTP/1.1"),
        request(line=b"GET / HTTP/1.1 "),
        request(line=b" GET / HTTP/1.1"),
        request(line=b"GET /a b HTTP/1.1"),
        request(line=b"GET\t/\tHTTP/1.1"),
        request(line=b"GET / http/1.1"),
        request(line=b"GET / HTTP/1.2"),
        request(line=b"GET / HTTP/2.0"),
        request(line=b"GET / HTTP/0.9"),
        request(line=b"GET /"),
        request(line=b"GET"),
        request(line=b""),
        request(line=b"G\x00T / HTTP/1.1"),
        request(line=b"G(T / HTTP/1.1"),
        request(line=b"X" * 33 + b" / HTTP/1.1"),
        request(line=b"GET a HTTP/1.1"),
        request(line=b"GET * HTTP/1.1"),
        request(line=b"GET /a#b HTTP/1.1"),
        request(line=b"GET /\xc3\xbc HTTP/1.1"),
        request(line=b"GET ftp://q/a HTTP/1.1"),
        request(line=b"GET http://q?a HTTP/1.1"),
        request(line=b"CONNECT q:443 HTTP/1.1"),
        b"\r\n\r\n",
        b"\r\n\r\n\r\n",
    ],
)
def test_what_programs_may_read_differently_is_refused(raw: bytes) -> None:
    with pytest.raises(MalformedRequest):
        parse_head(raw)


def test_a_request_line_has_a_size() -> None:
    fits = request(line=b"GET /a?" + b"x" * 16_000 + b" HTTP/1.1")

    assert len(parse_head(fits).query) == 16_000
    with pytest.raises(PathTooLong):
        parse_head(request(line=b"GET /a?" + b"x" * 17_000 + b" HTTP/1.1"))


def test_headers_have_a_number_and_a_size() -> None:
    most = [b"X-%d: y" % number for number in range(MAX_HEADERS - 1)]
    widest = b"X-Long: " + b"x" * (MAX_HEADER_BYTES - 100)

    assert len(headers(*most)) == MAX_HEADERS
    assert len(headers(widest)) == 2
    for lines in ([*most, b"X-More: y"], [widest, b"X: " + b"y" * 100]):
        with pytest.raises(HeadersTooLarge):
            parse_head(request(*lines))


@pytest.mark.parametrize(
    ("begun", "looked", "error"),
    [
        (b"GET / HTTP/1.1\n", 0, MalformedRequest),
        (b"GET / HTTP/1.1\rX", 0, MalformedRequest),
        (b"GET / HTTP/1.1\r\nHost: q\n", 20, MalformedRequest),
        (b"GET / HTTP/1.1\rX", 15, MalformedRequest),
        (b"GET /" + b"x" * 17_000, 0, PathTooLong),
        (b"GET /" + b"x" * 17_000 + b" HTTP/1.1\r\nHost", 0, PathTooLong),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * 50_000, 0, HeadersTooLarge),
    ],
)
def test_a_beginning_that_cannot_become_good_is_refused(begun: bytes, looked: int, error: type[QueueyError]) -> None:
    with pytest.raises(error):
        check_beginning(begun, looked)


@given(st.integers(0, len(request(b"X-TTL: 60")) - 1))
def test_every_beginning_of_a_good_head_is_waited_for(size: int) -> None:
    check_beginning(request(b"X-TTL: 60")[:size], 0)
    check_beginning(request(b"X-TTL: 60")[:size], max(size - 1, 0))


_PIECES = st.sampled_from(
    [b"\r\n", b"\n", b"\r", b" ", b":", b"\0", b"GET / HTTP/1.1", b"Host: q", b"Content-Length: 1", b"A", b"\xff", b"%"]
)


@given(st.lists(st.one_of(_PIECES, st.binary(max_size=5)), max_size=12).map(b"".join))
@example(b"GET / HTTP/1.1\r\nHost: q\r\nA\r\nB")
def test_whatever_comes_is_a_request_or_a_refusal(junk: bytes) -> None:
    for raw in (junk + b"\r\n\r\n", LINE + b"\r\nHost: q\r\n" + junk + b"\r\n\r\n"):
        end = raw.index(b"\r\n\r\n") + 4
        with contextlib.suppress(MalformedRequest, HeadersTooLarge, PathTooLong):
            head = parse_head(raw[:end])
            assert b"\n" not in raw[:end].replace(b"\r\n", b"")
            assert head.length is None or head.length >= 0
        with contextlib.suppress(MalformedRequest):
            check_beginning(raw, 0)


_KEYS = st.sampled_from([b"k1", b"", b" a", b"a b", b"\xff", b"a\x00", b"x" * 1000, b"\t", b"a\n", b"a\r"])
_KEYED = st.builds(
    b"%b: %b".__mod__, st.tuples(st.sampled_from([b"Idempotency-Key", b"idempotency-key", b"Idempotency-Key "]), _KEYS)
)
_LINES = st.sampled_from(
    [
        b"Content-Length: 5",
        b"Content-Length: x",
        b" folded",
        b"X-TTL: 1",
        b"Transfer-Encoding: chunked",
        b"Connection: close",
    ]
)


@given(st.lists(_KEYED | _LINES, max_size=5), st.booleans())
@example([b"Idempotency-Key: k1"] * 2, True)
@example([b"Idempotency-Key: k1", b" folded"], True)
@example([b"X-%d: y" % number for number in range(99)] + [b"Idempotency-Key: k"], True)
def test_a_head_with_an_idempotency_key_is_read_as_if_it_were_the_first_one(lines: list[bytes], named: bool) -> None:
    """Without that line it is looked for among the recent ones."""
    raw = request(*lines, host=b"Host: q" if named else b"")

    assert _read(raw, parse_head) == _read(raw, http._parse)


_SIGNED = st.builds(
    b"%b%b%b".__mod__,
    st.tuples(
        st.sampled_from(
            [
                b"Authorization: AWS4-X Signature=",
                b"authorization: AWS4-X Signature=",
                b"X-A: Signature=",
                b"Signature=",
            ]
        ),
        st.sampled_from([b"0f" * 32, b"0f" * 31, b"", b"0F" * 32, b"g" * 64]),
        st.sampled_from([b"", b" ", b", Signature=" + b"a" * 64, b"\n", b"\xff"]),
    ),
)
_IDS = st.builds(b"amz-sdk-invocation-id: %b".__mod__, _KEYS)
_SIGNATURE_LINE = b"Authorization: AWS4-X Signature=" + b"0f" * 32


@given(st.lists(_SIGNED | _IDS | _KEYED | _LINES, max_size=5), st.booleans())
@example([_SIGNATURE_LINE], True)
@example([_SIGNATURE_LINE, b"amz-sdk-invocation-id: 1-2"], True)
@example([_SIGNATURE_LINE, b"amz-sdk-invocation-id: 1-2", b"Amz-Sdk-Invocation-Id: 3"], True)
@example([_SIGNATURE_LINE, b"Idempotency-Key: k1", b"amz-sdk-invocation-id: 1"], True)
@example([_SIGNATURE_LINE] * 2, True)
@example([b"Authorization: AWS4-X Signature=", _SIGNATURE_LINE], True)
@example([_SIGNATURE_LINE, b"Authorization: AWS4-X Signature="], True)
@example([b"X-A: Signature=" + b"0f" * 32, b"Authorization: AWS4-X Signature="], True)
@example([_SIGNATURE_LINE, b" folded"], True)
def test_a_signed_head_is_read_as_if_it_were_the_first_one(lines: list[bytes], named: bool) -> None:
    """Without its signature it is looked for among the recent ones."""
    raw = request(*lines, host=b"Host: q" if named else b"")

    assert _read(raw, parse_head) == _read(raw, http._parse)


_TARGETS = st.lists(
    st.sampled_from(
        [
            b"/v1",
            b"/demo",
            b"/",
            b"?limit=1",
            b"since=a.b-c~d_e",
            b"&",
            b"?",
            b"%41",
            b"#",
            b" ",
            b"*",
            b"http://q/x",
            b"\xff",
            b"\t",
        ]
    ),
    max_size=5,
).map(b"".join)
_METHODS = st.sampled_from(
    [b"GET", b"POST", b"PUT", b"DELETE", b"HEAD", b"OPTIONS", b"PATCH", b"get", b"CONNECT", b"A B"]
)
_VERSIONS = st.sampled_from([b"HTTP/1.1", b"HTTP/1.0", b"HTTP/2", b""])


@given(_METHODS, _TARGETS, _VERSIONS, st.lists(_LINES | _KEYED, max_size=3), st.booleans())
@example(b"GET", b"/v1/demo?limit=1", b"HTTP/1.1", [], True)
@example(b"POST", b"/v1/demo/q", b"HTTP/1.1", [b"Content-Length: 5"], False)
def test_any_target_is_read_as_if_its_head_were_the_first_one(
    method: bytes, target: bytes, version: bytes, lines: list[bytes], named: bool
) -> None:
    """Without a plain target the head is looked for among the recent ones."""
    first = b"%b %b %b" % (method, target, version)
    raw = b"\r\n".join([first, *([b"Host: q"] if named else []), *lines, b"", b""])

    assert _read(raw, parse_head) == _read(raw, http._parse)


def _read(raw: bytes, parse: Callable[[bytes], RequestHead]) -> object:
    try:
        return parse(raw)
    except QueueyError as error:
        return type(error)


@given(
    st.dictionaries(
        st.text("abcdefghijklmnopqrstuvwxyzABCXYZ-0123456789", min_size=1, max_size=20).map(str.lower),
        st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=20).map(str.strip),
        max_size=20,
    )
)
def test_what_is_sent_is_what_is_taken(sent: dict[str, str]) -> None:
    for name in ("host", "content-length", "transfer-encoding"):
        sent.pop(name, None)

    assert headers(*(f"{name}: {value}".encode() for name, value in sent.items())) == {"host": "q", **sent}


def test_the_head_of_an_answer() -> None:
    raw = answer_head(201, "date: d\r\n", [("content-type", "a/b"), ("x-y", "z")], 7, lasting=False)

    assert raw.split(b"\r\n") == [
        b"HTTP/1.1 201 Created",
        b"content-length: 7",
        b"date: d",
        b"content-type: a/b",
        b"x-y: z",
        b"connection: close",
        b"",
        b"",
    ]


def test_the_head_of_a_stream_says_whether_it_comes_in_chunks() -> None:
    assert b"transfer-encoding: chunked\r\n" in answer_head(200, "", [], None, framed=True)
    assert answer_head(200, "", [], None, lasting=False) == b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n"


def test_the_end_of_a_connection_is_said_once() -> None:
    assert answer_head(400, "", [("connection", "close")], 0, lasting=False).count(b"close") == 1


@pytest.mark.parametrize("value", ["a\r\nb: c", "a\nb", "a\r\n\r\n<html>", "a\0"])
def test_no_value_can_add_a_header_to_an_answer(value: str) -> None:
    with pytest.raises(AssertionError):
        answer_head(200, "", [("x", value)], 0)
