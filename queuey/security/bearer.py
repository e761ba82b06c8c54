"""JSON Web Tokens of issuers: ``Authorization: Bearer <token>``.

The token names its issuer; everything else that decides (keys, algorithms, audience, what is
believed) comes from that issuer's settings and never from the token. PyJWT reads the form and checks
the signature; what the claims must be is said here, for it is stricter than the library.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from queuey.clock import Clock
from queuey.errors import InvalidToken, Unauthenticated
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
from queuey.security.key_files import KeySource
from queuey.security.permissions import Grant
from queuey.security.principals import parse_address, parse_principal
from queuey.settings.issuers import Issuer

if TYPE_CHECKING:
    from jwt import PyJWS

MIN_RSA_BITS = 2048
MAX_KEYS = 64
"""Of one issuer."""
_STEERING = ("jku", "x5u", "jwk", "x5c", "crit", "b64", "zip")
"""Header members that would have a verifier take keys or rules from the token."""
_KINDS = frozenset({None, "jwt", "at+jwt", "application/at+jwt"})
"""The ``typ``, in lower case, of tokens that prove an identity; all others are for other purposes."""


class Header(NamedTuple):
    """The members of a token's header that count."""

    kid: str | None
    kind: str | None


class TokenIssuer(Protocol):
    """An issuer whose tokens the server checks."""

    @property
    def stated(self) -> str:
        """Its name in tokens, their ``iss``."""

    def verify(self, token: str, header: Header) -> Grant:
        """:raises Unproven: the token proves nothing."""


class Bearer:
    """The ``Bearer`` scheme."""

    name = "Bearer"
    refusal: type[Unauthenticated] = InvalidToken

    def __init__(self, issuers: Sequence[TokenIssuer]) -> None:
        from jwt import PyJWS

        self._issuers = {issuer.stated: issuer for issuer in issuers}
        self._reader = PyJWS()

    def identify(self, credential: str) -> Grant:
        """:raises InvalidToken: whatever is wrong with it; the library raises much, and all of it means this."""
        try:
            if len(credential) > MAX_CREDENTIAL:
                raise Unproven(f"It is longer than {MAX_CREDENTIAL} characters.")
            header, stated = self._look(credential)
            issuer = self._issuers.get(stated)
            if issuer is None:
                raise Unproven("Its issuer is not one that this server trusts.")
            return issuer.verify(credential, header)
        except Unproven as error:
            raise InvalidToken(f"The token proves nothing here. {error}") from error
        except Exception as error:
            raise InvalidToken(
                "The token proves nothing here. It cannot be read, or its issuer did not sign it."
            ) from error

    def _look(self, credential: str) -> tuple[Header, str]:
        """What a token says of itself, before the server believes any of it."""
        parts = self._reader.decode_complete(credential, options={"verify_signature": False})
        header = parts["header"]
        for name in _STEERING:
            if name in header:
                raise Unproven(f"Its header has {name}, which is not taken from a token.")
        kid, kind = header.get("kid"), header.get("typ")
        if not all(value is None or isinstance(value, str) for value in (kid, kind)):
            raise Unproven("Its header has members of a wrong type.")
        return Header(kid, kind), text_of(load_claims(parts["payload"]), "iss")


class VerifyingKey(NamedTuple):
    """A public key, and the algorithms it is for."""

    key: Any
    algorithms: tuple[str, ...]


KeySet = Mapping[str | None, VerifyingKey]
"""By ``kid``."""
_KEY_TYPES: Mapping[str, tuple[str, str | None]] = {
    **{f"{family}{bits}": ("RSA", None) for family in ("RS", "PS") for bits in (256, 384, 512)},
    "ES256": ("EC", "P-256"),
    "ES384": ("EC", "P-384"),
    "ES512": ("EC", "P-521"),
    "EdDSA": ("OKP", "Ed25519"),
}
"""What ``kty`` and ``crv`` have to be for an algorithm. No secret is ever a key of an issuer."""
_PRIVATE = frozenset({"d", "p", "q", "dp", "dq", "qi", "oth", "k"})


def parse_key_set(content: bytes, algorithms: Sequence[str]) -> KeySet:
    """The keys of a JWK Set that verify one of these algorithms.

    The others are for other purposes.

    :raises ValueError: no JWK Set; a key that is too weak; two of one name; or none that fits.
    """
    document = json.loads(content)
    keys = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(keys, list) or len(keys) > MAX_KEYS:
        raise ValueError(f"expected a JWK Set of up to {MAX_KEYS} keys")
    found: dict[str | None, VerifyingKey] = {}
    for entry in keys:
        fitting = _fitting(entry, algorithms) if isinstance(entry, dict) else ()
        if not fitting:
            continue
        kid = entry.get("kid")
        if kid in found or not (kid is None or isinstance(kid, str)):
            raise ValueError("expected keys with names (kid) of their own")
        found[kid] = VerifyingKey(_public_key(entry, fitting[0]), fitting)
    if not found:
        raise ValueError(f"expected a key for {' or '.join(algorithms)}")
    return found


def _fitting(entry: Mapping[str, Any], algorithms: Sequence[str]) -> tuple[str, ...]:
    """The algorithms that a key may verify."""
    operations = entry.get("key_ops", ["verify"])
    if entry.get("use", "sig") != "sig" or not isinstance(operations, list) or "verify" not in operations:
        return ()
    form = (entry.get("kty"), entry.get("crv"))
    return tuple(name for name in algorithms if _KEY_TYPES[name] == form and entry.get("alg", name) == name)


def _public_key(entry: Mapping[str, Any], algorithm: str) -> Any:
    from jwt import PyJWK

    key = PyJWK({name: value for name, value in entry.items() if name not in _PRIVATE}, algorithm).key
    if entry["kty"] == "RSA" and key.key_size < MIN_RSA_BITS:
        raise ValueError(f"an RSA key has {key.key_size} bits: expected at least {MIN_RSA_BITS}")
    return key


class OidcIssuer:
    """An OpenID Connect provider."""

    def __init__(self, settings: Issuer, keys: KeySource[KeySet], clock: Clock) -> None:
        from jwt import PyJWS

        self.stated = settings.issuer
        self._settings = settings
        self._keys = keys
        self._clock = clock
        self._reader: PyJWS = PyJWS(list(settings.algorithms))

    def verify(self, token: str, header: Header) -> Grant:
        """:raises Unproven: the token proves nothing."""
        if (header.kind and header.kind.lower()) not in _KINDS:
            raise Unproven("It is a token for another purpose.")
        key = self._key(header.kid)
        payload = self._reader.decode_complete(token, key.key, algorithms=list(key.algorithms))["payload"]
        claims = load_claims(payload)
        if text_of(claims, "iss") != self.stated:
            raise Unproven("Its issuer is not one that this server trusts.")
        check_audience(claims.get("aud"), self._settings.audience, several=True)
        ends = check_life(claims, unix_now(self._clock), most_seconds=DAY_SECONDS)
        if "cnf" in claims:
            raise Unproven("It counts only together with another proof.")
        return Grant(self._principal(claims), ticks_of(ends))

    def _key(self, kid: str | None) -> VerifyingKey:
        keys = self._keys.keys()
        if not keys:
            raise Unproven("The keys of its issuer are not known now.")
        if kid is None and len(keys) == 1:
            return next(iter(keys.values()))
        key = keys.get(kid)
        if key is None:
            raise Unproven("It is signed with a key that its issuer does not name.")
        return key

    def _principal(self, claims: Claims) -> str:
        subject = text_of(claims, "sub")
        kind, _, what = self._settings.principal.partition(":")
        if what == "sub":
            return _named(f"oidc:{self._settings.name}:{subject}")
        if claims.get("email_verified") is not True:
            raise Unproven("Its address is not verified.")
        try:
            address = parse_address(text_of(claims, "email"))
        except ValueError:
            raise Unproven("Its address is no e-mail address.") from None
        if not self._settings.vouches_for(address.rpartition("@")[2]):
            raise Unproven("Its issuer may not vouch for addresses of that domain.")
        return _named(f"{kind}:{address}")


def _named(principal: str) -> str:
    try:
        return parse_principal(principal)
    except ValueError:
        raise Unproven("Its subject has characters, or a length, that no principal has.") from None
