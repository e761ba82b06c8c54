"""``qdo pipeline``: jobs on Spark, on the cores of this machine unless a cluster is named."""

from __future__ import annotations

import click

from queuey.terminal.commands import Commands

_COMMANDS = {
    "archive": "archive",
    "replay": "replay",
    "report": "report",
    "stats": "stats",
    "dead-letters": "dead_letters",
}


class _Commands(Commands):
    package = "qdo.cli.pipeline"
    modules = _COMMANDS


@click.group("pipeline", cls=_Commands)
def pipeline_command() -> None:
    """Jobs on Spark: archive queues as Parquet and replay it, judge a delivery, and look into queues.

    Each job runs on the cores of this machine, or where --master says. In a program of your own, call the function of the
    same name in qdo.pipeline.jobs.
    """
