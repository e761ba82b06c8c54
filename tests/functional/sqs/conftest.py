"""The door for SQS clients: one shipped server with boto3, and one whose time a test moves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from tests.support.client import Server, new_name
from tests.support.sqs_clients import SqsServer, TimedSqs, sqs_client, sqs_server, timed_sqs


@pytest.fixture(scope="session")
def sqs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqsServer]:
    with sqs_server(tmp_path_factory.mktemp("sqs")) as running:
        yield running


@pytest.fixture(scope="session")
def client(sqs: SqsServer) -> Any:
    """boto3 as the application ``queuey``."""
    return sqs_client(sqs.url, sqs.keys["queuey"])


@pytest.fixture(scope="session")
def other_client(sqs: SqsServer) -> Any:
    return sqs_client(sqs.url, sqs.keys["other"])


@pytest.fixture(scope="session")
def timed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TimedSqs]:
    with timed_sqs(tmp_path_factory.mktemp("timed-sqs")) as found:
        yield found


@pytest.fixture
def v1(sqs: SqsServer) -> Iterator[Server]:
    """The same server through v1, as the same application."""
    with Server(sqs.running) as seen:
        yield seen


def _maker(client: Any) -> Callable[..., str]:
    def make(*, fifo: bool = False, tags: Mapping[str, str] | None = None, **attributes: str) -> str:
        name = new_name() + (".fifo" if fifo else "")
        given = {**attributes, **({"FifoQueue": "true"} if fifo else {})}
        made = client.create_queue(QueueName=name, Attributes=given, tags=tags or {})
        url: str = made["QueueUrl"]
        return url

    return make


@pytest.fixture(scope="session")
def make(client: Any) -> Callable[..., str]:
    """Makes queues at the shipped server; returns their URLs."""
    return _maker(client)


@pytest.fixture(scope="session")
def timed_make(timed: TimedSqs) -> Callable[..., str]:
    return _maker(timed.client)
