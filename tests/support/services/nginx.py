"""The shipped configuration of nginx, run by a real nginx: only its addresses and folders are the test's own."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.services.guard import held
from tests.support.services.jars import ROOT
from tests.support.services.ports import free_ports
from tests.support.services.process import Process, ServiceError
from tests.support.services.service import eventually

SHIPPED = ROOT / "etc" / "nginx.conf"
ADDRESS = "127.0.0.1"
_TEMPORARY = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")


class NginxMissing(ServiceError):
    """The program is not installed."""


@contextmanager
def nginx(folder: Path, upstream: int, *, listen: str = ADDRESS, settings: str = "") -> Iterator[int]:
    """nginx before a server on a port of this machine; the port where it listens.

    :param folder: for its log, ``log.txt``, and its access log; it is made and removed.
    :param listen: its own address.
    :param settings: more lines of the ``http`` block.
    :raises NginxMissing: it is not installed.
    """
    (port,) = free_ports(1, [listen])
    with held(folder):
        process = Process(
            folder / "nginx", _command(folder, _configured(folder, f"{listen}:{port}", upstream, settings))
        )
        process.start()
        try:
            eventually(lambda: _listens(process, listen, port), "nginx does not listen")
            yield port
        finally:
            process.kill()


def _configured(folder: Path, listen: str, upstream: int, settings: str) -> Path:
    text = SHIPPED.read_text()
    folders = "".join(f"{name}_temp_path {folder}/{name};" for name in _TEMPORARY)
    for old, new in (
        ("listen 8080;", f"listen {listen};"),
        ("server 127.0.0.1:5000;", f"server {ADDRESS}:{upstream};"),
        ("/var/log/nginx/queuey.log", f"{folder}/access.log"),
        ("worker_processes auto;", "worker_processes 1;"),
        ("http {", f"http {{ {folders} {settings}"),
    ):
        if text.count(old) != 1:
            raise ServiceError(f"{SHIPPED} has {old!r} not once: say here what stands in its place")
        text = text.replace(old, new)
    path = folder / "nginx.conf"
    path.write_text(text)
    return path


def _command(folder: Path, configuration: Path) -> list[str]:
    # Debian keeps servers where only root's PATH leads.
    program = shutil.which("nginx", path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"]))
    if program is None:
        raise NginxMissing("nginx is missing. On Debian: apt-get install nginx")
    # One process: it ends when it is killed, and nothing of it stays behind.
    alone = f"daemon off; master_process off; pid {folder}/nginx.pid; error_log stderr;"
    return [program, "-p", str(folder), "-c", str(configuration), "-e", "stderr", "-g", alone]


def _listens(process: Process, address: str, port: int) -> bool:
    if process.pid is None:
        raise ServiceError(f"nginx ended and said:\n{process.log_end()}")
    try:
        socket.create_connection((address, port), timeout=30).close()
    except OSError:
        return False
    return True
