"""Workers that are members of a group, from inside."""

from __future__ import annotations

from qdo import Worker
from qdo.worker.member_work import MemberWork


def member_of(worker: Worker) -> MemberWork:
    assert isinstance(worker.work, MemberWork)
    return worker.work
