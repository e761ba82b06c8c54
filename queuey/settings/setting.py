"""One row of a table of settings: how its value is read, checked and shown."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from queuey.errors import ConfigurationError

__all__ = ["Setting"]

_BOOLEANS = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of the table."""

    section: str
    key: str
    kind: type
    default: Any
    help: str
    low: int | None = None
    high: int | None = None
    words: tuple[str, ...] = ()
    secret: bool = False
    """Its value is never shown."""

    @property
    def variable(self) -> str:
        """Its name in the environment."""
        middle = "" if self.section == "server" else f"{self.section.upper()}_"
        return f"QUEUEY_{middle}{self.key.upper()}"

    @property
    def attribute(self) -> str:
        """Its name in :class:`Settings`."""
        return self.key if self.section == "server" else f"{self.section}_{self.key}"

    @property
    def accepted(self) -> str:
        """The values it takes, in words."""
        if self.kind is bool:
            return "true or false"
        if self.kind is int:
            return f"{self.low} to {self.high}"
        if self.words:
            one = " or ".join(word or "nothing" for word in self.words)
            return f"{one}; several on lines of their own" if self.kind is tuple else one
        if self.kind is tuple:
            return "texts on lines of their own"
        return "a text" if self.default else "a text or nothing"

    def parse(self, text: str, origin: str) -> Any:
        """Text to value.

        :raises ConfigurationError: names the origin, the setting and what was expected.
        """
        value: Any = None
        if self.kind is bool:
            value = _BOOLEANS.get(text.lower())
        elif self.kind is int:
            number = int(text) if re.fullmatch(r"-?[0-9]{1,18}", text) else None
            value = number if number is not None and self._holds(number) else None
        elif self.kind is tuple:
            lines = tuple(dict.fromkeys(text.split()))
            value = lines if not self.words or set(lines) <= set(self.words) else None
        elif self.words:
            value = text if text in self.words else None
        elif text or not self.default:
            value = text
        if value is None:
            raise ConfigurationError(f"{origin}: [{self.section}] {self.key} = {text!r}: expected {self.accepted}")
        return value

    def to_text(self, value: Any) -> str:
        """Value to the text that :meth:`parse` reads."""
        if self.kind is tuple:
            return "\n".join(value)
        return str(value).lower() if self.kind is bool else str(value)

    def shown(self, value: Any) -> str:
        """Value to a text for people."""
        if self.secret:
            return f"({len(value)} hidden)" if self.kind is tuple else "(hidden)" if value else ""
        return " ".join(value) if self.kind is tuple else self.to_text(value)

    def _holds(self, number: int) -> bool:
        return (self.low is None or number >= self.low) and (self.high is None or number <= self.high)
