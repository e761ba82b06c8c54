"""``python -m tests.bench``."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar, get_args

import click
import msgspec

from qdo.bench.document import Document
from qdo.bench.summary import save_summary, summary_of
from qdo.bench.tables import overview
from queuey.terminal.ending import ended_by_signals
from tests.bench import (
    appends,
    arrival,
    asyncio_clients,
    cached,
    commits,
    console,
    elasticmq,
    groups,
    identity,
    inside,
    lease_states,
    leases,
    live,
    memory,
    overload,
    peers,
    per_request,
    queues,
    reads,
    recovery,
    scrub,
    spark,
    spread,
    sqs,
    sqs_queues,
    sqs_waiting,
    stored,
    traps,
    users,
    versions,
    workers,
    worst,
)
from tests.bench import report as delivery_report
from tests.bench.measure import BenchFailed
from tests.bench.on_cassandra import experiments, power, predicting
from tests.bench.on_cassandra import leases as leases_on_cassandra
from tests.bench.on_cassandra.scenes import SCENES as SCENES_ON_CASSANDRA
from tests.bench.on_cassandra.topics import TOPICS as ON_CASSANDRA
from tests.bench.plan import FULL, QUICK, Plan, machine
from tests.bench.profile import SCENES, report
from tests.bench.table import Row, markdown
from tests.support.services.cassandra import Commitlog

P = TypeVar("P")
Topics = dict[str, Callable[[Plan], Iterator[Row]]]

TOPICS: Topics = {
    "append": appends.single,
    "keyed": appends.keyed,
    "forgotten": appends.forgotten,
    "batch": appends.hundreds,
    "read": reads.json_pages,
    "arrow": reads.arrow,
    "cached": cached.measure,
    "scrub": scrub.measure,
    "arrival": arrival.measure,
    "live": live.measure,
    "queues": queues.measure,
    "spread": spread.measure,
    "commits": commits.measure,
    "console": console.measure,
    "per-request": per_request.measure,
    "users": users.measure,
    "stored": stored.measure,
    "identity": identity.measure,
    "memory": memory.measure,
    "worst": worst.measure,
    "overload": overload.measure,
    "leases": leases.measure,
    "receivers": live.receivers,
    **lease_states.TOPICS,
    "sqs": sqs.measure,
    "sqs-waiting": sqs_waiting.measure,
    "sqs-queues": sqs_queues.measure,
    "elasticmq": elasticmq.measure,
    "recovery": recovery.measure,
    "workers": workers.measure,
    "asyncio": asyncio_clients.measure,
    "groups": groups.measure,
    "report": delivery_report.measure,
    "clustered": traps.clustered,
    "threads": traps.threads,
    "parser": traps.parser,
}
BACKENDS: dict[str, Topics] = {"sqlite": TOPICS, "cassandra": ON_CASSANDRA}


def tell(text: str) -> None:
    click.echo(f"{time.strftime('%H:%M:%S')} {text}", err=True)


@contextmanager
def planned(
    folder: str, seconds: float, rounds: int, *, quick: bool, commitlog: Any = "periodic", **sizes: int | None
) -> Iterator[Plan]:
    """A plan with a folder that is gone afterwards."""
    chosen = {**(QUICK if quick else FULL), **{name: size for name, size in sizes.items() if size is not None}}
    Path(folder).mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="bench-", dir=folder) as inside:
        yield Plan(Path(inside), seconds, rounds, tell=tell, commitlog=commitlog, **chosen)


_folder = click.option(
    "--folder",
    default="build/bench",
    show_default=True,
    help="Where the stores are made, and removed afterwards; on the disk that is to be measured.",
)
_out = click.option(
    "--out", type=click.Path(dir_okay=False, path_type=Path), help="Write the table there too, after each topic."
)
_quick = click.option("--quick", is_flag=True, help="A twentieth of the queues, a tenth of the messages.")
_backend = click.option(
    "--backend",
    type=click.Choice(list(BACKENDS)),
    default="sqlite",
    show_default=True,
    help="The store to measure; nodes of Cassandra are started for it (make cassandra installs what they need).",
)


@click.group(invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--only",
    multiple=True,
    type=click.Choice(sorted(TOPICS | ON_CASSANDRA)),
    metavar="NAME",
    help=f"One of {', '.join(TOPICS)}, or on Cassandra of {', '.join(ON_CASSANDRA)}; may be repeated.",
)
@click.option("--seconds", default=4.0, show_default=True, help="Of each measurement.")
@click.option("--rounds", default=5, show_default=True, help="How often baseline and subject are measured in turn.")
@click.option(
    "--queues",
    type=click.IntRange(min=queues.LEAST),
    help=f"Queues of the topics 'queues', 'spread', 'users' and, up to 100,000, 'sqs-queues'.  [default: {FULL['queues']}]",
)
@click.option("--stored", type=int, help=f"Messages of the topic 'stored'.  [default: {FULL['stored']}]")
@click.option("--consumed", type=int, help=f"Messages of the topic 'deleted'.  [default: {FULL['consumed']}]")
@click.option(
    "--commitlog",
    type=click.Choice(get_args(Commitlog)),
    default="periodic",
    show_default=True,
    help="How nodes of Cassandra write theirs: periodic as shipped, or in groups of 10 ms, on disk before the answer.",
)
@_out
@_backend
@_quick
@_folder
@click.pass_context
def bench(
    ctx: click.Context,
    backend: str,
    only: tuple[str, ...],
    seconds: float,
    rounds: int,
    queues: int | None,
    stored: int | None,
    consumed: int | None,
    commitlog: str,
    out: Path | None,
    quick: bool,
    folder: str,
) -> None:
    """How fast Queuey is, compared with what the same machine does in the same minutes.

    Without a command: every topic, and a table of ratios in Markdown. Baseline and server are measured in
    turn; the ratio is the median over the rounds, with the least and the most beside it. The load comes from
    wrk (apt-get install wrk) over 32 connections unless a row says otherwise, with bodies of 256 bytes, against
    'queuey serve' with its defaults. No figure fails the run; a refused request does.

    \b
        python -m tests.bench --quick --seconds 2 --rounds 3      first impressions, five minutes
        python -m tests.bench --only append --only batch
        python -m tests.bench --out table.md                      everything, some twenty minutes
        python -m tests.bench against HEAD~1                      this tree beside another commit
        python -m tests.bench profile append                      where the time goes
        python -m tests.bench --backend cassandra                 on nodes of its own, some twenty minutes
        python -m tests.bench pipeline                            the pipeline on Spark, beside Kafka
    """
    ctx.with_resource(ended_by_signals())
    if ctx.invoked_subcommand is not None:
        return
    topics = BACKENDS[backend]
    if not topics.keys() >= set(only):
        raise click.UsageError(f"--backend {backend} measures {', '.join(topics)}")
    sizes = {"queues": queues, "stored": stored, "consumed": consumed}
    with planned(folder, seconds, rounds, quick=quick, commitlog=commitlog, **sizes) as plan:
        nodes = f" Commit log of the nodes: {commitlog}." if backend == "cassandra" else ""
        conditions = (
            f"{time.strftime('%Y-%m-%d')}: {machine(plan.folder)}. {seconds:g} s a measurement, {rounds} rounds.{nodes}"
        )
        run({name: topics[name] for name in only or topics}, plan, conditions, out)


def run(topics: Mapping[str, Callable[[P], Iterator[Row]]], given: P, conditions: str, out: Path | None) -> None:
    """Measure, tell each row, and print the table; what failed comes last, and is the exit code."""
    rows: list[Row] = []
    failed: list[str] = []
    for name, measure in topics.items():
        tell(name)
        try:
            for row in measure(given):
                rows.append(row)
                tell(f"  {row.what}: {row.ours} [{row.ratio or ''}] {row.verdict}")
        except BenchFailed as error:
            failed.append(f"{name}: {error}")
            tell(f"  failed: {error}")
        if out is not None:
            out.write_text(f"{conditions}\n\n{markdown(rows)}\n")
    click.echo(f"{conditions}\n\n{markdown(rows)}")
    if failed:
        sys.exit("\n".join(["", "Failed:", *failed]))


@bench.command()
@click.option(
    "--only",
    multiple=True,
    type=click.Choice(list(spark.TOPICS)),
    metavar="NAME",
    help=f"One of {', '.join(spark.TOPICS)}; may be repeated.",
)
@click.option("--rounds", default=5, show_default=True, help="How often baseline and subject are measured in turn.")
@click.option("--messages", type=int, help=f"Of 256 bytes, in 8 partitions.  [default: {spark.FULL['messages']}]")
@_out
@click.option("--quick", is_flag=True, help="A fiftieth of the messages.")
@_folder
def pipeline(
    only: tuple[str, ...], rounds: int, messages: int | None, out: Path | None, quick: bool, folder: str
) -> None:
    """How fast Spark reads and writes queues, compared with its own Kafka source and with Parquet.

    The same messages lie in a queue of the shipped server and in a topic of a Kafka that is started for it, one
    node with its defaults; Spark's Kafka source and sink come in the version of the installed PySpark. Server,
    Kafka and Spark share this machine, as do the readers compared, which take turns. Java 17 and Maven must be
    installed; their jars, some 150 MB, are fetched once.

    \b
        python -m tests.bench pipeline --quick --rounds 1       whether it runs, two minutes
        python -m tests.bench pipeline --only read
        python -m tests.bench pipeline --out table.md           everything, some twenty minutes
    """
    sizes = {**(spark.QUICK if quick else spark.FULL), **({} if messages is None else {"messages": messages})}
    Path(folder).mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="bench-", dir=folder) as inside:
        plan = spark.SparkPlan(Path(inside), rounds, tell=tell, **sizes)
        conditions = (
            f"{time.strftime('%Y-%m-%d')}: {machine(plan.folder)}. {spark.versions()}. "
            f"{plan.messages:,} messages, {rounds} rounds."
        )
        with spark.staged(plan) as stage:
            run({name: spark.TOPICS[name] for name in only or spark.TOPICS}, stage, conditions, out)


@bench.command()
@click.argument("revision")
@click.option("--seconds", default=4.0, show_default=True, help="Of each measurement.")
@click.option("--rounds", default=5, show_default=True, help="How often both are measured in turn.")
@_out
@_backend
@_quick
@_folder
def against(
    revision: str, seconds: float, rounds: int, out: Path | None, backend: str, quick: bool, folder: str
) -> None:
    """Whether this tree is as fast as the commit REVISION of it.

    The server of each runs on this environment, and both are asked the same in turn; a ratio over 1 means that
    this tree is faster, or needs less memory. On Cassandra lease groups are compared, each with the bare driver too.

    \b
        python -m tests.bench against HEAD~1
        python -m tests.bench against --quick --seconds 2 --rounds 3 main      two minutes
        python -m tests.bench against --backend cassandra HEAD~1               five minutes
    """
    measure = leases_on_cassandra.against if backend == "cassandra" else versions.measure
    with planned(folder, seconds, rounds, quick=quick) as plan:
        conditions = (
            f"{time.strftime('%Y-%m-%d')}: {machine(plan.folder)}. {seconds:g} s a measurement, {rounds} rounds. "
            f"Baseline: {revision}."
        )
        run({"against": partial(measure, revision=revision)}, plan, conditions, out)


@bench.command()
@click.option("--seconds", default=4.0, show_default=True, help="Of each measurement.")
@click.option("--rounds", default=3, show_default=True, help="How often each load is measured, in turn.")
@click.option(
    "--costs", type=click.Path(dir_okay=False, path_type=Path), help="Write what was measured there, as JSON."
)
@_folder
def predict(seconds: float, rounds: int, costs: Path | None, folder: str) -> None:
    """Whether the simulation of 'queuey bench simulate' predicts one, two and three servers.

    What requests cost is measured with one server before one node of Cassandra, and with a ZooKeeper. From that the rates
    of one, two and three servers are predicted, and compared with runs in the same rounds; all share this machine. Exits
    with 1 if a prediction is more than a fifth off. --costs writes the file that 'queuey bench simulate --costs' reads.

    \b
        python -m tests.bench predict --costs costs.json        some ten minutes
    """
    with planned(folder, seconds, rounds, quick=True) as plan:
        conditions = (
            f"{time.strftime('%Y-%m-%d')}: {machine(plan.folder)}. {seconds:g} s a measurement, {rounds} rounds."
        )
        table, predictions = predicting.measure(plan)
    if costs is not None:
        costs.write_bytes(msgspec.json.format(msgspec.json.encode(table), indent=1) + b"\n")
    click.echo(f"{conditions}\n\n{predicting.as_markdown(predictions)}")
    if not all(one.is_close for one in predictions):
        sys.exit(1)


@bench.command()
@click.argument("name")
@click.option("--nodes", default="1", show_default=True, type=click.Choice(["1", "3"]), help="Of Cassandra.")
@click.option(
    "--servers",
    default=[3],
    show_default=True,
    multiple=True,
    type=click.IntRange(1, 8),
    help="Before it; if repeated, all is run with each number of them.",
)
@click.option("--seconds", default=0.0, help="Of each load.  [default: the workload's]")
@click.option("--repeats", default=0, help="Runs of each variant.  [default: the workload's]")
@click.option("--summary", type=click.Path(dir_okay=False, path_type=Path), help="As of 'queuey bench run'.")
@_folder
def experiment(
    name: str, nodes: str, servers: Sequence[int], seconds: float, repeats: int, summary: Path | None, folder: str
) -> None:
    """A workload of 'queuey bench', a file or its name, on servers over Cassandra that are started for it.

    \b
        python -m tests.bench experiment bdqs-weak                             weak groups at three servers
        python -m tests.bench experiment bdqs-servers --nodes 3 --servers 1 --servers 2 --servers 3
    """
    with planned(folder, seconds, repeats, quick=True) as plan:
        _overview(experiments.run(plan, name, int(nodes), servers), summary)


@bench.command("power")
@click.option(
    "--row",
    "rows",
    type=click.Choice(power.POWERED),
    multiple=True,
    help="Of 'queuey bench table'; may be repeated.  [default: all]",
)
@click.option(
    "--commitlog",
    type=click.Choice(get_args(Commitlog)),
    default="batch",
    show_default=True,
    help="When the node syncs its log: before it answers, or with 'periodic' up to 10 s later, as shipped.",
)
@_folder
def cut_power(rows: Sequence[str], commitlog: str, folder: str) -> None:
    """The column 'lost at power cut' of 'queuey bench table', for Queuey on Cassandra.

    A server and a node are started on a disk that loses what was not synced, and killed three times under load. It needs root,
    /dev/fuse and the extra 'bench-power'.

    \b
        python -m tests.bench power --row cassandra-exact           some two minutes
        python -m tests.bench power --commitlog periodic            what a node as shipped may lose
    """
    with planned(folder, 0, 0, quick=True, commitlog=commitlog) as plan:
        for row in rows or power.POWERED:
            found = power.cut(plan, row)
            click.echo(f"{row}: {found.cell}. {found.said}")


@bench.command("peers")
@click.option(
    "--system",
    "systems",
    type=click.Choice([*peers.SYSTEMS]),
    multiple=True,
    help="Beside Queuey; may be repeated.  [default: all]",
)
@click.option("--seconds", default=0.0, help="Of each load.  [default: the workload's]")
@click.option("--repeats", default=0, help="Runs of each driver.  [default: the workload's]")
@click.option("--summary", type=click.Path(dir_okay=False, path_type=Path), help="As of 'queuey bench run'.")
@_folder
def beside_peers(systems: Sequence[str], seconds: float, repeats: int, summary: Path | None, folder: str) -> None:
    """The workload 'peers' of 'queuey bench', over systems that are started for it.

    Redis and RabbitMQ come from Debian (apt-get install redis-server rabbitmq-server); NATS, Kafka and
    ElasticMQ are fetched.

    \b
        python -m tests.bench peers
        python -m tests.bench peers --system redis --system nats
    """
    with planned(folder, seconds, repeats, quick=True) as plan:
        _overview(peers.run(plan, systems or [*peers.SYSTEMS]), summary)


def _overview(documents: Sequence[Document], summary: Path | None) -> None:
    click.echo(overview(documents))
    if summary is not None:
        save_summary(summary_of(documents), summary)


@bench.command()
@click.argument("load", type=click.Choice([*(SCENES | inside.CALLS)]))
@click.option("--seconds", default=6.0, show_default=True, help="How long to look.")
@click.option("--calls", is_flag=True, help="The calls alone, in one process without network, under cProfile.")
@_backend
@_quick
@_folder
def profile(load: str, seconds: float, calls: bool, backend: str, quick: bool, folder: str) -> None:
    """Where the time goes under one load.

    The shipped server under the real load, looked at by py-spy (pip install py-spy). With --calls the
    event loop alone in this process, without a network, under cProfile.
    """
    with planned(folder, seconds, 1, quick=quick) as plan:
        try:
            if calls and (load not in inside.CALLS or backend != "sqlite"):
                raise click.UsageError(f"--calls knows {', '.join(inside.CALLS)} of the embedded store")
            scenes = {"sqlite": SCENES, "cassandra": SCENES_ON_CASSANDRA}[backend]
            if not calls and load not in scenes:
                raise click.UsageError(f"--backend {backend} knows {', '.join(scenes)}; with --calls there are more")
            for line in inside.report(plan, load) if calls else report(plan, scenes[load], load):
                click.echo(line)
        except BenchFailed as error:
            sys.exit(str(error))


if __name__ == "__main__":
    bench(prog_name="python -m tests.bench")
