"""Options that commands share: which group, and where its members meet."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from qdo.groups.dead_letter_names import DEFAULT_DEAD_LETTERS
from queuey.errors import ConfigurationError
from queuey.terminal.options import Command, Server, with_server

if TYPE_CHECKING:
    from qdo.groups.coordination import Coordinator

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}")
SESSION_SECONDS = 10.0


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

    def coordinator(self, session_seconds: float = SESSION_SECONDS, *, slots: bool = False) -> Coordinator:
        """A new coordinator. The caller closes it.

        :param slots: for a worker that records offsets of queues in Queuey by itself.
        :raises ConfigurationError: kazoo is missing, or the folder cannot be used.
        """
        if not _NAME.fullmatch(self.group) or self.group in {".", ".."}:
            raise ConfigurationError(f"group {self.group!r}: expected 1 to 100 letters, digits, _ . -")
        from qdo.groups.hash_slots import is_slot

        found = self._by_zookeeper(session_seconds) if self.zookeeper else self._by_file(session_seconds)
        if slots or (self.offsets == "group" and not any(map(is_slot, found.known()))):
            return found
        from qdo.groups.offsets_in_queuey import OffsetsInQueuey

        return OffsetsInQueuey(found, self.server.client(), self.group)

    def _by_file(self, session_seconds: float) -> Coordinator:
        """Server and application are part of the name.

        Groups of other servers or applications are other groups.
        """
        from qdo.groups.local import LocalCoordinator

        name = f"{self.server.url.rstrip('/')}/{self.server.application}/{self.group}"
        return LocalCoordinator(name, Path(self.state) if self.state else None, session_seconds=session_seconds)

    def _by_zookeeper(self, session_seconds: float) -> Coordinator:
        """The application is a folder. Servers that share a ZooKeeper need a chroot each."""
        try:
            from qdo.groups.zookeeper import ZooKeeperCoordinator
            from qdo.groups.zookeeper_tls import security
        except ImportError as error:
            raise ConfigurationError(f"ZooKeeper needs more: pip install 'queuey[zookeeper]' ({error})") from error
        hosts = self.zookeeper or ""
        how = security(**self.security)
        try:
            return ZooKeeperCoordinator(
                hosts, self.server.application, self.group, session_seconds=session_seconds, **how
            )
        except ValueError as error:  # kazoo raises it for an address that it cannot read
            raise ConfigurationError(
                f"ZooKeeper {hosts!r}: expected HOST:PORT, more of them after commas, and maybe a /FOLDER: {error}"
            ) from error

    @property
    def where(self) -> str:
        """Where the group is, for people."""
        if self.zookeeper:
            return f"ZooKeeper at {self.zookeeper}"
        from qdo.groups.local import default_folder

        return f"this machine, in {self.state or default_folder()}"


def with_workplace(command: Command) -> Command:
    """Options for a server, an identity and a group. The command gets ``workplace``."""

    @with_server
    @click.option(
        "-g",
        "--group",
        envvar="QDO_GROUP",
        default="default",
        show_default=True,
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
    context = click.get_current_context()
    named = {**_MEETING, **named}
    for param in context.command.params:
        if param.name in named and context.get_parameter_source(param.name) in _given_by(param):
            raise click.UsageError(f"{param.opts[0]} has no meaning with --lease: {named[param.name]}.")


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

queues_option = click.option(
    "-q",
    "--queue",
    "queues",
    multiple=True,
    metavar="NAME",
    help="Only this queue, or the queues of a pattern such as 'mail-*'; may be repeated. Default: all.",
)
dead_letters_option = click.option(
    "--dead-letters",
    envvar="QDO_DEAD_LETTERS",
    default=DEFAULT_DEAD_LETTERS,
    show_default=True,
    metavar="NAME",
    help="Queue for messages that were given up; {queue} stands for the one they came from.",
)
