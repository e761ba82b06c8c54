"""The rules of Queuey, above any store and below any wire form."""

from __future__ import annotations

from queuey.clock import Clock, SystemClock
from queuey.ids import IdGenerator
from queuey.monitor import Monitor
from queuey.security.app_keys import ApplicationKeys
from queuey.security.identity import Identifier
from queuey.service.keys import Keys
from queuey.service.log import Log
from queuey.service.queues import Queues
from queuey.settings import Settings
from queuey.storage import Stores


class Service:
    """Everything one server has: opened once, shared by its doors, closed once."""

    def __init__(
        self, settings: Settings, stores: Stores, *, clock: Clock | None = None, monitor: Monitor | None = None
    ) -> None:
        self.settings = settings
        self.stores = stores
        self.clock = clock or SystemClock()
        self.monitor = monitor or Monitor(settings.storage_backend)
        self.keys = Keys(stores.metadata, self.clock, settings.application_keys)
        self.queues = Queues(stores, self.clock, self.monitor)
        self.log = Log(stores.messages, self.clock, self.monitor)
        self.identifier = Identifier([ApplicationKeys(self.keys.find)])
        self.closed = False

    @classmethod
    def open(cls, settings: Settings, *, clock: Clock | None = None) -> Service:
        """Open the stores that the settings name.

        :raises ConfigurationError: one cannot be opened; nothing is left open.
        """
        from queuey.storage.open import open_stores

        used = clock or SystemClock()
        monitor = Monitor(settings.storage_backend)
        stores = open_stores(settings, used, IdGenerator(used), observer=monitor)
        return cls(settings, stores, clock=used, monitor=monitor)

    async def start(self, first_key: str | None = None) -> tuple[str, str] | None:
        """Finish what an earlier process began, and see that there is an application.

        :param first_key: see :meth:`Keys.first`.
        :returns: application and key if a key was made now, to be shown once.
        """
        await self.queues.finish_removals()
        return await self.keys.first(first_key)

    def problems(self) -> list[str]:
        """What an operator should know; empty when all is well."""
        return self.stores.problems()

    def close(self) -> None:
        """Finish what was accepted and close the stores. May be repeated."""
        if not self.closed:
            self.closed = True
            self.stores.close()
