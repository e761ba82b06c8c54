"""Settings are declared once, as fields of frozen dataclasses: a field gives the type at use, and a row of the table.

A section is a dataclass whose fields are made by :func:`setting`. :func:`rows_of` reads the rows back: how a value is
read from text, checked, shown and described.
"""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from typing import Any, TypeVar

from queuey.errors import ConfigurationError

__all__ = ["Setting", "rows_of", "setting"]

T = TypeVar("T", bound=str | int | tuple[str, ...])
_BOOLEANS = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of the table."""

    section: str
    key: str
    default: Any
    help: str
    low: int | None = None
    high: int | None = None
    words: tuple[str, ...] = ()
    secret: bool = False
    """Its value is never shown."""

    @property
    def kind(self) -> type:
        """The type of its values: str, int, bool, or tuple (of texts)."""
        return type(self.default)

    @property
    def name(self) -> str:
        """``section.key``: its name in :attr:`Settings.origins` and in the docs."""
        return f"{self.section}.{self.key}"

    @property
    def variable(self) -> str:
        """Its name in the environment."""
        middle = "" if self.section == "server" else f"{self.section.upper()}_"
        return f"QUEUEY_{middle}{self.key.upper()}"

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


def setting(
    default: T,
    help: str,  # noqa: A002  what click calls it
    *,
    low: int | None = None,
    high: int | None = None,
    words: tuple[str, ...] = (),
    secret: bool = False,
) -> T:
    """A field of a section: its default, one sentence of help, its bounds or the words it takes."""
    declared = {"help": help, "low": low, "high": high, "words": words, "secret": secret}
    return dataclasses.field(default=default, metadata=declared, repr=not secret)


def rows_of(section: str, declared: type) -> tuple[Setting, ...]:
    """The table of one section, in the order of its dataclass; fields that :func:`setting` did not make have no row."""
    return tuple(
        Setting(section, field.name, field.default, **field.metadata)
        for field in dataclasses.fields(declared)
        if field.metadata
    )
