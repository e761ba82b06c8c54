"""BrowserID: ``Authorization: BrowserID <certificate>~<assertion>`` proves an e-mail address.

PyBrowserID knows the protocol. Around it stand five rules, for what it would allow by itself:

1. No secondary issuer is trusted: only an issuer of the settings counts, for the domains named there.
2. Keys of issuers come from files. The library would connect to whatever host an assertion names.
3. The audience stands in the settings, with its scheme, and compares as text. Never the Host header.
4. Limits of our own: 8 KiB, one certificate, 5 minutes for the assertion, 24 hours for the certificate, keys as
   strong as RSA of 2,048 bits, moments that are whole numbers.
5. Any exception whatever means that nothing is proven.

Signatures are checked by ``cryptography``: the library's own arithmetic is Python, 5 ms for a DSA
key, and takes only RSA keys of one size.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from browserid.jwt import JWT, parse
from browserid.supportdoc import SupportDocumentManager
from browserid.verifiers.local import LocalVerifier
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.dsa import DSAParameterNumbers, DSAPublicNumbers
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicNumbers
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256

from queuey.clock import Clock
from queuey.errors import InvalidBrowserID, Unauthenticated
from queuey.issuers import Issuer
from queuey.security.claims import (
    DAY_SECONDS,
    LEEWAY_SECONDS,
    MAX_CREDENTIAL,
    Unproven,
    check_audience,
    check_life,
    text_of,
    ticks_of,
    unix_now,
)
from queuey.security.key_files import KeySource
from queuey.security.permissions import Grant
from queuey.security.principals import parse_address

ASSERTION_SECONDS = 300
RSA_BITS = range(2048, 4097)
DSA_BITS = ((2048, 256), (3072, 256))
"""Sizes of p and q: the older 1024 bits with SHA-1 are too weak."""
_MILLI = 1000
_LEEWAY_MILLI = round(LEEWAY_SECONDS * _MILLI)

PublicKey = Mapping[str, Any]
"""As BrowserID writes keys: ``algorithm``, and numbers as texts."""


def parse_support_document(content: bytes) -> PublicKey:
    """An issuer's key: a support document with its ``public-key``, or that key alone.

    :raises ValueError: no key; one that is too weak; or a DSA key, which would cost every bad assertion 20 times as much.
    """
    document = json.loads(content)
    key = document.get("public-key", document) if isinstance(document, dict) else None
    if not isinstance(key, dict) or key.get("algorithm") != "RS":
        raise ValueError('expected a key with "algorithm": "RS", or a support document with one')
    _rsa(key)
    return key


class BrowserID:
    """The ``BrowserID`` scheme."""

    name = "BrowserID"
    refusal: type[Unauthenticated] = InvalidBrowserID

    def __init__(self, sources: Sequence[KeySource[PublicKey]], clock: Clock) -> None:
        self._issuers = {source.issuer.issuer: source for source in sources}
        self._clock = clock

    def identify(self, credential: str) -> Grant:
        """:raises InvalidBrowserID: whatever is wrong with it."""
        try:
            return self._verify(credential)
        except Unproven as error:
            raise InvalidBrowserID(f"The assertion proves nothing here. {error}") from error
        except Exception as error:
            raise InvalidBrowserID(
                "The assertion proves nothing here. It cannot be read, or its issuer did not sign it."
            ) from error

    def _verify(self, credential: str) -> Grant:
        if len(credential) > MAX_CREDENTIAL:
            raise Unproven(f"It is longer than {MAX_CREDENTIAL} characters.")
        if credential.count("~") != 1:
            raise Unproven("It is not one certificate and one assertion.")
        certificate, assertion = (parse(part).payload for part in credential.split("~"))
        source = self._issuers.get(text_of(certificate, "iss"))
        if source is None:
            raise Unproven("Its issuer is not one that this server trusts.")
        now = unix_now(self._clock)
        ends = min(
            check_life(certificate, now, most_seconds=DAY_SECONDS, whole=True, unit=_MILLI),
            check_life(assertion, now, most_seconds=ASSERTION_SECONDS, whole=True, unit=_MILLI),
        )
        check_audience(assertion.get("aud"), source.issuer.audience, several=False)
        address = _address(certificate, source.issuer)
        proven = _Verifier(source).verify(credential, now=int(now * _MILLI) - _LEEWAY_MILLI)
        if parse_address(proven["email"]) != address:
            raise Unproven("It names two addresses.")
        return Grant(f"bid:{address}", ticks_of(ends))


def _address(certificate: Mapping[str, Any], issuer: Issuer) -> str:
    principal = certificate.get("principal")
    try:
        address = parse_address(text_of(principal if isinstance(principal, dict) else {}, "email"))
    except ValueError:
        raise Unproven("Its address is no e-mail address.") from None
    if not issuer.vouches_for(address.rpartition("@")[2]):
        raise Unproven("Its issuer may not vouch for addresses of that domain.")
    return address


class _Pinned(SupportDocumentManager):  # type: ignore[misc]  # the library has no types
    """One issuer's key, and no other's: nothing is fetched, nothing is delegated."""

    def __init__(self, issuer: Issuer, key: PublicKey) -> None:
        super().__init__(cache={})
        self._issuer = issuer
        self._key = key

    def get_support_document(self, hostname: str) -> dict[str, Any]:
        if hostname != self._issuer.issuer:
            raise Unproven("Its issuer is not one that this server trusts.")
        return {"public-key": self._key}

    def is_trusted_issuer(
        self, hostname: str, issuer: str, trusted_secondaries: Any = None, max_delegations: int = 0
    ) -> bool:
        return bool(issuer == self._issuer.issuer and self._issuer.vouches_for(hostname.lower()))


class _Verifier(LocalVerifier):  # type: ignore[misc]  # the library has no types
    """The library's steps, with our keys, audience and arithmetic in them."""

    def __init__(self, source: KeySource[PublicKey]) -> None:
        key = source.keys()
        if key is None:
            raise Unproven("The keys of its issuer are not known now.")
        super().__init__(trusted_secondaries=(), supportdocs=_Pinned(source.issuer, key))

    def check_audience(self, assertion: str, expected_audience: Any = None) -> None:
        """Done already, as text; here it would be a pattern."""

    def parse_jwt(self, data: str) -> JWT:
        return _Signed(data)


class _Signed(JWT):  # type: ignore[misc]  # the library has no types
    """A JWT whose signature ``cryptography`` checks."""

    def __init__(self, text: str) -> None:
        found = parse(text)
        super().__init__(found.algorithm, found.payload, found.signature, found.signed_data)

    def check_signature(self, key_data: PublicKey) -> bool:
        check = _CHECKS.get((self.algorithm, key_data["algorithm"]))
        if check is None:
            raise Unproven("It is signed in a way that is not taken here.")
        try:
            check(key_data, self.signed_data.encode("ascii"), self.signature)
        except InvalidSignature:
            return False
        return True


def _rsa(key: PublicKey) -> Any:
    numbers = RSAPublicNumbers(int(key["e"]), int(key["n"]))
    if numbers.n.bit_length() not in RSA_BITS or not 3 <= numbers.e < 1 << 32:
        raise Unproven(f"An RSA key has {numbers.n.bit_length()} bits: expected {RSA_BITS[0]} to {RSA_BITS[-1]}.")
    return numbers.public_key()


def _check_rsa(key: PublicKey, data: bytes, signature: bytes) -> None:
    _rsa(key).verify(signature, data, PKCS1v15(), SHA256())


def _check_dsa(key: PublicKey, data: bytes, signature: bytes) -> None:
    p, q, g, y = (int(key[name], 16) for name in "pqgy")
    if (p.bit_length(), q.bit_length()) not in DSA_BITS:
        raise Unproven("Its DSA key is too weak, or too long.")
    size = 32
    if len(signature) != 2 * size:
        raise InvalidSignature
    both = (int.from_bytes(part, "big") for part in (signature[:size], signature[size:]))
    DSAPublicNumbers(y, DSAParameterNumbers(p, q, g)).public_key().verify(encode_dss_signature(*both), data, SHA256())


_CHECKS: Mapping[tuple[str, str], Callable[[PublicKey, bytes, bytes], None]] = {
    ("RS256", "RS"): _check_rsa,
    ("DS256", "DS"): _check_dsa,
}
