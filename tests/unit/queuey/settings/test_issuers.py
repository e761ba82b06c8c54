"""Settings of issuers and tokens: what loads, and what is refused in which words."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from queuey.clock import ManualClock
from queuey.errors import ConfigurationError
from queuey.security import schemes
from queuey.security.schemes import Trust
from queuey.settings import describe, load_settings, sample_ini
from queuey.settings.issuers import ISSUER_SETTINGS, Issuer

Write = Callable[[str], str]
OIDC = """
[issuer:login]
issuer = https://login.example.org
audience = queuey
keys = https://login.example.org/keys
principal = oidc:email
domains = Example.ORG
"""
SIGN_IN = (
    OIDC
    + """client_id = queuey
authorization_endpoint = https://login.example.org/authorize
token_endpoint = https://login.example.org/token
[console]
url = https://queuey.example.com
"""
)
BROWSERID = """
[issuer:people]
kind = browserid
issuer = login.example.org
audience =
    https://queuey.example.com
    http://127.0.0.1:5000
keys = people.json
"""
KEY = "ab" * 32


def test_issuers_load_in_their_order(ini: Write) -> None:
    assert load_settings(ini(OIDC + BROWSERID)).issuers == (
        Issuer(
            "login",
            "oidc",
            "https://login.example.org",
            ("queuey",),
            "https://login.example.org/keys",
            ("RS256",),
            "oidc:email",
            ("example.org",),
            300,
        ),
        Issuer(
            "people",
            "browserid",
            "login.example.org",
            ("https://queuey.example.com", "http://127.0.0.1:5000"),
            "people.json",
            domains=("login.example.org",),
        ),
    )


def test_there_is_no_issuer_unless_one_stands_in_the_settings() -> None:
    assert load_settings().issuers == ()
    assert Trust(load_settings(), ManualClock()).schemes == []


@pytest.mark.parametrize(
    "keys",
    [
        "keys.json",
        "/etc/queuey/keys.json",
        "https://login.example.org:8443/a?b=c",
        "http://127.0.0.1:8080/keys",
        "http://127.8.9.1/keys",
        "http://[::1]:80/keys",
        "http://localhost/keys",
    ],
)
def test_keys_are_in_a_file_at_an_https_address_or_on_this_machine(ini: Write, keys: str) -> None:
    (issuer,) = load_settings(ini(OIDC.replace("https://login.example.org/keys", keys))).issuers

    assert issuer.keys == keys
    assert issuer.fetches == ("://" in keys)


@pytest.mark.parametrize(
    "keys",
    [
        "http://login.example.org/keys",
        "http://10.0.0.1/keys",
        "http://127.0.0.1.example.org/keys",
        "http://0.0.0.0/keys",
        "ftp://login.example.org/keys",
        "file:///etc/passwd",
        "https:///keys",
        "https://joe:secret@login.example.org/keys",
        "https://login.example.org/keys#x",
        "https://login.example.org:port/keys",
        "https://[::1/keys",
    ],
)
def test_keys_come_from_nowhere_else(ini: Write, keys: str) -> None:
    with pytest.raises(ConfigurationError, match=r"\[issuer:login\] keys: expected a file, an https address"):
        load_settings(ini(OIDC.replace("https://login.example.org/keys", keys)))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (OIDC.replace("issuer = https://login.example.org\n", ""), "[issuer:login] issuer: is missing"),
        (OIDC.replace("audience = queuey\n", ""), "[issuer:login] audience: is missing"),
        (OIDC.replace("keys = https://login.example.org/keys\n", ""), "[issuer:login] keys: is missing"),
        (OIDC.replace("domains = Example.ORG\n", ""), "[issuer:login] domains: is missing"),
        (OIDC.replace("oidc:email", "oidc:sub"), "domains: has no meaning for principal = oidc:sub"),
        (OIDC.replace("oidc:email", "email"), "principal = 'email': expected oidc:sub or oidc:email or bid:email"),
        (OIDC.replace("Example.ORG", "example.org/"), "domains: example.org/: expected a domain"),
        (OIDC.replace("Example.ORG", "*.example.org"), "domains: *.example.org: expected a domain"),
        (OIDC + "kind = saml\n", "kind = 'saml': expected oidc or browserid"),
        (OIDC + "algorithms = none\n", "algorithms = 'none': expected RS256"),
        (OIDC + "algorithms = HS256\n", "algorithms = 'HS256': expected RS256"),
        (OIDC + "algorithms =\n  RS256\n  HS256\n", "expected RS256"),
        (OIDC + "algorithms =\n", "algorithms: expected RS256"),
        (OIDC + "refresh_seconds = 59\n", "refresh_seconds = '59': expected 60 to 86400"),
        (OIDC + "key = x\n", "[issuer:login] key is unknown: expected one of kind, issuer"),
        (OIDC.replace("[issuer:login]", "[issuer:]"), "section [issuer:]: expected a name"),
        (OIDC.replace("[issuer:login]", "[issuer:a:b]"), "section [issuer:a:b]: expected a name"),
        (OIDC.replace("[issuer:login]", "[issuer:a@b]"), "section [issuer:a@b]: expected a name"),
        (OIDC.replace("[issuer:login]", "[issuers:login]"), "section [issuers:login] is unknown"),
        (
            OIDC.replace("issuer = https://login.example.org", "issuer = queuey"),
            "is the name in this server's own tokens",
        ),
        (OIDC + OIDC.replace("issuer:login", "issuer:again"), "is [issuer:login]'s as well"),
        (BROWSERID.replace("login.example.org", "https://login.example.org"), "issuer: expected a host name"),
        (BROWSERID.replace("login.example.org", "Login.example.org"), "issuer: expected a host name"),
        (BROWSERID.replace("http://127.0.0.1:5000", "127.0.0.1:5000"), "audience: 127.0.0.1:5000: expected scheme"),
        (BROWSERID.replace("http://127.0.0.1:5000", "https://a/b"), "audience: https://a/b: expected scheme"),
        (BROWSERID.replace("people.json", "https://login.example.org/keys"), "keys: expected a file"),
        (BROWSERID + "algorithms = RS256\n", "algorithms: has no meaning for kind = browserid"),
        (BROWSERID + "principal = bid:email\n", "principal: has no meaning for kind = browserid"),
        (OIDC + "client_secret = x\n", "[issuer:login] client_secret: has no meaning without client_id"),
        (OIDC + "token_endpoint = https://x\n", "token_endpoint: has no meaning without client_id"),
        (SIGN_IN.replace("client_id = queuey", "client_id = web"), "client_id: is no audience: expected one of them"),
        (
            SIGN_IN.replace("authorization_endpoint", "#"),
            "authorization_endpoint: is missing: expected an https address",
        ),
        (
            SIGN_IN.replace("https://login.example.org/token", "http://login.example.org/token"),
            "token_endpoint: expected an https address, or an http address of this machine",
        ),
        (SIGN_IN.replace("url = https://queuey.example.com", ""), "[issuer:login] client_id needs [console] url"),
        (
            SIGN_IN.replace("example.com", "example.com/"),
            "[console] url = 'https://queuey.example.com/': expected scheme",
        ),
        (SIGN_IN.replace("https://queuey.example.com", "*"), "[console] url = '*': expected scheme and host"),
        (BROWSERID + "client_id = x\n", "client_id: has no meaning for kind = browserid"),
        ("[tokens]\nkeys = short\n", "[tokens] keys: key 1 of 1: expected at least 32 ASCII characters"),
        (
            f"[tokens]\nkeys =\n  {KEY}\n  {'é' * 40}\n",
            "[tokens] keys: key 2 of 2: expected at least 32 ASCII characters",
        ),
        ("[tokens]\nlife_seconds = 86401\n", "life_seconds = '86401': expected 60 to 86400"),
        ("[tokens]\naudience =\n", "audience = '': expected a text"),
    ],
)
def test_what_is_wrong_is_named(ini: Write, text: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_settings(ini(text))

    assert said in str(caught.value)


def test_token_keys_come_from_a_file_or_a_variable_in_their_order(ini: Write) -> None:
    keys = (KEY, "cd" * 32)
    lines = "\n  ".join(("", *keys))

    assert load_settings(ini(f"[tokens]\nkeys ={lines}\n")).tokens.keys == keys
    assert load_settings(None, {"QUEUEY_TOKENS_KEYS": " ".join(keys)}).tokens.keys == keys
    assert load_settings(ini("[tokens]\nkeys = ${SECRET}\n"), {"SECRET": KEY}).tokens.keys == (KEY,)


def test_token_keys_are_counted_and_never_shown(ini: Write) -> None:
    settings = load_settings(ini(f"[tokens]\nkeys = {KEY}\n{OIDC}"))

    shown = {(row.section, row.key): row.value for row in describe(settings)}

    assert shown["tokens", "keys"] == "(1 hidden)"
    assert shown["issuer:login", "issuer"] == "https://login.example.org"
    assert shown["issuer:login", "algorithms"] == "RS256"
    assert KEY not in repr(shown)


def test_a_client_s_secret_is_never_shown(ini: Write) -> None:
    settings = load_settings(ini(SIGN_IN.replace("client_id = queuey", "client_id = queuey\nclient_secret = 5ec4e7")))

    shown = {(row.section, row.key): row.value for row in describe(settings)}

    assert settings.issuers[0].client_secret == "5ec4e7"
    assert (shown["issuer:login", "client_id"], shown["issuer:login", "client_secret"]) == ("queuey", "(hidden)")
    assert "5ec4e7" not in repr((shown, settings))


def test_a_key_that_is_refused_is_not_repeated(ini: Write) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_settings(ini("[tokens]\nkeys = secret-but-short\n"))

    assert "secret-but" not in str(caught.value)


def test_the_sample_names_every_key_of_an_issuer() -> None:
    sample = sample_ini()

    assert "# [issuer:NAME]" in sample
    assert [one.key for one in ISSUER_SETTINGS if f"# {one.key} =" not in sample] == []


@pytest.mark.parametrize(("section", "extra"), [(OIDC, "oidc"), (BROWSERID, "browserid")])
def test_an_issuer_without_its_library_names_the_extra(
    ini: Write, monkeypatch: pytest.MonkeyPatch, section: str, extra: str
) -> None:
    monkeypatch.setattr(schemes, "find_spec", lambda name: None)

    with pytest.raises(ConfigurationError, match=rf"pip install '/path/to/queuey\[{extra}\]'"):
        Trust(load_settings(ini(section)), ManualClock())


def test_tokens_of_the_servers_own_need_no_extra(ini: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schemes, "find_spec", lambda name: None)

    trust = Trust(load_settings(ini(f"[tokens]\nkeys = {KEY}\n")), ManualClock())

    assert [scheme.name for scheme in trust.schemes] == ["Bearer"]
