"""Options that the jobs on Spark share: where Spark is, which server, and from when to when."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
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
class Place:
    """Where a job runs."""

    master: str | None
    driver_memory: str | None
    conf: Mapping[str, str]
    left: Callable[[], str] = lambda: "the job is not done"
    """What a job leaves that is ended now, and how to go on; a command that leaves more says so before it begins."""

    def session(self, job: str, *, own_progress: bool = False) -> Any:
        """A SparkSession, which this layer does not know.

        :param own_progress: the job shows its own, so Spark shows none.
        :raises ConfigurationError: PySpark or Java is missing, or Spark refuses a setting.
        """
        from qdo.pipeline.jobs.session import session

        conf = {"spark.ui.showConsoleProgress": "false", **self.conf} if own_progress else self.conf
        return session(f"qdo pipeline {job}", self.master, driver_memory=self.driver_memory, conf=conf)


def with_spark(command: Command) -> Command:
    """Options that say where Spark is; the command gets ``place``."""

    @click.option(
        "--master",
        envvar="QDO_SPARK_MASTER",
        metavar="URL",
        help="Where Spark runs: local[4], spark://HOST:7077, yarn.  [QDO_SPARK_MASTER; default: what spark-submit "
        "said, else the cores of this machine]",
    )
    @click.option(
        "--driver-memory",
        envvar="QDO_SPARK_DRIVER_MEMORY",
        metavar="SIZE",
        help="Of the JVM that drives the job, and on one machine does it: 4g.  [QDO_SPARK_DRIVER_MEMORY; default: 2g]",
    )
    @click.option(
        "--conf",
        "conf",
        multiple=True,
        metavar="NAME=VALUE",
        callback=_pairs,
        help="A setting of Spark's; more than once.",
    )
    @functools.wraps(command)
    def call(master: str | None, driver_memory: str | None, conf: Mapping[str, str], **given: Any) -> None:
        from qdo.cli.pipeline.running import run_until_told
        from qdo.pipeline.jobs.failures import SparkFailed, plain_errors

        place = Place(master, driver_memory, conf)
        try:
            with plain_errors():
                run_until_told(lambda: command(place=place, **given), lambda: f"stopped: {place.left()}")
        except SparkFailed as error:
            raise click.ClickException(str(error)) from error

    return call


def ask(server: Server, queues: Sequence[str] = (), *, lists: bool = True) -> None:
    """See that a server answers and knows who asks, in a moment: Spark takes longer to start and to give up.

    :param queues: names that were given, or patterns; of one that no queue has or fits the user is told: there may have been one.
    :param lists: the job asks what queues there are; else it may be a token that is not for that.
    :raises QueueyError: it does not.
    """
    with server.client() as client:
        with nullcontext() if lists else suppress(Forbidden):
            next(iter(client.queues(page_size=1)), None)
        for name in queues:
            if next(each_queue(client, [name]), None) is None:
                which = f"that fits {name}" if is_pattern(name) else name
                say(f"{server.application} has no queue {which}: a name that is misspelled, or a queue that is gone?")


def reached(server: Server) -> dict[str, str]:
    """The options of the format ``queuey`` that say where to, as whom, and how long an answer is waited for."""
    given = {
        "url": server.url,
        "application": server.application,
        "token": server.token or server.key or "",
        "timeout": str(ceil(server.timeout_seconds)),
    }
    return {name: text for name, text in given.items() if text}


def with_times(command: Command) -> Command:
    """Options for a part of time; the command gets ``since``, included, and ``until``, not included, or None."""

    @click.option(
        "--since", type=Moment(ago=True, ids=False), help="From here on: 10m (ago), RFC 3339, seconds since 1970."
    )
    @click.option("--until", type=Moment(ago=True, ids=False), help="Up to here, in the same forms.")
    @functools.wraps(command)
    def call(since: str | None, until: str | None, **given: Any) -> None:
        command(since=_when(since), until=_when(until), **given)

    return call


def _when(moment: str | None) -> datetime | None:
    """To the microsecond, as Spark has it."""
    return None if moment is None else _UNIX + timedelta(microseconds=int(Decimal(moment) * 1_000_000))


def _pairs(_ctx: click.Context, _param: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    pairs = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name.startswith("spark."):
            raise click.BadParameter(f"{text!r} is not of the form spark.NAME=VALUE")
        pairs[name] = value
    return pairs
