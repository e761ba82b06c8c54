"""Credentials made by hand, right and wrong: what an attacker can write, down to the last byte."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from cryptography.hazmat.primitives.asymmetric import dsa, ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256

Claims = Mapping[str, Any]
Key = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | dsa.DSAPrivateKey | bytes | None
LEFT_OUT = object()
"""In place of a claim: there is none of this name."""


@cache
def rsa_key(name: str, bits: int = 2048) -> rsa.RSAPrivateKey:
    """One key of each name for the whole run: drawing one takes a tenth of a second."""
    return rsa.generate_private_key(65537, bits)


@cache
def ec_key(name: str) -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


@cache
def dsa_key(name: str, bits: int = 2048) -> dsa.DSAPrivateKey:
    return dsa.generate_private_key(bits)


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def b64_json(value: Any) -> str:
    return b64(value if isinstance(value, bytes) else json.dumps(value).encode())


def number(value: int) -> str:
    return b64(value.to_bytes((value.bit_length() + 7) // 8, "big"))


def signature(signed: bytes, key: Key) -> bytes:
    """As the kind of key signs, with SHA-256; a secret makes a MAC, None nothing."""
    if key is None:
        return b""
    if isinstance(key, bytes):
        return hmac.new(key, signed, hashlib.sha256).digest()
    if isinstance(key, rsa.RSAPrivateKey):
        return key.sign(signed, padding.PKCS1v15(), SHA256())
    if isinstance(key, dsa.DSAPrivateKey):
        encoded, size = key.sign(signed, SHA256()), 32
    else:
        encoded, size = key.sign(signed, ec.ECDSA(SHA256())), 32
    return b"".join(part.to_bytes(size, "big") for part in decode_dss_signature(encoded))


def jws(header: Any, claims: Any, key: Key) -> str:
    """Signed claims; header and claims may be bytes that are no JSON."""
    signed = f"{b64_json(header)}.{b64_json(claims)}"
    return f"{signed}.{b64(signature(signed.encode(), key))}"


def changed(claims: Claims, changes: Claims) -> dict[str, Any]:
    return {name: value for name, value in {**claims, **changes}.items() if value is not LEFT_OUT}


def jwk(key: Key, kid: str | None, **more: Any) -> dict[str, Any]:
    """A public key as a member of a JWK Set."""
    named = {} if kid is None else {"kid": kid}
    if isinstance(key, rsa.RSAPrivateKey):
        public = key.public_key().public_numbers()
        return {"kty": "RSA", "n": number(public.n), "e": number(public.e), **named, **more}
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    place = key.public_key().public_numbers()
    x, y = (b64(value.to_bytes(32, "big")) for value in (place.x, place.y))
    return {"kty": "EC", "crv": "P-256", "x": x, "y": y, **named, **more}


@dataclass(frozen=True)
class Oidc:
    """A provider, and what its tokens say when nothing is wrong with them."""

    stated: str
    audience: str
    now: int
    key: Key = field(default_factory=lambda: rsa_key("oidc"))
    kid: str = "first"
    algorithm: str = "RS256"

    def claims(self, **changes: Any) -> dict[str, Any]:
        usual = {
            "iss": self.stated,
            "aud": self.audience,
            "sub": "248289761001",
            "email": "joe@example.org",
            "email_verified": True,
            "iat": self.now - 10,
            "exp": self.now + 600,
        }
        return changed(usual, changes)

    def token(self, header: Claims | None = None, key: Key | bool = True, **changes: Any) -> str:
        """:param key: True is its own."""
        told = changed({"alg": self.algorithm, "typ": "JWT", "kid": self.kid}, header or {})
        return jws(told, self.claims(**changes), self.key if isinstance(key, bool) else key)


@dataclass(frozen=True)
class OwnTokens:
    """This server's own tokens, made by hand by a holder of the secret."""

    secret: str
    kid: str
    audience: str
    now: int

    def token(self, header: Claims | None = None, key: Key | bool = True, **changes: Any) -> str:
        usual = {
            "iss": "queuey",
            "aud": self.audience,
            "sub": "bid:joe@example.org",
            "iat": self.now - 10,
            "exp": self.now + 600,
            "app": "queuey",
        }
        told = changed({"alg": "HS256", "typ": "queuey+jwt", "kid": self.kid}, header or {})
        return jws(told, changed(usual, changes), self.secret.encode() if isinstance(key, bool) else key)


def browserid_key(key: Key, **changes: Any) -> dict[str, Any]:
    """A public key as BrowserID writes it."""
    if isinstance(key, rsa.RSAPrivateKey):
        public = key.public_key().public_numbers()
        return changed({"algorithm": "RS", "n": str(public.n), "e": str(public.e)}, changes)
    assert isinstance(key, dsa.DSAPrivateKey)
    numbers = key.public_key().public_numbers()
    group = numbers.parameter_numbers
    texts = {"p": group.p, "q": group.q, "g": group.g, "y": numbers.y}
    return changed({"algorithm": "DS", **{name: f"{value:x}" for name, value in texts.items()}}, changes)


@dataclass(frozen=True)
class Certifier:
    """A BrowserID issuer, and its users' assertions."""

    stated: str
    audience: str
    now_ms: int
    key: Key = field(default_factory=lambda: rsa_key("certifier"))
    user: Key = field(default_factory=lambda: rsa_key("user"))

    def certificate(self, header: Claims | None = None, key: Key | bool = True, **changes: Any) -> str:
        usual = {
            "iss": self.stated,
            "iat": self.now_ms - 1000,
            "exp": self.now_ms + 3_600_000,
            "principal": {"email": "joe@example.org"},
            "public-key": browserid_key(self.user),
        }
        told = changed({"alg": "RS256"}, header or {})
        return jws(told, changed(usual, changes), self.key if isinstance(key, bool) else key)

    def assertion(self, header: Claims | None = None, key: Key | bool = True, **changes: Any) -> str:
        """The second half, signed by the user."""
        told = changed({"alg": "DS256" if isinstance(self.user, dsa.DSAPrivateKey) else "RS256"}, header or {})
        usual = {"aud": self.audience, "exp": self.now_ms + 120_000}
        return jws(told, changed(usual, changes), self.user if isinstance(key, bool) else key)

    def whole(self, **changes: Any) -> str:
        """Certificate and assertion; changes are the certificate's."""
        return f"{self.certificate(**changes)}~{self.assertion()}"
