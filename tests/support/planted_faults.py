"""Faults for the workers: what a worker must not be like. The judges of the fault tests have to find each of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping

from qdo.groups.assign import Partition
from qdo.groups.coordination import Claim, CommittedOffset
from qdo.groups.zookeeper import ZooKeeperCoordinator
from qdo.groups.zookeeper_nodes import GroupNodes
from queuey.clock import SystemClock
from tests.support.planting import plant

Claiming = Callable[[ZooKeeperCoordinator, Collection[Partition]], Mapping[Claim, CommittedOffset | None]]
_claim: Claiming = ZooKeeperCoordinator.claim


def _claim_and_believe(
    self: ZooKeeperCoordinator, partitions: Collection[Partition]
) -> Mapping[Claim, CommittedOffset | None]:
    """An attempt that was answered "no" is taken for success."""
    got = dict(_claim(self, partitions))
    owners, offsets = self.owners(), self.offsets()
    refused = set(partitions) - {claim.partition for claim in got}
    return got | {Claim(part, owners.get(part, ("", 0))[1] + 1): offsets.get(part) for part in refused}


def _commit_unchecked(self: GroupNodes, offsets: Mapping[Claim, CommittedOffset]) -> list[Claim]:
    """The offset is set without a look at the claim: a late owner overwrites what its successor did."""
    for claim, offset in offsets.items():
        self._session.client.set(self.node("offsets", claim.partition), str(offset).encode())
    return []


def _believing() -> None:
    plant(ZooKeeperCoordinator, "claim", _claim_and_believe)


def _unchecked() -> None:
    plant(GroupNodes, "_commit", _commit_unchecked)


def _by_the_wall() -> None:
    """The wall clock decides which members are dead."""
    plant(SystemClock, "elapsed", lambda _self: time.time())


FAULTS: Mapping[str, Callable[[], None]] = {
    "none": lambda: None,
    "believing": _believing,
    "unchecked": _unchecked,
    "by-the-wall": _by_the_wall,
}
