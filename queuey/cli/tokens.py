"""``queuey token``: short-lived proofs of identity, and an issuer for trials."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from queuey.clock import SystemClock
from queuey.contexts import DEFAULT_APPLICATION
from queuey.errors import ConfigurationError, Unauthenticated
from queuey.moments import rfc3339
from queuey.security.permissions import VERBS, Grant
from queuey.settings import Settings
from queuey.terminal.commands import CommandGroup
from queuey.terminal.completion import complete_queues
from queuey.terminal.options import with_client, with_settings
from queuey.terminal.output import form_for, output_option, say, to_json, write_one
from queuey.terminal.times import Duration

if TYPE_CHECKING:
    from qdo.client import Client
    from queuey.security.dev_issuer import DevIssuer

ISSUER_FOLDER = "issuer"
REFUSED = 4
"""Exit code."""


def _given(ctx: click.Context, option: click.Parameter, queues: Sequence[str]) -> Sequence[str]:
    """Refuse an empty name: it is a script's variable that is not set.

    In a form it could pass for no restriction.
    """
    if not all(queues):
        raise click.BadParameter("it is empty: leave it out for all queues.")
    return queues


_queues_option = click.option(
    "--queue",
    "queues",
    multiple=True,
    callback=_given,
    shell_complete=complete_queues,
    help="Only for this queue. Repeatable.",
)
_verbs_option = click.option(
    "--verb", "verbs", multiple=True, type=click.Choice(VERBS), help="Only for this. Repeatable."
)
_life_option = click.option(
    "--life", type=Duration(whole=True), help="How long it counts; the server's most if not given."
)


@click.group("token", cls=CommandGroup)
def token_command() -> None:
    """Make and inspect tokens: proofs of identity with a short life."""


@token_command.command("key")
@output_option
def new_key(output: str | None) -> None:
    """Draw a key for [tokens] keys: it signs the server's own tokens.

    Example: queuey token key
    """
    from queuey.security.tokens import new_token_key

    _print("key", new_token_key(), output)
    say("As the first of [tokens] keys it signs. Keep the former one below it until its tokens have ended.")


@token_command.command("get")
@click.argument("principal", required=False)
@_queues_option
@_verbs_option
@_life_option
@output_option
@with_client
def get_token(
    client: Client,
    principal: str | None,
    queues: Sequence[str],
    verbs: Sequence[str],
    life: float | None,
    output: str | None,
) -> None:
    """Ask the server for a token of the caller, or of PRINCIPAL.

    PRINCIPAL is a user of the application whose key is used.

    Example: queuey token get bid:ann@example.org --queue notices-ann --verb read --life 15m
    """
    made = client.new_token(
        principal, queues=queues or None, verbs=verbs or None, life_seconds=None if life is None else int(life)
    )
    if output is None:
        click.echo(made.text)
        return
    names = ("principal", "application", "queues", "verbs", "expires")
    write_one({"token": made.text, **{name: getattr(made, name) for name in names}}, output)


@token_command.command("mint")
@click.argument("principal")
@click.option(
    "-a",
    "--application",
    envvar="QUEUEY_APPLICATION",
    default=DEFAULT_APPLICATION,
    show_default=True,
    help="On whose paths it counts.",
)
@_queues_option
@_verbs_option
@_life_option
@click.option("--oidc", is_flag=True, help="Instead an OpenID Connect token of the issuer for trying out.")
@click.option("--browserid", is_flag=True, help="Instead a BrowserID assertion of that issuer.")
@click.option(
    "--issuer", type=click.Path(path_type=Path), default=ISSUER_FOLDER, show_default=True, help="That issuer's folder."
)
@click.option("--audience", help="Whom the issuer's token or assertion is for, if not for the server of its folder.")
@output_option
@with_settings
def mint_token(
    settings: Settings,
    principal: str,
    application: str,
    queues: Sequence[str],
    verbs: Sequence[str],
    life: float | None,
    oidc: bool,
    browserid: bool,
    issuer: Path,
    audience: str | None,
    output: str | None,
) -> None:
    """Make a token of PRINCIPAL with the keys in the settings, without a server.

    With --oidc or --browserid PRINCIPAL is an e-mail address, and the token is made as 'token issuer' would vouch for it.

    Example: queuey token mint bid:ann@example.org -a shop --verb read
    """
    if oidc or browserid:
        if queues or verbs or life is not None or (oidc and browserid):
            raise click.UsageError("--oidc and --browserid exclude each other, and --queue, --verb and --life.")
        vouched = _vouched(_dev_issuer().open(issuer, SystemClock()), principal, audience, browserid=browserid)
        _print("token", vouched, output)
        return
    if audience:
        raise click.UsageError("--audience is for --oidc and --browserid: the server's own stands in its settings.")
    _print("token", _own(settings, principal, application, queues, verbs, life), output)


def _print(name: str, text: str, output: str | None) -> None:
    """A secret: alone, for a variable of a shell, or as an object."""
    if output is None:
        click.echo(text)
    else:
        write_one({name: text}, output)


def _dev_issuer() -> type[DevIssuer]:
    try:
        from queuey.security.dev_issuer import DevIssuer
    except ImportError as error:
        raise ConfigurationError("this needs the extras: pip install '/path/to/queuey[browserid,oidc]'") from error
    return DevIssuer


def _vouched(issuer: DevIssuer, principal: str, audience: str | None, *, browserid: bool) -> str:
    address = principal.removeprefix("bid:").removeprefix("oidc:")
    if browserid:
        return issuer.assertion(address, audience) if audience else issuer.assertion(address)
    return issuer.id_token(address, **({"aud": audience} if audience else {}))


def _own(
    settings: Settings,
    principal: str,
    application: str,
    queues: Sequence[str],
    verbs: Sequence[str],
    life: float | None,
) -> str:
    from queuey.security.principals import parse_principal
    from queuey.security.schemes import Trust
    from queuey.service.keys import owner_of_key

    tokens = Trust(settings, SystemClock()).tokens
    if tokens is None:
        raise ConfigurationError("there is no [tokens] keys in the settings: 'queuey token key' makes one")
    if life is not None and not 1 <= life <= tokens.life_seconds:
        raise click.UsageError(f"--life: expected 1 to {tokens.life_seconds} seconds.")
    owner_of_key(application, operator=False)
    try:
        who = parse_principal(principal)
    except ValueError as error:
        raise click.UsageError(f"{principal!r}: {error}.") from error
    minted = tokens.mint(
        who, application, queues=queues or None, verbs=verbs or None, life_seconds=None if life is None else int(life)
    )
    return minted.text


@token_command.command("inspect")
@click.argument("token", required=False)
@output_option
@with_settings
@click.pass_context
def inspect_token(ctx: click.Context, settings: Settings, token: str | None, output: str | None) -> None:
    """What a token or an assertion says, and what it proves with these settings.

    Without TOKEN it is read from the input, where no process list shows it. Keys are read from files and never fetched.
    Exit code 4: it proves nothing.

    Example: queuey token get | queuey token inspect
    """
    from queuey.security.schemes import Trust

    text = (token or sys.stdin.read()).strip()
    trust = Trust(settings, SystemClock())
    trust.read_files()
    wanted = "BrowserID" if "~" in text else "Bearer"
    row: dict[str, Any] = {"proves": None, "why": "The settings have no issuer of this kind."}
    for scheme in trust.schemes:
        if scheme.name == wanted:
            try:
                row = _proof(scheme.identify(text))
            except Unauthenticated as error:
                row = {"proves": None, "why": str(error)}
    shown = form_for(output) == "table"
    for name, claims in _claims(text).items():
        row[name] = to_json(claims) if shown else claims
    write_one(row, output)
    if row["proves"] is None:
        ctx.exit(REFUSED)


def _proof(grant: Grant) -> dict[str, Any]:
    row: dict[str, Any] = {
        "proves": grant.principal,
        "until": None if grant.expires_ticks is None else rfc3339(grant.expires_ticks),
    }
    if grant.application is not None:
        row["application"] = grant.application
        row["queues"] = None if grant.queues is None else sorted(grant.queues)
        row["verbs"] = [verb for verb in VERBS if grant.verbs is None or verb in grant.verbs]
    return row


def _claims(text: str) -> dict[str, Any]:
    """What each part says of itself, unproven; what cannot be read is left out."""
    from base64 import urlsafe_b64decode

    found = {}
    names = ("certificate", "assertion") if "~" in text else ("claims",)
    for name, part in zip(names, text.split("~"), strict=False):
        try:
            payload = part.split(".")[1]
            found[name] = json.loads(urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        except (ValueError, LookupError, RecursionError):
            continue
    return found


@token_command.command("issuer")
@click.argument("folder", type=click.Path(path_type=Path), default=ISSUER_FOLDER)
@output_option
def make_issuer(folder: Path, output: str | None) -> None:
    """Make an issuer for trials in the new FOLDER.

    It gets a key pair, and the ini file of a server that trusts it.

    It vouches for anybody, so it is for servers that hold nothing of worth. Prints variables for a shell:
    eval "$(queuey token issuer)"
    """
    _, key = _dev_issuer().make(folder, SystemClock())
    if output is None:
        click.echo(f"export QUEUEY_CONFIG={shlex.quote(str(folder / 'queuey.ini'))} QUEUEY_KEY={key}")
    else:
        write_one({"config": str(folder / "queuey.ini"), "key": key}, output)
    say(f"Made an issuer in {folder}. 'queuey serve' trusts it now: a reader of that folder can be anybody there.")
