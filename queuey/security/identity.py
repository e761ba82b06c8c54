"""From an Authorization header to principals.

A header may carry several credentials separated by ``;``. Each is given to the scheme that its
first word names; a scheme nobody knows is ignored, and one bad credential of a known scheme
refuses the whole request, on public queues too (queuey-api-v1 section 3.1). A further scheme is a
further :class:`Scheme`, nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from queuey.errors import Unauthenticated

ANONYMOUS: frozenset[str] = frozenset()
MAX_HEADER = 8192
"""Characters of an Authorization header that are looked at."""


class Scheme(Protocol):
    """One way to prove who one is. It decides from what is at hand: no request waits for a network here (G20)."""

    @property
    def name(self) -> str:
        """The word before the credential, lower case."""

    @property
    def refusal(self) -> type[Unauthenticated]:
        """What a bad credential of this scheme gets."""

    def identify(self, credential: str) -> str:
        """The principal that a credential proves.

        :raises Unauthenticated: it proves none.
        """


class Identifier:
    """Asks the schemes."""

    def __init__(self, schemes: Sequence[Scheme]) -> None:
        self._schemes = {scheme.name: scheme for scheme in schemes}

    @property
    def challenge(self) -> str:
        """For WWW-Authenticate."""
        return ", ".join(f'{name.capitalize()} realm="queuey"' for name in self._schemes)

    def identify(self, header: str | None) -> frozenset[str]:
        """The principals of a request; :data:`ANONYMOUS` without a credential of a known scheme.

        :raises Unauthenticated: the scheme's own refusal, for one bad or over-long credential.
        """
        if not header:
            return ANONYMOUS
        principals = []
        for part in header[: MAX_HEADER + 1].split(";"):
            word, _, credential = part.strip().partition(" ")
            scheme = self._schemes.get(word.lower())
            if scheme is None:
                continue
            if len(header) > MAX_HEADER:
                raise scheme.refusal
            principals.append(scheme.identify(credential.strip()))
        return frozenset(principals)
