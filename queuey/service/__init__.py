"""The rules of Queuey, above every store and below every wire form."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import nan

from queuey.clock import Clock, SystemClock
from queuey.errors import ClockUnsafe
from queuey.ids import TICKS_PER_SECOND, IdGenerator
from queuey.model import Consistency
from queuey.monitor.history import History
from queuey.monitor.metrics import AUTH, CLOCK_SKEW, STORAGE_PROBLEMS, STORAGE_WARNINGS, WATERMARK_AGE, Monitor
from queuey.monitor.notable import NotableRequests
from queuey.monitor.telemetry import Telemetry, open_telemetry
from queuey.security.access_keys import MasterSecrets
from queuey.security.app_keys import ApplicationKeys
from queuey.security.claims import unix_now
from queuey.security.identity import Identifier
from queuey.security.permissions import Identity
from queuey.security.schemes import Trust
from queuey.service.heartbeat import Heartbeat
from queuey.service.held_figures import HeldFigures
from queuey.service.keys import Keys
from queuey.service.leases import Leases
from queuey.service.log import Log
from queuey.service.offsets import Offsets
from queuey.service.queues import Queues
from queuey.service.removals import Removals
from queuey.service.retention import Retained
from queuey.service.shared_events import SharedEvents
from queuey.service.tasks import Tasks
from queuey.service.waiting.registry import Waiters
from queuey.service.watched_figures import Watched, WatchedFigures
from queuey.settings import Settings
from queuey.storage import Stores


class Service:
    """All that one server has: opened once, shared by its transports, closed once."""

    def __init__(
        self,
        settings: Settings,
        stores: Stores,
        *,
        clock: Clock | None = None,
        monitor: Monitor | None = None,
        waiters_by_hand: bool = False,
    ) -> None:
        self.settings = settings
        self.stores = stores
        self.clock = clock or SystemClock()
        self.monitor = monitor or Monitor(settings.storage.backend)
        self.keys = Keys(stores.metadata, self.clock, settings.application_keys)
        self.master_secrets = MasterSecrets.of(settings)
        self.waiters = Waiters(stores.messages, self.clock, self.monitor, settings, by_hand=waiters_by_hand)
        self.queues = Queues(stores, self.clock, self.monitor, self.waiters)
        self.log = Log(stores.messages, self.queues, self.clock, self.monitor, self.waiters)
        self.offsets = Offsets(stores.offsets, self.log, self.clock)
        self.leases = Leases(stores, self.log, self.queues, self.waiters, self.clock, self.monitor)
        self.tasks = Tasks(stores, self.queues, self.log, self.leases, self.clock, self.monitor)
        self.queues.before_drop = self.tasks.abandon
        self.removals = Removals(self.queues)
        self.retained = Retained(self.log, self.queues, self.leases, self.clock, self.monitor)
        self.leases.note_step = self.queues.note_change = self.retained.note
        self.log.note_coming = self.leases.note_coming
        self.held_figures = HeldFigures(stores.leases, self.log, self.clock, self.monitor)
        self.leases.note_use = self.held_figures.note
        self.trust = Trust(settings, self.clock, self.keys.acting_for)
        self.identifier = self._new_identifier()
        watched = Watched(stores, self.queues, self.log, self.keys, self.clock)
        self.watched_figures = WatchedFigures(watched, self.monitor, settings, self.trust)
        self.history = History(self.monitor, partial(unix_now, self.clock), self.clock.elapsed)
        """What the console draws; nothing is taken where there is no console."""
        self.heartbeat = Heartbeat(stores.messages.peers, partial(unix_now, self.clock))
        self.notable = NotableRequests()
        self.telemetry: Telemetry | None = None
        """Gets spans and metrics from :meth:`start` on, where ``[telemetry] endpoint`` names a collector."""
        self.shared_events = SharedEvents(self.clock)
        """What all open consoles get each second."""
        self.recent: dict[str, Identity] = {}
        """Identities that Authorization headers proved a moment ago."""
        self.began = self.clock.elapsed()
        """When the server began, by the clock's elapsed time."""
        self.closed = False

    @classmethod
    def open(cls, settings: Settings, *, clock: Clock | None = None, waiters_by_hand: bool = False) -> Service:
        """Open the stores that the settings name.

        :param waiters_by_hand: see :class:`~queuey.service.waiting.registry.Waiters`.
        :raises ConfigurationError: one cannot be opened; nothing is left open.
        """
        from queuey.storage.opening import open_stores

        used = clock or SystemClock()
        monitor = Monitor(settings.storage.backend)
        stores = open_stores(settings, used, IdGenerator(used), observer=monitor)
        try:
            return cls(settings, stores, clock=used, monitor=monitor, waiters_by_hand=waiters_by_hand)
        except Exception:
            stores.close()
            raise

    async def start(self, first_key: str | None = None) -> tuple[str, str] | None:
        """Finish what an earlier process began, and put a chosen key in force.

        :param first_key: see :meth:`Keys.begin`.
        :returns: application and key if a key was made now, to show it once.
        """
        if self.settings.telemetry.endpoint:
            self.telemetry = open_telemetry(self.settings.telemetry.endpoint, "queuey")
            self.telemetry.report(self.figures)
        self.trust.start()
        await self.removals.turn()
        self.removals.start()
        self.tasks.start()
        self.retained.start()
        self.held_figures.start()
        if self.settings.console.enabled:
            self.history.start()
            self.heartbeat.start()
        made = await self.keys.begin(first_key)
        self.watched_figures.start()
        return made

    def take_over(self, settings: Settings, trust: Trust | None) -> None:
        """Serve with other settings from now on.

        :param settings: other keys, tokens, issuers and secrets; all else is as it was.
        :param trust: what these settings trust, started; None if that has not changed.
        """
        former_secrets = self.settings.sqs.secrets
        self.settings = settings
        if settings.sqs.secrets != former_secrets:
            self.master_secrets = MasterSecrets.of(settings)
        self.keys.configure(settings.application_keys)
        if trust is not None:
            former, self.trust = self.trust, trust
            self.identifier = self._new_identifier()
            former.stop()
        self.watched_figures.settings, self.watched_figures.trust = settings, self.trust
        self.recent.clear()

    def _new_identifier(self) -> Identifier:
        return Identifier([ApplicationKeys(self.keys.find, self.keys.note_use), *self.trust.schemes], self._looked_at)

    def problems(self) -> list[str]:
        """What makes this server unable to work; empty if nothing does."""
        return self.stores.problems()

    def warnings(self) -> Sequence[str]:
        """What makes this server's guarantees weaker, though it works."""
        return self.stores.warnings()

    def figures(self) -> Monitor:
        """What the server counts, with the gauges of what changes by itself brought up to date."""
        monitor, messages = self.monitor, self.stores.messages
        try:
            behind = max(self.clock.now_ticks() - messages.watermark(Consistency.STRONG), 0) / TICKS_PER_SECOND
        except ClockUnsafe:
            behind = nan
        monitor.set(WATERMARK_AGE, behind)
        monitor.set(CLOCK_SKEW, messages.clock_error_seconds())
        monitor.set(STORAGE_PROBLEMS, len(self.problems()))
        monitor.set(STORAGE_WARNINGS, len(self.warnings()))
        return monitor

    def close(self) -> None:
        """Finish what was accepted, and close the stores. May be called again."""
        if not self.closed:
            self.closed = True
            self.removals.stop()
            self.tasks.stop()
            self.retained.stop()
            self.held_figures.stop()
            self.watched_figures.stop()
            self.history.stop()
            self.heartbeat.stop()
            self.waiters.close()
            self.trust.stop()
            if self.telemetry is not None:
                self.telemetry.close()
            self.stores.close()

    def _looked_at(self, kind: str, result: str) -> None:
        self.monitor.count(AUTH, 1, kind, result)
