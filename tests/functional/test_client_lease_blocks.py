"""Blocks that work on a message: they extend its lease, and settle it at their end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest

from qdo.client import Client, Delivery, NewMessage, Settle
from qdo.client.lease_values import receipt_of
from queuey.errors import InvalidParameter, StaleReceipt
from tests.support.client import Server
from tests.support.servers import eventually


def work(client: Client, queue: str, job: Callable[[Delivery], object], **options: Any) -> None:
    """A block that does something with one message."""
    with client.receive_one(queue, "g", **options) as delivery:
        assert delivery is not None
        job(delivery)


LEASE_SECONDS = 4.5
"""A third of it passes until it is extended; two thirds are left for a busy machine."""


def until_extended(client: Client, queue: str, *groups: str, times: int = 1) -> None:
    """Until all leases of these groups were extended this often."""
    for _ in range(times):
        before = ends(client, queue, *groups)
        assert before
        eventually(lambda before=before: all(now > before[of] for of, now in ends(client, queue, *groups).items()))  # type: ignore[misc]


def ends(client: Client, queue: str, *groups: str) -> dict[tuple[str, str], float]:
    """When the leases of these groups end, by group and message."""
    return {(group, lease.id.hex): float(lease.visible_at) for group in groups for lease in client.leases(queue, group)}


def settled_elsewhere(client: Client, delivery: Delivery) -> None:
    """Another process ends the lease."""
    client.settle(delivery.queue, delivery.group, Settle(acknowledge=[receipt_of(delivery)]))


def test_a_block_extends_its_lease_and_acknowledges_at_its_end(client: Client, queue: str) -> None:
    client.append(queue, "x")

    with client.receive_one(queue, "g", visibility=LEASE_SECONDS) as delivery:
        assert delivery is not None
        until_extended(client, queue, "g", times=2)
        assert client.receive(queue, "g") == []
        assert not delivery.is_lost

    assert list(client.leases(queue, "g")) == []
    with client.receive_one(queue, "g") as nothing:
        assert nothing is None


def test_leases_that_are_held_together_are_extended_together(client: Client, queue: str) -> None:
    client.append_batch(queue, list("abcdef"))
    with ExitStack() as stack:
        for delivery in client.receive(queue, "g", 3, visibility=LEASE_SECONDS):
            stack.enter_context(delivery)
        for delivery in client.receive(queue, "h", 3, visibility=LEASE_SECONDS + 1):
            stack.enter_context(delivery)
        until_extended(client, queue, "g", "h")
        assert {lease.deliveries for group in "gh" for lease in client.leases(queue, group)} == {1}
        assert {lease.state for group in "gh" for lease in client.leases(queue, group)} == {"leased"}
        assert sum(thread.name == "queuey-leases" for thread in threading.enumerate()) <= 1


def test_a_lease_of_the_groups_length_is_extended_as_well(client: Client, queue: str) -> None:
    client.set_lease_group(queue, "g", visibility=LEASE_SECONDS)
    client.append(queue, "x")
    (delivery,) = client.receive(queue, "g", visibility=0)
    (delivery,) = client.receive(queue, "g")

    with delivery:
        until_extended(client, queue, "g")

    assert delivery.deliveries == 2
    assert list(client.leases(queue, "g")) == []


class BrokenError(Exception):
    """A block fails."""


@pytest.mark.parametrize(("error", "failures"), [(BrokenError, 1), (KeyboardInterrupt, 0), (SystemExit, 0)])
def test_a_block_that_raises_releases(client: Client, queue: str, error: type[BaseException], failures: int) -> None:
    client.set_lease_group(queue, "g", backoff={"first": 0})
    client.append(queue, "x")

    with pytest.raises(error), client.receive_one(queue, "g", visibility=3600):
        raise error

    (again,) = client.receive(queue, "g")
    assert (again.deliveries, again.failures) == (2, failures)


def test_a_block_may_settle_by_itself(client: Client, queue: str) -> None:
    client.append_batch(queue, [NewMessage(text, partition=1) for text in "ab"])

    def fail(delivery: Delivery) -> None:
        client.settle(queue, "g", Settle(acknowledge=[delivery]))
        raise BrokenError

    work(client, queue, lambda delivery: delivery.reject("no"))
    with pytest.raises(BrokenError):
        work(client, queue, fail)

    assert (client.receive(queue, "g"), list(client.leases(queue, "g"))) == ([], [])
    assert [message.text for message in client.read(f"{queue}-dead").messages] == ["a"]


def test_a_block_whose_lease_had_ended_says_so(client: Client, queue: str) -> None:
    client.append_batch(queue, ["a", "b"])

    def fail(delivery: Delivery) -> None:
        settled_elsewhere(client, delivery)
        raise BrokenError

    with pytest.raises(StaleReceipt):
        work(client, queue, lambda delivery: settled_elsewhere(client, delivery))
    with pytest.raises(BrokenError):
        work(client, queue, fail)


def test_a_block_learns_that_its_lease_is_lost(client: Client, queue: str) -> None:
    client.append(queue, "x")

    def look(delivery: Delivery) -> None:
        settled_elsewhere(client, delivery)
        assert eventually(lambda: delivery.is_lost)

    with pytest.raises(StaleReceipt):
        work(client, queue, look, visibility=1)


def test_a_long_extension_in_a_block_stays(client: Client, queue: str) -> None:
    """While its thread extends another."""
    client.append_batch(queue, [NewMessage(text, partition=1) for text in "ab"])

    with (
        client.receive_one(queue, "g", visibility=LEASE_SECONDS) as long,
        client.receive_one(queue, "h", visibility=LEASE_SECONDS) as short,
    ):
        assert long is not None
        assert short is not None
        long.extend(3600)
        until_extended(client, queue, "h")
        (lease,) = client.leases(queue, "g")
        assert float(lease.visible_at) - time.time() == pytest.approx(3600, abs=60)


def test_one_message_for_a_block_cannot_be_popped(client: Client, queue: str) -> None:
    with pytest.raises(InvalidParameter, match="pop"), client.receive_one(queue, "g", pop=True):
        pass


def test_a_client_that_is_closed_extends_nothing(seen: Server, client: Client, queue: str) -> None:
    client.append(queue, "x")
    other = Client(seen.url, seen.application, seen.key)
    (delivery,) = other.receive(queue, "g", visibility=1)
    delivery.__enter__()
    other.close()

    (again,) = eventually(lambda: client.receive(queue, "g"))
    assert again.text == "x"
