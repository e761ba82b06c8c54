"""Free ports, so that several services live side by side on one machine."""

from __future__ import annotations

import random
import socket
from collections.abc import Sequence

LOWEST, HIGHEST = 12_000, 32_000
"""Below the range from which systems take the ports of outgoing connections: a port that is free now would
otherwise be somebody's before a slow starter binds it."""


def free_ports(count: int, addresses: Sequence[str]) -> list[int]:
    """This many ports, one after the other, each of them free on all of these addresses."""
    for _ in range(1000):
        first = random.randrange(LOWEST, HIGHEST)
        block = list(range(first, first + count))
        if all(_is_free(address, port) for port in block for address in addresses):
            return block
    raise OSError(f"no {count} free ports in a row between {LOWEST} and {HIGHEST} on {', '.join(addresses)}")


def _is_free(address: str, port: int) -> bool:
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((address, port))
        except OSError:
            return False
        return True
