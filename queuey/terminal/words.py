"""Errors in the words of the command line: what to type, in place of what to send."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, Self

import click

from queuey.errors import (
    ApplicationNotFound,
    CursorLost,
    Forbidden,
    InvalidApplicationKey,
    InvalidParameter,
    InvalidReceipt,
    InvalidToken,
    KeyReused,
    LeaseGroupNotFound,
    MessageNotFound,
    QueueExists,
    QueueNotFound,
    QueueyError,
    ServerUnreachable,
    TaskNotFound,
)
from queuey.terminal.output import many
from queuey.terminal.times import Duration

__all__ = ["Invocation", "in_words"]

_OPTIONS_OF_FIELD = {
    "deliver_at": ("at",),
    "principles": ("principals",),
    "type": ("kind",),
    "queue_name": ("name", "queue"),
    "queues": ("queue",),
    "idempotency_key": ("once",),
    "max": ("most",),
    "first": ("backoff_first",),
    "factor": ("backoff_factor",),
    "most": ("backoff_most",),
    "jitter": ("backoff_jitter",),
    "dead": ("breaker",),
}
"""Fields of requests, and the parameters that they come from, where these have other names."""
_NAMED = re.compile(r"""no queue is named (?P<sign>['\"])(?P<name>.+?)(?P=sign)""")

_ABOVE = re.compile(r"(?P<given>[0-9]+) is greater than maximum value (?P<most>[0-9]+)")


@dataclass(frozen=True)
class Invocation:
    """What a command was asked."""

    url: str
    application: str
    has_credential: bool
    queue: str = "NAME"
    """``NAME``, if it is about none, or about several."""
    group: str = "GROUP"
    options: Mapping[str, str] = field(default_factory=dict)
    """Options as they are typed, and arguments as the help names them, by the names of their parameters."""
    durations: AbstractSet[str] = frozenset()
    """Those of the options that are durations. Requests have them in seconds."""

    @classmethod
    def now(cls, url: str, application: str, *, has_credential: bool) -> Self:
        """Of the command that runs."""
        context = click.get_current_context()
        is_of_queues = context.parent is not None and context.parent.info_name == "queue"
        queue = context.params.get("name" if is_of_queues else "queue")
        group = context.params.get("group")
        return cls(
            url,
            application,
            has_credential,
            shlex.quote(queue) if isinstance(queue, str) and queue else "NAME",
            shlex.quote(group) if isinstance(group, str) and group else "GROUP",
            {str(param.name): _typed(param) for param in context.command.params},
            {_typed(param) for param in context.command.params if isinstance(param.type, Duration)},
        )


def _typed(param: click.Parameter) -> str:
    return max(param.opts, key=len) if isinstance(param, click.Option) else param.human_readable_name


def in_words(error: QueueyError, asked: Invocation) -> QueueyError:
    """The same error with a text that names commands and options. Errors that need no other words stay as they are."""
    if isinstance(error, InvalidParameter):
        if error.code in error.problems:
            return error
        named = ((_field(name, asked), text) for name, text in error.problems.items())
        return InvalidParameter(problems={name: _problem(name, text, asked) for name, text in named})
    found = _WORDS.get(type(error))
    return error if found is None else type(error)(found(error, asked))


def _field(name: str, asked: Invocation) -> str:
    """A field of a request as the option that it came from.

    >>> _field("0.ttl", Invocation("", "", True, options={"ttl": "--ttl"})), _field("X-TTL", Invocation("", "", True))
    ('--ttl', 'ttl')
    """
    plain = name.rpartition(".")[2].lower().removeprefix("x-").replace("-", "_")
    otherwise = plain if name.lower().startswith("x-") else name
    of_a_list = name.partition(".")[0]
    names = (one for field in (plain, of_a_list) for one in _OPTIONS_OF_FIELD.get(field, (field,)))
    return next((asked.options[one] for one in names if one in asked.options), otherwise)


def _problem(name: str, text: str, asked: Invocation) -> str:
    """A sentence about an option, which says what its numbers are.

    >>> _problem("--ttl", "90 is greater than maximum value 60", Invocation("", "", True, durations={"--ttl"}))
    '90 is greater than maximum value 60, in seconds'
    >>> _problem("--partition", "9 is greater than maximum value 4", Invocation("", "", True, "mail"))
    'queue mail has 4 partitions: there is no 9'
    """
    if name in asked.durations and text[:1].isdecimal():
        return f"{text}, in seconds"
    if name == "--partition" and (above := _ABOVE.fullmatch(text)):
        return f"queue {asked.queue} has {many(int(above['most']), 'partition')}: there is no {above['given']}"
    return text


def _no_queue(error: QueueyError, asked: Invocation) -> str:
    named = _NAMED.search(str(error))
    name = shlex.quote(named["name"]) if named else asked.queue
    return (
        f"application {asked.application} has no queue {'of this name' if name == 'NAME' else name}: "
        f"'queuey queue add {name}' makes it, 'queuey queue ls' lists those there are"
    )


def _forbidden(error: QueueyError, asked: Invocation) -> str:
    if asked.has_credential:
        if str(error) != str(Forbidden()):
            return str(error)
        return f"{error} Show a key of application {asked.application} (--application), or of somebody whom the queue names."
    return "Access was denied: no key was given: set QUEUEY_KEY, or choose a context with 'queuey context use'."


def _no_application(_error: QueueyError, asked: Invocation) -> str:
    return (
        f"{asked.url} knows no application {asked.application}: --application, QUEUEY_APPLICATION or a context names another "
        f"one; 'queuey key new {asked.application}' on the server's machine makes it"
    )


def _unreachable(error: QueueyError, _asked: Invocation) -> str:
    if not str(error).startswith("no server answers"):
        return str(error)
    return f"{error}: 'queuey serve' starts one here; --url, QUEUEY_URL or a context names another one"


def _no_key(_error: QueueyError, asked: Invocation) -> str:
    return (
        f"{asked.url} does not know the key: set QUEUEY_KEY, or choose a context with 'queuey context use'; "
        f"'queuey key new {asked.application}' on the server's machine makes one"
    )


_WORDS: Mapping[type[QueueyError], Callable[[QueueyError, Invocation], Any]] = {
    QueueNotFound: _no_queue,
    QueueExists: lambda _, asked: f"there is a queue {asked.queue} already: leave out --new to change its settings",
    ApplicationNotFound: _no_application,
    Forbidden: _forbidden,
    InvalidApplicationKey: _no_key,
    InvalidToken: lambda _, asked: (
        f"the token proves nothing at {asked.url}: 'queuey token get' asks for a new one, 'queuey token inspect' says why"
    ),
    ServerUnreachable: _unreachable,
    KeyReused: lambda error, asked: (
        "this --id was used in the last 24 hours for another message: choose another one"
        if "once" in asked.options
        else str(error)
    ),
    InvalidReceipt: lambda error, asked: (
        f"{str(error).rstrip('.')}: 'queuey receive {asked.queue}' prints them, one for each message"
    ),
    LeaseGroupNotFound: lambda _, asked: (
        f"there is no lease group {asked.group}: 'queuey lease ls {asked.queue}' lists those there are, the first "
        f"'queuey receive {asked.queue} -g {asked.group}' makes it"
    ),
    TaskNotFound: lambda _, asked: f"queue {asked.queue} has no such task: none was started, or it is long over",
    MessageNotFound: lambda _, asked: f"queue {asked.queue} has no such message: it expired, was removed, or never was",
    CursorLost: lambda _, asked: (
        f"queue {asked.queue} was removed since the cursor was kept, and maybe made anew: remove the file of --cursor, "
        "and begin again"
    ),
}
