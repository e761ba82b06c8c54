"""Where a request comes from, and how it began its way, behind proxies as well."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from queuey.http.exchange import Call

__all__ = ["address_of", "client_of", "is_from_here", "network_of", "scheme_of"]

MOST_HOPS = 20
"""Addresses of an X-Forwarded-For header that are looked at."""
_OF_PROXIES = ("x-forwarded-for", "forwarded", "x-real-ip", "via")
"""Headers by which a proxy says that it passes a request on."""
_CLIENT_BITS = 64
"""Of an address of IPv6, which a provider gives to one client."""


def address_of(call: Call, trusted: tuple[str, ...]) -> str:
    """The address of the client that sent a request, for a log.

    Each trusted proxy names the address that it got the request from, behind those that it was given. So the last address
    that is no trusted proxy's is the client's, and what stands before it is only what that client claims.

    :param trusted: addresses and networks of proxies, as of ``[server] trusted_proxies``.
    """
    found = call.peer
    if not trusted or not _is_trusted(found, trusted):
        return found
    for text in reversed(call.headers.get("x-forwarded-for", "").rsplit(",", MOST_HOPS)):
        hop = text.strip()
        if _parsed(hop) is None:
            break
        found = hop
        if not _is_trusted(hop, trusted):
            break
    return found


def is_from_here(call: Call) -> bool:
    """Whether a program on this machine asks for itself: a proxy on it says that it asks for others.

    The name of a Unix socket, which a WSGI server may give, is usually a proxy's.
    """
    address = _parsed(call.peer)
    return address is not None and address.is_loopback and not any(name in call.headers for name in _OF_PROXIES)


def client_of(call: Call, trusted: tuple[str, ...]) -> str:
    """What counts as the client that sent a request, where each has a share."""
    return network_of(address_of(call, trusted))


@lru_cache(maxsize=4096)
def network_of(address: str) -> str:
    """What counts as one client where each has a share: of IPv6 the first 64 bits, since one client has all others of them.

    >>> network_of("192.0.2.7"), network_of("2001:db8::7"), network_of("")
    ('192.0.2.7', '2001:db8::/64', '')
    """
    found = _parsed(address)
    return str(IPv6Network((found, _CLIENT_BITS), strict=False)) if isinstance(found, IPv6Address) else address


def scheme_of(forwarded: str) -> str:
    """How a client speaks to the first proxy, by what that and the proxies behind it say.

    :param forwarded: the header X-Forwarded-Proto, which this server also sets where it ends TLS itself.

    >>> scheme_of("https, http"), scheme_of(""), scheme_of("ftp")
    ('https', 'http', 'http')
    """
    return "https" if forwarded.partition(",")[0].strip().lower() == "https" else "http"


def _is_trusted(text: str, trusted: tuple[str, ...]) -> bool:
    address = _parsed(text)
    return address is not None and any(address in network for network in _networks(trusted))


@lru_cache(maxsize=8)
def _networks(trusted: tuple[str, ...]) -> tuple[IPv4Network | IPv6Network, ...]:
    return tuple(ip_network(one, strict=False) for one in trusted)


def _parsed(text: str) -> IPv4Address | IPv6Address | None:
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address
