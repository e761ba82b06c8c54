"""``qdo work``."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from qdo.cli.options import (
    Workplace,
    dead_letters_option,
    refuse_given,
    refuse_without_meaning,
    several_queues,
    with_workplace,
)
from qdo.groups.assign import STRATEGIES
from qdo.groups.dead_letter_names import DeadLetterNames
from qdo.groups.meeting import SESSION_SECONDS
from qdo.groups.subscription import is_pattern
from queuey.errors import QueueNotFound, ServerUnreachable
from queuey.terminal.numbers import Number
from queuey.terminal.output import many, progress, say

if TYPE_CHECKING:
    from qdo.client import Client
    from qdo.worker import Worker
    from queuey.terminal.options import Server

log = logging.getLogger(__name__)

NOT_ALL_DONE = 7
"""Exit code with --exit-at-end if something that was there is not done."""
_DEFAULT = click.core.ParameterSource.DEFAULT
_OF_COMMAND = ("session_seconds", "metrics", "telemetry", "modules", "owned", "report")
"""Options that a worker does not take."""
_VISIBILITY = "the group's visibility says how long a silent worker keeps its messages"
CLIENT_RETRIES = 5
"""Of one request. A worker tries again after that."""


def _checked_collector(context: click.Context, option: click.Parameter, given: str | None) -> str | None:
    if given is not None and not re.fullmatch(r"https?://[^/\s]+(/\S*)?", given):
        raise click.BadParameter("expected the address of a collector, such as http://127.0.0.1:4318.")
    return given


@click.command("work")
@click.argument("job", metavar="MODULE:FUNCTION", required=False)
@with_workplace
@click.option(
    "--tasks",
    "modules",
    multiple=True,
    metavar="MODULE",
    help="Run the tasks that MODULE declares with @qdo.task, in place of one function; may be repeated.",
)
@several_queues(
    "Queue to work on, or a pattern such as 'mail-*'; may be repeated. Queues that come later are found. With --tasks: "
    "some of their queues, in place of all. With leases, a weight of 1 to 1000 says how often a queue comes first.",
    named="named",
    metavar="NAME[=WEIGHT]",
)
@click.option(
    "--in-order", is_flag=True, help="With leases: the queue named first gives what it has, then the next one."
)
@click.option("--owned", is_flag=True, help="With --tasks: on owned partitions, in place of leases.")
@click.option(
    "--reload", is_flag=True, help="Start again when a Python file below this folder changes. For development."
)
@click.option(
    "--threads", type=click.IntRange(1), default=4, show_default=True, help="Jobs at once, one in each partition."
)
@click.option(
    "--processes",
    type=click.IntRange(0),
    default=0,
    help="Run jobs in this many processes, for jobs that compute; set --threads to the same number.",
)
@click.option(
    "--batch",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Over 1: the function gets a list of up to this many messages of one partition.",
)
@click.option(
    "--by-key",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    help="Over 1: up to this many messages of one partition at once; those of one key still follow each other.",
)
@click.option(
    "--retries",
    type=click.IntRange(0),
    default=4,
    show_default=True,
    help="How often a job that raised is tried again, with growing pauses, before its message is a dead letter.",
)
@dead_letters_option
@click.option(
    "--at-most-once", is_flag=True, help="Record before the job begins: a crash loses messages, and repeats none."
)
@click.option("--from-end", is_flag=True, help="A new group begins with messages to come.")
@click.option(
    "--exit-at-end",
    is_flag=True,
    help="End when nothing is left to do, what jobs send included; exit code 7 if it cannot all be done.",
)
@click.option(
    "--strategy",
    type=click.Choice(list(STRATEGIES)),
    default="sticky",
    show_default=True,
    help="How the group divides partitions.",
)
@click.option(
    "--slots",
    is_flag=True,
    help="Divide queues by hash slots, not by partitions: for very many small queues. Offsets are kept in Queuey.",
)
@click.option(
    "--session-seconds",
    type=Number(1, 3600),
    default=SESSION_SECONDS,
    show_default=True,
    help="A worker that is silent for longer is dead to the others.",
)
@click.option(
    "--drain-seconds",
    type=Number(0),
    default=30.0,
    show_default=True,
    help="For jobs under way when their partition goes to another worker, and at the end.",
)
@click.option(
    "--metrics",
    metavar="HOST:PORT",
    help="Serve metrics to Prometheus at this address; port 0 takes a free one and prints it.",
)
@click.option(
    "--telemetry",
    metavar="URL",
    callback=_checked_collector,
    help="Send a span of each job, and the worker's metrics, to this collector of OpenTelemetry, by OTLP over HTTP, such as "
    "http://127.0.0.1:4318. All else is as the OTEL_* variables say.",
)
@click.option(
    "--lease",
    is_flag=True,
    help="Take messages one by one from a lease group, with any number of workers, in place of owned partitions.",
)
@click.option(
    "--report", is_flag=True, help="Report every ten seconds to the queue qdo-workers, for the console's page Workers."
)
@click.option("--log-json", is_flag=True, help="Log in JSON, one event a line, also what the worker says of itself.")
def work_command(
    workplace: Workplace,
    job: str | None,
    modules: tuple[str, ...],
    named: tuple[str, ...],
    log_json: bool,
    reload: bool,
    **given: Any,
) -> None:
    """Run FUNCTION of MODULE for each message of the queues, or the tasks of modules.

    The function gets a message and its context: 'def process(message, context): ...'. It may be 'async'. The current
    folder is searched for its module, too. The message is done when the function returns. If the function raises, it is
    tried again. In each partition, messages are done in order, by one worker of the group at a time. Start as many workers
    as there is work for; with --zookeeper on any number of machines.

    With --lease the server hands out each message to one worker of the group. No worker owns anything, so any number of
    them come and go on any machines, and a long job holds up no other message. A message is handed out again if its worker
    dies. The settings of the group say when a job that raised is tried again: 'queuey lease set QUEUE GROUP'. Example:
    qdo work jobs:process --lease --queue mail

    With --tasks the functions are those that a module declares with @qdo.task, and each task says in which queue its messages
    are, how often it is tried again and when it is sent by itself. They are leased, or with --owned in owned partitions.
    Example: qdo work --tasks myapp.jobs

    SIGTERM, Ctrl-C or the end of its terminal ends it in order, with exit code 0: jobs under way are finished and recorded,
    and partitions are given back. A second signal ends it at once, with exit code 143 or 130: what is not recorded will be
    done again. A job that can no longer print, as in 'qdo work ... | head', ends it in order too: its message is given back and
    no attempt has failed; the exit code is 1. With --exit-at-end the exit code is 7 if something that was there is not done: a message was given up ('qdo
    dead ls QUEUE' shows which), a partition stands still, a pattern left a queue out, or a signal ended the worker before.
    """
    from queuey.monitor.logs import set_up

    _check_what(job, modules, named, given)
    set_up("info", "json" if log_json else "text")
    if reload:
        from qdo.cli.reloading import run_again_and_again

        click.get_current_context().exit(run_again_and_again(_note))
    logging.getLogger("kazoo").setLevel(logging.WARNING)
    queues, given["weights"] = weighted(named)
    _work(workplace, job or ", ".join(modules), queues, {**given, "modules": modules})


def _check_what(job: str | None, modules: Sequence[str], named: Sequence[str], given: Mapping[str, Any]) -> None:
    """:raises UsageError: it is not said what to run, or for which queues, or options exclude each other."""
    if bool(job) == bool(modules) or "" in modules:
        raise click.UsageError("say what to run: MODULE:FUNCTION, or --tasks MODULE.")
    if job and not named:
        raise click.UsageError("Missing option '-q' / '--queue'.")
    if given["owned"] and not modules:
        raise click.UsageError("--owned is for --tasks: without it, partitions are owned anyway.")
    if modules and given["lease"]:
        raise click.UsageError("--lease: tasks are leased anyway, leave it out.")


def weighted(named: Sequence[str]) -> tuple[list[str], dict[str, int]]:
    """Names of queues, and the weights of those that have one.

    >>> weighted(["mail=3", "reports"])
    (['mail', 'reports'], {'mail': 3})

    :raises UsageError: a weight is no number, or a queue is named twice.
    """
    queues: list[str] = []
    weights: dict[str, int] = {}
    for text in named:
        name, equals, weight = text.partition("=")
        if equals and not re.fullmatch("[0-9]{1,4}", weight):
            raise click.UsageError(f"--queue {text}: expected NAME=WEIGHT, such as mail=3.")
        if name in queues:
            raise click.UsageError(f"--queue {name}: it is named twice, once is enough.")
        queues.append(name)
        if equals:
            weights[name] = int(weight)
    return queues, weights


def _tell_figures(worker: Worker, address: str | None, collector: str | None, stack: ExitStack) -> None:
    """Serve a worker's metrics at an address, and send them to a collector with the spans of its jobs."""
    from qdo.worker.metrics import WorkerMetrics, serve_metrics

    told = WorkerMetrics(worker.figures)
    worker.on_call(told.took)
    if address is not None:
        _note(f"qdo: metrics at {serve_metrics(told, address)}")
    if collector is not None:
        from queuey.monitor.telemetry import open_telemetry

        telemetry = stack.enter_context(closing(open_telemetry(collector, "qdo")))
        telemetry.use_everywhere()
        telemetry.report(lambda: told)


def _work(workplace: Workplace, job: str, queues: Sequence[str], given: Mapping[str, Any]) -> None:
    """:param given: options of the command by their names."""
    from qdo.worker.running import run_until_told

    is_leased = given["lease"] or (given["modules"] and not given["owned"])
    with ExitStack() as stack:
        if given["modules"]:
            worker, queues = _made_of_tasks(workplace, queues, given, stack)
        else:
            worker = _made(workplace, job, queues, given, stack)
        if given["metrics"] is not None or given["telemetry"] is not None:
            _tell_figures(worker, given["metrics"], given["telemetry"], stack)
        if given["report"]:
            from qdo.worker.reports import WorkerReports

            stack.enter_context(WorkerReports(worker, queues, partial(workplace.server.client, retries=0)))
        _note(first_words(workplace, job, queues, lease=is_leased))
        if given["exit_at_end"] and not (given["slots"] or is_leased):
            total = partial(backlog, workplace, queues, given["dead_letters"])
            stack.enter_context(progress("done here", total, lambda: worker.counts.done + worker.counts.dead))
        try:
            run_until_told(worker, _note)
        except BrokenPipeError as error:
            _note(f"qdo: {error.strerror}: what is not done is given back")
            _sum_up(worker)
            raise
    if left := given["exit_at_end"] and not worker.all_done:
        _note("qdo: not everything that was there is done")
    _sum_up(worker)
    if left:
        click.get_current_context().exit(NOT_ALL_DONE)


def _note(text: str) -> None:
    """Say something to people; where the log is in JSON, log it: what collects the log reads nothing else there."""
    from queuey.monitor.logs import is_json

    for line in text.splitlines():
        if is_json():
            log.info("%s", line.removeprefix("qdo: "))
        else:
            say(line)


def _sum_up(worker: Worker) -> None:
    counts = worker.counts
    _note(f"qdo: {counts.done} done, {many(counts.failed, 'attempt')} failed, {counts.dead} given up")
    for trouble in worker.troubles():
        _note(f"qdo: {trouble['queue']}: {trouble['why']}")


def _made(workplace: Workplace, job: str, queues: Sequence[str], given: Mapping[str, Any], stack: ExitStack) -> Worker:
    """The worker. ``stack`` closes its coordinator."""
    from qdo.worker import Worker, WorkerOptions
    from qdo.worker.job import RetryPolicy, load_hook
    from qdo.worker.options import NOT_WITH_LEASE
    from qdo.worker.runners import is_async

    function = load_hook(job)
    if given["processes"] and is_async(function):
        raise click.UsageError("--processes: an async function runs in this process, leave the option out.")
    if given["at_most_once"] and click.get_current_context().get_parameter_source("retries") is not _DEFAULT:
        raise click.UsageError("--retries: --at-most-once tries no message again, leave one of them out.")
    client = partial(workplace.server.client, retries=CLIENT_RETRIES)
    shared = {name: value for name, value in given.items() if name not in ("retries", "dead_letters", *_OF_COMMAND)}
    if given["lease"]:
        named = {"retries": NOT_WITH_LEASE["retry"], "session_seconds": _VISIBILITY, **NOT_WITH_LEASE}
        refuse_without_meaning(named)
        options = WorkerOptions(group=workplace.group, **shared)
        _look_first(workplace, queues, ends=options.exit_at_end)
        return Worker(function, queues, None, client, options)
    options = WorkerOptions(
        group=workplace.group,
        retry=RetryPolicy(attempts=given["retries"] + 1),
        dead_letters=None if given["dead_letters"] == "none" else given["dead_letters"],
        **shared,
    )
    _look_first(workplace, queues, ends=options.exit_at_end)
    coordinator = workplace.coordinator(given["session_seconds"], slots=options.slots)
    stack.callback(coordinator.close)
    return Worker(function, queues, coordinator, client, options)


def _made_of_tasks(
    workplace: Workplace, queues: Sequence[str], given: Mapping[str, Any], stack: ExitStack
) -> tuple[Worker, Sequence[str]]:
    """The worker on tasks, and its queues. ``stack`` closes its coordinator."""
    from qdo.tasks.worker import TaskWorker
    from qdo.worker.options import NOT_WITH_LEASE

    refuse_given({"retries": "each task has its own", "batch": "a task is called for one message"}, "--tasks")
    shared = {
        name: given[name] for name in ("threads", "processes", "exit_at_end", "drain_seconds", "weights", "in_order")
    }
    if given["owned"]:
        if given["in_order"] or given["weights"]:
            raise click.UsageError("--in-order and weights of queues have no meaning with --owned.")
        shared |= {name: given[name] for name in ("at_most_once", "from_end", "strategy", "slots", "by_key")}
        shared["dead_letters"] = None if given["dead_letters"] == "none" else given["dead_letters"]
    else:
        refuse_without_meaning({"session_seconds": _VISIBILITY, **NOT_WITH_LEASE})
    _be_environment(workplace.server)
    client = partial(workplace.server.client, retries=CLIENT_RETRIES)
    coordinator = None
    if given["owned"]:
        coordinator = workplace.coordinator(given["session_seconds"], slots=given["slots"])
        stack.callback(coordinator.close)
    worker = TaskWorker(
        given["modules"], queues, coordinator, client, owned=given["owned"], group=workplace.group, **shared
    )
    _look_first(workplace, ())
    _note(f"qdo: {many(len(worker.tasks), 'task')}: {', '.join(worker.tasks)}")
    return worker, worker.queues


def _be_environment(server: Server) -> None:
    """Let tasks that send tasks do so at the server of their worker, in processes for jobs as well."""
    named = {
        "QUEUEY_URL": server.url,
        "QUEUEY_APPLICATION": server.application,
        "QUEUEY_KEY": server.key,
        "QUEUEY_TOKEN": server.token,
    }
    os.environ.update({name: value or "" for name, value in named.items()})


def first_words(workplace: Workplace, job: str, queues: Sequence[str], *, lease: bool = False) -> str:
    """What begins, and how to see how it goes."""
    server, group = workplace.server, workplace.group
    again = "" if group == "default" else f" --group {group}"
    where = f"of leases; see 'qdo status --lease{again}'" if lease else f"on {workplace.where}; see 'qdo status{again}'"
    return (
        f"qdo: {job} works on {', '.join(queues)} of {server.application} at {server.url}\n"
        f"qdo: in group {group} {where}; Ctrl-C ends in order, twice at once"
    )


def _look_first(workplace: Workplace, queues: Sequence[str], *, ends: bool = False) -> None:
    """Fail at once where waiting would not help.

    The worker waits for a server that is away, or a queue that is to come.

    :param ends: it ends when nothing is left to do. Then it waits for no queue.
    :raises Unauthenticated, Forbidden, ApplicationNotFound: the worker could do nothing.
    """
    try:
        with workplace.server.client(retries=0) as client:
            next(client.queues(page_size=1), None)
            for queue in queues:
                if not is_pattern(queue):
                    _say_if_missing(client, queue, "nothing to do there" if ends else "waiting for it")
    except ServerUnreachable as error:
        _note(f"qdo: {error}: waiting for it")


def _say_if_missing(client: Client, queue: str, so: str) -> None:
    try:
        client.read(queue, limit=1, with_bodies=False)
    except QueueNotFound:
        _note(f"qdo: there is no queue {queue} yet: {so}")


def backlog(workplace: Workplace, queues: Sequence[str], dead_letters: str) -> int:
    """Messages that the group has to do now."""
    from qdo.groups.lag import lags
    from qdo.groups.subscription import matching

    dead = DeadLetterNames(dead_letters)
    with workplace.server.client() as client, closing(workplace.coordinator()) as coordinator:
        partitions = matching(client, queues, dead.is_one)
        return sum(lag.messages for lag in lags(client, partitions, coordinator.offsets()).values())
