"""Completion in a shell: the script that turns it on, and names of queues and groups that the server knows."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from queuey.errors import QueueyError
from queuey.terminal.options import server_from

if TYPE_CHECKING:
    from qdo.client import Client

__all__ = [
    "complete_ends",
    "complete_group_names",
    "complete_groups",
    "complete_lease_groups",
    "complete_queues",
    "completing",
    "group_argument",
    "lease_group_argument",
    "queue_argument",
    "script_command",
]

SHELLS = ("bash", "zsh", "fish")
MOST_NAMES = 200
"""More of them help nobody to choose."""
SECONDS = 2.0
"""A key that is pressed is not held up for longer by a server that does not answer, unless :data:`_PATIENCE` says so."""
_PATIENCE = "QUEUEY_COMPLETION_TIMEOUT"

_OF_SERVER = ("context_name", "url", "application", "app_key", "token")


def script_command(program: str) -> click.Command:
    """``completion``: prints the script of a program."""

    @click.command("completion")
    @click.argument("shell", type=click.Choice(SHELLS), required=False)
    @click.pass_context
    def completion_command(ctx: click.Context, shell: str | None) -> None:
        from click.shell_completion import get_completion_class

        wanted = shell or Path(os.environ.get("SHELL", "bash")).name
        found = get_completion_class(wanted)
        if found is None:
            raise click.UsageError(f"{wanted} is not one of {', '.join(SHELLS)}: name the shell.")
        variable = f"_{program.upper()}_COMPLETE"
        click.echo(found(ctx.find_root().command, {}, program, variable).source())

    completion_command.help = (
        "A script for completion in a shell: of commands, of options, and of names that the server knows.\n\n"
        f'Without SHELL it is that of the login. In bash: eval "$({program} completion bash)"'
    )
    return completion_command


@contextmanager
def _asked(ctx: click.Context) -> Iterator[Client]:
    """A client for the server that the line names so far."""
    named = {name: ctx.params[name] for name in _OF_SERVER if ctx.params.get(name)}
    seconds = float(os.environ.get(_PATIENCE) or SECONDS)
    with server_from(**named, timeout=seconds).client(retries=0) as client:
        yield client


def completing(names: Callable[[click.Context, Client, str], Iterable[str]]) -> Callable[..., list[str]]:
    """A function of ``shell_complete``. What goes wrong completes nothing, and says nothing into the line."""

    def complete(ctx: click.Context, _param: click.Parameter, begun: str) -> list[str]:
        try:
            with _asked(ctx) as client:
                return list(islice(names(ctx, client, begun), MOST_NAMES))
        except (QueueyError, click.ClickException, ValueError, OSError):
            return []

    return complete


def _queues(_ctx: click.Context, client: Client, begun: str) -> Iterator[str]:
    """Of several names with commas between them the last is completed."""
    before, comma, last = begun.rpartition(",")
    for queue in client.queues(start=last, page_size=MOST_NAMES):
        if not queue.name.startswith(last):
            return
        yield f"{before}{comma}{queue.name}"


def _groups(ctx: click.Context, client: Client, begun: str) -> Iterator[str]:
    return takewhile(lambda name: name.startswith(begun), client.offset_groups(_queue(ctx), start=begun))


def _lease_groups(ctx: click.Context, client: Client, begun: str) -> Iterator[str]:
    return takewhile(lambda name: name.startswith(begun), client.lease_groups(_queue(ctx), start=begun))


def _group_names(ctx: click.Context, client: Client, begun: str) -> Iterator[str]:
    """Groups of either kind."""
    yield from dict.fromkeys((*_lease_groups(ctx, client, begun), *_groups(ctx, client, begun)))


def complete_ends(_ctx: click.Context, _param: click.Parameter, begun: str) -> list[str]:
    """The two places in a queue that have a name."""
    return [end for end in ("beginning", "end") if end.startswith(begun)]


def _queue(ctx: click.Context) -> str:
    """The queue that the line names so far, the first of several.

    :raises click.UsageError: it names none.
    """
    # Before the value of an option the arguments are not assigned yet.
    given = ctx.params
    named: Any = given.get("queue") or given.get("queues") or given.get("named") or ctx.args
    if isinstance(named, dict | list | tuple):
        named = next(iter(named), None)
    if not isinstance(named, str):
        raise click.UsageError("no queue is named yet")
    return named


complete_queues = completing(_queues)
complete_groups = completing(_groups)
complete_lease_groups = completing(_lease_groups)
complete_group_names = completing(_group_names)

queue_argument = click.argument("queue", shell_complete=complete_queues)
group_argument = click.argument("group", shell_complete=complete_groups)
lease_group_argument = click.argument("group", shell_complete=complete_lease_groups)
