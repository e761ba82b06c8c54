"""New settings for a server that runs: SIGHUP.

Keys of applications, tokens, issuers, secrets, TLS and the log can change while connections stay open. All other settings wait for
the next start, and the log names those that differ. Settings with an error change nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from queuey.errors import ConfigurationError
from queuey.http.pipeline import Pipeline
from queuey.monitor import logs
from queuey.security.schemes import Trust
from queuey.server.tls import ServerTls
from queuey.service import Service
from queuey.settings import SETTINGS, Settings

__all__ = ["Reloader", "merged", "waiting"]

log = logging.getLogger(__name__)

_SECTIONS = frozenset({"log", "metrics", "tokens"})
"""Sections of which every setting is taken over,"""
_NAMES = frozenset({"server.tls_cert", "server.tls_key", "console.url", "console.secrets", "sqs.secrets"})
"""and settings of other sections."""


def merged(now: Settings, new: Settings) -> Settings:
    """The settings in force, with those of ``new`` that a running server takes over."""
    return replace(
        now,
        server=replace(now.server, tls_cert=new.server.tls_cert, tls_key=new.server.tls_key),
        sqs=replace(now.sqs, secrets=new.sqs.secrets),
        console=replace(now.console, url=new.console.url, secrets=new.console.secrets),
        metrics=new.metrics,
        log=new.log,
        tokens=new.tokens,
        application_keys=new.application_keys,
        issuers=new.issuers,
        notices=new.notices,
        origins={**now.origins, **{name: origin for name, origin in new.origins.items() if _is_taken(name)}},
    )


def waiting(now: Settings, new: Settings) -> list[str]:
    """The settings that differ, and wait for the next start."""
    return [
        f"[{row.section}] {row.key}" for row in SETTINGS if not _is_taken(row.name) and now.value(row) != new.value(row)
    ]


def _is_taken(name: str) -> bool:
    return name in _NAMES or name.partition(".")[0] in _SECTIONS


class Reloader:
    """Takes new settings over. Reads them in a thread, and changes the server in a turn of its loop."""

    def __init__(self, pipeline: Pipeline, tls: ServerTls | None, load: Callable[[], Settings]) -> None:
        """:param load: reads the settings anew, from where the server has them. Raises ConfigurationError."""
        self._pipeline, self._tls, self._load = pipeline, tls, load
        self._loop: asyncio.AbstractEventLoop
        self._under_way: asyncio.Future[None] | None = None
        self._again = False

    @property
    def _service(self) -> Service:
        return self._pipeline.service

    def open(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start to serve on ``loop``."""
        self._loop = loop

    def ask(self) -> None:
        """Reload; if it is under way already, once more after that."""
        if self._under_way is not None:
            self._again = True
            return
        self._under_way = self._loop.run_in_executor(None, self._read)
        self._under_way.add_done_callback(self._done)

    async def finish(self) -> None:
        """Wait for a reload under way."""
        while self._under_way is not None:
            await asyncio.wait([self._under_way])
            await asyncio.sleep(0)

    def _done(self, done: asyncio.Future[None]) -> None:
        self._under_way = None
        if (error := done.exception()) is not None:
            log.error("settings could not be reloaded, and stay as they are", exc_info=error)
        if self._again:
            self._again = False
            self.ask()

    def _read(self) -> None:
        """Read and check everything, then let the loop take it over. Nothing has changed if anything is wrong."""
        now = self._service.settings
        try:
            new = self._load()
            trust = self._new_trust(now, new)
            try:
                self._move_tls(now, new)
            except ConfigurationError:
                if trust is not None:
                    trust.stop()
                raise
        except ConfigurationError as error:
            log.error("settings were not reloaded, and stay as they are: %s", error)  # noqa: TRY400 - the text says all
            return
        asyncio.run_coroutine_threadsafe(self._take(now, new, trust), self._loop).result()

    def _move_tls(self, now: Settings, new: Settings) -> None:
        if bool(now.server.tls_cert) != bool(new.server.tls_cert):
            raise ConfigurationError("[server] tls_cert: TLS is turned on and off at a start only: restart the server")
        if self._tls is not None:
            self._tls.move(Path(new.server.tls_cert), Path(new.server.tls_key))

    def _new_trust(self, now: Settings, new: Settings) -> Trust | None:
        """None if the former one is still right."""
        if (now.tokens, now.issuers) == (new.tokens, new.issuers):
            return None
        trust = Trust(replace(new, limits=now.limits), self._service.clock, self._service.keys.acting_for)
        trust.start()
        return trust

    async def _take(self, now: Settings, new: Settings, trust: Trust | None) -> None:
        settings = merged(now, new)
        self._service.take_over(settings, trust)
        logs.set_up(settings.log.level, settings.log.format)
        self._pipeline.finisher.log_requests(on=settings.log.requests)
        _tell(new.notices, waiting(now, new))


def _tell(notices: Sequence[str], left: Sequence[str]) -> None:
    for notice in notices:
        log.warning("%s", notice)
    log.info("settings were reloaded")
    if left:
        log.warning("these settings differ, and wait for the next start: %s", ", ".join(left))
