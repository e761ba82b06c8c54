"""Every refusal of Queuey, one tree.

::

    QueueyError                       500
    ├── BadRequest                    400
    │   ├── InvalidParameter          400   one text per field
    │   ├── InvalidMessageId          400
    │   ├── InvalidReceipt            400
    │   ├── PartitionsCannotShrink    400
    │   ├── BadPath                   400
    │   ├── MalformedRequest          400
    │   ├── LengthRequired            411
    │   ├── MessageTooLarge           413
    │   ├── PathTooLong               414
    │   ├── UnsupportedEncoding       415
    │   ├── HeadersTooLarge           431
    │   ├── KeyReused                 422
    │   └── NotAcceptable             406
    ├── Unauthenticated               401
    │   ├── InvalidApplicationKey     401
    │   ├── InvalidBrowserID          401
    │   └── InvalidToken              401
    ├── Forbidden                     403
    ├── NotFound                      404
    │   ├── ApplicationNotFound       404
    │   ├── QueueNotFound             404
    │   ├── LeaseGroupNotFound        404
    │   ├── TaskNotFound              404
    │   └── MessageNotFound           404
    ├── MethodNotAllowed              405
    ├── Conflict                      409
    │   ├── QueueExists               409
    │   ├── SettingsChanged           412
    │   ├── CursorLost                409
    │   ├── InProgress                409
    │   ├── OffsetMovesBack           409
    │   ├── StaleGeneration           409
    │   ├── StaleReceipt              409
    │   └── TaskRunning               409
    ├── Throttled                     429   retriable
    │   ├── TooManyTasks              429   retriable
    │   └── TooManyWaiters            429   retriable
    ├── TooManyConnections            503   retriable
    ├── ServerStopping                503   retriable
    ├── CorruptMessage                500
    ├── StorageUnavailable            503   retriable: nothing was stored
    │   ├── StorageReadOnly           503
    │   ├── ClockUnsafe               503
    │   └── ServerUnreachable         raised by clients, never over HTTP
    ├── StorageFull                   507   retriable: nothing was stored
    ├── OutcomeUnknown                504   may have been stored
    ├── BrokenStream                  raised by clients, never over HTTP
    ├── DataLost                      raised by the pipeline on Spark, never over HTTP
    ├── CoordinatorUnavailable        retriable; raised by workers, never over HTTP
    │   └── SessionLost               retriable
    └── ConfigurationError            raised at start, never over HTTP
        └── StoreInUse

``code`` is the class's own name on the wire and the anchor of its page in the docs; ``key`` is the
key that v1's ``error_msg`` carries where the first Queuey's clients expect another word
(queuey-api-v1 section 2.3). 4xx, 429 and 503 promise that this request stored nothing (G10).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

__all__ = [
    "ApplicationNotFound",
    "BadPath",
    "BadRequest",
    "BrokenStream",
    "ClockUnsafe",
    "ConfigurationError",
    "Conflict",
    "CoordinatorUnavailable",
    "CorruptMessage",
    "CursorLost",
    "DataLost",
    "Forbidden",
    "HeadersTooLarge",
    "InProgress",
    "InvalidApplicationKey",
    "InvalidBrowserID",
    "InvalidMessageId",
    "InvalidParameter",
    "InvalidReceipt",
    "InvalidToken",
    "KeyReused",
    "LeaseGroupNotFound",
    "LengthRequired",
    "MalformedRequest",
    "MessageNotFound",
    "MessageTooLarge",
    "MethodNotAllowed",
    "NotAcceptable",
    "NotFound",
    "OffsetMovesBack",
    "OutcomeUnknown",
    "PartitionsCannotShrink",
    "PathTooLong",
    "QueueExists",
    "QueueNotFound",
    "QueueyError",
    "ServerStopping",
    "ServerUnreachable",
    "SessionLost",
    "SettingsChanged",
    "StaleGeneration",
    "StaleReceipt",
    "StorageFull",
    "StorageReadOnly",
    "StorageUnavailable",
    "StoreInUse",
    "TaskNotFound",
    "TaskRunning",
    "Throttled",
    "TooManyConnections",
    "TooManyTasks",
    "TooManyWaiters",
    "Unauthenticated",
    "UnsupportedEncoding",
    "error_classes",
]


class QueueyError(Exception):
    """Queuey failed in a way it did not foresee."""

    status: int = 500
    retriable: ClassVar[bool] = False
    key: ClassVar[str] = ""

    def __init__(self, detail: str = "", *, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail or type(self).default())
        self.headers = dict(headers or {})

    @classmethod
    def default(cls) -> str:
        """The docstring's first line is what is said when nothing more is known."""
        return (cls.__doc__ or "").strip().splitlines()[0]

    @property
    def code(self) -> str:
        return type(self).__name__

    @property
    def problems(self) -> dict[str, str]:
        """v1's ``error_msg``: key to text."""
        return {self.key or self.code: str(self)}


class BadRequest(QueueyError):
    """The request is not one this resource understands."""

    status = 400


class InvalidParameter(BadRequest):
    """A value in the request is missing or outside of its range.

    Carries one text per field, all failing fields together; in a batch a field is
    ``<zero-based index>.<field>``.
    """

    def __init__(self, detail: str = "", *, problems: Mapping[str, str] | None = None) -> None:
        self._problems = dict(problems or {})
        said = "; ".join(f"{field}: {text}" for field, text in self._problems.items())
        super().__init__(detail or said)

    @property
    def problems(self) -> dict[str, str]:
        return self._problems or super().problems


class InvalidMessageId(BadRequest):
    """A message id is 32 hexadecimal digits of a version 1 UUID, after a partition and a colon if not in partition 1."""

    key = "InvalidMessageID"


class InvalidReceipt(BadRequest):
    """A receipt is what a receive of this queue and lease group gave, unchanged, and each is named once; nothing was done."""


class PartitionsCannotShrink(BadRequest):
    """A queue can gain partitions but never lose one: messages would be hidden."""

    key = "InvalidUpdate"


class BadPath(BadRequest):
    """The path has a broken percent-escape, a NUL or bytes that are not UTF-8."""

    key = "path"


class MalformedRequest(BadRequest):
    """The request is not HTTP/1.1 as every program reads it: the connection is closed."""


class LengthRequired(BadRequest):
    """Send Content-Length: a body without it could have been cut on its way unnoticed."""

    status = 411


class MessageTooLarge(BadRequest):
    """The body is larger than this server takes."""

    status = 413


class PathTooLong(BadRequest):
    """The path is longer than 4096 bytes."""

    status = 414
    key = "path"


class HeadersTooLarge(BadRequest):
    """The headers are more than 100, or larger than 32 KiB together."""

    status = 431


class UnsupportedEncoding(BadRequest):
    """Bodies are taken as they are: send no Content-Encoding other than identity."""

    status = 415


class KeyReused(BadRequest):
    """This idempotency key was used in the last 24 hours for another body: use a new key for a new message."""

    status = 422


class NotAcceptable(BadRequest):
    """None of the media types in Accept can be given here."""

    status = 406


class Unauthenticated(QueueyError):
    """The credential was not accepted."""

    status = 401


class InvalidApplicationKey(Unauthenticated):
    """The application key is not known: check the Authorization header, of the form 'Application <key>'."""


class InvalidBrowserID(Unauthenticated):
    """The BrowserID assertion proves nothing here: make a new one for this server, of the form 'BrowserID <certificate>~<assertion>'."""


class InvalidToken(Unauthenticated):
    """The token proves nothing here: get a new one for this server, and send it as 'Bearer <token>'."""


class Forbidden(QueueyError):
    """Access was denied: this identity may not do this here."""

    status = 403


class NotFound(QueueyError):
    """There is nothing at this path."""

    status = 404


class ApplicationNotFound(NotFound):
    """No application of this name: make one with 'queuey key new NAME'."""


class QueueNotFound(NotFound):
    """No queue of this name: create it with a POST to its application."""

    key = "InvalidQueueName"
    what_to_send = ": create it with a POST to its application"
    """The end of the text, of use where requests are made by hand."""

    @classmethod
    def named(cls, name: str) -> QueueNotFound:
        """The error that says which one.

        >>> str(QueueNotFound.named("mail"))
        'no queue is named "mail": create it with a POST to its application'
        """
        return cls(f'no queue is named "{name[:80]}"{cls.what_to_send}')

    def saying(self, what_to_do: str) -> QueueNotFound:
        """The same error where no requests are made by hand.

        >>> str(QueueNotFound.named("mail").saying(": create_queue makes it"))
        'no queue is named "mail": create_queue makes it'
        """
        return QueueNotFound(str(self).replace(self.what_to_send, what_to_do))


class LeaseGroupNotFound(NotFound):
    """No lease group of this name: the first receive makes it."""


class TaskNotFound(NotFound):
    """No such task: none was started, or its queue is gone."""


class MessageNotFound(NotFound):
    """No message with this id: it expired, was deleted, or never was."""


class MethodNotAllowed(QueueyError):
    """This method is not offered here; Allow lists those that are."""

    status = 405


class Conflict(QueueyError):
    """The request does not fit the present state."""

    status = 409


class QueueExists(Conflict):
    """A queue of this name exists, and If-None-Match: * asked for a new one, or the credential may not change queues."""


class SettingsChanged(Conflict):
    """The queue's settings are not those of the ETag in If-Match: read them again, and send what is still to change; nothing was changed."""

    status = 412


class CursorLost(Conflict):
    """The cursor is of a queue that was deleted, maybe made anew: start over without a cursor."""

    key = "cursor"


class InProgress(Conflict):
    """A request with this idempotency key is still running: repeat it in a second."""


class OffsetMovesBack(Conflict):
    """A group's offset never goes back by itself: commit a later message, or reset it; nothing was changed."""


class StaleGeneration(Conflict):
    """The partition has a newer owner, or its offset was reset: stop, and claim it anew; nothing was changed."""


class StaleReceipt(Conflict):
    """A lease ended before this request: its message was handed out again, or is settled; nothing was appended or settled."""


class TaskRunning(Conflict):
    """A task of this kind runs already: wait for its end or cancel it; nothing was started."""


class Throttled(QueueyError):
    """As many requests, or bytes of them, are under way as this server takes at once; nothing was stored: try again after Retry-After seconds."""

    status = 429
    retriable = True


class TooManyWaiters(Throttled):
    """As many readers wait for messages as may: end one, or try again after Retry-After seconds."""

    def __init__(self, detail: str = "", *, headers: Mapping[str, str] | None = None, whose: str = "") -> None:
        """:param whose: limit it is: ``server``, ``threads``, ``application``, ``user`` or ``strangers``."""
        super().__init__(detail, headers=headers)
        self.whose = whose


class TooManyTasks(Throttled):
    """As many tasks of this application run as may: wait for the end of one, or cancel one; nothing was started."""


class TooManyConnections(QueueyError):
    """This server has as many connections as it takes: nothing was read of the request, try again after Retry-After seconds."""

    status = 503
    retriable = True


class ServerStopping(QueueyError):
    """This server stops: connect again, to another one or to itself when it is back."""

    status = 503
    retriable = True


class CorruptMessage(QueueyError):
    """A stored message does not match its checksum."""


class StorageUnavailable(QueueyError):
    """The store did not take the request: nothing was stored, try again."""

    status = 503
    retriable = True


class StorageReadOnly(StorageUnavailable):
    """The store can be read but not written: nothing was stored."""


class ClockUnsafe(StorageUnavailable):
    """This server's clock error may be over its bound: nothing was stored."""


class ServerUnreachable(StorageUnavailable):
    """No server answers at this address: nothing was stored."""


class StorageFull(QueueyError):
    """The disk is full up to the reserve: nothing was stored; reads and deletes still work."""

    status = 507
    retriable = True


class OutcomeUnknown(QueueyError):
    """The write may or may not be stored: repeat it only with the same idempotency key or message id."""

    status = 504


class BrokenStream(QueueyError):
    """The answer ended before its end mark: rows are missing; go on from the last one that came."""


class DataLost(QueueyError):
    """Messages are gone that were to be read: they expired, were deleted, or their queue was."""


class CoordinatorUnavailable(QueueyError):
    """What a group of workers shares cannot be reached: it may or may not have been changed, and may be tried again."""

    retriable = True


class SessionLost(CoordinatorUnavailable):
    """The other members of a group hold this one for dead: what it owned is theirs, and it has to join anew."""


class ConfigurationError(QueueyError):
    """A setting is unknown, missing or outside of its range."""


class StoreInUse(ConfigurationError):
    """Another server process has this store open."""


def error_classes(root: type[QueueyError] = QueueyError) -> dict[str, type[QueueyError]]:
    """All classes of this tree by code, the root included.

    What a face derives for its own protocol is left out: v1 never says its codes.

    >>> error_classes()["QueueNotFound"].status
    404
    """
    found = {root.__name__: root}
    for child in root.__subclasses__():
        if child.__module__ == __name__:
            found |= error_classes(child)
    return found
