"""The issuers whose credentials the server accepts.

They are the ``[issuer:NAME]`` sections of the ini file.

Nothing is trusted that does not stand there: no default issuer, no key that a credential brings
along, no address that it names (G20).
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

from queuey.errors import ConfigurationError
from queuey.settings.ini import Entry
from queuey.settings.setting import Setting, rows_of, setting

__all__ = ["ANY_DOMAIN", "ISSUER_SETTINGS", "OWN_ISSUER", "Issuer", "is_issuer", "read_issuers", "sample_issuer"]

OWN_ISSUER = "queuey"
"""Stands as ``iss`` in this server's own tokens."""
ANY_DOMAIN = "*"

_SECTION = re.compile(r"issuer:(.*)", re.DOTALL)
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,50}")
_HOST = re.compile(r"[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?")
_ORIGIN = re.compile(r"https?://[^/?#\s]+")
_FOR_SIGN_IN = ("client_id", "client_secret", "authorization_endpoint", "token_endpoint")
_ONLY_OIDC = ("algorithms", "principal", *_FOR_SIGN_IN)


@dataclass(frozen=True, slots=True)
class Issuer:
    """One issuer: its name here, and what its section says."""

    name: str
    # fmt: off
    kind: str = setting("oidc", "What it issues: OpenID Connect tokens, or BrowserID certificates.", words=("oidc", "browserid"))
    issuer: str = setting("", "Its name as credentials state it, compared as text: an address for oidc, a host name for browserid. Required.")
    audience: tuple[str, ...] = setting((), "What credentials for this server state as their audience, compared as text; for browserid with scheme. Required.")
    keys: str = setting("", "Its public keys: a file, or for oidc an https address to fetch a JWK Set from in the background. Required.")
    algorithms: tuple[str, ...] = setting(("RS256",), "oidc: the signatures it makes; what a token says of its own is never asked.", words=("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"))
    principal: str = setting("oidc:sub", "oidc: what a token proves: oidc:NAME:subject, oidc:address, or bid:address. Addresses count only if verified.", words=("oidc:sub", "oidc:email", "bid:email"))
    domains: tuple[str, ...] = setting((), "Domains whose addresses it may vouch for, * for any; browserid: its own host if empty. Required for addresses of oidc.")
    refresh_seconds: int = setting(300, "How often its keys are read anew.", low=60, high=86_400)
    client_id: str = setting("", "oidc: as which client people sign in to the console at this issuer; empty: they cannot. It is one of the audiences.")
    client_secret: str = setting("", "oidc: the client's secret, if the issuer gave one.", secret=True)
    authorization_endpoint: str = setting("", "oidc: where browsers go to sign in. Required with client_id.")
    token_endpoint: str = setting("", "oidc: where the server exchanges the code of a sign-in for a token. Required with client_id.")
    # fmt: on

    @property
    def fetches(self) -> bool:
        """Whether its keys come over the network."""
        return "://" in self.keys

    def vouches_for(self, domain: str) -> bool:
        """Whether it may speak for the addresses of a domain, given in lower case."""
        return domain in self.domains or ANY_DOMAIN in self.domains

    def shown(self) -> Iterator[tuple[str, str]]:
        """Keys and values for people."""
        for row in ISSUER_SETTINGS:
            if self.kind == "oidc" or row.key not in _ONLY_OIDC:
                yield row.key, row.shown(getattr(self, row.key))


ISSUER_SETTINGS: tuple[Setting, ...] = rows_of("issuer", Issuer)
"""The keys of an ``[issuer:NAME]`` section, in the order of the docs."""
_BY_KEY = {row.key: row for row in ISSUER_SETTINGS}


def is_issuer(section: str) -> bool:
    """Whether a section of an ini file is an issuer's."""
    return _SECTION.fullmatch(section) is not None


def read_issuers(sections: Mapping[str, Mapping[str, Entry]], environ: Mapping[str, str]) -> tuple[Issuer, ...]:
    """The issuers of an ini file.

    :raises ConfigurationError: names the file, the section, the key, and what was expected.
    """
    found: dict[tuple[str, str], Issuer] = {}
    for section, entries in sections.items():
        if is_issuer(section):
            issuer = _read(section, entries, environ)
            other = found.setdefault((issuer.kind, issuer.issuer), issuer)
            if other is not issuer:
                raise ConfigurationError(f"[{section}] issuer = {issuer.issuer} is [issuer:{other.name}]'s as well")
    return tuple(found.values())


def _read(section: str, entries: Mapping[str, Entry], environ: Mapping[str, str]) -> Issuer:
    name = section.partition(":")[2]
    if not _NAME.fullmatch(name):
        raise ConfigurationError(f"section [{section}]: expected a name of 1 to 50 letters, digits, '_', '-' or '.'")
    values: dict[str, Any] = {}
    for key, entry in entries.items():
        row = _BY_KEY.get(key)
        if row is None:
            raise ConfigurationError(
                f"{entry.path}: [{section}] {key} is unknown: expected one of {', '.join(_BY_KEY)}"
            )
        lines = row.kind is tuple
        text = "\n".join(entry.lines(environ)) if lines else entry.text(environ, f"[{section}] {key}")
        values[key] = row.parse(text, str(entry.path))
    return _checked(Issuer(name, **values), frozenset(entries))


def _checked(issuer: Issuer, given: frozenset[str]) -> Issuer:
    for key in ("issuer", "audience", "keys"):
        if not getattr(issuer, key):
            raise _wrong(issuer, key, "is missing: expected " + _BY_KEY[key].help[0].lower() + _BY_KEY[key].help[1:])
    return _checked_browserid(issuer, given) if issuer.kind == "browserid" else _checked_oidc(issuer)


def _checked_browserid(issuer: Issuer, given: frozenset[str]) -> Issuer:
    for key in _ONLY_OIDC:
        if key in given:
            raise _wrong(issuer, key, "has no meaning for kind = browserid")
    if not _HOST.fullmatch(issuer.issuer):
        raise _wrong(issuer, "issuer", "expected a host name in lower case, as certificates state it")
    for audience in issuer.audience:
        if not _ORIGIN.fullmatch(audience):
            raise _wrong(
                issuer, "audience", f"{audience}: expected scheme and host, such as https://queuey.example.com"
            )
    if issuer.fetches:
        raise _wrong(issuer, "keys", "expected a file: keys of BrowserID issuers are not fetched")
    return _with_domains(issuer, issuer.domains or (issuer.issuer,))


def _checked_oidc(issuer: Issuer) -> Issuer:
    if issuer.issuer == OWN_ISSUER:
        raise _wrong(issuer, "issuer", f"{OWN_ISSUER} is the name in this server's own tokens")
    if not issuer.algorithms:
        raise _wrong(issuer, "algorithms", f"expected {_BY_KEY['algorithms'].accepted}")
    if issuer.fetches:
        _check_address(issuer, "keys", "a file, an https address")
    _check_sign_in(issuer)
    if issuer.principal.endswith(":email") and not issuer.domains:
        raise _wrong(issuer, "domains", "is missing: expected the domains it may vouch for, or * for any address")
    if not issuer.principal.endswith(":email") and issuer.domains:
        raise _wrong(issuer, "domains", f"has no meaning for principal = {issuer.principal}")
    return _with_domains(issuer, issuer.domains)


def _with_domains(issuer: Issuer, domains: tuple[str, ...]) -> Issuer:
    lower = tuple(domain.lower() for domain in domains)
    for domain in lower:
        if domain != ANY_DOMAIN and not _HOST.fullmatch(domain):
            raise _wrong(issuer, "domains", f"{domain}: expected a domain such as example.com, or *")
    return replace(issuer, domains=lower)


def _check_sign_in(issuer: Issuer) -> None:
    """Accept all that a sign-in at the issuer's own page needs, or nothing of it."""
    if not issuer.client_id:
        for key in _FOR_SIGN_IN:
            if getattr(issuer, key):
                raise _wrong(issuer, key, "has no meaning without client_id")
        return
    if issuer.client_id not in issuer.audience:
        raise _wrong(issuer, "client_id", "is no audience: expected one of them, for the issuer's tokens name it")
    for key in ("authorization_endpoint", "token_endpoint"):
        if not getattr(issuer, key):
            raise _wrong(issuer, key, "is missing: expected an https address, as the issuer's documentation says")
        _check_address(issuer, key, "an https address")


def _check_address(issuer: Issuer, key: str, expected: str) -> None:
    """Accept an https address, or plain http to this machine itself.

    It has a host, and nothing that could name another place.
    """
    try:
        parts = urlsplit(getattr(issuer, key))
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        host, parts = "", urlsplit("")
    plain = parts.scheme == "http" and is_this_machine(host)
    if not host or "@" in parts.netloc or parts.fragment or not (parts.scheme == "https" or plain):
        raise _wrong(issuer, key, f"expected {expected}, or an http address of this machine")


def is_this_machine(host: str) -> bool:
    """Whether a host is this machine itself, where no other machine reaches it.

    >>> is_this_machine("::1"), is_this_machine("localhost"), is_this_machine("0.0.0.0")
    (True, True, False)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _wrong(issuer: Issuer, key: str, what: str) -> ConfigurationError:
    return ConfigurationError(f"[issuer:{issuer.name}] {key}: {what}")


def sample_issuer() -> list[str]:
    """Lines of an ini file that name each key of an issuer."""
    lines = ["[issuer:NAME]", "An issuer of credentials; each has a section of its own."]
    for row in ISSUER_SETTINGS:
        lines += [row.help, row.accepted, f"{row.key} = {row.to_text(row.default)}".rstrip()]
    return lines
