"""``Authorization: BrowserID <certificate>~<assertion>`` proves an address.

An issuer signs a certificate of an address and of a key, and that key signs an assertion for one site. Five rules keep it narrow:

1. Only an issuer of the settings counts, for the domains named there.
2. Keys of issuers come from files. Nothing that a credential says makes the server connect anywhere.
3. The audience stands in the settings, with its scheme, and compares as text. Never the Host header.
4. Limits: 8 KiB, one certificate, 5 minutes for the assertion, 24 hours for the certificate, keys as
   strong as RSA of 2,048 bits, moments that are whole numbers.
5. Any exception whatever means that nothing is proven.

How both are read, and how a signature is checked, is in :mod:`queuey.security.signed`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from queuey.clock import Clock
from queuey.errors import InvalidBrowserID, Unauthenticated
from queuey.security.claims import (
    DAY_SECONDS,
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
from queuey.security.signed import PublicKey, check_signature, parse_signed, rsa_key
from queuey.settings.issuers import Issuer

ASSERTION_SECONDS = 300
_MILLI = 1000


def parse_support_document(content: bytes) -> PublicKey:
    """An issuer's key: a support document with its ``public-key``, or that key alone.

    :raises ValueError: no key; one that is too weak; or a DSA key, which would cost every bad assertion 20 times as much.
    """
    document = json.loads(content)
    key = document.get("public-key", document) if isinstance(document, dict) else None
    if not isinstance(key, dict) or key.get("algorithm") != "RS":
        raise ValueError('expected a key with "algorithm": "RS", or a support document with one')
    rsa_key(key)
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
        certificate, assertion = map(parse_signed, credential.split("~"))
        source = self._issuers.get(text_of(certificate.claims, "iss"))
        if source is None:
            raise Unproven("Its issuer is not one that this server trusts.")
        now = unix_now(self._clock)
        ends = min(
            check_life(certificate.claims, now, most_seconds=DAY_SECONDS, whole=True, unit=_MILLI),
            check_life(assertion.claims, now, most_seconds=ASSERTION_SECONDS, whole=True, unit=_MILLI),
        )
        check_audience(assertion.claims.get("aud"), source.issuer.audience, several=False)
        address = _address(certificate.claims, source.issuer)
        issuers_key, users_key = source.keys(), certificate.claims.get("public-key")
        if issuers_key is None:
            raise Unproven("The keys of its issuer are not known now.")
        if not isinstance(users_key, dict):
            raise Unproven("Its certificate is for no key.")
        check_signature(certificate, issuers_key)
        check_signature(assertion, users_key)
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
