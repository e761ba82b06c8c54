"""Every action by the service's own description, in both protocols: what an SDK may send gets what an SDK can read.

The inputs are drawn from the description that is installed with botocore, with queues, messages and ARNs that exist, or
do not. botocore's own serializers and parsers are the judges.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from botocore.model import ServiceModel
from hypothesis import given, settings
from hypothesis import strategies as st

from queuey.sqs.errors import CODES
from queuey.sqs.shapes import ACTIONS
from tests.support.sqs_clients import TimedSqs
from tests.support.sqs_model import MODELS, operation, parsed, request, requests

Values = dict[str, Any]
_PYTHON_TYPES: Mapping[str, Any] = {
    "string": str,
    "integer": int,
    "long": int,
    "boolean": bool,
    "blob": bytes,
    "list": list,
    "map": dict,
}


@pytest.fixture(scope="module")
def likely(timed: TimedSqs, timed_make: Callable[..., str]) -> Mapping[str, list[Any]]:
    """Values of members with which an action gets somewhere."""
    client, standard, fifo = timed.client, timed_make(), timed_make(fifo=True, ContentBasedDeduplication="true")
    client.send_message(QueueUrl=standard, MessageBody="m")
    (message,) = client.receive_message(QueueUrl=standard)["Messages"]
    names = ["QueueArn"]
    arn = client.get_queue_attributes(QueueUrl=standard, AttributeNames=names)["Attributes"]["QueueArn"]
    account = standard.split("/")[3]
    return {
        "AWSAccountIds": [[account]],
        "Actions": [["SendMessage"], ["*"]],
        "AttributeNames": [["All"], ["QueueArn"]],
        "Attributes": [{"VisibilityTimeout": "1"}, {}],
        "DestinationArn": [arn],
        "MessageGroupId": ["g"],
        "MessageSystemAttributeNames": [["All"], ["SenderId"]],
        "QueueName": [standard.rsplit("/", 1)[1], "made-by-the-model"],
        "QueueOwnerAWSAccountId": [account],
        "QueueUrl": [standard, fifo],
        "ReceiptHandle": [message["ReceiptHandle"]],
        "SourceArn": [arn],
        "WaitTimeSeconds": [0],
    }


def _good(client: Any, make: Callable[..., str]) -> dict[str, Values]:
    """A request for each action that is carried out, in this order; those that ask for a task or remove a queue come last."""
    dead = make()
    arn = client.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    url = make(RedrivePolicy=f'{{"deadLetterTargetArn":"{arn}","maxReceiveCount":9}}')
    client.send_message(QueueUrl=url, MessageBody="m")
    (message,) = client.receive_message(QueueUrl=url)["Messages"]
    asked, handle = {"QueueUrl": url}, {"ReceiptHandle": message["ReceiptHandle"]}
    name, account = url.rsplit("/", 1)[1], url.split("/")[3]
    attribute = {"a": {"DataType": "Binary", "BinaryValue": b"\x00"}}
    return {
        "AddPermission": {**asked, "Label": "l", "AWSAccountIds": [account], "Actions": ["SendMessage"]},
        "RemovePermission": {**asked, "Label": "l"},
        "ChangeMessageVisibility": {**asked, **handle, "VisibilityTimeout": 9},
        "ChangeMessageVisibilityBatch": {**asked, "Entries": [{"Id": "a", **handle, "VisibilityTimeout": 9}]},
        "CreateQueue": {"QueueName": name, "Attributes": {"DelaySeconds": "0"}, "tags": {"a": "b"}},
        "DeleteMessage": {**asked, **handle},
        "DeleteMessageBatch": {**asked, "Entries": [{"Id": "a", **handle}]},
        "GetQueueAttributes": {**asked, "AttributeNames": ["All"]},
        "GetQueueUrl": {"QueueName": name, "QueueOwnerAWSAccountId": account},
        "ListDeadLetterSourceQueues": {"QueueUrl": dead, "MaxResults": 1},
        "TagQueue": {**asked, "Tags": {"a": "b"}},
        "ListQueueTags": asked,
        "ListQueues": {"QueueNamePrefix": name, "MaxResults": 1},
        "SendMessage": {**asked, "MessageBody": "m", "MessageAttributes": attribute, "DelaySeconds": 0},
        "SendMessageBatch": {**asked, "Entries": [{"Id": "a", "MessageBody": "m", "MessageAttributes": attribute}]},
        "ReceiveMessage": {**asked, "AttributeNames": ["All"], "MessageAttributeNames": ["All"]},
        "SetQueueAttributes": {**asked, "Attributes": {"DelaySeconds": "1"}},
        "UntagQueue": {**asked, "TagKeys": ["a"]},
        "PurgeQueue": asked,
        "StartMessageMoveTask": {"SourceArn": arn},
        "ListMessageMoveTasks": {"SourceArn": arn, "MaxResults": 10},
        "CancelMessageMoveTask": {"TaskHandle": ""},
        "DeleteQueue": asked,
    }


@pytest.mark.parametrize("protocol", ["json", "query"])
def test_each_action_is_carried_out(timed: TimedSqs, timed_make: Callable[..., str], protocol: str) -> None:
    good, handle = _good(timed.client, timed_make), ""
    assert good.keys() == ACTIONS.keys()

    for action, values in good.items():
        if action == "CancelMessageMoveTask":
            values["TaskHandle"] = handle
        status, headers, body = timed.send(*request(protocol, action, values))
        assert status == 200 or (action == "CancelMessageMoveTask" and b"Task does not exist" in body), (action, body)
        _check(protocol, action, status, headers, body)
        if action == "StartMessageMoveTask":
            handle = parsed(protocol, action, body)["TaskHandle"]


@pytest.mark.parametrize("protocol", ["json", "query"])
@pytest.mark.parametrize("action", ACTIONS)
def test_what_the_model_allows_is_answered_as_the_model_says(
    timed: TimedSqs, likely: Mapping[str, list[Any]], action: str, protocol: str
) -> None:
    @settings(max_examples=12, deadline=None)
    @given(requests(action), st.data())
    def ask(values: Values, data: st.DataObject) -> None:
        for name in sorted(values.keys() & likely.keys()):
            if name == "WaitTimeSeconds" or (action != "DeleteQueue" and data.draw(st.booleans())):
                values[name] = data.draw(st.sampled_from(likely[name]))
        status, headers, body = timed.send(*request(protocol, action, values))
        _check(protocol, action, status, headers, body)

    ask()


def _check(protocol: str, action: str, status: int, headers: Mapping[str, str], body: bytes) -> None:
    answer = parsed(protocol, action, body, status=status, headers=headers)
    assert headers["x-amzn-requestid"]
    assert answer["ResponseMetadata"]["RequestId"] == headers["x-amzn-requestid"]
    if status == 200:
        output = operation(protocol, action).output_shape
        if output is not None:
            _check_members(MODELS[protocol], output, answer)
        return
    assert 400 <= status < 500, body
    known = {code for code, _ in CODES.values()}
    code = answer["Error"]["Code"]
    if protocol == "json":
        assert headers["x-amzn-query-error"].endswith(";Sender")
        assert code in known or code in CODES
    else:
        assert code in known


def _check_members(model: ServiceModel, shape: Any, found: Any) -> None:
    """Types, required members, and no member that the model does not have."""
    if shape.type_name == "structure":
        assert {*shape.required_members} <= found.keys() | _left_out(shape)
        for name, value in found.items():
            if name != "ResponseMetadata":
                _check_members(model, shape.members[name], value)
        return
    assert isinstance(found, _PYTHON_TYPES[shape.type_name]), (shape, found)
    if shape.type_name == "list":
        for one in found:
            _check_members(model, shape.member, one)
    if shape.type_name == "map":
        for one in found.values():
            _check_members(model, shape.value, one)


def _left_out(shape: Any) -> set[str]:
    """Lists that Query cannot say when they are empty."""
    return {name for name in shape.required_members if shape.members[name].type_name == "list"}
