"""Options that the jobs on Spark share.

They say where Spark is, which server, and which part of time.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from math import ceil
from typing import Any

import click

from qdo.groups.subscription import each_queue, is_pattern
from queuey.errors import Forbidden
from queuey.terminal.options import Command, Server
from queuey.terminal.output import say
from queuey.terminal.times import Moment

_UNIX = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass
class SparkPlace:
    """Where a job runs."""

    master: str | None
    driver_memory: str | None
    conf: Mapping[str, str]
    left: Callable[[], str] = lambda: "the job is not done"
    """What an interrupted job leaves, and how to go on. A command whose job leaves more sets it before the job begins."""

    def session(self, job: str, *, own_progress: bool = False) -> Any:
        """A SparkSession. This layer does not know its class.

        :param own_progress: the job shows its own progress, so Spark shows none.
        :raises ConfigurationError: PySpark or Java is missing, or Spark refuses a setting.
        """
        from qdo.pipeline.jobs.session import session

        conf = {"spark.ui.showConsoleProgress": "false", **self.conf} if own_progress else self.conf
        return session(f"qdo pipeline {job}", self.master, driver_memory=self.driver_memory, conf=conf)


def with_spark(command: Command) -> Command:
    """Options that say where Spark is. The command gets ``place``."""

    @click.option(
        "--master",
        envvar="QDO_SPARK_MASTER",
        metavar="URL",
        help="Where Spark runs: local[4], spark://HOST:7077, yarn.  [QDO_SPARK_MASTER; default: as spark-submit says, "
        "otherwise the cores of this machine]",
    )
    @click.option(
        "--driver-memory",
        envvar="QDO_SPARK_DRIVER_MEMORY",
        metavar="SIZE",
        help="Memory of the JVM that drives the job: 4g. On one machine it also does the work.  "
        "[QDO_SPARK_DRIVER_MEMORY; default: 2g]",
    )
    @click.option(
        "--conf",
        "conf",
        multiple=True,
        metavar="NAME=VALUE",
        callback=_pairs,
        help="A setting of Spark's; may be repeated.",
    )
    @functools.wraps(command)
    def call(master: str | None, driver_memory: str | None, conf: Mapping[str, str], **given: Any) -> None:
        from qdo.cli.pipeline.running import run_until_told
        from qdo.pipeline.jobs.failures import SparkFailed, plain_errors

        place = SparkPlace(master, driver_memory, conf)
        try:
            with plain_errors():
                run_until_told(lambda: command(place=place, **given), lambda: f"stopped: {place.left()}")
        except SparkFailed as error:
            raise click.ClickException(str(error)) from error

    return call


def ask(server: Server, queues: Sequence[str] = (), *, lists: bool = True) -> None:
    """Check that a server answers and knows the caller.

    Spark would take longer to start and to give up.

    :param queues: the given names and patterns. A warning names each that matches no queue, since a queue may have existed.
    :param lists: the job lists queues. Otherwise a token that may not list them will do.
    :raises QueueyError: the server does not answer, or refuses.
    """
    from qdo.pipeline.task_reader import doing

    with server.client() as client:
        with doing(f"this job needs the list of queues of {server.application}") if lists else suppress(Forbidden):
            next(iter(client.queues(page_size=1)), None)
        for name in queues:
            if next(each_queue(client, [name]), None) is None:
                which = f"that fits {name}" if is_pattern(name) else name
                say(f"{server.application} has no queue {which}: is a name misspelled, or is the queue gone?")


def reached(server: Server) -> dict[str, str]:
    """The options of the format ``queuey`` for a server.

    They are its address, the identity and the time limit.
    """
    given = {
        "url": server.url,
        "application": server.application,
        "token": server.token or server.key or "",
        "timeout": str(ceil(server.timeout_seconds)),
    }
    return {name: text for name, text in given.items() if text}


def with_times(command: Command) -> Command:
    """Options for a part of time.

    The command gets ``since``, inclusive, and ``until``, exclusive, or None.
    """

    @click.option(
        "--since", type=Moment(ago=True, ids=False), help="From here on: 10m (ago), RFC 3339, seconds since 1970."
    )
    @click.option("--until", type=Moment(ago=True, ids=False), help="Up to here, in the same forms.")
    @functools.wraps(command)
    def call(since: str | None, until: str | None, **given: Any) -> None:
        command(since=_when(since), until=_when(until), **given)

    return call


def _when(moment: str | None) -> datetime | None:
    """A moment to the microsecond, as Spark has it."""
    return None if moment is None else _UNIX + timedelta(microseconds=int(Decimal(moment) * 1_000_000))


def _pairs(_ctx: click.Context, _param: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    pairs = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name.startswith("spark."):
            raise click.BadParameter(f"{text!r} is not of the form spark.NAME=VALUE")
        pairs[name] = value
    return pairs
