"""What it costs to identify a caller: each scheme in this process, without a network, beside its cryptography alone."""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64decode
from collections.abc import Callable, Iterator
from hashlib import sha256
from statistics import median
from typing import NamedTuple

from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.hashes import SHA256

from queuey.clock import SystemClock
from queuey.future import run
from queuey.http.access import identify
from queuey.http.exchange import Call
from queuey.security.dev_issuer import DevIssuer
from queuey.service import Service
from queuey.settings import load_settings
from tests.bench.measure import BenchFailed, alternate, rate_of, ratios
from tests.bench.plan import Plan
from tests.bench.servers import APPLICATION
from tests.bench.table import Row, number

USER = "joe@example.org"
_CALL = Call("GET", "/v1/queuey", "", {})
_SECONDS = 1.0
"""Are enough for a measurement in one process."""
_AT_ONCE = 50


class Proof(NamedTuple):
    """One way to prove an identity."""

    what: str
    header: str
    principal: str
    forget: Callable[[], None]
    """Sees to it that the credential is looked at anew."""
    alone: str
    cryptography: Callable[[], object]
    """What cannot be left out."""


def measure(plan: Plan) -> Iterator[Row]:
    """Microseconds for a credential that was never seen, and for one that is known."""
    folder = plan.fresh("identity") / "issuer"
    issuer, key = DevIssuer.make(folder, SystemClock())
    settings = load_settings(str(folder / "queuey.ini"), {}, {"server": {"data": str(folder)}})
    service = Service.open(settings)
    try:
        run(service.start())
        for proof in _proofs(service, issuer, key):
            yield _row(service, proof, plan)
    finally:
        service.close()


def _proofs(service: Service, issuer: DevIssuer, key: str) -> Iterator[Proof]:
    forget = {scheme.name: scheme.forget for scheme in service.trust.schemes}
    tokens = service.trust.tokens
    if tokens is None:
        raise BenchFailed("the settings of the issuer have no key for tokens")
    own = tokens.mint(f"oidc:{USER}", APPLICATION).text
    secret, signed = service.settings.tokens.keys[0].encode(), own.rpartition(".")[0].encode()
    id_token, assertion = issuer.id_token(USER), issuer.assertion(USER)
    certificate = assertion.partition("~")[0]
    yield Proof(
        "an application key",
        f"Application {key}",
        f"app:{APPLICATION}",
        service.recent.clear,
        "its hash",
        lambda: sha256(key.encode()).digest(),
    )
    yield Proof(
        "a token of the server's own",
        f"Bearer {own}",
        f"oidc:{USER}",
        forget["Bearer"],
        "its HMAC",
        lambda: hmac.digest(secret, signed, "sha256"),
    )
    yield Proof(
        "an OpenID Connect token, RS256",
        f"Bearer {id_token}",
        f"oidc:{USER}",
        forget["Bearer"],
        "its signature",
        _signature(issuer, id_token),
    )
    one = _signature(issuer, certificate)
    yield Proof(
        "a BrowserID assertion, RSA",
        f"BrowserID {assertion}",
        f"bid:{USER}",
        forget["BrowserID"],
        "two signatures",
        lambda: (one(), one()),
    )


def _signature(issuer: DevIssuer, token: str) -> Callable[[], None]:
    """Verify the signature of a token, with nothing around it."""
    public = issuer.key.public_key()
    signed, _, text = token.rpartition(".")
    signature, padding, digest = urlsafe_b64decode(text + "=" * (-len(text) % 4)), PKCS1v15(), SHA256()
    return lambda: public.verify(signature, signed.encode(), padding, digest)


def _row(service: Service, proof: Proof, plan: Plan) -> Row:
    if proof.principal not in identify(service, proof.header, _CALL).principals:
        raise BenchFailed(f"{proof.what} does not prove {proof.principal}")

    def first() -> None:
        proof.forget()
        identify(service, proof.header, _CALL)

    seconds = min(plan.seconds, _SECONDS)
    alone, looked_at = alternate(
        lambda: _microseconds(proof.cryptography, seconds), lambda: _microseconds(first, seconds), plan.rounds
    )
    known = _microseconds(lambda: identify(service, proof.header, _CALL), seconds)
    return Row(
        f"identify a caller, by {proof.what}",
        f"{number(median(alone))} µs for {proof.alone} alone",
        f"{number(median(looked_at))} µs, {number(known)} µs when known",
        ratios(looked_at, alone),
    )


def _microseconds(work: Callable[[], object], seconds: float) -> float:
    def some() -> int:
        for _ in range(_AT_ONCE):
            work()
        return _AT_ONCE

    return 1e6 / rate_of(some, seconds)
