"""A small OpenID Connect provider: a page to sign in at, codes that count once, tokens, and its keys."""

from __future__ import annotations

import json
import secrets
import threading
import time
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from tests.support.signers import Oidc, b64, jwk, rsa_key

CLIENT, CLIENT_SECRET, OTHER_CLIENT = "queuey-console", "s3cret: of the client", "another-client"
JOE = "joe@example.org"

Fields = Mapping[str, str]


@dataclass
class Provider:
    """What it has, and what it does wrong."""

    url: str = ""
    redirect: str = ""
    """Where browsers may be sent back to."""
    claims: dict[str, Any] = field(default_factory=dict)
    """Changes of the claims of each token."""
    answer: bytes | None = None
    """In place of the answer with the token."""
    signer: str = "oidc"
    """The name of the key that signs."""
    codes: dict[str, Fields] = field(default_factory=dict)
    """Codes that were given out and not yet exchanged, and what each was asked for with."""
    gates: dict[str, threading.Event] = field(default_factory=dict)
    """Codes whose exchange waits."""
    waiting: list[str] = field(default_factory=list)
    """Those that wait, or waited."""
    exchanges: list[tuple[int, Fields]] = field(default_factory=list)
    """The requests for tokens: the status of the answer, and the fields."""

    def page(self, asked: Fields) -> tuple[int, str]:
        """The page where somebody signs in."""
        wrong = [
            name
            for name, wanted in (
                ("response_type", "code"),
                ("client_id", CLIENT),
                ("redirect_uri", self.redirect),
                ("code_challenge_method", "S256"),
            )
            if asked.get(name) != wanted
        ]
        if wrong or not all(asked.get(name) for name in ("state", "nonce", "code_challenge")):
            return 400, f"wrong: {wrong}"
        link = escape(f"{self.url}/allow?{urlencode(asked)}")
        return 200, f'<!doctype html><title>Provider</title><a href="{link}">Sign in as {JOE}</a>'

    def allow(self, asked: Fields) -> str:
        """Somebody signed in: the address that the browser goes back to."""
        code = secrets.token_urlsafe(16)
        self.codes[code] = dict(asked)
        return f"{asked['redirect_uri']}?{urlencode({'code': code, 'state': asked['state'], 'iss': self.url})}"

    def exchange(self, fields: Fields, authorization: str) -> tuple[int, bytes]:
        """A token for a code."""
        gate = self.gates.get(fields.get("code", ""))
        if gate is not None:
            self.waiting.append(fields["code"])
            gate.wait()
        expected = urlencode({CLIENT: CLIENT_SECRET}, safe="").replace("=", ":").replace("+", "%20")
        asked = self.codes.pop(fields.get("code", ""), None)
        verifier = b64(sha256(fields.get("code_verifier", "").encode()).digest())
        if authorization != f"Basic {b64encode(expected.encode()).decode()}":
            found = 401, b'{"error": "invalid_client"}'
        elif (
            asked is None
            or fields.get("grant_type") != "authorization_code"
            or fields.get("redirect_uri") != asked["redirect_uri"]
            or verifier != asked["code_challenge"]
        ):
            found = 400, b'{"error": "invalid_grant"}'
        else:
            found = 200, self.answer or self._tokens(asked["nonce"])
        self.exchanges.append((found[0], fields))
        return found

    def token(self, **changes: Any) -> str:
        """An ID token of Joe's."""
        return Oidc(self.url, CLIENT, int(time.time()), key=rsa_key(self.signer)).token(**changes)

    def _tokens(self, nonce: str) -> bytes:
        token = self.token(**{"nonce": nonce, **self.claims})
        return json.dumps({"access_token": "x", "token_type": "Bearer", "id_token": token}).encode()

    def settings(self, name: str = "staff") -> str:
        """A section of an ini file that lets people sign in here."""
        return f"""
[issuer:{name}]
issuer = {self.url}
audience =
    {CLIENT}
    {OTHER_CLIENT}
keys = {self.url}/keys
principal = oidc:email
domains = example.org
client_id = {CLIENT}
client_secret = {CLIENT_SECRET}
authorization_endpoint = {self.url}/authorize
token_endpoint = {self.url}/token
"""


@contextmanager
def provider() -> Iterator[Provider]:
    """A provider on this machine; it ends with the block."""
    made = Provider()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            asked = dict(parse_qsl(parts.query))
            if parts.path == "/keys":
                keys = {"keys": [jwk(rsa_key("oidc"), "first", alg="RS256", use="sig")]}
                self._give(200, json.dumps(keys).encode(), ("Content-Type", "application/json"))
            elif parts.path == "/allow":
                self._give(302, b"", ("Location", made.allow(asked)))
            else:
                status, page = made.page(asked)
                self._give(status, page.encode(), ("Content-Type", "text/html"))

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            status, answer = made.exchange(dict(parse_qsl(body)), self.headers.get("Authorization", ""))
            self._give(status, answer, ("Content-Type", "application/json"))

        def _give(self, status: int, body: bytes, *headers: tuple[str, str]) -> None:
            self.send_response(status)
            for name, value in (*headers, ("Content-Length", str(len(body)))):
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nobody wants to know."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield made
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
