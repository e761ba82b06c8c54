"""``queuey purge`` and ``redrive``: work on a queue that the server goes on with, also after a restart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from queuey.ids import parse_timestamp
from queuey.moments import rfc3339
from queuey.terminal.completion import complete_queues, lease_group_argument, queue_argument
from queuey.terminal.numbers import Number
from queuey.terminal.options import confirm, refuse_missing_queue, with_client, yes_option
from queuey.terminal.output import ProgressBar, many, output_option, say, write_one
from queuey.terminal.times import Moment

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
@queue_argument
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
    confirm(
        f"Remove all messages of queue {queue} of {client.application}?",
        yes=yes,
        look=lambda: refuse_missing_queue(client, queue),
    )
    _run(client, queue, client.purge(queue), output, wait=not no_wait)


def _by_name(headers: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in headers:
        name, colon, value = text.partition(":")
        if not colon or not name:
            raise click.BadParameter(f"{text!r} is not NAME:VALUE.", param_hint="'--header'")
        if name in found:
            raise click.BadParameter(
                f"{name} stands twice: a message has one value of each name.", param_hint="'--header'"
            )
        found[name] = value.strip()
    return found


@click.command("redrive")
@queue_argument
@lease_group_argument
@click.option("--to", metavar="QUEUE", shell_complete=complete_queues, help="Another queue that they go to.")
@click.option("--group-only", is_flag=True, help="No other lease group of QUEUE gets them.")
@click.option("--rate", type=Number(0.01, 100_000), help="Dead letters a second.")
@click.option("--reason", help="Only those with this text in their reason.")
@click.option("--key", help="Only those of this key.")
@click.option("--header", "headers", multiple=True, metavar="NAME:VALUE", help="Only those with this. Repeatable.")
@click.option("--since", type=Moment(ids=False, ago=True), help="Only those given up then or later: 1h (ago), a time.")
@click.option("--until", type=Moment(ids=False, ago=True), help="Only those given up before.")
@click.option("--dry-run", is_flag=True, help="Count them, and move nothing.")
@_task_options
@yes_option
@output_option
@with_client
def redrive_command(
    client: Client,
    queue: str,
    group: str,
    to: str | None,
    group_only: bool,
    rate: float | None,
    headers: Sequence[str],
    dry_run: bool,
    no_wait: bool,
    status: bool,
    cancel: bool,
    yes: bool,
    output: str | None,
    **wanted: Any,
) -> None:
    """Move the dead letters of lease group GROUP of QUEUE back to QUEUE, each once.

    They are new messages there, as they were, with their time to live counted anew. Letters that receivers hold are moved,
    too. The server goes on with it if this command ends.

    Example: queuey redrive jobs default --reason timeout --rate 10 --dry-run
    """
    _only_one(no_wait=no_wait, status=status, cancel=cancel, dry_run=dry_run)
    name = f"redrive:{group}"
    if status or cancel:
        write_one(task_row(client.cancel_task(queue, name) if cancel else client.task(queue, name)), output)
        return
    if headers:
        wanted["message_headers"] = _by_name(headers)
    if dry_run:
        found = client.preview_redrive(queue, group, **wanted)
        write_one(found._asdict(), output)
        return
    confirm(
        f"Move dead letters of group {group} back to queue {to or queue}?",
        yes=yes,
        look=lambda: client.lease_group(queue, group),
    )
    task = client.redrive(queue, group, to=to, group_only=group_only, rate=rate, **wanted)
    _run(client, queue, task, output, wait=not no_wait)


def _only_one(**flags: bool) -> None:
    given = [f"--{name.replace('_', '-')}" for name, is_given in flags.items() if is_given]
    if len(given) > 1:
        raise click.UsageError(f"{' and '.join(given)} exclude each other.")


def _run(client: Client, queue: str, task: QueueTask, output: str | None, *, wait: bool) -> None:
    """Show a task that was started, once it has ended."""
    if wait:
        with ProgressBar(task.name, 0) as bar:
            for seen in client.watch_task(queue, task.name):
                if seen.id != task.id:
                    raise click.ClickException("another task of this name was started meanwhile: see --status")
                task = seen
                bar.reach(task.done, task.done + task.left)
    write_one(task_row(task), output)
    if task.state in ("failed", "cancelled"):
        raise click.ClickException(f"{task.name} {'failed' if task.state == 'failed' else 'was cancelled'}")
    if task.failed:
        stay = "stays" if task.failed == 1 else "stay"
        raise click.ClickException(f"{many(task.failed, 'dead letter')} could not be moved and {stay}: {task.reason}")
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
