"""What the console says of a release: what was done, and not what was asked for."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from queuey.console.pages import releases
from queuey.console.visits import V1Answer, Visit
from queuey.errors import StaleReceipt


def visit(stale: int) -> Visit:
    """Of a group whose receiver ``gone`` holds three messages, until their release is asked for: then some are settled."""
    held = [{"receiver": "gone", "receipt": f"r{number}"} for number in range(3)]

    def change(_method: str, _names: object, document: Mapping[str, Any]) -> V1Answer:
        receipts = [one["receipt"] for one in document["release"]]
        return V1Answer({"settled": {"released": len(receipts) - stale, "stale": receipts[:stale]}}, {})

    return cast(
        Visit,
        SimpleNamespace(form={"receiver": "gone"}, ask=lambda *_, **__: V1Answer({"leases": held}, {}), change=change),
    )


@pytest.mark.parametrize(("stale", "query"), [(0, "told=released&done=3"), (2, "told=released-some&done=1&left=2")])
def test_the_page_says_how_many_were_released(stale: int, query: str) -> None:
    answer = releases.release(visit(stale), "demo", "mail", "workers")

    assert answer.location == f"/console/a/demo/mail/l/workers?{query}"


def test_nothing_was_released_if_all_leases_had_ended() -> None:
    with pytest.raises(StaleReceipt, match="no message was released"):
        releases.release(visit(3), "demo", "mail", "workers")
