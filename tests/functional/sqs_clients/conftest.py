"""One server for clients of SQS that are programs of their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.sqs_clients import SqsServer, sqs_server


@pytest.fixture(scope="session")
def sqs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqsServer]:
    with sqs_server(tmp_path_factory.mktemp("sqs-clients")) as running:
        yield running
