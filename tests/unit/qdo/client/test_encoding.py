"""Values that JSON cannot take: they are refused before anything is sent, by their names."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from qdo.client import Client, NewMessage
from qdo.client.encoding import to_json
from queuey.errors import ConfigurationError, InvalidParameter

WRONG = [math.nan, math.inf, timedelta(seconds=1), {1, 2}]


@pytest.mark.parametrize("value", WRONG)
def test_the_member_is_named(value: Any) -> None:
    with pytest.raises(InvalidParameter, match=r"backoff\.first: cannot be written as JSON"):
        to_json({"visibility": 60, "backoff": {"factor": 2, "first": value}})


@pytest.mark.parametrize("value", WRONG)
@pytest.mark.parametrize(
    "ask",
    [
        lambda client, value: client.receive("q", "g", visibility=value),
        lambda client, value: client.receive("q", "g", wait=value),
        lambda client, value: client.receive("q", "g", value),
        lambda client, value: client.receive({"q": value}, "g"),
        lambda client, value: client.set_lease_group("q", "g", visibility=value),
        lambda client, value: client.create_queue("q", leases={"visibility": value}),
        lambda client, value: client.redrive("q", "g", rate=value),
        lambda client, value: client.append_batch("q", [NewMessage("x", delay_seconds=value)]),
        lambda client, value: client.append("q", NewMessage("x", deliver_at=value)),
        lambda client, value: client.read("q", since=value),
    ],
)
def test_no_call_sends_it(ask: Callable[[Client, Any], Any], value: Any) -> None:
    client = Client("http://127.0.0.1:9", "demo", "k", retries=0)
    with client, pytest.raises(InvalidParameter):
        ask(client, value)


@pytest.mark.parametrize("seconds", [math.nan, math.inf, 0, -1, 1e300])
def test_a_timeout_is_a_time_that_can_be_waited(seconds: float) -> None:
    with pytest.raises(ConfigurationError, match="timeout_seconds is "):
        Client("http://127.0.0.1:9", "demo", "k", timeout_seconds=seconds)
