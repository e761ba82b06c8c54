"""Queues by the door of SQS: their URLs, names, lists, tags, and what is refused (leases.md, sections 3 and 4)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import pytest

from queuey.future import run
from queuey.model import Queue
from queuey.service.queues import QueueSettings
from queuey.service.tasks import PURGE
from tests.support.client import Server, new_name
from tests.support.servers import eventually
from tests.support.sqs_clients import SqsServer, TimedSqs, bodies, code_of, refused

NAME_RULE = "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length"


def test_the_url_of_a_queue_is_on_the_host_that_the_client_asked(sqs: SqsServer, client: Any) -> None:
    name = new_name()

    url = client.create_queue(QueueName=name)["QueueUrl"]

    assert url == f"{sqs.url}/{sqs.accounts['queuey']}/{name}"
    assert client.get_queue_url(QueueName=name)["QueueUrl"] == url
    asked = sqs.json("GetQueueUrl", {"QueueName": name}, {"Host": "queues.example.org:81"})
    assert asked.json()["QueueUrl"] == f"http://queues.example.org:81/{sqs.accounts['queuey']}/{name}"


@pytest.mark.parametrize(
    ("said", "scheme"), [("https", "https"), ("HTTPS, http", "https"), ("http, https", "http"), ("javascript", "http")]
)
def test_the_url_of_a_queue_says_how_the_client_reached_the_first_proxy(
    sqs: SqsServer, make: Callable[..., str], said: str, scheme: str
) -> None:
    url = make()

    asked = sqs.json("GetQueueUrl", {"QueueName": url.rsplit("/", 1)[1]}, {"X-Forwarded-Proto": said})

    assert asked.json()["QueueUrl"] == url.replace("http", scheme, 1)


def test_the_url_of_a_queue_is_on_the_host_of_the_settings(
    timed: TimedSqs, timed_make: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = urlsplit(timed_make()).path
    for host, start in (("sqs.example.org:81", "http://sqs.example.org:81"), ("https://x.org", "https://x.org")):
        _set(timed, monkeypatch, host=host)
        assert timed.client.get_queue_url(QueueName=path.rsplit("/", 1)[1])["QueueUrl"] == start + path


@pytest.mark.parametrize("host", ["https://sqs.eu-west-1.amazonaws.com", "http://localhost:1", "queue://x"])
def test_a_queue_url_may_name_any_host(sqs: SqsServer, client: Any, make: Callable[..., str], host: str) -> None:
    url = make()
    foreign = f"{host}{urlsplit(url).path}"

    client.send_message(QueueUrl=foreign, MessageBody="here")

    assert bodies(client.receive_message(QueueUrl=url)) == ["here"]


def test_a_queue_may_be_named_without_its_host_and_account(client: Any, make: Callable[..., str]) -> None:
    url = make()
    name = url.rsplit("/", 1)[1]

    client.send_message(QueueUrl=name, MessageBody="bare")

    assert bodies(client.receive_message(QueueUrl=f"/any/path{urlsplit(url).path}")) == ["bare"]


@pytest.mark.parametrize("name", ["a", "A_b-9", "x" * 80, "y" * 75 + ".fifo"])
def test_names_that_may_be(timed: TimedSqs, name: str) -> None:
    attributes = {"FifoQueue": "true"} if name.endswith(".fifo") else {}

    url = timed.client.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]

    assert url.endswith(f"/{name}")


@pytest.mark.parametrize("name", ["x" * 81, "y" * 76 + ".fifo", "a b", "a/b", "a.b", "é", ""])
def test_names_that_may_not_be(timed: TimedSqs, name: str) -> None:
    attributes = {"FifoQueue": "true"} if name.endswith(".fifo") else {}
    said = refused(timed.client.create_queue, QueueName=name, Attributes=attributes)

    assert said == ("ClientError", NAME_RULE)


def test_a_name_ends_in_fifo_only_with_the_attribute(timed: TimedSqs) -> None:
    create = timed.client.create_queue

    assert refused(create, QueueName="a.fifo") == ("ClientError", NAME_RULE)
    shape, said = refused(create, QueueName="a", Attributes={"FifoQueue": "true"})
    assert (shape, said.split(", ")[0]) == (
        "ClientError",
        "The name of a FIFO queue can only include alphanumeric characters",
    )


def test_case_matters(timed: TimedSqs) -> None:
    name = new_name()
    timed.client.create_queue(QueueName=name)

    assert code_of(timed.client.get_queue_url, QueueName=name.upper()) == "AWS.SimpleQueueService.NonExistentQueue"


def test_to_create_again_with_the_same_attributes_finds_the_queue(client: Any) -> None:
    name = new_name()
    first = client.create_queue(QueueName=name, Attributes={"VisibilityTimeout": "7", "DelaySeconds": "1"})

    again = client.create_queue(QueueName=name, Attributes={"VisibilityTimeout": "7"})
    bare = client.create_queue(QueueName=name)
    by_default = client.create_queue(QueueName=name, Attributes={"ReceiveMessageWaitTimeSeconds": "0"})

    assert first["QueueUrl"] == again["QueueUrl"] == bare["QueueUrl"] == by_default["QueueUrl"]


def test_to_create_again_with_another_attribute_is_refused(client: Any) -> None:
    name = new_name()
    client.create_queue(QueueName=name, Attributes={"VisibilityTimeout": "7"})

    said = refused(client.create_queue, QueueName=name, Attributes={"VisibilityTimeout": "8"})

    text = "A queue already exists with the same name and a different value for attribute VisibilityTimeout"
    assert said == ("QueueNameExists", text)


def test_the_url_of_a_queue_of_another_account(
    sqs: SqsServer, client: Any, other_client: Any, make: Callable[..., str]
) -> None:
    url = make()
    name, account = url.rsplit("/", 1)[1], sqs.accounts["queuey"]

    assert client.get_queue_url(QueueName=name, QueueOwnerAWSAccountId=account)["QueueUrl"] == url
    assert code_of(client.get_queue_url, QueueName=name, QueueOwnerAWSAccountId="111111111111").endswith(
        "NonExistentQueue"
    )
    theirs = sqs.accounts["other"]
    assert code_of(client.get_queue_url, QueueName=name, QueueOwnerAWSAccountId=theirs) == "AccessDenied"
    assert code_of(other_client.get_queue_url, QueueName=name, QueueOwnerAWSAccountId=account) == "AccessDenied"
    assert code_of(other_client.send_message, QueueUrl=url, MessageBody="no") == "AccessDenied"


def test_a_refusal_costs_one_look_up_whether_or_not_there_is_such_a_queue(
    sqs: SqsServer, client: Any, other_client: Any, v1: Server
) -> None:
    """As in v1: otherwise the time of an answer tells."""
    used, unused, absent = (f"https://q/{sqs.accounts['queuey']}/{new_name()}" for _ in range(3))
    for url in (used, unused):
        client.create_queue(QueueName=url.rpartition("/")[2])
    client.send_message(QueueUrl=used, MessageBody="mine")

    def cost(**asked: Any) -> float:
        before = _looked_up(v1)
        assert code_of(other_client.receive_message, **asked) == "AccessDenied"
        return _looked_up(v1) - before

    assert {url: [cost(QueueUrl=url) for _ in range(3)] for url in (used, unused, absent)} == {
        used: [1, 1, 1],
        unused: [1, 1, 1],
        absent: [1, 1, 1],
    }


def test_what_a_policy_allows_costs_no_look_up(sqs: SqsServer, client: Any, other_client: Any, v1: Server) -> None:
    url = client.create_queue(QueueName=new_name())["QueueUrl"]
    client.add_permission(QueueUrl=url, Label="other", AWSAccountIds=[sqs.accounts["other"]], Actions=["SendMessage"])
    other_client.send_message(QueueUrl=url, MessageBody="first")

    before = _looked_up(v1)
    other_client.send_message(QueueUrl=url, MessageBody="second")

    assert _looked_up(v1) == before


def _looked_up(v1: Server) -> float:
    text = v1.request("GET", "/metrics").text
    return sum(float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith("queuey_queue_cache"))


def test_queues_are_listed_by_prefix_and_page_by_page(timed: TimedSqs) -> None:
    prefix = new_name()
    urls = [timed.client.create_queue(QueueName=f"{prefix}-{number}")["QueueUrl"] for number in range(5)]

    whole = timed.client.list_queues(QueueNamePrefix=prefix)
    pages = timed.client.get_paginator("list_queues").paginate(QueueNamePrefix=prefix, PaginationConfig={"PageSize": 2})
    found = [page["QueueUrls"] for page in pages]

    assert whole["QueueUrls"] == urls
    assert "NextToken" not in whole
    assert found == [urls[:2], urls[2:4], urls[4:]]
    exactly = timed.client.list_queues(QueueNamePrefix=prefix, MaxResults=5)
    assert exactly["QueueUrls"] == urls
    assert "NextToken" not in exactly
    assert "QueueUrls" not in timed.client.list_queues(QueueNamePrefix=f"{prefix}-none")


def test_a_list_looks_at_few_queues_of_very_many(timed: TimedSqs, monkeypatch: pytest.MonkeyPatch) -> None:
    client, queues, prefix = timed.client, timed.service.queues, new_name()
    for at in range(2500):
        run(queues.create("queuey", f"{prefix}{at:04}", QueueSettings()))
    looked_at, page = [], queues.page

    async def counted(application: str, *, start: str, limit: int) -> Sequence[Queue]:
        found = await page(application, start=start, limit=limit)
        looked_at.append(len(found))
        return found

    monkeypatch.setattr(queues, "page", counted)

    def listed(**asked: Any) -> tuple[dict[str, Any], int]:
        looked_at.clear()
        return client.list_queues(**asked), sum(looked_at)

    whole, all_looked_at = listed(QueueNamePrefix=prefix)
    first, few = listed(QueueNamePrefix=prefix, MaxResults=3)
    middle, some = listed(QueueNamePrefix=f"{prefix}12", MaxResults=2)
    second, again = listed(QueueNamePrefix=f"{prefix}12", MaxResults=2, NextToken=middle["NextToken"])
    nothing, none = listed(QueueNamePrefix=f"{prefix}9", NextToken=f"{prefix}0")

    assert (len(whole["QueueUrls"]), "NextToken" in whole, all_looked_at) == (1000, False, 1500)
    assert ([len(page["QueueUrls"]) for page in (first, middle, second)], few, some, again) == ([3, 2, 2], 4, 3, 3)
    assert [url[-4:] for page in (middle, second) for url in page["QueueUrls"]] == ["1200", "1201", "1202", "1203"]
    assert ("QueueUrls" in nothing, none <= 500) == (False, True)


@pytest.mark.parametrize("most", [0, 1001])
def test_no_page_is_larger_than_a_thousand(timed: TimedSqs, most: int) -> None:
    assert code_of(timed.client.list_queues, MaxResults=most) == "InvalidParameterValue"


def test_a_deleted_queue_is_no_more(client: Any, make: Callable[..., str]) -> None:
    url = make()
    client.send_message(QueueUrl=url, MessageBody="gone")

    client.delete_queue(QueueUrl=url)

    assert refused(client.delete_queue, QueueUrl=url) == ("QueueDoesNotExist", "The specified queue does not exist.")
    assert refused(client.receive_message, QueueUrl=url)[0] == "QueueDoesNotExist"
    assert url not in client.list_queues().get("QueueUrls", [])
    assert client.create_queue(QueueName=url.rsplit("/", 1)[1])["QueueUrl"] == url
    assert bodies(client.receive_message(QueueUrl=url)) == []


def test_tags(client: Any, make: Callable[..., str]) -> None:
    url = make(tags={"team": "a", "Team": "b"})

    client.tag_queue(QueueUrl=url, Tags={"team": "c", "empty": ""})
    client.untag_queue(QueueUrl=url, TagKeys=["Team", "unknown"])

    assert client.list_queue_tags(QueueUrl=url)["Tags"] == {"team": "c", "empty": ""}
    client.untag_queue(QueueUrl=url, TagKeys=["team", "empty"])
    assert "Tags" not in client.list_queue_tags(QueueUrl=url)


@pytest.mark.parametrize("tags", [{"": "x"}, {"k" * 129: "x"}, {"k": "v" * 257}, {str(n): "" for n in range(51)}])
def test_tags_that_may_not_be(timed: TimedSqs, timed_make: Callable[..., str], tags: dict[str, str]) -> None:
    url = timed_make()

    assert code_of(timed.client.tag_queue, QueueUrl=url, Tags=tags) == "InvalidParameterValue"
    assert code_of(timed.client.create_queue, QueueName=new_name(), tags=tags) == "InvalidParameterValue"


def test_a_purge_removes_what_is_visible_delayed_and_out(client: Any, make: Callable[..., str]) -> None:
    url = make()
    for body in ("out", "visible"):
        client.send_message(QueueUrl=url, MessageBody=body)
    client.send_message(QueueUrl=url, MessageBody="delayed", DelaySeconds=900)
    client.receive_message(QueueUrl=url)

    client.purge_queue(QueueUrl=url)

    def counts() -> list[str]:
        found = client.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
        return [value for name, value in found.items() if name.startswith("ApproximateNumber")]

    eventually(lambda: counts() == ["0", "0", "0"])
    client.send_message(QueueUrl=url, MessageBody="sent after it")
    assert bodies(client.receive_message(QueueUrl=url, MaxNumberOfMessages=10)) == ["sent after it"]


@pytest.fixture
def purged(timed: TimedSqs, timed_make: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> str:
    """A queue that was purged just now, at a server where the next purge waits for a minute."""
    url = timed_make()
    _set(timed, monkeypatch, purge_wait_seconds=60)
    timed.client.purge_queue(QueueUrl=url)
    eventually(lambda: not run(timed.service.tasks.find(_queue(timed, url), PURGE)).is_open)
    return url


def test_a_second_purge_waits_where_the_server_is_set_to(timed: TimedSqs, purged: str) -> None:
    client, url = timed.client, purged

    timed.clock.advance(59)
    shape, said = refused(client.purge_queue, QueueUrl=url)
    timed.clock.advance(1)
    client.purge_queue(QueueUrl=url)

    assert (shape, said.split(" is ")[1]) == ("PurgeQueueInProgress", "allowed every 60 seconds.")


def test_a_clock_that_is_set_back_lets_no_purge_wait_longer(timed: TimedSqs, purged: str) -> None:
    timed.clock.step(-3600)
    timed.client.purge_queue(QueueUrl=purged)
    timed.clock.step(3600)


def test_a_purge_that_has_to_wait_for_other_tasks_is_done_later(
    timed: TimedSqs, timed_make: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    client, url = timed.client, timed_make(VisibilityTimeout="0")
    for body in ("1", "2"):
        client.send_message(QueueUrl=url, MessageBody=body)

    with monkeypatch.context() as patched:
        patched.setattr("queuey.service.tasks.MOST_TASKS", 0)
        client.purge_queue(QueueUrl=url)
        meanwhile = bodies(client.receive_message(QueueUrl=url, MaxNumberOfMessages=10))
    timed.clock.advance(1)
    client.send_message(QueueUrl=url, MessageBody="sent after it")

    assert meanwhile == ["1", "2"]
    eventually(
        lambda: bodies(client.receive_message(QueueUrl=url, MaxNumberOfMessages=10)) == ["sent after it"], seconds=20
    )


def _queue(timed: TimedSqs, url: str) -> Queue:
    found = run(timed.service.queues.find("queuey", url.rsplit("/", 1)[1]))
    assert found is not None
    return found


def _set(timed: TimedSqs, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> None:
    """Change settings of the door for one test."""
    before = timed.service.settings
    monkeypatch.setattr(timed.service, "settings", replace(before, sqs=replace(before.sqs, **changes)))
