"""The AWS SDK for Java v2, as Maven has it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.services.jars import jars
from tests.support.sqs_clients import SqsServer
from tests.support.sqs_programs import lines_of

PROGRAM = Path(__file__).parent / "RoundTrip.java"


@pytest.mark.long
def test_the_sdk_for_java_finds_the_sums_that_it_expects(sqs: SqsServer) -> None:
    assert lines_of(["java", "-cp", f"{jars('aws-sdk')}/*", str(PROGRAM), sqs.url], sqs) == [
        "one [bytes, number, text]",
        "two [bytes, number, text]",
        "three []",
        "[]",
        "AWS.SimpleQueueService.NonExistentQueue",
    ]
