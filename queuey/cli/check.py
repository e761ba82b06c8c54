"""``queuey check``: one line and an exit code, as Nagios and programs like it read them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from queuey.errors import Forbidden, QueueNotFound, QueueyError, ServerUnreachable, StorageUnavailable
from queuey.ids import TICKS_PER_SECOND, MessageId, parse_timestamp
from queuey.moments import parse_duration
from queuey.terminal.completion import complete_lease_groups, complete_queues
from queuey.terminal.options import Server, with_server
from queuey.terminal.sizes import parse_size, shown_size

if TYPE_CHECKING:
    from qdo.client import Client, QueueInfo

__all__ = ["AlertBounds", "AlertState", "Measure", "check_command"]


class AlertState(IntEnum):
    """What is found, by its exit code."""

    OK = 0
    WARNING = 1
    CRITICAL = 2
    UNKNOWN = 3


class MeasureKind(NamedTuple):
    """What can be measured."""

    parse: Callable[[str], float]
    """A bound from its text. Raises ValueError."""
    show: Callable[[float], str]
    unit: str
    """Of performance data."""
    falls: bool = False
    """A low value is the bad one."""


def _number(text: str) -> float:
    try:
        return float(int(text))
    except (ValueError, OverflowError):
        raise ValueError(f"{text!r} is not a whole number") from None


_COUNT = MeasureKind(_number, lambda value: f"{value:,.0f}", "")
_SECONDS = MeasureKind(lambda text: float(parse_duration(text)), lambda value: f"{value:.3g} s", "s")
KINDS: Mapping[str, MeasureKind] = {
    "depth": _COUNT,
    "oldest": _SECONDS,
    "held": _COUNT,
    "dead": _COUNT,
    "lag": _COUNT,
    "lag_seconds": _SECONDS,
    "disk": MeasureKind(lambda text: float(parse_size(text)), shown_size, "B", falls=True),
    "clock": _SECONDS,
    "heartbeat": _SECONDS,
}
_OF_A_QUEUE = {"depth", "oldest"}
_OF_A_GROUP = {"held", "dead"}
_OF_OFFSETS = {"lag", "lag_seconds"}
_OF_THE_SERVER = {"disk", "clock"}


class AlertBounds(NamedTuple):
    """From where on a measure is a warning, and from where on it is critical."""

    warn: float | None = None
    crit: float | None = None


class Measure(NamedTuple):
    """A value, and what it means."""

    name: str
    value: float
    bounds: AlertBounds = AlertBounds()

    @property
    def state(self) -> AlertState:
        for state, bound in ((AlertState.CRITICAL, self.bounds.crit), (AlertState.WARNING, self.bounds.warn)):
            if bound is not None and (self.value < bound if KINDS[self.name].falls else self.value > bound):
                return state
        return AlertState.OK

    @property
    def text(self) -> str:
        """For people.

        >>> Measure("depth", 1200, AlertBounds(1000)).text, Measure("disk", 1024).text
        ('depth 1,200 (over 1,000)', 'disk 1.0 KiB')
        """
        kind, state = KINDS[self.name], self.state
        bound = self.bounds.crit if state is AlertState.CRITICAL else self.bounds.warn
        over = f" ({'under' if kind.falls else 'over'} {kind.show(bound)})" if state and bound is not None else ""
        return f"{self.name} {kind.show(self.value)}{over}"

    @property
    def performance(self) -> str:
        """Performance data: value, unit, and the ranges that alert.

        >>> Measure("oldest", 3.25, AlertBounds(600, 3600)).performance, Measure("disk", 5, AlertBounds(crit=2)).performance
        ('oldest=3.25s;600;3600;0', 'disk=5B;;2:;0')
        """
        kind = KINDS[self.name]
        warn, crit = ("" if bound is None else f"{bound:.15g}{':' if kind.falls else ''}" for bound in self.bounds)
        return f"{self.name}={round(self.value, 6):.15g}{kind.unit};{warn};{crit};0"


class _WrongUsage(click.UsageError):
    """It is UNKNOWN to a monitor, not the 2 of a critical state."""

    exit_code = AlertState.UNKNOWN


class _PluginCommand(click.Command):
    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        try:
            return super().make_context(*args, **kwargs)
        except click.UsageError as error:
            raise _WrongUsage(error.format_message(), error.ctx) from error

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            raise _WrongUsage(error.format_message(), error.ctx) from error
        except QueueyError as error:  # of the options: a context that does not exist
            click.echo(f"QUEUEY UNKNOWN - {_in_one_line(f'{error.code}: {error}')}")
            ctx.exit(AlertState.UNKNOWN)


def _bounds(_ctx: click.Context, _param: click.Parameter, given: Sequence[str]) -> dict[str, float]:
    found = {}
    for text in given:
        name, equals, bound = text.partition("=")
        if name not in KINDS or not equals:
            raise click.BadParameter(f"{text!r}: expected NAME=BOUND, with a name of {', '.join(KINDS)}")
        try:
            found[name] = KINDS[name].parse(bound)
        except ValueError as error:
            raise click.BadParameter(f"{name}: {error}") from None
    return found


@click.command("check", cls=_PluginCommand)
@click.argument("queue", required=False, shell_complete=complete_queues)
@click.option(
    "-g",
    "--group",
    metavar="NAME",
    shell_complete=complete_lease_groups,
    help="A lease group of QUEUE: its held, dead and oldest messages.",
)
@click.option("--offsets", metavar="NAME", help="A group of QUEUE with offsets: how far it is behind.")
@click.option("-w", "--warn", multiple=True, metavar="NAME=BOUND", callback=_bounds, help="Beyond it: WARNING, exit 1.")
@click.option(
    "-c", "--crit", multiple=True, metavar="NAME=BOUND", callback=_bounds, help="Beyond it: CRITICAL, exit 2."
)
@with_server
@click.pass_context
def check_command(
    ctx: click.Context,
    server: Server,
    queue: str | None,
    group: str | None,
    offsets: str | None,
    warn: Mapping[str, float],
    crit: Mapping[str, float],
) -> None:
    """Check the server, or QUEUE, for a monitor such as Nagios.

    Prints one line with performance data. Exit codes are a monitor's: 0 OK, 1 WARNING, 2 CRITICAL (also a server that
    does not answer or cannot store), 3 UNKNOWN.

    NAME is heartbeat (seconds until the server answers), disk (free bytes) or clock (seconds; both need an operator's
    key); of QUEUE depth or oldest (age of the oldest message); with --group held, dead (dead letters in their queue) or
    oldest (age of the oldest message that the group has not acknowledged); with --offsets lag or lag_seconds.

    Example: queuey check jobs --group workers -w oldest=10m -c oldest=1h -c dead=100
    """
    _refuse_without_meaning(queue, group, offsets, {*warn, *crit})
    bounds = {name: AlertBounds(warn.get(name), crit.get(name)) for name in {*warn, *crit}}
    wanted = _Wanted(queue, group, offsets, bounds)
    state, text = _looked(server, wanted)
    click.echo(f"QUEUEY {state.name} - {_in_one_line(text)}")
    ctx.exit(state)


class _Wanted(NamedTuple):
    queue: str | None
    group: str | None
    offsets: str | None
    bounds: Mapping[str, AlertBounds]


def _refuse_without_meaning(queue: str | None, group: str | None, offsets: str | None, bounded: set[str]) -> None:
    """Refuse a bound on what is not looked at: it would never alert."""
    can = {"heartbeat", *_OF_THE_SERVER} | (_OF_A_QUEUE if queue else set())
    can |= _OF_A_GROUP if group else set()
    can |= _OF_OFFSETS if offsets else set()
    wrong = None
    if queue is None and (group or offsets):
        wrong = "--group and --offsets are of a queue: name it"
    elif bounded - can:
        needed = {"a queue": _OF_A_QUEUE, "--group": _OF_A_GROUP, "--offsets": _OF_OFFSETS}
        name = min(bounded - can)
        wrong = f"{name} needs {next(what for what, names in needed.items() if name in names)}"
    if wrong:
        raise _WrongUsage(wrong)


def _looked(server: Server, wanted: _Wanted) -> tuple[AlertState, str]:
    """The state, and the line that says it."""
    try:
        with server.client(retries=0) as client:
            warnings, measures = _measured(client, wanted)
    except (ServerUnreachable, StorageUnavailable) as error:
        return AlertState.CRITICAL, f"{error.code}: {error}"
    except Forbidden as error:
        hint = "" if server.key or server.token else " No application key was given: set QUEUEY_KEY."
        operators = " An operator's key is needed for disk and clock." if _OF_THE_SERVER & set(wanted.bounds) else ""
        return AlertState.UNKNOWN, f"{error.code}: {error}{hint}{operators}"
    except QueueyError as error:
        return AlertState.UNKNOWN, f"{error.code}: {server.said(error)}"
    states = [one.state for one in measures] + [AlertState.WARNING] * bool(warnings)
    where = f"{server.application}/{wanted.queue}: " if wanted.queue else ""
    worst_first = sorted(measures, key=lambda one: -one.state)
    told = ", ".join([*(f"warning: {one}" for one in warnings), *(one.text for one in worst_first)])
    return max(states), f"{where}{told} | {' '.join(one.performance for one in measures)}"


def _in_one_line(text: str) -> str:
    """A monitor reads the first line, and takes what follows a bar as performance data."""
    said, bar, performance = text.rpartition(" | ") if " | " in text else (text, "", "")
    return f"{' '.join(said.replace('|', '/').split())}{bar}{performance}"


def _measured(client: Client, wanted: _Wanted) -> tuple[Sequence[str], list[Measure]]:
    began = time.perf_counter()
    warnings = client.heartbeat()
    found = {"heartbeat": time.perf_counter() - began}
    if wanted.queue is None or _OF_THE_SERVER & set(wanted.bounds):
        found |= _of_server(client, is_needed=bool(_OF_THE_SERVER & set(wanted.bounds)))
    if wanted.queue is not None:
        found |= dict(_of_queue(client, wanted.queue, wanted.group, wanted.offsets))
    return warnings, [Measure(name, value, wanted.bounds.get(name, AlertBounds())) for name, value in found.items()]


def _of_server(client: Client, *, is_needed: bool) -> dict[str, float]:
    """What an operator may see.

    :param is_needed: there are bounds on it.
    :raises Forbidden: it is needed, and the key is not an operator's.
    """
    try:
        server = client.server_figures(limit=1).server
    except Forbidden:
        if is_needed:
            raise
        return {}
    found = {"disk": server["disk_free_bytes"], "clock": server["clock_error_seconds"]}
    return {name: float(value) for name, value in found.items() if value is not None}


def _of_queue(client: Client, queue: str, group: str | None, offsets: str | None) -> Iterator[tuple[str, float]]:
    info = client.queue_info(queue)
    yield "depth", info.depth
    if group is None:
        yield "oldest", _age(info, [one.oldest for one in info.partitions])
    else:
        yield from _of_group(client, info, group)
    if offsets is not None:
        yield from _of_offsets(client, info, offsets)


def _age(info: QueueInfo, ids: Sequence[MessageId | None]) -> float:
    """The age of the oldest of these messages by the server's clock; 0 without any."""
    ticks = min((one.ticks for one in ids if one is not None), default=None)
    return 0.0 if ticks is None else max((parse_timestamp(info.watermark) - ticks) / TICKS_PER_SECOND, 0.0)


def _of_group(client: Client, info: QueueInfo, name: str) -> Iterator[tuple[str, float]]:
    group = client.lease_group(info.settings.name, name)
    yield "held", sum(one.held for one in group.partitions)
    try:
        yield "dead", client.queue_info(group.settings["dead_letter_queue"]).depth
    except QueueNotFound:  # the first dead letter makes it
        yield "dead", 0
    yield "oldest", _age(info, [one.oldest for one in group.partitions])


def _of_offsets(client: Client, info: QueueInfo, name: str) -> Iterator[tuple[str, float]]:
    from qdo.groups.assign import Partition
    from qdo.groups.coordination import CommittedOffset
    from qdo.groups.lag import lags

    queue = info.settings.name
    found = {
        Partition(queue, one.partition): CommittedOffset(one.incarnation, one.id)
        for one in client.offsets(queue, name)
        if one.id is not None
    }
    partitions = [Partition(queue, one.number) for one in info.partitions]
    behind = lags(client, partitions, found).values()
    yield "lag", sum(one.messages for one in behind)
    yield "lag_seconds", max((one.seconds for one in behind), default=0.0)
