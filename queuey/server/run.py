"""The shipped server: one process, one event loop, one port."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import os
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import uvloop

from queuey.errors import ConfigurationError
from queuey.file_limit import raise_file_limit
from queuey.future import run
from queuey.monitor import logs
from queuey.monitor.history import counted
from queuey.monitor.metrics import CERTIFICATE_EXPIRY
from queuey.server.collector import CollectorTurns, look_seldom
from queuey.server.connection import Connection
from queuey.server.faces import open_pipeline
from queuey.server.handshake import Handshake
from queuey.server.loop import LoopServer
from queuey.server.open_files import few_files
from queuey.server.reloading import Reloader
from queuey.server.tls import CertificateWatch, ServerTls
from queuey.service import Service
from queuey.settings import Settings
from queuey.settings.issuers import is_this_machine

log = logging.getLogger(__name__)

LARGE_BLOCK_BYTES = 4 << 20
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""Numbers of parameters in glibc's ``malloc.h``."""

BACKLOG = 4096
"""Connections that wait to be accepted. The kernel caps it at net.core.somaxconn; a client beyond it tries again after
a second."""


@dataclass(frozen=True)
class Started:
    """What the server can report once it listens."""

    url: str
    data: str
    backend: str
    notices: tuple[str, ...]
    has_console: bool
    application: str | None = None
    key: str | None = field(default=None, repr=False)
    """A key that was just made, to be shown once."""


def serve(
    settings: Settings,
    announce: Callable[[Started], None],
    *,
    first_key: str | None = None,
    reload: Callable[[], Settings] | None = None,
) -> int:
    """Serve until SIGTERM or SIGINT, then finish the requests under way.

    :param announce: called once, when the server answers requests.
    :param first_key: the chosen key of the application ``demo``, if any.
    :param reload: reads the settings anew at each SIGHUP. Without it SIGHUP changes nothing.
    :returns: the exit code.
    :raises ConfigurationError: the address is taken, a store cannot be opened, or a certificate cannot be used.
    :raises StorageUnavailable: no node of Cassandra answers. Another start may succeed.
    """
    logs.set_up(settings.log.level, settings.log.format)
    tls = ServerTls.of(settings)
    with _bound(settings.server.host, settings.server.port, settings.server.client_timeout_seconds) as listener:
        few = few_files(settings.server.connections, raise_file_limit())
        service = Service.open(settings)
        try:
            made = run(service.start(first_key))
            started = Started(
                f"{'https' if tls else 'http'}://{_bracketed(settings.server.host)}:{listener.getsockname()[1]}",
                str(Path(settings.server.data).resolve()),
                settings.storage.backend,
                settings.notices,
                settings.console.enabled,
                *(made or ()),
            )
            open_notices = without_tls(settings.server.host) if tls is None else ()
            for notice in (*settings.notices, *open_notices, *((few,) if few else ()), *service.warnings()):
                log.warning("%s", notice)
            look_seldom()
            _give_back_large_blocks()

            def listening(drawn: tuple[str, str] | None) -> None:
                announce(replace(started, application=drawn[0], key=drawn[1]) if drawn else started)

            uvloop.run(_serve(service, listener, tls, reload or (lambda: settings), listening))
        finally:
            service.close()
        _tell_what_was_done(service)
    return 0


def _tell_what_was_done(service: Service) -> None:
    """Log what the server did since it began."""
    counters = counted(service.monitor)
    requests, errors, _ = service.monitor.answered()
    done = {"requests": int(requests), "errors": int(errors), **counters}
    log.info(
        "stopped: %s",
        ", ".join(f"{value} {name.replace('_', ' ')}" for name, value in done.items()),
        extra={**done, "seconds": round(service.clock.elapsed() - service.began, 3)},
    )


def _give_back_large_blocks() -> None:
    """Let glibc return freed blocks of :data:`LARGE_BLOCK_BYTES` to the system.

    By default glibc keeps up to 32 MiB of them in each thread's heap, between smaller blocks: after the largest uploads
    190 MiB stayed (``pytest tests/faults/test_worst.py``). Changing that threshold alone makes glibc trim a heap to 128
    KiB of free memory at its end. Then the page faults of the next chunk cost an Arrow stream 13 % of its rate
    (``python -m tests.bench against``). So the second call makes glibc keep two large blocks there, which is its own
    ratio. Other C libraries have no such settings.
    """
    with contextlib.suppress(AttributeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_THRESHOLD, LARGE_BLOCK_BYTES)
        libc.mallopt(_M_TRIM_THRESHOLD, 2 * LARGE_BLOCK_BYTES)
        libc.malloc_trim(0)


def without_tls(host: str) -> tuple[str, ...]:
    """A notice if other machines can reach the address of a server that speaks plain HTTP.

    >>> without_tls("::1"), without_tls("localhost"), len(without_tls("0.0.0.0"))
    ((), (), 1)
    """
    text = (
        f"listens on {host or 'all addresses'} without TLS: anybody on the network between can read keys and messages. "
        "Give it a certificate ([server] tls_cert), or let a proxy with TLS listen there (etc/nginx.conf), and this "
        "server on 127.0.0.1 or a network of your own"
    )
    return () if is_this_machine(host) else (text,)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _bound(host: str, port: int, patience_seconds: int) -> socket.socket:
    """A socket that is bound to the address and does not listen yet.

    Connections inherit its options. One of them lets the kernel end a connection whose client has taken nothing for
    ``patience_seconds``. The server gives up on that client too, but megabytes that it has sent by then would stay in
    the socket (G17).

    :raises ConfigurationError: the address is taken, or is not one of this machine.
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


async def _serve(
    service: Service,
    listener: socket.socket,
    tls: ServerTls | None,
    reload: Callable[[], Settings],
    listening: Callable[[tuple[str, str] | None], None],
) -> None:
    loop = asyncio.get_running_loop()
    running = LoopServer(open_pipeline(service))
    reloader = Reloader(running.pipeline, tls, reload)
    watch = None if tls is None else CertificateWatch(tls)
    running.open(loop)
    reloader.open(loop)
    CollectorTurns().keep_on(loop)
    if tls is not None and watch is not None:
        service.monitor.ask(CERTIFICATE_EXPIRY, lambda: tls.expires)
        watch.start()
    try:
        await _run(running, listener, tls, reloader, listening)
        await reloader.finish()
    finally:
        if watch is not None:
            watch.stop()
        running.close()


async def _run(
    running: LoopServer,
    listener: socket.socket,
    tls: ServerTls | None,
    reloader: Reloader,
    listening: Callable[[tuple[str, str] | None], None],
) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        partial(Connection, running) if tls is None else partial(Handshake, running, tls.context),
        sock=listener,
        backlog=BACKLOG,
    )
    asked = asyncio.Event()

    def stop() -> None:
        """Finish the requests under way; on a second signal, wait for no client."""
        if asked.is_set():
            running.abandon()
        asked.set()

    had_terminal = _has_terminal()

    def hang_up() -> None:
        """Read settings anew, or stop: the signal may also mean that the terminal has gone."""
        if had_terminal and not _has_terminal():
            stop()
        else:
            reloader.ask()

    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stop)
    loop.add_signal_handler(signal.SIGHUP, hang_up)
    # Only now does a signal end nothing between the making of a key and its only showing.
    listening(await asyncio.to_thread(lambda: run(running.pipeline.service.keys.first())))
    await asked.wait()
    log.info("stopping: requests under way have %d s to end", running.drain_seconds)
    server.close()
    loop.call_later(running.drain_seconds, running.abandon)
    await running.stop()


def _has_terminal() -> bool:
    """Whether this process has a terminal whose end would end it."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK))
    except OSError:
        return False
    return True
