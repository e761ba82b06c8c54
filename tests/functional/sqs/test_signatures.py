"""Signatures where they matter to a client: what is let in, and with which code the rest is refused (leases.md, section 2)."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from unittest.mock import patch
from urllib.parse import urlsplit

import pytest
import requests
from botocore.credentials import Credentials

from tests.support.client import TIMEOUT_SECONDS
from tests.support.sqs_clients import FORM, JSON, SqsServer, code_of, sqs_client, texts, told_by

LIST = {"Content-Type": JSON, "X-Amz-Target": "AmazonSQS.ListQueues"}


def test_no_signature(sqs: SqsServer) -> None:
    in_json = sqs.send("POST", "/", b"{}", key=None, headers=LIST)
    in_query = sqs.send("POST", "/", b"Action=ListQueues", key=None, headers={"Content-Type": FORM})

    assert (in_json.status_code, in_query.status_code) == (403, 403)
    assert in_json.json()["__type"] == "com.amazonaws.sqs#MissingAuthenticationToken"
    assert texts(in_query, "Code") == ["MissingAuthenticationToken"]


def test_a_header_that_is_no_signature(sqs: SqsServer) -> None:
    broken = {**LIST, "Authorization": "AWS4-HMAC-SHA256 Credential=a"}

    answer = sqs.send("POST", "/", b"{}", key=None, headers=broken)

    assert (answer.status_code, answer.json()["__type"]) == (400, "com.amazonaws.sqs#IncompleteSignature")


def test_an_unknown_key(sqs: SqsServer) -> None:
    client = sqs_client(sqs.url, Credentials("QAAAAAAAAAAAAAAAAAAA", "secret"))

    assert code_of(client.list_queues) == "InvalidClientTokenId"
    assert "'queuey key new APPLICATION --sqs' makes one" in told_by(client.list_queues)


def test_an_application_key_in_the_place_of_an_access_key_is_not_told_back(sqs: SqsServer) -> None:
    key = "c0ffee" * 10
    told = told_by(sqs_client(sqs.url, Credentials(key, "secret")).list_queues)

    assert "c0ff... is too long to be the id of an access key" in told
    assert key[:9] not in told


def test_another_secret(sqs: SqsServer) -> None:
    client = sqs_client(sqs.url, Credentials(sqs.keys["queuey"].access_key, sqs.keys["other"].secret_key))

    assert code_of(client.list_queues) == "SignatureDoesNotMatch"
    assert code_of(client.send_message, QueueUrl="q", MessageBody="x" * 200_000) == "SignatureDoesNotMatch"
    assert f"the secret access key is not the one of {sqs.keys['queuey'].access_key}" in told_by(client.list_queues)


@pytest.mark.parametrize(
    ("minutes", "text"), [(-16, "Signature expired: .* is now earlier than"), (16, "Signature not yet current: .*")]
)
def test_a_clock_that_is_wrong(sqs: SqsServer, minutes: int, text: str) -> None:
    then = datetime.now(UTC) + timedelta(minutes=minutes)
    with patch("botocore.auth.get_current_datetime", lambda: then):
        answer = sqs.json("ListQueues")

    assert (answer.status_code, answer.json()["__type"]) == (403, "com.amazonaws.sqs#InvalidSignatureException")
    assert answer.headers["x-amzn-query-error"] == "SignatureDoesNotMatch;Sender"
    assert re.match(text, answer.json()["message"])
    assert "date" in answer.headers  # by which SDKs set their clocks right


def test_a_body_that_was_changed_on_its_way(sqs: SqsServer) -> None:
    with patch("botocore.auth.SigV4Auth.payload", lambda self, request: "0" * 64):
        answer = sqs.json("ListQueues")

    assert (answer.status_code, answer.json()["__type"]) == (403, "com.amazonaws.sqs#InvalidSignatureException")


def test_a_signed_link_receives(sqs: SqsServer, make: Callable[..., str]) -> None:
    path = urlsplit(make()).path
    sqs.query(path, Action="SendMessage", MessageBody="by a link")

    answer = sqs.send("GET", f"{path}?Action=ReceiveMessage&Version=2012-11-05", presigned=True)

    assert texts(answer, "Body") == ["by a link"]


def test_a_signed_link_ends(sqs: SqsServer, make: Callable[..., str]) -> None:
    path = urlsplit(make()).path
    then = datetime.now(UTC) - timedelta(hours=2)
    with patch("botocore.auth.get_current_datetime", lambda: then):
        answer = sqs.send("GET", f"{path}?Action=ReceiveMessage", presigned=True)

    assert (answer.status_code, texts(answer, "Code")) == (403, ["SignatureDoesNotMatch"])


def test_an_application_key_is_no_access_key(sqs: SqsServer) -> None:
    headers = {**LIST, "Authorization": "Application " + "9c1de0" * 7}

    answer = sqs.send("POST", "/", b"{}", key=None, headers=headers)

    assert answer.status_code == 403


def test_an_access_key_opens_nothing_in_v1(sqs: SqsServer) -> None:
    headers = {"Authorization": f"Application {sqs.keys['queuey'].secret_key}"}

    answer = requests.get(f"{sqs.url}/v1/queuey", headers=headers, timeout=TIMEOUT_SECONDS)

    assert answer.status_code == 401


def test_any_region_will_do(sqs: SqsServer, make: Callable[..., str]) -> None:
    client = sqs_client(sqs.url, sqs.keys["queuey"], region="mars-north-1")
    url = make()

    found = client.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]

    assert found["QueueArn"].split(":")[3] == "mars-north-1"


def test_a_token_of_a_session_is_signed_and_means_nothing(sqs: SqsServer) -> None:
    """Clients with passing credentials send one; here access keys have none."""
    key = sqs.keys["queuey"]
    passing = replace(sqs, keys={"queuey": Credentials(key.access_key, key.secret_key, "a token")})

    answer = passing.json("ListQueues", {"MaxResults": 1})

    assert answer.request.headers["X-Amz-Security-Token"] == "a token"
    assert answer.status_code == 200, answer.text
