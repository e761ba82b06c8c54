"""The same messages for SQS clients and for Spark, headers and attributes included."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.credentials import Credentials
from pyspark.sql import SparkSession

from tests.support.client import new_name
from tests.support.pipeline import APPLICATION, KEY
from tests.support.servers import RunningServer
from tests.support.sqs_clients import sqs_client

ATTRIBUTES = {
    "Plain": {"DataType": "String", "StringValue": "é"},
    "raw": {"DataType": "Binary", "BinaryValue": b"\x00\xff"},
}


@pytest.fixture
def sqs(running: RunningServer) -> Any:
    return sqs_client(running.url, Credentials(APPLICATION, "any"))


def test_spark_reads_what_sqs_sends_with_its_attributes_as_headers(
    spark: SparkSession, running: RunningServer, sqs: Any
) -> None:
    name = new_name()
    url = sqs.create_queue(QueueName=name)["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody="plain")
    sqs.send_message(QueueUrl=url, MessageBody="all", MessageGroupId="g", MessageAttributes=ATTRIBUTES)

    given = {"url": running.url, "application": APPLICATION, "token": KEY, "subscribe": name}
    schema = "body string, key string, headers map<string,binary>"
    rows = spark.read.format("queuey").schema(schema).options(**given).load().collect()

    plain, full = sorted(rows, key=lambda row: row.headers is not None)
    assert (plain.body, plain.key, full.body, full.key) == ("plain", None, "all", "g")
    assert {name: bytes(full.headers[name]) for name in ATTRIBUTES} == {"Plain": "é".encode(), "raw": b"\x00\xff"}


def test_sqs_receives_what_spark_writes_with_its_headers_as_attributes(
    spark: SparkSession, running: RunningServer, sqs: Any
) -> None:
    name = new_name() + ".fifo"
    url = sqs.create_queue(QueueName=name, Attributes={"FifoQueue": "true"})["QueueUrl"]
    headers = {"Plain": bytearray("é".encode()), "raw": bytearray(b"\x00\xff")}
    rows = [("first", "g", headers), ("second", "g", None)]
    frame = spark.createDataFrame(rows, "body string, key string, headers map<string,binary>").coalesce(1)
    given = {"url": running.url, "application": APPLICATION, "token": KEY, "queue": name}
    frame.write.format("queuey").options(**given).mode("append").save()

    asked = {"QueueUrl": url, "AttributeNames": ["All"], "MessageAttributeNames": ["All"], "MaxNumberOfMessages": 10}
    first, second = sqs.receive_message(**asked)["Messages"]

    assert (first["Body"], second["Body"]) == ("first", "second")
    assert [one["Attributes"]["MessageGroupId"] for one in (first, second)] == ["g", "g"]
    assert (first["MessageAttributes"], second.get("MessageAttributes")) == (ATTRIBUTES, None)
    for one in (first, second):
        sqs.delete_message(QueueUrl=url, ReceiptHandle=one["ReceiptHandle"])
    assert "Messages" not in sqs.receive_message(QueueUrl=url)
