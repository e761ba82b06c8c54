"""``queuey purge``: work on a queue that the server goes on with, also after a restart."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from queuey.ids import parse_timestamp
from queuey.terminal.options import confirm, with_client, yes_option
from queuey.terminal.output import output_option, say, write_one
from queuey.terminal.times import rfc3339

if TYPE_CHECKING:
    from qdo.client import Client, QueueTask


def _task_options(command: Callable[..., None]) -> Callable[..., None]:
    """What one may do with a task beside starting it."""
    for option in (
        click.option("--cancel", is_flag=True, help="Stop the one that runs; what it has done stays done."),
        click.option("--status", is_flag=True, help="Show the last one, and start nothing."),
        click.option("--no-wait", is_flag=True, help="Start it, and do not wait for its end."),
    ):
        command = option(command)
    return command


@click.command("purge")
@click.argument("queue")
@_task_options
@yes_option
@output_option
@with_client
def purge_command(
    client: Client, queue: str, no_wait: bool, status: bool, cancel: bool, yes: bool, output: str | None
) -> None:
    """Remove all messages that QUEUE has now. The queue, its settings and its groups stay.

    Scheduled messages and messages that are leased go too; what is appended later stays. The server goes on with it if
    this command ends.

    Example: queuey purge jobs --yes
    """
    _only_one(no_wait=no_wait, status=status, cancel=cancel)
    if status or cancel:
        write_one(task_row(client.cancel_task(queue, "purge") if cancel else client.task(queue, "purge")), output)
        return
    confirm(f"Remove all messages of queue {queue} of {client.application}?", yes=yes)
    _run(client, queue, client.purge(queue), output, wait=not no_wait)


def _only_one(**flags: bool) -> None:
    given = [f"--{name.replace('_', '-')}" for name, is_given in flags.items() if is_given]
    if len(given) > 1:
        raise click.UsageError(f"{' and '.join(given)} exclude each other.")


def _run(client: Client, queue: str, task: QueueTask, output: str | None, *, wait: bool) -> None:
    """Show a task that was started, once it has ended."""
    if wait:
        for seen in client.watch_task(queue, task.name):
            if seen.id != task.id:
                raise click.ClickException("another task of this name was started meanwhile: see --status")
            task = seen
    write_one(task_row(task), output)
    if task.state in ("failed", "cancelled"):
        raise click.ClickException(f"{task.name} {'failed' if task.state == 'failed' else 'was cancelled'}")
    if not wait:
        say(f"{task.name} of the queue runs; --status shows how far it is")


def task_row(task: QueueTask) -> dict[str, Any]:
    """A task as a row of output."""
    row: dict[str, Any] = {"name": task.name, "state": task.state}
    row |= {"removed": task.done} if task.name == "purge" else {"moved": task.done, "failed": task.failed}
    row |= {"left": task.left, "started": _shown(task.started), "finished": _shown(task.finished)}
    return row | {"reason": task.reason} | dict(task.asked)


def _shown(moment: str | None) -> str | None:
    return None if moment is None else rfc3339(parse_timestamp(moment))
