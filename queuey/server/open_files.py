"""How many connections a process may have: each is an open file, and the store needs some."""

from __future__ import annotations

from typing import NamedTuple

from queuey.errors import ConfigurationError

__all__ = ["ConnectionRoom", "few_files", "files_for", "more_files", "room_for"]

BESIDE = 100
"""Open files that a server needs besides its connections."""
SPARE = 1000
"""Connections above the bound that get their refusal. More are cut at once."""
_SMALL_SPARE = 10
"""With few files, one in eleven connections is above the bound."""
LEAST_FILES = BESIDE + 28


class ConnectionRoom(NamedTuple):
    """Connections that a server takes."""

    most: int
    """More are refused."""
    spare: int
    """Those above the bound that are told so."""


def room_for(connections: int, files: float) -> ConnectionRoom:
    """The connections that a server takes: those that are wanted, or as many as it may open files for.

    >>> room_for(10_000, 65_536), room_for(10_000, 1024), room_for(10, 128)
    (ConnectionRoom(most=10000, spare=1000), ConnectionRoom(most=840, spare=84), ConnectionRoom(most=10, spare=18))

    :raises ConfigurationError: no server can work with so few files.
    """
    if files < LEAST_FILES:
        raise ConfigurationError(
            f"this process may open {files:,} files, and a server needs {LEAST_FILES}: raise the limit with 'ulimit -n', "
            "or LimitNOFILE in the unit"
        )
    left = files - BESIDE
    if left >= connections + SPARE:
        return ConnectionRoom(connections, SPARE)
    most = min(connections, left - max(1, left // (_SMALL_SPARE + 1)))
    return ConnectionRoom(int(most), int(left - most))


def few_files(connections: int, files: float) -> str | None:
    """What is wrong with the limit on open files, and what to do; None if nothing is."""
    most = room_for(connections, files).most
    if most == connections:
        return None
    return (
        f"may open {files:,} files, and so takes {most:,} connections at most, not the {connections:,} of [server] connections: "
        f"{more_files(files_for(connections))}"
    )


def files_for(connections: int) -> int:
    """Files that a server opens at most.

    >>> files_for(10_000)
    11100
    """
    return connections + SPARE + BESIDE


def more_files(needed: int) -> str:
    """What to do where a server may open fewer files than this."""
    return f"set LimitNOFILE={needed} in the unit, or ulimit -n {needed} in the shell, or lower [server] connections"
