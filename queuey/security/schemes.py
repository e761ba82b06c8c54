"""The schemes that the settings ask for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from importlib.util import find_spec
from typing import Any

from queuey.clock import Clock
from queuey.errors import ConfigurationError
from queuey.security.bearer import Bearer, OidcIssuer, TokenIssuer, parse_key_set
from queuey.security.identity import Allowance, Remembering, Scheme
from queuey.security.key_files import KeySource, Refresher
from queuey.security.tokens import Tokens
from queuey.settings import Settings
from queuey.settings.issuers import Issuer

_NEEDED = {"oidc": ("jwt", "cryptography"), "browserid": ("cryptography",)}
"""Modules by kind of issuer; the extra that brings them has the kind's name."""


class Trust:
    """What one server trusts besides the keys of applications and operators.

    It has schemes, and the keys behind them.
    """

    def __init__(
        self, settings: Settings, clock: Clock, keys_in_force: Callable[[str], Iterable[bytes]] | None = None
    ) -> None:
        """:param keys_in_force: as of :class:`~queuey.security.tokens.Tokens`.
        :raises ConfigurationError: a kind of issuer needs a library that is not installed.
        """
        for issuer in settings.issuers:
            _check_library(issuer)
        self.tokens: Tokens | None = None
        if settings.tokens.keys:
            audience, life = settings.tokens.audience, settings.tokens.life_seconds
            self.tokens = Tokens(settings.tokens.keys, audience, life, clock, keys_in_force)
        self._sources: list[KeySource[Any]] = []
        allowance = Allowance(settings.limits.bad_credentials_per_second, clock)
        self.schemes: list[Remembering] = [
            Remembering(scheme, clock, allowance) for scheme in self._schemes(settings, clock)
        ]
        self._refresher = Refresher(self._sources, self.forget)

    def start(self) -> None:
        """Read the keys of issuers, and keep them fresh.

        :raises ConfigurationError: a file of keys cannot be read.
        """
        self._refresher.start()

    def read_files(self) -> None:
        """Read the keys that are in files, once, and fetch none.

        :raises ConfigurationError: one cannot be read.
        """
        self._refresher.read_files()

    def key_ages(self) -> dict[str, float]:
        """How many seconds ago the keys of each issuer were read, by its name. Those never read are left out."""
        ages = {source.issuer.name: source.age_seconds for source in self._sources}
        return {name: age for name, age in ages.items() if age is not None}

    def stop(self) -> None:
        """Stop the refreshing."""
        self._refresher.stop()

    def _schemes(self, settings: Settings, clock: Clock) -> list[Scheme]:
        schemes: list[Scheme] = []
        bearers: list[TokenIssuer] = [self.tokens] if self.tokens else []
        for issuer in settings.issuers:
            if issuer.kind == "oidc":
                source = self._source(issuer, partial(parse_key_set, algorithms=issuer.algorithms), clock)
                bearers.append(OidcIssuer(issuer, source, clock))
        certifiers = [issuer for issuer in settings.issuers if issuer.kind == "browserid"]
        if certifiers:
            from queuey.security.browserid import BrowserID, parse_support_document

            schemes.append(BrowserID([self._source(one, parse_support_document, clock) for one in certifiers], clock))
        if bearers:
            schemes.append(Bearer(bearers))
        return schemes

    def _source(self, issuer: Issuer, parse: Callable[[bytes], Any], clock: Clock) -> KeySource[Any]:
        source = KeySource(issuer, parse, clock)
        self._sources.append(source)
        return source

    def forget(self) -> None:
        """Check each credential anew: other keys are in force."""
        for scheme in self.schemes:
            scheme.forget()


def _check_library(issuer: Issuer) -> None:
    missing = [name for name in _NEEDED[issuer.kind] if find_spec(name) is None]
    if missing:
        raise ConfigurationError(
            f"[issuer:{issuer.name}] kind = {issuer.kind} needs {' and '.join(missing)}: "
            f"install the extra, pip install '/path/to/queuey[{issuer.kind}]'"
        )
