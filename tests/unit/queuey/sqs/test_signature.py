"""Signatures of botocore verify, and nothing that was changed on the way does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any
from unittest.mock import patch
from urllib.parse import quote, urlencode, urlsplit

import pytest
from botocore.auth import BaseSigner, SigV4Auth, SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import given
from hypothesis import strategies as st

from queuey.clock import ManualClock
from queuey.future import run
from queuey.http.exchange import Call
from queuey.http.routing import decode_path
from queuey.ids import EPOCH_TICKS, TICKS_PER_SECOND, IdGenerator
from queuey.security.access_keys import MasterSecrets
from queuey.service.keys import Keys
from queuey.sqs.errors import SqsError
from queuey.sqs.signature import SIGNING_KEYS, Presented, Signatures, presented
from queuey.storage.memory import MemoryStores

MOMENT = datetime(2026, 11, 25, 22, 0, 0, tzinfo=UTC)
NOW = EPOCH_TICKS + int(MOMENT.timestamp()) * TICKS_PER_SECOND
HOST = "queue.example.org:5000"
URL = f"http://{HOST}"
QUEUE = f"{URL}/284951520618/jobs.fifo"
JSON = {"Content-Type": "application/x-amz-json-1.0", "X-Amz-Target": "AmazonSQS.SendMessage"}
BODY = b'{"QueueUrl":"jobs","MessageBody":"m"}'

MASTER = MasterSecrets(("m" * 32,))
_CLOCK = ManualClock(NOW)
KEYS = Keys(MemoryStores(_CLOCK, IdGenerator(_CLOCK)).metadata, _CLOCK, {})
BILLING = run(KEYS.new_access_key("billing", MASTER))
SHIPPING = run(KEYS.new_access_key("shipping", MASTER))
SIGNATURES = Signatures(KEYS, MASTER)


@contextmanager
def time_of(moment: datetime) -> Iterator[None]:
    with patch("botocore.auth.get_current_datetime", lambda: moment):
        yield


def signer(
    form: type[BaseSigner] = SigV4Auth,
    *,
    key_id: str = BILLING.id,
    secret: str = BILLING.secret,
    service: str = "sqs",
    region: str = "eu-central-1",
    **more: Any,
) -> BaseSigner:
    return form(Credentials(key_id, secret), service, region, **more)


def sent(
    method: str = "POST",
    url: str = URL + "/",
    headers: Mapping[str, str] | None = None,
    body: bytes = BODY,
    by: BaseSigner | None = None,
) -> Call:
    """A request as botocore signs it, and as a server gets it."""
    request = AWSRequest(method, url, dict(JSON if headers is None else headers), data=body)
    with time_of(MOMENT):
        (by or signer()).add_auth(request)
    prepared = request.prepare()
    parts = urlsplit(prepared.url)
    found = {
        name.lower(): value.decode() if isinstance(value, bytes) else value for name, value in prepared.headers.items()
    }
    call = Call(method, decode_path(parts.path or "/"), parts.query, {"host": HOST, **found})
    call.body = prepared.body or b""
    return call


def check(call: Call, now_ticks: int = NOW, signatures: Signatures = SIGNATURES) -> str:
    shown = presented(call)
    assert shown is not None
    return signatures.check(shown, call, now_ticks)


def told(call: Call, now_ticks: int) -> str:
    """What is said of the time of a signature."""
    with pytest.raises(SqsError) as caught:
        check(call, now_ticks)
    assert (caught.value.query_code, caught.value.status) == ("SignatureDoesNotMatch", 403)
    return str(caught.value)


def refused(call: Call, now_ticks: int = NOW, signatures: Signatures = SIGNATURES) -> tuple[str, int]:
    with pytest.raises(SqsError) as caught:
        check(call, now_ticks, signatures)
    return caught.value.shape, caught.value.status


MISMATCH, INCOMPLETE = ("InvalidSignatureException", 403), ("IncompleteSignature", 400)
UNKNOWN = ("InvalidClientTokenId", 403)


@pytest.mark.parametrize(
    ("method", "url", "headers", "body"),
    [
        ("POST", URL + "/", {**JSON, "x-amzn-query-mode": "true"}, BODY),
        ("POST", URL + "/", JSON, BODY),
        ("POST", URL, JSON, b""),
        ("POST", QUEUE, {"Content-Type": "application/x-www-form-urlencoded"}, b"Action=SendMessage&MessageBody=m"),
        ("GET", QUEUE + "?Action=ReceiveMessage&MessageBody=a%20b%2Fc&Empty=", {}, b""),
        ("POST", URL + "/", {**JSON, "X-Amzn-Trace-Id": "Root=1", "User-Agent": "a"}, b"x" * 100_000),
    ],
)
def test_a_signature_of_botocore_verifies(method: str, url: str, headers: Mapping[str, str], body: bytes) -> None:
    call = sent(method, url, headers, body)

    assert check(call) == "billing"
    assert check(call) == "billing"  # a replay, which the real service allows as well


@pytest.mark.parametrize("region", ["us-east-1", "elasticmq", "any_where"])
def test_any_region_will_do(region: str) -> None:
    assert check(sent(by=signer(region=region))) == "billing"


def link(method: str = "GET", expires: int = 60) -> Call:
    url = f"{QUEUE}?{urlencode({'Action': 'SendMessage', 'MessageBody': 'a b/c~=&'}, quote_via=quote)}"
    return sent(method, url, {}, b"", signer(SigV4QueryAuth, expires=expires))


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_presigned_link_verifies(method: str) -> None:
    call = link(method)

    shown = presented(call)

    assert shown is not None
    assert (shown.key_id, shown.expires_seconds, shown.signed_headers) == (BILLING.id, 60, ("host",))
    assert check(call) == "billing"


def test_a_header_that_is_sent_more_than_once_verifies() -> None:
    """It is signed with a comma between its values, and the server joins them with a comma and a blank."""
    request = AWSRequest("POST", URL + "/", {**JSON, "Host": HOST, "X-Note": "a"}, data=BODY)
    request.headers.add_header("X-Note", "b c")
    with time_of(MOMENT):
        signer().add_auth(request)
    found = {name.lower(): value for name, value in request.headers.items()}

    def arrived(note: str) -> Call:
        call = Call("POST", "/", "", {**found, "x-note": note})
        call.body = BODY
        return call

    assert check(arrived("a, b c")) == "billing"
    assert refused(arrived("a, b, c")) == MISMATCH


def test_a_signature_is_shown_as_it_stands() -> None:
    shown = presented(sent())

    assert shown == Presented(
        BILLING.id,
        "20261125",
        "eu-central-1",
        ("content-type", "host", "x-amz-date", "x-amz-target"),
        shown.signature if shown else "",
        "20261125T220000Z",
        None,
    )


@pytest.mark.parametrize("header", ["", "Application f25bfb8fe200475c8a0532a9cbe7651e", "Bearer a.b.c", "AWS a:b"])
def test_another_scheme_is_no_signature(header: str) -> None:
    assert presented(Call("POST", "/", "", {"authorization": header})) is None


def _set(name: str, value: str) -> Callable[[Call], None]:
    return lambda call: call.headers.update({name: value})  # type: ignore[attr-defined]


def _in_header(old: str, new: str) -> Callable[[Call], None]:
    return lambda call: _set("authorization", call.headers["authorization"].replace(old, new))(call)


def _in_query(old: str, new: str) -> Callable[[Call], None]:
    return lambda call: setattr(call, "query_string", call.query_string.replace(old, new))


def _at_no_moment(call: Call) -> None:
    _set("x-amz-date", "20261399T990000Z")(call)
    _in_header("20261125", "20261399")(call)


CHANGES: dict[str, tuple[Callable[[Call], None], tuple[str, int]]] = {
    "body": (lambda call: setattr(call, "body", BODY + b" "), MISMATCH),
    "no body": (lambda call: setattr(call, "body", b""), MISMATCH),
    "method": (lambda call: setattr(call, "method", "PUT"), MISMATCH),
    "path": (lambda call: setattr(call, "path", "/284951520618/jobs"), MISMATCH),
    "query": (lambda call: setattr(call, "query_string", "Action=DeleteQueue"), MISMATCH),
    "target": (_set("x-amz-target", "AmazonSQS.DeleteQueue"), MISMATCH),
    "host": (_set("host", "queue.example.org"), MISMATCH),
    "content type": (_set("content-type", "text/plain"), MISMATCH),
    "time": (_set("x-amz-date", "20261125T220001Z"), MISMATCH),
    "day": (_set("x-amz-date", "20261126T000000Z"), MISMATCH),
    "region": (_in_header("eu-central-1", "eu-central-2"), MISMATCH),
    "key": (_in_header(BILLING.id, SHIPPING.id), MISMATCH),
    "unknown key": (_in_header(BILLING.id, "Q" + "A" * 19), UNKNOWN),
    "service": (_in_header("/sqs/", "/sns/"), MISMATCH),
    "end of the scope": (_in_header("aws4_request", "aws5_request"), MISMATCH),
    "signature": (_in_header("Signature=", "Signature=0"), INCOMPLETE),
    "a header that is signed and gone": (lambda call: call.headers.pop("content-type"), MISMATCH),  # type: ignore[attr-defined]
    "a target that is not signed": (_in_header(";x-amz-target", ""), INCOMPLETE),
    "a host that is not signed": (_in_header(";host", ""), INCOMPLETE),
    "a header twice": (_in_header(";host", ";host;host"), INCOMPLETE),
    "another order": (_in_header("content-type;host", "host;content-type"), MISMATCH),
    "algorithm": (_in_header("AWS4-HMAC-SHA256", "AWS4-ECDSA-P256-SHA256"), INCOMPLETE),
    "no time": (lambda call: call.headers.pop("x-amz-date"), INCOMPLETE),  # type: ignore[attr-defined]
    "no moment": (_at_no_moment, INCOMPLETE),
    "no credential": (_in_header("Credential=", "Credentials="), INCOMPLETE),
    "no signed headers": (_in_header("SignedHeaders=", "Signed="), INCOMPLETE),
    "a short credential": (_in_header("/sqs/aws4_request", ""), INCOMPLETE),
}  # fmt: skip


@pytest.mark.parametrize("part", CHANGES)
def test_a_changed_request_is_refused(part: str) -> None:
    change, said = CHANGES[part]
    call = sent()
    change(call)

    assert refused(call) == said


LINK_CHANGES: dict[str, tuple[Callable[[Call], None], tuple[str, int]]] = {
    "parameter": (_in_query("SendMessage", "DeleteQueue"), MISMATCH),
    "one more": (lambda call: setattr(call, "query_string", call.query_string + "&Version=1"), MISMATCH),
    "path": (lambda call: setattr(call, "path", "/284951520618/jobs"), MISMATCH),
    "body": (lambda call: setattr(call, "body", b"x"), MISMATCH),
    "method": (lambda call: setattr(call, "method", "POST"), MISMATCH),
    "expiry": (_in_query("X-Amz-Expires=60", "X-Amz-Expires=61"), MISMATCH),
    "too long": (_in_query("X-Amz-Expires=60", "X-Amz-Expires=604801"), INCOMPLETE),
    "no time at all": (_in_query("X-Amz-Expires=60", "X-Amz-Expires=0"), INCOMPLETE),
    "endless": (_in_query("X-Amz-Expires=60&", ""), INCOMPLETE),
    "key": (_in_query(BILLING.id, SHIPPING.id), MISMATCH),
    "target": (_set("x-amz-target", "AmazonSQS.DeleteQueue"), INCOMPLETE),
    "signature": (_in_query("X-Amz-Signature=", "X-Amz-Signatures="), INCOMPLETE),
    "query that is none": (_in_query("Action=", "Action=%zz"), ("MalformedQueryString", 400)),
}


@pytest.mark.parametrize("part", LINK_CHANGES)
def test_a_changed_link_is_refused(part: str) -> None:
    change, said = LINK_CHANGES[part]
    call = link()
    change(call)

    assert refused(call) == said


def after(seconds: int) -> int:
    return NOW + seconds * TICKS_PER_SECOND


def test_a_clock_may_be_a_quarter_of_an_hour_off() -> None:
    call = sent()

    assert [check(call, after(seconds)) for seconds in (-900, 900)] == ["billing"] * 2
    assert told(call, after(-901)) == (
        "Signature not yet current: 20261125T220000Z is still later than 20261125T215959Z (20261125T214459Z + 15 min.)"
    )
    assert told(call, after(901)) == (
        "Signature expired: 20261125T220000Z is now earlier than 20261125T220001Z (20261125T221501Z - 15 min.)"
    )


def test_a_link_lives_as_long_as_it_says_and_a_week_at_most() -> None:
    short, week = link(expires=60), link(expires=604_800)

    assert [check(short, after(seconds)) for seconds in (-900, 60)] == ["billing"] * 2
    assert told(short, after(-901)).startswith("Signature not yet current: ")
    assert told(short, after(61)) == (
        "Signature expired: 20261125T220000Z is now earlier than 20261125T220001Z (20261125T220101Z - 60 sec.)"
    )
    assert check(week, after(604_800)) == "billing"
    assert told(week, after(604_801)).startswith("Signature expired: ")


def test_a_date_header_takes_the_place_of_x_amz_date() -> None:
    call = sent(headers={**JSON, "Date": "now"})

    assert "x-amz-date" not in call.headers
    assert check(call) == "billing"
    _set("date", "Wed, 25 Nov 2026 23:00:01 +0100")(call)
    assert refused(call) == MISMATCH
    _set("date", "no date")(call)
    assert refused(call) == INCOMPLETE


def test_another_secret_is_refused_and_so_is_a_key_that_is_no_longer_in_force() -> None:
    clock = ManualClock(NOW)
    store = MemoryStores(clock, IdGenerator(clock)).metadata
    keys = Keys(store, clock, {})
    made = run(keys.new_access_key("billing", MASTER))
    call = sent(by=signer(key_id=made.id, secret=made.secret))
    signatures = Signatures(keys, MASTER)

    assert check(call, signatures=signatures) == "billing"
    assert refused(sent(by=signer(key_id=made.id, secret=SHIPPING.secret)), signatures=signatures) == MISMATCH
    assert refused(call, signatures=Signatures(keys, MasterSecrets(("other" * 8,)))) == UNKNOWN
    store.remove_key("app:billing", made.id).wait()
    run(keys.refresh())
    assert refused(call, signatures=signatures) == UNKNOWN


def test_signing_keys_are_kept_and_bounded() -> None:
    signatures = Signatures(KEYS, MASTER)
    calls = [sent(by=signer(region=region)) for region in ("a", "a", "b")]

    assert [check(call, signatures=signatures) for call in calls] == ["billing"] * 3

    info = signatures._signing_key.cache_info()
    assert (info.hits, info.misses, info.maxsize) == (1, 2, SIGNING_KEYS)


def test_without_checks_a_key_id_names_the_application() -> None:
    def named(key_id: str | None, signatures: Signatures = SIGNATURES) -> str:
        call = sent(by=signer(key_id=key_id, secret="any")) if key_id else sent_without()
        return signatures.application_without_check(presented(call))

    def sent_without() -> Call:
        return Call("POST", "/", "", {"host": HOST})

    assert [named(BILLING.id), named("shipping")] == ["billing", "shipping"]
    for stranger in ("test", None):
        with pytest.raises(SqsError) as caught:
            named(stranger)
        assert caught.value.shape == "InvalidClientTokenId"
    clock = ManualClock(NOW)
    keys = Keys(MemoryStores(clock, IdGenerator(clock)).metadata, clock, {"demo": ("k" * 32,)})
    run(keys.refresh())
    assert [named(key_id, Signatures(keys, MASTER)) for key_id in ("test", None, "demo")] == ["demo"] * 3


# Any request

VISIBLE = st.characters(min_codepoint=0x20, max_codepoint=0x7E)
NAMES = st.from_regex(r"x-[a-z][a-z0-9-]{0,10}", fullmatch=True).filter(
    lambda name: name not in ("x-amz-date", "x-amz-security-token", "x-amz-content-sha256", "x-amzn-trace-id")
)
PARTS = st.text(st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="\ufffd"), max_size=8)


@given(
    method=st.sampled_from(["GET", "POST"]),
    path=st.lists(PARTS.filter(lambda part: "/" not in part), max_size=4),  # an escaped slash arrives as a slash
    trailing=st.booleans(),
    query=st.lists(st.tuples(PARTS, PARTS), max_size=4),
    headers=st.dictionaries(NAMES, st.text(VISIBLE, max_size=12).map(str.strip), max_size=3),
    body=st.binary(max_size=20),
    presign=st.booleans(),
    data=st.data(),
)
def test_any_request_verifies_and_no_change_of_it_does(
    method: str,
    path: list[str],
    trailing: bool,
    query: list[tuple[str, str]],
    headers: dict[str, str],
    body: bytes,
    presign: bool,
    data: st.DataObject,
) -> None:
    escaped = "/".join(quote(part, safe="") for part in path)
    url = f"{URL}/{escaped}{'/' if trailing else ''}?{urlencode(query, quote_via=quote, safe='')}"
    call = sent(method, url, headers, b"" if presign else body, signer(SigV4QueryAuth if presign else SigV4Auth))

    assert check(call) == "billing"

    change = data.draw(st.sampled_from(["body", "path", "query", *(name for name in headers if not presign)]))
    if change in headers:
        _set(change, call.headers[change] + "x")(call)
    elif change == "body":
        call.body += b"x"
    elif change == "path":
        call.path += "x"
    else:
        call.query_string += "&x=1"
    assert refused(call) == MISMATCH


TEXTS = st.one_of(
    st.text(VISIBLE, max_size=60),
    st.lists(
        st.sampled_from(
            [
                "Credential=",
                "SignedHeaders=",
                "Signature=",
                ",",
                " ",
                "/",
                BILLING.id,
                "20261125",
                "sqs",
                "a;b",
                "0" * 64,
            ]
        ),
        max_size=14,
    ).map("".join),
)


@given(header=TEXTS, date=TEXTS, query=TEXTS)
def test_any_text_is_no_signature_or_an_error_of_the_service(header: str, date: str, query: str) -> None:
    for call in (
        Call("POST", "/", query, {"authorization": f"AWS4-HMAC-SHA256 {header}", "date": date, "host": HOST}),
        Call("GET", "/", f"X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Expires=9&{query}", {"host": HOST}),
    ):
        with pytest.raises(SqsError):
            check(call)
