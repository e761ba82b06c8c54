"""The shipped server: one process, one event loop, one port."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import ipaddress
import logging
import resource
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import uvloop

from queuey.errors import ConfigurationError
from queuey.future import run
from queuey.monitor import logs
from queuey.server.connection import Connection
from queuey.server.faces import open_pipeline
from queuey.server.loop import LoopServer
from queuey.service import Service
from queuey.settings import Settings

log = logging.getLogger(__name__)

LARGE_BLOCK_BYTES = 4 << 20
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""Of glibc's ``malloc.h``."""

GC_THRESHOLDS = (50_000, 20, 50)
"""Requests make no cycles; at the usual thresholds the collector takes some 4 % of an append."""
BACKLOG = 4096
"""Connections that wait to be accepted; the kernel cuts it to net.core.somaxconn. One that finds no place here tries again after a second."""


@dataclass(frozen=True)
class Started:
    """What there is to tell once the server listens."""

    url: str
    data: str
    backend: str
    notices: tuple[str, ...]
    application: str | None = None
    key: str | None = field(default=None, repr=False)
    """A key that was made just now, to be shown once."""


def serve(settings: Settings, announce: Callable[[Started], None], *, first_key: str | None = None) -> int:
    """Serve until SIGTERM or SIGINT, then finish the requests under way.

    :param announce: called once, when requests are answered.
    :param first_key: the key of the application ``demo``, if it was chosen.
    :returns: the exit code.
    :raises ConfigurationError: the address is taken, or a store cannot be opened.
    """
    logs.set_up(settings.log.level, settings.log.format)
    with _bound(settings.server.host, settings.server.port, settings.server.client_timeout_seconds) as listener:
        _raise_file_limit()
        service = Service.open(settings)
        try:
            made = run(service.start(first_key))
            started = Started(
                f"http://{_bracketed(settings.server.host)}:{listener.getsockname()[1]}",
                str(Path(settings.server.data).resolve()),
                settings.storage.backend,
                settings.notices,
                *(made or ()),
            )
            for notice in (*settings.notices, *without_tls(settings.server.host), *service.warnings()):
                log.warning("%s", notice)
            gc.freeze()  # what is loaded by now stays: no collection needs to look at it
            gc.set_threshold(*GC_THRESHOLDS)
            _give_back_large_blocks()
            uvloop.run(_serve(service, listener, lambda: announce(started)))
        finally:
            service.close()
    return 0


def _give_back_large_blocks() -> None:
    """Let glibc give blocks of :data:`LARGE_BLOCK_BYTES` back to the system when they are freed.

    By default it keeps up to 32 MiB of them in each thread's heap, between smaller ones: after the largest uploads 190 MiB
    stayed (``pytest tests/faults/test_worst.py``). Once that is changed, glibc keeps no more than 128 KiB free at the end of a
    heap. The page faults of the next chunk then cost an Arrow stream 13 % of its rate (``python -m tests.bench against``). So
    glibc is told to keep twice a large block there, its own ratio. Other C libraries have no such settings.
    """
    with contextlib.suppress(AttributeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_THRESHOLD, LARGE_BLOCK_BYTES)
        libc.mallopt(_M_TRIM_THRESHOLD, 2 * LARGE_BLOCK_BYTES)


def without_tls(host: str) -> tuple[str, ...]:
    """A notice if others than this machine can reach an address: this server speaks plain HTTP.

    >>> without_tls("::1"), without_tls("localhost"), len(without_tls("0.0.0.0"))
    ((), (), 1)
    """
    try:
        inside = ipaddress.ip_address(host).is_loopback
    except ValueError:
        inside = host == "localhost"
    text = (
        f"listens on {host or 'all addresses'} without TLS: anybody on the network between can read keys and messages. "
        "Let a proxy with TLS listen there (etc/nginx.conf), and this server on 127.0.0.1 or a network of your own"
    )
    return () if inside else (text,)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _bound(host: str, port: int, patience_seconds: int) -> socket.socket:
    """A socket on the address, not listening yet.

    Connections inherit its options: the kernel ends one whose client has taken nothing for so long. The
    server gives up on it as well, but what it has sent by then, megabytes, would stay in the socket (G17).

    :raises ConfigurationError: the address is taken, or none of this machine's.
    """
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, patience_seconds * 1000)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise ConfigurationError(
            f"cannot listen on {host}:{port}: {error.strerror}; choose another address with --host and --port"
        ) from error
    return listener


def _raise_file_limit() -> None:
    """A connection is a file handle: take as many as this user may have."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


async def _serve(service: Service, listener: socket.socket, listening: Callable[[], None]) -> None:
    loop = asyncio.get_running_loop()
    running = LoopServer(open_pipeline(service))
    running.open(loop)
    server = await loop.create_server(lambda: Connection(running), sock=listener, backlog=BACKLOG)
    asked = asyncio.Event()

    def stop() -> None:
        """Finish the requests under way; asked again, wait for no client."""
        if asked.is_set():
            running.abandon()
        asked.set()

    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stop)
    listening()
    await asked.wait()
    server.close()
    loop.call_later(service.settings.server.drain_seconds, running.abandon)
    await running.stop()
    running.close()
