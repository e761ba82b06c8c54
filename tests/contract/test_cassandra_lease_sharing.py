"""Steps of lease groups that share a transaction of Cassandra come to the same as one after the other."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from queuey.storage.contract import SharingHistory
from queuey.storage.contract.common import drive_histories
from tests.support.joined_steps import PLANTED, note_joined
from tests.support.lease_servers import LeaseServer, LeaseServers, one_transaction


class Sharing(SharingHistory):
    """At two servers in turn."""

    def __init__(self, servers: Sequence[LeaseServer]) -> None:
        used = [*servers]
        super().__init__(
            lambda: used[0].stores,
            servers[0].clock,
            lambda group: one_transaction(used[0], group),
            used.reverse,
        )


def drive(servers: LeaseServers, examples: int) -> None:
    both = [servers.another(), servers.another()]
    drive_histories(lambda: Sharing(both), examples)
    sure = Sharing(both)  # what these histories may have left out
    sure.append([1, 2, 1, 1, 2, 1])
    sure.share([("nothing", 1)])
    sure.share([("nothing", 2), ("nothing", 1)])
    sure.share([("next", 0), ("next", 1), ("nothing", 1)])
    sure.append([1] * 12)
    sure.share([("nothing", 3)] * 4)
    few = Sharing(both)
    few.append([1] * 6)
    few.share([("nothing", 1)])
    few.share([("nothing", 1)] * 2)
    few.share([("first", 1), ("nothing", 1)])
    more = Sharing(both)
    more.append([1] * 6)
    more.share([("nothing", 1)])
    more.share([("nothing", 2)] * 2)


def test_steps_that_share_a_transaction_are_carried_out_one_after_the_other(
    lease_servers: LeaseServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    joined = note_joined(monkeypatch)
    drive(lease_servers, 6)
    assert max(joined) > 1


@pytest.mark.parametrize("fault", PLANTED)
def test_these_histories_find(fault: str, lease_servers: LeaseServers, monkeypatch: pytest.MonkeyPatch) -> None:
    PLANTED[fault](monkeypatch)
    with pytest.raises(AssertionError):
        drive(lease_servers, 1)
