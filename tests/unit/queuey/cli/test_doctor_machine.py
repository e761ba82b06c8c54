"""What the doctor finds without a server, and that it changes nothing."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from queuey.cli import main
from queuey.cli.doctor_machine import _others_may, serving_process
from queuey.clock import SystemClock
from queuey.ids import IdGenerator
from queuey.storage.sqlite import SqliteStores
from tests.support.services.certificates import Authority

KEY = "0123456789abcdef" * 2


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The folder of a store whose server has stopped."""
    folder = tmp_path / "data"
    folder.mkdir(mode=0o700)
    clock = SystemClock()
    SqliteStores(folder / "queuey.db", clock, IdGenerator(clock)).close()
    return folder


@pytest.fixture
def ini(tmp_path: Path, data: Path) -> Path:
    file = tmp_path / "queuey.ini"
    file.write_text(f"[server]\ndata = {data}\nport = 1\n\n[storage]\nreserve_mb = 1\n")
    file.chmod(0o600)
    return file


def diagnosed(ini: Path, *arguments: str) -> tuple[Result, list[dict[str, str]]]:
    result = CliRunner().invoke(
        main, ["doctor", "-c", str(ini), *arguments, "-o", "jsonl"], env={"QUEUEY_URL": None, "QUEUEY_KEY": None}
    )
    return result, [json.loads(line) for line in result.stdout.splitlines()]


def wrong(rows: list[dict[str, str]]) -> list[str]:
    return [row["found"] for row in rows if row["level"] == "wrong"]


def snapshot(folder: Path) -> Iterator[tuple[str, int, int, int, bytes]]:
    for path in sorted([folder, *folder.rglob("*")]):
        found = path.stat()
        yield str(path), found.st_mode, found.st_mtime_ns, found.st_size, path.read_bytes() if path.is_file() else b""


def test_a_sound_machine_has_nothing_wrong_and_stays_as_it_is(ini: Path, data: Path) -> None:
    before = list(snapshot(ini.parent))

    result, rows = diagnosed(ini)

    assert (result.exit_code, wrong(rows)) == (0, [])
    assert any(row["level"] == "ok" and str(data / "queuey.db") in row["found"] for row in rows)
    assert any("no server answers at http://127.0.0.1:1" in row["found"] for row in rows)
    assert list(snapshot(ini.parent)) == before


def test_a_server_that_is_named_and_does_not_answer_is_wrong(ini: Path) -> None:
    result, rows = diagnosed(ini, "--url", "http://127.0.0.1:1")

    (said,) = wrong(rows)
    assert (result.exit_code, "http://127.0.0.1:1 gives no answer" in said) == (1, True)


def test_whatever_is_not_ok_says_how_to_mend_it(ini: Path) -> None:
    _, rows = diagnosed(ini)

    assert [row for row in rows if row["level"] != "ok" and not row["mend"]] == []


def test_wrong_settings_are_found_and_not_a_traceback(ini: Path) -> None:
    ini.write_text("[server]\nprot = 1\n")

    result, rows = diagnosed(ini)

    assert result.exit_code == 1
    assert [row["about"] for row in rows] == ["settings"]
    assert "did you mean port" in rows[0]["found"]


def test_an_ini_file_with_keys_that_all_may_read_is_wrong(ini: Path) -> None:
    ini.write_text(f"{ini.read_text()}\n[application_keys]\ndemo = {KEY}\n")
    ini.chmod(0o644)

    result, rows = diagnosed(ini)

    (said,) = wrong(rows)
    assert (result.exit_code, "mode 0644" in said, KEY in result.output) == (1, True, False)


def test_a_store_that_all_may_read_is_wrong(ini: Path, data: Path) -> None:
    (data / "queuey.db").chmod(0o644)

    assert wrong(diagnosed(ini)[1]) == [f"others than its owner may read or write {data / 'queuey.db'}"]


def test_a_folder_that_all_may_write_in_is_wrong(ini: Path, data: Path) -> None:
    data.chmod(0o777)

    assert wrong(diagnosed(ini)[1]) == [f"every user of this machine may write in {data}"]


def test_a_data_folder_that_is_a_file_hides_no_other_finding(ini: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch(0o600)
    ini.write_text(ini.read_text().replace(str(tmp_path / "data"), str(tmp_path / "file")))

    result, rows = diagnosed(ini)

    assert (result.exit_code, wrong(rows)) == (1, [f"{tmp_path / 'file'} is no folder"])
    assert "clock" in {row["about"] for row in rows}


def test_a_file_that_is_no_store_is_wrong(ini: Path, data: Path) -> None:
    (data / "queuey.db").write_text("not a store at all")

    assert wrong(diagnosed(ini)[1]) == [f"{data / 'queuey.db'} is no store"]


def test_a_disk_under_its_reserve_is_wrong(ini: Path) -> None:
    ini.write_text(ini.read_text().replace("reserve_mb = 1", "reserve_mb = 1000000"))

    (said,) = wrong(diagnosed(ini)[1])
    assert "under the reserve" in said


def test_open_sqs_on_the_network_is_wrong(ini: Path) -> None:
    text = ini.read_text().replace("[server]", "[server]\nhost = 0.0.0.0")
    ini.write_text(f"{text}\n[sqs]\nauth = open\nopen_to_network = true\n")

    result, rows = diagnosed(ini, "--url", "http://127.0.0.1:1")

    assert result.exit_code == 1
    assert "[sqs] auth = open" in wrong(rows)[0]


def test_an_issuer_without_its_file_is_wrong(ini: Path, tmp_path: Path) -> None:
    ini.write_text(
        f"{ini.read_text()}\n[issuer:mail]\nkind = browserid\nissuer = example.org\naudience = https://x.example.org\nkeys = {tmp_path / 'none.json'}\n"
    )

    (said,) = wrong(diagnosed(ini)[1])
    assert "[issuer:mail] keys" in said


def test_a_certificate_is_looked_at(ini: Path, tmp_path: Path) -> None:
    made = Authority(tmp_path / "ca").identity("server", "127.0.0.1")
    made.key.chmod(0o600)
    ini.write_text(ini.read_text().replace("[server]", f"[server]\ntls_cert = {made.cert}\ntls_key = {made.key}"))

    _, rows = diagnosed(ini)
    assert [row["found"] for row in rows if row["about"] == "certificate"] == [f"{made.cert} ends in 1 days"]
    assert any("no server answers at https://127.0.0.1:1" in row["found"] for row in rows)

    made.key.chmod(0o644)
    (said,) = wrong(diagnosed(ini)[1])
    assert "its mode is 0644" in said


def test_the_process_that_serves_a_store_is_known_by_the_kernel(data: Path) -> None:
    file = data / "queuey.db"
    assert serving_process(file) is None
    clock = SystemClock()
    stores = SqliteStores(file, clock, IdGenerator(clock))
    try:
        assert serving_process(file) == os.getpid()
    finally:
        stores.close()


def test_a_file_that_may_not_be_looked_at_is_a_finding_beside_the_others(
    ini: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for an administrator, where the folder is of the user of the server."""
    looked = Path.is_file

    def is_file(path: Path) -> bool:
        if path.parent == data:
            raise PermissionError(13, "Permission denied", str(path))
        return looked(path)

    monkeypatch.setattr(Path, "is_file", is_file)

    result, rows = diagnosed(ini)

    assert (result.exit_code, wrong(rows)) == (1, [f"{data / 'queuey.db'}: Permission denied"])
    assert {"disk", "clock", "limits", "server"} <= {row["about"] for row in rows}


def test_a_log_that_goes_while_it_is_looked_at_is_nothing_wrong(tmp_path: Path) -> None:
    assert not _others_may(tmp_path / "queuey.db-wal")
