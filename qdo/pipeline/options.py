"""The options of the data source: one table, with types.

A wrong option is refused by name.

Options have the names of Spark's Kafka source where the meaning is the same. Case does not matter, as everywhere in
Spark. The environment of the driver completes them: ``QUEUEY_URL``, ``QUEUEY_APPLICATION`` and ``QUEUEY_KEY``. The driver
hands these to the tasks; they appear in no plan, on no page of Spark's and in no log.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from qdo.groups.names import check_group
from queuey.errors import ConfigurationError
from queuey.ids import EPOCH_TICKS, MessageId

T = TypeVar("T")

BATCH, STREAM, WRITE = "batch", "stream", "write"
READS = frozenset({BATCH, STREAM})
ALL = frozenset({BATCH, STREAM, WRITE})
MOST_COUNTED = 10_000_000
"""Messages of one partition that a server counts in one request. The last part of a longer partition has the rest."""
MOST_A_TRIGGER = MOST_COUNTED - 1
"""One more tells whether there are more."""


class Option(NamedTuple):
    """One option of the source."""

    name: str
    roads: frozenset[str]
    default: str
    """As the documentation shows it; empty if the option has no default."""
    meaning: str


OPTIONS = (
    Option("url", ALL, "http://127.0.0.1:5000", "Addresses of servers, separated by commas; a task uses the first that answers."),
    Option("application", ALL, "demo", "Whose queues."),
    Option("token", ALL, "", "Key of the application, or a token (`queuey token mint`). Spark hides options of this name."),
    Option("tokenFile", ALL, "", "A file with the key or the token. Tasks read it where they run, so it is in no plan at all. It holds one line."),
    Option("timeout", ALL, "60", "Seconds to wait for the next bytes of an answer, and for a server that is behind the plan."),
    Option("retries", ALL, "12", "Repeats of a request, with pauses of up to 5 s: about 40 s without a server."),
    Option("subscribe", READS, "", "Names of queues, separated by commas."),
    Option("subscribePattern", READS, "", "A regular expression that a whole name must match; new queues are found without a restart."),
    Option("assign", READS, "", 'Partitions: `{"orders": [1, 2]}`.'),
    Option("startingOffsets", READS, "batch: earliest, stream: latest", '`earliest`, `latest`, or the last ids that were read: `{"orders": {"1": "<id>"}}`. A partition that is not named begins as by default.'),
    Option("endingOffsets", frozenset({BATCH}), "latest", "The same form: the last messages to read. `latest` is fixed when the job is planned."),
    Option("startingTimestamp", READS, "", "Milliseconds since 1970, or ISO 8601 with a zone; inclusive. It replaces the offsets, and may be to come."),
    Option("endingTimestamp", frozenset({BATCH}), "", "The same form; exclusive."),
    Option("failOnDataLoss", READS, "true", "Fail if messages are gone that should have been read; false goes on, and logs how many and where."),
    Option("columns", READS, "", "Names, separated by commas: the server sends only these. A schema given by the user does the same. Only so does a read have `headers`."),
    Option("bodyType", READS, "binary", "`string` makes text of bodies, and fails on a body that is not UTF-8."),
    Option("filterPushdown", frozenset({BATCH}), "as install() set", "Let the server apply filters on time, queue, partition and id."),
    Option("minPartitions", frozenset({BATCH}), "", "The least number of tasks: large spans are cut."),
    Option("maxRecordsPerPartition", frozenset({BATCH}), "", "Messages of one task, at most, approximately."),
    Option("maxOffsetsPerTrigger", frozenset({STREAM}), "", "Messages of a micro-batch, 9,999,999 at most. Partitions share it in proportion to what waits in them; a partition counts for two even shares at most."),
    Option("minOffsetsPerTrigger", frozenset({STREAM}), "", "Wait until this many messages are there,"),
    Option("maxTriggerDelay", frozenset({STREAM}), "15m", "but no longer than this: `30s`, `15m`, `2h`."),
    Option("tasksPerTrigger", frozenset({STREAM}), "", "Tasks of a micro-batch, at most; without it one for each 20,000 messages."),
    Option("groupId", frozenset({STREAM}), "", "A group whose offsets in Queuey follow the query, for people to see. The query never goes on from them."),
    Option("transport", READS, "arrow", "`json` for a server without Arrow; a read changes to it when the server says so."),
    Option("queue", frozenset({WRITE}), "", "The queue of messages without a column `queue`."),
    Option("ttl", frozenset({WRITE}), "the server's", "Seconds to live of messages without a column `ttl`."),
    Option("batchSize", frozenset({WRITE}), "10000", "Messages in a request."),
    Option("batchBytes", frozenset({WRITE}), "4194304", "Bytes of texts, bodies and headers in a request."),
    Option("maxRate", frozenset({WRITE}), "", "Messages a second of each task, at most."),
    Option("jobId", frozenset({WRITE}), "drawn", "The id of a batch job: a job with the same id repeats an earlier one safely within a day."),
)  # fmt: skip
_BY_NAME = {option.name.lower(): option for option in OPTIONS}
_SPARK_OWN = frozenset({"path", "checkpointlocation", "paths"})
"""Options that Spark adds itself."""

_DURATION = re.compile(r"([0-9]+)\s*(ms|s|m|h)?")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, None: 1.0}

Places = Mapping[str, Mapping[int, MessageId | str]]
"""By queue and partition: an id, or ``earliest`` or ``latest``."""


class Given:
    """Options as Spark gives them, read one by one."""

    def __init__(self, options: Mapping[str, str], road: str) -> None:
        """:raises ConfigurationError: an option that this kind of read or write does not have."""
        self._given = {name.lower(): value for name, value in options.items() if name.lower() not in _SPARK_OWN}
        for name in self._given:
            known = _BY_NAME.get(name)
            if known is None or road not in known.roads:
                raise ConfigurationError(_unknown(name, known, road))

    def text(self, name: str, default: str = "") -> str:
        return self._given.get(name.lower(), default) or default

    def take(self, name: str, parse: Callable[[str], T], default: T) -> T:
        """:raises ConfigurationError: names the option."""
        text = self.text(name)
        return parsed(name, text, parse) if text else default


def parsed(name: str, text: str, parse: Callable[[str], T]) -> T:
    """The value of an option.

    :raises ConfigurationError: names the option.
    """
    try:
        return parse(text)
    except ValueError as error:
        raise ConfigurationError(f"option {name}: {text[:80]!r} {error}") from error


def _unknown(name: str, known: Option | None, road: str) -> str:
    whose = {BATCH: "a batch read", STREAM: "a streaming read", WRITE: "a write"}[road]
    if known is not None:
        return f"option {known.name} is none of {whose}: it is of {' and '.join(sorted(known.roads))}"
    close = get_close_matches(name, [option.name.lower() for option in OPTIONS if road in option.roads], 1)
    hint = f": did you mean {_BY_NAME[close[0]].name}?" if close else ""
    return f"option {name} is none of the format queuey{hint}"


def boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("is not true or false")
    return text.lower() == "true"


def whole(low: int, high: int = 1 << 53) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not text.isdecimal() or not low <= int(text) <= high:
            raise ValueError(
                f"is not a whole number of {low} or more" if high == 1 << 53 else f"is not {low} to {high}"
            )
        return int(text)

    return parse


def words(text: str) -> tuple[str, ...]:
    found = tuple(dict.fromkeys(word.strip() for word in text.split(",")))
    if not all(found):
        raise ValueError("has an empty name")
    return found


def seconds(text: str) -> float:
    """A duration.

    >>> seconds("15m")
    900.0
    """
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None:
        raise ValueError("is not a duration such as 30s, 15m, 2h")
    return int(match[1]) * _UNITS[match[2]]


def moment(text: str) -> int:
    """Ticks of a moment, exact to the microsecond.

    >>> moment("1795236650012") == moment("2026-11-21T04:50:50.012Z")
    True
    """
    if text.isdecimal():
        return EPOCH_TICKS + int(text) * 10_000
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise ValueError("is neither milliseconds since 1970 nor ISO 8601 with a zone, such as 2026-11-21T06:00:00Z")
    return ticks_of(found)


def ticks_of(when: datetime) -> int:
    """Ticks of a moment with a time zone."""
    since = when - datetime(1970, 1, 1, tzinfo=UTC)
    return EPOCH_TICKS + ((since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds) * 10


def _object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not found:
        raise ValueError("is not a JSON object with names of queues")
    return found


def assigned(text: str) -> Mapping[str, Sequence[int]]:
    found = _object(text)
    for name, numbers in found.items():
        if not isinstance(numbers, list) or not numbers or not all(type(n) is int and 1 <= n <= 200 for n in numbers):
            raise ValueError(f"has no list of partition numbers for {name}")
    return {name: sorted(set(numbers)) for name, numbers in found.items()}


def offsets(text: str) -> str | Places:
    if text.lower() in ("earliest", "latest"):
        return text.lower()
    return {name: _places(name, entries) for name, entries in _object(text).items()}


def _whole(place: str) -> str | Places:
    return place


def _places(name: str, entries: Any) -> Mapping[int, MessageId | str]:
    found: dict[int, MessageId | str] = {}
    for number, place in entries.items() if isinstance(entries, dict) else ():
        if not number.isdecimal() or not 1 <= int(number) <= 200 or not isinstance(place, str):
            raise ValueError(f"has no partition number with an id for {name}: {number!r}")
        found[int(number)] = place if place in ("earliest", "latest") else MessageId.parse(place)
    if not found:
        raise ValueError(f"has no partitions for {name}")
    return found


@dataclass(frozen=True)
class Reach:
    """Where the servers are, and with which secret to ask them."""

    urls: tuple[str, ...]
    application: str
    token: str = field(repr=False)
    token_file: str
    timeout_seconds: float
    retries: int

    @classmethod
    def of(cls, given: Given) -> Reach:
        """:raises ConfigurationError: two secrets, or the token's file cannot be read."""
        token, file = given.text("token"), given.text("tokenFile")
        if token and file:
            raise ConfigurationError("options token and tokenFile: give one of them")
        return cls(
            given.take("url", words, words(os.environ.get("QUEUEY_URL") or "http://127.0.0.1:5000")),
            given.text("application") or os.environ.get("QUEUEY_APPLICATION") or "demo",
            token or ("" if file else os.environ.get("QUEUEY_KEY", "")),
            file,
            given.take("timeout", seconds, 60.0),
            given.take("retries", whole(0, 1000), 12),
        )

    @property
    def secret(self) -> str:
        """:raises ConfigurationError: the token's file cannot be read, or holds no secret."""
        if not self.token_file:
            return self.token
        try:
            found = Path(self.token_file).read_text(encoding="ascii").strip()
        except OSError as error:
            raise ConfigurationError(f"option tokenFile: {self.token_file} cannot be read: {error.strerror}") from error
        except UnicodeDecodeError:
            found = ""
        if not found or not found.isprintable():
            raise ConfigurationError(
                f"option tokenFile: {self.token_file} must hold one line, a key or a token"
            ) from None
        return found


@dataclass(frozen=True)
class Subscription:
    """Which queues, and which of their partitions."""

    names: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: Mapping[str, Sequence[int]] | None = None

    @classmethod
    def of(cls, given: Given) -> Subscription:
        """:raises ConfigurationError: none of the three ways is given, or more than one."""
        ways = [name for name in ("subscribe", "subscribePattern", "assign") if given.text(name)]
        if len(ways) != 1:
            raise ConfigurationError(
                f"options {' and '.join(ways)}: give one of them"
                if ways
                else "which queues? Give option subscribe, subscribePattern or assign"
            )
        chosen = given.take("assign", assigned, None)
        pattern = given.take("subscribePattern", _pattern, None)
        return cls(given.take("subscribe", words, tuple(chosen or ())), pattern, chosen)

    def numbers(self, queue: str, partitions: int) -> Sequence[int]:
        """The partitions to read of a queue.

        :param partitions: how many the queue has.
        :raises ConfigurationError: the queue has no partition of an assigned number.
        """
        if self.assigned is None:
            return range(1, partitions + 1)
        numbers = self.assigned[queue]
        beyond = [number for number in numbers if number > partitions]
        if beyond:
            raise ConfigurationError(f"option assign: queue {queue} has {partitions} partitions, and no {beyond[0]}")
        return numbers


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"is no regular expression: {error}") from error
    return text


@dataclass(frozen=True)
class ReadOptions:
    """What a read asks for."""

    reach: Reach
    subscription: Subscription
    start: str | Places
    end: str | Places
    since_ticks: int | None
    until_ticks: int | None
    fail_on_data_loss: bool
    pushes_filters: bool | None
    """None for what the session was set up for."""
    by_json: bool
    min_partitions: int | None
    max_records: int | None
    max_per_trigger: int | None
    min_per_trigger: int | None
    max_delay_seconds: float
    tasks_per_trigger: int | None
    group: str | None

    @classmethod
    def of(cls, options: Mapping[str, str], road: str) -> ReadOptions:
        """:raises ConfigurationError: an option is unknown or wrong, or contradicts another one."""
        given = Given(options, road)
        found = cls(
            Reach.of(given),
            Subscription.of(given),
            given.take("startingOffsets", offsets, _whole("latest" if road == STREAM else "earliest")),
            given.take("endingOffsets", offsets, _whole("latest")),
            given.take("startingTimestamp", moment, None),
            given.take("endingTimestamp", moment, None),
            given.take("failOnDataLoss", boolean, True),
            given.take("filterPushdown", boolean, None),
            given.take("transport", _transport, "arrow") == "json",
            given.take("minPartitions", whole(1), None),
            given.take("maxRecordsPerPartition", whole(1), None),
            given.take("maxOffsetsPerTrigger", whole(1, MOST_A_TRIGGER), None),
            given.take("minOffsetsPerTrigger", whole(1, MOST_A_TRIGGER), None),
            given.take("maxTriggerDelay", seconds, 900.0),
            given.take("tasksPerTrigger", whole(1), None),
            given.take("groupId", _group, None),
        )
        if found.end == "earliest":
            raise ConfigurationError("option endingOffsets: 'earliest' would read nothing")
        if found.max_per_trigger and found.min_per_trigger and found.max_per_trigger < found.min_per_trigger:
            raise ConfigurationError("option minOffsetsPerTrigger is over maxOffsetsPerTrigger")
        return found


def _group(text: str) -> str:
    check_group(text, "option groupId:")
    return text


def _transport(text: str) -> str:
    if text not in ("arrow", "json"):
        raise ValueError("is not arrow or json")
    return text


def body_type(text: str) -> str:
    if text not in ("binary", "string"):
        raise ValueError("is not binary or string")
    return text


@dataclass(frozen=True)
class WriteOptions:
    """What a write asks for."""

    reach: Reach
    queue: str
    ttl_seconds: int | None
    batch_size: int
    batch_bytes: int
    max_rate: int | None
    job: str

    @classmethod
    def of(cls, options: Mapping[str, str]) -> WriteOptions:
        """:raises ConfigurationError: an option is unknown or wrong."""
        given = Given(options, WRITE)
        return cls(
            Reach.of(given),
            given.text("queue"),
            given.take("ttl", whole(1, 1 << 25), None),
            given.take("batchSize", whole(1, 10_000), 10_000),
            given.take("batchBytes", whole(1), 4 << 20),
            given.take("maxRate", whole(1), None),
            given.take("jobId", _job, ""),
        )


def _job(text: str) -> str:
    if not (text.isascii() and text.isprintable() and len(text) <= 64):
        raise ValueError("is not up to 64 printable ASCII characters")
    return text
