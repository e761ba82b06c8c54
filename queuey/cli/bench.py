"""``queuey bench``: load and consistency, measured so that a stranger can believe it."""

from __future__ import annotations

import re
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

import click
from click.shell_completion import CompletionItem

from queuey.cli.bench_simulation import scenarios_command, simulate_command
from queuey.cli.bench_speed import speed_command
from queuey.errors import ConfigurationError, QueueyError, StorageUnavailable
from queuey.terminal.commands import CommandGroup, drop_what_cannot_be_written, sentence_of
from queuey.terminal.ending import ended_by_signals
from queuey.terminal.numbers import Number
from queuey.terminal.options import WRITTEN
from queuey.terminal.output import Failed, ProgressBar, output_option, say, write_rows
from queuey.whole_files import write_whole

if TYPE_CHECKING:
    from qdo.bench.document import Document
    from qdo.bench.planting import Plant
    from qdo.bench.verdict import Repeat

PLANTS = ("lose", "dup", "swap", "overlap", "early", "overtake", "forget")
"""Those of :mod:`qdo.bench.planting`, which is imported when something is run."""

NOT_MADE = 5
"""The exit code of a run that something ended."""

MOST_LABEL = 120
"""Characters of a label in the name of a file: folders take names of 255 bytes, of which a part is the path's own."""

_OPTION = re.compile(r"(?P<name>([^.=]+\.)?[^.=]+)=(?P<value>.*)", re.DOTALL)


@click.group("bench", cls=CommandGroup)
@click.pass_context
def bench_command(ctx: click.Context) -> None:
    """Measure a system of queues, and check what it delivers.

    A workload is a YAML file: that of the OpenMessaging benchmark, with a section 'queuey' for what it has no
    word for. 'queuey bench ls' shows the workloads that come with the program.

    Every message is checked. A run that loses or repeats messages has no speed, and a speed counts only if the
    generator was on time, the machine quiet, the samples enough, and the repeats agree. It needs the extra
    'bench': pip install '/path/to/queuey[bench]'.
    """
    ctx.with_resource(ended_by_signals())


bench_command.add_command(simulate_command)
bench_command.add_command(scenarios_command)
bench_command.add_command(speed_command)


def _options(_ctx: click.Context, _param: click.Parameter, given: tuple[str, ...]) -> Mapping[str, str]:
    found = {}
    for text in given:
        matched = _OPTION.fullmatch(text)
        if matched is None:
            raise click.BadParameter(f"{text!r} is not NAME=VALUE")
        found[matched["name"]] = matched["value"]
    return found


def _workloads(_ctx: click.Context, _param: click.Parameter, begun: str) -> list[CompletionItem]:
    """Those that come with the program, and files."""
    from qdo.bench.workload import built_in

    return [
        *map(CompletionItem, (name for name in built_in() if name.startswith(begun))),
        CompletionItem(begun, "file"),
    ]


@bench_command.command("run")
@click.argument("file", shell_complete=_workloads)
@click.option(
    "--driver",
    "drivers",
    multiple=True,
    help="The system to measure; several are measured in turn.  [default: the file's]",
)
@click.option(
    "--option",
    "options",
    multiple=True,
    callback=_options,
    metavar="NAME=VALUE",
    help="Of the driver: url=http://...; DRIVER.NAME=VALUE is of one driver.",
)
@click.option("--seconds", type=Number(0, above=True), help="Of the load, in place of the file's.")
@click.option("--repeats", type=click.IntRange(1, 100), help="In place of the file's.")
@click.option("--seed", type=int, help="Of arrivals, sizes, keys and faults, in place of the file's.")
@click.option("--json", "json_path", type=WRITTEN, help="Write the results there.")
@click.option("--html", "html_path", type=WRITTEN, help="Write a page with plots there.")
@click.option("--hlog", "hlog_path", type=WRITTEN, help="Write the histograms there.")
@click.option(
    "--summary",
    "summary_path",
    type=WRITTEN,
    help="Write the figures of all variants there, and plots of them beside it, as .svg.",
)
@click.option(
    "--plant", type=click.Choice(PLANTS), help="Falsify what the receivers saw; the run must find it, and exits with 1."
)
@click.pass_context
def run_command(
    ctx: click.Context,
    file: str,
    drivers: tuple[str, ...],
    options: Mapping[str, str],
    seconds: float | None,
    repeats: int | None,
    seed: int | None,
    json_path: Path | None,
    html_path: Path | None,
    hlog_path: Path | None,
    summary_path: Path | None,
    plant: str | None,
) -> None:
    """Run the workload in FILE, or the built-in one of that name.

    \b
    Exit codes:
        0  trusted and clean
        1  the check found something: messages lost, repeated, early, ...
        2  the workload or an option is wrong; the file and the line are said
        3  not to be trusted: the generator was late, the machine busy, ...
        5  a run was not made: the system is away, a program failed, a disk is full, ...

    \b
    Examples:
        queuey bench run smoke --driver memory
        queuey bench run work.yaml --option url=http://127.0.0.1:5000 --html work.html
        queuey bench run work.yaml --driver queuey --driver sqs --json both.json
        queuey bench run work.yaml --plant lose; test $? -eq 1

    The runs of several drivers, and of all that the file varies, take turns; --json then writes a file for each,
    such as both-queuey.json. Whatever ends the command, Ctrl-C or a system that goes away, the runs that are
    finished are written and printed, and their verdict says that they are not all.

    On a terminal, bars show how many queues are made, and how much of the load is done: a million queues take most
    of an hour ('many-queues'). 10,000 receivers that wait ('waiters') need as many open files; if that is more than
    a process may have, the run is refused, and the error names the limit to set.
    """  # noqa: D301 -- click reads the character
    from qdo.bench.running import Experiment
    from qdo.bench.verdict import exit_code_of_all
    from qdo.bench.workload import changed, find, load, scaled

    places = _Places(json_path, html_path, hlog_path, summary_path)
    places.demand_apart()
    chosen = cast("Plant | None", plant)
    with _not_as_a_verdict():
        workload = changed(load(find(file)), repeats=repeats, seed=seed)
        if seconds is not None:
            workload = scaled(workload, seconds)
        experiment = Experiment(workload, drivers, options, chosen, say, _bar).begin()
        try:
            experiment.make()
        except BaseException:
            # What is finished is kept, and says that it is not all. The exit code stays that of what ended the command.
            try:
                places.write(experiment.results())
            except ConfigurationError as error:
                say(str(error))
            raise
        documents = places.write(experiment.results())
    codes = {document["verdict"]["exit"] for document in documents}
    ctx.exit(exit_code_of_all(codes, chosen))


class _NotMade(Failed):
    """What ended the runs: bad input, or a run that was not made. Other exit codes are verdicts, or say nothing of runs."""

    @property
    def exit_code(self) -> int:  # type: ignore[override]  # as in the base class
        return 2 if super().exit_code == 2 else NOT_MADE


@contextmanager
def _not_as_a_verdict() -> Iterator[None]:
    """Errors have exit codes of their own.

    :raises ClickException: in place of each that has a sentence.
    """
    try:
        yield
    except OSError as error:
        if error.errno is None:  # click's
            raise
        drop_what_cannot_be_written()
        raise _NotMade(StorageUnavailable(sentence_of(error))) from error
    except QueueyError as error:
        raise _NotMade(error) from error


class _Places(NamedTuple):
    """Where results are written."""

    json: Path | None
    html: Path | None
    hlog: Path | None
    summary: Path | None

    def demand_apart(self) -> None:
        """:raises click.BadParameter: a file would take the place of another one, or the plots of a summary can be no file."""
        given = [path for path in (self.json, self.html, self.hlog, self.summary) if path is not None]
        if self.summary is not None:
            plots = self.summary.with_suffix(".svg")
            if plots.is_dir():
                raise click.BadParameter(f"{plots} is a folder: the plots would be there", param_hint="--summary")
            given.append(plots)
        places = [path.resolve() for path in given]
        for at, place in enumerate(places):
            is_device = place.exists() and not place.is_file()
            if place in places[:at] and not is_device:
                raise click.BadParameter(f"{given[at]} would be written twice: each file needs a place of its own")

    def write(self, found: Sequence[tuple[Document, Sequence[Repeat]]]) -> Sequence[Document]:
        """Write and print the results, if there are any.

        :raises ConfigurationError: a file cannot be written any more; all others are.
        """
        from qdo.bench.tables import overview, report

        documents = [document for document, _ in found]
        try:
            _write_each(self._files(found))
        finally:
            # Behind the files. A reader that has had enough changes no exit code.
            try:
                for document in documents:
                    click.echo(f"{report(document)}\n")
                if len(documents) > 1:
                    click.echo(overview(documents))
            except BrokenPipeError:
                drop_what_cannot_be_written()
        return documents

    def _files(
        self, found: Sequence[tuple[Document, Sequence[Repeat]]]
    ) -> Iterator[tuple[Path, Callable[[Path], object]]]:
        """Each with what writes it."""
        from qdo.bench.document import save_log
        from qdo.bench.json_files import write_json
        from qdo.bench.page import page
        from qdo.bench.summary import save_summary, summary_of

        documents = [document for document, _ in found]
        names = (
            _names_of([document["label"] for document in documents]) if len(documents) > 1 else [""] * len(documents)
        )
        for (document, runs), name in zip(found, names, strict=True):
            if self.json is not None:
                yield _beside(self.json, name), partial(write_json, document)
            if self.hlog is not None:
                yield _beside(self.hlog, name), partial(save_log, runs)
        if documents and self.html is not None:
            yield self.html, lambda path: write_whole(path, page(documents).encode())
        if documents and self.summary is not None:
            yield self.summary, lambda path: save_summary(summary_of(documents), path)


def _write_each(files: Iterable[tuple[Path, Callable[[Path], object]]]) -> None:
    """Write all that can be written: a run of an hour is not made again for a disk that is full.

    :raises ConfigurationError: some cannot.
    """
    failed = []
    for path, write in files:
        try:
            write(path)
        except OSError as error:
            failed.append(f"{path}: {error.strerror or error}")
    if failed:
        raise ConfigurationError(f"the runs are over, and this was not written: {'; '.join(failed)}")


@contextmanager
def _bar(name: str, size: float) -> Iterator[Callable[[float], None]]:
    """How much of a part of a run is done, on a terminal."""
    total = max(1, round(size))
    with ProgressBar(name, total) as bar:
        yield lambda done: bar.reach(min(round(done), total))


def _beside(path: Path, name: str) -> Path:
    """The path with more in its name.

    >>> str(_beside(Path("a.json"), "queuey-k=1")), str(_beside(Path("a.json"), ""))
    ('a-queuey-k=1.json', 'a.json')
    """
    return path.with_stem(f"{path.stem}-{name}") if name else path


def _names_of(labels: Sequence[str]) -> list[str]:
    """A part of a file's name for each label. If some would have the same, all are counted.

    >>> _names_of(["queuey k=1", "queuey k=2"]), _names_of(["memory url=a:b", "memory url=a/b"])
    (['queuey-k=1', 'queuey-k=2'], ['memory-url=a-b-1', 'memory-url=a-b-2'])
    """
    names = [_name_of(label) for label in labels]
    return names if len({*names}) == len(names) else [f"{name}-{at}" for at, name in enumerate(names, 1)]


def _name_of(label: str) -> str:
    name = re.sub("[^A-Za-z0-9=._-]+", "-", label)
    return f"{name[:MOST_LABEL]}-{zlib.crc32(label.encode()):08x}" if len(name) > MOST_LABEL else name


@bench_command.command("compare")
@click.argument("first", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("second", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@output_option
def compare_command(first: Path, second: Path, output: str | None) -> None:
    """How much more or less the SECOND result is than the FIRST.

    Both are files of 'queuey bench run --json'. Each ratio has an interval that holds the true one 95 times in
    100. An interval with 1 in it shows no difference. Since several figures are compared, one of them may be
    outside by chance: a difference is said without 'perhaps' only if equals would show any in at most 5 of 100
    comparisons. Three runs show large differences alone; ten show one of a tenth. Runs made in turn compare best:
    give both drivers to one 'queuey bench run'. Exits with 3 if the comparison is not to be trusted; the reasons
    are said.

    Example: queuey bench compare before.json after.json
    """
    from qdo.bench.comparing import compared, doubts
    from qdo.bench.document import read

    one, other = read(first), read(second)
    rows = [
        {
            "figure": ratio.name,
            "first": round(ratio.first, 3),
            "second": round(ratio.second, 3),
            "ratio": round(ratio.ratio, 3),
            "low": round(ratio.low, 3),
            "high": round(ratio.high, 3) if ratio.high != float("inf") else None,
            "said": ratio.said,
        }
        for ratio in compared(one, other)
    ]
    write_rows(rows, ["figure", "first", "second", "ratio", "low", "high", "said"], output)
    found = doubts(one, other)
    for doubt in found:
        say(f"doubt: {doubt}")
    if found:
        sys.exit(3)


@bench_command.command("table")
@click.option("--row", "rows", multiple=True, help="A system; several may be given.  [default: all]")
@click.option("--column", "columns", multiple=True, help="What may go wrong; several may be given.  [default: all]")
@click.option(
    "--option",
    "options",
    multiple=True,
    callback=_options,
    metavar="ROW.NAME=VALUE",
    help="Of a system: elasticmq.jars=FOLDER, cassandra-exact.hosts=HOST:PORT, nats.program=PATH.",
)
@click.option("--markdown", is_flag=True, help="Print the table as the documentation has it.")
def table_command(
    rows: tuple[str, ...], columns: tuple[str, ...], options: Mapping[str, str], *, markdown: bool
) -> None:
    """What goes wrong with systems of queues, counted: a row for each system.

    Each cell is a run of its own, of up to a minute, or two. The systems are started from programs of this machine, with
    data of their own, and killed. A cell says with how many messages it went wrong. One that could not be tried
    has the reason below the table.

    \b
    Examples:
        queuey bench table --row redis --column lost-at-kill
        queuey bench table --row embedded --markdown
        queuey bench table --option elasticmq.jars=jars --option cassandra-exact.hosts=127.0.0.1:9042
    """  # noqa: D301 -- click reads the character
    from qdo.bench.promises.table import COLUMNS, ROWS, PromiseTable, reasons, text_of
    from qdo.bench.promises.table import markdown as as_markdown

    chosen_rows = _chosen(rows, ROWS, "--row")
    chosen_columns = _chosen(columns, COLUMNS, "--column")
    table, found = PromiseTable(options), {}
    table.demand_known()
    for row, column, one in table.cells(chosen_rows, chosen_columns):
        say(f"{ROWS[row].title}, {COLUMNS[column].title}: {one.said}")
        found[row, column] = one
    click.echo((as_markdown if markdown else text_of)(chosen_rows, chosen_columns, found))
    click.echo()
    for text in reasons(found):
        click.echo(f"- {text}")
    for row, versions in table.versions.items():
        click.echo(f"- {ROWS[row].title}: {', '.join(f'{name} {text}' for name, text in versions.items())}")


def _chosen(given: Sequence[str], known: Mapping[str, object], option: str) -> Sequence[str]:
    """Those that are given, or all."""
    for name in given:
        if name not in known:
            raise click.BadParameter(f"{name!r} is none of {', '.join(known)}", param_hint=option)
    return given or [*known]


@bench_command.command("draw")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("svg", type=WRITTEN)
def draw_command(file: Path, svg: Path) -> None:
    """Draw the plots of a FILE of 'queuey bench run --summary' anew, into an SVG.

    Example: queuey bench draw cqs.json cqs.svg
    """
    from qdo.bench.plots import drawing
    from qdo.bench.summary import read_summary, summary_plots

    write_whole(svg, drawing(summary_plots(read_summary(file))).encode())


@bench_command.command("ls")
@output_option
def ls_command(output: str | None) -> None:
    """The workloads that come with the program, and what each shows.

    Example: queuey bench ls
    """
    from qdo.bench.workload import built_in, load

    rows = []
    for name, path in built_in().items():
        workload = load(path)
        rows.append(
            {
                "name": name,
                "driver": workload.queuey.driver,
                "seconds": workload.seconds,
                "repeats": workload.queuey.repeats,
                "about": workload.queuey.about,
            }
        )
    write_rows(rows, ["name", "driver", "seconds", "repeats", "about"], output)
