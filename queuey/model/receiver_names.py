"""Names of receivers in the holes of one partition (:mod:`queuey.model.holes`)."""

from __future__ import annotations

__all__ = ["ReceiverNames"]


class ReceiverNames:
    """Names of receivers, stored once each while a hole has them."""

    def __init__(self) -> None:
        self._names: list[str] = [""]
        self._uses: list[int] = [1]
        self._numbers: dict[str, int] = {"": 0}
        self._free: list[int] = []

    def __contains__(self, name: str) -> bool:
        return name in self._numbers

    def __getitem__(self, number: int) -> str:
        return self._names[number]

    def take(self, name: str, holes: int = 1) -> int:
        """The number of a name that more holes have now."""
        number = self._numbers.get(name)
        if number is None:
            number = self._free.pop() if self._free else len(self._names)
            if number == len(self._names):
                self._names.append("")
                self._uses.append(0)
            self._names[number], self._numbers[name] = name, number
        self._uses[number] += holes
        return number

    def give_back(self, number: int, holes: int = 1) -> None:
        """Fewer holes have this name now."""
        self._uses[number] -= holes
        if not self._uses[number] and number:
            del self._numbers[self._names[number]]
            self._names[number] = ""
            self._free.append(number)
