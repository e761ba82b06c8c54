"""Actions in whose midst the server dies: what the client does next finds a queue that is as one of both states."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from queuey.clock import ManualClock
from queuey.future import run
from queuey.service import Service
from queuey.service.tasks import MOVE
from queuey.settings import load_settings
from tests.support.dying_stores import Died, DyingStores
from tests.support.servers import eventually, write_ini
from tests.support.sqs_clients import TimedSqs, bodies, timed_client

ARN = "arn:aws:sqs:eu-west-1:{account}:{name}"


class Server:
    """A server that dies at a call of its store, and those that come after it."""

    def __init__(self, folder: Path) -> None:
        settings = "[storage]\nbackend = memory\n\n[sqs]\nauth = open\nopen_to_network = true\n"
        self._ini = write_ini(folder / "queuey.ini", folder / "data", settings=settings)
        self.clock = ManualClock()
        self.stores = DyingStores(self.clock)
        self.sqs = self._open()

    def _open(self) -> TimedSqs:
        service = Service(load_settings(str(self._ini), {}, {}), self.stores, clock=self.clock)
        run(service.start())
        return timed_client(service, self.clock)

    @property
    def client(self) -> Any:
        return self.sqs.client

    def dies_in(self, at: int, work: Callable[[], object]) -> bool:
        """Do some work, and die at the n-th call of the store; whether it came so far. Then another server begins."""
        self.sqs.service.tasks.stop()  # it makes calls of its own
        self.stores.calls, self.stores.dies_at = 0, at
        try:
            work()
            has_died = False
        except Died:
            has_died = True
        self.stores.dies_at = -1
        self.sqs.service.close()
        self.sqs = self._open()
        return has_died

    def settings(self, name: str) -> Any:
        """Of the lease group of a queue."""
        service = self.sqs.service
        queue = run(service.queues.find("queuey", name))
        assert queue is not None
        group = service.leases.find(queue, "sqs").wait()
        assert group is not None
        return group.settings

    def close(self) -> None:
        self.sqs.service.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    made = Server(tmp_path)
    yield made
    made.close()


def deaths(server: Server, once: Callable[[str, int], bool]) -> int:
    """Do the same with one queue after the other, until it needs no more calls of the store."""
    at = 1
    while once(f"q{at}", at):
        at += 1
        assert at < 50
    return at - 1


def arn_of(client: Any, url: str) -> str:
    return str(client.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"])


@pytest.mark.parametrize("is_done", [False, True], ids=["before", "behind"])
def test_a_purge_removes_and_forgets_or_does_neither(server: Server, *, is_done: bool) -> None:
    """A message that is sent again behind it is there once: never twice, and never not at all."""
    server.stores.is_done = is_done
    sent = {"MessageBody": "m", "MessageGroupId": "g", "MessageDeduplicationId": "d"}

    def once(name: str, at: int) -> bool:
        made = server.client.create_queue(QueueName=f"{name}.fifo", Attributes={"FifoQueue": "true"})
        url = made["QueueUrl"]
        server.client.send_message(QueueUrl=url, **sent)
        has_died = server.dies_in(at, lambda: server.client.purge_queue(QueueUrl=url))
        server.client.send_message(QueueUrl=url, **sent)
        server.clock.advance(1)
        server.client.receive_message(QueueUrl=url, VisibilityTimeout=0)
        names = ["ApproximateNumberOfMessages"]

        def left() -> bool:
            counted = server.client.get_queue_attributes(QueueUrl=url, AttributeNames=names)
            return bool(counted["Attributes"] == {"ApproximateNumberOfMessages": "1"})

        eventually(left, seconds=20)
        assert bodies(server.client.receive_message(QueueUrl=url, MaxNumberOfMessages=10)) == ["m"]
        return has_died

    assert deaths(server, once) >= 3


@pytest.mark.parametrize("is_done", [False, True], ids=["before", "behind"])
def test_attributes_that_are_reported_are_those_in_force(server: Server, *, is_done: bool) -> None:
    """A client that compares before it sets, as Terraform does, comes to the settings that it wants."""
    server.stores.is_done = is_done
    dead = server.client.create_queue(QueueName="dead")["QueueUrl"]
    policy = json.dumps({"deadLetterTargetArn": arn_of(server.client, dead), "maxReceiveCount": 3})

    def once(name: str, at: int) -> bool:
        url = server.client.create_queue(QueueName=name)["QueueUrl"]

        def change() -> None:
            server.client.set_queue_attributes(QueueUrl=url, Attributes={"RedrivePolicy": policy})

        has_died = server.dies_in(at, change)
        found = server.client.get_queue_attributes(QueueUrl=url, AttributeNames=["RedrivePolicy"]).get("Attributes", {})
        if found != {"RedrivePolicy": policy}:
            change()
        assert (server.settings(name).max_failures, server.settings(name).dead_letter_queue) == (3, "dead")
        return has_died

    assert deaths(server, once) >= 2


@pytest.mark.parametrize("is_done", [False, True], ids=["before", "behind"])
def test_a_queue_becomes_fair_with_the_first_group_that_is_stored(server: Server, *, is_done: bool) -> None:
    server.stores.is_done = is_done

    def once(name: str, at: int) -> bool:
        url = server.client.create_queue(QueueName=name)["QueueUrl"]

        def send() -> None:
            server.client.send_message(QueueUrl=url, MessageBody="m", MessageGroupId="g")

        has_died = server.dies_in(at, send)
        if has_died:
            send()
        assert server.settings(name).fair
        return has_died

    assert deaths(server, once) >= 2


def test_the_last_of_two_changes_is_in_force(server: Server) -> None:
    """Another client changes the queue again, before the first has changed its lease group."""
    client, stores = server.client, server.stores
    dead = client.create_queue(QueueName="dead")["QueueUrl"]
    url = client.create_queue(QueueName="jobs")["QueueUrl"]

    def change(most: int) -> None:
        policy = json.dumps({"deadLetterTargetArn": arn_of(client, dead), "maxReceiveCount": most})
        client.set_queue_attributes(QueueUrl=url, Attributes={"RedrivePolicy": policy})

    server.sqs.service.tasks.stop()
    for at in range(1, 6):
        stores.calls, stores.at_call = 0, {at: lambda: change(7)}
        change(5)
        stores.at_call = {}
        found = client.get_queue_attributes(QueueUrl=url, AttributeNames=["RedrivePolicy"])["Attributes"]
        assert json.loads(found["RedrivePolicy"])["maxReceiveCount"] == server.settings("jobs").max_failures
        change(1)


@pytest.mark.parametrize("is_done", [False, True], ids=["before", "behind"])
def test_a_change_that_dies_takes_back_no_other_change(server: Server, *, is_done: bool) -> None:
    """Another client changes other attributes meanwhile, and has its answer."""
    server.stores.is_done = is_done
    dead = server.client.create_queue(QueueName="dead")["QueueUrl"]
    policy = json.dumps({"deadLetterTargetArn": arn_of(server.client, dead), "maxReceiveCount": 3})

    def once(name: str, at: int) -> bool:
        client = server.client
        url = client.create_queue(QueueName=name)["QueueUrl"]
        server.stores.at_call = {
            1: lambda: client.set_queue_attributes(QueueUrl=url, Attributes={"RedrivePolicy": policy})
        }

        def change() -> None:
            client.set_queue_attributes(QueueUrl=url, Attributes={"VisibilityTimeout": "77"})

        has_died = server.dies_in(at + 3, change)  # the other makes three calls
        assert (server.settings(name).max_failures, server.settings(name).dead_letter_queue) == (3, "dead")
        return has_died

    assert deaths(server, once) >= 2


@pytest.mark.parametrize("is_done", [False, True], ids=["before", "behind"])
def test_a_move_task_has_begun_and_is_listed_or_neither(server: Server, *, is_done: bool) -> None:
    """Then the client that starts it again finds it, or starts it; and all letters go back."""
    server.stores.is_done = is_done

    def once(name: str, at: int) -> bool:
        client = server.client
        dead = client.create_queue(QueueName=f"{name}-dead")["QueueUrl"]
        arn = arn_of(client, dead)
        policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 1})
        given = {"RedrivePolicy": policy, "VisibilityTimeout": "0"}
        urls = [client.create_queue(QueueName=f"{name}-{at}", Attributes=given)["QueueUrl"] for at in "ab"]
        for url in urls:
            client.send_message(QueueUrl=url, MessageBody=url)
            for _ in range(2):
                client.receive_message(QueueUrl=url)
        server.sqs.service.tasks.stop()

        has_died = server.dies_in(at, lambda: client.start_message_move_task(SourceArn=arn))

        client = server.client
        tasks = client.list_message_move_tasks(SourceArn=arn).get("Results", [])
        if not tasks:
            client.start_message_move_task(SourceArn=arn)
        queue = run(server.sqs.service.queues.find("queuey", f"{name}-dead"))
        assert queue is not None
        eventually(lambda: not run(server.sqs.service.tasks.find(queue, MOVE)).is_open)
        assert [bodies(client.receive_message(QueueUrl=url)) for url in urls] == [[url] for url in urls]
        return has_died

    assert deaths(server, once) >= 1
