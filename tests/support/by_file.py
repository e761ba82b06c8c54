"""Which process of pytest-xdist runs which tests: a file is not divided, nor is a group of :data:`TOGETHER`.

A process that dies takes one test with it, not the run. In pytest-xdist 3.8 the processes that are left
get the dead process's finished files as empty work, which nobody answers, and wait for ever
(its issues 1323, 1327 and 1378).
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from xdist.scheduler import LoadScopeScheduling

BREAKS_NODES = "tests/faults/on_cassandra/"
ISSUERS = tuple(f"tests/functional/test_{what}.py" for what in ("client", "identity", "isolation", "openapi", "tokens"))
READ_DELAY = (
    "tests/functional/slots/",
    *(f"tests/functional/test_cassandra_{what}.py" for what in ("commands", "delay", "leases", "servers", "sqs")),
    *(f"tests/functional/test_leases{what}.py" for what in ("", "_of_several")),
    *(f"tests/functional/test_live_{what}.py" for what in ("cassandra", "streams")),
    "tests/functional/test_key_removal.py",
)
EVERYWHERE = tuple(
    f"tests/functional/{what}.py" for what in ("test_alike", "test_alike_leases", "test_wsgi", "v1/test_delivery")
)
PARSES_SOURCE = ("tests/test_house.py", "tests/test_layers.py")
FOLDERS = tuple((f"tests/{folder}/",) for folder in ("pipeline", "functional/sqs", "functional/console"))
TOGETHER = ((BREAKS_NODES,), *FOLDERS, ISSUERS, READ_DELAY, EVERYWHERE, PARSES_SOURCE)
"""Groups of folders and files whose tests share what is costly: three nodes, a Spark, servers of their own, those that trust
issuers, two servers over one keyspace with the read delay, the WSGI application beside the others, the syntax trees of all
modules.
"""
LEAST = 2
"""A process begins a test when it knows the next one, or that there is none."""


class ByFile(LoadScopeScheduling):  # type: ignore[misc]  # which has no types
    """Hands out whole files; what a dead process left goes to the others, without what it finished."""

    def _split_scope(self, nodeid: str) -> str:
        return next((group[0] for group in TOGETHER if nodeid.startswith(group)), nodeid.partition("::")[0])

    def remove_node(self, node: Any) -> str | None:
        """The test that the process died in, which has failed; ``None`` where it had nothing left to do."""
        assigned = self.assigned_work.pop(node)
        left = [(scope, test) for scope, tests in assigned.items() for test, is_done in tests.items() if not is_done]
        if not left:
            return None
        fatal_scope, fatal = left[0]
        assigned[fatal_scope][fatal] = True
        self.workqueue.update({scope: assigned[scope] for scope, _ in left if not all(assigned[scope].values())})
        for other in self.assigned_work:
            self._reschedule(other)
        return str(fatal)

    def _assign_work_unit(self, node: Any) -> None:
        with suppress(OSError):  # the process has just died: remove_node comes, and gives its work to others
            super()._assign_work_unit(node)

    def _reschedule(self, node: Any) -> None:
        super()._reschedule(node)
        while self.workqueue and not node.shutting_down and self._pending_of(self.assigned_work[node]) < LEAST:
            super()._reschedule(node)
