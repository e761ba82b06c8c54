"""Servers and commands over Cassandra, on the node that the whole run shares.

The functional suite's server over Cassandra runs without a read delay: ``write_budget_ms = 0`` switches off the check of
appends that needs one. With one server, and tests that wait for each answer, nothing is lost by it, and tests that append
and read at once hold word for word. ``test_cassandra_*`` have the delay as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support import servers
from tests.support.commands import Ended, done, run_in
from tests.support.servers import RunningServer
from tests.support.services.fixtures import Reached

AT_ONCE = "write_budget_ms = 0\nread_delay_ms = 0\nclock_error_ms = 10000\ncache_ms = 20\n"
"""Lines of ``[cassandra]`` for one server whose readers ask only after the writers were answered."""


@dataclass(frozen=True)
class Delayed:
    """Two servers over one keyspace, with the read delay that they have without any setting."""

    first: RunningServer
    second: RunningServer
    variables: dict[str, str]
    """For commands on the same keyspace."""


def settings(node: Reached, keyspace: str, more: str = "", *, rest: str = "") -> str:
    """An ini file's words for a server.

    :param more: lines of ``[cassandra]``; ``rest``: sections.
    """
    where = f"hosts = {node.address}\nport = {node.port}\nkeyspace = {keyspace}\n"
    return f"threads = 8\n\n[storage]\nbackend = cassandra\n\n[cassandra]\n{where}{more}\n{rest}\n"


def variables(node: Reached, keyspace: str, **more: str) -> dict[str, str]:
    """The same for a command.

    :param more: keys of ``[cassandra]``.
    """
    given = {"hosts": node.address, "port": str(node.port), "keyspace": keyspace, **more}
    named = {f"QUEUEY_CASSANDRA_{key.upper()}": value for key, value in given.items()}
    return {"QUEUEY_STORAGE_BACKEND": "cassandra", **named}


def init(node: Reached, keyspace: str, *, replication: str = "1", **more: str) -> Ended:
    """``queuey init``, which must succeed.

    :param more: keys of ``[cassandra]``.
    """
    return done(run_in(variables(node, keyspace, **more), None, "init", "--replication", replication))


@contextmanager
def served(folder: Path, node: Reached, keyspace: str, *, rest: str = "") -> Iterator[RunningServer]:
    """A keyspace made by ``queuey init``, and a server over it that shows at once what was appended."""
    init(node, keyspace)
    with servers.shipped(folder, settings=settings(node, keyspace, AT_ONCE, rest=rest), name="cassandra") as running:
        yield running
