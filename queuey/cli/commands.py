"""A command line whose commands are imported when they are asked for, and whose errors are exit codes."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click

from queuey.errors import QueueyError


class Commands(click.Group):
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

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except QueueyError as error:
            from queuey.cli.output import Failed

            raise Failed(error) from error
