"""Free ports, so that several services live side by side on one machine."""

from __future__ import annotations

import random
import socket
from collections.abc import Sequence

LOWEST, HIGHEST = 12_000, 32_000
"""Below the range from which systems take the ports of outgoing connections: a port that is free now would
otherwise be somebody's before a slow starter binds it."""


def free_ports(count: int, addresses: Sequence[str]) -> list[int]:
    """This many ports, one after the other, each of them free on all of these addresses.

    They are this process's until it ends: no other process that asks here is given one of them, whether it is bound yet
    or not.
    """
    for _ in range(1000):
        first = random.SystemRandom().randrange(LOWEST, HIGHEST)  # tests seed the other generator
        block = list(range(first, first + count))
        if all(_is_free(address, port) for port in block for address in addresses) and _reserve(block):
            return block
    raise OSError(f"no {count} free ports in a row between {LOWEST} and {HIGHEST} on {', '.join(addresses)}")


def _reserve(ports: Sequence[int]) -> bool:
    """Bind the same numbers of UDP, which nothing here uses: the system gives them back when this process ends."""
    bound = []
    try:
        for port in ports:
            bound.append(socket.socket(type=socket.SOCK_DGRAM))
            bound[-1].bind(("127.0.0.1", port))
    except OSError:
        for one in bound:
            one.close()
        return False
    for one in bound:
        one.detach()
    return True


def _is_free(address: str, port: int) -> bool:
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((address, port))
        except OSError:
            return False
        return True
