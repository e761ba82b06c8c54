"""How many sign-ins may ask issuers at once: of all, at one issuer, and of one client."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from queuey.console.providers import Exchanges
from queuey.errors import Throttled


def refused(exchanges: Exchanges, issuer: str, client: str) -> bool:
    try:
        with exchanges.begun(issuer, client):
            return False
    except Throttled:
        return True


def test_one_client_holds_up_no_other_one() -> None:
    exchanges = Exchanges(4)

    with exchanges.begun("staff", "192.0.2.1"):
        assert refused(exchanges, "staff", "192.0.2.1")
        assert refused(exchanges, "guests", "192.0.2.1")
        assert not refused(exchanges, "staff", "192.0.2.2")
    assert not refused(exchanges, "staff", "192.0.2.1")


def test_one_slow_issuer_holds_up_no_other_one() -> None:
    exchanges = Exchanges(4)

    with exchanges.begun("slow", "192.0.2.1"), exchanges.begun("slow", "192.0.2.2"):
        assert refused(exchanges, "slow", "192.0.2.3")
        assert not refused(exchanges, "staff", "192.0.2.3")


@pytest.mark.parametrize(("threads", "most"), [(1, 1), (2, 1), (3, 2), (4, 3), (64, 63)])
def test_a_thread_is_left_where_there_are_several(threads: int, most: int) -> None:
    exchanges = Exchanges(threads)

    with ExitStack() as stack:
        for number in range(most):
            stack.enter_context(exchanges.begun(f"issuer-{number}", f"192.0.2.{number}"))
        assert refused(exchanges, "another", "198.51.100.1")
    assert not refused(exchanges, "another", "198.51.100.1")


def test_an_exchange_that_fails_gives_its_place_back() -> None:
    exchanges = Exchanges(1)

    with pytest.raises(ValueError, match="no token"), exchanges.begun("staff", "192.0.2.1"):
        raise ValueError("no token")
    assert not refused(exchanges, "staff", "192.0.2.1")
