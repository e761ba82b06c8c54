"""``queuey doctor``: what is wrong with a server, and how to mend it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from queuey.clock import SystemClock
from queuey.errors import ConfigurationError
from queuey.settings import Settings
from queuey.terminal.options import DATA_HELP, Server, config_option, settings_from, store_files
from queuey.terminal.output import form_for, many, output_option, say, write_rows
from queuey.visible import visible

if TYPE_CHECKING:
    from queuey.cli.doctor_machine import Diagnosis

__all__ = ["doctor_command"]

COLUMNS = ("level", "about", "found", "mend")
_SIGNS = {"ok": ("ok    ", "green"), "notice": ("notice", "yellow"), "wrong": ("WRONG ", "red")}


@click.command("doctor")
@config_option
@click.option("--data", type=click.Path(file_okay=False), help=f"{DATA_HELP}  [QUEUEY_DATA; default: ./queuey-data]")
@click.option("--url", envvar="QUEUEY_URL", help="The server as its clients reach it.  [default: that of the settings]")
@click.option("-a", "--application", envvar="QUEUEY_APPLICATION", default="demo", show_default=True)
@click.option("--app-key", envvar="QUEUEY_KEY", show_envvar=True, help="With a key it also tries a stream.")
@click.option("--token", envvar="QUEUEY_TOKEN", show_envvar=True, help="In place of the key.")
@output_option
@click.pass_context
def doctor_command(
    ctx: click.Context,
    config: str | None,
    data: str | None,
    url: str | None,
    application: str,
    app_key: str | None,
    token: str | None,
    output: str | None,
) -> None:
    """Look for what is wrong, and say how to mend it. It changes nothing.

    Looks at settings, the files of the store and their permissions, the disk, the clock, limits, issuers, and at the
    running server: its heartbeat, version and clock, TLS, what a proxy before it lets through, and whether streams
    arrive. That no server runs yet is a notice; that the one of --url or QUEUEY_URL does not answer is wrong. Exit codes:
    0 nothing is wrong, 1 something is.

    Example: queuey doctor -c /etc/queuey/queuey.ini --url https://queuey.example.org
    """
    from queuey.cli.doctor_machine import Diagnosis, FindingLevel

    try:
        settings = settings_from(config, tell=False, server={"data": data})
    except ConfigurationError as error:
        findings = [Diagnosis(FindingLevel.WRONG, "settings", str(error), "'queuey config doc' lists all settings")]
    else:
        server = Server(url or _address(settings), application, app_key or None, token or None, 30.0)
        findings = list(_findings(settings, config, server, is_named=bool(url)))
    if form_for(output) == "table":
        _write(findings)
    else:
        write_rows([one._asdict() for one in findings], COLUMNS, output)
    counted = Counter(one.level for one in findings)
    say(
        f"{counted[FindingLevel.WRONG]} wrong, {many(counted[FindingLevel.NOTICE], 'notice')}, {counted[FindingLevel.OK]} ok"
    )
    ctx.exit(1 if counted[FindingLevel.WRONG] else 0)


def _findings(settings: Settings, config: str | None, server: Server, *, is_named: bool) -> Iterator[Diagnosis]:
    """:param is_named: somebody named the server: it is wrong that it does not answer."""
    from queuey.cli.doctor_machine import machine_findings, serving_process
    from queuey.cli.doctor_server import server_findings

    yield from machine_findings(settings, config, SystemClock())
    files = store_files(settings) if settings.storage.backend == "sqlite" else []
    serving = next((process for file in files if (process := serving_process(file)) is not None), None)
    yield from server_findings(server, is_expected=is_named or serving is not None)


def _address(settings: Settings) -> str:
    """Where this machine reaches the server of the settings."""
    host = settings.server.host
    host = "127.0.0.1" if host in ("", "0.0.0.0") else "[::1]" if host == "::" else f"[{host}]" if ":" in host else host  # noqa: S104
    return f"http{'s' if settings.server.tls_cert else ''}://{host}:{settings.server.port}"


def _write(findings: list[Diagnosis]) -> None:
    """Print findings for people: each with what to do below it."""
    for one in findings:
        sign, colour = _SIGNS[one.level]
        click.echo(f"{click.style(sign, fg=colour)}  {one.about}: {visible(one.found)}")
        if one.mend:
            click.echo(f"{'':8}{visible(one.mend)}")
