"""``qdo-worker``, as it was called in 2012."""

from __future__ import annotations

import logging
import os
from contextlib import closing
from pathlib import Path

import click

from queuey.errors import QueueyError
from queuey.terminal.output import Failed, many, say


@click.command("qdo-worker", context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "-c",
    "--config",
    "path",
    type=click.Path(path_type=Path),
    default=Path("etc/qdo-worker.conf"),
    show_default=True,
    help="The ini file.",
)
@click.option("-v", "--verbose", is_flag=True, help="Log more.")
@click.pass_context
def main(ctx: click.Context, path: Path, verbose: bool) -> None:
    """Run a worker from an ini file, as qdo 0.1 did.

    For a new worker, 'qdo work' is better.

    It understands the settings of 2012, and calls the hooks job, job_context and job_failure as they were called.
    SIGTERM or Ctrl-C ends it in order; a second signal ends it at once.
    """
    from queuey.monitor.logs import set_up

    if not path.is_file():
        click.echo(f"Configuration file not found: {path}")
        ctx.exit(1)
    set_up("debug" if verbose else "info", "text")
    logging.getLogger("kazoo").setLevel(logging.WARNING)
    try:
        _run(path)
    except QueueyError as error:
        raise Failed(error) from error


def _run(path: Path) -> None:
    from qdo.compat.qdo_worker import OldWorker, hook_context, open_coordinator, prepare, read_settings
    from qdo.worker.running import run_until_told

    settings = read_settings(path, os.environ)
    for notice in settings.notices:
        say(f"notice: {notice}")
    if settings.ca_bundle:
        os.environ["REQUESTS_CA_BUNDLE"] = settings.ca_bundle
    if not settings.job:
        say("there is no job to run: [qdo-worker] job names none")
        return
    with settings.client() as client, closing(open_coordinator(settings)) as coordinator:
        if taken := prepare(client, coordinator):
            say(f"{many(taken, 'position')} of qdo 0.1 taken over")
        with hook_context(settings) as context:
            run_until_told(OldWorker(settings, coordinator, context, client), say)


if __name__ == "__main__":
    main(prog_name="qdo-worker")
