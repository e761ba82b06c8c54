"""``queuey audit``: what people did in the console, from the server's log."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from datetime import datetime
from decimal import Decimal
from typing import IO, Any, NamedTuple

import click

from queuey.terminal.output import many, output_option, say, write_rows
from queuey.terminal.times import Moment

__all__ = ["AuditFilter", "audit_command"]

COLUMNS = ("time", "action", "path", "outcome", "principals", "address", "request_id")


class AuditFilter(NamedTuple):
    """Which lines to show. Empty and None: all."""

    since: str | None = None
    """Decimal seconds since 1970, inclusive."""
    until: str | None = None
    principal: str = ""
    path: str = ""
    """The path lies at this one or below it."""
    action: str = ""
    outcome: str = ""
    failed: bool = False
    """Only what was not done."""

    def fits(self, row: Mapping[str, Any]) -> bool:
        outcome = row["outcome"]
        at_path = not self.path or row["path"] == self.path or str(row["path"]).startswith(f"{self.path.rstrip('/')}/")
        return (
            at_path
            and (not self.principal or self.principal in row["principals"])
            and (not self.action or str(row["action"]).lower() == self.action.lower())
            and (not self.outcome or str(outcome).lower() == self.outcome.lower())
            and not (self.failed and outcome == "done")
            and self._in_time(str(row["time"]))
        )

    def _in_time(self, time: str) -> bool:
        if self.since is None and self.until is None:
            return True
        try:
            at = Decimal(datetime.fromisoformat(time).timestamp())
        except ValueError:
            return False
        return (self.since is None or at >= Decimal(self.since)) and (self.until is None or at <= Decimal(self.until))


@click.command("audit")
@click.argument("files", nargs=-1, type=click.File("rb"), metavar="[FILE]...")
@click.option(
    "--since", type=Moment(ago=True, ids=False), help="From here on: 10m (ago), RFC 3339, seconds since 1970."
)
@click.option("--until", type=Moment(ago=True, ids=False), help="Up to here, in the same forms.")
@click.option("--principal", default="", help="Of this person, such as app:billing or operator:root.")
@click.option("--application", default="", help="In this application.")
@click.option("--queue", default="", help="Of this queue; name the application as well.")
@click.option("--action", default="", help="SIGN-IN, SIGN-OUT, or a method such as DELETE.")
@click.option("--outcome", default="", help="done, or the code of an error.")
@click.option("--failed", is_flag=True, help="Only what was refused.")
@output_option
def audit_command(
    files: tuple[IO[bytes], ...],
    since: str | None,
    until: str | None,
    principal: str,
    application: str,
    queue: str,
    action: str,
    outcome: str,
    failed: bool,
    output: str | None,
) -> None:
    """Sign-ins and changes in the console, from the lines of a server's log.

    Reads FILEs or stdin, and looks at lines of JSON ([log] format = json) alone. Exit code 0 also if there are none.

    Example: journalctl -u queuey -o cat | queuey audit --since 1d --application billing
    """
    if queue and not application:
        raise click.UsageError("--queue names a queue of an application: give --application as well.")
    path = f"/v1/{application}/{queue}".rstrip("/") if application else ""
    wanted = AuditFilter(since, until, principal, path, action, outcome, failed)
    skipped = 0

    def rows() -> Iterator[dict[str, Any]]:
        nonlocal skipped
        for file in files or (sys.stdin.buffer,):
            for line in file:
                row = _row(line)
                if row is None:
                    skipped += b'"audit"' in line
                elif wanted.fits(row):
                    yield row

    write_rows(rows(), COLUMNS, output)
    if skipped:
        say(f"could not read {many(skipped, 'line')}: no whole JSON object")


def _row(line: bytes) -> dict[str, Any] | None:
    """What an audit line says; None for any other line."""
    if b'"audit"' not in line:
        return None
    try:
        told = json.loads(line)
        principals = list(told.get("principals", ()))
        return {"action": told["audit"], "principals": principals} | {
            name: told.get(name, "") for name in COLUMNS if name not in ("action", "principals")
        }
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
