"""The Query protocol: forms in, XML out, and the same dict as JSON gives."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl, quote, quote_plus, urlencode

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queuey.sqs import json, query
from queuey.sqs.errors import SqsError
from queuey.sqs.query import MAX_OF_LINK, MAX_PARAMETERS
from queuey.sqs.shapes import ACTIONS
from tests.support.sqs_model import answers, parsed, requests, serialized

SEND = ACTIONS["SendMessage"]
RECEIVE = ACTIONS["ReceiveMessage"]
NAMESPACE = 'xmlns="http://queue.amazonaws.com/doc/2012-11-05/"'


@pytest.mark.parametrize("name", ACTIONS)
@settings(max_examples=10)
@given(data=st.data())
def test_both_protocols_give_the_same(name: str, data: st.DataObject) -> None:
    values = data.draw(requests(name))
    form = query.parameters(urlencode(serialized("query", name, values)))

    got = query.parse(ACTIONS[name], form)

    assert got == values
    assert got == json.parse(ACTIONS[name], serialized("json", name, values))


@pytest.mark.parametrize(
    ("name", "values"), [("ReceiveMessage", {"AttributeNames": []}), ("SendMessageBatch", {"Entries": []})]
)
def test_both_protocols_take_an_empty_list(name: str, values: dict[str, Any]) -> None:
    values |= {"QueueUrl": "q"}
    form = query.parameters(urlencode(serialized("query", name, values)))

    assert query.parse(ACTIONS[name], form) == json.parse(ACTIONS[name], serialized("json", name, values))


@pytest.mark.parametrize("name", ACTIONS)
@settings(max_examples=10)
@given(data=st.data())
def test_the_sdk_understands_what_is_answered(name: str, data: st.DataObject) -> None:
    result = data.draw(answers(name))

    told = parsed("query", name, query.answer(ACTIONS[name], result, "r-1"))

    metadata = told.pop("ResponseMetadata")
    assert told == result
    assert metadata["RequestId"] == "r-1"


@pytest.mark.parametrize(
    ("action", "form", "values"),
    [
        (
            "CreateQueue",
            (
                "Action=CreateQueue&Version=2012-11-05&QueueName=q&Attribute.1.Name=DelaySeconds&Attribute.1.Value=5"
                "&Tag.1.Key=a&Tag.1.Value=b"
            ),
            {"QueueName": "q", "Attributes": {"DelaySeconds": "5"}, "tags": {"a": "b"}},
        ),
        (
            "ReceiveMessage",
            (
                "QueueUrl=q&AttributeName.2=SenderId&AttributeName.1=All&MessageAttributeName.1=.*"
                "&MessageSystemAttributeName.1=All&MaxNumberOfMessages=10&WaitTimeSeconds=0"
            ),
            {
                "QueueUrl": "q",
                "AttributeNames": ["All", "SenderId"],
                "MessageAttributeNames": [".*"],
                "MessageSystemAttributeNames": ["All"],
                "MaxNumberOfMessages": 10,
                "WaitTimeSeconds": 0,
            },
        ),
        (
            "SendMessage",
            (
                "QueueUrl=q&MessageBody=a+b%0D%0A%C3%A9&MessageAttribute.1.Name=n&MessageAttribute.1.Value.DataType=Binary"
                "&MessageAttribute.1.Value.BinaryValue=AAH%2F&MessageSystemAttribute.1.Name=AWSTraceHeader"
                "&MessageSystemAttribute.1.Value.DataType=String&MessageSystemAttribute.1.Value.StringValue=Root"
            ),
            {
                "QueueUrl": "q",
                "MessageBody": "a b\r\né",
                "MessageAttributes": {"n": {"DataType": "Binary", "BinaryValue": b"\0\1\xff"}},
                "MessageSystemAttributes": {"AWSTraceHeader": {"DataType": "String", "StringValue": "Root"}},
            },
        ),
        (
            "AddPermission",
            "QueueUrl=q&Label=l&AWSAccountId.1=125074342641&ActionName.1=SendMessage&ActionName.2=ReceiveMessage",
            {
                "QueueUrl": "q",
                "Label": "l",
                "AWSAccountIds": ["125074342641"],
                "Actions": ["SendMessage", "ReceiveMessage"],
            },
        ),
        ("UntagQueue", "QueueUrl=q&TagKey.1=a", {"QueueUrl": "q", "TagKeys": ["a"]}),
        (
            "SendMessageBatch",
            (
                "QueueUrl=q&SendMessageBatchRequestEntry.1.Id=x&SendMessageBatchRequestEntry.1.MessageBody=b"
                "&SendMessageBatchRequestEntry.1.DelaySeconds=901"
            ),
            {"QueueUrl": "q", "Entries": [{"Id": "x", "MessageBody": "b", "DelaySeconds": 901}]},
        ),
        (
            "DeleteMessageBatch",
            "QueueUrl=q&DeleteMessageBatchRequestEntry.1.Id=x&DeleteMessageBatchRequestEntry.1.ReceiptHandle=r",
            {"QueueUrl": "q", "Entries": [{"Id": "x", "ReceiptHandle": "r"}]},
        ),
        (
            "ChangeMessageVisibilityBatch",
            (
                "QueueUrl=q&ChangeMessageVisibilityBatchRequestEntry.7.Id=x"
                "&ChangeMessageVisibilityBatchRequestEntry.7.ReceiptHandle=r"
                "&ChangeMessageVisibilityBatchRequestEntry.7.VisibilityTimeout=0"
            ),
            {"QueueUrl": "q", "Entries": [{"Id": "x", "ReceiptHandle": "r", "VisibilityTimeout": 0}]},
        ),
        # As the service's own older examples write it.
        ("GetQueueAttributes", "QueueUrl=q&AttributeName=All", {"QueueUrl": "q", "AttributeNames": ["All"]}),
        (
            "SetQueueAttributes",
            "QueueUrl=q&Attribute.Name=Policy&Attribute.Value=",
            {"QueueUrl": "q", "Attributes": {"Policy": ""}},
        ),
        # As SDKs write an empty list.
        ("GetQueueAttributes", "QueueUrl=q&AttributeNames=", {"QueueUrl": "q"}),
        ("SendMessageBatch", "QueueUrl=q&Entries=", {"QueueUrl": "q", "Entries": []}),
        # What is about the request itself.
        (
            "ListQueues",
            "Action=ListQueues&AWSAccessKeyId=k&SignatureVersion=2&Expires=2026&X-Amz-Signature=s&X-Amz-Date=d",
            {},
        ),
        # The last of equal ones.
        ("ListQueues", "MaxResults=1&MaxResults=2", {"MaxResults": 2}),
        ("SendMessageBatch", "QueueUrl=q", {"QueueUrl": "q", "Entries": []}),
    ],
)
def test_a_form_is_understood(action: str, form: str, values: dict[str, Any]) -> None:
    assert query.parse(ACTIONS[action], query.parameters(form)) == values


@pytest.mark.parametrize(
    ("action", "form", "shape", "said"),
    [
        ("SendMessage", "QueueUrl=q", "MissingRequiredParameterException", "the parameter MessageBody."),
        (
            "GetQueueAttributes",
            "AttributeNames=All",
            "InvalidParameterValueException",
            "AttributeNames is no parameter",
        ),
        ("SendMessage", "Body=b", "InvalidParameterValueException", "Body is no parameter of this action."),
        ("SendMessage", "MessageBody.1=b", "InvalidParameterValueException", "MessageBody.1 is no parameter"),
        ("SendMessage", "MessageBody=b&MessageBody.1=b", "InvalidParameterValueException", "MessageBody.1 is no"),
        ("SendMessage", "MessageBody.1=b&MessageBody=b", "InvalidParameterValueException", "MessageBody is no"),
        ("SendMessage", "MessageAttribute=x", "InvalidParameterValueException", "MessageAttribute is no parameter"),
        ("SendMessage", "MessageAttribute.1=x", "InvalidParameterValueException", "MessageAttribute.1 is no"),
        ("SendMessage", "MessageAttribute.0.Name=x", "InvalidParameterValueException", "MessageAttribute.0 is no"),
        ("SendMessage", "MessageAttribute.1.Nam=x", "InvalidParameterValueException", "MessageAttribute.1 is no"),
        ("SendMessage", "MessageAttribute.1.Name=x", "MissingRequiredParameterException", "MessageAttribute.1.Value."),
        (
            "SendMessage",
            "MessageAttribute.1.Name=x&MessageAttribute.1.Value=y",
            "InvalidParameterValueException",
            "MessageAttribute.1.Value is no parameter",
        ),
        (
            "SendMessage",
            "MessageAttribute.1.Name=x&MessageAttribute.1.Value.StringValue=y",
            "MissingRequiredParameterException",
            "MessageAttribute.1.Value.DataType.",
        ),
        (
            "SendMessage",
            "MessageAttribute.1.Name=x&MessageAttribute.1.Value.BinaryValue=!",
            "InvalidParameterValueException",
            "MessageAttribute.1.Value.BinaryValue is invalid. Reason: Must be base64.",
        ),
        ("TagQueue", "QueueUrl=q&Tag.1.Key=x", "MissingRequiredParameterException", "Tag.1.Value."),
        ("UntagQueue", "QueueUrl=q&TagKeys=", "MissingRequiredParameterException", "the parameter TagKeys."),
        (
            "DeleteMessageBatch",
            "QueueUrl=q&DeleteMessageBatchRequestEntry.1.Id=x",
            "MissingRequiredParameterException",
            "DeleteMessageBatchRequestEntry.1.ReceiptHandle.",
        ),
        ("DeleteMessageBatch", "DeleteMessageBatchRequestEntry=x", "InvalidParameterValueException", "is no parameter"),
        ("ReceiveMessage", "AttributeName.x=All", "InvalidParameterValueException", "AttributeName.x is no"),
        ("ReceiveMessage", f"AttributeName.{'9' * 100_000}=All", "InvalidParameterValueException", "is no parameter"),
        ("ReceiveMessage", f"AttributeName.{'1.' * 100_000}=All", "InvalidParameterValueException", "is no parameter"),
        ("ReceiveMessage", "WaitTimeSeconds=", "InvalidParameterValueException", "Must be an integer."),
        ("ReceiveMessage", "WaitTimeSeconds=2.5", "InvalidParameterValueException", "Must be an integer."),
        ("ReceiveMessage", "WaitTimeSeconds=%D9%A3", "InvalidParameterValueException", "Must be an integer."),
        ("ReceiveMessage", f"WaitTimeSeconds={'9' * 100_000}", "InvalidParameterValueException", "Must be an integer."),
        (
            "ReceiveMessage",
            "QueueUrl=q&WaitTimeSeconds=21",
            "InvalidParameterValueException",
            "Value 21 for parameter WaitTimeSeconds is invalid. Reason: Must be >= 0 and <= 20, if provided.",
        ),
        ("ListQueues", "QueueNamePrefix=%F", "MalformedQueryString", "two hexadecimal digits"),
        ("ListQueues", "QueueNamePrefix=%%20", "MalformedQueryString", "two hexadecimal digits"),
        ("ListQueues", "QueueNamePrefix=\ud800", "MalformedQueryString", "not UTF-8"),
        ("ListQueues", "QueueNamePrefix=%FF", "MalformedQueryString", "not UTF-8"),
        ("ListQueues", "&" * MAX_PARAMETERS, "MalformedQueryString", f"more than {MAX_PARAMETERS} parameters"),
    ],
)
def test_what_is_wrong_is_named(action: str, form: str, shape: str, said: str) -> None:
    with pytest.raises(SqsError) as caught:
        query.parse(ACTIONS[action], query.parameters(form))

    assert caught.value.shape == shape
    assert caught.value.status == 400
    assert said in str(caught.value)
    assert len(str(caught.value)) < 1200


@given(
    st.lists(st.tuples(st.text(st.characters(exclude_categories=["Cs"])), st.text("%=&+_ \r\n\0a4é"))),
    st.sampled_from([quote, quote_plus]),
)
def test_a_form_is_read_as_others_read_it(pairs: list[tuple[str, str]], quoted: Any) -> None:
    form = urlencode(pairs, quote_via=quoted)

    assert query.parameters(form) == query.parameters(form.encode()) == parse_qsl(form, keep_blank_values=True)


@pytest.mark.parametrize("form", ["", "&", "a", "a=", "=a", "a=b=c", "a=\n=\r\n", "é=é", "a_b=c_d&&e=%3d%3D%26+%2B"])
def test_an_unusual_form_is_read_as_others_read_it(form: str) -> None:
    assert query.parameters(form) == parse_qsl(form, keep_blank_values=True)


def test_a_link_has_fewer_parameters_than_a_form_since_nobody_has_signed_it_yet() -> None:
    assert len(query.of_link("&".join(["a=b"] * MAX_OF_LINK))) == MAX_OF_LINK

    with pytest.raises(SqsError, match=f"more than {MAX_OF_LINK} parameters"):
        query.of_link("&".join(["a=b"] * (MAX_OF_LINK + 1)))


def test_parameters_of_path_and_body_together_have_the_same_bound() -> None:
    with pytest.raises(SqsError, match=f"more than {MAX_PARAMETERS} parameters"):
        query.parse(RECEIVE, [(f"AttributeName.{number}", "All") for number in range(1, MAX_PARAMETERS + 2)])


def test_an_answer_has_the_form_of_the_service() -> None:
    message = {
        "MessageId": "m",
        "Body": 'a "b"\r\n<&>',
        "Attributes": {"SenderId": "s"},
        "MD5OfMessageAttributes": None,
        "MessageAttributes": {"n": {"DataType": "Binary", "BinaryValue": b"\0\1\xff"}},
    }

    assert query.answer(RECEIVE, {"Messages": [message]}, "r-1").decode() == (
        f'<?xml version="1.0"?><ReceiveMessageResponse {NAMESPACE}><ReceiveMessageResult><Message>'
        "<MessageId>m</MessageId><Body>a &quot;b&quot;&#xD;\n&lt;&amp;&gt;</Body>"
        "<Attribute><Name>SenderId</Name><Value>s</Value></Attribute>"
        "<MessageAttribute><Name>n</Name><Value><DataType>Binary</DataType><BinaryValue>AAH/</BinaryValue></Value>"
        "</MessageAttribute></Message></ReceiveMessageResult>"
        "<ResponseMetadata><RequestId>r-1</RequestId></ResponseMetadata></ReceiveMessageResponse>"
    )


@pytest.mark.parametrize(
    ("action", "result", "inside"),
    [
        ("DeleteMessage", {}, ""),
        ("ReceiveMessage", {"Messages": []}, "<ReceiveMessageResult></ReceiveMessageResult>"),
        (
            "ListQueues",
            {"QueueUrls": ["a", "b"], "NextToken": None},
            "<ListQueuesResult><QueueUrl>a</QueueUrl><QueueUrl>b</QueueUrl></ListQueuesResult>",
        ),
        (
            "ListQueueTags",
            {"Tags": {"k": "v"}},
            "<ListQueueTagsResult><Tag><Key>k</Key><Value>v</Value></Tag></ListQueueTagsResult>",
        ),
        (
            "DeleteMessageBatch",
            {"Successful": [{"Id": "1"}], "Failed": [{"Id": "2", "SenderFault": True, "Code": "c"}]},
            (
                "<DeleteMessageBatchResult><DeleteMessageBatchResultEntry><Id>1</Id></DeleteMessageBatchResultEntry>"
                "<BatchResultErrorEntry><Id>2</Id><SenderFault>true</SenderFault><Code>c</Code></BatchResultErrorEntry>"
                "</DeleteMessageBatchResult>"
            ),
        ),
        (
            "ListMessageMoveTasks",
            {"Results": [{"Status": "RUNNING"}]},
            (
                "<ListMessageMoveTasksResult><ListMessageMoveTasksResultEntry><Status>RUNNING</Status>"
                "</ListMessageMoveTasksResultEntry></ListMessageMoveTasksResult>"
            ),
        ),
    ],
)
def test_an_answer_has_a_result_only_if_the_action_has_output(action: str, result: dict[str, Any], inside: str) -> None:
    assert query.answer(ACTIONS[action], result, "r").decode() == (
        f'<?xml version="1.0"?><{action}Response {NAMESPACE}>{inside}'
        f"<ResponseMetadata><RequestId>r</RequestId></ResponseMetadata></{action}Response>"
    )


def test_a_character_that_xml_has_no_place_for_breaks_no_answer() -> None:
    """Messages that came by v1 may have any."""
    told = parsed("query", "ReceiveMessage", query.answer(RECEIVE, {"Messages": [{"Body": "a\0b\x1b\ufffe"}]}, "r"))

    assert told["Messages"] == [{"Body": "a\ufffdb\ufffd\ufffd"}]


def test_a_refusal_has_the_form_of_the_service() -> None:
    error = SqsError("ReceiptHandleIsInvalid", 'The input receipt handle "\x00" is not a valid receipt handle.')

    assert query.refusal(error, "r-1").decode() == (
        f'<?xml version="1.0"?><ErrorResponse {NAMESPACE}><Error><Type>Sender</Type>'
        "<Code>ReceiptHandleIsInvalid</Code><Message>The input receipt handle &quot;\ufffd&quot; is not a valid"
        " receipt handle.</Message><Detail/></Error><RequestId>r-1</RequestId></ErrorResponse>"
    )
