"""The page of workers where queues that it looks at are deleted meanwhile."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from queuey.console.pages import workers
from queuey.console.visits import V1Answer, Visit
from queuey.errors import QueueNotFound
from queuey.model.worker_reports import REPORTS


def may(*names: str, **_: object) -> V1Answer:
    """Of two queues in use; one of them is gone."""
    if len(names) > 1 and names[1] == "gone":
        raise QueueNotFound
    held = {"receiver": "ann", "state": "leased", "failures": 0, "visible_at": "1.0"}
    answers: dict[int, dict[str, Any]] = {
        1: {"queues": [{"queue_name": "gone"}, {"queue_name": "mail"}]},
        3: {"groups": [{"group": "workers"}]},
        4: {"leases": [held]},
    }
    return V1Answer(answers[len(names)], {})


def ask(*names: str, **_: object) -> V1Answer:
    assert names == ("demo", REPORTS)
    raise QueueNotFound


def test_a_queue_that_is_gone_is_left_out() -> None:
    visit = cast(Visit, SimpleNamespace(may=may, ask=ask, in_shell_of=lambda *_: None))

    shown = workers.show(visit, "demo").values

    assert [(one["queue"], one["receiver"]) for one in shown["receivers"]] == [("mail", "ann")]
