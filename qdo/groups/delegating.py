"""A coordinator that hands everything on to another one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from qdo.groups.assign import Partition
from qdo.groups.coordination import Coordinator, Member, Plan

__all__ = ["DelegatingCoordinator"]


class DelegatingCoordinator(Coordinator):
    """Hands on what has nothing to do with offsets. Subclasses say where offsets are."""

    def __init__(self, inner: Coordinator) -> None:
        self._inner = inner

    def join(self, about: Mapping[str, Any]) -> str:
        return self._inner.join(about)

    def tell(self, about: Mapping[str, Any]) -> None:
        self._inner.tell(about)

    def leave(self) -> None:
        self._inner.leave()

    def trusted(self) -> bool:
        return self._inner.trusted()

    def members(self) -> Sequence[Member]:
        return self._inner.members()

    def plan(self) -> Plan:
        return self._inner.plan()

    def propose(self, plan: Plan) -> bool:
        return self._inner.propose(plan)

    def resets(self) -> int:
        return self._inner.resets()

    def owners(self) -> Mapping[Partition, tuple[str, int]]:
        return self._inner.owners()

    def known(self) -> Collection[Partition]:
        return self._inner.known()

    def close(self) -> None:
        self._inner.close()

    @property
    def changed(self) -> Callable[[], None]:
        return self._inner.changed

    @changed.setter
    def changed(self, called: Callable[[], None]) -> None:
        self._inner.changed = called
