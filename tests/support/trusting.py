"""Servers that trust two OpenID Connect providers, a BrowserID issuer and their own tokens; and their signers."""

from __future__ import annotations

import json
import os
import time
from base64 import urlsafe_b64decode
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.client import Server
from tests.support.key_site import Site
from tests.support.servers import RunningServer
from tests.support.signers import Certifier, Oidc, OwnTokens, browserid_key, jwk, rsa_key

LOGIN, LOGIN_AUDIENCE = "https://login.example.org", "queuey-web"
SUBJECTS, SUBJECTS_AUDIENCE = "https://subjects.example.org", "queuey-app"
PEOPLE, ORIGIN = "people.example.org", "https://queuey.example.com"
TOKEN_KEY, FORMER_KEY, TOKEN_AUDIENCE = "5ec4e7" * 8, "0ddba11" * 6, "queuey-tests"
MAKES_TOKENS = f"[tokens]\nkeys = {TOKEN_KEY}\n"
"""An ini file's words for a server that trusts nobody, and makes tokens."""

_SETTINGS = """
[limits]
bad_credentials_per_second = 1000000

[tokens]
keys = {token_key}
audience = {token_audience}

[issuer:login]
issuer = {login}
audience = {login_audience}
keys = {folder}/login.json
principal = oidc:email
domains = example.org

[issuer:subjects]
issuer = {subjects}
audience = {subjects_audience}
keys = {site}

[issuer:people]
kind = browserid
issuer = {people}
audience = {origin}
keys = {folder}/people.json
domains = example.org
"""
_WATCH = """
import os, sys
_log = open(os.environ["CONNECTIONS_LOG"], "a", buffering=1)
def _watch(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.sendto"):
        _log.write(event + " " + repr(arguments[1:2]) + "\\n")
sys.addaudithook(_watch)
"""
"""Loaded by every interpreter that is started with it in its path: each connection it begins leaves a line."""


def published() -> bytes:
    """The keys of the provider that publishes them."""
    return json.dumps({"keys": [jwk(rsa_key("subjects"), "only")]}).encode()


def settings(folder: Path, site: Site) -> str:
    """Write the files of keys, and the sections of an ini file that trust them."""
    keys = [jwk(rsa_key("oidc"), "first", alg="RS256", use="sig"), jwk(rsa_key("oidc second"), "second")]
    (folder / "login.json").write_text(json.dumps({"keys": keys}))
    (folder / "people.json").write_text(json.dumps({"public-key": browserid_key(rsa_key("certifier"))}))
    return _SETTINGS.format(
        folder=folder,
        site=site.url,
        login=LOGIN,
        login_audience=LOGIN_AUDIENCE,
        subjects=SUBJECTS,
        subjects_audience=SUBJECTS_AUDIENCE,
        people=PEOPLE,
        origin=ORIGIN,
        token_key=TOKEN_KEY,
        token_audience=TOKEN_AUDIENCE,
    )


@dataclass(frozen=True)
class TrustingServer(RunningServer):
    """A server whose process notes each connection that it begins."""

    watched: Path

    def connections(self) -> list[str]:
        return self.watched.read_text().splitlines()


@contextmanager
def watched(folder: Path, start: Callable[[], AbstractContextManager[RunningServer]]) -> Iterator[TrustingServer]:
    """Start a server that is watched."""
    log = folder / "connections.txt"
    log.touch()
    (folder / "sitecustomize.py").write_text(_WATCH)
    changed = {"PYTHONPATH": str(folder), "CONNECTIONS_LOG": str(log)}
    kept = {name: os.environ.get(name) for name in changed}
    os.environ.update(changed)
    try:
        started = start()
        with started as running:
            for name, value in kept.items():
                os.environ.pop(name) if value is None else os.environ.update({name: value})
            yield TrustingServer(running.name, running.url, running.pid, log)
    finally:
        for name, value in kept.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})


def login() -> Oidc:
    """The provider of addresses, now."""
    return Oidc(LOGIN, LOGIN_AUDIENCE, int(time.time()))


def subjects() -> Oidc:
    """The provider of subjects, now."""
    return Oidc(SUBJECTS, SUBJECTS_AUDIENCE, int(time.time()), rsa_key("subjects"), "only")


def people() -> Certifier:
    """The BrowserID issuer, now."""
    return Certifier(PEOPLE, ORIGIN, int(time.time() * 1000))


def own(kid: str) -> OwnTokens:
    """The holder of the server's secret, now.

    :param kid: its name, as a token of the server states it.
    """
    return OwnTokens(TOKEN_KEY, kid, TOKEN_AUDIENCE, int(time.time()))


def asking(running: RunningServer, credential: str | None, application: str = "queuey") -> Server:
    """A server as the sender of this Authorization header sees it."""
    server = Server(running, application, key=None)
    if credential is not None:
        server.session.headers["Authorization"] = credential
    return server


def token_key_name(server: Server) -> str:
    """The name of the key that signs tokens there, as one of them states it."""
    token = str(server.request("POST", "/tokens/queuey").json()["token"])
    header = token.partition(".")[0]
    return str(json.loads(urlsafe_b64decode(header + "=" * (-len(header) % 4)))["kid"])
