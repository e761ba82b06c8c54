"""The AWS CLI as it is installed, told only where the server is."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.services.jars import environment
from tests.support.sqs_clients import SqsServer
from tests.support.sqs_programs import variables

Aws = Callable[..., dict[str, Any]]


class Refused(Exception):
    """What the CLI said when it failed."""


@pytest.fixture
def aws(sqs: SqsServer) -> Aws:
    """Runs one command of ``aws sqs``; its output."""
    command = [str(environment("aws-cli") / "bin" / "python"), "-m", "awscli", "--endpoint-url", sqs.url, "sqs"]

    def run(*arguments: str) -> dict[str, Any]:
        ended = subprocess.run(
            [*command, *arguments],
            env={"PATH": os.environ["PATH"], **variables(sqs.keys["queuey"])},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if ended.returncode:
            raise Refused(ended.stderr)
        return dict(json.loads(ended.stdout or "{}"))

    return run


def test_a_message_by_the_aws_cli(aws: Aws) -> None:
    queue = aws("create-queue", "--queue-name", "cli", "--attributes", "VisibilityTimeout=60", "--tags", "team=a")
    at = ("--queue-url", queue["QueueUrl"])
    attributes = json.dumps({"Foo": {"DataType": "String", "StringValue": "Bar"}})
    sent = aws("send-message", *at, "--message-body", "hello é", "--message-attributes", attributes)
    assert sent["MD5OfMessageAttributes"] == "ae7155c6026991b6d54b11589678bf9c"

    (got,) = aws("receive-message", *at, "--attribute-names", "All", "--message-attribute-names", "All")["Messages"]
    assert (got["MessageId"], got["MD5OfBody"]) == (sent["MessageId"], sent["MD5OfMessageBody"])
    assert (got["Body"], got["MessageAttributes"]["Foo"]["StringValue"]) == ("hello é", "Bar")
    assert got["Attributes"]["ApproximateReceiveCount"] == "1"
    aws("delete-message", *at, "--receipt-handle", got["ReceiptHandle"])
    assert aws("list-queues", "--queue-name-prefix", "cli", "--max-items", "1")["QueueUrls"] == [queue["QueueUrl"]]

    with pytest.raises(Refused, match=r"\(AWS.SimpleQueueService.NonExistentQueue\) when calling the GetQueueUrl"):
        aws("get-queue-url", "--queue-name", "none")
