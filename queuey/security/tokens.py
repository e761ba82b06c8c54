"""Tokens of this server's own: short-lived, for one application's paths.

A token may be for some queues and verbs only.

They are JSON Web Tokens signed with a secret of the settings (HS256), so that any server with these
settings verifies them without asking another. The first key signs, all verify: a new key put in front
changes over without a break, a key taken out revokes everything signed with it.

A token that was got with an application key carries a mark of that key, and counts as long as the key is in
force: a thief of the key must not keep what it bought. The mark is keyed with the signing secret, so that a token
does not help to guess the key.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from queuey.clock import Clock
from queuey.errors import InvalidParameter
from queuey.security.bearer import Header
from queuey.security.claims import (
    DAY_SECONDS,
    MAX_CREDENTIAL,
    Claims,
    Unproven,
    check_audience,
    check_life,
    load_claims,
    text_of,
    ticks_of,
    unix_now,
)
from queuey.security.permissions import VERBS, Grant
from queuey.security.principals import parse_principal
from queuey.settings.issuers import OWN_ISSUER

KIND = "queuey+jwt"
"""``typ``: so that nothing else that is signed with the same secret passes for a token."""
_ALGORITHM = "HS256"
_MOST_CHARACTERS = MAX_CREDENTIAL - len("Bearer ")


def new_token_key() -> str:
    """A key nobody can guess."""
    return secrets.token_hex(32)


@dataclass(frozen=True, slots=True)
class Minted:
    """A token, and what it says."""

    text: str
    grant: Grant
    life_seconds: int


class Tokens:
    """Mints and verifies."""

    stated = OWN_ISSUER

    def __init__(
        self,
        keys: Sequence[str],
        audience: str,
        life_seconds: int,
        clock: Clock,
        in_force: Callable[[str], Iterable[bytes]] | None = None,
    ) -> None:
        """:param keys: the first signs.
        :param life_seconds: the longest life of what is minted.
        :param in_force: the SHA-256 of an application's keys that are in force; None if they are not known here,
            then no token is held against them.
        """
        from jwt import PyJWS

        self._keys = {_name_of(key): key.encode() for key in keys}
        self._audience = audience
        self.life_seconds = life_seconds
        self._clock = clock
        self._in_force = in_force
        self._jws = PyJWS([_ALGORITHM])

    def mint(
        self,
        principal: str,
        application: str,
        *,
        queues: Iterable[str] | None = None,
        verbs: Iterable[str] | None = None,
        life_seconds: int | None = None,
        by: tuple[str, bytes] | None = None,
    ) -> Minted:
        """A token that proves ``principal`` on the paths of ``application``.

        :param queues: names of the queues it is for; None for all.
        :param verbs: of :data:`~queuey.security.permissions.VERBS`; None for all.
        :param by: the application key with which it ends: its application, and its SHA-256.
        :raises InvalidParameter: the names of the queues make it longer than any server takes.
        """
        import json

        life = min(life_seconds or self.life_seconds, self.life_seconds)
        now = int(unix_now(self._clock))
        claims: dict[str, Any] = {
            "iss": OWN_ISSUER,
            "aud": self._audience,
            "sub": principal,
            "iat": now,
            "exp": now + life,
            "app": application,
        }
        if queues is not None:
            claims["queues"] = sorted(set(queues))
        if verbs is not None:
            claims["verbs"] = [verb for verb in VERBS if verb in set(verbs)]
        kid, key = next(iter(self._keys.items()))
        if by is not None:
            claims["key"] = _mark(key, *by)
        payload = json.dumps(claims, separators=(",", ":")).encode()
        text = self._jws.encode(payload, key, _ALGORITHM, {"typ": KIND, "kid": kid})
        if len(text) > _MOST_CHARACTERS:
            said = f"their names make a token of {len(text)} characters: at most {_MOST_CHARACTERS} fit into a header"
            raise InvalidParameter(problems={"queues": said})
        return Minted(text, _grant(claims, now + life), life)

    def verify(self, token: str, header: Header) -> Grant:
        """:raises Unproven: the token proves nothing."""
        if header.kind != KIND:
            raise Unproven("It is a token for another purpose.")
        key = self._keys.get(header.kid or "")
        if key is None:
            raise Unproven("It is signed with a key that is not in force any more.")
        claims = load_claims(self._jws.decode_complete(token, key, algorithms=[_ALGORITHM])["payload"])
        if claims.get("iss") != OWN_ISSUER:
            raise Unproven("Its issuer is not one that this server trusts.")
        check_audience(claims.get("aud"), (self._audience,), several=False)
        grant = _grant(claims, check_life(claims, unix_now(self._clock), most_seconds=DAY_SECONDS))
        if "key" in claims and self._in_force is not None:
            self._check_mark(text_of(claims, "key"), key, grant)
        return grant

    def _check_mark(self, mark: str, key: bytes, grant: Grant) -> None:
        kind, _, name = grant.principal.partition(":")
        application = name if kind == "app" else grant.application or ""
        digests = self._in_force(application) if self._in_force else ()
        if not any(hmac.compare_digest(mark, _mark(key, application, digest)) for digest in digests):
            raise Unproven("The application key that it was got with is not in force any more.")


def _name_of(key: str) -> str:
    """A name that tells keys apart and gives nothing of them away."""
    return sha256(b"queuey token key " + key.encode()).hexdigest()[:12]


def _mark(key: bytes, application: str, digest: bytes) -> str:
    """A token's mark of the key that it came from.

    Only a holder of the signing secret can make or compare it.
    """
    return hmac.digest(key, f"application key {application} ".encode() + digest, "sha256")[:16].hex()


def _grant(claims: Claims, ends: float) -> Grant:
    queues, verbs = _texts(claims, "queues"), _texts(claims, "verbs")
    return Grant(
        parse_principal(text_of(claims, "sub")),
        ticks_of(ends),
        text_of(claims, "app"),
        queues,
        frozenset(VERBS) if verbs is None else verbs & frozenset(VERBS),
    )


def _texts(claims: Claims, name: str) -> frozenset[str] | None:
    """A claim that is a list of texts; None if it is absent."""
    if name not in claims:
        return None
    value = claims[name]
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise Unproven(f"Its claim {name} is no list of texts.")
    return frozenset(value)
