"""Steps of one commit that are carried out together: how many are, and faults that are planted there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from queuey.model import Columns, Message, together
from queuey.model.lease_requests import ReceiveRequest
from queuey.model.lease_steps import LeaseOutcome
from queuey.storage.leasing.joining import _Joined, _Source

_take, _take_one, _ended = _Source.take, _Source.take_one, _Joined._ended


def note_joined(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many steps are carried out together, each time."""
    joined: list[int] = []
    outcomes = _Joined.outcomes

    def noted(steps: _Joined) -> Sequence[LeaseOutcome]:
        found = outcomes(steps)
        joined.append(len(found))
        return found

    monkeypatch.setattr(_Joined, "outcomes", noted)
    return joined


def _hands_out_twice(source: _Source, wanted: ReceiveRequest, most: int) -> Columns:
    return source.ahead[: len(_take(source, wanted, most))]


def _hands_one_out_twice(source: _Source, wanted: ReceiveRequest, most: int) -> Message:
    _take_one(source, wanted, most)
    return source.ahead[0]


def _passes_one_over(source: _Source, wanted: ReceiveRequest, most: int) -> Columns:
    some = _take(source, wanted, most)
    source.at += source.at < len(source.ahead)
    return some


def _passes_over_another(source: _Source, wanted: ReceiveRequest, most: int) -> Message:
    one = _take_one(source, wanted, most)
    source.at += source.at < len(source.ahead)
    return one


def _settles_nothing(joined: _Joined, since: list[int]) -> Mapping[int, Any] | None:
    return None if _ended(joined, since) is None else {}


def _fault(where: Any, name: str, planted: object) -> Callable[[pytest.MonkeyPatch], None]:
    return lambda monkeypatch: monkeypatch.setattr(where, name, planted)


PLANTED: Mapping[str, Callable[[pytest.MonkeyPatch], None]] = {
    "a message is dealt out twice": _fault(_Source, "take", _hands_out_twice),
    "a message is passed over": _fault(_Source, "take", _passes_one_over),
    "the one message of a step is dealt out twice": _fault(_Source, "take_one", _hands_one_out_twice),
    "a message is passed over beside one": _fault(_Source, "take_one", _passes_over_another),
    "leases are not ended": _fault(_Joined, "_ended", _settles_nothing),
    "a full group hands out": _fault(together, "room_for_new", lambda state, rules: 99),
}
"""By what goes wrong then."""
