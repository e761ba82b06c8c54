"""``queuey context``: servers by name."""

from __future__ import annotations

import os
import sys
from typing import Any

import click

from queuey.contexts import (
    ServerContext,
    changed_contexts,
    context_in_force,
    contexts_file,
    named_by_environment,
    read_contexts,
)
from queuey.terminal.commands import CommandGroup
from queuey.terminal.options import Server, complete_contexts, confirm, server_from, yes_option
from queuey.terminal.output import output_option, say, write_done, write_rows

COLUMNS = ("current", "context", "url", "application", "credential")

name_argument = click.argument("name", shell_complete=complete_contexts)


@click.group("context", cls=CommandGroup)
def context_command() -> None:
    """Keep servers by name, with an application and its key, and choose one.

    The one in use counts for all commands of 'queuey' and 'qdo', and for Client() in Python, where neither options nor
    QUEUEY_URL, QUEUEY_KEY or QUEUEY_TOKEN name another. For one command: --context NAME, or QUEUEY_CONTEXT. They are in a
    file that only its user can read: QUEUEY_CONTEXTS, or ~/.config/queuey/contexts.json.
    """


@context_command.command("add")
@click.argument("name")
@click.option("--url", help="The server.  [default: QUEUEY_URL, or http://127.0.0.1:5000]")
@click.option("-a", "--application", help="Owner of the queues.  [default: QUEUEY_APPLICATION, or demo]")
@click.option("--app-key", metavar="KEY", help="Its key; - reads it from the input.  [default: QUEUEY_KEY]")
@click.option("--token", help="A token in place of the key; - reads it from the input.  [default: QUEUEY_TOKEN]")
@click.option("--use", is_flag=True, help="Use it from now on; the first context is used in any case.")
@output_option
def add_context(
    name: str,
    url: str | None,
    application: str | None,
    app_key: str | None,
    token: str | None,
    use: bool,
    output: str | None,
) -> None:
    """Keep a server as NAME, in the place of a former one of this name.

    What is not given is taken from the environment. On a terminal the key is asked for if nothing names one.

    Example: queuey context add work --url https://queuey.example.org -a shop
    """
    server = _with_credential(_found(url, application, app_key, token))
    with changed_contexts() as contexts:
        made = ServerContext(server.url, server.application, server.key, server.token)
        contexts.add(name, made)
        if use:
            contexts.current = name
        current = contexts.current
    write_done(_row(name, made, current), output)
    say(f"kept context {name} in {contexts_file()}" + ("; it is in use" if current == name else ""))


def _found(url: str | None, application: str | None, app_key: str | None, token: str | None) -> Server:
    """What is given, and the rest from the environment.

    :raises QueueyError: the address or the credential cannot be one.
    """
    if app_key is not None and token is not None:
        raise click.UsageError("--app-key and --token exclude each other.")
    app_key, token = (_line_of_input() if text == "-" else text for text in (app_key, token))
    if "" in (app_key, token):  # of a variable that is not set, for instance
        raise click.UsageError("the key or token is empty: leave the option out if there is none.")
    url = url or context_in_force(environment_only=True).url
    server = server_from(url=url, application=application, app_key=app_key, token=token)
    server.client().close()
    return server


def _line_of_input() -> str:
    """The first line of the input. Bytes that are no UTF-8 become characters that no key has."""
    return sys.stdin.buffer.readline().decode("utf-8", "surrogateescape").strip()


def _with_credential(server: Server) -> Server:
    if server.key or server.token or not sys.stdin.isatty():
        return server
    key = click.prompt(
        f"Key of application {server.application}", hide_input=True, default="", show_default=False, err=True
    )
    return Server(server.url, server.application, key.strip() or None, None, server.timeout_seconds)


@context_command.command("ls")
@output_option
def list_contexts(output: str | None) -> None:
    """All contexts by name, without their keys.

    Example: queuey context ls
    """
    contexts = read_contexts()
    rows = (_row(name, context, contexts.current) for name, context in sorted(contexts.by_name.items()))
    write_rows(rows, COLUMNS, output)


@context_command.command("use")
@name_argument
@output_option
def use_context(name: str, output: str | None) -> None:
    """Ask the server of NAME from now on.

    Says so if the environment names another server, which comes first.

    Example: queuey context use work
    """
    with changed_contexts() as contexts:
        context = contexts.get(name)
        contexts.current = name
    write_done(_row(name, context, name), output)
    say(f"in use: {name}, application {context.application} at {context.url}")
    named = named_by_environment()
    if (os.environ.get("QUEUEY_CONTEXT") or name) != name:
        named.append("QUEUEY_CONTEXT")
    if named:
        say(f"notice: {' and '.join(named)} of the environment come first: unset them")


@context_command.command("rm")
@name_argument
@yes_option
@output_option
def remove_context(name: str, yes: bool, output: str | None) -> None:
    """Forget NAME and its key. The server and its queues stay.

    Example: queuey context rm work --yes
    """
    read_contexts().get(name)
    confirm(f"Forget context {name} and its key?", yes=yes)
    with changed_contexts() as contexts:
        was_current = contexts.current == name
        contexts.remove(name)
    write_done({"context": name}, output)
    say(f"forgot context {name}" + ("; none is in use now" if was_current else ""))


def _row(name: str, context: ServerContext, current: str | None) -> dict[str, Any]:
    return {
        "current": name == current,
        "context": name,
        "url": context.url,
        "application": context.application,
        "credential": "token" if context.token else "key" if context.key else None,
    }
