"""Access keys: derived, never stored, and tied to the master secret that their id names."""

from __future__ import annotations

import logging
import os
import re
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuey.errors import ConfigurationError
from queuey.security.access_keys import (
    FILE_NAME,
    MasterSecrets,
    _write_once,
    access_key_id_of,
    account_of,
    digest_of_access_key,
)
from queuey.settings import load_settings

OLD, NEW = "o" * 32, "n" * 32


def of(tmp_path: Path, **variables: str) -> MasterSecrets:
    return MasterSecrets.of(load_settings(None, {"QUEUEY_DATA": str(tmp_path / "data"), **variables}, None))


def test_an_access_key_has_the_form_that_clients_know() -> None:
    made = [MasterSecrets((OLD,)).new_access_key() for _ in range(50)]

    assert all(re.fullmatch(r"[A-Z0-9]{20}", key.id) and re.fullmatch(r"[0-9a-f]{40}", key.secret) for key in made)
    assert len({key.id for key in made}) == len({key.secret for key in made}) == 50
    assert made[0].secret not in repr(made[0])


def test_the_first_secret_makes_keys_and_all_verify() -> None:
    former = MasterSecrets((OLD,)).new_access_key()
    both, only_new = MasterSecrets((NEW, OLD)), MasterSecrets((NEW,))

    made = both.new_access_key()

    assert both.secret_of(former.id) == former.secret
    assert only_new.secret_of(made.id) == made.secret
    assert only_new.secret_of(former.id) is None


def test_a_secret_belongs_to_its_id_alone() -> None:
    secrets = MasterSecrets((OLD,))
    made = secrets.new_access_key()
    other = made.id[:-1] + ("A" if made.id[-1] != "A" else "B")

    assert secrets.secret_of(other) not in (None, made.secret)
    assert MasterSecrets((NEW,)).secret_of(made.id) is None


@given(st.text(max_size=30))
def test_no_text_but_an_id_has_a_secret(text: str) -> None:
    assert MasterSecrets((OLD,)).secret_of(text) is None


def test_the_embedded_store_has_a_secret_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "data" / FILE_NAME

    made = of(tmp_path).new_access_key()

    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert list(file.parent.iterdir()) == [file]
    content = file.read_bytes()
    assert of(tmp_path).new_access_key().id[:6] == made.id[:6]
    assert file.read_bytes() == content
    assert of(tmp_path).secret_of(made.id) == made.secret
    assert of(tmp_path, QUEUEY_SQS_SECRETS=NEW).secret_of(made.id) == made.secret
    assert of(tmp_path, QUEUEY_SQS_SECRETS=NEW).new_access_key().id[:6] != made.id[:6]


def test_a_running_server_finds_the_secret_that_a_command_made(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server, strange = of(tmp_path), MasterSecrets((OLD,)).new_access_key().id
    with caplog.at_level(logging.WARNING):
        assert [server.secret_of(strange), server.secret_of(strange)] == [None, None]
    assert [record.message.partition(" are refused")[0] for record in caplog.records] == [
        f"access keys that begin with {strange[:6]}"
    ]

    made = of(tmp_path).new_access_key()

    assert server.secret_of(made.id) == made.secret


def test_of_two_that_make_the_file_at_once_one_wins(tmp_path: Path) -> None:
    file = tmp_path / "data" / FILE_NAME

    _write_once(file, OLD)
    _write_once(file, NEW)

    assert file.read_text() == f"{OLD}\n"
    assert list(file.parent.iterdir()) == [file]


def test_the_file_belongs_to_the_owner_of_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root made it for itself, and the server, which is another user, refused all access keys."""
    to: list[tuple[int, int]] = []

    def refused(_descriptor: int, user: int, group: int) -> None:
        to.append((user, group))
        raise PermissionError

    monkeypatch.setattr(os, "fchown", refused)
    _write_once(tmp_path / FILE_NAME, OLD)

    owner = tmp_path.stat()
    assert to == [(owner.st_uid, owner.st_gid)]
    assert (tmp_path / FILE_NAME).read_text() == f"{OLD}\n"  # only root may give it away


@pytest.mark.parametrize("content", ["", "short", "g" * 64])
def test_a_damaged_file_is_named_and_not_replaced(tmp_path: Path, content: str) -> None:
    file = tmp_path / "data" / FILE_NAME
    file.parent.mkdir()
    file.write_text(content)

    with pytest.raises(ConfigurationError, match=r"sqs\.secret holds no master secret"):
        of(tmp_path).new_access_key()
    assert file.read_text() == content


def test_a_file_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")

    with pytest.raises(ConfigurationError, match=r"data/sqs\.secret cannot be read: Not a directory"):
        of(tmp_path).new_access_key()


def test_servers_on_one_cassandra_need_one_secret(tmp_path: Path) -> None:
    cassandra = {"QUEUEY_STORAGE_BACKEND": "cassandra"}

    with pytest.raises(ConfigurationError, match=r"\[sqs\] secrets: none is set: expected the same ones"):
        of(tmp_path, **cassandra).new_access_key()
    made = of(tmp_path, **cassandra, QUEUEY_SQS_SECRETS=OLD).new_access_key()
    assert of(tmp_path, **cassandra, QUEUEY_SQS_SECRETS=f"{NEW}\n{OLD}").secret_of(made.id) == made.secret
    assert not (tmp_path / "data").exists()


def test_a_store_in_memory_leaves_no_file(tmp_path: Path) -> None:
    secrets = of(tmp_path, QUEUEY_STORAGE_BACKEND="memory")

    made = secrets.new_access_key()

    assert secrets.secret_of(made.id) == made.secret
    assert not (tmp_path / "data").exists()


@given(st.binary(min_size=32, max_size=32))
def test_a_digest_is_an_access_key_s_or_a_key_s(digest: bytes) -> None:
    made = MasterSecrets((OLD,)).new_access_key()

    assert access_key_id_of(digest_of_access_key(made.id)) == made.id
    assert len(digest_of_access_key(made.id)) == 32
    assert access_key_id_of(digest) is None


def test_an_account_is_a_function_of_the_name() -> None:
    names = [f"application-{number}" for number in range(1000)]

    accounts = [account_of(name) for name in names]

    assert account_of("demo") == "284951520618"
    assert all(re.fullmatch(r"[1-9][0-9]{11}", account) for account in accounts)
    assert len(set(accounts)) == len(names)
