"""``queuey schedule``: messages that are sent by themselves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from queuey.clock import SystemClock
from queuey.errors import ConfigurationError
from queuey.ids import EPOCH_TICKS, TICKS_PER_SECOND
from queuey.moments import rfc3339
from queuey.terminal.commands import CommandGroup
from queuey.terminal.completion import complete_queues, completing
from queuey.terminal.options import confirm, with_client, yes_option
from queuey.terminal.output import output_option, say, write_done, write_one, write_rows

if TYPE_CHECKING:
    from qdo.client import Client
    from qdo.tasks.schedules import Schedule

COLUMNS = ("name", "cron", "tz", "queue", "task", "missed", "paused", "next")


def _names(_ctx: click.Context, client: Client, begun: str) -> Iterator[str]:
    from qdo.tasks.schedules import ScheduleBook

    return (one.name for one in ScheduleBook(client).all() if one.name.startswith(begun))


name_argument = click.argument("name", shell_complete=completing(_names))


@click.group("schedule", cls=CommandGroup)
def schedule_command() -> None:
    """Messages that are sent by themselves, at the times of a cron line.

    Workers of 'qdo work --tasks' store each occurrence once, whichever of them does it. They set the schedules that their
    tasks declare.
    """


@schedule_command.command("add")
@click.argument("name")
@click.argument("body", required=False)
@click.option(
    "--cron", required=True, metavar="LINE", help="Minute, hour, day, month and weekday, such as '0 6 * * mon-fri'."
)
@click.option("--tz", default="UTC", show_default=True, metavar="ZONE", help="Time zone, such as Europe/Berlin.")
@click.option("-q", "--queue", required=True, shell_complete=complete_queues, help="Where the messages go.")
@click.option(
    "--task", metavar="NAME", help="A task, such as myapp.jobs.report. BODY has its arguments then, a JSON object."
)
@click.option(
    "--missed",
    type=click.Choice(["one", "all", "none"]),
    default="one",
    show_default=True,
    help="Which occurrences are sent late, if no worker ran when they were due.",
)
@output_option
@with_client
def add_schedule(
    client: Client,
    name: str,
    body: str | None,
    cron: str,
    tz: str,
    queue: str,
    task: str | None,
    missed: str,
    output: str | None,
) -> None:
    """Send BODY at the times of a cron line.

    To add a schedule again changes it, from 5 seconds later on. A pause stays. Example: queuey schedule add report '{}'
    --cron '0 6 * * *' --tz Europe/Berlin --queue reports --task myapp.jobs.report
    """
    from qdo.tasks.schedules import Schedule, ScheduleBook

    if task is not None:
        body = _arguments(body or "{}")
    elif not body:
        raise click.UsageError("Missing argument 'BODY': without --task it is the message.")
    wanted = Schedule(name=name, cron=cron, tz=tz, missed=missed, queue=queue, task=task, body=body)
    book = ScheduleBook(client)
    if not book.set(wanted):
        say(f"{name} was like this already")
    write_one(_row(book.get(name) or wanted), output)


def _arguments(body: str) -> str:
    """:raises BadParameter: the body is no JSON object."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise click.BadParameter(f"it is no JSON: {error}", param_hint="'BODY'") from error
    if not isinstance(found, dict):
        raise click.BadParameter("a task takes a JSON object of arguments by name.", param_hint="'BODY'")
    return body


@schedule_command.command("ls")
@output_option
@with_client
def list_schedules(client: Client, output: str | None) -> None:
    """All schedules by name, and when each is due next.

    Example: queuey schedule ls
    """
    from qdo.tasks.schedules import ScheduleBook

    write_rows(map(_row, ScheduleBook(client).all()), COLUMNS, output)


@schedule_command.command("rm")
@name_argument
@yes_option
@output_option
@with_client
def remove_schedule(client: Client, name: str, yes: bool, output: str | None) -> None:
    """Send nothing any more. A worker whose task declares the schedule sets it again when it starts.

    Example: queuey schedule rm report --yes
    """
    from qdo.tasks.schedules import ScheduleBook

    book = ScheduleBook(client)
    confirm(f"Remove schedule {name}?", yes=yes, look=lambda: book.found(name))
    book.remove(name)
    write_done({"name": name}, output)
    say(f"removed schedule {name}")


@schedule_command.command("pause")
@name_argument
@output_option
@with_client
def pause_schedule(client: Client, name: str, output: str | None) -> None:
    """Send nothing until 'queuey schedule resume'. What comes due meanwhile is not sent later.

    Example: queuey schedule pause report
    """
    _pause(client, name, output, paused=True)


@schedule_command.command("resume")
@name_argument
@output_option
@with_client
def resume_schedule(client: Client, name: str, output: str | None) -> None:
    """Go on after a pause, with the next occurrence.

    Example: queuey schedule resume report
    """
    _pause(client, name, output, paused=False)


def _pause(client: Client, name: str, output: str | None, *, paused: bool) -> None:
    from qdo.tasks.schedules import ScheduleBook

    write_one(_row(ScheduleBook(client).pause(name, paused=paused)), output)


def _row(schedule: Schedule) -> dict[str, Any]:
    now = (SystemClock().now_ticks() - EPOCH_TICKS) / TICKS_PER_SECOND
    try:
        due = schedule.line.after(max(now, schedule.since))
        following = rfc3339(EPOCH_TICKS + due * TICKS_PER_SECOND)[:19] + "Z"
    except ConfigurationError as error:  # this machine does not know the time zone, for instance
        following = str(error)
    return {
        "name": schedule.name,
        "cron": schedule.cron,
        "tz": schedule.tz,
        "queue": schedule.queue,
        "task": schedule.task,
        "missed": schedule.missed,
        "paused": schedule.paused,
        "next": None if schedule.paused else following,
    }
