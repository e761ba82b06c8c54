"""Refusals in the words of SQS.

An error has two names: its *shape* in JSON, by which an SDK chooses the exception class, and a code in Query.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from queuey.errors import (
    ApplicationNotFound,
    BadRequest,
    Conflict,
    Forbidden,
    InProgress,
    InvalidReceipt,
    MethodNotAllowed,
    NotFound,
    QueueNotFound,
    QueueyError,
    TaskNotFound,
    Throttled,
    Unauthenticated,
)

__all__ = [
    "CODES",
    "SqsError",
    "access_denied",
    "as_sqs",
    "internal_error",
    "invalid_attribute_name",
    "invalid_attribute_value",
    "invalid_parameter",
    "invalid_receipt_handle",
    "missing_parameter",
    "no_such_action",
    "no_such_queue",
    "not_for_this_type",
    "serialization_error",
    "shown",
    "unknown_operation",
]

_PREFIX = "AWS.SimpleQueueService."

CODES: Mapping[str, tuple[str, int]] = {
    "AccessDeniedException": ("AccessDenied", 403),
    "BatchEntryIdsNotDistinct": (_PREFIX + "BatchEntryIdsNotDistinct", 400),
    "BatchRequestTooLong": (_PREFIX + "BatchRequestTooLong", 400),
    "EmptyBatchRequest": (_PREFIX + "EmptyBatchRequest", 400),
    "IncompleteSignature": ("IncompleteSignature", 400),
    "InternalError": ("InternalError", 500),
    "InvalidAction": ("InvalidAction", 400),
    "InvalidAddress": ("InvalidAddress", 400),
    "InvalidAttributeName": ("InvalidAttributeName", 400),
    "InvalidAttributeValue": ("InvalidAttributeValue", 400),
    "InvalidBatchEntryId": (_PREFIX + "InvalidBatchEntryId", 400),
    "InvalidClientTokenId": ("InvalidClientTokenId", 403),
    "InvalidIdFormat": ("InvalidIdFormat", 400),
    "InvalidMessageContents": ("InvalidMessageContents", 400),
    "InvalidParameterValueException": ("InvalidParameterValue", 400),
    "InvalidSecurity": ("InvalidSecurity", 400),
    "InvalidSignatureException": ("SignatureDoesNotMatch", 403),
    "KmsAccessDenied": ("KMS.AccessDeniedException", 400),
    "KmsDisabled": ("KMS.DisabledException", 400),
    "KmsInvalidKeyUsage": ("KMS.InvalidKeyUsageException", 400),
    "KmsInvalidState": ("KMS.InvalidStateException", 400),
    "KmsNotFound": ("KMS.NotFoundException", 400),
    "KmsOptInRequired": ("KMS.OptInRequired", 403),
    "KmsThrottled": ("KMS.ThrottlingException", 400),
    "MalformedQueryString": ("MalformedQueryString", 400),
    "MessageNotInflight": (_PREFIX + "MessageNotInflight", 400),
    "MissingAuthenticationToken": ("MissingAuthenticationToken", 403),
    "MissingRequiredParameterException": ("MissingParameter", 400),
    "OverLimit": ("OverLimit", 403),
    "PurgeQueueInProgress": (_PREFIX + "PurgeQueueInProgress", 403),
    "QueueDeletedRecently": (_PREFIX + "QueueDeletedRecently", 400),
    "QueueDoesNotExist": (_PREFIX + "NonExistentQueue", 400),
    "QueueNameExists": ("QueueAlreadyExists", 400),
    "ReceiptHandleIsInvalid": ("ReceiptHandleIsInvalid", 400),
    "RequestThrottled": ("RequestThrottled", 403),
    "ResourceNotFoundException": ("ResourceNotFoundException", 404),
    "SerializationException": ("SerializationException", 400),
    "ServiceUnavailable": ("ServiceUnavailable", 503),
    "TooManyEntriesInBatchRequest": (_PREFIX + "TooManyEntriesInBatchRequest", 400),
    "UnknownOperationException": ("UnknownOperationException", 404),
    "UnsupportedOperation": (_PREFIX + "UnsupportedOperation", 400),
}
"""By shape: the code in Query, and the HTTP status."""


class SqsError(QueueyError):
    """The request was refused in the words of SQS."""

    def __init__(
        self,
        shape: str,
        text: str,
        *,
        code: str | None = None,
        query_text: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """
        :param shape: one of :data:`CODES`, which has the status.
        :param code: the code in Query where it is not the shape's own.
        :param query_text: the text in Query where it is another one.
        """
        super().__init__(text, headers=headers)
        own_code, self.status = CODES[shape]
        self.shape = shape
        self.query_code = own_code if code is None else code
        self.query_text = text if query_text is None else query_text

    @property
    def code(self) -> str:
        return self.shape

    @property
    def fault(self) -> str:
        """``Sender`` or ``Receiver``: whose the error is."""
        return "Receiver" if self.status >= 500 else "Sender"

    @property
    def query_error(self) -> str:
        """The value of the header ``x-amzn-query-error``, by which SDKs of today name an error as older ones did."""
        return f"{self.query_code};{self.fault}"


_MOST_SHOWN = 1024


def shown(text: str) -> str:
    """What a client sent, short enough for a text."""
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."


def access_denied(text: str = "Access to the resource is denied.") -> SqsError:
    return SqsError("AccessDeniedException", text)


def internal_error(text: str) -> SqsError:
    return SqsError("InternalError", text)


def invalid_attribute_name(name: str) -> SqsError:
    return SqsError("InvalidAttributeName", f"Unknown Attribute {shown(name)}.")


def invalid_attribute_value(name: str, reason: str = "") -> SqsError:
    because = f" Reason: {reason}" if reason else ""
    return SqsError("InvalidAttributeValue", f"Invalid value for the parameter {shown(name)}.{because}")


def invalid_parameter(text: str) -> SqsError:
    return SqsError("InvalidParameterValueException", text)


def invalid_receipt_handle(handle: str) -> SqsError:
    return SqsError(
        "ReceiptHandleIsInvalid", f'The input receipt handle "{shown(handle)}" is not a valid receipt handle.'
    )


def missing_parameter(name: str) -> SqsError:
    return SqsError("MissingRequiredParameterException", f"The request must contain the parameter {shown(name)}.")


def no_such_action(name: str) -> SqsError:
    return SqsError("InvalidAction", f"The action {shown(name)} is not valid for this endpoint.")


def no_such_queue() -> SqsError:
    text = "The specified queue does not exist"
    return SqsError("QueueDoesNotExist", f"{text}.", query_text=f"{text} for this wsdl version.")


def not_for_this_type(name: str, value: object) -> SqsError:
    """A parameter of FIFO queues at a standard queue, or the other way round."""
    reason = "The request include parameter that is not valid for this queue type."
    return invalid_parameter(f"Value {shown(str(value))} for parameter {name} is invalid. Reason: {reason}")


def serialization_error(text: str) -> SqsError:
    return SqsError("SerializationException", text)


def unknown_operation(text: str = "Unknown operation: the request names no action.") -> SqsError:
    return SqsError("UnknownOperationException", text)


def as_sqs(error: QueueyError) -> SqsError:
    """Any error of Queuey's tree in the words of SQS, its headers kept.

    4xx means that nothing was stored. SDKs repeat 403 ``RequestThrottled`` and each 5xx by themselves.
    """
    if isinstance(error, SqsError):
        return error
    for family, words in _WORDS.items():
        if isinstance(error, family):
            said = words(error)
            break
    else:
        said = _of_ours(error)
    said.headers.update(error.headers)
    return said


def _shape(shape: str) -> Callable[[QueueyError], SqsError]:
    return lambda error: SqsError(shape, str(error))


def _of_ours(error: QueueyError) -> SqsError:
    """A fault of the server: 503 if the request may succeed later."""
    return SqsError("ServiceUnavailable" if error.retriable else "InternalError", str(error))


_WORDS: Mapping[type[QueueyError], Callable[[QueueyError], SqsError]] = {
    QueueNotFound: lambda _: no_such_queue(),
    ApplicationNotFound: lambda _: no_such_queue(),
    TaskNotFound: lambda _: SqsError("ResourceNotFoundException", "Task does not exist."),
    InvalidReceipt: _shape("ReceiptHandleIsInvalid"),
    Unauthenticated: _shape("InvalidClientTokenId"),
    Forbidden: lambda _: access_denied(),
    Throttled: _shape("RequestThrottled"),
    InProgress: _shape("RequestThrottled"),
    MethodNotAllowed: _shape("UnknownOperationException"),
    NotFound: _shape("UnknownOperationException"),
    Conflict: _shape("InvalidParameterValueException"),
    BadRequest: _shape("InvalidParameterValueException"),
}
"""By class, the more special ones first."""
