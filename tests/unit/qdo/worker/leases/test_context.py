"""What a job of leased messages asks for beside them."""

from __future__ import annotations

from qdo.worker.leases.context import LeaseContext
from qdo.worker.options import WorkerOptions
from tests.support.lease_server import LeaseServer


def test_what_one_job_wants_for_its_last_attempt_does_not_count_for_the_next_job() -> None:
    """Or a result that is refused at a first attempt would let its message be given up at once."""
    group = LeaseServer()
    context = LeaseContext(WorkerOptions(lease=True), "m", group.clock)
    group.answer(group.asks(), group.delivery(), group.delivery())

    context.begin(group.begin(0))
    context.reject_if_refused([])
    context.begin(group.begin(1))
    context.append("results", "of the second job")

    assert context.instead is None
