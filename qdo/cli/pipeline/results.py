"""Where the results of a job go: to the terminal, into Parquet, onto a page."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from queuey.errors import ConfigurationError
from queuey.terminal.options import Command
from queuey.terminal.output import form_for, output_option, write_rows


@dataclass(frozen=True)
class Results:
    """What the user asked for about results."""

    out: str | None
    """A new folder for Parquet."""
    html: str | None
    """A file for the page."""
    form: str
    """The form of what is printed."""

    def check(self, spark: Any) -> None:
        """Check places before the work begins, not after it.

        :raises ConfigurationError: the folder exists already, or none of Spark's file systems knows it; or the page has no
            folder that can be written.
        """
        from qdo.pipeline.jobs.results import demand_new

        if self.html is not None and not os.access(Path(self.html).parent, os.W_OK):
            raise ConfigurationError(
                f"the page {self.html} cannot be written: its folder does not exist, or may not be changed"
            )

        if self.out is not None:
            demand_new(spark, self.out)

    def keep(self, tables: Mapping[str, Any], page: Callable[[], Any]) -> None:
        """Write Parquet and a page, as far as the user asked for them.

        :param tables: DataFrames by name; each name is a folder.
        :param page: makes the page.
        """
        from qdo.pipeline.jobs.pages import write_page
        from qdo.pipeline.jobs.results import write_results

        if self.out is not None:
            write_results(self.out, tables)
        if self.html is not None:
            write_page(page(), self.html)

    def show(self, rows: Iterable[Mapping[str, Any]], columns: tuple[str, ...]) -> None:
        """Print rows."""
        from qdo.pipeline.jobs.results import printable

        write_rows(map(printable, rows), columns, self.form)


def with_results(command: Command) -> Command:
    """Options that say where results go. The command gets ``results``."""

    @click.option(
        "--out",
        metavar="FOLDER",
        help="Write the results as Parquet into this new folder, on any file system of Spark's.",
    )
    @click.option("--html", type=click.Path(dir_okay=False), help="Write a page with tables and plots to this file.")
    @output_option
    @functools.wraps(command)
    def call(out: str | None, html: str | None, output: str | None, **given: Any) -> None:
        command(results=Results(out, html, form_for(output)), **given)

    return call
