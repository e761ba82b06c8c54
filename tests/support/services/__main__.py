"""Cassandra and ZooKeeper by hand."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from tests.support.services.cassandra import CassandraNode
from tests.support.services.jars import HOME, environment, jars
from tests.support.services.network import talk
from tests.support.services.process import ServiceError
from tests.support.services.service import Node, Service
from tests.support.services.shared import KINDS, found, remembered

STANDARD_PORTS = {"cassandra": 9042, "zookeeper": 2181}


class Refusing(click.Group):
    """What goes wrong is said in a sentence, not in a stack."""

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except (ServiceError, OSError, ValueError) as failure:
            raise click.ClickException(str(failure)) from failure


@click.group(cls=Refusing, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--home",
    type=click.Path(file_okay=False, path_type=Path),
    default=HOME,
    help="Folder of the data; another one for another set of services. Default: .services beside the code.",
)
@click.pass_context
def services(context: click.Context, home: Path) -> None:
    """Real Cassandra and ZooKeeper on this machine, for development.

    \b
    python -m tests.support.services up cassandra             one node on 127.0.0.1:9042
    python -m tests.support.services up cassandra --nodes 3   three, on 127.0.0.1, .2 and .3
    python -m tests.support.services status                   what runs, and where
    python -m tests.support.services kill cassandra-2         kill -9 for the second node
    python -m tests.support.services start cassandra-2        it comes back with its data
    python -m tests.support.services down --wipe              end all, and forget the data

    They run until `down`, with their data in .services/. Java 17 and Maven must be installed: `make cassandra` and
    `make zookeeper` see to that.
    """
    context.obj = home


KIND = click.argument("kind", type=click.Choice(sorted(KINDS)))
NODE = click.argument("node", metavar="NODE")


@services.command()
@KIND
@click.option("--nodes", type=click.Choice([1, 3]), help="How many. Default: 1.")
@click.option("--port", type=int, help="Where clients connect. Default: 9042 for Cassandra, 2181 for ZooKeeper.")
@click.option(
    "--proxied", is_flag=True, default=None, help="Clients connect to 127.0.1.N, where `network` puts a proxy."
)
@click.option("--tuned", is_flag=True, default=None, help="Cassandra: Java as in production, for measurements.")
@click.pass_obj
def up(home: Path, kind: str, nodes: int | None, port: int | None, proxied: bool | None, tuned: bool | None) -> None:
    """Start Cassandra or ZooKeeper, and return when it answers.

    What was started before starts again with its data and its settings; `down --wipe` makes room for others.
    """
    folder = home / kind
    given = {"nodes": nodes, "port": port, "proxied": proxied, "tuned": tuned}
    asked: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if kind == "zookeeper" and "tuned" in asked:
        raise click.UsageError("--tuned is for Cassandra")
    before = remembered(folder)
    if before and (other := [name for name in asked if before.get(name) != asked[name]]):
        kept = ", ".join(f"{name} {before.get(name)}" for name in other)
        raise click.UsageError(f"{kind} was made with {kept}, and keeps that. To begin anew: down {kind} --wipe")
    service = found(folder) or KINDS[kind](folder, **{"port": STANDARD_PORTS[kind], **asked})
    service.start()
    click.echo(service.for_queuey)


@services.command()
@click.argument("kind", type=click.Choice(sorted(KINDS)), required=False)
@click.option("--wipe", is_flag=True, help="Remove the data as well.")
@click.pass_obj
def down(home: Path, kind: str | None, wipe: bool) -> None:
    """Stop one of the two, or both. The data stay unless they are wiped."""
    for each in [kind] if kind else sorted(KINDS):
        service = found(home / each)
        if service is None:
            continue
        if wipe:
            service.kill()
            shutil.rmtree(service.folder)
        else:
            service.stop()


@services.command()
@click.pass_obj
def status(home: Path) -> None:
    """What there is, and what queuey would have to be told to use it."""
    for kind in sorted(KINDS):
        service = found(home / kind)
        if service is None:
            click.echo(f"{kind}: none")
            continue
        click.echo(service.for_queuey)
        for node in service.nodes:
            click.echo(f"  {node.name}  {node.address}:{node.port}  {_state(node)}")


def _state(node: Node) -> str:
    pid = node.pid
    if pid is None:
        return "absent"
    if node.paused:
        return f"paused, process {pid}"
    megabytes = node.resident_bytes // 2**20
    return f"{'up' if node.answers() else 'starting'}, process {pid}, {megabytes} MB"


def _find(home: Path, name: str) -> tuple[Service, Node]:
    services = [service for kind in sorted(KINDS) if (service := found(home / kind))]
    names = [node.name for service in services for node in service.nodes]
    for service in services:
        for node in service.nodes:
            if node.name == name:
                return service, node
    raise click.UsageError(f"there is no node {name!r}. There is: {', '.join(names) or 'none; `up` makes some'}")


def _node(home: Path, name: str) -> Node:
    return _find(home, name)[1]


def _verb(name: str, act: Callable[[Node], object], help_text: str) -> None:
    @services.command(name, help=help_text)
    @NODE
    @click.pass_obj
    def verb(home: Path, node: str) -> None:
        act(_node(home, node))


def _start(node: Node) -> None:
    node.start()
    node.wait_until_up()


_verb("pause", Node.pause, "SIGSTOP: the node is neither dead nor alive.")
_verb("resume", Node.resume, "SIGCONT: the node goes on where it was paused.")
_verb("kill", Node.kill, "kill -9: what was not on its way to disk is gone.")
_verb("stop", Node.stop, "End the node as an operator would.")
_verb("start", _start, "Start the node on the data it had, and wait until it answers.")
_verb("restart", Node.restart, "Stop and start.")


@services.command()
@NODE
@click.option("-n", "--lines", default=40, show_default=True, help="How many.")
@click.pass_obj
def logs(home: Path, node: str, lines: int) -> None:
    """The last lines that a node said, and where the others are."""
    found_node = _node(home, node)
    click.echo(found_node.log_end(lines))
    click.echo(f"# {found_node.log}", err=True)


@services.command(context_settings={"ignore_unknown_options": True})
@NODE
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_obj
def nodetool(home: Path, node: str, arguments: tuple[str, ...]) -> None:
    """Cassandra's own nodetool: `nodetool cassandra-1 status`."""
    found_node = _node(home, node)
    if not isinstance(found_node, CassandraNode):
        raise click.UsageError(f"{node} is no Cassandra node")
    click.echo(found_node.tool(*arguments), nl=False)


@services.command()
@NODE
@click.pass_obj
def network(home: Path, node: str) -> None:
    """A proxy before a node of a service that is up --proxied; it reads what to do from the terminal.

    \b
    delay 0.2          all arrives 0.2 s later
    delay 0.2 back     answers do; `there` is for requests
    throttle 10000     10,000 bytes a second on each connection
    drop               nothing arrives; after `heal` it does
    lose 0.1           every tenth piece breaks its connection
    cut                connections are reset, and new ones too
    heal               the network is fine again
    """
    service, found_node = _find(home, node)
    proxy = service.proxy_before(found_node)
    with proxy:
        click.echo("{}:{} leads to {}; Ctrl-D ends it".format(*proxy.address, node), err=True)
        talk(proxy, sys.stdin)


@services.command()
def fetch() -> None:
    """Have Maven copy the jars to .services/, and pip the AWS CLI, if they are not there. `up` does so by itself."""
    for kind in sorted(KINDS):
        click.echo(jars(kind), err=True)
    click.echo(environment("aws-cli"), err=True)


if __name__ == "__main__":
    services(prog_name="python -m tests.support.services")
