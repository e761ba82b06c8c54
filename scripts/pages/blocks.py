"""Reference text that the code knows best: settings, errors, commands and metrics.

A comment on a line of its own begins such a part of a page, and another one ends it. What stands between them is written
anew::

    <!-- settings: storage -->     the rows of one section of queuey.settings.SETTINGS
    <!-- error: QueueNotFound -->  what queuey.errors says of one class, and its anchor
    <!-- commands -->              every command of queuey, qdo and qdo-worker
    <!-- metrics -->               every metric of /metrics
    <!-- worker_metrics -->        every metric of qdo work --metrics
    <!-- pipeline_options -->      every option of Spark's format queuey
    <!-- experiment: smoke -->     figures of docs/experiments/smoke.json, and the plots beside it
    <!-- faults -->                which file of tests/faults tries to break which promise

    <!-- end -->
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import click

from queuey.errors import (
    BrokenStream,
    ConfigurationError,
    CoordinatorUnavailable,
    DataLost,
    QueueyError,
    ServerUnreachable,
    error_classes,
)
from queuey.monitor.declared import Declarations
from queuey.monitor.metrics import SERVER_METRICS
from queuey.settings import SETTINGS
from queuey.settings.issuers import ISSUER_SETTINGS

__all__ = ["expand", "table"]

_EXPERIMENTS = Path(__file__).parents[2] / "docs/experiments"
_TESTS = Path(__file__).parents[2] / "tests"
_BEGIN = re.compile(
    r"^<!-- (settings|error|commands|metrics|worker_metrics|pipeline_options|faults|experiment)(?:: ([\w-]+))? -->\n",
    re.MULTILINE,
)
_END = "<!-- end -->\n"


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """A Markdown table; bars in cells are escaped."""
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def anchor(name: str) -> str:
    """An anchor that keeps its case."""
    return f'<span id="{name}"></span>'


def shown(value: object) -> str:
    if value in ("", ()):
        return "empty"
    if isinstance(value, tuple):
        return " ".join(f"`{one}`" for one in value)
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def settings(section: str) -> str:
    rows: list[tuple[str, ...]] = [
        (
            f"{anchor(f'{row.section}.{row.key}')}`{row.key}`",
            f"`{row.variable}`" if row in SETTINGS else "",
            row.accepted,
            shown(row.default),
            row.help,
        )
        for row in (*SETTINGS, *ISSUER_SETTINGS)
        if row.section == section
    ]
    if not rows:
        raise KeyError(section)
    return table(("Key", "Variable", "Value", "Default", "Meaning"), rows)


def facts(found: type[QueueyError]) -> str:
    """Whether a client may try again, and the state of its write (G10)."""
    if issubclass(found, ConfigurationError):
        return "Raised at start, never over HTTP."
    if issubclass(found, CoordinatorUnavailable):
        return "Raised by workers, never over HTTP."
    if issubclass(found, BrokenStream | DataLost | ServerUnreachable):
        return "Raised by clients, never over HTTP."
    keyed = f" (v1 key `{found.key}`)" if found.key else ""
    again = (
        "The same request may be sent again." if found.retriable else "Sending the same request again does not help."
    )
    return f"Status {found.status}{keyed}. {again}"


def error(code: str) -> str:
    found = error_classes()[code]
    said, _, more = (inspect.getdoc(found) or "").partition("\n")
    return "\n\n".join(part for part in (anchor(code), f"> {said}", facts(found), more.strip()) if part)


def command_tree(context: click.Context) -> Iterator[click.Context]:
    """A command, then all below it, in the order of its help."""
    yield context
    if isinstance(context.command, click.Group):
        for name in context.command.list_commands(context):
            child = context.command.get_command(context, name)
            if child is not None:
                yield from command_tree(click.Context(child, context, name))


def command(context: click.Context) -> str:
    found, path = context.command, context.command_path
    parts = [f"## {path}", anchor(path.replace(" ", "-")), prose(found.help or "")]
    if not isinstance(found, click.Group):
        parts.append(f"```text\n{path} {' '.join(found.collect_usage_pieces(context))}\n```")
    records = [param.get_help_record(context) for param in found.params if isinstance(param, click.Option)]
    rows: list[tuple[str, ...]] = [(f"`{record[0]}`", literal(record[1])) for record in records if record]
    if rows:
        parts.append(table(("Option", "Meaning"), rows))
    return "\n\n".join(part for part in parts if part)


def prose(text: str) -> str:
    """Help text as Markdown: paragraphs stay, what Markdown would take for its own is escaped."""
    return literal(inspect.cleandoc(text).replace("\b\n", ""))


def literal(text: str) -> str:
    return re.sub(r"([\\`*_{}\[\]<>$])", r"\\\1", text)


def commands() -> str:
    from qdo.cli import main as qdo
    from qdo.compat.cli import main as old
    from queuey.cli import main as queuey

    programs = ((queuey, "queuey"), (qdo, "qdo"), (old, "qdo-worker"))
    contexts = [context for main, name in programs for context in command_tree(click.Context(main, info_name=name))]
    return "\n\n".join(map(command, contexts))


def metrics() -> str:
    return declared(SERVER_METRICS)


def worker_metrics() -> str:
    from qdo.worker.metrics import WORKER_METRICS

    return declared(WORKER_METRICS)


def pipeline_options() -> str:
    from qdo.pipeline.options import OPTIONS

    rows: list[tuple[str, ...]] = [
        (f"{anchor(option.name)}`{option.name}`", ", ".join(sorted(option.roads)), option.default, option.meaning)
        for option in OPTIONS
    ]
    return table(("Option", "Of", "Default", "Meaning"), rows)


def declared(declarations: Declarations) -> str:
    rows: list[tuple[str, ...]] = [
        (
            f"{anchor(metric.exposed)}`{metric.exposed}`",
            type(metric).__name__.lower(),
            ", ".join(f"`{label}`" for label in metric.labels),
            metric.help,
        )
        for metric in declarations.metrics
    ]
    return table(("Metric", "Kind", "Labels", "Meaning"), rows)


def faults() -> str:
    """Each file begins with its promises and a colon: ``G1:``, ``G1, G22 and G25 by boto3:``, or ``G21 to G28:``."""
    rows = []
    for path in sorted(_TESTS.glob("faults/**/test_*.py")):
        head, _, said = (ast.get_docstring(ast.parse(path.read_text())) or "").partition(":")
        promises = named_promises(head)
        command = f"`make faults TESTS={path.relative_to(_TESTS.parent)}`"
        words = ": ".join(" ".join(part.split()) for part in (_PROMISES.sub("", head), said) if part.strip())
        rows.append((promises[0], ", ".join(f"G{number}" for number in promises), command, words))
    return table(("Promise", "Command", "What it tries"), [tuple(cells) for _, *cells in sorted(rows)])


_PROMISES = re.compile(r"G\d+(?:(?:, | and | to )G\d+)*")


def named_promises(head: str) -> list[int]:
    """Their numbers: of a list, and of all from one to another."""
    found: list[int] = []
    for to, number in re.findall(r"( to )?G(\d+)", head):
        found += range(found[-1] + 1, int(number) + 1) if to else [int(number)]
    return found


def experiment(name: str) -> str:
    """What ``queuey bench run NAME --summary`` wrote, as a table, with its plots and its doubts."""
    from qdo.bench.summary import read_summary, summary_rows

    summary = read_summary(_EXPERIMENTS / f"{name}.json")
    head, *rows = summary_rows(summary)
    doubts = sorted({doubt for one in summary["variants"] for doubt in one["doubts"]})
    parts = [table(tuple(head), [tuple(row) for row in rows])]
    if (_EXPERIMENTS / f"{name}.svg").read_text().count("<svg") > 1:
        parts.append(f"![Plots of {name}](experiments/{name}.svg)")
    about = summary["environment"]
    parts.append(
        f"{summary['began'][:10]}, {about['processor']}, {about['system']}, load {about['load']}. {summary['loop']}."
    )
    if doubts:
        parts.append("Not to be trusted as speeds: " + "; ".join(doubts) + ".")
    return "\n\n".join(parts)


WRITERS: dict[str, Callable[..., str]] = {
    "settings": settings,
    "error": error,
    "commands": commands,
    "metrics": metrics,
    "worker_metrics": worker_metrics,
    "pipeline_options": pipeline_options,
    "faults": faults,
    "experiment": experiment,
}


def expand(text: str) -> str | None:
    """A page with the code's own words in its parts; None if it has no such part.

    :raises ValueError: a part has no end before the next one begins.
    """
    before, *found = _BEGIN.split(text)
    parts = zip(found[::3], found[1::3], found[2::3], strict=True)
    return before + "".join(_part(*part) for part in parts) if found else None


def _part(what: str, argument: str | None, after: str) -> str:
    """One part, and what follows it.

    :param after: the part as it is now, its end, and the text up to the next part.
    """
    begin = f"<!-- {what}: {argument} -->" if argument else f"<!-- {what} -->"
    _, end, rest = after.partition(_END)
    if not end:
        raise ValueError(f"{begin} has no end: add a line {_END.strip()}")
    made = WRITERS[what](argument) if argument else WRITERS[what]()
    return f"{begin}\n\n{made}\n\n{end}{rest}"
