"""What the tests of lease groups have in common: one group of one queue, and what is done to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from queuey.model.lease_groups import GroupSettings, LeaseGroup
from queuey.model.lease_requests import Acknowledged, Action, ReceiveRequest, Settle
from queuey.model.lease_steps import GroupStep, HandedOut, LeaseCounts, LeaseOutcome, LeaseStep
from queuey.storage import LeaseStore, Stores
from queuey.storage.contract.common import QueueLog, StoreContract, done

__all__ = ["TOKEN", "Receiver", "WithLeases", "bodies", "settle_of"]

TOKEN = 77


class Receiver:
    """One group of one queue, with what many tests do to it."""

    def __init__(self, store: LeaseStore, log: QueueLog, name: str = "workers", **settings: Any) -> None:
        self.store, self.log, self.name = store, log, name
        self.queue = log.queue
        self.token = TOKEN
        self.new: LeaseGroup | None = LeaseGroup(TOKEN, settings=GroupSettings(**settings))
        self.outcome = LeaseOutcome(0, 0, [])
        """Of the last step."""

    @property
    def numbers(self) -> range:
        return range(1, self.queue.partitions + 1)

    def step(
        self,
        settles: Mapping[int, Sequence[Settle]] | None = None,
        *,
        receive: ReceiveRequest | None = None,
        partitions: Sequence[int] = (),
        **more: Any,
    ) -> LeaseOutcome:
        renewals = more.pop("renewals", ())
        token = more.pop("token", self.token if settles else None)
        from_ = (partitions or self.numbers) if receive is not None else ()
        given = {number: as_columns(some) for number, some in (settles or {}).items()}
        group = GroupStep(self.queue, self.name, self.new, token, given, renewals, from_)
        self.outcome = done(self.store.step(LeaseStep([group], receive=receive, **more)))
        return self.outcome

    def receive(self, most: int = 1, *, partitions: Sequence[int] = (), **how: Any) -> list[HandedOut]:
        """Receive; with the read delay of the store over, so that what was appended may be handed out."""
        self.log.watermark()
        wanted = ReceiveRequest(most, **{"visibility_seconds": None} | how)
        return list(self.step(receive=wanted, partitions=partitions).handed)

    def settle(self, one: HandedOut, action: Action = Action.ACKNOWLEDGE, **how: Any) -> bool:
        """Settle one lease; False if it is stale."""
        return not self.step({one.partition: [settle_of(one, action, **how)]}).stale

    def count(self, partition: int = 1) -> LeaseCounts:
        return done(self.store.count(self.queue.uuid, self.name, [partition]))[partition]


def as_columns(settles: Sequence[Settle]) -> Sequence[Settle]:
    """Settles in the form in which a server gives them: by column if all are acknowledgements."""
    if any(one.action is not Action.ACKNOWLEDGE for one in settles):
        return settles
    return Acknowledged([one.id for one in settles], [one.delivery for one in settles])


def settle_of(one: HandedOut, action: Action = Action.ACKNOWLEDGE, **how: Any) -> Settle:
    return Settle(one.message.id, one.hole.deliveries, action, **how)


def bodies(handed: Sequence[HandedOut]) -> list[bytes]:
    return [one.message.body for one in handed]


class WithLeases(StoreContract):
    """The fixtures of these tests."""

    @pytest.fixture
    def leases(self, stores: Stores) -> LeaseStore:
        return stores.leases

    @pytest.fixture
    def jobs(self, leases: LeaseStore, log: QueueLog) -> Receiver:
        return Receiver(leases, log)
