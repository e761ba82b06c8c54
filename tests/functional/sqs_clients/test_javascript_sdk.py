"""The AWS SDK for JavaScript v3, as npm has it. It crashes where a refusal has no ``x-amzn-query-error``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.services.jars import node_modules
from tests.support.sqs_clients import SqsServer
from tests.support.sqs_programs import lines_of

PROGRAM = Path(__file__).parent / "RoundTrip.cjs"


@pytest.mark.long
def test_the_sdk_for_javascript_sends_receives_and_deletes(sqs: SqsServer) -> None:
    modules = str(node_modules("aws-sdk-js"))
    assert lines_of(["node", str(PROGRAM), sqs.url], sqs, NODE_PATH=modules) == [
        "one bytes,number,text 0,1,255 1",
        "two   1",
        "2 undefined",
        "true QueueDoesNotExist The specified queue does not exist.",
    ]
