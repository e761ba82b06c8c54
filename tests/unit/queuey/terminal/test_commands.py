"""What all commands of both programs have in common, read from their definitions."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import qdo.cli
import queuey.cli
from queuey.terminal.numbers import Number

ROOT = Path(__file__).parents[4]
LASTING = {"queuey serve", "queuey top", "queuey check", "qdo work", "qdo top"}
"""They show what goes on, or have the form that monitoring wants."""
PEOPLE = {"queuey bench draw", "queuey bench run", "queuey bench simulate", "queuey bench table"}
"""They print a report; those that have a form for programs write it to a file."""
WITHOUT_OUTPUT = {*LASTING, *PEOPLE, "queuey completion", "qdo completion"}
NAMES = {"queue", "queues", "group", "named", "to", "receipts", "label", "code", "prefix", "context_name"}
"""Parameters that name something."""
OF_OTHERS = {
    "queuey ack receipts": "they come from 'receive'",
    "queuey release receipts": "they come from 'receive'",
    "queuey reject receipts": "they come from 'receive'",
    "queuey audit queue": "it is a name in files",
    "qdo pipeline report queue": "it is a name in files",
}


def commands() -> Iterator[tuple[str, click.Command]]:
    todo: list[tuple[str, click.Command]] = [("queuey", queuey.cli.main), ("qdo", qdo.cli.main)]
    while todo:
        name, command = todo.pop()
        if isinstance(command, click.Group):
            context = click.Context(command)
            found = [(each, command.get_command(context, each)) for each in command.list_commands(context)]
            todo += [(f"{name} {each}", made) for each, made in found if made is not None]
        else:
            yield name, command


COMMANDS = dict(commands())
ASKING = {
    "qdo dead retry": ("q", "--all"),
    "qdo pipeline replay": ("folder",),
    "queuey group reset": ("q", "g", "--to", "end"),
    "queuey group rm": ("q", "g"),
    "queuey key rm": ("shop", "abc"),
    "queuey lease reset": ("q", "g", "--to", "end"),
    "queuey lease rm": ("q", "g"),
    "queuey purge": ("q",),
    "queuey queue rm": ("q",),
    "queuey redrive": ("q", "g"),
    "queuey rm": ("q", "-"),
    "queuey schedule rm": ("s",),
}
"""Commands that ask before they act, each with the least that it is given."""


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_has_an_example_of_this_command(name: str) -> None:
    text = " ".join((COMMANDS[name].help or "").split())

    assert name in text


@pytest.mark.parametrize("name", COMMANDS)
def test_the_output_has_a_form_for_programs(name: str) -> None:
    options = {option for param in COMMANDS[name].params for option in param.opts}

    assert ("-o" in options) is (name not in WITHOUT_OUTPUT)


@pytest.mark.parametrize("name", COMMANDS)
def test_names_are_completed(name: str) -> None:
    wanted = {
        param.name
        for param in COMMANDS[name].params
        if param.name in NAMES and param._custom_shell_complete is None and f"{name} {param.name}" not in OF_OTHERS
    }
    assert wanted == set()


@pytest.mark.parametrize("given", ["nan", "inf", "-inf", "1e300", "1e999", "five", ""])
@pytest.mark.parametrize("name", COMMANDS)
def test_numbers_are_numbers(name: str, given: str) -> None:
    """No clock, no socket and no JSON takes ``nan`` or ``1e300``."""
    for param in COMMANDS[name].params:
        assert not isinstance(param.type, click.FloatRange) or isinstance(param.type, Number)
        assert not isinstance(param.type, type(click.FLOAT)) or isinstance(param.type, Number)
        if isinstance(param.type, Number):
            with pytest.raises(click.BadParameter):
                param.type.convert(given, param, None)


def test_commands_that_ask_are_known() -> None:
    """That which is left out looks into a file of its own first."""
    assert {name for name, command in COMMANDS.items() if yes_option_in(command)} == {*ASKING, "queuey context rm"}


def yes_option_in(command: click.Command) -> bool:
    return any(
        isinstance(one, click.Option) and (one.name, one.help) == ("yes", "Do not ask.") for one in command.params
    )


@pytest.mark.parametrize("name", ASKING)
def test_a_command_that_could_not_ask_ends_before_it_does_anything(name: str) -> None:
    """No server is there, and Spark would take long to start."""
    program, *words = name.split()
    main = {"queuey": queuey.cli.main, "qdo": qdo.cli.main}[program]
    server = {"QUEUEY_URL": "http://127.0.0.1:1", "QUEUEY_APPLICATION": "shop", "QUEUEY_DATA": None}

    ended = CliRunner().invoke(main, [*words, *ASKING[name]], env=server, prog_name=program, input="not read\n")

    assert "Say --yes: there is no terminal to ask on." in " ".join(ended.stderr.split())
    assert (ended.exit_code, ended.stdout) == (2, "")


@pytest.mark.parametrize("width", [60, 80, 200])
def test_the_help_of_a_group_cuts_no_sentence_off(width: int) -> None:
    for program in (queuey.cli.main, qdo.cli.main):
        context = click.Context(program, info_name="x", terminal_width=width)
        for name in program.list_commands(context):
            group = program.get_command(context, name)
            for each in (program, group):
                text = each.get_help(click.Context(each, terminal_width=width)) if isinstance(each, click.Group) else ""
                commands = text.partition("\nCommands:")[2]
                assert "..." not in commands
                assert all(len(line) <= width for line in commands.splitlines())


@pytest.mark.parametrize("value", ["1", ""])
def test_a_person_may_want_no_colour(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("NO_COLOR", value)
    monkeypatch.setenv("QUEUEY_CONFIG", "")

    for arguments in (["doctor", "-o", "table", "--url", "http://127.0.0.1:1"], ["verify", "--data", "/dev/null/none"]):
        found = CliRunner().invoke(queuey.cli.main, arguments, color=True)
        assert ("\x1b[" in found.output) is (value == "")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_stream_that_the_shell_closed_is_an_empty_one(closed: str, tmp_path: Path) -> None:
    """No server is there, and no message in the input, so a command says so."""
    lines = tmp_path / "lines"
    lines.write_text("a message\n")
    for words, code in ((f"put q --lines --file {lines}", 5), ("ack q -", 0), ("purge q", 2)):
        line = f"{shlex.quote(sys.executable)} -m queuey.cli {words} {closed}"
        environment = os.environ | {"QUEUEY_URL": "http://127.0.0.1:1", "PYTHONPATH": str(ROOT)}

        ended = subprocess.run(
            ["sh", "-c", line], env=environment, capture_output=True, input=b"", timeout=60, check=False
        )

        assert (ended.returncode, b"Traceback" in ended.stderr) == (code, False), ended.stderr


@pytest.mark.parametrize("words", [("show", "q", "-"), ("rm", "q", "-", "--yes"), ("token", "inspect")])
def test_input_that_is_no_utf_8_is_refused_in_words(words: tuple[str, ...]) -> None:
    ended = CliRunner().invoke(
        queuey.cli.main, words, input=b"\xff\n", env={"QUEUEY_URL": "http://127.0.0.1:1", "QUEUEY_CONFIG": None}
    )

    assert ended.exit_code in (2, 4)
    assert isinstance(ended.exception, SystemExit)
