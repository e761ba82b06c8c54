"""What callers give in a wrong type is refused by its name, and nothing is sent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import pytest

from qdo import Reject, Release, Settle
from qdo.client import Client, NewMessage, Receive
from queuey.errors import ConfigurationError, InvalidParameter
from tests.support.scripted_server import Script

Ask = Callable[[Client, Any], object]


def _or(given: Any, other: Any) -> Any:
    """None is right here, so another value takes its place."""
    return other if given is None else given


_NAMES: Sequence[tuple[str, Ask]] = [
    ("queue", lambda client, given: client.append(given, "x")),
    ("queue", lambda client, given: client.append_batch(given, ["x"])),
    ("queue", lambda client, given: client.read(given)),
    ("queue", lambda client, given: next(client.iterate(given))),
    ("queue", lambda client, given: client.delete_queue(given)),
    ("queue", lambda client, given: client.purge(given)),
    ("queue", lambda client, given: client.offsets(given, "g")),
    ("group", lambda client, given: client.offsets("q", given)),
    ("group", lambda client, given: client.receive("q", given)),
    ("group", lambda client, given: client.receive_one("q", given).__enter__()),
    ("name", lambda client, given: client.task("q", given)),
    ("name", lambda client, given: client.find_queue(given)),
    ("queue_name", lambda client, given: client.create_queue(_or(given, 5))),
    ("offset", lambda client, given: next(client.queues(start=given if not isinstance(given, int) else None))),  # type: ignore[arg-type]
]
_LISTS: Sequence[tuple[str, Ask]] = [
    ("queue", lambda client, given: client.receive(given, "g")),
    ("queue", lambda client, given: client.receive(given, "g", pop=True)),
    ("queue", lambda client, given: client.withdraw(given, "g", "attempt")),
    ("queues", lambda client, given: next(iter(client.follow(given)))),
    ("queues", lambda client, given: client.news(given, 0)),
    ("messages", lambda client, given: client.append_batch("q", given)),
    ("partitions", lambda client, given: client.read("q", partitions=given)),
    ("partitions", lambda client, given: client.take_over("q", "g", given, 1)),
    ("partitions", lambda client, given: client.receive("q", "g", partitions=_or(given, 5))),
    ("columns", lambda client, given: client.stream_ndjson("q", columns=_or(given, 5))),
    ("columns", lambda client, given: client.read_arrow("q", columns=_or(given, 5))),
    ("verbs", lambda client, given: client.new_token(verbs=_or(given, 5))),
    ("principals", lambda client, given: client.create_queue("q", principals=_or(given, 5))),
]
_OTHERS: Sequence[tuple[str, Ask]] = [
    ("stream", lambda client, given: client.append_arrow("q", "text" if given == b"x" else given)),
    ("ids", lambda client, given: client.commit_offsets("q", "g", given)),
    ("leases", lambda client, given: client.update_queue("q", leases=_or(given, 5))),
    ("headers", lambda client, given: client.append("q", NewMessage("x", headers=_or(given, 5)))),
    ("what", lambda client, given: client.settle("q", "g", given)),
    ("release", lambda client, given: client.settle("q", "g", Settle(release=given))),
    ("release", lambda client, given: client.settle("q", "g", Settle(release=[given]))),
    ("reject", lambda client, given: client.settle("q", "g", Settle(reject=[given, Reject("receipt")]))),
    ("extend", lambda client, given: client.settle("q", "g", Settle(extend=[given]))),
    ("acknowledge", lambda client, given: client.settle("q", "g", Settle(acknowledge=given))),
    ("append", lambda client, given: client.settle("q", "g", Settle(append=given))),
    ("receive", lambda client, given: client.settle("q", "g", Settle(receive=_or(given, 5)))),
    ("receiver", lambda client, given: client.settle("q", "g", Settle(receiver=_or(given, 5)))),
    ("attempt", lambda client, given: client.settle("q", "g", Settle(attempt=_or(given, 5)))),
    ("attempt", lambda client, given: client.receive("q", "g", attempt=_or(given, 5))),
    ("attempt", lambda client, given: client.withdraw("q", "g", given)),
    ("end_after_seconds", lambda client, given: client.follow("q", end_after_seconds=_or(str(given), 5))),
    ("idle_seconds", lambda client, given: client.follow("q", idle_seconds=_or(str(given), 5))),
]


_CALLS = (*_NAMES, *_LISTS, *_OTHERS)


@pytest.mark.parametrize("given", [None, 5, b"x"])
@pytest.mark.parametrize("number", range(len(_CALLS)))
def test_what_is_of_another_type_is_refused_by_its_name(
    client: Client, script: Script, number: int, given: Any
) -> None:
    name, ask = _CALLS[number]

    with pytest.raises(InvalidParameter, match=f"^{name}: "):
        ask(client, given)

    assert script.asked == []


def test_a_moment_without_a_time_zone_is_refused_by_its_name(client: Client, script: Script) -> None:
    with pytest.raises(InvalidParameter, match=r"^until: .* has no time zone"):
        client.read("q", until=datetime(2026, 11, 28))  # noqa: DTZ001 -- what is refused

    assert script.asked == []


def test_the_name_of_an_application_is_a_text() -> None:
    with pytest.raises(ConfigurationError, match="application is a int: expected a text"):
        Client("http://127.0.0.1:5000", 5)  # type: ignore[arg-type]


def test_a_range_is_a_list_of_partitions() -> None:
    wire = Settle(release=[Release("receipt")], receive=Receive(partitions=range(1, 3))).to_wire()

    assert wire == {"release": [{"receipt": "receipt"}], "receive": {"partitions": [1, 2], "max": 1}}
