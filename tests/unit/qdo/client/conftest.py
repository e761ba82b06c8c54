"""A client of a scripted server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from qdo.client import Client
from tests.support.client_answers import KEY
from tests.support.over_asyncio import CLIENTS, make_client
from tests.support.scripted_server import Script


@pytest.fixture
def pauses() -> list[float]:
    return []


@pytest.fixture(params=CLIENTS)
def client(script: Script, pauses: list[float], request: pytest.FixtureRequest) -> Iterator[Client]:
    """A client of each kind: both have to do the same."""
    with make_client(
        request.param, script.url, "app", KEY, retries=3, timeout_seconds=5, sleep=pauses.append
    ) as client:
        yield client
