"""What a state knows of keys: in a fair group how many leases each has, and elsewhere its holes in order."""

from __future__ import annotations

import heapq
from collections import Counter

from queuey.model.holes import GIVEN_UP, LEASED
from queuey.model.lease_state import LeaseState

__all__ = ["count_keys"]


def count_keys(state: LeaseState, *, wanted: bool) -> None:
    """Let a state keep the number of leases of each key, in place of the holes of each key in order."""
    if wanted == (state.leased_of is not None):
        return
    by_key = state._of_keys  # noqa: SLF001 - of this module
    by_key.clear()
    if wanted:
        state.leased_of = Counter(hole.key for hole in state.holes if hole.key is not None and hole.flags & LEASED)
        return
    state.leased_of = None
    for key in state.held_back.keys:
        while (found := state.held_back.take(key)) is not None:
            heapq.heappush(state._ready, found)  # noqa: SLF001
    for hole in state.holes:
        if hole.key is not None and not hole.flags & GIVEN_UP:
            by_key.setdefault(hole.key, []).append(hole.id)
