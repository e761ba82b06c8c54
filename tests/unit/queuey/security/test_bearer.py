"""Tokens of OpenID Connect providers, looked at by the scheme itself."""

from __future__ import annotations

import json
import re
from base64 import urlsafe_b64decode
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuey.clock import ManualClock
from queuey.errors import InvalidToken
from queuey.ids import EPOCH_TICKS, TICKS_PER_SECOND
from queuey.security.bearer import Bearer, OidcIssuer, parse_key_set
from queuey.security.key_files import KeySource
from queuey.security.permissions import Grant
from queuey.security.tokens import Tokens
from queuey.settings.issuers import Issuer
from tests.support.bad_credentials import bad_own_tokens, bad_tokens
from tests.support.signers import LEFT_OUT, Oidc, OwnTokens, b64, ec_key, jwk, jws, rsa_key

NOW = 1_800_000_000
STATED, AUDIENCE = "https://login.example.org", "queuey-web"
LISTENER = "http://127.0.0.1:9"
SECRET, FORMER = "5ec4e7" * 8, "0ddba11" * 6


def issuer(**changes: Any) -> Issuer:
    values: dict[str, Any] = {
        "name": "login",
        "kind": "oidc",
        "issuer": STATED,
        "audience": (AUDIENCE,),
        "keys": "keys.json",
        "principal": "oidc:email",
        "domains": ("example.org",),
    }
    return Issuer(**{**values, **changes})


def published(*keys: dict[str, Any]) -> bytes:
    return json.dumps({"keys": list(keys)}).encode()


KEYS = published(jwk(rsa_key("oidc"), "first", alg="RS256", use="sig"), jwk(rsa_key("oidc second"), "second"))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(EPOCH_TICKS + NOW * TICKS_PER_SECOND)


@pytest.fixture
def oidc() -> Oidc:
    return Oidc(STATED, AUDIENCE, NOW)


def trusting(tmp_path: Path, clock: ManualClock, settings: Issuer, keys: bytes = KEYS) -> OidcIssuer:
    """The issuer with its keys in a file, which was read."""
    path = tmp_path / f"{settings.name}.json"
    path.write_bytes(keys)
    source = KeySource(replace(settings, keys=str(path)), lambda text: parse_key_set(text, settings.algorithms), clock)
    source.read()
    return OidcIssuer(settings, source, clock)


@pytest.fixture
def tokens(clock: ManualClock) -> Tokens:
    return Tokens([SECRET], "queuey", 3600, clock)


@pytest.fixture
def bearer(tmp_path: Path, clock: ManualClock, tokens: Tokens) -> Bearer:
    return Bearer([tokens, trusting(tmp_path, clock, issuer())])


@pytest.fixture
def own(tokens: Tokens) -> OwnTokens:
    """By hand what the server mints."""
    header = tokens.mint("bid:joe@example.org", "queuey").text.partition(".")[0]
    kid = json.loads(urlsafe_b64decode(header + "=="))["kid"]
    return OwnTokens(SECRET, kid, "queuey", NOW)


def test_a_good_token_proves_a_verified_address(bearer: Bearer, oidc: Oidc) -> None:
    grant = bearer.identify(oidc.token(email="Joe+news@Example.ORG"))

    assert grant == Grant("oidc:Joe+news@example.org", EPOCH_TICKS + (NOW + 600) * TICKS_PER_SECOND)


@pytest.mark.parametrize(
    "change",
    [
        {"aud": [AUDIENCE, "others"]},
        {"iat": LEFT_OUT},
        {"nbf": NOW},
        {"exp": NOW + 600.5},
        {"exp": NOW + 86_400, "iat": LEFT_OUT},
        {"azp": "x", "nonce": "n", "name": "Joé", "groups": ["a"]},
    ],
)
def test_what_providers_do_is_taken(bearer: Bearer, oidc: Oidc, change: dict[str, Any]) -> None:
    assert bearer.identify(oidc.token(**change)).principal == "oidc:joe@example.org"


@pytest.mark.parametrize("kind", ["JWT", "jwt", "at+jwt", "application/at+jwt", LEFT_OUT])
def test_tokens_that_say_who_somebody_is_are_taken(bearer: Bearer, oidc: Oidc, kind: Any) -> None:
    assert bearer.identify(oidc.token({"typ": kind})).principal == "oidc:joe@example.org"


def test_every_key_of_the_issuer_verifies(bearer: Bearer, oidc: Oidc) -> None:
    token = oidc.token({"kid": "second"}, rsa_key("oidc second"))

    assert bearer.identify(token).principal == "oidc:joe@example.org"


def test_a_token_without_a_kid_is_taken_where_there_is_one_key(tmp_path: Path, clock: ManualClock, oidc: Oidc) -> None:
    bearer = Bearer([trusting(tmp_path, clock, issuer(), published(jwk(rsa_key("oidc"), None)))])

    assert bearer.identify(oidc.token({"kid": LEFT_OUT})).principal == "oidc:joe@example.org"


def test_time_decides_with_a_quarter_of_a_second_of_leeway(bearer: Bearer, clock: ManualClock, oidc: Oidc) -> None:
    token = oidc.token(exp=NOW + 10, nbf=NOW + 5, iat=LEFT_OUT)
    taken = []
    for seconds in (4.7, 4.8, 10.2, 10.3):
        clock.advance(seconds - (clock.now_ticks() - EPOCH_TICKS) / TICKS_PER_SECOND + NOW)
        try:
            bearer.identify(token)
        except InvalidToken:
            taken.append((seconds, False))
        else:
            taken.append((seconds, True))

    assert taken == [(4.7, False), (4.8, True), (10.2, True), (10.3, False)]


@pytest.mark.parametrize(
    ("settings", "proven"),
    [
        ({"principal": "oidc:sub", "domains": ()}, "oidc:login:248289761001"),
        ({"principal": "bid:email"}, "bid:joe@example.org"),
        ({"principal": "oidc:email", "domains": ("*",)}, "oidc:joe@example.org"),
    ],
)
def test_the_settings_say_what_is_proven(
    tmp_path: Path, clock: ManualClock, oidc: Oidc, settings: dict[str, Any], proven: str
) -> None:
    bearer = Bearer([trusting(tmp_path, clock, issuer(**settings))])

    assert bearer.identify(oidc.token()).principal == proven


@pytest.mark.parametrize("subject", ["a,b", "a b", "é", "a\n", "x" * 255])
def test_a_subject_that_no_queue_could_name_proves_nothing(
    tmp_path: Path, clock: ManualClock, oidc: Oidc, subject: str
) -> None:
    bearer = Bearer([trusting(tmp_path, clock, issuer(principal="oidc:sub", domains=()))])

    with pytest.raises(InvalidToken, match="no principal has"):
        bearer.identify(oidc.token(sub=subject))


def test_subjects_of_two_issuers_are_two_principals_and_no_addresses(tmp_path: Path, clock: ManualClock) -> None:
    """Nor can one issuer's subject look like an address that another one verified."""
    stated = {"one": "https://one.example.org", "two": "https://two.example.org"}
    settings = [issuer(name=name, issuer=address, principal="oidc:sub", domains=()) for name, address in stated.items()]
    bearer = Bearer([trusting(tmp_path, clock, one) for one in settings])

    proven = {
        bearer.identify(Oidc(address, AUDIENCE, NOW).token(sub="joe@example.org")).principal
        for address in stated.values()
    }

    assert proven == {"oidc:one:joe@example.org", "oidc:two:joe@example.org"}


def test_one_issuers_key_signs_for_no_other(tmp_path: Path, clock: ManualClock) -> None:
    one, two = issuer(), issuer(name="two", issuer="https://two.example.org")
    keys = published(jwk(rsa_key("two's"), "first"))
    bearer = Bearer([trusting(tmp_path, clock, one), trusting(tmp_path, clock, two, keys)])

    assert bearer.identify(Oidc(two.issuer, AUDIENCE, NOW, rsa_key("two's")).token()).principal
    with pytest.raises(InvalidToken):
        bearer.identify(Oidc(one.issuer, AUDIENCE, NOW, rsa_key("two's")).token())


def test_an_elliptic_key_verifies_where_the_settings_say_so(tmp_path: Path, clock: ManualClock) -> None:
    keys = published(jwk(rsa_key("oidc"), "first"), jwk(ec_key("oidc"), "curve"))
    bearer = Bearer([trusting(tmp_path, clock, issuer(algorithms=("ES256",)), keys)])
    signer = Oidc(STATED, AUDIENCE, NOW, ec_key("oidc"), "curve", "ES256")

    assert bearer.identify(signer.token()).principal == "oidc:joe@example.org"
    with pytest.raises(InvalidToken):
        bearer.identify(Oidc(STATED, AUDIENCE, NOW).token())


def test_bad_tokens_prove_nothing(bearer: Bearer, oidc: Oidc, own: OwnTokens, outgoing: list[str]) -> None:
    """G20, at the scheme; tests/functional/test_identity.py sends them to servers."""
    former = OwnTokens(FORMER, "abcdef012345", "queuey", NOW)
    cases = [*bad_tokens(oidc, LISTENER), *bad_own_tokens(own, former, oidc)]
    accepted, said = [], []
    for what, token in cases:
        try:
            bearer.identify(token)
        except InvalidToken as error:
            said.append(str(error))
        else:
            accepted.append(what)

    assert accepted == []
    assert outgoing == []
    assert len(cases) > 250
    for word in ("joe@", "eyJ", SECRET, "example.org", "127.0.0.1"):
        assert not any(word in text for text in said), word
    assert bearer.identify(oidc.token()).principal == "oidc:joe@example.org"
    assert bearer.identify(own.token()).principal == "bid:joe@example.org"


_JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(name=st.sampled_from(["iss", "aud", "exp", "nbf", "iat", "sub", "email", "email_verified"]), value=_JUNK)
def test_a_claim_of_any_kind_is_taken_or_refused(
    name: str, value: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    clock = ManualClock(EPOCH_TICKS + NOW * TICKS_PER_SECOND)
    bearer = Bearer([trusting(tmp_path_factory.getbasetemp(), clock, issuer())])
    token = Oidc(STATED, AUDIENCE, NOW).token(**{name: value})

    try:
        proven = bearer.identify(token).principal
    except InvalidToken:
        return
    assert proven.startswith("oidc:")
    assert proven == "oidc:joe@example.org" or name == "email"


@given(st.text(max_size=60) | st.binary(max_size=60).map(lambda raw: f"{b64(raw)}.{b64(raw)}.{b64(raw)}"))
def test_any_text_is_refused(text: str) -> None:
    with pytest.raises(InvalidToken):
        Bearer([]).identify(text)


@given(header=_JUNK, claims=_JUNK)
def test_any_header_and_claims_are_refused(header: Any, claims: Any) -> None:
    with pytest.raises(InvalidToken):
        Bearer([Tokens([SECRET], "queuey", 3600, ManualClock())]).identify(jws(header, claims, None))


# Key sets.


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (b"", "Expecting value"),
        (b"[]", "JWK Set"),
        (b'{"keys": {}}', "JWK Set"),
        (b'{"keys": []}', "expected a key for RS256"),
        (b'{"keys": [1, null, "x", []]}', "expected a key for RS256"),
        (published(*[{}] * 65), "up to 64 keys"),
        (published({"kty": "oct", "k": "c2VjcmV0", "kid": "a"}), "expected a key for RS256"),
        (published({"kty": "oct", "k": "c2VjcmV0", "kid": "a", "alg": "RS256"}), "expected a key for RS256"),
        (published(jwk(rsa_key("oidc"), "a", use="enc")), "expected a key for RS256"),
        (published(jwk(rsa_key("oidc"), "a", alg="RS512")), "expected a key for RS256"),
        (published(jwk(rsa_key("oidc"), "a", key_ops=["encrypt"])), "expected a key for RS256"),
        (published(jwk(ec_key("oidc"), "a")), "expected a key for RS256"),
        (published(jwk(rsa_key("weak", 1024), "a")), "has 1024 bits"),
        (published(jwk(rsa_key("oidc"), "a"), jwk(rsa_key("two's"), "a")), "names (kid) of their own"),
        (published(jwk(rsa_key("oidc"), "a") | {"kid": 5}), "names (kid) of their own"),
        (published(jwk(rsa_key("oidc"), "a") | {"n": "!"}), "Unable to construct key"),
        (published({"kty": "RSA", "kid": "a"}), "Not a public"),
    ],
)
def test_what_is_no_key_set_is_refused(document: bytes, said: str) -> None:
    with pytest.raises(Exception, match=re.escape(said)):
        parse_key_set(document, ["RS256"])


def test_of_a_key_that_was_published_whole_only_the_public_half_is_kept() -> None:
    private = rsa_key("oidc").private_numbers()
    whole = jwk(rsa_key("oidc"), "a", d=b64(private.d.to_bytes(256, "big")))

    (key,) = parse_key_set(published(whole), ["RS256"]).values()

    assert not hasattr(key.key, "private_numbers")


def test_a_key_serves_the_algorithm_that_it_names() -> None:
    keys = parse_key_set(
        published(jwk(rsa_key("oidc"), "a", alg="PS256"), jwk(rsa_key("two's"), "b")), ["RS256", "PS256"]
    )

    assert {kid: key.algorithms for kid, key in keys.items()} == {"a": ("PS256",), "b": ("RS256", "PS256")}
