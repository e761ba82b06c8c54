"""The AWS SDK for JavaScript v3, as npm has it. It crashes where a refusal has no ``x-amzn-query-error``."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.services.jars import node_modules
from tests.support.sqs_clients import SqsServer
from tests.support.sqs_programs import variables

PROGRAM = Path(__file__).parent / "RoundTrip.cjs"


@pytest.mark.long
def test_the_sdk_for_javascript_sends_receives_and_deletes(sqs: SqsServer) -> None:
    ended = subprocess.run(
        ["node", str(PROGRAM), sqs.url],
        env={
            "PATH": os.environ["PATH"],
            "NODE_PATH": str(node_modules("aws-sdk-js")),
            **variables(sqs.keys["queuey"]),
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines() == [
        "one bytes,number,text 0,1,255 1",
        "two   1",
        "2 undefined",
        "true QueueDoesNotExist The specified queue does not exist.",
    ]
