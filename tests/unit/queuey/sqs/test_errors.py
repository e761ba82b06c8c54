"""The words of SQS: two names, a status, and the parser of the SDK finds both."""

from __future__ import annotations

import pytest

from queuey import errors as ours
from queuey.errors import QueueyError, error_classes
from queuey.sqs import errors, json, query
from queuey.sqs.errors import CODES, SqsError, as_sqs
from tests.support.sqs_model import MODELS, parsed


@pytest.mark.parametrize(
    ("shape", "code", "status"),
    [
        ("QueueDoesNotExist", "AWS.SimpleQueueService.NonExistentQueue", 400),
        ("QueueNameExists", "QueueAlreadyExists", 400),
        ("EmptyBatchRequest", "AWS.SimpleQueueService.EmptyBatchRequest", 400),
        ("PurgeQueueInProgress", "AWS.SimpleQueueService.PurgeQueueInProgress", 403),
        ("OverLimit", "OverLimit", 403),
        ("ResourceNotFoundException", "ResourceNotFoundException", 404),
        ("InvalidParameterValueException", "InvalidParameterValue", 400),
        ("MissingRequiredParameterException", "MissingParameter", 400),
        ("RequestThrottled", "RequestThrottled", 403),
        ("AccessDeniedException", "AccessDenied", 403),
        ("InternalError", "InternalError", 500),
    ],
)
def test_an_error_has_two_names_and_a_status(shape: str, code: str, status: int) -> None:
    error = SqsError(shape, "because")

    assert (error.code, error.query_code, error.status) == (shape, code, status)
    assert error.query_error == f"{code};{'Receiver' if status == 500 else 'Sender'}"
    assert str(error) == "because"


def test_the_sdk_reads_a_refusal_in_json() -> None:
    for error in [SqsError(shape, 'said "so" & <so>') for shape in CODES]:
        headers = {"x-amzn-query-error": error.query_error, "x-amzn-requestid": "r-1"}

        told = parsed("json", "SendMessage", json.refusal(error), status=error.status, headers=headers)

        assert told["Error"]["Message"] == str(error)
        assert told["Error"]["Code"] == error.query_code
        assert told["Error"]["QueryErrorCode"] == error.shape
        assert told["ResponseMetadata"]["RequestId"] == "r-1"


def test_the_sdk_reads_a_refusal_in_xml() -> None:
    for error in [SqsError(shape, 'said "so" & <so>\r\n') for shape in CODES]:
        told = parsed("query", "SendMessage", query.refusal(error, "r-1"), status=error.status)

        assert told["Error"] == {
            "Type": "Receiver" if error.status >= 500 else "Sender",
            "Code": error.query_code,
            "Message": str(error),
            "Detail": None,
        }
        assert told["ResponseMetadata"]["RequestId"] == "r-1"


def test_each_error_of_the_sdks_model_has_a_code_and_a_status() -> None:
    assert {shape.name for shape in MODELS["json"].error_shapes} <= CODES.keys()


def test_a_queue_that_is_not_there_has_a_text_for_each_protocol() -> None:
    error = errors.no_such_queue()

    assert str(error) == "The specified queue does not exist."
    assert b"<Message>The specified queue does not exist for this wsdl version.</Message>" in query.refusal(error, "r")


@pytest.mark.parametrize(
    ("error", "shape", "text"),
    [
        (errors.invalid_attribute_name("X"), "InvalidAttributeName", "Unknown Attribute X."),
        (errors.invalid_attribute_value("X"), "InvalidAttributeValue", "Invalid value for the parameter X."),
        (
            errors.invalid_attribute_value("FifoQueue", "Modifying queue type is not supported."),
            "InvalidAttributeValue",
            "Invalid value for the parameter FifoQueue. Reason: Modifying queue type is not supported.",
        ),
        (
            errors.invalid_receipt_handle("h"),
            "ReceiptHandleIsInvalid",
            'The input receipt handle "h" is not a valid receipt handle.',
        ),
        (
            errors.missing_parameter("MessageBody"),
            "MissingRequiredParameterException",
            "The request must contain the parameter MessageBody.",
        ),
        (errors.no_such_action("X"), "InvalidAction", "The action X is not valid for this endpoint."),
    ],
)
def test_an_error_says_what_the_service_says(error: SqsError, shape: str, text: str) -> None:
    assert (error.shape, str(error)) == (shape, text)


def test_what_a_client_sent_is_shown_in_part_if_it_is_long() -> None:
    assert len(str(errors.invalid_attribute_name("x" * 1_000_000))) < 1100


@pytest.mark.parametrize(
    ("error", "shape", "status"),
    [
        (ours.QueueNotFound(), "QueueDoesNotExist", 400),
        (ours.ApplicationNotFound(), "QueueDoesNotExist", 400),
        (ours.TaskNotFound(), "ResourceNotFoundException", 404),
        (ours.NotFound(), "UnknownOperationException", 404),
        (ours.InvalidParameter("ttl: too long"), "InvalidParameterValueException", 400),
        (ours.InvalidReceipt(), "ReceiptHandleIsInvalid", 400),
        (ours.StaleReceipt(), "InvalidParameterValueException", 400),
        (ours.InvalidApplicationKey(), "InvalidClientTokenId", 403),
        (ours.Forbidden(), "AccessDeniedException", 403),
        (ours.TooManyWaiters(), "RequestThrottled", 403),
        (ours.InProgress(), "RequestThrottled", 403),
        (ours.StorageUnavailable(), "ServiceUnavailable", 503),
        (ours.StorageFull(), "ServiceUnavailable", 503),
        (ours.ServerStopping(), "ServiceUnavailable", 503),
        (ours.CorruptMessage(), "InternalError", 500),
        (ours.OutcomeUnknown(), "InternalError", 500),
        (ours.QueueyError(), "InternalError", 500),
    ],
)
def test_an_error_of_the_server_is_said_in_the_words_of_sqs(error: QueueyError, shape: str, status: int) -> None:
    said = as_sqs(error)

    assert (said.shape, said.status) == (shape, status)


@pytest.mark.parametrize("code", error_classes())
def test_each_error_of_the_server_keeps_its_kind(code: str) -> None:
    """G10: a refusal by 4xx stays one, what may succeed later stays repeatable, and headers stay."""
    error = error_classes()[code]("because")
    error.headers["Retry-After"] = "1"

    said = as_sqs(error)

    assert said.headers == {"Retry-After": "1"}
    assert (said.status < 500) == (error.status < 500)
    if error.retriable:
        assert said.shape in ("RequestThrottled", "ServiceUnavailable")


def test_an_error_in_the_words_of_sqs_stays_itself() -> None:
    error = errors.no_such_queue()

    assert as_sqs(error) is error


def test_v1_does_not_know_the_codes_of_sqs() -> None:
    assert "SqsError" not in error_classes()
