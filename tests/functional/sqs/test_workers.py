"""The same messages for SQS clients and for workers, headers and attributes included."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from qdo import Client
from tests.support.client import Server
from tests.support.servers import eventually
from tests.support.sqs_clients import bodies
from tests.support.work_processes import WorkProcesses, processes_in

Make = Callable[..., str]
JOBS = """
import json

def note(message, context):
    headers = {name: value.decode("latin-1") for name, value in message.headers.items()}
    with open("done.txt", "a") as file:
        file.write(json.dumps([message.text, message.key, headers]) + "\\n")

def refuse(message, context):
    raise ValueError("refused")
"""
ATTRIBUTES = {
    "Plain": {"DataType": "String", "StringValue": "text"},
    "number": {"DataType": "Number.int", "StringValue": "42"},
    "raw": {"DataType": "Binary", "BinaryValue": b"\x00\xff"},
}


@pytest.fixture
def workers(tmp_path: Path, v1: Server) -> Iterator[WorkProcesses]:
    with processes_in(tmp_path, v1) as found:
        (tmp_path / "reading.py").write_text(JOBS)
        yield found


def work(workers: WorkProcesses, job: str, url: str, *options: str) -> int:
    ended = workers.run("work", f"reading:{job}", "--queue", name_of(url), "--exit-at-end", *options)
    return ended.code


def name_of(url: str) -> str:
    return url.rsplit("/", 1)[1]


@pytest.mark.parametrize(
    ("options", "left"),
    [(["--lease", "--group", "sqs"], []), (["--lease", "--group", "theirs"], ["m"]), ([], ["m"])],
    ids=["the same group", "another group", "owned partitions"],
)
def test_workers_get_what_sqs_sends_with_its_attributes_as_headers(
    client: Any, make: Make, workers: WorkProcesses, options: Sequence[str], left: list[str]
) -> None:
    """As the lease group of SQS clients they take a share; as any other group they get everything once more."""
    url = make()
    client.send_message(QueueUrl=url, MessageBody="m", MessageGroupId="tenant", MessageAttributes=ATTRIBUTES)

    assert work(workers, "note", url, *options) == 0

    ((body, key, headers),) = map(json.loads, workers.notes)
    assert (body, key) == ("m", "tenant")
    assert {name: headers[name] for name in ATTRIBUTES} == {"Plain": "text", "number": "42", "raw": "\x00\xff"}
    assert bodies(client.receive_message(QueueUrl=url)) == left


@pytest.mark.parametrize(
    "options", [["--lease", "--group", "sqs"], ["--retries", "0"]], ids=["leases", "owned partitions"]
)
def test_sqs_receives_what_workers_give_up(
    client: Any, make: Make, workers: WorkProcesses, v1: Server, options: Sequence[str]
) -> None:
    url = make()
    with Client(v1.url, v1.application, v1.key) as owner:
        owner.set_lease_group(name_of(url), "sqs", max_failures=1)
    sent = client.send_message(QueueUrl=url, MessageBody="m", MessageAttributes=ATTRIBUTES)

    assert work(workers, "refuse", url, *options) == 7

    dead = client.get_queue_url(QueueName=f"{name_of(url)}-dead")["QueueUrl"]
    asked = {"QueueUrl": dead, "AttributeNames": ["All"], "MessageAttributeNames": ["All"]}
    (message,) = eventually(lambda: client.receive_message(**asked).get("Messages"))
    assert (message["MessageId"], message["Body"]) == (sent["MessageId"], "m")
    assert message["MessageAttributes"] == ATTRIBUTES
    assert message["Attributes"]["DeadLetterQueueSourceArn"].endswith(f":{name_of(url)}")
