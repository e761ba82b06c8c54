"""What commands print: rows, progress, and errors with exit codes."""

from __future__ import annotations

import base64
import csv
import json
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import chain, islice
from typing import IO, Any, Self

import click

from queuey.errors import (
    ConfigurationError,
    CoordinatorUnavailable,
    Forbidden,
    InvalidMessageId,
    InvalidParameter,
    InvalidReceipt,
    NotFound,
    OutcomeUnknown,
    QueueyError,
    StorageFull,
    StorageUnavailable,
    Throttled,
    Unauthenticated,
)
from queuey.terminal.colours import no_colour
from queuey.visible import visible

FORMS = ("table", "json", "jsonl", "csv")
Row = Mapping[str, Any]

_EXIT_CODES: Sequence[tuple[type[QueueyError], int]] = (
    (ConfigurationError, 2),
    (InvalidParameter, 2),
    (InvalidMessageId, 2),
    (InvalidReceipt, 2),
    (NotFound, 3),
    (Unauthenticated, 4),
    (Forbidden, 4),
    (Throttled, 5),
    (StorageUnavailable, 5),
    (StorageFull, 5),
    (CoordinatorUnavailable, 5),
    (OutcomeUnknown, 6),
)
_SAMPLE_ROWS = 100
_PROGRESS_AFTER_SECONDS = 2.0
_PROGRESS_SECONDS = 0.2


def exit_code(error: QueueyError) -> int:
    """The exit code of an error.

    >>> from queuey.errors import QueueNotFound
    >>> exit_code(QueueNotFound())
    3
    """
    return next((code for family, code in _EXIT_CODES if isinstance(error, family)), 1)


class Failed(click.ClickException):
    """An error of Queuey at the end of a command."""

    def __init__(self, error: QueueyError) -> None:
        super().__init__(str(error))
        self._error = error

    @property
    def exit_code(self) -> int:  # type: ignore[override]  # click reads it from the instance
        return exit_code(self._error)

    def format_message(self) -> str:
        """As it is logged."""
        return f"{self._error.code}: {self.message}"

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(
            f"{click.style(self._error.code, fg='red')}: {self.message}", err=True, color=False if no_colour() else None
        )


class NothingFound(click.ClickException):
    """What was named is not there."""

    exit_code = 3


def say(text: str) -> None:
    """Print a line for people to stderr; data goes to stdout.

    If nobody can read it, for instance because the terminal is gone, work goes on.
    """
    with suppress(OSError):
        click.echo(text, err=True)


def many(count: int, what: str) -> str:
    """How many of something, for people.

    >>> many(1, "message"), many(1203, "message")
    ('1 message', '1,203 messages')
    """
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def output_option(command: Callable[..., None]) -> Callable[..., None]:
    """``-o``: passed on as ``output``; None leaves the choice to :func:`form_for`."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice(FORMS),
        envvar="QUEUEY_OUTPUT",
        help="Form of the output: table on a terminal, else jsonl.",
    )(command)


def form_for(output: str | None, out: IO[Any] | None = None) -> str:
    return output or ("table" if (out or sys.stdout).isatty() else "jsonl")


def write_rows(
    rows: Iterable[Row], columns: Sequence[str], output: str | None, *, widths: Sequence[int] | None = None
) -> None:
    """Print rows as they come.

    :param columns: members that every row has or may lack, in the order of tables and CSV.
    :param widths: of a table's columns; None takes them from the first hundred rows.
    """
    out = sys.stdout
    form = form_for(output, out)
    rows = _begun(rows)
    if form == "table":
        _write_table(rows, columns, widths, out)
    elif form == "csv":
        lines = csv.writer(out, lineterminator="\n")
        lines.writerow(columns)
        lines.writerows([_plain(row.get(column)) for column in columns] for row in rows)
    elif form == "jsonl":
        for row in rows:
            out.write(to_json(row) + "\n")
    else:
        _write_list(rows, out)
    out.flush()


def write_one(row: Row, output: str | None) -> None:
    """Print one thing: in a table one member a line, in JSON an object."""
    out = sys.stdout
    form = form_for(output, out)
    if form == "table":
        width = max(map(len, row))
        for name, value in row.items():
            out.write(f"{name:{width}}  {visible(_plain(value))}".rstrip() + "\n")
    elif form == "csv":
        write_rows([row], list(row), form)
    else:
        out.write(to_json(row, indent=2 if form == "json" else None) + "\n")
    out.flush()


def write_done(row: Row, output: str | None) -> None:
    """Print what a command has done, for a program. Without ``-o`` the command only says it to people."""
    if output is not None:
        write_one(row, output)


def to_json(value: Any, *, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def message_row(partition: int, message_id: Any, **more: Any) -> dict[str, Any]:
    """How a message begins, in the words of the API."""
    return {"partition": partition, "message_id": message_id.hex, "timestamp": message_id.timestamp, **more}


def body_members(body: bytes) -> dict[str, str]:
    """A body in the words of the API: text, or base64 and a member that says so."""
    try:
        return {"body": body.decode()}
    except UnicodeDecodeError:
        return {"body": base64.b64encode(body).decode(), "encoding": "base64"}


def _begun(rows: Iterable[Row]) -> Iterator[Row]:
    """The same rows, with the first one made.

    So rows that fail at once fail before a heading is printed.
    """
    left = iter(rows)
    return chain(list(islice(left, 1)), left)


def _write_list(rows: Iterable[Row], out: IO[str]) -> None:
    out.write("[")
    between = "\n"
    for row in rows:
        out.write(f"{between}{to_json(row)}")
        between = ",\n"
    out.write("\n]\n")


def _write_table(rows: Iterable[Row], columns: Sequence[str], widths: Sequence[int] | None, out: IO[str]) -> None:
    lines: Iterator[list[str]] = ([visible(_plain(row.get(column))) for column in columns] for row in rows)
    title = [column.replace("_", " ").upper() for column in columns]
    if widths is None:
        sample = list(islice(lines, _SAMPLE_ROWS))
        widths = [max(map(len, column)) for column in zip(title, *sample, strict=True)]
        lines = chain(sample, lines)
    for line in chain([title], lines):
        out.write("  ".join(f"{cell:{width}}" for cell, width in zip(line, widths, strict=True)).rstrip() + "\n")


def _plain(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    is_list = isinstance(value, (list, tuple))
    if isinstance(value, dict) or (is_list and any(isinstance(one, dict) for one in value)):
        return to_json(value)
    return ",".join(map(str, value)) if is_list else str(value)


class ProgressBar:
    """A bar on stderr, for work that takes longer than two seconds on a terminal."""

    def __init__(self, label: str, total: int, *, now: Callable[[], float] = time.monotonic) -> None:
        self._label = label
        self._total = total
        self._now = now
        self._start = now()
        self._bar: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.__exit__(*error)

    def reach(self, done: int, total: int | None = None) -> None:
        """``done`` of ``total`` is done."""
        if total is not None:
            self._total = total
        if self._bar is None:
            err = sys.stderr
            if not self._total or not err.isatty() or self._now() - self._start < _PROGRESS_AFTER_SECONDS:
                return
            self._bar = click.progressbar(length=self._total, label=self._label, file=err)
            self._bar.__enter__()
        self._bar.update(done - self._bar.pos)


@contextmanager
def progress(label: str, total: Callable[[], int], done: Callable[[], int]) -> Iterator[None]:
    """Show a bar on a terminal while the block runs, from a thread of its own.

    :param total: asked once, in that thread; no bar if it is 0 or fails.
    """
    if not sys.stderr.isatty():
        yield
        return
    over = threading.Event()

    def show() -> None:
        with suppress(QueueyError), ProgressBar(label, total()) as bar:
            while not over.wait(_PROGRESS_SECONDS):
                bar.reach(done())
            bar.reach(done())

    thread = threading.Thread(target=show, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(1)
