"""From the client's arguments to parameters, headers and paths."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, TypedDict

from qdo.client.encoding import to_json
from qdo.client.given import check_list, check_mapping, check_text, whole_numbers
from qdo.client.moments import Moment, moment_to_wire
from qdo.client.steps import Reply
from qdo.client.values import BATCH_TYPE, JSON_TYPE, Appended, HasLocation, NewMessage, address, check_headers
from queuey.errors import InvalidMessageId, InvalidParameter, QueueNotFound, TaskNotFound
from queuey.ids import ZERO_ID, MessageId

Partitions = Sequence[int] | Literal["all"]
IDS_A_CALL = 100
"""Ids that a server takes in one path."""
_U64 = (1 << 64) - 1
_PLACES = re.compile(r"[0-9A-Fa-f:, -]+")


def leads_elsewhere(name: str) -> bool:
    """As a part of a path. Servers read a quoted slash as a slash."""
    return name in ("", ".", "..") or "/" in name


def queue_path(application: str, name: str) -> tuple[str, str, str]:
    """The path of a queue.

    :raises QueueNotFound: no queue can have this name: it would make another path.
    :raises InvalidParameter: the name is no text.
    """
    check_text("queue", name)
    if leads_elsewhere(name):
        raise QueueNotFound
    return "v1", application, name


def check_group(group: str) -> None:
    """:raises InvalidParameter: no group can have this name: it is no text, or would make another path."""
    check_text("group", group)
    if leads_elsewhere(group):
        raise InvalidParameter(problems={"group": f"{group!r} is no name of a group"})


def group_path(application: str, queue: str, kind: str, group: str) -> tuple[str, ...]:
    """The path of a group of a queue.

    :param kind: ``offsets`` or ``leases``.
    :raises InvalidParameter: no group can have this name.
    """
    check_group(group)
    return *queue_path(application, queue), kind, group


def task_path(application: str, queue: str, name: str) -> tuple[str, ...]:
    """The path of a task of a queue.

    :raises TaskNotFound: no task can have this name: it would make another path.
    :raises InvalidParameter: the name is no text.
    """
    check_text("name", name)
    if leads_elsewhere(name):
        raise TaskNotFound
    return *queue_path(application, queue), "tasks", name


class QueueFields(TypedDict, total=False):
    """Settings of a queue. None is not named."""

    partitions: int | None
    kind: str | None
    consistency: str | None
    retention: str | None
    principals: Sequence[str] | None
    leases: Mapping[str, Any] | None


def queue_fields(settings: QueueFields) -> dict[str, str]:
    """Form fields of the settings that are given.

    An empty list of principals clears them.

    :raises InvalidParameter: there is no such setting, or a principal is empty, which would clear the principals, too.
    """
    for name in settings.keys() - QueueFields.__annotations__.keys():
        expected = ", ".join(QueueFields.__annotations__)
        raise InvalidParameter(problems={name: f"is no setting of a queue: expected {expected}"})
    partitions, principals = settings.get("partitions"), settings.get("principals")
    fields = {
        "partitions": None if partitions is None else str(partitions),
        "type": settings.get("kind"),
        "consistency": settings.get("consistency"),
        "retention": settings.get("retention"),
        "principles": None if principals is None else joined("principals", principals),
        **lease_fields(settings.get("leases")),
    }
    return {name: text for name, text in fields.items() if text is not None}


def _value(name: str, value: Any) -> str:
    """:raises InvalidParameter: JSON has no form for the value."""
    return to_json({name: value}).decode().partition(": ")[2][:-1]


def lease_fields(leases: Mapping[str, Any] | None) -> dict[str, str]:
    """Form fields of what the lease groups of a queue begin with.

    >>> lease_fields({"visibility": 60, "order": "key", "k": None})
    {'lease_visibility': '60', 'lease_order': 'key', 'lease_k': ''}

    :raises InvalidParameter: these are no settings by name, or JSON has no form for one.
    """
    if leases is not None:
        check_mapping("leases", leases, "settings by name")
    return {
        f"lease_{name}": "" if value is None else value if isinstance(value, str) else _value(name, value)
        for name, value in (leases or {}).items()
    }


def token_fields(
    principal: str | None, queues: Sequence[str] | None, verbs: Sequence[str] | None, life_seconds: int | None
) -> dict[str, str]:
    """Form fields of the values that are given.

    :raises InvalidParameter: a list is empty. A server could take it for no restriction.
    """
    for name, given in (("queues", queues), ("verbs", verbs)):
        if given is not None and not given:
            raise InvalidParameter(problems={name: "empty: give None for no restriction"})
    fields = {
        "principal": principal,
        "queues": None if queues is None else joined("queues", queues),
        "verbs": None if verbs is None else joined("verbs", verbs),
        "life": None if life_seconds is None else str(life_seconds),
    }
    return {name: text for name, text in fields.items() if text is not None}


def joined(name: str, entries: Sequence[str]) -> str:
    """Entries joined by commas. No entry may be empty or hold a comma, and a text is not a list."""
    expected = "a list of texts, none of them empty or with a comma"
    check_list(name, entries, expected, str)
    if not all(entries) or any("," in entry for entry in entries):
        raise InvalidParameter(problems={name: f"expected {expected}"})
    return ",".join(entries)


def queue_names(queues: Sequence[str]) -> str:
    """Names of queues for one request.

    :raises InvalidParameter: there is none, or what cannot be one.
    """
    names = joined("queues", queues)
    if not names:
        raise InvalidParameter(problems={"queues": "name at least one queue"})
    return names


def once_of(purpose: str, *parts: Any) -> str:
    """An idempotency key for what these parts name.

    Its length does not depend on theirs.
    """
    return f"{purpose}-{hashlib.sha256(json.dumps(parts).encode()).hexdigest()}"


def can_go_raw(new: NewMessage) -> bool:
    """Whether a message can be sent as it is.

    A server takes some JSON for a batch, and headers of a request are ASCII only, and lose the blanks at their ends. Headers
    of the message go in a batch: a proxy may change the case of their names.
    """
    kind, key = new.content_type or "", new.key or ""
    media_type = kind.partition(";")[0].strip().lower()
    return media_type not in (JSON_TYPE, BATCH_TYPE) and not new.headers and _fits_header(kind) and _fits_header(key)


def _fits_header(text: str) -> bool:
    return text.isascii() and text.isprintable() and text == text.strip()


def _seconds(given: Any) -> str:
    """The wire form of a time. What is no number the server refuses, by its name."""
    return f"{given:.7f}" if isinstance(given, int | float) else str(given)


def append_headers(new: NewMessage, once: str) -> dict[str, str]:
    values = {
        "X-TTL": new.ttl_seconds,
        "X-Partition": new.partition,
        "X-Key": new.key,
        "X-Delay": None if new.delay_seconds is None else _seconds(new.delay_seconds),
        "X-Deliver-At": None if new.deliver_at is None else moment_to_wire(new.deliver_at, "deliver_at", ago=False),
        "Content-Type": new.content_type,
        "Idempotency-Key": once,
    }
    return {name: str(value) for name, value in values.items() if value is not None}


def put_headers(new: NewMessage) -> dict[str, str]:
    """Headers of a request that writes a message by id; the key is a parameter, which takes any characters."""
    values = {"X-TTL": new.ttl_seconds, "Content-Type": new.content_type}
    headers = {name: str(value) for name, value in values.items() if value is not None}
    for name, value in check_headers(new.headers).items():
        headers[f"Queuey-Header64-{name}"] = base64.b64encode(value).decode()
    return headers


def appended_from(answer: Reply) -> list[Appended]:
    repeated = answer.headers.get("Idempotency-Replayed") == "true"
    return [Appended.from_wire(entry, repeated=repeated) for entry in answer.json()["messages"]]


def read_params(
    since: Moment | None,
    until: Moment | None,
    cursor: str | None,
    partitions: Partitions,
    newest_first: bool,
    with_bodies: bool,
) -> dict[str, str]:
    params = {"order": "descending"} if newest_first else {}
    if cursor is not None:
        params["cursor"] = cursor
    else:
        params["partitions"] = (
            partitions if isinstance(partitions, str) else ",".join(map(str, whole_numbers("partitions", partitions)))
        )
        if since is not None:
            params["since"] = moment_to_wire(since, "since")
    if until is not None:
        params["until"] = moment_to_wire(until, "until")
    if not with_bodies:
        params["columns"] = "partition,message_id,content_type,key,headers"
    return params


def addresses(where: HasLocation | str | Sequence[HasLocation | str]) -> str:
    """The wire form of one place or several.

    :raises InvalidMessageId: one is no place: it would make another path, such as that of the queue.
    """
    return ",".join(map(_place, _several(where))) or _place("")


def in_calls(where: HasLocation | str | Sequence[HasLocation | str]) -> Iterator[str]:
    """The wire forms of the places, each of as many as one path can hold.

    :raises InvalidMessageId: as :func:`addresses`, before the first of them.
    """
    some = list(map(_place, _several(where)))
    for first in range(0, len(some), IDS_A_CALL):
        yield ",".join(some[first : first + IDS_A_CALL])


def _several(where: HasLocation | str | Sequence[HasLocation | str]) -> Sequence[HasLocation | str]:
    return where if isinstance(where, Sequence) and not isinstance(where, str) else [where]


def _place(where: HasLocation | str) -> str:
    try:
        text = address(where)
    except AttributeError:
        text = ""
    if not _PLACES.fullmatch(text):
        raise InvalidMessageId(f"{where!r} is no place of a message: give the message, or <partition>:<id> as a text")
    return text


def cursor_at(incarnation: str, places: Mapping[int, MessageId], *, every: bool = False) -> str:
    """The cursor that reads partitions, each behind its place.

    See ``queuey.api.cursors`` for its form.

    :param every: also read all other partitions, from their beginning.
    """
    named = "".join(f"~{number}.{_place_text(place)}" for number, place in sorted(places.items()))
    return f"{incarnation}{'.all' if every else ''}{named}"


def cursor_of_several(places: Mapping[str, Mapping[int, MessageId]]) -> str:
    """The cursor that follows several queues, each partition behind its place, and other partitions from their beginning.

    :param places: by incarnation and partition.
    """
    named = "".join(
        f"~{incarnation}.{number}.{_place_text(place)}"
        for incarnation, by_number in places.items()
        for number, place in sorted(by_number.items())
    )
    return f"several~{_place_text(ZERO_ID)}{named}"


def _place_text(place: MessageId) -> str:
    return f"{place.ticks:015x}{place.tail & _U64:016x}"
