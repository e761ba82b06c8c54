"""The address of a client behind proxies, and what clients may not claim."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuey.http.addresses import address_of
from queuey.http.exchange import Call

PROXIES = ("127.0.0.1", "10.0.0.0/8", "fd00::/8")


def seen(peer: str, forwarded: str | None, trusted: tuple[str, ...] = PROXIES) -> str:
    call = Call("GET", "/", "", {} if forwarded is None else {"x-forwarded-for": forwarded})
    call.peer = peer
    return address_of(call, trusted)


@pytest.mark.parametrize(
    ("peer", "forwarded", "address"),
    [
        ("127.0.0.1", None, "127.0.0.1"),
        ("127.0.0.1", "192.0.2.7", "192.0.2.7"),
        ("127.0.0.1", "192.0.2.7, 10.0.0.9", "192.0.2.7"),
        ("127.0.0.1", "198.51.100.1, 192.0.2.7, 10.0.0.9", "192.0.2.7"),
        ("127.0.0.1", "2001:db8::1, fd00::5", "2001:db8::1"),
        ("::ffff:127.0.0.1", "192.0.2.7", "192.0.2.7"),
        ("192.0.2.1", "198.51.100.1", "192.0.2.1"),
        ("127.0.0.1", "nobody", "127.0.0.1"),
        ("127.0.0.1", "nobody, 10.0.0.9", "10.0.0.9"),
        ("127.0.0.1", "", "127.0.0.1"),
        ("", "192.0.2.7", ""),
    ],
)
def test_the_last_address_that_is_no_proxys_is_the_clients(peer: str, forwarded: str | None, address: str) -> None:
    assert seen(peer, forwarded) == address


@given(st.text())
def test_without_trusted_proxies_no_header_counts(forwarded: str) -> None:
    assert seen("127.0.0.1", forwarded, ()) == "127.0.0.1"


@given(st.text(), st.ip_addresses(v=4).map(str))
def test_what_stands_before_the_clients_own_address_never_counts(claimed: str, client: str) -> None:
    if client.startswith(("10.", "127.0.0.1")):
        return

    assert seen("127.0.0.1", f"{claimed}, {client}, 10.1.2.3") == client


def test_a_header_of_very_many_addresses_is_looked_at_up_to_a_bound() -> None:
    assert seen("127.0.0.1", ", ".join(["192.0.2.7"] + ["10.0.0.1"] * 5000)) == "10.0.0.1"
