"""Signing in at an issuer's own page: OpenID Connect's code flow, with PKCE, state and nonce.

A browser goes to the issuer, and comes back with a code that only this server, and only for this sign-in, can exchange
for an ID token. That token is then looked at like any other (:mod:`queuey.security.bearer`).
"""

from __future__ import annotations

import hmac
import json
import re
from base64 import b64encode
from hashlib import sha256
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode, urlsplit

from queuey.errors import InvalidToken
from queuey.security.base64url import encode
from queuey.security.claims import MAX_CREDENTIAL
from queuey.security.outgoing import OutgoingError, ask
from queuey.settings.issuers import Issuer

__all__ = ["CodeFlow", "SignInSecrets"]

MAX_ANSWER_BYTES = 64 << 10
EXCHANGE_SECONDS = 10.0
_ERROR = re.compile(r"[a-z_]{1,50}")
"""What RFC 6749 calls an error code. Nothing else of an answer is repeated."""
_TOKEN = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")
"""A signed JSON Web Token, and nothing that a header would read as a second credential."""


class SignInSecrets(NamedTuple):
    """What only this server knows of one sign-in, each in base64url."""

    state: str
    """Comes back with the browser."""
    nonce: str
    """Stands in the token."""
    verifier: str
    """Goes to the issuer with the code; the browser takes only its digest there."""


class CodeFlow:
    """The flow at one issuer."""

    def __init__(self, issuer: Issuer, redirect: str) -> None:
        """:param redirect: where browsers come back, as the issuer has it on its list."""
        self._issuer = issuer
        self._redirect = redirect

    def address(self, secrets: SignInSecrets) -> str:
        """The page of the issuer where somebody signs in."""
        issuer = self._issuer
        query = urlencode(
            {
                "response_type": "code",
                "client_id": issuer.client_id,
                "redirect_uri": self._redirect,
                "scope": "openid email" if issuer.principal.endswith(":email") else "openid",
                "state": secrets.state,
                "nonce": secrets.nonce,
                "code_challenge": encode(sha256(secrets.verifier.encode()).digest()),
                "code_challenge_method": "S256",
            }
        )
        return f"{issuer.authorization_endpoint}{'&' if urlsplit(issuer.authorization_endpoint).query else '?'}{query}"

    def exchange(self, code: str, secrets: SignInSecrets) -> str:
        """The ID token for a code. Asks the issuer, and waits for it for some seconds at most.

        :raises InvalidToken: the issuer refuses the code, cannot be reached, or answers with something else.
        """
        issuer = self._issuer
        fields = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self._redirect,
            "code_verifier": secrets.verifier,
        }
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        if issuer.client_secret:
            pair = f"{quote(issuer.client_id, safe='')}:{quote(issuer.client_secret, safe='')}"
            headers["Authorization"] = f"Basic {b64encode(pair.encode()).decode()}"
        else:
            fields["client_id"] = issuer.client_id
        try:
            answer = ask(
                issuer.token_endpoint,
                most_bytes=MAX_ANSWER_BYTES,
                seconds=EXCHANGE_SECONDS,
                form=urlencode(fields).encode(),
                headers=headers,
                expected=(200, 400, 401),
            )
        except OutgoingError as error:
            raise InvalidToken(f"The issuer {issuer.name} gives no token now: {error}") from error
        found = _object_in(answer.content)
        token = found.get("id_token")
        if answer.status == 200 and isinstance(token, str) and _TOKEN.fullmatch(token[: MAX_CREDENTIAL + 1]):
            return token
        said = found.get("error")
        reason = f": {said}" if isinstance(said, str) and _ERROR.fullmatch(said) else ""
        raise InvalidToken(f"The issuer {issuer.name} gave no token (status {answer.status}{reason}). Sign in again.")

    def check(self, token: str, secrets: SignInSecrets) -> None:
        """That a token, whose signature and life were found good, is the answer to this sign-in.

        :raises InvalidToken: it is of another issuer, for another client, or for another sign-in.
        """
        from jwt import PyJWS

        claims = _object_in(PyJWS().decode_complete(token, options={"verify_signature": False})["payload"])
        audience, nonce, issuer = claims.get("aud"), claims.get("nonce"), self._issuer
        listed = audience if isinstance(audience, list) else [audience]
        party = claims.get("azp", issuer.client_id if len(listed) == 1 else None)
        if claims.get("iss") != issuer.issuer or issuer.client_id not in listed or party != issuer.client_id:
            raise InvalidToken(f"The issuer {issuer.name} gave a token that is for somebody else. Sign in again.")
        if not isinstance(nonce, str) or not hmac.compare_digest(nonce.encode(), secrets.nonce.encode()):
            raise InvalidToken(f"The issuer {issuer.name} gave the token of another sign-in. Sign in again.")


def _object_in(content: bytes) -> dict[str, Any]:
    """A JSON object; an empty one for anything else."""
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
