"""The rows and columns of the table, and its cells."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import msgspec

from qdo.bench.document import Subject
from qdo.bench.drivers import driver_class
from qdo.bench.judge import Findings
from qdo.bench.promises import NotHere, Trial, TrialResult, TriedSystem
from qdo.bench.promises.power import lost_at_power_cut
from qdo.bench.promises.probes import ghost_after_delete, stale_accepted, torn_step, two_dead_letters
from qdo.bench.running import Experiment, OneRun
from qdo.bench.systems import system_class
from qdo.bench.tables import aligned, markdown_table
from qdo.bench.workload import Workload, changed, find, load, scaled
from queuey.errors import ConfigurationError, QueueyError

ROWS: Mapping[str, TriedSystem] = {
    "embedded": TriedSystem("Queuey, embedded", "queuey", "queuey"),
    "cassandra-exact": TriedSystem("Queuey on Cassandra, exact", "queuey-cassandra", "queuey", {"group": {"k": 1}}),
    "cassandra-weak": TriedSystem(
        "Queuey on Cassandra, weak", "queuey-cassandra", "queuey", {"group": {"exact": False}}
    ),
    "elasticmq": TriedSystem("ElasticMQ", "elasticmq", "sqs"),
    "nats": TriedSystem("NATS JetStream", "nats", "nats"),
    "rabbitmq-classic": TriedSystem("RabbitMQ, classic queues", "rabbitmq", "rabbitmq-classic"),
    "rabbitmq-quorum": TriedSystem("RabbitMQ, quorum queues", "rabbitmq", "rabbitmq-quorum"),
    "redis": TriedSystem("Redis streams", "redis", "redis-streams"),
}


class JudgedColumn(NamedTuple):
    """A figure that the judge finds under a workload."""

    title: str
    workload: str
    figure: str


class ProbedColumn(NamedTuple):
    """A situation of its own."""

    title: str
    probe: Callable[[Trial], TrialResult]


COLUMNS: Mapping[str, JudgedColumn | ProbedColumn] = {
    "lost-at-kill": JudgedColumn("lost at kill", "promises-kill", "lost"),
    "lost-at-power-cut": ProbedColumn("lost at power cut", lost_at_power_cut),
    "given-twice": JudgedColumn("given twice inside a lease", "promises-kill", "overlaps"),
    "back": JudgedColumn("back after acknowledgement", "promises-kill", "returned"),
    "skipped": JudgedColumn("skipped by time", "promises-read", "lost"),
    "key-order": JudgedColumn("order inside a key", "promises-keys", "key_out_of_order"),
    "key-overtaken": JudgedColumn("overtaken inside a key", "promises-keys", "overtaken"),
    "stranded": JudgedColumn("not back after a crash", "promises-kill", "stranded"),
    "torn-step": ProbedColumn("torn step", torn_step),
    "early": JudgedColumn("early", "promises-delay", "early"),
    "ghost": ProbedColumn("ghost after delete", ghost_after_delete),
    "dead-letters": ProbedColumn("two dead letters", two_dead_letters),
    "stale": ProbedColumn("stale accepted", stale_accepted),
}
_FIFO = {"fifo": "1"}


@dataclass
class PromiseTable:
    """Makes cells. What the judge finds under one workload is found once for a row."""

    options: Mapping[str, str] = field(default_factory=dict)
    """``ROW.NAME`` to values: of its start and of its driver."""
    versions: dict[str, Mapping[str, str]] = field(default_factory=dict)
    """By row: what was tried."""
    _judged: dict[tuple[str, str], Findings] = field(default_factory=dict)

    def demand_known(self) -> None:
        """:raises ConfigurationError: an option is of none of the systems, so it would have no effect."""
        for name in self.options:
            row, _, option = name.partition(".")
            if row not in ROWS:
                raise ConfigurationError(f"option {name}: {row!r} is none of {', '.join(ROWS)}")
            system = system_class(ROWS[row].system)
            try:
                known = {*system.option_names, *driver_class(ROWS[row].driver).option_names} - system.place_options
            except ConfigurationError:  # its driver is not installed, as its cells will say
                continue
            if option not in known:
                raise ConfigurationError(f"option {name}: {row} knows {', '.join(sorted(known)) or 'none'}")

    def cells(self, rows: Sequence[str], columns: Sequence[str]) -> Iterator[tuple[str, str, TrialResult]]:
        """Row, column and what was found, one after the other."""
        for row in rows:
            for column in columns:
                yield row, column, self.cell(row, column)

    def cell(self, row: str, column: str) -> TrialResult:
        """What goes wrong with this system, of this kind."""
        own = {name.partition(".")[2]: text for name, text in self.options.items() if name.partition(".")[0] == row}
        try:
            with TemporaryDirectory(prefix="queuey-bench-") as folder:
                trial = Trial(ROWS[row], own, Path(folder))
                found = COLUMNS[column]
                return _tried(
                    found.probe(trial) if isinstance(found, ProbedColumn) else self._figure(row, trial, found)
                )
        except NotHere as error:
            return TrialResult(None, 0, str(error), is_missing=True)
        except ConfigurationError as error:
            return TrialResult(None, 0, str(error))
        except QueueyError as error:
            return TrialResult(None, 0, f"it could not be tried: {error}", is_missing=True)

    def _figure(self, row: str, trial: Trial, column: JudgedColumn) -> TrialResult:
        key = (row, column.workload)
        if key not in self._judged:
            self._judged[key] = self._run(row, trial, load(find(column.workload)))
        findings = self._judged[key]
        count = findings.counts[column.figure]
        of = findings.stored if column.figure == "lost" else findings.received
        examples = "; ".join(findings.examples.get(column.figure, []))
        text = f"{count:,} {column.figure.replace('_', ' ')} under the workload {column.workload}"
        return TrialResult(count, of, f"{text} ({examples})" if examples else text)

    def _run(self, row: str, trial: Trial, base: Workload) -> Findings:
        driver = trial.driver_type
        workload = trial.workload(base)
        options = {**trial.options, **(_FIFO if workload.keys and trial.tried.driver == "sqs" else {})}
        if workload.keys and not driver.keys:
            raise ConfigurationError("it has no keys in whose order messages are delivered")
        Experiment(workload, options=options).check()
        trial.system()
        if workload.queuey.faults.server:
            workload = up_as_long(workload, trial.start_seconds())
        subject = Subject(workload, trial.tried.driver)
        repeat, self.versions[row] = OneRun(subject, options, None, 0).carry_out()
        return repeat.findings


def _tried(found: TrialResult) -> TrialResult:
    """:raises NotHere: there was nothing that could go wrong."""
    if found.wrong is not None and not found.of:
        raise NotHere(f"it was tried with no message at all: {found.said}")
    return found


def up_as_long(workload: Workload, start_seconds: float) -> Workload:
    """The workload with as many kills, later and in a longer load, if the system starts slowly.

    It would be away for most of the load, and has hardly warmed up when it is killed: its cells would count few messages.
    """
    killing = workload.queuey.faults.server
    if killing is None:
        return workload
    up = killing.mttf + start_seconds / 2
    seconds = workload.seconds / killing.mttf * (up + start_seconds)
    faults = msgspec.to_builtins(workload.queuey.faults)
    return changed(scaled(workload, seconds), faults={**faults, "server": {**faults["server"], "mttf": up}})


Found = Mapping[tuple[str, str], TrialResult]
"""By row and column."""


def cells_of(rows: Sequence[str], columns: Sequence[str], found: Found) -> list[list[str]]:
    """The table with its head."""
    head = ["", *(COLUMNS[column].title for column in columns)]
    return [head, *([ROWS[row].title, *(found[row, column].cell for column in columns)] for row in rows)]


def text_of(rows: Sequence[str], columns: Sequence[str], found: Found) -> str:
    """The table for a terminal."""
    return "\n".join(aligned(cells_of(rows, columns, found)))


def markdown(rows: Sequence[str], columns: Sequence[str], found: Found) -> str:
    """The table for a page of the documentation."""
    return markdown_table(cells_of(rows, columns, found))


def reasons(found: Found) -> list[str]:
    """Why cells are empty, and what went wrong in others, each once."""
    said: dict[str, list[str]] = {}
    for (row, column), one in found.items():
        if one.wrong != 0:
            said.setdefault(f"{ROWS[row].title}: {one.said}", []).append(COLUMNS[column].title)
    return [f"{text} ({', '.join(titles)})" for text, titles in said.items()]
