"""From a header to an identity, what is remembered of it, and what it may do."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuey.clock import ManualClock
from queuey.errors import InvalidApplicationKey, InvalidToken, Throttled, Unauthenticated
from queuey.future import run
from queuey.http.access import identify
from queuey.http.exchange import Call
from queuey.ids import TICKS_PER_SECOND
from queuey.model import PrincipalKey
from queuey.security import identity as identity_module
from queuey.security.app_keys import ApplicationKeys, digest_of, label_of
from queuey.security.identity import Allowance, Identifier, Remembering
from queuey.security.permissions import ANONYMOUS, Grant
from queuey.security.principals import parse_address, parse_principal
from queuey.service import Service
from queuey.settings import load_settings

KEY = "f25bfb8fe200475c8a0532a9cbe7651e"


class Words:
    """A scheme that takes the words it was given, and says how often it was asked."""

    name = "Bearer"
    refusal: type[Unauthenticated] = InvalidToken

    def __init__(self, grants: dict[str, Grant]) -> None:
        self.grants = grants
        self.asked: list[str] = []

    def identify(self, credential: str, client: str | None = "") -> Grant:
        self.asked.append(credential)
        try:
            return self.grants[credential]
        except KeyError:
            raise InvalidToken from None

    def recall(self, credential: str) -> Grant | None:
        return None


def application_keys(**applications: str) -> ApplicationKeys:
    known = {
        digest_of(key): PrincipalKey(f"app:{name}", digest_of(key), label_of(digest_of(key)), 0)
        for name, key in applications.items()
    }
    return ApplicationKeys(known.get)


# Headers.


@pytest.mark.parametrize(
    ("header", "principals"),
    [
        (None, set()),
        ("", set()),
        (";;", set()),
        ("Basic x", set()),
        ("BearerX good", set()),
        ("Bearer good", {"oidc:joe"}),
        ("bearer good", {"oidc:joe"}),
        ("  BEARER   good  ", {"oidc:joe"}),
        (f"Application {KEY}; Bearer good", {"oidc:joe", "app:a"}),
        (f"Bearer good;Basic x;Application {KEY};", {"oidc:joe", "app:a"}),
        ("Bearer good;Bearer better", {"oidc:joe", "bid:ann@example.org"}),
    ],
)
def test_each_credential_of_a_known_scheme_adds_its_principal(header: str | None, principals: set[str]) -> None:
    words = Words({"good": Grant("oidc:joe"), "better": Grant("bid:ann@example.org")})

    assert Identifier([application_keys(a=KEY), words]).identify(header).principals == principals


@pytest.mark.parametrize(
    "header", ["Bearer bad", "Bearer", "Bearer ;", f"Application {KEY};Bearer bad", "Bearer good;Bearer bad"]
)
def test_one_bad_credential_refuses_all(header: str) -> None:
    with pytest.raises(InvalidToken):
        Identifier([application_keys(a=KEY), Words({"good": Grant("oidc:joe")})]).identify(header)


def test_the_refusal_is_that_of_the_scheme() -> None:
    with pytest.raises(InvalidApplicationKey):
        Identifier([application_keys(a=KEY), Words({})]).identify("Application bad; Bearer bad")


def test_what_is_longer_than_8_kib_is_not_looked_at() -> None:
    words = Words({"good": Grant("oidc:joe"), "x" * 9000: Grant("oidc:long")})
    identifier = Identifier([words])

    for header in (f"Bearer {'x' * 9000}", f"Bearer good;{'x' * 9000}"):
        with pytest.raises(InvalidToken, match="8192"):
            identifier.identify(header)
    assert words.asked == []
    assert identifier.identify("Basic " + "x" * 9000) is ANONYMOUS


def test_the_challenge_names_the_schemes_that_there_are() -> None:
    assert Identifier([application_keys()]).challenge == 'Application realm="queuey"'
    assert Identifier([application_keys(), Words({})]).challenge == 'Application realm="queuey", Bearer realm="queuey"'


def test_every_look_is_counted_by_scheme_and_outcome(clock: ManualClock) -> None:
    counted: list[tuple[str, str]] = []
    bearer = Remembering(Words({"good": Grant("oidc:joe")}), clock, Allowance(1, clock))
    identifier = Identifier([application_keys(a=KEY), bearer], lambda kind, result: counted.append((kind, result)))

    for header in (f"Application {KEY}", "Bearer good", "Basic x", "Bearer bad", "Bearer worse", "Bearer good"):
        try:
            identifier.identify(header)
        except (Unauthenticated, Throttled):
            continue

    assert counted == [
        ("application", "accepted"),
        ("bearer", "accepted"),
        ("bearer", "refused"),
        ("bearer", "throttled"),
        ("bearer", "accepted"),
    ]


@given(st.text(alphabet=st.characters(codec="latin-1"), max_size=100))
def test_any_header_is_an_identity_or_a_refusal(header: str) -> None:
    try:
        found = Identifier([application_keys(a=KEY), Words({})]).identify(header)
    except Unauthenticated:
        return
    assert found.principals == frozenset()


# Remembering.


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def lasting(clock: ManualClock, seconds: float, principal: str = "oidc:joe") -> Grant:
    return Grant(principal, clock.now_ticks() + int(seconds * TICKS_PER_SECOND))


def test_what_was_proven_is_looked_at_once_until_it_ends(clock: ManualClock) -> None:
    words = Words({"good": lasting(clock, 10)})
    scheme = Remembering(words, clock, Allowance(10, clock))

    for seconds in (0, 5, 4.9):
        clock.advance(seconds)
        assert scheme.identify("good").principal == "oidc:joe"
    assert words.asked == ["good"]

    del words.grants["good"]
    clock.advance(0.2)

    with pytest.raises(InvalidToken):
        scheme.identify("good")


def test_what_was_refused_is_looked_at_again(clock: ManualClock) -> None:
    words = Words({})
    scheme = Remembering(words, clock, Allowance(10, clock))
    for _ in range(3):
        with pytest.raises(InvalidToken):
            scheme.identify("bad")

    words.grants["bad"] = lasting(clock, 10)

    assert scheme.identify("bad").principal == "oidc:joe"
    assert words.asked == ["bad"] * 4


def test_when_whom_the_scheme_trusts_changes_all_is_looked_at_anew(clock: ManualClock) -> None:
    words = Words({"good": lasting(clock, 10)})
    scheme = Remembering(words, clock, Allowance(10, clock))
    scheme.identify("good")
    words.grants.clear()

    scheme.forget()

    with pytest.raises(InvalidToken):
        scheme.identify("good")


def test_a_proof_under_way_while_trust_changes_is_not_remembered(clock: ManualClock) -> None:
    class Meanwhile(Words):
        def identify(self, credential: str, client: str | None = "") -> Grant:
            grant = super().identify(credential, client)
            scheme.forget()
            return grant

    words = Meanwhile({"good": lasting(clock, 10)})
    scheme = Remembering(words, clock, Allowance(10, clock))

    scheme.identify("good")
    scheme.identify("good")

    assert words.asked == ["good", "good"]


def test_so_many_are_remembered_and_the_oldest_go(clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity_module, "REMEMBERED", 3)
    words = Words({f"t{number}": lasting(clock, 10) for number in range(5)})
    scheme = Remembering(words, clock, Allowance(10, clock))

    for number in (0, 1, 2, 3, 4, 4, 2, 0):
        scheme.identify(f"t{number}")

    assert words.asked == ["t0", "t1", "t2", "t3", "t4", "t0"]
    assert len(scheme._known) == 3


def test_the_credential_itself_is_not_kept(clock: ManualClock) -> None:
    scheme = Remembering(Words({"good": lasting(clock, 10)}), clock, Allowance(10, clock))
    scheme.identify("good")

    assert [len(digest) for digest in scheme._known] == [32]
    assert "good" not in repr(scheme._known)


def test_a_flood_of_bad_credentials_is_looked_at_so_many_times_a_second(clock: ManualClock) -> None:
    """G17: callers that have proven themselves already do not notice, and others can try again."""
    words = Words({"good": lasting(clock, 100), "new": lasting(clock, 100)})
    scheme = Remembering(words, clock, Allowance(5, clock))
    scheme.identify("good")

    outcomes = [_outcome(scheme, f"bad{number}") for number in range(100)]

    assert outcomes == ["InvalidToken"] * 5 + ["Throttled"] * 95
    assert len(words.asked) == 6
    assert _outcome(scheme, "good") == "oidc:joe"
    assert _outcome(scheme, "new") == "Throttled"
    clock.advance(0.2)
    assert _outcome(scheme, "new") == "oidc:joe"
    assert [_outcome(scheme, "bad") for _ in range(2)] == ["InvalidToken", "Throttled"]
    clock.advance(3600)
    assert [_outcome(scheme, "bad") for _ in range(6)] == ["InvalidToken"] * 5 + ["Throttled"]


def test_one_client_that_sends_bad_credentials_keeps_no_other_out(clock: ManualClock) -> None:
    words = Words({"new": lasting(clock, 100)})
    scheme = Remembering(words, clock, Allowance(20, clock))

    assert [_outcome(scheme, "bad", "192.0.2.7") for _ in range(7)] == ["InvalidToken"] * 5 + ["Throttled"] * 2
    assert _outcome(scheme, "new", "192.0.2.7") == "Throttled"
    assert _outcome(scheme, "new", "192.0.2.8") == "oidc:joe"
    assert [_outcome(scheme, "bad", f"192.0.2.{number}") for number in range(8, 25)] == (
        ["InvalidToken"] * 15 + ["Throttled"] * 2
    )
    clock.advance(0.2)
    assert [_outcome(scheme, "bad", "192.0.2.7") for _ in range(2)] == ["InvalidToken", "Throttled"]


def test_as_many_clients_as_come_take_no_more_memory(clock: ManualClock) -> None:
    allowance = Allowance(1_000_000, clock)

    for number in range(5000):
        allowance.use(f"192.0.{number >> 8}.{number & 255}")

    assert len(allowance._clients) == 1000


def _outcome(scheme: Remembering, credential: str, client: str = "") -> str:
    try:
        return scheme.identify(credential, client).principal
    except (Unauthenticated, Throttled) as error:
        return error.code


# What is known before anything is checked.


def test_an_application_is_known_beside_credentials_that_are_bad_or_not_checked_yet(clock: ManualClock) -> None:
    words = Words({"good": lasting(clock, 10)})
    counted: list[tuple[str, str]] = []
    bearer = Remembering(words, clock, Allowance(10, clock))
    identifier = Identifier([application_keys(a=KEY), bearer], lambda kind, result: counted.append((kind, result)))

    for header in (f"Application {KEY}", f"Bearer good; Application {KEY}", f"Application {KEY}; Bearer bad"):
        assert identifier.recall(header).principals == {"app:a"}
    for header in ("", "Basic x", "Application bad", "Bearer good", f"Application {KEY};{'x' * 9000}"):
        assert identifier.recall(header) is ANONYMOUS
    assert (words.asked, counted) == ([], [])


def test_a_token_is_known_from_when_it_was_verified_until_it_ends(clock: ManualClock) -> None:
    words = Words({"good": lasting(clock, 10, "app:a")})
    identifier = Identifier([Remembering(words, clock, Allowance(10, clock))])

    assert identifier.recall("Bearer good") is ANONYMOUS
    identifier.identify("Bearer good")
    assert identifier.recall("Bearer good").principals == {"app:a"}
    clock.advance(11)
    assert identifier.recall("Bearer good") is ANONYMOUS


def test_no_bad_credential_is_remembered(clock: ManualClock) -> None:
    """Or strangers could have those of others forgotten."""
    scheme = Remembering(Words({"good": lasting(clock, 10)}), clock, Allowance(10_000, clock))
    scheme.identify("good")

    for number in range(2000):
        assert scheme.recall(f"bad{number}") is None
        assert _outcome(scheme, f"bad{number}") == "InvalidToken"

    assert len(scheme._known) == 1


def test_of_one_header_a_few_credentials_are_looked_up_before_its_turn() -> None:
    found: list[bytes] = []
    identifier = Identifier([ApplicationKeys(found.append)])

    assert identifier.recall("Application x;" * 500) is ANONYMOUS
    assert len(found) == identity_module.MOST_RECALLED


# Principals.


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("app:with-dash.and_more", "app:with-dash.and_more"),
        ("bid:Joe+tag@Sub.Example.CO.UK", "bid:Joe+tag@sub.example.co.uk"),
        ("oidc:Joe@Example.org", "oidc:Joe@example.org"),
        ("oidc:login:Joe@Example.org", "oidc:login:Joe@Example.org"),
        ("oidc:auth0|5f7c8ec7c33c6c004bbafe82", "oidc:auth0|5f7c8ec7c33c6c004bbafe82"),
    ],
)
def test_principals_are_kept_as_they_compare(text: str, kept: str) -> None:
    assert parse_principal(text) == kept
    assert parse_principal(kept) == kept


@pytest.mark.parametrize(
    "text",
    [
        "",
        "joe",
        "bid:",
        "bid:joe",
        "bid:joe@host",
        "bid:@example.org",
        "bid:joe@example.org\n",
        "bid:a,b@example.org",
        "app:",
        "operator:root",
        "operator:",
        "app:a b",
        "app:a\n",
        "root:x",
        "oidc:",
        "oidc:a,b",
        "oidc:a b",
        "oidc:é",
        "BID:joe@example.org",
        f"bid:{'j' * 65}@example.org",
        "bid:joe@-example.org",
        "bid:joe@example..org",
        f"oidc:{'x' * 250}",
    ],
)
def test_what_is_no_principal_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"principal|form"):
        parse_principal(text)


@given(st.text(max_size=300))
def test_an_address_is_one_line_with_one_at(text: str) -> None:
    try:
        address = parse_address(text)
    except ValueError:
        return
    assert address.count("@") == 1
    assert address.isprintable()
    assert address.isascii()
    assert parse_address(address) == address


def test_a_header_that_proves_nothing_takes_no_place_among_those_that_are_known() -> None:
    """Anybody can send another one each time, and keys would have to be looked up again for each request."""
    service = Service.open(load_settings(None, {"QUEUEY_STORAGE_BACKEND": "memory"}))
    try:
        key, call = run(service.keys.new("a")), Call("GET", "/v1/a", "", {})
        for number in range(2000):
            assert identify(service, f"Scheme{number} x", call) == ANONYMOUS
        assert identify(service, f"Application {key}", call).principals == {"app:a"}
        assert list(service.recent) == [f"Application {key}"]
    finally:
        service.close()
