"""Members of a JSON object, each checked: what is unknown or wrong is named, all of it in one answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from queuey.api.params import Problems, in_range

__all__ = ["JsonFields"]

_SHOWN = 40


class JsonFields:
    """The members of one object. An absent member has the default that the caller names; null is refused."""

    def __init__(self, document: Any, known: Sequence[str], problems: Problems, prefix: str = "") -> None:
        """:param prefix: stands before the name of each member in the problems."""
        self.problems, self.prefix = problems, prefix
        self._document: Mapping[str, Any] = {}
        if not isinstance(document, dict):
            problems.add(prefix.removesuffix(".") or "body", "must be an object")
            return
        self._document = document
        for name, value in document.items():
            if name not in known:
                problems.add(prefix + name[:_SHOWN], f"unknown: expected {', '.join(known)}")
            elif value is None:
                problems.add(prefix + name, "must not be null: leave it out")

    def __contains__(self, name: str) -> bool:
        return self._document.get(name) is not None

    def has_any(self, *names: str) -> bool:
        """Whether one of these members is there."""
        return not self._document.keys().isdisjoint(names)

    def wrong(self, name: str, text: str) -> None:
        """Note a problem of a member."""
        self.problems.add(self.prefix + name, text)

    def raw(self, name: str) -> Any:
        """A member as it is; None if it is absent."""
        return self._document.get(name)

    def text(self, name: str, default: str, *, most: int, least: int = 1) -> str:
        """A text of ``least`` to ``most`` printable characters."""
        value = self._document.get(name)
        if value is None:
            return default
        if not isinstance(value, str) or not least <= len(value) <= most or not value.isprintable():
            self.wrong(name, f"must be a text of {least} to {most} printable characters")
            return default
        return value

    def lines(self, name: str, *, most: int) -> str:
        """A text of at most ``most`` characters, line ends among them; empty if it is not there."""
        value = self._document.get(name)
        if value is None:
            return ""
        if not isinstance(value, str) or len(value) > most:
            self.wrong(name, f"must be a text of at most {most} characters")
            return ""
        return value

    def flag(self, name: str, *, default: bool) -> bool:
        """True or false."""
        value = self._document.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.wrong(name, "must be true or false")
        return value is True

    def whole(self, name: str, default: int, low: int, high: int) -> int:
        """A whole number in a range."""
        value = self._document.get(name)
        if value is None:
            return default
        if not isinstance(value, int) or isinstance(value, bool):
            self.wrong(name, f"must be a whole number from {low} to {high}")
            return default
        return self._within(name, value, low, high, default)

    def seconds(self, name: str, default: float | None, low: float, high: float) -> float | None:
        """A number in a range."""
        value = self._document.get(name)
        if value is None:
            return default
        if not isinstance(value, int | float) or isinstance(value, bool):
            self.wrong(name, f"must be a number from {low:.12g} to {high:.12g}")
            return default
        if not low <= value <= high:
            self.wrong(name, f"{value:.12g} is not from {low:.12g} to {high:.12g}")
            return default
        return float(value)

    def entries(self, name: str, *, most: int) -> Sequence[Any]:
        """A list of at most this many entries; empty if it is absent."""
        value = self._document.get(name)
        if value is None:
            return ()
        if not isinstance(value, list):
            self.wrong(name, "must be a list")
            return ()
        if len(value) > most:
            self.wrong(name, f"has {len(value)} entries: at most {most} may stand in one request")
            return ()
        return value

    def _within(self, name: str, value: int, low: int, high: int, default: int) -> int:
        try:
            return in_range(value, low, high)
        except ValueError as error:
            self.wrong(name, str(error))
            return default
