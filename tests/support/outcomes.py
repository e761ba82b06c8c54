"""What came of requests, beside what each of them changed on the disk."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Outcomes:
    """What came of requests that were sent one after the other, each compared with what it changed on the disk."""

    statuses: dict[str, int] = field(default_factory=dict)
    stored_though_refused: list[str] = field(default_factory=list)
    unchanged_though_ok: list[str] = field(default_factory=list)

    def note(self, name: str, status: int, *, changed: bool) -> None:
        self.statuses[name] = status
        if changed and status >= 400:
            self.stored_though_refused.append(name)
        if not changed and status < 300:
            self.unchanged_though_ok.append(name)

    @property
    def refused(self) -> int:
        return sum(status >= 400 for status in self.statuses.values())
