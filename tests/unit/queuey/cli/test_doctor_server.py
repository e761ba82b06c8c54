"""What the doctor learns over HTTP, from answers that a script gives."""

from __future__ import annotations

from pathlib import Path

import pytest

from queuey._version import __version__
from queuey.cli.doctor_machine import Diagnosis
from queuey.cli.doctor_server import _Asker, _proxy_findings, _Reply, _time_findings, server_findings
from queuey.terminal.options import Server
from tests.support.scripted_server import Say, Script, scripted_server
from tests.support.services.certificates import Authority

VERSION = Say(body=f'{{"name": "queuey", "version": "{__version__}", "storage": "sqlite"}}'.encode())
METRICS = Say(403)


def found(script: Script, *answers: Say | str, key: str | None = None) -> list[Diagnosis]:
    script.say(*answers)
    return list(server_findings(Server(script.url, "demo", key, None, 5.0), is_expected=False))


def wrong(findings: list[Diagnosis]) -> list[str]:
    return [f"{one.about}: {one.found}" for one in findings if one.level == "wrong"]


def test_a_sound_server_is_only_asked_with_get(script: Script) -> None:
    findings = found(script, VERSION, Say(), METRICS, Say(body=b"data: {}\n\n"), key="k" * 32)

    assert wrong(findings) == []
    assert [asked.method for asked in script.asked] == ["GET"] * 4
    assert [asked.headers.get("Authorization") for asked in script.asked[:3]] == [None] * 3


def test_a_server_that_cannot_store_is_wrong(script: Script) -> None:
    assert wrong(found(script, VERSION, Say(503, b"the disk is full"), METRICS)) == [
        "server: it cannot store: the disk is full"
    ]


def test_another_version_and_warnings_are_notices(script: Script) -> None:
    old = Say(body=b'{"name": "queuey", "version": "0.9"}')

    findings = found(script, old, Say(headers={"Queuey-Warnings": "one copy; no quorum"}), METRICS)

    assert [one.found for one in findings if one.level == "notice"] == [
        f"version 0.9 runs, and {__version__} is installed here",
        "one copy",
        "no quorum",
    ]


def test_what_is_no_queuey_is_wrong(script: Script) -> None:
    assert wrong(found(script, Say(200, b"<html>"), Say(), METRICS))[0].startswith("server: what answers is no")


def test_it_trusts_what_clients_trust(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It said that SSL_CERT_FILE helps, which no client reads."""
    authority = Authority(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
    monkeypatch.delenv("REQUESTS_CA_BUNDLE", raising=False)
    monkeypatch.delenv("CURL_CA_BUNDLE", raising=False)
    with scripted_server(authority.identity("server", "127.0.0.1")) as script:
        (refused,) = found(script)
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(authority.file))
        trusted = found(script, VERSION, Say(), METRICS, Say())
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "nowhere"))
    (unreadable,) = found(script)
    (tmp_path / "empty.pem").write_text("no certificate\n")
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "empty.pem"))
    (empty,) = found(script)

    assert (refused.level, wrong(trusted)) == ("wrong", [])
    assert "REQUESTS_CA_BUNDLE" in refused.mend
    assert "REQUESTS_CA_BUNDLE" in empty.mend
    assert "cannot be read" in unreadable.found


def test_a_proxy_of_the_environment_is_a_notice(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    """It asks without the proxy, so all was well while no command came through."""
    monkeypatch.setenv("http_proxy", "http://ann:hunter2@127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)

    through = found(script, VERSION, Say(), METRICS)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    without = found(script, VERSION, Say(), METRICS)

    (notice,) = (one for one in through if one.level == "notice")
    assert "no_proxy" in notice.mend
    assert "hunter2" not in f"{notice}"
    assert not any(one.level == "notice" for one in without)


def test_a_clock_that_is_off_is_wrong() -> None:
    dated = _Reply(200, {"date": "Thu, 01 Jan 1970 00:00:00 GMT"}, b"")

    assert wrong(list(_time_findings(dated)))[0].startswith("clock: the server's clock")


def test_a_refused_key_is_wrong(script: Script) -> None:
    assert wrong(found(script, VERSION, Say(), METRICS, Say(401), key="k" * 32)) == [
        "keys: the key or token is refused for demo with status 401"
    ]


def test_a_proxy_that_shows_metrics_and_hides_tls_is_wrong(script: Script) -> None:
    script.say(Say(200, b"# HELP"), Say(headers={"Set-Cookie": "queuey_console=x; HttpOnly"}))

    asker = _Asker(Server(script.url, "demo", None, None, 5.0))
    findings = list(_proxy_findings(asker, is_here=False, is_tls=True))

    assert [one.split(":")[1].strip() for one in wrong(findings)] == [
        "/metrics answers everybody",
        "the console does not know that browsers come by TLS",
    ]


def test_no_server_at_all_is_a_notice() -> None:
    (finding,) = server_findings(Server("http://127.0.0.1:1", "demo", None, None, 5.0), is_expected=False)

    assert (finding.level, "no server answers" in finding.found) == ("notice", True)


def test_no_answer_of_a_server_that_runs_is_wrong() -> None:
    (finding,) = server_findings(Server("http://127.0.0.1:1", "demo", None, None, 5.0), is_expected=True)

    assert (finding.level, "gives no answer" in finding.found) == ("wrong", True)


def test_what_is_no_address_is_wrong() -> None:
    (finding,) = server_findings(Server("ftp://x", "demo", None, None, 5.0), is_expected=False)

    assert (finding.level, finding.about) == ("wrong", "server")


@pytest.mark.parametrize("url", ["http://[::1", "http://a:99999", "http://a b", "http://"])
def test_what_is_no_address_for_http_is_wrong(url: str) -> None:
    (finding,) = server_findings(Server(url, "demo", None, None, 5.0), is_expected=False)

    assert (finding.level, finding.about) == ("wrong", "server")


@pytest.mark.parametrize("key", ["k\n", "sch\u00fc"])
def test_a_key_that_no_header_can_carry_is_wrong(script: Script, key: str) -> None:
    (said,) = wrong(found(script, VERSION, Say(), METRICS, key=key))

    assert said == "server: The application key has characters that no key has."
