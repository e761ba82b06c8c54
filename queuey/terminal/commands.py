"""A command line that imports its commands late.

Its errors are exit codes.
"""

from __future__ import annotations

import codecs
import errno
import logging
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from typing import Any

import click
from click.exceptions import Exit

from queuey.errors import ConfigurationError, QueueyError
from queuey.terminal.colours import no_colour

log = logging.getLogger(__name__)

OF_THE_SERVER = frozenset(
    {"apsw", "google_crc32c", "httptools", "jinja2", "jwt", "markupsafe", "multipart", "pyramid", "uvloop"}
)
"""Modules of the extra ``server``, which an installed client does not have."""
_ANY_LENGTH = 1000
_OF_BENCH = frozenset({"simpy", "yaml"})
"""Modules of the extra ``bench``."""


def _needed(module: str) -> str | None:
    """What to install for a module that is missing; None of one that nothing brings.

    >>> _needed("yaml")
    "the load harness needs yaml, which is not installed: pip install '/path/to/queuey[bench]'"
    """
    if module in _OF_BENCH:
        return f"the load harness needs {module}, which is not installed: pip install '/path/to/queuey[bench]'"
    if module in {*OF_THE_SERVER, "queuey"}:
        return f"here is only the client, and this needs the server ({module}): pip install '/path/to/queuey[server]'"
    return None


class CommandGroup(click.Group):
    """A group whose help has the first sentence of each command in full.

    click cuts it off at the end of the line.
    """

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        found = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [
            (name, one.get_short_help_str(_ANY_LENGTH)) for name, one in found if one is not None and not one.hidden
        ]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)


class Commands(CommandGroup):
    """``queuey`` and ``qdo``: a module of the package below, for each command."""

    package = ""
    modules: Mapping[str, str] = {}
    """Name to module; in the order of the help."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.modules)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.modules:
            return None
        module = import_module(f"{self.package}.{self.modules[cmd_name]}")
        command = getattr(module, f"{cmd_name.replace('-', '_')}_command")
        return command if isinstance(command, click.Command) else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click, and name what a command with a typing error may be."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from difflib import get_close_matches

            if not (near := get_close_matches(args[0], self.modules)):
                raise
            raise click.UsageError(f"{error.message} Did you mean {' or '.join(near)}?", ctx) from None

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """As click, which shows the help and the version here."""
        with _in_a_sentence():
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        _prepare_streams()
        if no_colour():
            ctx.color = False
        try:
            return self._invoke(ctx)
        except click.ClickException as error:
            if not _is_logged(error):
                raise
            raise Exit(error.exit_code) from error

    def _invoke(self, ctx: click.Context) -> Any:
        """:raises ClickException: whatever goes wrong that has a sentence."""
        try:
            with _in_a_sentence():
                return super().invoke(ctx)
        except KeyboardInterrupt as error:
            click.echo(err=True)  # behind the terminal's ^C
            raise Exit(128 + signal.SIGINT) from error
        except QueueyError as error:
            from queuey.terminal.output import Failed

            raise Failed(error) from error
        except ModuleNotFoundError as error:
            if (needed := _needed((error.name or "").partition(".")[0])) is None:
                raise
            from queuey.terminal.output import Failed

            raise Failed(ConfigurationError(needed)) from error


@contextmanager
def _in_a_sentence() -> Iterator[None]:
    """:raises ClickException: a file or the output cannot be used, and why."""
    try:
        yield
    except OSError as error:
        if error.errno in (None, errno.EPIPE):  # click's: the reader has had enough
            raise
        drop_what_cannot_be_written()
        raise click.ClickException(sentence_of(error)) from error


def _is_logged(error: click.ClickException) -> bool:
    """Log an error if the log is in JSON: what collects that takes no other line."""
    from queuey.monitor.logs import is_json

    if found := is_json():
        log.error("%s", error.format_message())
    return found


def _prepare_streams() -> None:
    """Let a stream that the shell closed (``<&-``) be an empty one, and no character be one that cannot be read or written."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):  # so each gets the number that it had
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115 - as long as the process lives
    if isinstance(sys.stdin, TextIOWrapper):
        sys.stdin.reconfigure(errors="backslashreplace")
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors=_ESCAPED)


def drop_what_cannot_be_written() -> None:
    """Let go of output that is left: at its end Python would try again, say so in its own words, and exit with 120."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC), sys.stdout.fileno())


_ESCAPED = "queuey.escaped"


def _escaped(error: UnicodeError) -> tuple[str, int]:
    """Characters that a terminal's encoding lacks, as JSON escapes them.

    So JSON stays JSON.
    """
    import json

    if not isinstance(error, UnicodeEncodeError):
        raise error
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end


codecs.register_error(_ESCAPED, _escaped)


def sentence_of(error: OSError) -> str:
    """What is wrong, and with which file.

    >>> sentence_of(OSError(28, "No space left on device")), sentence_of(OSError(13, "Permission denied", "page.html"))
    ('No space left on device', 'page.html: Permission denied')
    """
    return f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror)
