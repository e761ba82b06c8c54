"""The names of those who may act: ``app:name``, ``bid:address``, ``oidc:address``, ``oidc:issuer:subject``, ``operator:name``.

Only a key of its own proves an operator: no text that a caller, an issuer or a token brings becomes its name, since
:func:`parse_principal` refuses it.

Names compare exactly. Of an address the domain is put in lower case first, wherever one is read, so
that comparing texts compares addresses.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

MAX_PRINCIPAL = 254
STRANGERS = "strangers"
"""The payer for every caller that is neither an application nor an operator, users included."""

_APP = "app:"
_OPERATOR = "operator:"

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


def app_principal(application: str) -> str:
    """What an application's key proves."""
    return f"{_APP}{application}"


def operator_principal(name: str) -> str:
    """What an operator's key proves."""
    return f"{_OPERATOR}{name}"


def application_of(principal: str) -> str | None:
    """The application that a principal is; None for any other.

    >>> application_of("app:demo"), application_of("operator:ann")
    ('demo', None)
    """
    return principal.removeprefix(_APP) if principal.startswith(_APP) else None


def operator_of(principal: str) -> str | None:
    """The name of the operator that a principal is; None for any other.

    >>> operator_of("operator:ann"), operator_of("app:operator")
    ('ann', None)
    """
    return principal.removeprefix(_OPERATOR) if principal.startswith(_OPERATOR) else None


def operator_among(principals: Iterable[str]) -> str | None:
    """The operator among principals, the first by name; None if there is none."""
    return min((one for one in principals if one.startswith(_OPERATOR)), default=None)


def is_user(principal: str) -> bool:
    """Whether a principal is a person: neither an application nor an operator."""
    return not has_own_share(principal)


def has_own_share(payer: str) -> bool:
    """Whether a payer has a share of its own: an application or an operator. All others share that of the strangers."""
    return payer.startswith((_APP, _OPERATOR))


@lru_cache(1024)
def payers(principals: frozenset[str]) -> Sequence[str]:
    """Whose share a call counts against, from what the caller has proven.

    An operator pays alone, or else an application does. A user has a share of its own inside that of the strangers.

    >>> payers(frozenset({"app:demo", "bid:joe@example.org"}))
    ('app:demo',)
    >>> payers(frozenset({"bid:joe@example.org"})), payers(frozenset())
    (('bid:joe@example.org', 'strangers'), ('strangers',))
    """
    first = min(
        principals, default=None, key=lambda name: (not name.startswith(_OPERATOR), not name.startswith(_APP), name)
    )
    if first is None:
        return (STRANGERS,)
    return (first,) if has_own_share(first) else (first, STRANGERS)
