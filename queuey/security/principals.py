"""The names of those who may act: ``app:name``, ``bid:address``, ``oidc:address`` and ``oidc:issuer:subject``.

Names compare exactly. Of an address the domain is put in lower case first, wherever one is read, so
that comparing texts compares addresses.
"""

from __future__ import annotations

import re

MAX_PRINCIPAL = 254

_APPLICATION = re.compile(r"app:[A-Za-z0-9_.-]{1,50}")
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_ADDRESS = re.compile(rf"[A-Za-z0-9.!#$%&'*+/=?^_`{{|}}~-]{{1,64}}@{_LABEL}(?:\.{_LABEL})+")
_SUBJECT = re.compile(r"[\x21-\x2b\x2d-\x7e]+")
"""Visible ASCII but for the comma, which divides lists of principals."""


def parse_address(text: str) -> str:
    """An e-mail address, its domain in lower case.

    :raises ValueError: it is none.

    >>> parse_address("Joe+news@Mail.Example.COM")
    'Joe+news@mail.example.com'
    """
    if len(text) > MAX_PRINCIPAL or not _ADDRESS.fullmatch(text):
        raise ValueError("not an e-mail address")
    name, _, domain = text.rpartition("@")
    return f"{name}@{domain.lower()}"


def parse_principal(text: str) -> str:
    """A principal, as it is compared.

    :raises ValueError: it is none.

    >>> parse_principal("oidc:Joe@Example.com"), parse_principal("oidc:login:Joe@Example.com")
    ('oidc:Joe@example.com', 'oidc:login:Joe@Example.com')
    """
    if len(text) > MAX_PRINCIPAL:
        raise ValueError(f"a principal is longer than {MAX_PRINCIPAL} characters")
    kind, _, rest = text.partition(":")
    if kind in ("bid", "oidc") and _ADDRESS.fullmatch(rest):
        return f"{kind}:{parse_address(rest)}"
    if _APPLICATION.fullmatch(text) or (kind == "oidc" and _SUBJECT.fullmatch(rest)):
        return text
    raise ValueError("not of the form app:name, bid:address or oidc:subject")
