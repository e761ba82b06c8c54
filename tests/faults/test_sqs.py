"""G21, G22, G25 and G26 by boto3: what a client sent is received and deleted, while the server dies and answers are lost."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from botocore.credentials import Credentials
from botocore.exceptions import BotoCoreError, ClientError

from queuey.model.dead_letters import REDRIVEN_HEADER
from tests.support.figures import Figures
from tests.support.node import Node, busy, wait_for_more
from tests.support.servers import eventually
from tests.support.services.proxy import Proxy, Way
from tests.support.sqs_log import Got, SqsLog
from tests.support.sqs_programs import new_key, repeating_client

VISIBILITY = 2
SENDERS = 2
RECEIVERS = 3
MOST_AHEAD = 100
"""Messages that are sent and not deleted yet."""
GROUPS = 4
"""Of each sender: the order of a group is that of its one sender."""
LOST = 0.02
"""The share of answers that are lost: what was asked is done, and the client has to ask again."""


class Client:
    """boto3, which repeats what failed, as it is set up by default; and then the caller does."""

    def __init__(self, url: str, key: Credentials, queue: str, log: SqsLog, *, is_fifo: bool) -> None:
        self.sqs = repeating_client(url, key, connect_timeout=5, read_timeout=10)
        self.queue, self.log, self.is_fifo = queue, log, is_fifo

    def ask(self, action: str, **values: Any) -> dict[str, Any] | None:
        """None: the server is away, or stops."""
        try:
            return dict(getattr(self.sqs, action)(QueueUrl=self.queue, **values))
        except ClientError as error:
            if error.response["ResponseMetadata"]["HTTPStatusCode"] < 500:
                raise
        except BotoCoreError:
            pass
        time.sleep(0.02)
        return None

    def deletes(self, handle: str) -> bool:
        """Ask until the server answers; whether the message is gone. Of a FIFO queue, the lease must not have run out."""
        try:
            while self.ask("delete_message", ReceiptHandle=handle) is None:
                pass
            return True
        except ClientError as error:
            if "The receipt handle has expired." not in str(error):
                raise
            return False


def sender(client: Client, name: str) -> Callable[[], None]:
    """Sends one message after the other; each until the server says that it has it."""
    numbers = count(1)

    def step() -> None:
        if len(client.log.sent) - len(client.log.done) > MOST_AHEAD:
            time.sleep(0.02)
            return
        number = next(numbers)
        group = f"{name}-{number % GROUPS}"
        body = f"{group} {number}"
        known: dict[str, Any] = {"MessageGroupId": group, "MessageDeduplicationId": body.replace(" ", ".")}
        while client.ask("send_message", MessageBody=body, **(known if client.is_fifo else {})) is None:
            pass
        client.log.sends(body)

    return step


def receiver(client: Client, chance: random.Random) -> Callable[[], None]:
    """Receives and deletes. Now and then it does nothing until its leases are over."""

    def step() -> None:
        asked = time.monotonic()
        found = client.ask("receive_message", MaxNumberOfMessages=chance.randint(1, 10), WaitTimeSeconds=1)
        messages = (found or {}).get("Messages", [])
        some = [_got(message, asked) for message in messages]
        for one in some:
            client.log.gets(one)
        if chance.random() < 0.03:
            time.sleep(VISIBILITY * chance.random() * 1.5)
            return
        for message, one in zip(messages, some, strict=True):
            if client.deletes(message["ReceiptHandle"]):
                client.log.deletes(one, time.monotonic())

    return step


def _got(message: dict[str, str], asked: float) -> Got:
    group, _, number = message["Body"].partition(" ")
    return Got(message["Body"], message["MessageId"], group, int(number), asked)


@pytest.mark.drawn
@pytest.mark.parametrize("is_fifo", [False, True], ids=["standard", "fifo"])
def test_queues_of_sqs_lose_nothing_when_the_server_dies(
    tmp_path: Path, is_fifo: bool, rounds: Callable[[int], range], chance: random.Random, figures: Figures
) -> None:
    log, kills = SqsLog(), len(rounds(2))
    key = new_key(tmp_path)
    with Node(tmp_path) as node, Proxy(lambda: ("127.0.0.1", node.running.port), chance=chance) as network:
        made = repeating_client(node.running.url, key).create_queue(
            QueueName="q.fifo" if is_fifo else "q",
            Attributes={"VisibilityTimeout": str(VISIBILITY), **({"FifoQueue": "true"} if is_fifo else {})},
        )

        def another() -> Client:
            return Client(network.url, key, made["QueueUrl"], log, is_fifo=is_fifo)

        senders = [sender(another(), f"s{number}") for number in range(SENDERS)]
        receivers = [receiver(another(), random.Random(chance.random())) for _ in range(RECEIVERS)]
        network.lose(LOST, [Way.BACK])
        with busy(*receivers):
            with busy(*senders):
                for _ in range(kills):
                    wait_for_more(lambda: len(log.done), chance.randint(20, 80))
                    node.kill_in_commit()
                    node.start()
                wait_for_more(lambda: len(log.done), 20)
            eventually(lambda: log.sent <= log.done)

    verdict = log.judge()
    stored_twice = len(verdict.stored_twice)
    again = sum(len(found) > 1 for found in log.got.values())
    queue = "fifo" if is_fifo else "standard"
    seen = {"kills": kills, "answers_lost": network.lost(Way.BACK), "sent": len(log.sent), "handed_again": again}
    figures("G21", door="sqs", queue=queue, **seen, after_deletion=len(verdict.handed_after_deletion))
    figures("G22", door="sqs", queue=queue, **seen, lost=len(verdict.lost))
    if is_fifo:
        figures("G26", door="sqs", **seen, stored_twice=stored_twice, out_of_order=len(verdict.out_of_order))
        assert verdict.is_clean, verdict
    else:
        assert not verdict.lost
        assert not verdict.handed_after_deletion


def _dead_letters(client: Any, sources: Sequence[str], number: int) -> str:
    """Queues that gave up as many messages together; the ARN of their dead-letter queue."""
    dead = client.create_queue(QueueName="dead")["QueueUrl"]
    arn = client.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 1})
    for name in sources:
        given = {"RedrivePolicy": policy, "VisibilityTimeout": "0"}
        url = client.create_queue(QueueName=name, Attributes=given)["QueueUrl"]
        for start in range(0, number // len(sources), 10):
            entries = [{"Id": str(at), "MessageBody": f"{name} {start + at}"} for at in range(10)]
            client.send_message_batch(QueueUrl=url, Entries=entries)
        while client.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages"):
            pass
    names = ["ApproximateNumberOfMessages"]

    def are_there() -> bool:
        for name in sources:
            client.receive_message(QueueUrl=client.get_queue_url(QueueName=name)["QueueUrl"], MaxNumberOfMessages=10)
        found = client.get_queue_attributes(QueueUrl=dead, AttributeNames=names)["Attributes"][names[0]]
        return int(found) == number

    eventually(are_there)
    return str(arn)


def test_a_move_task_moves_each_message_once_though_its_server_dies(
    tmp_path: Path, rounds: Callable[[int], range], chance: random.Random, figures: Figures
) -> None:
    kills, sources = len(rounds(4)), ("jobs", "mails")
    number = 200 * kills
    key = new_key(tmp_path)
    with Node(tmp_path) as node:

        def task() -> dict[str, Any]:
            client = repeating_client(node.running.url, key)
            return dict(client.list_message_move_tasks(SourceArn=arn)["Results"][0])

        arn = _dead_letters(repeating_client(node.running.url, key), sources, number)
        asked = {"SourceArn": arn, "MaxNumberOfMessagesPerSecond": 400}
        repeating_client(node.running.url, key).start_message_move_task(**asked)
        for _ in range(kills):
            time.sleep(chance.uniform(0.05, 0.3))
            node.kill_in_commit()
            node.start()
        eventually(lambda: task()["Status"] != "RUNNING")
        status = task()["Status"]
        stored = [one for name in sources for one in node.client().stream_ndjson(name, partitions="all")]
        url = f"{node.running.url}/dead"
        left = repeating_client(node.running.url, key).receive_message(QueueUrl=url).get("Messages", [])

    found = [one.body for one in stored if REDRIVEN_HEADER in one.headers]  # the first ones may be there for a while
    back = Counter(found)
    figures(
        "G25", door="sqs", kills=kills, letters=number, back=len(found), twice=len(found) - len(back), left=len(left)
    )
    assert (status, left) == ("COMPLETED", [])
    assert back == Counter([b"%s %d" % (name.encode(), at) for name in sources for at in range(number // 2)])


def test_the_judge_finds_what_is_wrong() -> None:
    log = SqsLog()
    for number, body in enumerate(("g 1", "g 2", "g 3", "g 4", "g 5")):
        log.sends(body)
        if body != "g 2":
            log.gets(Got(body, f"id-{number}", "g", number + 1, number))
    log.gets(Got("g 2", "id-1", "g", 2, 10.0))
    log.gets(Got("g 4", "id-another", "g", 4, 11.0))
    late = Got("g 3", "id-2", "g", 3, 13.0)
    log.deletes(late, 12.0)
    log.gets(late)
    log.sends("g 6")
    assert log.judge() == ({"g 6"}, {"g 4"}, {"g 3"}, {"g 2"})
