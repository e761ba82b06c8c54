"""The outcomes of appends by idempotency key, in memory. The caller has the lock of the process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from queuey.clock import Clock
from queuey.errors import KeyReused
from queuey.ids import TICKS_PER_SECOND
from queuey.model import AppendRequest, IdempotencyKey, Location

__all__ = ["StoredKeys"]


class _StoredKey(NamedTuple):
    """The outcome stored for an idempotency key."""

    digest: bytes
    placed: Sequence[Location]
    expires_ticks: int


class StoredKeys:
    """The idempotency keys of all queues."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._stored: dict[tuple[UUID, str], _StoredKey] = {}

    def sweep(self, now_ticks: int) -> None:
        """Forget keys that have expired."""
        self._stored = {at: kept for at, kept in self._stored.items() if kept.expires_ticks > now_ticks}

    def forget_queue(self, queue: UUID) -> None:
        """Forget the keys of a dropped incarnation."""
        self._stored = {at: kept for at, kept in self._stored.items() if at[0] != queue}

    def refuse_reused(self, request: AppendRequest) -> None:
        """Refuse a key with two digests, before anything is stored.

        The other digest may be in the store or in the request.
        """
        asked: dict[str, bytes] = {}
        for idempotency in (request.idempotency, *(draft.idempotency for draft in request.drafts)):
            if idempotency is None:
                continue
            kept = self._live_key(request.queue.uuid, idempotency.key)
            known = kept.digest if kept is not None else asked.setdefault(idempotency.key, idempotency.digest)
            if known != idempotency.digest:
                raise KeyReused

    def _live_key(self, queue: UUID, key: str) -> _StoredKey | None:
        kept = self._stored.get((queue, key))
        return kept if kept is not None and kept.expires_ticks > self._clock.now_ticks() else None

    def recall(self, queue: UUID, idempotency: IdempotencyKey | None) -> Sequence[Location] | None:
        kept = self._live_key(queue, idempotency.key) if idempotency is not None else None
        return kept.placed if kept is not None else None

    def remember(self, queue: UUID, idempotency: IdempotencyKey | None, placed: Sequence[Location]) -> None:
        if idempotency is not None:
            expires = self._clock.now_ticks() + idempotency.seconds * TICKS_PER_SECOND
            self._stored[queue, idempotency.key] = _StoredKey(idempotency.digest, tuple(placed), expires)
