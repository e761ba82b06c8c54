"""Contexts: kept for one user, chosen, and never mixed with what the environment names."""

from __future__ import annotations

import json
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from qdo import Client
from queuey.contexts import ServerContext, changed_contexts, context_in_force, contexts_file, read_contexts
from queuey.errors import ConfigurationError
from tests.support.full_disk import no_file_longer_than

WORK = ServerContext("https://work.example", "shop", "the-key")
HOME = ServerContext("http://127.0.0.1:5000", "demo", token="a-token")


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of contexts, which is not there yet, in a folder that is not there either."""
    found = tmp_path / "folder" / "contexts.json"
    monkeypatch.setenv("QUEUEY_CONTEXTS", str(found))
    return found


def keep(**contexts: ServerContext) -> None:
    with changed_contexts() as kept:
        for name, context in contexts.items():
            kept.add(name, context)


def test_the_first_context_is_the_current_one_and_all_come_back_whole(file: Path) -> None:
    keep(work=WORK, home=HOME)

    assert contexts_file() == file
    assert read_contexts().by_name == {"work": WORK, "home": HOME}
    assert context_in_force() == WORK
    assert context_in_force("home") == HOME
    assert "the-key" not in repr(WORK)
    assert "a-token" not in repr(HOME)


def test_nobody_else_can_read_them(file: Path) -> None:
    keep(work=WORK)

    assert [stat.S_IMODE(one.stat().st_mode) for one in (file, file.parent)] == [0o600, 0o700]
    file.chmod(0o640)
    with pytest.raises(ConfigurationError, match="chmod 600"):
        read_contexts()


def test_a_change_that_fails_changes_nothing(file: Path) -> None:
    keep(work=WORK)
    before = file.read_bytes()

    with pytest.raises(ConfigurationError, match="expected 1 to 100 letters"):
        keep(home=HOME, **{"a b": HOME})

    assert file.read_bytes() == before


def test_changes_at_once_are_all_kept() -> None:
    names = [f"c{number}" for number in range(20)]

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda name: keep(**{name: WORK}), names))

    assert sorted(read_contexts().by_name) == sorted(names)


@pytest.mark.parametrize("variable", ["QUEUEY_URL", "QUEUEY_KEY", "QUEUEY_TOKEN"])
def test_what_the_environment_names_comes_before_the_current_context(
    monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    """And nothing of the context is added: no key goes to a server that it is not for."""
    keep(work=WORK)
    monkeypatch.setenv(variable, "http://other.example")
    found = context_in_force()

    assert WORK.key not in (found.key, found.token)
    assert found.url in ("http://other.example", "http://127.0.0.1:5000")
    monkeypatch.setenv("QUEUEY_CONTEXT", "work")
    with pytest.raises(ConfigurationError, match=f"QUEUEY_CONTEXT and {variable} both name a server"):
        context_in_force()
    assert context_in_force("work") == WORK


def test_the_environment_may_name_a_context_and_another_application(monkeypatch: pytest.MonkeyPatch) -> None:
    keep(work=WORK, home=HOME)
    monkeypatch.setenv("QUEUEY_CONTEXT", "home")
    monkeypatch.setenv("QUEUEY_APPLICATION", "other")

    assert context_in_force() == ServerContext(HOME.url, "other", token=HOME.token)
    assert context_in_force(environment_only=True) == ServerContext(application="other")


def test_a_client_without_arguments_is_that_of_the_context() -> None:
    keep(work=WORK)

    with Client() as client, Client.from_env(retries=0) as same, Client("http://127.0.0.1:1") as other:
        assert repr(client) == repr(same) == "Client('https://work.example', 'shop')"
        assert repr(other) == "Client('http://127.0.0.1:1', 'demo')"


def test_without_a_file_nothing_is_chosen_and_an_unknown_name_is_refused() -> None:
    assert context_in_force() == ServerContext()
    with pytest.raises(ConfigurationError, match="queuey context add work"):
        context_in_force("work")


def test_a_context_that_is_removed_is_not_the_current_one_any_more() -> None:
    keep(work=WORK)

    with changed_contexts() as contexts:
        contexts.remove("work")

    assert context_in_force() == ServerContext()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        json.dumps({"current": "x", "by_name": {}}),
        json.dumps({"current": None, "by_name": {"a": {"url": 1}}}),
    ],
)
def test_a_file_of_something_else_is_refused_and_kept(file: Path, text: str) -> None:
    file.parent.mkdir()
    file.write_text(text)
    file.chmod(0o600)

    with pytest.raises(ConfigurationError, match="holds no contexts"):
        keep(work=WORK)

    assert file.read_text() == text


def test_a_user_without_a_home_has_no_contexts(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("QUEUEY_CONTEXTS", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", f"{os.devnull}/none")

    assert context_in_force() == ServerContext()


def test_a_change_that_does_not_fit_leaves_no_key_beside_the_file(file: Path) -> None:
    keep(work=WORK)
    before = file.read_bytes()

    with pytest.raises(ConfigurationError, match=r"cannot be written: .*File too large"), no_file_longer_than(20):
        keep(home=HOME)

    assert file.read_bytes() == before
    assert not file.with_name("contexts.json.new").exists()
