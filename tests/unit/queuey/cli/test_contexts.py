"""``queuey context``, and which server a command asks."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from queuey.cli import main
from tests.support.commands import command


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    found = tmp_path / "contexts.json"
    monkeypatch.setenv("QUEUEY_CONTEXTS", str(found))
    return found


def run(*arguments: str, given: str | bytes = "", **variables: str) -> Result:
    return CliRunner().invoke(main, arguments, input=given, env=variables, prog_name="queuey")


def listed() -> dict[str, dict[str, object]]:
    return {row["context"]: row for row in map(json.loads, run("context", "ls").stdout.splitlines())}


def asked(*arguments: str, **variables: str) -> str:
    """Which server a command asks: none answers, and it says at which address."""
    ended = run("get", "q", "--timeout", "0.1", *arguments, **variables)
    assert ended.exit_code == 5, ended.output
    return ended.stderr.split()[5].rstrip(":")


def test_contexts_are_added_listed_used_and_removed() -> None:
    first = run(
        "context", "add", "work", "--url", "http://127.0.0.1:1", "-a", "shop", "--app-key", "-", given="a-key\n"
    )
    run("context", "add", "home", QUEUEY_URL="http://127.0.0.1:2", QUEUEY_TOKEN="a-token")
    used = run("context", "use", "home", QUEUEY_KEY="other")
    rows = listed()
    removed = run("context", "rm", "home", "--yes")

    assert "it is in use" in first.stderr
    assert (rows["work"]["application"], rows["work"]["credential"], rows["work"]["current"]) == ("shop", "key", False)
    assert (rows["home"]["url"], rows["home"]["credential"], rows["home"]["current"]) == (
        "http://127.0.0.1:2",
        "token",
        True,
    )
    assert "notice: QUEUEY_KEY of the environment come" in used.stderr
    assert "none is in use now" in removed.stderr
    assert listed().keys() == {"work"}
    assert [run("context", verb, "none", *more).exit_code for verb, more in (("use", ()), ("rm", ("--yes",)))] == [2, 2]


def test_a_command_asks_what_is_named_nearest() -> None:
    run("context", "add", "work", "--url", "http://127.0.0.1:1")
    run("context", "add", "home", "--url", "http://127.0.0.1:2")

    assert asked() == "http://127.0.0.1:1"
    assert asked(QUEUEY_CONTEXT="home") == "http://127.0.0.1:2"
    assert asked("--context", "home", QUEUEY_URL="http://127.0.0.1:3") == "http://127.0.0.1:2"
    assert asked("--url", "http://127.0.0.1:4", QUEUEY_URL="http://127.0.0.1:3") == "http://127.0.0.1:4"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--app-key", "a", "--token", "b"), "exclude each other"),
        (("--url", "nothing"), "is no address of a server"),
        (("--app-key", "\u00e4"), "characters that no key has"),
        (("--app-key", "-"), "characters that no key has"),
        (("--token", "-"), "characters that no token has"),
    ],
)
def test_what_cannot_be_used_is_not_kept(file: Path, arguments: tuple[str, ...], said: str) -> None:
    refused = run("context", "add", "work", *arguments, given=b"k\xff\n")

    assert refused.exit_code in (2, 4)
    assert said in refused.stderr
    assert not file.exists()


def test_on_a_terminal_the_key_is_asked_for_and_not_shown(file: Path) -> None:
    ours, theirs = pty.openpty()
    # A session of its own: the key must not be asked for on the terminal that runs the tests.
    with subprocess.Popen(
        command("context", "add", "work"), stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    ) as process:
        os.close(theirs)
        said = b""
        while b"Key of application demo" not in said:
            said += _read(ours)
        os.write(ours, b"the-key\n")
        process.wait(90)
        said += _read(ours)
    os.close(ours)

    assert b"the-key" not in said
    assert json.loads(file.read_text())["by_name"]["work"]["key"] == "the-key"


def _read(descriptor: int) -> bytes:
    assert select.select([descriptor], [], [], 90)[0], "nothing is said"
    return os.read(descriptor, 4096)


def test_a_context_in_use_says_that_the_environment_names_another_one() -> None:
    for name in ("work", "home"):
        run("context", "add", name, "--url", "http://127.0.0.1:1")

    said = [run("context", "use", "home", QUEUEY_CONTEXT=named).stderr for named in ("work", "home", "")]

    assert ["notice: QUEUEY_CONTEXT of the environment come" in text for text in said] == [True, False, False]


@pytest.mark.parametrize("option", ["--app-key", "--token"])
@pytest.mark.parametrize("value", ["", "-"])
def test_an_empty_key_takes_the_place_of_none(option: str, value: str) -> None:
    run("context", "add", "work", "--url", "http://127.0.0.1:1", "--app-key", "a-key")

    refused = run("context", "add", "work", "--url", "http://127.0.0.1:1", option, value, given="\n")

    assert (refused.exit_code, "is empty" in refused.stderr) == (2, True)
    assert listed()["work"]["credential"] == "key"
