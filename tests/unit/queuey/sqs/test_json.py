"""AWS JSON 1.0: what an SDK sends is understood, what is answered it understands, what is wrong is named."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queuey.sqs import json
from queuey.sqs.errors import SqsError
from queuey.sqs.shapes import ACTIONS
from tests.support.sqs_model import answers, parsed, requests, serialized

SEND = ACTIONS["SendMessage"]
RECEIVE = ACTIONS["ReceiveMessage"]


@pytest.mark.parametrize("name", ACTIONS)
@settings(max_examples=10)
@given(data=st.data())
def test_what_the_sdk_sends_is_understood(name: str, data: st.DataObject) -> None:
    values = data.draw(requests(name))

    assert json.parse(ACTIONS[name], serialized("json", name, values)) == values


@pytest.mark.parametrize("name", ACTIONS)
@settings(max_examples=10)
@given(data=st.data())
def test_the_sdk_understands_what_is_answered(name: str, data: st.DataObject) -> None:
    result = data.draw(answers(name))

    told = parsed("json", name, json.answer(ACTIONS[name], result), headers={"x-amzn-requestid": "r-1"})

    metadata = told.pop("ResponseMetadata")
    assert told == result
    assert metadata["RequestId"] == "r-1"


def test_no_body_and_null_mean_no_members() -> None:
    assert json.parse(ACTIONS["ListQueues"], b"") == {}
    assert json.parse(ACTIONS["ListQueues"], b'{"MaxResults": null, "QueueNamePrefix": ""}') == {"QueueNamePrefix": ""}


def test_an_empty_list_or_map_is_as_good_as_absent() -> None:
    body = {"QueueUrl": "q", "AttributeNames": [], "MessageAttributeNames": [], "WaitTimeSeconds": 0}
    assert json.parse(RECEIVE, orjson.dumps(body)) == {"QueueUrl": "q", "WaitTimeSeconds": 0}

    with pytest.raises(SqsError, match="must contain the parameter Tags"):
        json.parse(ACTIONS["TagQueue"], b'{"QueueUrl": "q", "Tags": {}}')


@pytest.mark.parametrize("entries", [{}, {"Entries": []}, {"Entries": None}])
def test_a_batch_always_has_its_entries(entries: dict[str, Any]) -> None:
    """None at all is an error of the action, with a text of its own."""
    body = orjson.dumps({"QueueUrl": "q"} | entries)

    assert json.parse(ACTIONS["SendMessageBatch"], body) == {"QueueUrl": "q", "Entries": []}


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"{", "The body is not JSON"),
        (b'{"MessageBody": "\xff"}', "The body is not JSON"),
        (b'{"MessageBody": "\\ud800"}', "The body is not JSON"),
        (b'{"DelaySeconds": 1e999}', "The body is not JSON"),
        (b"[" * 200_000, "The body is not JSON"),
        (b'{"QueueUrl":' * 200_000, "The body is not JSON"),
        (b"[]", "LIST_VALUE can not be the body"),
        (b"null", "NULL_VALUE can not be the body"),
        (b'{"QueueUrl": 5}', "QueueUrl: NUMBER_VALUE can not be converted to String"),
        (b'{"MessageBody": true}', "MessageBody: TRUE_VALUE can not be converted to String"),
        (b'{"MessageBody": {}}', "MessageBody: STRUCTURE_VALUE can not be converted to String"),
        (b'{"DelaySeconds": "5"}', "DelaySeconds: STRING_VALUE can not be converted to Integer"),
        (b'{"DelaySeconds": 5.0}', "DelaySeconds: NUMBER_VALUE can not be converted to Integer"),
        (b'{"DelaySeconds": false}', "DelaySeconds: FALSE_VALUE can not be converted to Integer"),
        (b'{"DelaySeconds": 2147483648}', "DelaySeconds: 2147483648 is out of the range of Integer"),
        (b'{"MessageAttributes": []}', "MessageAttributes: LIST_VALUE can not be converted to Map"),
        (b'{"MessageAttributes": {"a": "b"}}', "MessageAttributes.a: STRING_VALUE can not be converted to Structure"),
        (b'{"MessageAttributes": {"a": {"BinaryValue": "?"}}}', "MessageAttributes.a.BinaryValue: the value is not"),
        (b'{"MessageAttributes": {"a": {"BinaryValue": 7}}}', "MessageAttributes.a.BinaryValue: NUMBER_VALUE can not"),
        (
            b'{"MessageAttributes": {"a": {"StringListValues": {}}}}',
            "MessageAttributes.a.StringListValues: STRUCTURE_VALUE can not be converted to List",
        ),
        (
            b'{"MessageAttributes": {"a": {"StringListValues": [null]}}}',
            "MessageAttributes.a.StringListValues: NULL_VALUE can not be converted to String",
        ),
    ],
)
def test_a_value_of_another_type_is_refused(body: bytes, said: str) -> None:
    with pytest.raises(SqsError) as caught:
        json.parse(SEND, body)

    assert (caught.value.shape, caught.value.status) == ("SerializationException", 400)
    assert str(caught.value).startswith(said)


@pytest.mark.parametrize(
    ("action", "body", "shape", "said"),
    [
        ("SendMessage", {}, "MissingRequiredParameterException", "MessageBody."),
        ("SendMessage", {"MessageBody": "b"}, "MissingRequiredParameterException", "QueueUrl."),
        (
            "SendMessage",
            {"QueueUrl": "q", "MessageBody": "b", "MessageAttributes": {"a": {"StringValue": "b"}}},
            "MissingRequiredParameterException",
            "MessageAttributes.a.DataType.",
        ),
        (
            "SendMessageBatch",
            {"QueueUrl": "q", "Entries": [{"Id": "1", "MessageBody": "b"}, {"Id": "2"}]},
            "MissingRequiredParameterException",
            "Entries.2.MessageBody.",
        ),
        ("SendMessage", {"Body": "b"}, "InvalidParameterValueException", "Body is no parameter of this action."),
        (
            "SendMessageBatch",
            {"Entries": [{"Id": "1", "Color": "red"}]},
            "InvalidParameterValueException",
            "Entries.1.Color is no parameter of this action.",
        ),
        (
            "ReceiveMessage",
            {"QueueUrl": "q", "WaitTimeSeconds": 21},
            "InvalidParameterValueException",
            "Value 21 for parameter WaitTimeSeconds is invalid. Reason: Must be >= 0 and <= 20, if provided.",
        ),
    ],
)
def test_what_is_missing_unknown_or_out_of_bounds_is_named(
    action: str, body: dict[str, Any], shape: str, said: str
) -> None:
    with pytest.raises(SqsError) as caught:
        json.parse(ACTIONS[action], orjson.dumps(body))

    assert caught.value.shape == shape
    assert str(caught.value).endswith(said)


def test_a_number_of_an_entry_is_left_to_the_action() -> None:
    """One bad entry fails alone."""
    entry = {"Id": "1", "MessageBody": "b", "DelaySeconds": 901}

    values = json.parse(ACTIONS["SendMessageBatch"], orjson.dumps({"QueueUrl": "q", "Entries": [entry]}))

    assert values["Entries"] == [entry]


@pytest.mark.parametrize(
    ("action", "result", "body"),
    [
        ("ReceiveMessage", {"Messages": []}, {}),
        ("ListQueues", {"QueueUrls": [], "NextToken": None}, {}),
        ("ListQueueTags", {"Tags": {}}, {}),
        ("DeleteMessage", {}, {}),
        ("ListDeadLetterSourceQueues", {"queueUrls": []}, {"queueUrls": []}),
        ("SendMessageBatch", {"Successful": [], "Failed": []}, {"Successful": [], "Failed": []}),
        ("CancelMessageMoveTask", {"ApproximateNumberOfMessagesMoved": 0}, {"ApproximateNumberOfMessagesMoved": 0}),
        (
            "ReceiveMessage",
            {"Messages": [{"Body": "", "Attributes": {}, "MessageAttributes": {}, "MD5OfMessageAttributes": None}]},
            {"Messages": [{"Body": ""}]},
        ),
        (
            "ReceiveMessage",
            {"Messages": [{"MessageAttributes": {"a": {"DataType": "Binary", "BinaryValue": b"\0\1\xff"}}}]},
            {"Messages": [{"MessageAttributes": {"a": {"DataType": "Binary", "BinaryValue": "AAH/"}}}]},
        ),
    ],
)
def test_an_answer_leaves_out_what_is_empty_and_not_required(
    action: str, result: dict[str, Any], body: dict[str, Any]
) -> None:
    assert orjson.loads(json.answer(ACTIONS[action], result)) == body


def test_an_answer_with_a_name_that_the_model_does_not_have_is_a_fault_of_ours() -> None:
    with pytest.raises(KeyError):
        json.answer(SEND, {"MessageID": "m"})


def test_a_refusal_names_its_shape() -> None:
    error = SqsError("QueueDoesNotExist", "The specified queue does not exist.")

    assert orjson.loads(json.refusal(error)) == {
        "__type": "com.amazonaws.sqs#QueueDoesNotExist",
        "message": "The specified queue does not exist.",
    }
