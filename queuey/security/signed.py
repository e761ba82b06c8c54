"""Signed JSON as BrowserID writes it: read strictly, and checked with a key.

Three parts in base64url, divided by dots: a header that names the algorithm, claims, and a signature over the first two. What
two programs could read differently is refused: padding, other alphabets, bits that say nothing, a name given
twice, numbers that JSON does not have.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.dsa import DSAParameterNumbers, DSAPublicNumbers
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey, RSAPublicNumbers
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256

from queuey.security.base64url import decode
from queuey.security.claims import Claims, Unproven

RSA_BITS = range(2048, 4097)
DSA_BITS = ((2048, 256), (3072, 256))
"""Sizes of p and q: the older 1024 bits with SHA-1 are too weak."""
_HALF = 32
"""Bytes of each of the two numbers in a DSA signature."""
_DECIMAL = re.compile(r"[0-9]{1,1300}")
_HEXADECIMAL = re.compile(r"[0-9A-Fa-f]{1,800}")

PublicKey = Mapping[str, Any]
"""As BrowserID writes keys: ``algorithm``, and numbers as texts, decimal for RSA and hexadecimal for DSA."""


class Signed(NamedTuple):
    """A signed text as it was read; nothing of it is checked yet."""

    algorithm: str
    claims: Claims
    data: bytes
    """What the signature is over."""
    signature: bytes


def parse_signed(text: str) -> Signed:
    """Read a signed text and check nothing of it.

    :raises ValueError: it has another form.
    """
    header, claims, signature = text.split(".")
    algorithm = _load(header).get("alg")
    if not isinstance(algorithm, str):
        raise ValueError("the header names no algorithm")  # noqa: TRY004 - all that is wrong with the form is one error
    data = f"{header}.{claims}".encode("ascii")
    return Signed(algorithm, _load(claims), data, decode(signature))


def _load(text: str) -> dict[str, Any]:
    found = json.loads(decode(text).decode(), object_pairs_hook=_each_once, parse_constant=_no_number)
    if not isinstance(found, dict):
        raise ValueError("no JSON object")  # noqa: TRY004 - as above
    return found


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name is given twice")
    return found


def _no_number(text: str) -> None:
    raise ValueError("NaN and Infinity are no JSON")


def check_signature(signed: Signed, key: PublicKey) -> None:
    """:raises Unproven: this key did not sign it, is too weak, or is for another algorithm."""
    check = _CHECKS.get((signed.algorithm, key.get("algorithm")))
    if check is None:
        raise Unproven("It is signed in a way that is not taken here.")
    try:
        check(key, signed.data, signed.signature)
    except InvalidSignature:
        raise Unproven("Its signature does not fit.") from None


def rsa_key(key: PublicKey) -> RSAPublicKey:
    """:raises Unproven: no RSA key of a size that is taken here."""
    numbers = RSAPublicNumbers(_number(key, "e", _DECIMAL, 10), _number(key, "n", _DECIMAL, 10))
    if numbers.n.bit_length() not in RSA_BITS or not 3 <= numbers.e < 1 << 32:
        raise Unproven(f"An RSA key has {numbers.n.bit_length()} bits: expected {RSA_BITS[0]} to {RSA_BITS[-1]}.")
    return numbers.public_key()


def _number(key: PublicKey, name: str, form: re.Pattern[str], base: int) -> int:
    text = key.get(name)
    if not isinstance(text, str) or not form.fullmatch(text):
        raise Unproven(f"A key's number {name} is missing, or no number of its form.")
    return int(text, base)


def _check_rsa(key: PublicKey, data: bytes, signature: bytes) -> None:
    rsa_key(key).verify(signature, data, PKCS1v15(), SHA256())


def _check_dsa(key: PublicKey, data: bytes, signature: bytes) -> None:
    p, q, g, y = (_number(key, name, _HEXADECIMAL, 16) for name in "pqgy")
    if (p.bit_length(), q.bit_length()) not in DSA_BITS:
        raise Unproven("Its DSA key is too weak, or too long.")
    if len(signature) != 2 * _HALF:
        raise InvalidSignature
    both = (int.from_bytes(part, "big") for part in (signature[:_HALF], signature[_HALF:]))
    DSAPublicNumbers(y, DSAParameterNumbers(p, q, g)).public_key().verify(encode_dss_signature(*both), data, SHA256())


_CHECKS: Mapping[tuple[object, object], Callable[[PublicKey, bytes, bytes], None]] = {
    ("RS256", "RS"): _check_rsa,
    ("DS256", "DS"): _check_dsa,
}
"""By the algorithm that the signed text names, and the key's. A text alone never chooses."""
