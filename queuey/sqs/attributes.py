"""The attributes of a queue: what its maker may set, what is reported, and the settings that follow from them.

A queue keeps them as one JSON text beside its other settings, so a change of them is one compare-and-set.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import orjson

from queuey.ids import EPOCH_TICKS, TICKS_PER_SECOND
from queuey.model import Queue
from queuey.model.lease_groups import NO_ORDER, ORDER_BY_KEY
from queuey.sqs.errors import SqsError, invalid_attribute_name, invalid_attribute_value, invalid_parameter
from queuey.sqs.policies import MAX_TEXT, Policy, policy_of

__all__ = [
    "GROUP",
    "MAX_RECEIVES",
    "QueueAttributes",
    "RedrivePolicy",
    "attributes_of",
    "modified_seconds",
    "parse_arn",
    "redrive_allow_policy",
    "redrive_policy",
]

GROUP = "sqs"
"""The lease group from which SQS clients receive."""
MAX_RECEIVES = 1000
MAX_TAGS = 50
_MAX_KEY_AGE = 86_400
_MOST_SOURCES = 10
_ARN = re.compile(r"arn:[^:]{0,64}:sqs:[^:]{0,64}:([0-9]{12}):([^:]*)")
"""It has a bound but for the name, which no queue has if it is long: each move task keeps ARNs."""
_PER_KEY = 10
"""Messages of one message group that one receive may hand out."""

_NUMBERS: Mapping[str, tuple[int, int, int | None]] = {
    "DelaySeconds": (0, 900, 0),
    "KmsDataKeyReusePeriodSeconds": (60, _MAX_KEY_AGE, None),
    "MaximumMessageSize": (1024, 1 << 20, 1 << 20),
    "MessageRetentionPeriod": (60, 1_209_600, 345_600),
    "ReceiveMessageWaitTimeSeconds": (0, 20, 0),
    "VisibilityTimeout": (0, 43_200, 30),
}
"""The least, the most, and the default of each number; None: without a value it is not reported."""
_WORDS: Mapping[str, tuple[tuple[str, ...], str]] = {
    "DeduplicationScope": (("queue", "messageGroup"), "queue"),
    "FifoThroughputLimit": (("perQueue", "perMessageGroupId"), "perQueue"),
}
"""The values of each attribute of a FIFO queue that is a word, and its default."""
_FLAGS = {"ContentBasedDeduplication": "false", "FifoQueue": "true", "SqsManagedSseEnabled": "true"}
_OF_FIFO = frozenset(["ContentBasedDeduplication", "FifoQueue", *_WORDS])
_OF_BOTH = frozenset(
    [*_NUMBERS, "KmsMasterKeyId", "Policy", "RedriveAllowPolicy", "RedrivePolicy", "SqsManagedSseEnabled"]
)
_OFTEN_REPORTED = [*(name for name, (_, _, own) in _NUMBERS.items() if own is not None), "SqsManagedSseEnabled"]


_ONE_ENCRYPTION = (
    "You can use one type of server-side encryption (SSE) at one time. You can either enable KMS SSE or SQS SSE."
)


class RedrivePolicy(NamedTuple):
    """When a queue gives up a message, and where it goes then."""

    account: str
    queue: str
    """The name of the dead-letter queue."""
    max_receives: int


@dataclass(frozen=True)
class QueueAttributes:
    """What the door keeps with a queue."""

    given: Mapping[str, str]
    """Attributes that were set, each in the form in which it is reported."""
    tags: Mapping[str, str] = field(default_factory=dict)
    modified: int = 0
    """Seconds since 1970 of the last change; 0 for none since the queue was made."""
    purges: int = 0
    """How often the queue was purged: a purge forgets which messages were sent already."""
    purged: int = 0
    """Seconds since 1970 of the last purge."""
    purging: int = 0
    """Ticks: messages up to this moment are to be purged, and the task for it has not begun; 0 for none."""
    is_fair: bool = False
    """Of a standard queue: a message with a message group was sent to it, and since then receives are fair between groups."""
    waits_until: int = 0
    """Ticks. Until then, messages of a FIFO queue are due no earlier than those that are delayed already: before its delay
    became shorter, some may have been sent that are due by then."""
    moves: Sequence[Mapping[str, Any]] = ()
    """Of a dead-letter queue: its last move tasks, see :mod:`queuey.sqs.actions.move_tasks`."""

    @property
    def text(self) -> str:
        """As :func:`attributes_of` reads it."""
        return orjson.dumps(asdict(self), option=orjson.OPT_SORT_KEYS).decode()

    @cached_property
    def is_fifo(self) -> bool:
        return "FifoQueue" in self.given

    @cached_property
    def numbers(self) -> Mapping[str, int]:
        """The values of the attributes that are numbers and have a default."""
        return {name: int(self.given.get(name) or own) for name, (_, _, own) in _NUMBERS.items() if own is not None}

    def value(self, name: str) -> str | None:
        """What an attribute has, set or by default; None if it has nothing."""
        if name in self.given:
            return self.given[name]
        if name in _NUMBERS:
            own = _NUMBERS[name][2]
            return None if own is None else str(own)
        if name in _OF_FIFO and not self.is_fifo:
            return None
        return _WORDS[name][1] if name in _WORDS else _FLAGS.get(name)

    def has(self, name: str, text: str) -> bool:
        """Whether an attribute has this value. Policies are compared by what they say, not by how it is written."""
        own = self.value(name)
        if own is None or own == text:
            return own == text
        read = _POLICIES.get(name)
        return read is not None and read(own) == read(text)

    def reported(self) -> dict[str, str]:
        """All that ``All`` reports of them."""
        names = [*_OFTEN_REPORTED, *(_OF_FIFO if self.is_fifo else ()), *self.given]
        found = {name: self.value(name) for name in sorted({*names})}
        return {name: value for name, value in found.items() if value is not None}

    @property
    def policy(self) -> Policy:
        """What others may do."""
        return policy_of(self.given.get("Policy", ""))

    def with_policy(self, policy: Policy, arn: str) -> QueueAttributes:
        """These with another policy, which the owner did not write as a whole."""
        given = {name: text for name, text in self.given.items() if name != "Policy"}
        if policy.statements:
            given["Policy"] = policy.document(arn)
        return replace(self, given=given)

    def changed(self, given: Mapping[str, str], *, is_new: bool = False) -> QueueAttributes:
        """These with others set, each checked for itself. An empty policy is none.

        :param is_new: the queue is being made: only then its type is chosen.
        :raises SqsError: a name is unknown, or a value is wrong.
        """
        is_fifo = _flag("FifoQueue", given["FifoQueue"]) == "true" if is_new and "FifoQueue" in given else self.is_fifo
        checked = {name: _checked(name, text, is_fifo=is_fifo) for name, text in given.items()}
        if checked.get("KmsMasterKeyId"):
            if checked.get("SqsManagedSseEnabled") == "true":
                raise SqsError("InvalidAttributeValue", _ONE_ENCRYPTION)
            checked["SqsManagedSseEnabled"] = "false"
        elif checked.get("SqsManagedSseEnabled") == "true":
            checked["KmsMasterKeyId"] = ""
        if not is_new and checked.get("FifoQueue", "true") != "true":
            raise invalid_attribute_value("FifoQueue", "Modifying queue type is not supported.")
        if is_new and checked.get("FifoQueue") == "false":
            raise invalid_attribute_name("FifoQueue")
        found = {name: value for name, value in {**self.given, **checked}.items() if value}
        after = replace(self, given=found)
        if after.value("FifoThroughputLimit") == "perMessageGroupId" and after.value("DeduplicationScope") == "queue":
            reason = (
                "The perMessageGroupId value is allowed only when the value for DeduplicationScope is messageGroup."
            )
            raise invalid_attribute_value("FifoThroughputLimit", reason)
        return after

    @property
    def redrive(self) -> RedrivePolicy | None:
        text = self.given.get("RedrivePolicy")
        return None if text is None else redrive_policy(text)

    @property
    def lease_settings(self) -> dict[str, Any]:
        """Of the queue's lease group."""
        redrive = self.redrive
        return {
            "visibility": float(self.numbers["VisibilityTimeout"]),
            "max_failures": 0 if redrive is None else redrive.max_receives,
            "dead_letter_queue": None if redrive is None else redrive.queue,
            "order": ORDER_BY_KEY if self.is_fifo else NO_ORDER,
            "per_key": _PER_KEY if self.is_fifo else 1,
            **({"fair": True} if self.is_fair else {}),  # else it is as other doors have set it
        }

    @property
    def queue_settings(self) -> dict[str, Any]:
        """What the queue's lease groups begin with, and how long the dead letters live that come to it.

        On a standard queue their age counts from the send, on a FIFO queue from the move.
        """
        return {**self.lease_settings, "letters": [self.numbers["MessageRetentionPeriod"], not self.is_fifo]}


@lru_cache(1024)
def _read(text: str) -> QueueAttributes:
    return QueueAttributes(**orjson.loads(text)) if text else QueueAttributes({})


def attributes_of(queue: Queue) -> QueueAttributes:
    """Those of a queue; of a queue that another door has made, all are the defaults."""
    return _read(queue.attributes)


def modified_seconds(queue: Queue) -> int:
    """When the attributes of a queue were last changed, or it was made: seconds since 1970."""
    return attributes_of(queue).modified or (queue.created_ticks - EPOCH_TICKS) // TICKS_PER_SECOND


def _checked(name: str, text: str, *, is_fifo: bool) -> str:
    if name not in _OF_BOTH and name not in _OF_FIFO:
        raise invalid_attribute_name(name)
    if name in _OF_FIFO and not is_fifo:
        if name in _WORDS:
            raise SqsError("InvalidAttributeName", f"You can specify the {name} only when FifoQueue is set to true.")
        raise invalid_attribute_name(name)
    return _CHECKS[name](name, text)


def _number(name: str, text: str) -> str:
    least, most, _ = _NUMBERS[name]
    if not (text.isascii() and text.isdigit() and len(text) < 10 and least <= int(text) <= most):
        raise invalid_attribute_value(name)
    return str(int(text))


def _reuse_period(name: str, text: str) -> str:
    """The usual period counts as none."""
    return "" if text in ("", "300") else _number(name, text)


def _word(name: str, text: str) -> str:
    if text not in _WORDS[name][0]:
        raise invalid_attribute_value(name)
    return text


def _flag(name: str, text: str) -> str:
    if text.lower() not in ("true", "false"):
        raise invalid_attribute_value(name)
    return text.lower()


def _policy(name: str, text: str) -> str:
    policy_of(text)
    return text


def _key_name(name: str, text: str) -> str:
    if len(text) > 2048 or not text.isprintable():
        raise invalid_attribute_value(name)
    return text


def _redrive(name: str, text: str) -> str:
    if text:
        redrive_policy(text)
    return text


def _redrive_allow(name: str, text: str) -> str:
    if text:
        redrive_allow_policy(text)
    return text


_CHECKS: Mapping[str, Callable[[str, str], str]] = {
    **dict.fromkeys(_NUMBERS, _number),
    **dict.fromkeys(_WORDS, _word),
    **dict.fromkeys(_FLAGS, _flag),
    "KmsDataKeyReusePeriodSeconds": _reuse_period,
    "KmsMasterKeyId": _key_name,
    "Policy": _policy,
    "RedriveAllowPolicy": _redrive_allow,
    "RedrivePolicy": _redrive,
}


def _object(name: str, text: str) -> dict[str, Any]:
    """:raises SqsError: the text of a policy is no JSON object."""
    try:
        found = orjson.loads(text) if len(text) <= MAX_TEXT else None
    except orjson.JSONDecodeError:
        found = None
    if not isinstance(found, dict):
        raise invalid_parameter(
            f"Value {text[:200]} for parameter {name} is invalid. Reason: Redrive policy is not a valid JSON map of at most "
            f"{MAX_TEXT} characters."
        )
    return found


@lru_cache(1024)
def redrive_policy(text: str) -> RedrivePolicy:
    """:raises SqsError: it is none."""

    def wrong(reason: str) -> SqsError:
        return invalid_parameter(f"Value {text[:200]} for parameter RedrivePolicy is invalid. Reason: {reason}")

    found = _object("RedrivePolicy", text)
    if unknown := [*found.keys() - {"deadLetterTargetArn", "maxReceiveCount"}]:
        raise wrong(f"Unknown member {unknown[0][:80]}.")
    count = found.get("maxReceiveCount")
    if isinstance(count, str) and count.isascii() and count.isdigit() and len(count) < 10:
        count = int(count)
    if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= MAX_RECEIVES:
        raise wrong(f"Invalid value for maxReceiveCount: must be from 1 to {MAX_RECEIVES}.")
    arn = found.get("deadLetterTargetArn")
    place = parse_arn(arn) if isinstance(arn, str) else None
    if place is None:
        raise wrong("Invalid value for deadLetterTargetArn.")
    return RedrivePolicy(*place, count)


def redrive_allow_policy(text: str) -> tuple[str, frozenset[str]]:
    """Which queues may name one as its dead-letter queue: a word, and with ``byQueue`` the ARNs of queues.

    :raises SqsError: it is no such policy.
    """

    def wrong(reason: str) -> SqsError:
        return invalid_parameter(f"Value {text[:200]} for parameter RedriveAllowPolicy is invalid. Reason: {reason}")

    found = _object("RedriveAllowPolicy", text)
    if unknown := [*found.keys() - {"redrivePermission", "sourceQueueArns"}]:
        raise wrong(f"Unknown member {unknown[0][:80]}.")
    word, sources = found.get("redrivePermission"), found.get("sourceQueueArns")
    if word not in ("allowAll", "denyAll", "byQueue"):
        raise wrong("redrivePermission must be allowAll, denyAll or byQueue.")
    if (word == "byQueue") != bool(sources):
        raise wrong("sourceQueueArns is required with byQueue, and with nothing else.")
    if sources and (not isinstance(sources, list) or len(sources) > _MOST_SOURCES or not all(map(_is_arn, sources))):
        raise wrong(f"sourceQueueArns must be a list of at most {_MOST_SOURCES} ARNs of queues.")
    return word, frozenset(sources or ())


_POLICIES: Mapping[str, Callable[[str], Any]] = {
    "Policy": orjson.loads,
    "RedriveAllowPolicy": redrive_allow_policy,
    "RedrivePolicy": redrive_policy,
}
"""What each attribute that is a policy says."""


def _is_arn(text: Any) -> bool:
    return isinstance(text, str) and parse_arn(text) is not None


def parse_arn(text: str) -> tuple[str, str] | None:
    """The account and the name in the ARN of a queue, in any region; None if it is none.

    >>> parse_arn("arn:aws:sqs:eu-west-1:123456789012:jobs")
    ('123456789012', 'jobs')
    """
    found = _ARN.fullmatch(text)
    return None if found is None else (found[1], found[2])
