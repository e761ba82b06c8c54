"""The corpus of G20: credentials that must prove nothing, each with what is wrong with it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from tests.support.signers import (
    LEFT_OUT,
    Certifier,
    Oidc,
    OwnTokens,
    b64,
    b64_json,
    browserid_key,
    dsa_key,
    ec_key,
    jwk,
    jws,
    rsa_key,
)

Case = tuple[str, str]
YEARS = 10 * 365 * 86_400
NO_MOMENTS: dict[str, Any] = {
    "a text": "soon",
    "digits as a text": "1999999999",
    "true": True,
    "null": None,
    "a list": [1_999_999_999],
    "an object": {},
    "negative": -1,
    "NaN": float("nan"),
    "infinite": float("inf"),
    "huge": 10**400,
}


def bad_tokens(oidc: Oidc, listener: str) -> Iterator[Case]:
    """Of an OpenID Connect provider.

    :param oidc: trusted for joe@example.org, with two keys.
    :param listener: an address at which nobody must ever ask.
    """
    yield from _bad_signatures(oidc)
    yield from _bad_headers(oidc, listener)
    yield from _bad_claims(oidc, listener)
    yield from bad_shapes(oidc.token())


def _bad_signatures(oidc: Oidc) -> Iterator[Case]:
    good, other = oidc.token(), rsa_key("somebody else's")
    signed, _, mark = good.rpartition(".")
    for name in ("none", "None", "NONE", "nOnE", ""):
        yield f"alg {name!r} without a signature", oidc.token({"alg": name}, None)
        yield f"alg {name!r} with one", f"{jws({'alg': name, 'kid': oidc.kid}, oidc.claims(), None)}{mark}"
    yield "alg left out", oidc.token({"alg": LEFT_OUT})
    yield "alg a number", oidc.token({"alg": 5})
    yield "alg a list", oidc.token({"alg": ["RS256"]})
    public = rsa_key("oidc").public_key()
    secrets = {
        "its PEM": public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
        "its PEM without the last line's end": public.public_bytes(
            Encoding.PEM, PublicFormat.SubjectPublicKeyInfo
        ).rstrip(),
        "its PKCS1 PEM": public.public_bytes(Encoding.PEM, PublicFormat.PKCS1),
        "its DER": public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo),
        "its JWK": json.dumps(jwk(rsa_key("oidc"), "first")).encode(),
        "nothing": b"",
        "its name": b"first",
    }
    for what, secret in secrets.items():
        for name in ("HS256", "HS384", "HS512"):
            yield f"{name} with {what} as the secret", oidc.token({"alg": name}, secret)
        yield f"RS256 with a MAC by {what}", oidc.token({}, secret)
    for name in ("RS384", "RS512", "PS256", "ES256", "EdDSA", "ES256K", "rs256", "RS1", "foo"):
        yield f"alg {name}, which is not the issuer's", oidc.token({"alg": name})
    yield "ES256 by a key of one's own", oidc.token({"alg": "ES256"}, ec_key("somebody else's"))
    yield "signed by somebody else", oidc.token({}, other)
    yield "signed by its other key", oidc.token({}, rsa_key("oidc second"))
    yield "no signature", f"{signed}."
    yield "half a signature", f"{signed}.{mark[: len(mark) // 2]}"
    yield "a signature and more", f"{good}AAAA"
    yield "another token's signature", f"{signed}.{oidc.token(jti='other').rpartition('.')[2]}"
    for at in (0, len(mark) // 2):
        yield f"a signature flipped at {at}", f"{signed}.{_flipped(mark, at)}"
    header, payload, _ = good.split(".")
    yield "a header changed after signing", f"{b64_json({'alg': 'RS256', 'kid': 'first', 'x': 1})}.{payload}.{mark}"
    yield "claims changed after signing", f"{header}.{b64_json(oidc.claims(email='ann@example.org'))}.{mark}"


def _bad_headers(oidc: Oidc, listener: str) -> Iterator[Case]:
    other = rsa_key("somebody else's")
    brought = jwk(other, "first", alg="RS256")
    for kid in ("third", "", "First", "first\0", "../first", "first ", 1, None, ["first"], {"kid": "first"}, True):
        yield f"kid {kid!r}", oidc.token({"kid": kid})
    yield "no kid where there are two keys", oidc.token({"kid": LEFT_OUT})
    for name in ("jku", "x5u"):
        for key in (True, other):
            yield (
                f"{name} to a listener, signed {'well' if key is True else 'by its key'}",
                oidc.token({name: f"{listener}/keys.json"}, key),
            )
    yield "a key of its own (jwk)", oidc.token({"jwk": brought}, other)
    yield "a key of its own (jwk), named anew", oidc.token({"jwk": brought, "kid": "own"}, other)
    yield "a certificate of its own (x5c)", oidc.token({"x5c": ["MIIB"]}, other)
    for crit in (["exp"], ["b64"], ["http://example.org/unknown"], [], "exp", None):
        yield f"crit {crit!r}", oidc.token({"crit": crit})
    yield "b64 false", oidc.token({"b64": False, "crit": ["b64"]})
    yield "b64 false without crit", oidc.token({"b64": False})
    yield "compressed", oidc.token({"zip": "DEF"})
    for kind in ("logout+jwt", "dpop+jwt", "queuey+jwt", "JWE", 5, ["JWT"]):
        yield f"typ {kind!r}", oidc.token({"typ": kind})


def _bad_claims(oidc: Oidc, listener: str) -> Iterator[Case]:
    now = oidc.now
    changes: dict[str, dict[str, Any]] = {
        "iss left out": {"iss": LEFT_OUT},
        "iss with a slash more": {"iss": f"{oidc.stated}/"},
        "iss in capitals": {"iss": oidc.stated.upper()},
        "iss of this server": {"iss": "queuey"},
        "iss that asks for a fetch": {"iss": listener},
        "iss a list": {"iss": [oidc.stated]},
        "iss null": {"iss": None},
        "iss a number": {"iss": 1},
        "aud left out": {"aud": LEFT_OUT},
        "aud of another": {"aud": "somebody"},
        "aud empty": {"aud": ""},
        "aud null": {"aud": None},
        "aud a number": {"aud": 1},
        "aud an empty list": {"aud": []},
        "aud a list of others": {"aud": ["a", "b"]},
        "aud a list in a list": {"aud": [[oidc.audience]]},
        "aud an object": {"aud": {oidc.audience: 1}},
        "aud a part of ours": {"aud": oidc.audience[:-1]},
        "aud more than ours": {"aud": f"{oidc.audience}s"},
        "aud ours and another in one text": {"aud": f"{oidc.audience},other"},
        "aud in capitals": {"aud": oidc.audience.upper()},
        "aud *": {"aud": "*"},
        "exp left out": {"exp": LEFT_OUT},
        "exp past": {"exp": now - 2},
        "exp 0": {"exp": 0},
        "exp in ten years": {"exp": now + YEARS},
        "exp in 25 hours": {"exp": now + 25 * 3600, "iat": LEFT_OUT},
        "a life of 30 days, at its end": {"iat": now - 30 * 86_400, "exp": now + 60},
        "exp in milliseconds": {"exp": (now + 600) * 1000},
        "nbf to come": {"nbf": now + 60},
        "sub left out": {"sub": LEFT_OUT},
        "sub empty": {"sub": ""},
        "sub a number": {"sub": 1},
        "sub a list": {"sub": ["joe"]},
        "an address not verified": {"email_verified": False},
        "verified left out": {"email_verified": LEFT_OUT},
        "verified null": {"email_verified": None},
        "verified a text": {"email_verified": "true"},
        "verified 1": {"email_verified": 1},
        "no address": {"email": LEFT_OUT},
        "address null": {"email": None},
        "address a list": {"email": ["joe@example.org"]},
        "no address but a name": {"email": "joe"},
        "address with a line's end": {"email": "joe@example.org\n"},
        "address after a line's end": {"email": "\njoe@example.org"},
        "address with a NUL": {"email": "joe@example.org\0"},
        "two addresses": {"email": "ann@example.org,joe@example.org"},
        "an address in brackets": {"email": "Joe <joe@example.org>"},
        "an address of a domain that it may not vouch for": {"email": "joe@elsewhere.org"},
        "a domain below one that it may vouch for": {"email": "joe@mail.example.org"},
        "a domain that ends like one": {"email": "joe@anexample.org"},
        "a domain with a dot at its end": {"email": "joe@example.org."},
        "a domain in other letters": {"email": "joe@ex\u0430mple.org"},
        "a name as long as they get": {"email": f"{'j' * 400}@example.org"},
        "counts only with another proof": {"cnf": {"jkt": "x"}},
    }
    for name in ("exp", "nbf", "iat"):
        changes |= {f"{name} {what}": {name: value} for what, value in NO_MOMENTS.items()}
    for what, change in changes.items():
        yield what, oidc.token(**change)


def bad_own_tokens(own: OwnTokens, former: OwnTokens, oidc: Oidc) -> Iterator[Case]:
    """Of this server.

    :param former: with a key that is not in force any more.
    """
    now = own.now
    yield "a former key", former.token()
    yield "a former key under a name in force", former.token({"kid": own.kid})
    yield "a key of one's own", own.token({}, b"k" * 32)
    yield "no key", own.token({}, b"")
    yield "its kid as the key", own.token({}, own.kid.encode())
    yield "signed by a provider", own.token({"alg": "RS256"}, oidc.key)
    for name in ("none", "None", "", "HS384", "HS512", "RS256", "hs256"):
        yield f"alg {name!r}", own.token({"alg": name}, None if name.lower() in ("none", "") else True)
    for kid in ("", None, 1, LEFT_OUT, own.kid[:-1], own.kid.upper()):
        yield f"kid {kid if kid is not LEFT_OUT else 'left out'!r}", own.token({"kid": kid})
    for kind in ("JWT", None, LEFT_OUT, "at+jwt", "QUEUEY+JWT"):
        yield f"typ {kind if kind is not LEFT_OUT else 'left out'!r}", own.token({"typ": kind})
    changes: dict[str, dict[str, Any]] = {
        "aud left out": {"aud": LEFT_OUT},
        "aud of another server": {"aud": "staging"},
        "aud a list with ours": {"aud": [own.audience]},
        "iss a provider's": {"iss": oidc.stated},
        "sub left out": {"sub": LEFT_OUT},
        "sub empty": {"sub": ""},
        "sub no principal": {"sub": "joe"},
        "sub of a kind that is none": {"sub": "root:joe@example.org"},
        "sub with a line's end": {"sub": "bid:joe@example.org\n"},
        "sub two principals": {"sub": "bid:joe@example.org,app:queuey"},
        "sub a list": {"sub": ["app:queuey"]},
        "sub an operator": {"sub": "operator:root"},
        "app left out": {"app": LEFT_OUT},
        "app null": {"app": None},
        "app a list": {"app": ["queuey"]},
        "app empty": {"app": ""},
        "exp left out": {"exp": LEFT_OUT},
        "exp past": {"exp": now - 2},
        "exp in ten years": {"exp": now + YEARS},
        "nbf to come": {"nbf": now + 60},
        "queues a text": {"queues": "joe"},
        "queues null": {"queues": None},
        "queues of numbers": {"queues": [1]},
        "verbs a text": {"verbs": "read"},
        "verbs null": {"verbs": None},
    }
    changes |= {f"exp {what}": {"exp": value} for what, value in NO_MOMENTS.items()}
    for what, change in changes.items():
        yield f"own: {what}", own.token(**change)
    yield from bad_shapes(own.token())


def bad_assertions(certifier: Certifier, listener: str) -> Iterator[Case]:
    """BrowserID.

    :param certifier: trusted for addresses at example.org.
    :param listener: an address at which nobody must ever ask.
    """
    yield from _bad_assertion_claims(certifier)
    yield from _bad_certificates(certifier, listener)
    yield from _bad_bundles(certifier)
    yield from bad_shapes(certifier.certificate(), lambda part: f"{part}~{certifier.assertion()}")
    yield from bad_shapes(certifier.assertion(), lambda part: f"{certifier.certificate()}~{part}")


def _bad_assertion_claims(certifier: Certifier) -> Iterator[Case]:
    now, ours = certifier.now_ms, certifier.audience
    bare = ours.partition("://")[2]
    changes: dict[str, dict[str, Any]] = {
        "aud left out": {"aud": LEFT_OUT},
        "aud of another site": {"aud": "https://evil.example.com"},
        "aud without a scheme": {"aud": bare},
        "aud with http": {"aud": f"http://{bare}"},
        "aud with a slash": {"aud": f"{ours}/"},
        "aud with the usual port": {"aud": f"{ours}:443"},
        "aud with another port": {"aud": f"{ours}:8443"},
        "aud in capitals": {"aud": ours.upper()},
        "aud *": {"aud": "*"},
        "aud https://*": {"aud": "https://*"},
        "aud ours and more": {"aud": f"{ours}.evil.example.com"},
        "aud as the user of another": {"aud": f"{ours}@evil.example.com"},
        "aud the Host header": {"aud": "127.0.0.1"},
        "aud a list": {"aud": [ours]},
        "aud null": {"aud": None},
        "exp left out": {"exp": LEFT_OUT},
        "exp past": {"exp": now - 2000},
        "exp in seconds": {"exp": now // 1000 + 60},
        "exp in six minutes": {"exp": now + 360_000},
        "exp in ten years": {"exp": now + YEARS * 1000},
        "exp no whole number": {"exp": now + 60_000.5},
        "nbf to come": {"nbf": now + 60_000},
        "nbf a text": {"nbf": "1"},
        "iat a text": {"iat": "1"},
        "made an hour ago": {"iat": now - 3_600_000},
    }
    changes |= {f"exp {what}": {"exp": value} for what, value in NO_MOMENTS.items()}
    for what, change in changes.items():
        yield f"assertion: {what}", f"{certifier.certificate()}~{certifier.assertion(**change)}"
    for what, key in {"nobody": None, "its issuer": certifier.key, "somebody else": rsa_key("somebody else's")}.items():
        yield f"assertion signed by {what}", f"{certifier.certificate()}~{certifier.assertion({}, key)}"
    for name in ("none", "None", "", "HS256", "RS64", "RS128", "DS128", "RS512", "rs256", "R", 5, None, ["RS256"]):
        yield f"assertion with alg {name!r}", f"{certifier.certificate()}~{certifier.assertion({'alg': name})}"
    yield "assertion without alg", f"{certifier.certificate()}~{certifier.assertion({'alg': LEFT_OUT})}"


def _bad_certificates(certifier: Certifier, listener: str) -> Iterator[Case]:
    now, other = certifier.now_ms, rsa_key("somebody else's")
    host = listener.partition("://")[2]
    changes: dict[str, dict[str, Any]] = {
        "iss left out": {"iss": LEFT_OUT},
        "iss null": {"iss": None},
        "iss a list": {"iss": [certifier.stated]},
        "iss in capitals": {"iss": certifier.stated.upper()},
        "iss with a dot": {"iss": f"{certifier.stated}."},
        "iss with a port": {"iss": f"{certifier.stated}:443"},
        "iss of the address itself": {"iss": "example.org"},
        "iss the old service": {"iss": "login.persona.org"},
        "iss the older service": {"iss": "browserid.org"},
        "iss the test service": {"iss": "diresworb.org"},
        "iss that asks for a fetch": {"iss": host},
        "exp left out": {"exp": LEFT_OUT},
        "exp past": {"exp": now - 2000},
        "exp in 25 hours": {"exp": now + 25 * 3_600_000, "iat": LEFT_OUT},
        "exp in ten years": {"exp": now + YEARS * 1000},
        "nbf to come": {"nbf": now + 60_000},
        "a life of 30 days, at its end": {"iat": now - 30 * 86_400_000, "exp": now + 60_000},
        "no principal": {"principal": LEFT_OUT},
        "principal a text": {"principal": "joe@example.org"},
        "principal a host": {"principal": {"hostname": "example.org"}},
        "principal empty": {"principal": {}},
        "address null": {"principal": {"email": None}},
        "address a list": {"principal": {"email": ["joe@example.org"]}},
        "address with a line's end": {"principal": {"email": "joe@example.org\n"}},
        "address with a port": {"principal": {"email": "joe@example.org:80"}},
        "address that asks for a fetch": {"principal": {"email": f"joe@{host}"}},
        "address of another domain": {"principal": {"email": "joe@elsewhere.org"}},
        "two addresses": {"principal": {"email": "ann@example.org,joe@example.org"}},
        "no key": {"public-key": LEFT_OUT},
        "key null": {"public-key": None},
        "key a text": {"public-key": "RS"},
        "key empty": {"public-key": {}},
    }
    changes |= {f"exp {what}": {"exp": value} for what, value in NO_MOMENTS.items()}
    for what, change in changes.items():
        yield f"certificate: {what}", certifier.whole(**change)
    keys: dict[str, dict[str, Any]] = {
        "of another algorithm": {"algorithm": "DS"},
        "of an algorithm that is a part": {"algorithm": "R"},
        "without a modulus": {"n": LEFT_OUT},
        "with modulus 0": {"n": "0"},
        "with a negative modulus": {"n": "-5"},
        "with a modulus of words": {"n": "many"},
        "with a huge modulus": {"n": "9" * 4200},
        "with exponent 1": {"e": "1"},
        "with exponent 0": {"e": "0"},
        "with a huge exponent": {"e": "9" * 600},
    }
    for what, bad in keys.items():
        yield f"certificate: key {what}", certifier.whole(**{"public-key": browserid_key(certifier.user, **bad)})
    for weak in (rsa_key("weak", 1024), dsa_key("weak", 1024)):
        user = Certifier(certifier.stated, certifier.audience, now, certifier.key, weak)
        yield f"certificate: a key of 1,024 bits ({type(weak).__name__})", user.whole()
    for what, key in {"nobody": None, "its user": certifier.user, "somebody else": other}.items():
        yield f"certificate signed by {what}", certifier.whole(header={}, key=key)
    for name in ("none", "HS256", "RS128", "DS256", "", None):
        yield f"certificate with alg {name!r}", certifier.whole(header={"alg": name})
    signed, _, mark = certifier.certificate().rpartition(".")
    yield "certificate flipped", f"{signed}.{_flipped(mark, 5)}~{certifier.assertion()}"
    brought = {"public-key": browserid_key(other), "jku": listener}
    yield "certificate that brings its issuer's key", certifier.whole(header={"alg": "RS256", **brought}, key=other)


def _bad_bundles(certifier: Certifier) -> Iterator[Case]:
    certificate, assertion = certifier.certificate(), certifier.assertion()
    key: dict[str, Any] = {"public-key": browserid_key(rsa_key("second"))}
    root = certifier.certificate(**key)
    yield "two certificates", f"{root}~{certifier.certificate({}, rsa_key('second'))}~{assertion}"
    yield "the same certificate twice", f"{certificate}~{certificate}~{assertion}"
    yield "certificate and assertion in the wrong order", f"{assertion}~{certificate}"
    yield "a certificate alone", certificate
    yield "an assertion alone", assertion
    yield "no certificate", f"~{assertion}"
    yield "no assertion", f"{certificate}~"
    yield "nothing but a tilde", "~"
    yield "tildes", "~" * 100
    yield "a tilde at its end", f"{certificate}~{assertion}~"
    yield "the old form", b64_json({"certificates": [certificate], "assertion": assertion})
    yield "the old form, certificates a text", b64_json({"certificates": certificate, "assertion": assertion})


def bad_shapes(good: str, around: Any = lambda part: part) -> Iterator[Case]:
    """What is no signed JSON at all, or a good one cut or blown up.

    :param around: puts the part where it belongs.
    """
    header, payload, mark = good.split(".")
    deep = b"[" * 3000
    shapes = {
        "empty": "",
        "a word": "x",
        "two dots": "..",
        "one part": header,
        "two parts": f"{header}.{payload}",
        "four parts": f"{good}.{mark}",
        "five parts": f"{header}.{header}.{payload}.{payload}.{mark}",
        "no header": f".{payload}.{mark}",
        "no claims": f"{header}..{mark}",
        "header no JSON": f"{b64(b'{')}.{payload}.{mark}",
        "header a list": f"{b64(b'[]')}.{payload}.{mark}",
        "header a text": f"{b64(b'x')}.{payload}.{mark}",
        "header null": f"{b64(b'null')}.{payload}.{mark}",
        "header deep": f"{b64(deep)}.{payload}.{mark}",
        "claims deep": f"{header}.{b64(deep)}.{mark}",
        "claims a list": f"{header}.{b64(b'[]')}.{mark}",
        "claims a number": f"{header}.{b64(b'1')}.{mark}",
        "claims not UTF-8": f"{header}.{b64(bytes([0xFF, 0xFE]))}.{mark}",
        "claims with a lone surrogate": f"{header}.{b64(bytes([0x22, 0xED, 0xA0, 0x80, 0x22]))}.{mark}",
        "no base64": f"{header}.!!!!.{mark}",
        "a blank within": f"{header}. {payload}.{mark}",
        "a plus within": f"{header}.+{payload}.{mark}",
        "commas": good.replace(".", ","),
        "longer than 8 KiB": f"{good}{'A' * 9000}",
        "claims longer than 8 KiB": f"{header}.{b64_json({'x': 'y' * 9000})}.{mark}",
        "zeros": "0" * 4000,
        "dots": "." * 4000,
    }
    for what, shape in shapes.items():
        yield what, around(shape)
    for at in range(1, len(good) - 1, max(len(good) // 16, 1)):
        yield f"cut at {at}", around(good[:at])


def _flipped(text: str, at: int) -> str:
    return text[:at] + ("A" if text[at] != "A" else "B") + text[at + 1 :]
