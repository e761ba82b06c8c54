"""The shipped server with a certificate of its own, and settings that it takes over while it runs."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import shutil
import signal
import socket
import ssl
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import pytest
import requests
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from qdo.client import Client
from queuey.errors import InvalidApplicationKey, QueueyError
from queuey.server.open_files import BESIDE
from tests.support.client import new_name
from tests.support.commands import command, done, run_in
from tests.support.loaded import Program
from tests.support.raw import TIMEOUT_SECONDS
from tests.support.servers import STOP_SECONDS, eventually
from tests.support.services.certificates import Authority, Identity, name_in
from tests.support.trusting import published
from tests.support.visitors import Visitor

KEY, OTHER_KEY = "1a" * 16, "2b" * 16


class Secured(NamedTuple):
    """A server that speaks TLS."""

    url: str
    folder: Path
    authority: Authority
    process: Program

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", int(self.url.rpartition(":")[2])

    def log(self) -> list[dict[str, Any]]:
        """Whole lines of the log."""
        text = (self.folder / "log.txt").read_text()
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

    def says(self, words: str, *, times: int = 1) -> None:
        """Wait until the log has said this."""
        eventually(lambda: sum(words in line["event"] for line in self.log()) >= times)

    def write(self, *lines: str, keys: str = KEY) -> None:
        """Settings, with the certificate and the keys of ``demo``."""
        parts = [
            "[server]",
            f"data = {self.folder / 'data'}",
            f"tls_cert = {self.folder / 'server.pem'}",
            f"tls_key = {self.folder / 'server.key'}",
            "[application_keys]",
            f"demo = {keys}",
            *lines,
        ]
        (self.folder / "queuey.ini").write_text("\n".join(parts) + "\n")

    def reload(self, words: str = "settings were reloaded", *, times: int = 1) -> None:
        self.process.send_signal(signal.SIGHUP)
        self.says(words, times=times)

    def client(self, key: str = KEY) -> Client:
        return Client(self.url, "demo", key, retries=0)

    @contextlib.contextmanager
    def connected(self, **client: Any) -> Iterator[ssl.SSLSocket]:
        """A connection of TLS by hand."""
        context = ssl.create_default_context(cafile=str(self.authority.file))
        for name, value in client.items():
            setattr(context, name, value)
        with socket.create_connection(self.address, TIMEOUT_SECONDS) as plain:
            with context.wrap_socket(plain, server_hostname="127.0.0.1") as connection:
                yield connection


def installed(identity: Identity, folder: Path) -> None:
    identity.key.chmod(0o600)
    for source, target in ((identity.key, folder / "server.key"), (identity.cert, folder / "server.pem")):
        shutil.copy2(source, target.with_suffix(".new"))
        target.with_suffix(".new").replace(target)


@pytest.fixture
def secured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Secured]:
    with serving(tmp_path, monkeypatch) as found:
        yield found


@contextlib.contextmanager
def serving(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *prefix: str) -> Iterator[Secured]:
    """:param prefix: of its command."""
    authority = Authority(tmp_path / "ca")
    installed(authority.identity("first", "127.0.0.1"), tmp_path)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(authority.file))
    with (tmp_path / "log.txt").open("wb") as log, (tmp_path / "out.txt").open("wb") as out:
        found = Secured("", tmp_path, authority, None)  # type: ignore[arg-type]
        found.write()
        process = Program(
            [*prefix, *command("serve", "-c", str(tmp_path / "queuey.ini"), "--port", "0")],
            stdout=out,
            stderr=log,
            stdin=subprocess.DEVNULL,
            env=os.environ | {"PYTHONUNBUFFERED": "1", "QUEUEY_LOG_FORMAT": "json"},
        )
    try:
        url = eventually(lambda: _announced(process, tmp_path))
        yield found._replace(url=url, process=process)
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(STOP_SECONDS) == 0


def _announced(process: Program, folder: Path) -> str:
    assert process.poll() is None, (folder / "log.txt").read_text()
    text = (folder / "out.txt").read_text()
    return text[text.index("https://") : text.index(", data in")] if ", data in" in text else ""


def test_clients_read_and_write_over_tls(secured: Secured) -> None:
    body = os.urandom(900_000)
    with secured.client() as client:
        queue = client.create_queue(new_name()).name
        client.append(queue, body)
        assert [message.body for message in client.read(queue).messages] == [body]
        with client.stream_ndjson(queue) as stream:
            assert [message.body for message in stream] == [body]

    page = requests.get(f"{secured.url}/console/sign-in", timeout=TIMEOUT_SECONDS)
    assert "; Secure" in page.headers["set-cookie"]
    with pytest.raises(requests.RequestException):
        requests.get(secured.url.replace("https", "http"), timeout=TIMEOUT_SECONDS)


def test_a_renewed_certificate_is_served_and_open_connections_go_on(secured: Secured) -> None:
    with secured.connected() as before:
        installed(secured.authority.identity("second", "127.0.0.1"), secured.folder)
        secured.reload()

        with secured.connected() as after:
            assert _name(after) == "second"
        assert _name(before) == "first"
        assert _status(before) == 200


def _name(connection: ssl.SSLSocket) -> str:
    told = connection.getpeercert(binary_form=True)
    assert told is not None
    return name_in(told)


def _status(connection: ssl.SSLSocket) -> int:
    """Ask for the version on this very connection."""
    connection.sendall(b"GET /__version__ HTTP/1.1\r\nHost: q\r\n\r\n")
    answer = b""
    while b"}" not in answer:
        piece = connection.recv(4096)
        assert piece, answer
        answer += piece
    return int(answer.split()[1])


def test_keys_and_the_log_change_while_connections_stay(secured: Secured) -> None:
    with secured.connected() as connection, secured.client() as former, secured.client(OTHER_KEY) as later:
        former.figures()
        with pytest.raises(InvalidApplicationKey):
            later.figures()

        secured.write("[log]", "requests = true", "[limits]", "max_in_flight = 99", keys=OTHER_KEY)
        secured.reload()

        later.figures()
        with pytest.raises(InvalidApplicationKey):
            former.figures()
        assert _status(connection) == 200
        secured.says("GET application 200")
        secured.says("wait for the next start: [limits] max_in_flight")


def test_issuers_of_the_console_and_secrets_change_while_it_runs(secured: Secured) -> None:
    old, new = "old-secret" * 4, "new-secret" * 4
    issuer = (
        "[issuer:staff]",
        "issuer = https://login.example.com",
        "audience = console",
        f"keys = {secured.folder / 'keys.json'}",
        "client_id = console",
        "authorization_endpoint = https://login.example.com/auth",
        "token_endpoint = https://login.example.com/token",
    )
    (secured.folder / "keys.json").write_bytes(published())
    secured.write("[sqs]", f"secrets = {old}")
    secured.reload()
    made = run_in({}, None, "key", "new", "demo", "--sqs", "-o", "json", "-c", str(secured.folder / "queuey.ini"))
    key = json.loads(done(made).text)
    with Visitor(secured.url) as visitor:
        visitor.session.verify = str(secured.authority.file)
        visitor.signs_in(KEY)
        eventually(lambda: _lists_queues(secured, key))
        assert "Sign in at staff" not in visitor.get("/console/sign-in")

        both = ("[sqs]", f"secrets = {new} {old}", "[console]", f"url = {secured.url}")
        secured.write(*both, f"secrets = {old}", *issuer)
        secured.reload(times=2)

        assert "Sign in at staff" in visitor.get("/console/sign-in")
        there = visitor.request("GET", "/console/sign-in/at/staff").headers["location"]
        assert there.startswith("https://login.example.com/auth?")
        assert f"{quote(secured.url, safe='')}%2Fconsole%2Fsign-in%2Ffrom%2Fstaff" in there
        assert visitor.request("GET", "/console").headers["location"].startswith("/console/sign-in")
        assert _lists_queues(secured, key)

        visitor.signs_in(KEY)
        secured.write("[sqs]", f"secrets = {new}", "[console]", f"secrets = {new} {old}")
        secured.reload(times=3)

        assert "Sign in at staff" not in visitor.get("/console/sign-in")
        assert visitor.request("GET", "/console").headers["location"] == "/console/a/demo"
        assert not _lists_queues(secured, key)


def _lists_queues(secured: Secured, key: dict[str, str]) -> bool:
    """Whether the server takes a signature that is made with an access key."""
    credentials = Credentials(key["access_key_id"], key["secret_access_key"])
    headers = {"X-Amz-Target": "AmazonSQS.ListQueues", "Content-Type": "application/x-amz-json-1.0"}
    asked = AWSRequest("POST", secured.url, data=b"{}", headers=headers)
    SigV4Auth(credentials, "sqs", "eu-west-1").add_auth(asked)
    answer = requests.post(secured.url, data=b"{}", headers=dict(asked.headers), timeout=TIMEOUT_SECONDS)
    assert answer.status_code in (200, 400, 403), answer.text
    return answer.status_code == 200


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda one: one.write("[serer]"), "section [serer] is unknown"),
        (lambda one: one.write("[issuer:a]", "kind = browserid"), "[issuer:a]"),
        (lambda one: (one.folder / "server.key").chmod(0o644), "its mode is 0644"),
        (lambda one: (one.folder / "server.pem").write_text("none"), "expected a PEM file"),
        (lambda one: (one.folder / "queuey.ini").unlink(), "no such file"),
    ],
)
def test_bad_settings_are_refused_in_the_log_and_the_old_ones_stay(
    secured: Secured, spoil: Callable[[Secured], None], said: str
) -> None:
    secured.write(keys=OTHER_KEY)
    spoil(secured)

    secured.reload("settings were not reloaded, and stay as they are")

    (event,) = [line["event"] for line in secured.log() if line["level"] == "error"][:1]
    assert said in event
    with secured.client() as client, secured.connected() as connection:
        client.figures()
        assert _name(connection) == "first"
    with secured.client(OTHER_KEY) as other, pytest.raises(QueueyError):
        other.figures()


def test_a_key_that_others_may_read_is_refused_at_the_start(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    installed(authority.identity("first", "127.0.0.1"), tmp_path)
    (tmp_path / "server.key").chmod(0o644)
    variables = {"QUEUEY_TLS_CERT": str(tmp_path / "server.pem"), "QUEUEY_TLS_KEY": str(tmp_path / "server.key")}

    ended = subprocess.run(
        command("serve", "--port", "0", "--data", str(tmp_path / "data")),
        env=os.environ | variables,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (ended.returncode, "chmod o-rwx,g-w" in ended.stderr, "Traceback" in ended.stderr) == (2, True, False)


def test_the_end_of_its_terminal_still_ends_a_server(tmp_path: Path) -> None:
    """A hang-up reads settings anew only where no terminal has gone."""
    ours, theirs = pty.openpty()

    with (tmp_path / "out.txt").open("wb") as out:
        process = subprocess.Popen(
            ["setsid", "--ctty", *command("serve", "--port", "0", "--data", str(tmp_path / "data"))],
            stdin=theirs,
            stdout=out,
            stderr=out,
            env=os.environ | {"PYTHONUNBUFFERED": "1", "QUEUEY_KEY": KEY},
        )
    os.close(theirs)
    eventually(lambda: b"listens on" in (tmp_path / "out.txt").read_bytes())

    os.close(ours)

    assert process.wait(STOP_SECONDS) == 0
    assert "stopped: " in (tmp_path / "out.txt").read_text()


FILES, WAITING = 200, 150


def test_clients_that_finish_no_handshake_have_places_as_all_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were counted once their handshake was over: 600 took all files of a server, those of the store too."""
    limited = ("sh", "-c", f'ulimit -n {FILES}; exec "$@"', "sh")
    with serving(tmp_path, monkeypatch, *limited) as few, contextlib.ExitStack() as waiting:
        client = few.client()
        client.create_queue("mail")
        beyond = WAITING - (FILES - BESIDE)
        begun = b"\x16\x03\x01\x02\x00\x01"  # of a greeting
        sockets = [
            waiting.enter_context(socket.create_connection(few.address, TIMEOUT_SECONDS)) for _ in range(WAITING)
        ]
        for one in sockets[::2]:
            with contextlib.suppress(OSError):
                one.send(begun)

        closed = eventually(lambda: found if (found := sum(map(_is_closed, sockets))) >= beyond else 0)

        assert closed < beyond + 20, "they ended since they took too long, and had all files until then"
        client.append("mail", "on an open connection")
        waiting.close()
        eventually(lambda: _texts(few) == ["on an open connection"])


def _is_closed(one: socket.socket) -> bool:
    one.setblocking(False)
    try:
        return not one.recv(1)
    except BlockingIOError:
        return False
    except OSError:
        return True


def _texts(server: Secured) -> list[str]:
    """What a new connection reads; nothing if it has no place yet."""
    try:
        return [message.text for message in server.client().read("mail").messages]
    except QueueyError:
        return []
