"""One server for clients of SQS that are programs of their own. ``make faults`` runs all of these tests, too."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.sqs_clients import SqsServer, sqs_server

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.faults)


@pytest.fixture(scope="session")
def sqs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqsServer]:
    with sqs_server(tmp_path_factory.mktemp("sqs-clients")) as running:
        yield running
