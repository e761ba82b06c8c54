"""The nginx file that is shipped, with a real nginx and a real server."""

from __future__ import annotations

import contextlib
import http.client
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.servers import RunningServer, eventually
from tests.support.services.ports import free_ports
from tests.support.source import ROOT

SHIPPED = ROOT / "etc" / "nginx.conf"
METRICS = (
    "/metrics",
    "/metrics/",
    "/metrics?x=1",
    "/metrics%2f",
    "/metrics%2F",
    "//metrics",
    "///metrics//",
    "/%6detrics",
    "/./metrics",
    "/v1/../metrics",
    "/metrics/.",
    "/metrics/..%2fmetrics",
    "/METRICS",
    "/metrics;x",
    "/metrics%20",
    "http://queuey/metrics/",
)
"""Forms of one path, some of which only nginx or only the server takes for it."""


@pytest.fixture(scope="module")
def nginx() -> str:
    program = shutil.which("nginx")
    if program is None:
        pytest.skip("nginx is not installed: sh scripts/need.sh nginx")
    return program


@pytest.fixture
def ports(nginx: str, shipped_server: RunningServer, tmp_path: Path) -> Iterator[tuple[int, int]]:
    """Where nginx listens for callers that may see metrics, and for those that may not."""
    text = SHIPPED.read_text()
    free = free_ports(2, ["127.0.0.1"])
    for there, here in (
        ("server 127.0.0.1:5000;", f"server 127.0.0.1:{shipped_server.port};"),
        ("listen 8080;", "listen 127.0.0.1:PORT;"),
        ("/var/log/nginx/queuey.log", str(tmp_path / "access.log")),
    ):
        assert text.count(there) == 1
        text = text.replace(there, here)
    yield from _running(nginx, tmp_path, text, free)


def _running(nginx: str, folder: Path, text: str, free: list[int]) -> Iterator[tuple[int, int]]:
    """Two of them: in the second nobody is an address that is allowed."""
    processes = []
    try:
        for number, port in enumerate(free):
            own = text.replace("PORT", str(port))
            if number:
                own = own.replace("allow 127.0.0.1;", "")
            (folder / f"{number}").mkdir()
            conf = folder / f"{number}" / "nginx.conf"
            conf.write_text(f"pid {folder}/{number}/pid;\n{own}")
            command = [nginx, "-p", str(folder / f"{number}"), "-c", str(conf), "-e", "stderr", "-g", "daemon off;"]
            processes.append(subprocess.Popen(command))
        for port in free:
            eventually(lambda port=port: _listens(port))  # type: ignore[misc]
        yield free[0], free[1]
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(30)


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 10):
        return True
    return False


def _ask(port: int, target: str) -> tuple[int, bytes]:
    """A request whose target stays as it is."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.putrequest("GET", target, skip_accept_encoding=True)
        connection.endheaders()
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_metrics_are_told_to_allowed_addresses_only_whatever_the_form_of_the_path(ports: tuple[int, int]) -> None:
    allowed, others = ports

    assert _ask(allowed, "/metrics")[0] == 200
    assert _ask(others, "/__heartbeat__") == (200, b"OK")
    told = {target: status for target in METRICS for status, body in [_ask(others, target)] if b"queuey_" in body}
    assert told == {}
    assert {_ask(others, target)[0] for target in METRICS} <= {400, 403, 404}


def test_the_server_does_not_take_nginx_for_this_machine(ports: tuple[int, int], shipped_server: RunningServer) -> None:
    """Were the location for metrics missing, the general one says for whom it asks."""
    text = SHIPPED.read_text()

    assert "proxy_set_header X-Forwarded-For $remote_addr;" in text
    assert _ask(shipped_server.port, "/metrics")[0] == 200


def test_the_location_of_the_console_sends_what_the_shipped_one_sends() -> None:
    """It left X-Forwarded-For to the client, which the log then had for its address."""

    def sent(text: str, location: str) -> set[str]:
        (inside,) = re.findall(rf"location {re.escape(location)} {{(.*?)}}", text, re.DOTALL)
        return set(re.findall(r"proxy_(?:set_header|http_version) .*;", inside))

    shipped = sent(SHIPPED.read_text(), "/")

    assert len(shipped) == 5
    assert sent((ROOT / "docs/console.md").read_text(), "^~ /console") == shipped
