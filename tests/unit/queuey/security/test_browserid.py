"""BrowserID assertions, looked at by the scheme itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuey.clock import ManualClock
from queuey.errors import InvalidBrowserID
from queuey.ids import EPOCH_TICKS, TICKS_PER_SECOND
from queuey.security.base64url import decode, encode
from queuey.security.browserid import BrowserID, parse_support_document
from queuey.security.claims import Unproven
from queuey.security.key_files import KeySource
from queuey.security.permissions import Grant
from queuey.security.signed import parse_signed, rsa_key
from queuey.settings.issuers import Issuer
from tests.support.bad_credentials import bad_assertions
from tests.support.signers import LEFT_OUT, Certifier, browserid_key, dsa_key
from tests.support.signers import rsa_key as rsa_key_of

NOW = 1_800_000_000
HOST, AUDIENCE = "login.example.org", "https://queuey.example.com"
LISTENER = "http://127.0.0.1:9"
ISSUER = Issuer("people", "browserid", HOST, (AUDIENCE,), "login.json", domains=("example.org",))
SUPPORT = json.dumps({"public-key": browserid_key(rsa_key_of("certifier"))}).encode()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(EPOCH_TICKS + NOW * TICKS_PER_SECOND)


@pytest.fixture
def certifier() -> Certifier:
    return Certifier(HOST, AUDIENCE, NOW * 1000)


def trusting(folder: Path, clock: ManualClock, settings: Issuer = ISSUER, keys: bytes = SUPPORT) -> KeySource[Any]:
    path = folder / f"{settings.name}.json"
    path.write_bytes(keys)
    source = KeySource(replace(settings, keys=str(path)), parse_support_document, clock)
    source.read()
    return source


@pytest.fixture
def scheme(tmp_path: Path, clock: ManualClock) -> BrowserID:
    return BrowserID([trusting(tmp_path, clock)], clock)


def test_a_good_assertion_proves_an_address_until_it_ends(scheme: BrowserID, certifier: Certifier) -> None:
    grant = scheme.identify(f"{certifier.certificate()}~{certifier.assertion()}")

    assert grant == Grant("bid:joe@example.org", EPOCH_TICKS + (NOW + 120) * TICKS_PER_SECOND)


def test_it_ends_with_its_certificate_if_that_is_first(scheme: BrowserID, certifier: Certifier) -> None:
    ends = certifier.now_ms + 30_000

    assert scheme.identify(certifier.whole(exp=ends)).expires_ticks == EPOCH_TICKS + (NOW + 30) * TICKS_PER_SECOND


@pytest.mark.parametrize(
    ("stated", "proven"),
    [
        ("joe@example.org", "bid:joe@example.org"),
        ("Joe+news@Example.ORG", "bid:Joe+news@example.org"),
        ("o'neil.m-x@example.org", "bid:o'neil.m-x@example.org"),
    ],
)
def test_ordinary_addresses_are_taken(scheme: BrowserID, certifier: Certifier, stated: str, proven: str) -> None:
    assert scheme.identify(certifier.whole(principal={"email": stated})).principal == proven


# To draw such keys takes seconds: so they are drawn by the test, and not when each process of a run collects it.
@pytest.mark.parametrize(("key", "bits"), [(rsa_key_of, 3072), (dsa_key, 2048)], ids=["RSA", "DSA"])
def test_users_keys_may_be_longer_or_of_the_other_kind(
    scheme: BrowserID, certifier: Certifier, key: Callable[[str, int], Any], bits: int
) -> None:
    assert scheme.identify(replace(certifier, user=key("another", bits)).whole()).principal == "bid:joe@example.org"


def test_an_issuers_key_may_be_longer(tmp_path: Path, clock: ManualClock, certifier: Certifier) -> None:
    keys = json.dumps(browserid_key(rsa_key_of("long", 3072))).encode()
    scheme = BrowserID([trusting(tmp_path, clock, keys=keys)], clock)

    assert scheme.identify(replace(certifier, key=rsa_key_of("long", 3072)).whole()).principal == "bid:joe@example.org"


def test_of_several_audiences_any_will_do_and_no_pattern(
    tmp_path: Path, clock: ManualClock, certifier: Certifier
) -> None:
    settings = replace(ISSUER, audience=("http://127.0.0.1:5000", "https://*.example.com"))
    scheme = BrowserID([trusting(tmp_path, clock, settings)], clock)

    def proves(audience: str) -> bool:
        try:
            scheme.identify(replace(certifier, audience=audience).whole())
        except InvalidBrowserID:
            return False
        return True

    assert proves("http://127.0.0.1:5000")
    assert not proves("https://queuey.example.com")
    assert not proves("http://127.0.0.1:5001")


def test_each_issuer_vouches_for_its_domains_only(tmp_path: Path, clock: ManualClock) -> None:
    one = replace(ISSUER, name="one", issuer="one.org", domains=("one.org",))
    two = replace(ISSUER, name="two", issuer="two.org", domains=("*",))
    keys = {name: json.dumps(browserid_key(rsa_key_of(name))).encode() for name in ("one", "two")}
    scheme = BrowserID([trusting(tmp_path, clock, each, keys[each.name]) for each in (one, two)], clock)

    def proves(issuer: str, key: str, address: str) -> str | None:
        signer = Certifier(issuer, AUDIENCE, NOW * 1000, rsa_key_of(key))
        try:
            return scheme.identify(signer.whole(principal={"email": address})).principal
        except InvalidBrowserID:
            return None

    assert proves("one.org", "one", "joe@one.org") == "bid:joe@one.org"
    assert proves("one.org", "one", "joe@two.org") is None
    assert proves("two.org", "two", "joe@one.org") == "bid:joe@one.org"
    assert proves("one.org", "two", "joe@one.org") is None


def test_time_decides_with_a_quarter_of_a_second_of_leeway(
    scheme: BrowserID, certifier: Certifier, clock: ManualClock
) -> None:
    text = f"{certifier.certificate()}~{certifier.assertion(exp=certifier.now_ms + 10_000)}"
    clock.advance(10.2)
    assert scheme.identify(text).principal == "bid:joe@example.org"

    clock.advance(0.1)

    with pytest.raises(InvalidBrowserID, match="expired"):
        scheme.identify(text)


def test_bad_assertions_prove_nothing(scheme: BrowserID, certifier: Certifier, outgoing: list[str]) -> None:
    """G20, at the scheme; tests/functional/test_identity.py sends them to servers."""
    cases = [*bad_assertions(certifier, LISTENER)]
    accepted, said = [], []
    for what, credential in cases:
        try:
            scheme.identify(credential)
        except InvalidBrowserID as error:
            said.append(str(error))
        else:
            accepted.append(what)

    assert accepted == []
    assert outgoing == []
    assert len(cases) > 180
    for word in ("joe@", "eyJ", "example", "127.0.0.1"):
        assert not any(word in text for text in said), word
    assert scheme.identify(certifier.whole()).principal == "bid:joe@example.org"


_JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)  # JSON has neither: the whole document is refused
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(name=st.sampled_from(["iss", "exp", "iat", "nbf", "principal", "public-key"]), value=_JUNK)
def test_a_certificates_claim_of_any_kind_is_taken_or_refused(
    name: str, value: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    clock = ManualClock(EPOCH_TICKS + NOW * TICKS_PER_SECOND)
    scheme = BrowserID([trusting(tmp_path_factory.getbasetemp(), clock)], clock)

    try:
        proven = scheme.identify(Certifier(HOST, AUDIENCE, NOW * 1000).whole(**{name: value})).principal
    except InvalidBrowserID:
        return
    assert proven == "bid:joe@example.org"


@given(
    changes=st.dictionaries(
        st.sampled_from(["n", "e", "algorithm", "p", "q", "g", "y"]),
        _JUNK | st.text("0123456789-", max_size=9),
        min_size=1,
    )
)
def test_a_users_key_of_any_kind_is_taken_or_refused(
    changes: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    clock = ManualClock(EPOCH_TICKS + NOW * TICKS_PER_SECOND)
    scheme = BrowserID([trusting(tmp_path_factory.getbasetemp(), clock)], clock)
    certifier = Certifier(HOST, AUDIENCE, NOW * 1000)
    key: dict[str, Any] = {"public-key": browserid_key(certifier.user, **changes)}

    if set(changes) & {"n", "e", "algorithm"}:
        with pytest.raises(InvalidBrowserID):
            scheme.identify(certifier.whole(**key))
    else:
        assert scheme.identify(certifier.whole(**key)).principal == "bid:joe@example.org"


@given(st.text(max_size=80))
def test_any_text_is_refused(text: str) -> None:
    with pytest.raises(InvalidBrowserID):
        BrowserID([], ManualClock()).identify(text)


@pytest.mark.parametrize(
    "document",
    [
        b"",
        b"[]",
        b"{}",
        b'{"public-key": null}',
        b'{"authority": "elsewhere.org"}',
        json.dumps({"public-key": browserid_key(rsa_key_of("weak", 1024))}).encode(),
        json.dumps({"public-key": browserid_key(rsa_key_of("certifier"), e="1")}).encode(),
        json.dumps({"public-key": browserid_key(rsa_key_of("certifier"), n=LEFT_OUT)}).encode(),
    ],
)
def test_what_is_no_key_of_an_issuer_is_refused(document: bytes) -> None:
    with pytest.raises(Exception, match=r".*"):
        parse_support_document(document)


def test_a_key_of_dsa_is_no_key_of_an_issuer() -> None:
    with pytest.raises(Exception, match=r".*"):
        parse_support_document(json.dumps({"public-key": browserid_key(dsa_key("another", 2048))}).encode())


# How signed JSON is read.


@given(st.binary(min_size=1, max_size=60))
def test_bytes_have_one_text(content: bytes) -> None:
    assert decode(encode(content)) == content


@given(st.text(alphabet="Aa9-_=+/.~ \n\u00e9", max_size=6))
def test_no_other_text_is_read_as_bytes(text: str) -> None:
    try:
        content = decode(text)
    except ValueError:
        return
    assert encode(content) == text


def test_bits_that_say_nothing_are_zero() -> None:
    assert decode("QQ") == b"A"
    for text in ("QR", "QQ=", "QQ==", "Q", "", "QQ\n", " QQ"):
        with pytest.raises(ValueError):  # noqa: PT011 - whatever the reason
            decode(text)


@pytest.mark.parametrize(
    "claims",
    [
        b'{"a":1,"a":2}',
        b'{"a":{"b":1,"b":1}}',
        b'{"a":NaN}',
        b'{"a":-Infinity}',
        b"[]",
        b'"a"',
        b"\xff",
        b"{",
        b"{} {}",
        b"\xef\xbb\xbf{}",
    ],
)
def test_json_that_two_programs_could_read_differently_is_refused(claims: bytes) -> None:
    header, signature = encode(b'{"alg":"RS256"}'), encode(b"signature")
    assert parse_signed(f"{header}.{encode(b'{}')}.{signature}").claims == {}

    with pytest.raises(ValueError):  # noqa: PT011 - whatever the reason
        parse_signed(f"{header}.{encode(claims)}.{signature}")


@pytest.mark.parametrize("change", [{"n": " 5"}, {"e": "+65537"}, {"e": "65_537"}, {"e": 65537}, {"n": "\u0661"}])
def test_a_keys_number_has_one_form(change: dict[str, Any]) -> None:
    rsa_key(browserid_key(rsa_key_of("certifier")))

    with pytest.raises(Unproven):
        rsa_key(browserid_key(rsa_key_of("certifier"), **change))
