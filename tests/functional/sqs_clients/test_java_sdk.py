"""The AWS SDK for Java v2, as Maven has it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.services.jars import jars
from tests.support.sqs_clients import SqsServer
from tests.support.sqs_programs import variables

PROGRAM = Path(__file__).parent / "RoundTrip.java"


@pytest.mark.long
def test_the_sdk_for_java_finds_the_sums_that_it_expects(sqs: SqsServer) -> None:
    ended = subprocess.run(
        ["java", "-cp", f"{jars('aws-sdk')}/*", str(PROGRAM), sqs.url],
        env={"PATH": os.environ["PATH"], **variables(sqs.keys["queuey"])},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines() == [
        "one [bytes, number, text]",
        "two [bytes, number, text]",
        "three []",
        "[]",
        "AWS.SimpleQueueService.NonExistentQueue",
    ]
