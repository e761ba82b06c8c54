"""An issuer for tests and trials: it vouches for anybody.

A folder holds its key pair, the public key in the two forms that issuers publish, and settings of a
server that trusts it. A reader of the folder can be anybody to that server, so it is for
servers that hold nothing of worth.
"""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from jwt import encode as encode_jwt
from jwt.algorithms import RSAAlgorithm

from queuey.clock import Clock
from queuey.errors import ConfigurationError
from queuey.security.base64url import encode
from queuey.security.claims import unix_now
from queuey.security.tokens import new_token_key

HOST = "dev-issuer.invalid"
ADDRESS = f"https://{HOST}"
AUDIENCE = "queuey"
ORIGIN = "http://127.0.0.1:5000"
KEY_ID = "dev-1"
LIFE_SECONDS = 3600
ASSERTION_LIFE_SECONDS = 290

_INI = """\
# A server that trusts the issuer in this folder: for trying out, never for data of worth.
[application_keys]
demo = {application_key}

[tokens]
keys = {token_key}

[issuer:dev]
kind = oidc
issuer = {address}
audience = {audience}
keys = %(here)s/keys.json
principal = oidc:email
domains = *

[issuer:dev-browserid]
kind = browserid
issuer = {host}
audience = {origin}
keys = %(here)s/browserid.json
domains = *
"""


class DevIssuer:
    """Signs with one key pair, for OpenID Connect and for BrowserID."""

    def __init__(self, key: RSAPrivateKey, clock: Clock) -> None:
        self.key = key
        self._clock = clock

    @classmethod
    def make(cls, folder: Path, clock: Clock) -> tuple[DevIssuer, str]:
        """A fresh issuer in a new folder.

        :returns: it, and the key of the application ``demo`` in its settings.
        :raises ConfigurationError: the folder is there already, or cannot be made.
        """
        application_key = secrets.token_hex(32)
        made = cls(new_key(), clock)
        ini = _INI.format(
            application_key=application_key,
            token_key=new_token_key(),
            address=ADDRESS,
            audience=AUDIENCE,
            host=HOST,
            origin=ORIGIN,
        )
        pem = made.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
        try:
            folder.mkdir(mode=0o700, parents=True)
        except OSError as error:
            raise ConfigurationError(f"cannot make the folder {folder}: {error.strerror}") from error
        _write(folder / "issuer.pem", pem)
        _write(folder / "keys.json", json.dumps({"keys": [made.jwk()]}, indent=2))
        _write(folder / "browserid.json", json.dumps({"public-key": made.browserid_key()}, indent=2))
        _write(folder / "queuey.ini", ini)
        return made, application_key

    @classmethod
    def open(cls, folder: Path, clock: Clock) -> DevIssuer:
        """The issuer that :meth:`make` made.

        :raises ConfigurationError: there is none.
        """
        try:
            key = load_pem_private_key((folder / "issuer.pem").read_bytes(), None)
        except (OSError, ValueError) as error:
            raise ConfigurationError(
                f"there is no issuer in {folder}: make one with 'queuey token issuer {folder}'"
            ) from error
        if not isinstance(key, RSAPrivateKey):
            raise ConfigurationError(f"{folder / 'issuer.pem'} is no RSA key")
        return cls(key, clock)

    def jwk(self) -> dict[str, Any]:
        """The public key as a member of a JWK Set."""
        public: dict[str, Any] = RSAAlgorithm.to_jwk(self.key.public_key(), as_dict=True)
        return {**public, "kid": KEY_ID, "use": "sig", "alg": "RS256"}

    def browserid_key(self) -> dict[str, str]:
        """The public key as BrowserID writes it."""
        return browserid_key(self.key)

    def id_token(self, address: str, **claims: Any) -> str:
        """An OpenID Connect token of somebody with this address.

        :param claims: in place of the usual ones; None leaves one out.
        """
        now = int(unix_now(self._clock))
        usual = {
            "iss": ADDRESS,
            "aud": AUDIENCE,
            "sub": address,
            "email": address,
            "email_verified": True,
            "iat": now,
            "exp": now + LIFE_SECONDS,
        }
        said = {name: value for name, value in {**usual, **claims}.items() if value is not None}
        return encode_jwt(said, self.key, "RS256", {"kid": KEY_ID})

    def assertion(self, address: str, audience: str = ORIGIN, **claims: Any) -> str:
        """A BrowserID assertion of somebody with this address.

        It has a key pair drawn for it.

        :param claims: of the assertion, in place of the usual ones.
        """
        now = int(unix_now(self._clock) * 1000)
        own = new_key()
        certificate = {
            "iss": HOST,
            "iat": now,
            "exp": now + LIFE_SECONDS * 1000,
            "principal": {"email": address},
            "public-key": browserid_key(own),
        }
        assertion = {"aud": audience, "exp": now + ASSERTION_LIFE_SECONDS * 1000, **claims}
        return f"{sign(certificate, self.key)}~{sign(assertion, own)}"


def new_key() -> RSAPrivateKey:
    """A key pair of the least size that is taken."""
    return generate_private_key(65537, 2048)


def browserid_key(key: RSAPrivateKey) -> dict[str, str]:
    """The public half of a key, as BrowserID writes it."""
    numbers = key.public_key().public_numbers()
    return {"algorithm": "RS", "n": str(numbers.n), "e": str(numbers.e)}


def sign(claims: dict[str, Any], key: RSAPrivateKey) -> str:
    """Claims as BrowserID signs them."""
    signed = ".".join(encode(json.dumps(part).encode()) for part in ({"alg": "RS256"}, claims))
    return f"{signed}.{encode(key.sign(signed.encode(), PKCS1v15(), SHA256()))}"


def _write(path: Path, text: str) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        try:
            file.write(text.rstrip() + "\n")
            file.flush()
        except OSError:
            path.unlink()  # the next start would take a part of a key for the key
            raise
