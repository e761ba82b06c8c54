"""``queuey token``, as it is typed."""

from __future__ import annotations

import json
import re
import stat
from base64 import urlsafe_b64encode
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from queuey.cli import main
from queuey.clock import SystemClock
from queuey.security.tokens import Tokens
from queuey.settings import load_settings
from tests.support.client import Server
from tests.support.servers import APPLICATIONS
from tests.support.trusting import TrustingServer, login, people

JOE = "joe@example.org"


def run(*arguments: str, given: str | None = None, **variables: str | None) -> Result:
    environment = {"QUEUEY_CONFIG": None, **variables}
    return CliRunner().invoke(main, arguments, input=given, env=environment, prog_name="queuey")


def said(*arguments: str, **variables: str | None) -> str:
    result = run(*arguments, **variables)
    assert result.exit_code == 0, result.output
    return result.stdout.strip()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An issuer's, in an empty directory."""
    monkeypatch.chdir(tmp_path)
    said("token", "issuer")
    return tmp_path / "issuer"


@pytest.fixture
def config(folder: Path) -> str:
    return str(folder / "queuey.ini")


def test_an_issuer_is_a_folder_that_nobody_else_can_read(folder: Path) -> None:
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {path.name for path in folder.iterdir()} == {"issuer.pem", "keys.json", "browserid.json", "queuey.ini"}
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
    assert [one.kind for one in load_settings(str(folder / "queuey.ini")).issuers] == ["oidc", "browserid"]
    for name in ("keys.json", "browserid.json"):
        assert "PRIVATE" not in (folder / name).read_text()
        assert '"d"' not in (folder / name).read_text()


def test_an_issuer_prints_variables_for_a_shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    line = said("token", "issuer", "a folder")

    assert re.fullmatch(r"export QUEUEY_CONFIG='a folder/queuey\.ini' QUEUEY_KEY=[0-9a-f]{64}", line)
    assert line.rpartition("=")[2] in (tmp_path / "a folder/queuey.ini").read_text()


def test_an_issuer_takes_no_folder_that_is_there(folder: Path) -> None:
    before = (folder / "issuer.pem").read_bytes()

    result = run("token", "issuer")

    assert result.exit_code == 2
    assert "cannot make the folder issuer" in result.stderr
    assert (folder / "issuer.pem").read_bytes() == before


def test_a_key_is_drawn_anew_each_time() -> None:
    first, second = said("token", "key"), said("token", "key")

    assert first != second
    assert load_settings(None, {"QUEUEY_TOKENS_KEYS": f"{first} {second}"}).tokens.keys == (first, second)


def test_what_is_minted_is_what_is_inspected(config: str) -> None:
    text = said(
        "token", "mint", f"bid:{JOE}", "-c", config, "-a", "app", "--queue", "q", "--verb", "read", "--life", "1m"
    )

    told = json.loads(said("token", "inspect", text, "-c", config, "-o", "json"))

    assert told["proves"] == f"bid:{JOE}"
    assert (told["application"], told["queues"], told["verbs"]) == ("app", ["q"], ["read"])
    assert told["claims"]["exp"] - told["claims"]["iat"] == 60


def test_verbs_that_this_version_does_not_know_are_no_verbs(config: str) -> None:
    """They are of a later version. They prove nothing here, and are not all that there are."""
    settings = load_settings(config, {"QUEUEY_TOKENS_KEYS": "k" * 64})
    tokens = Tokens(settings.tokens.keys, settings.tokens.audience, 60, SystemClock())
    text = tokens.mint(f"bid:{JOE}", "app", verbs=["fly"]).text

    told = json.loads(run("token", "inspect", text, "-c", config, "-o", "json", QUEUEY_TOKENS_KEYS="k" * 64).stdout)

    assert (told["proves"], told["verbs"]) == (f"bid:{JOE}", [])


@pytest.mark.parametrize("given", [("--queue", ""), ("-a", "")])
def test_a_restriction_that_restricts_nothing_is_refused(config: str, given: tuple[str, str]) -> None:
    assert run("token", "mint", f"bid:{JOE}", "-c", config, *given).exit_code == 2


@pytest.mark.parametrize(("kind", "proves"), [("--oidc", f"oidc:{JOE}"), ("--browserid", f"bid:{JOE}")])
def test_the_issuer_vouches_for_anybody(config: str, kind: str, proves: str) -> None:
    text = said("token", "mint", kind, JOE)

    told = json.loads(said("token", "inspect", text, "-c", config, "-o", "json"))

    assert told["proves"] == proves
    assert JOE in json.dumps(told["certificate" if kind == "--browserid" else "claims"])


def test_a_token_may_come_from_the_input(config: str) -> None:
    text = said("token", "mint", "--oidc", JOE)

    result = run("token", "inspect", "-c", config, given=f"{text}\n")

    assert json.loads(result.stdout)["proves"] == f"oidc:{JOE}"


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--oidc", "--audience", "somebody"), "for another audience"),
        (("--browserid", "--audience", "http://elsewhere"), "for another audience"),
    ],
)
def test_what_proves_nothing_is_shown_with_why_and_exit_code_4(
    config: str, arguments: tuple[str, ...], why: str
) -> None:
    text = said("token", "mint", JOE, *arguments)

    result = run("token", "inspect", text, "-c", config, "-o", "json")

    told = json.loads(result.stdout)
    assert result.exit_code == 4
    assert told["proves"] is None
    assert why in told["why"]


DEEP = urlsafe_b64encode(b"[" * 100_000).decode()


@pytest.mark.parametrize("text", ["x", "a.b.c", "~", "", "\x1b[31m~x", f"a.{DEEP}.c"])
def test_what_is_no_token_is_none(config: str, text: str) -> None:
    result = run("token", "inspect", "-c", config, "-o", "table", given=text)

    assert result.exit_code == 4
    assert "\x1b" not in result.stdout


def test_without_anybody_to_trust_nothing_is_proven() -> None:
    result = run("token", "inspect", "a.b.c", "-o", "json")

    assert result.exit_code == 4
    assert "no issuer" in json.loads(result.stdout)["why"]


@pytest.mark.parametrize(
    ("arguments", "said_", "code"),
    [
        (("mint", "joe"), "not of the form app:name", 2),
        (("mint", "bid:joe@example.org", "--life", "2h"), "--life: expected 1 to 3600 seconds", 2),
        (("mint", "bid:joe@example.org", "--verb", "write"), "'write' is not one of", 2),
        (("mint", "bid:joe@example.org", "--audience", "x"), "--audience is for --oidc", 2),
        (("mint", "--oidc", "--browserid", JOE), "exclude each other", 2),
        (("mint", "--oidc", JOE, "--verb", "read"), "exclude each other", 2),
        (("mint", "--oidc", JOE, "--issuer", "nowhere"), "there is no issuer in nowhere", 2),
    ],
)
def test_what_cannot_be_minted_is_told(config: str, arguments: tuple[str, ...], said_: str, code: int) -> None:
    result = run("token", *arguments, QUEUEY_CONFIG=config)

    assert result.exit_code == code
    assert said_ in result.stderr


def test_without_keys_no_token_of_the_servers_own_is_minted() -> None:
    result = run("token", "mint", f"bid:{JOE}")

    assert result.exit_code == 2
    assert "there is no [tokens] keys" in result.stderr


class TestOverHttp:
    def variables(self, running: TrustingServer, **more: str) -> dict[str, str | None]:
        return {"QUEUEY_URL": running.url, "QUEUEY_APPLICATION": "queuey", "QUEUEY_KEY": None, **more}

    def test_an_application_gets_a_token_for_a_user(self, trusting_shipped_server: TrustingServer) -> None:
        with Server(trusting_shipped_server) as server:
            name = server.queue(principles=f"oidc:{JOE}")
            server.add(name, "for joe")
        key = self.variables(trusting_shipped_server, QUEUEY_KEY=APPLICATIONS["queuey"][0])

        text = said("token", "get", f"oidc:{JOE}", "--queue", name, "--verb", "read", "--life", "60", **key)
        told = json.loads(said("token", "get", f"oidc:{JOE}", "-o", "json", **key))

        assert told["principal"] == f"oidc:{JOE}"
        joe = self.variables(trusting_shipped_server, QUEUEY_TOKEN=text)
        assert "for joe" in said("get", name, **joe)
        refused = run("put", name, "x", **joe)
        assert refused.exit_code == 4
        assert "QUEUEY_KEY" not in refused.stderr

    def test_a_token_goes_before_a_key(self, trusting_shipped_server: TrustingServer) -> None:
        both = self.variables(
            trusting_shipped_server, QUEUEY_KEY=APPLICATIONS["queuey"][0], QUEUEY_TOKEN=login().token()
        )

        assert run("queue", "ls", **both).exit_code == 4

    def test_a_user_lists_the_queues_that_name_them(self, trusting_shipped_server: TrustingServer) -> None:
        with Server(trusting_shipped_server) as server:
            name = server.queue(principles="oidc:lister@example.org")
            server.queue()
        lister = login().token(email="lister@example.org")

        found = said("queue", "ls", "--mine", **self.variables(trusting_shipped_server, QUEUEY_TOKEN=lister))

        assert [json.loads(line)["queue_name"] for line in found.splitlines()] == [name]

    def test_an_assertion_is_no_token(self, trusting_shipped_server: TrustingServer) -> None:
        result = run("queue", "ls", **self.variables(trusting_shipped_server, QUEUEY_TOKEN=people().whole()))

        assert result.exit_code == 4
        assert "InvalidToken" in result.stderr
