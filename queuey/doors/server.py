"""The shipped server: one granian process, one event loop, one port."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import resource
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import uvloop
from granian.constants import HTTPModes, Interfaces
from granian.http import HTTP1Settings
from granian.server.embed import Server

from queuey import logs
from queuey.api.serve import Desk
from queuey.doors.asgi import LoopDoor
from queuey.errors import ConfigurationError
from queuey.promise import run
from queuey.service import Service
from queuey.settings import Settings

log = logging.getLogger(__name__)

GC_THRESHOLDS = (50_000, 20, 50)
"""Requests make no cycles; at the usual thresholds the collector takes some 4 % of an append."""
HEADER_TIMEOUT_MS = 10_000
MAX_HEADER_BYTES = 24 << 10
"""Headers of more than 32 KiB are refused; with a buffer of that size up to 46 KiB were seen to pass."""
BACKLOG = 1024


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
    logs.set_up(settings.log_level, settings.log_format)
    port = _free_port(settings.host, settings.port)
    _raise_file_limit()
    service = Service.open(settings)
    try:
        made = run(service.start(first_key))
        started = Started(
            f"http://{_bracketed(settings.host)}:{port}",
            str(Path(settings.data).resolve()),
            settings.storage_backend,
            settings.notices,
            *(made or ()),
        )
        for notice in settings.notices:
            log.warning("%s", notice)
        gc.freeze()  # what is loaded by now stays: no collection needs to look at it
        gc.set_threshold(*GC_THRESHOLDS)
        uvloop.run(_serve(service, settings, port, lambda: announce(started)))
    finally:
        service.close()
    return 0


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _free_port(host: str, port: int) -> int:
    """The port to listen on.

    Granian shares its port with whoever asks, so a second server would take half of the first one's
    requests; binding without sharing tells.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise ConfigurationError(
                f"cannot listen on {host}:{port}: {error.strerror}; choose another address with --host and --port"
            ) from error
        chosen: int = probe.getsockname()[1]
        return chosen


def _raise_file_limit() -> None:
    """A connection is a file handle: take as many as this user may have."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


async def _serve(service: Service, settings: Settings, port: int, listening: Callable[[], None]) -> None:
    door = LoopDoor(Desk(service))
    door.open(asyncio.get_running_loop())
    server = Server(
        door,
        address=settings.host,
        port=port,
        interface=Interfaces.ASGINL,
        http=HTTPModes.http1,
        websockets=False,
        backlog=BACKLOG,
        backpressure=settings.connections,
        http1_settings=HTTP1Settings(header_read_timeout=HEADER_TIMEOUT_MS, max_buffer_size=MAX_HEADER_BYTES),
        log_enabled=False,
    )

    def stop() -> None:
        """Take no more requests and finish those under way; asked again, or after a while, wait for no client."""
        loop = asyncio.get_running_loop()
        loop.call_later(0 if server.interrupt_signal else settings.drain_seconds, door.abandon)
        server.stop()  # type: ignore[no-untyped-call]  # granian gives it no types

    serving = asyncio.ensure_future(server.serve())
    await asyncio.sleep(0)  # granian sets its own signal handlers in its first step; ours come after
    for name in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(name, stop)
    waiting = asyncio.ensure_future(_answers(settings.host, port))
    await asyncio.wait({serving, waiting}, return_when=asyncio.FIRST_COMPLETED)
    if waiting.done():
        _end_deaf_connections(port, settings.client_timeout_seconds)
        listening()
    await serving
    door.close()


def _end_deaf_connections(port: int, seconds: int) -> None:
    """Let the kernel end a connection whose client has taken nothing for so long (G17).

    The task that answers it gives up by itself, but what it has sent stays in the socket, megabytes of it,
    and the socket open. Granian keeps the listening socket to itself, so it is looked for; those that it
    accepts inherit the option.
    """
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            if not entry.is_socket():
                continue
            with socket.socket(fileno=os.dup(int(entry.name))) as found:
                listens = found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
                if listens and found.family != socket.AF_UNIX and found.getsockname()[1] == port:
                    found.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, seconds * 1000)


async def _answers(host: str, port: int) -> None:
    """Return once the port takes connections."""
    while True:
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection(host, port)
            writer.close()
            return
        await asyncio.sleep(0.01)
