"""Where issuers' keys come from: files, and one address that is asked now and again, within bounds."""

from __future__ import annotations

import json
import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from queuey.clock import ManualClock
from queuey.errors import ConfigurationError
from queuey.security import key_files, outgoing
from queuey.security.key_files import KeyFileError, KeySource, Refresher, fetch
from queuey.settings.issuers import Issuer
from tests.support.key_site import Site, serving


@pytest.fixture
def site() -> Iterator[Site]:
    with serving(Site()) as found:
        yield found


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def source(keys: str, clock: ManualClock) -> KeySource[Any]:
    """Keys are one JSON text here."""
    return KeySource(Issuer("login", "oidc", "https://login.example.org", ("us",), keys), _text, clock)


def _text(content: bytes) -> str:
    found = json.loads(content)
    if not isinstance(found, str):
        raise TypeError("expected a text")
    return found


# Fetching.


@pytest.mark.parametrize("chunked", [False, True])
def test_what_stands_at_the_address_is_fetched(site: Site, chunked: bool) -> None:
    site.chunked = chunked
    site.body = b'"' + b"x" * 100_000 + b'"'

    assert fetch(site.url) == site.body
    assert [(asked[":path"], asked["host"]) for asked in site.asked] == [("/keys", site.url.split("/")[2])]


def test_nothing_of_this_machine_goes_along(site: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No proxy, no password, no cookie."""
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login joe password secret\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    site.headers["Set-Cookie"] = "a=b"

    fetch(site.url)
    fetch(site.url)

    assert len(site.asked) == 2
    assert [{"authorization", "cookie", "proxy-authorization"} & set(asked) for asked in site.asked] == [set(), set()]


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_is_not_followed(site: Site, status: int) -> None:
    """The host that stands in the settings is the only one that is ever asked."""
    with serving(Site()) as other:
        site.status, site.headers = status, {"Location": other.url}

        with pytest.raises(KeyFileError, match=f"answered {status}"):
            fetch(site.url)

        assert other.asked == []


@pytest.mark.parametrize("status", [204, 304, 401, 404, 500, 503])
def test_an_answer_that_is_not_200_is_none(site: Site, status: int) -> None:
    site.status, site.body = status, b""

    with pytest.raises(KeyFileError, match=f"answered {status}"):
        fetch(site.url)


@pytest.mark.parametrize("chunked", [False, True])
def test_an_answer_has_a_size(site: Site, chunked: bool) -> None:
    site.body, site.chunked = b"x" * (key_files.MAX_BYTES + 1), chunked

    with pytest.raises(KeyFileError, match="longer than 262144 bytes"):
        fetch(site.url)


def test_an_answer_may_not_stand_still(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outgoing, "READ_SECONDS", 0.2)
    site.pieces = 1

    with pytest.raises(KeyFileError, match="cannot be reached"):
        fetch(site.url)


def test_an_answer_may_not_dribble(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each piece in time, and all of them too late."""
    monkeypatch.setattr(key_files, "WHOLE_SECONDS", 0.0)
    site.body = b'"' + b"x" * 50_000 + b'"'

    with pytest.raises(KeyFileError, match="took longer"):
        fetch(site.url)


@contextmanager
def dribbling(beginning: bytes) -> Iterator[int]:
    """The port of a server that sends this, and then a byte at a time, as long as anybody listens."""
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection, suppress(OSError):
                connection.sendall(beginning)
                while not over.wait(0.01):
                    connection.sendall(b"x")

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            over.set()
            thread.join()


@pytest.mark.parametrize(
    ("scheme", "beginning"),
    [("http", b"HTTP/1.1 200 OK\r\nX-Long: "), ("http", b""), ("https", b"\x16\x03\x03\x40\x00")],
    ids=["a header", "a status line", "a handshake"],
)
def test_no_part_of_an_answer_may_dribble(monkeypatch: pytest.MonkeyPatch, scheme: str, beginning: bytes) -> None:
    """A byte comes long before the time for a read is over; without an end for the whole this would take hours."""
    monkeypatch.setattr(key_files, "WHOLE_SECONDS", 0.3)

    with dribbling(beginning) as port, pytest.raises(KeyFileError, match=r"took longer than 0\.3 seconds"):
        fetch(f"{scheme}://127.0.0.1:{port}/keys")


def test_an_answer_cut_short_is_none(site: Site) -> None:
    site.headers["Content-Length"] = "100"

    with pytest.raises(KeyFileError):
        fetch(site.url)


def test_nobody_there_is_a_failure_that_says_where() -> None:
    with pytest.raises(KeyFileError, match=r"http://127\.0\.0\.1:9/keys cannot be reached"):
        fetch("http://127.0.0.1:9/keys")


# Keeping.


def test_keys_stay_when_a_look_fails_and_for_a_day(site: Site, clock: ManualClock) -> None:
    keys = source(site.url, clock)
    assert keys.keys() is None
    assert keys.read() is True

    site.status = 500
    clock.advance(23 * 3600)
    with pytest.raises(KeyFileError):
        keys.read()
    assert keys.keys() == "one"
    site.status, site.body = 200, b"no JSON"
    with pytest.raises(KeyFileError, match="holds no keys"):
        keys.read()
    assert keys.keys() == "one"

    clock.advance(3601)

    assert keys.keys() is None
    site.body = b'"two"'
    assert keys.read() is True
    assert keys.keys() == "two"


def test_keys_that_lapse_are_told_of_once(site: Site, clock: ManualClock) -> None:
    """What they proved is remembered elsewhere, and has to be forgotten then."""
    keys, told = source(site.url, clock), list[str]()
    refresher = Refresher([keys], lambda: told.append("changed"))
    refresher.look(keys)
    site.status = 500
    seen = []
    for hours in (0, 23, 2, 1, 1):
        told.clear()
        clock.advance(hours * 3600)
        refresher.look(keys)
        seen.append(len(told))
    assert seen == [0, 0, 1, 0, 0]

    site.status = 200
    refresher.look(keys)
    site.status = 500
    clock.advance(25 * 3600)
    refresher.look(keys)

    assert told == ["changed"]


def test_a_look_comes_soon_after_keys_lapse(tmp_path: Path, clock: ManualClock) -> None:
    file = tmp_path / "keys"
    file.write_text('"one"')
    issuer = Issuer("login", "oidc", "https://login.example.org", ("us",), str(file), refresh_seconds=80_000)
    keys: KeySource[Any] = KeySource(issuer, _text, clock)
    day = key_files.KEPT_SECONDS

    assert key_files._pause(keys) == 80_000  # never read
    keys.read()
    assert key_files._pause(keys) == 80_000
    clock.advance(80_000)
    assert key_files._pause(keys) == day - 80_000 + 1
    clock.advance(day - 80_000 - 10)
    assert key_files._pause(keys) == key_files.LEAST_PAUSE_SECONDS
    clock.advance(11)
    assert keys.keys() is None
    assert key_files._pause(keys) == 80_000


def test_a_look_says_whether_something_changed(tmp_path: Path, clock: ManualClock) -> None:
    path = tmp_path / "keys"
    keys = source(str(path), clock)
    told = []
    for body in (b'"one"', b'"one"', b'"two"', b'"two"'):
        path.write_bytes(body)
        told.append(keys.read())

    assert told == [True, False, True, False]


def test_a_file_has_a_size_too(tmp_path: Path, clock: ManualClock) -> None:
    (tmp_path / "keys").write_bytes(b"x" * (key_files.MAX_BYTES + 1))

    with pytest.raises(KeyFileError, match="longer than"):
        source(str(tmp_path / "keys"), clock).read()


# Looking now and again.


def test_keys_in_a_file_must_be_there_at_start(tmp_path: Path, clock: ManualClock) -> None:
    missing = Refresher([source(str(tmp_path / "gone"), clock)], lambda: None)

    with pytest.raises(ConfigurationError, match=r"\[issuer:login\] keys: .*gone cannot be read"):
        missing.start()


def test_an_address_may_be_out_of_reach_at_start(clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    keys = source("http://127.0.0.1:9/keys", clock)
    refresher = Refresher([keys], lambda: None)

    with caplog.at_level(logging.WARNING):
        refresher.start()
        refresher.stop()

    assert keys.keys() is None
    assert "[issuer:login] keys: http://127.0.0.1:9/keys cannot be reached" in caplog.text


def test_the_first_look_is_over_when_the_server_starts(site: Site, clock: ManualClock) -> None:
    keys = source(site.url, clock)
    refresher = Refresher([keys], lambda: None)

    refresher.start()
    refresher.stop()

    assert keys.keys() == "one"
    assert len(site.asked) == 1


def test_looks_go_on_by_themselves_and_tell_of_changes(
    site: Site, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_files, "LEAST_PAUSE_SECONDS", 0.01)
    keys = source(site.url, clock)
    quick = KeySource(Issuer(**{**_values(keys.issuer), "refresh_seconds": 0}), _text, clock)
    changed = threading.Event()
    refresher = Refresher([quick], changed.set)
    refresher.start()
    assert quick.keys() == "one"
    changed.clear()

    site.body = b'"two"'

    assert changed.wait(60)
    refresher.stop()
    assert quick.keys() == "two"


def test_keys_are_looked_at_once_a_minute_at_most(site: Site, clock: ManualClock) -> None:
    keys = KeySource(Issuer(**{**_values(source(site.url, clock).issuer), "refresh_seconds": 0}), _text, clock)
    refresher = Refresher([keys], lambda: None)

    refresher.start()
    refresher.stop()

    assert key_files.LEAST_PAUSE_SECONDS >= 60
    assert len(site.asked) == 1


def _values(issuer: Issuer) -> dict[str, Any]:
    return {name: getattr(issuer, name) for name in Issuer.__slots__}


def test_looks_go_on_after_a_failure_of_any_kind(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(key_files, "LEAST_PAUSE_SECONDS", 0.01)
    (tmp_path / "keys").write_text('"one"')
    keys = source(str(tmp_path / "keys"), clock)
    quick = KeySource(Issuer(**{**_values(keys.issuer), "refresh_seconds": 0}), _text, clock)
    failed, changed = threading.Event(), threading.Event()

    def note() -> None:
        if not failed.is_set():
            failed.set()
            raise RuntimeError("planted")
        changed.set()

    refresher = Refresher([quick], note)
    refresher.start()
    (tmp_path / "keys").write_text('"two"')
    assert failed.wait(60)
    (tmp_path / "keys").write_text('"three"')

    assert changed.wait(60)
    refresher.stop()
    assert "planted" in caplog.text
