"""Every page names commands that do the same in a shell, and each of them exists."""

from __future__ import annotations

import html
import re
import shlex

import click

from qdo.cli import main as qdo_main
from queuey.cli import main as queuey_main
from tests.support.client import Server
from tests.support.visitors import Visitor

PROGRAMS: dict[str, click.Command] = {"queuey": queuey_main, "qdo": qdo_main}
_FOOTER = re.compile(r"<p>In a shell: (.*?)</p>", re.DOTALL)


def commands_of(page: str) -> list[str]:
    footer = _FOOTER.search(page)
    return [] if footer is None else [html.unescape(line) for line in re.findall(r"<code[^>]*>(.*?)</code>", footer[1])]


def parsed(line: str) -> str:
    """The path of a command whose arguments and options are those that it has."""
    program, *words = shlex.split(line)
    found, context = PROGRAMS[program], click.Context(PROGRAMS[program], info_name=program)
    while isinstance(found, click.Group):
        name = words.pop(0)
        below = found.get_command(context, name)
        assert below is not None, line
        found, context = below, click.Context(below, context, name)
    found.make_context(context.info_name, words, parent=context.parent)  # raises for what the command does not take
    return context.command_path


def test_each_page_names_commands_that_exist(owner: Visitor, v1: Server) -> None:
    queue = v1.queue()
    place = f"1:{v1.post(queue).json()['messages'][0]['key']}"
    v1.call("PUT", queue, "offsets", "mail", json={"offsets": [], "generation": 1})
    v1.call("POST", queue, "leases", "workers", json={"receiver": "worker-7", "receive": {}})
    base = f"/console/a/queuey/{queue}"
    named = {
        path: [parsed(line) for line in commands_of(owner.get(path))]
        for path in (
            "/console/a/queuey",
            "/console/new/queuey",
            "/console/overview/queuey",
            "/console/access/queuey",
            "/console/workers/queuey",
            "/console/schedules/queuey",
            base,
            *(f"{base}/{page}" for page in ("edit", "messages", "tail", "scheduled", "send", "g/mail", "l/workers")),
            *(f"{base}/confirm/{action}" for action in ("purge", "delete")),
            *(f"{base}/l/workers/{page}" for page in ("dead", "release?receiver=worker-7")),
            f"{base}/m/{place}",
        )
    }

    assert [path for path, commands in named.items() if not commands] == []
    assert named[f"{base}/m/{place}"] == ["queuey get", "queuey rm"]
    assert named[f"{base}/l/workers"] == ["queuey lease info", "queuey lease set", "queuey lease rm"]
    assert commands_of(owner.get(f"{base}/messages?from=oldest&partition=1")) == [f"queuey get {queue} --partitions 1"]
    owner.send(f"{base}/l/workers/pause", pause="true")
    assert f"queuey lease set {queue} workers --resume" in commands_of(owner.get(f"{base}/l/workers"))


def test_commands_for_an_operator_name_the_application(operator: Visitor, v1: Server) -> None:
    """Without, they would purge a queue of this name of another one."""
    queue = v1.queue()

    assert f"queuey receive {queue} --application queuey</code>" in operator.get(f"/console/a/queuey/{queue}")
    for path in (f"{queue}/confirm/purge", queue, f"{queue}/send", ""):
        found = commands_of(operator.get(f"/console/a/queuey/{path}".rstrip("/")))
        assert [line for line in found if "--application queuey" not in line] == []
        assert [parsed(line) for line in found]
