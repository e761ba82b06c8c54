"""Options that commands share: which group, and where its members meet."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import click

from qdo.groups.dead_letter_names import DEFAULT_DEAD_LETTERS
from qdo.groups.meeting import SESSION_SECONDS, MeetingPlace
from qdo.groups.names import check_queues
from queuey.terminal.completion import complete_group_names, complete_queues
from queuey.terminal.options import Command, Server, with_server

if TYPE_CHECKING:
    from qdo.groups.coordination import Coordinator


@dataclass(frozen=True)
class Workplace:
    """A group of workers: the server of its queues, and where its members meet."""

    server: Server
    group: str
    zookeeper: str | None
    state: str | None
    offsets: str = "group"
    """Where offsets are kept: ``group``, with everything else of the group, or ``queuey``."""
    security: Mapping[str, str | None] = field(default_factory=dict)
    """What :func:`qdo.groups.zookeeper_tls.security` takes."""

    @property
    def meeting(self) -> MeetingPlace:
        """Where its members meet."""
        server = self.server
        return MeetingPlace(
            server.url,
            server.application,
            self.group,
            server.client,
            self.zookeeper,
            self.state,
            self.offsets,
            self.security,
        )

    def coordinator(self, session_seconds: float = SESSION_SECONDS, *, slots: bool = False) -> Coordinator:
        """As :meth:`~qdo.groups.meeting.MeetingPlace.coordinator`."""
        return self.meeting.coordinator(session_seconds, slots=slots)

    @property
    def where(self) -> str:
        """Where the group is, for people."""
        return self.meeting.where


def with_workplace(command: Command) -> Command:
    """Options for a server, an identity and a group. The command gets ``workplace``."""

    @with_server
    @click.option(
        "-g",
        "--group",
        envvar="QDO_GROUP",
        default="default",
        show_default=True,
        shell_complete=complete_group_names,
        help="The group: its workers divide the partitions, and it has its own offsets.",
    )
    @click.option(
        "--zookeeper",
        envvar="QDO_ZOOKEEPER",
        metavar="HOSTS",
        help="Where the workers of the group meet: HOST:PORT, more of them after commas, maybe with a /CHROOT. "
        "Without it all workers are on this machine.  [QDO_ZOOKEEPER]",
    )
    @click.option(
        "--zookeeper-auth",
        envvar="QDO_ZOOKEEPER_AUTH",
        metavar="USER:PASSWORD",
        help="Only this user may use the nodes of the group. Better set the variable.  [QDO_ZOOKEEPER_AUTH]",
    )
    @click.option(
        "--zookeeper-ca",
        envvar="QDO_ZOOKEEPER_CA",
        metavar="FILE",
        help="Speak TLS with a ZooKeeper whose certificate this authority signed.  [QDO_ZOOKEEPER_CA]",
    )
    @click.option(
        "--zookeeper-cert",
        envvar="QDO_ZOOKEEPER_CERT",
        metavar="FILE",
        help="Certificate to show to ZooKeeper.  [QDO_ZOOKEEPER_CERT]",
    )
    @click.option("--zookeeper-key", envvar="QDO_ZOOKEEPER_KEY", metavar="FILE", help="Its key.  [QDO_ZOOKEEPER_KEY]")
    @click.option(
        "--state",
        envvar="QDO_STATE",
        type=click.Path(file_okay=False),
        help="Folder for the groups of this machine.  [QDO_STATE; default: ~/.local/state/qdo]",
    )
    @click.option(
        "--offsets",
        type=click.Choice(["group", "queuey"]),
        envvar="QDO_OFFSETS",
        default="group",
        show_default=True,
        help="Where offsets are kept: with the group, or in Queuey, where every reader of the queue sees them.",
    )
    @functools.wraps(command)
    def call(server: Server, group: str, zookeeper: str | None, state: str | None, offsets: str, **given: Any) -> None:
        security = {name: given.pop(f"zookeeper_{name}") or None for name in ("auth", "ca", "cert", "key")}
        if zookeeper and state and click.get_current_context().get_parameter_source("state") is _ON_THE_LINE:
            raise click.UsageError("--state is for groups on this machine: leave it out with --zookeeper.")
        if any(security.values()) and not zookeeper:
            raise click.UsageError("--zookeeper-auth, -ca, -cert and -key need a ZooKeeper: name it with --zookeeper.")
        command(workplace=Workplace(server, group, zookeeper or None, state or None, offsets, security), **given)

    return call


def refuse_without_meaning(named: Mapping[str, str]) -> None:
    """Refuse what is given beside --lease and says where members of a group meet, or what else leases do not have.

    :param named: further options by their names, and why they have no meaning.
    :raises UsageError: such an option is given.
    """
    refuse_given({**_MEETING, **named}, "leases" if click.get_current_context().params.get("modules") else "--lease")


def refuse_given(named: Mapping[str, str], beside: str) -> None:
    """Refuse options that have no meaning beside something else.

    :param named: the options by their names, and why they have no meaning.
    :raises UsageError: such an option is given.
    """
    context = click.get_current_context()
    for param in context.command.params:
        if param.name in named and context.get_parameter_source(param.name) in _given_by(param):
            raise click.UsageError(f"{param.opts[0]} has no meaning with {beside}: {named[param.name]}.")


def _given_by(param: click.Parameter) -> Sequence[click.core.ParameterSource]:
    """What says that an option is meant. A variable that other commands use too says nothing about this one."""
    source = click.core.ParameterSource
    return (source.COMMANDLINE,) if param.envvar else (source.COMMANDLINE, source.ENVIRONMENT)


_MEETING: Mapping[str, str] = {
    "offsets": "there are no offsets",
    **dict.fromkeys(
        ("state", "zookeeper", "zookeeper_auth", "zookeeper_ca", "zookeeper_cert", "zookeeper_key"),
        "workers on leases meet nowhere",
    ),
}
_ON_THE_LINE = click.core.ParameterSource.COMMANDLINE
FC = TypeVar("FC", bound=Callable[..., Any] | click.Command)


def _checked_queues(_ctx: click.Context, _param: click.Parameter, named: tuple[str, ...]) -> tuple[str, ...]:
    """:raises ConfigurationError: no queue can be named like this. A weight may stand behind a name."""
    if named:
        check_queues([name.partition("=")[0] for name in named])
    return named


def several_queues(said: str, *, named: str = "queues", metavar: str = "NAME") -> Callable[[FC], FC]:
    """The option ``--queue`` of a command that takes several.

    :param said: its help.
    :param named: the parameter that gets them.
    """
    return click.option(
        "-q",
        "--queue",
        named,
        multiple=True,
        metavar=metavar,
        shell_complete=complete_queues,
        help=said,
        callback=_checked_queues,
    )


queues_option = several_queues(
    "Only this queue, or the queues of a pattern such as 'mail-*'; may be repeated. Default: all."
)
dead_letters_option = click.option(
    "--dead-letters",
    envvar="QDO_DEAD_LETTERS",
    default=DEFAULT_DEAD_LETTERS,
    show_default=True,
    metavar="NAME",
    help="Queue for messages that were given up; {queue} stands for the one they came from.",
)
