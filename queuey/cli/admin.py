"""``queuey config``, ``errors``, ``version`` and ``completion``."""

from __future__ import annotations

import difflib
from typing import Any

import click

from queuey.errors import QueueyError, error_classes
from queuey.settings import SETTINGS, describe, sample_ini
from queuey.terminal.commands import CommandGroup
from queuey.terminal.completion import script_command
from queuey.terminal.options import config_option, settings_from
from queuey.terminal.output import NothingFound, form_for, many, output_option, say, write_one, write_rows


@click.group("config", cls=CommandGroup)
def config_command() -> None:
    """Show, check and explain settings."""


@config_command.command("show")
@config_option
@output_option
def show_config(config: str | None, output: str | None) -> None:
    """Every setting in force, its value and its origin. Keys are counted only.

    Example: queuey config show -c queuey.ini
    """
    rows = [row._asdict() for row in describe(settings_from(config))]
    write_rows(rows, ("section", "key", "value", "origin", "variable"), output)


@config_command.command("check")
@config_option
@output_option
@click.pass_context
def check_config(ctx: click.Context, config: str | None, output: str | None) -> None:
    """Check the settings: exit 0 if sound, 1 if a key is out of use, 2 if wrong.

    Example: queuey config check -c queuey.ini
    """
    notices = settings_from(config).notices
    if output is not None:
        write_rows([{"notice": notice} for notice in notices], ("notice",), output)
    say(f"{config or 'environment'}: {many(len(notices), 'notice')}" if notices else f"{config or 'environment'}: ok")
    ctx.exit(1 if notices else 0)


@config_command.command("doc")
@click.option("--ini", is_flag=True, help="As an ini file that changes nothing until its marks are removed.")
@output_option
def document_config(ini: bool, output: str | None) -> None:
    """All settings there are.

    Example: queuey config doc --ini > queuey.ini
    """
    if ini:
        click.echo(sample_ini(), nl=False)
        return
    rows: list[dict[str, Any]] = [
        {
            "section": setting.section,
            "key": setting.key,
            "default": setting.default,
            "accepted": setting.accepted,
            "variable": setting.variable,
            "help": setting.help,
        }
        for setting in SETTINGS
    ]
    write_rows(rows, list(rows[0]), output)


@click.command("errors")
@click.argument(
    "code",
    required=False,
    shell_complete=lambda _ctx, _param, begun: [
        code for code in sorted(error_classes()) if code.lower().startswith(begun.lower())
    ],
)
@output_option
def errors_command(code: str | None, output: str | None) -> None:
    """What error codes mean.

    All of them, or the CODE that an answer carried.

    Example: queuey errors KeyReused
    """
    known = error_classes()
    if code is None:
        write_rows([_error_row(known[name]) for name in sorted(known)], ("code", "status", "retriable", "text"), output)
        return
    by_lower = {name.lower(): name for name in known}
    if code.lower() not in by_lower:
        near = difflib.get_close_matches(code.lower(), by_lower, n=1)
        hint = f"did you mean {by_lower[near[0]]}?" if near else "'queuey errors' lists them"
        raise NothingFound(f"no error is called {code}: {hint}")
    write_one(_error_row(known[by_lower[code.lower()]]), output)


def _error_row(error: type[QueueyError]) -> dict[str, Any]:
    """One error for people and programs.

    ``error_msg`` of v1 has ``key`` where the first Queuey's clients expect another word than the code.
    """
    family = error.__mro__[1]
    return {
        "code": error.__name__,
        "status": error.status,
        "retriable": error.retriable,
        "key": error.key or error.__name__,
        "family": family.__name__ if issubclass(family, QueueyError) else "",
        "text": error.default(),
    }


@click.command("version")
@output_option
def version_command(output: str | None) -> None:
    """The version of Queuey, Python and SQLite, and how this Python was built.

    Example: queuey version -o json
    """
    import platform

    from queuey._version import __version__
    from queuey.interpreter import has_pgo, how_built

    try:
        import apsw

        sqlite = apsw.sqlite_lib_version()
    except ModuleNotFoundError:  # here is only the client
        sqlite = None
    row = {
        "queuey": __version__,
        "python": platform.python_version(),
        "pgo": has_pgo(),
        "sqlite": sqlite,
    }
    if form_for(output) == "table":
        of_server = "the client alone" if sqlite is None else f"SQLite {sqlite}"
        click.echo(f"queuey {row['queuey']} (Python {row['python']}, {how_built()}, {of_server})")
    else:
        write_one(row, output)


completion_command = script_command("queuey")
