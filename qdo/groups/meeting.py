"""Where the members of a group meet: a file on this machine, or a ZooKeeper."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from qdo.client import Client
from qdo.groups.names import check_group
from queuey.errors import ConfigurationError

if TYPE_CHECKING:
    from qdo.groups.coordination import Coordinator

__all__ = ["SESSION_SECONDS", "MeetingPlace"]

SESSION_SECONDS = 10.0
"""A member that is silent for longer is dead to the others, unless a worker says otherwise."""


@dataclass(frozen=True)
class MeetingPlace:
    """The place of one group. Commands and programs that name the same one see each other."""

    url: str
    application: str
    group: str
    make_client: Callable[[], Client]
    zookeeper: str | None = None
    state: str | None = None
    """The folder for groups of this machine; None for the user's own."""
    offsets: str = "group"
    """Where offsets are kept: ``group``, with everything else of the group, or ``queuey``."""
    security: Mapping[str, str | None] = field(default_factory=dict)
    """What :func:`qdo.groups.zookeeper_tls.security` takes."""

    @classmethod
    def from_environment(cls, group: str, make_client: Callable[[], Client]) -> MeetingPlace:
        """The place that the variables of ``qdo work`` name: ``QDO_ZOOKEEPER``, ``QDO_STATE``, ``QDO_OFFSETS``.

        :raises ConfigurationError: a variable has a value that it cannot have.
        """
        get = os.environ.get
        offsets = get("QDO_OFFSETS") or "group"
        if offsets not in ("group", "queuey"):
            raise ConfigurationError(f"QDO_OFFSETS is {offsets!r}: expected group or queuey")
        security = {name: get(f"QDO_ZOOKEEPER_{name.upper()}") or None for name in ("auth", "ca", "cert", "key")}
        with make_client() as client:
            url, application = client.url, client.application
        return cls(
            url,
            application,
            group,
            make_client,
            get("QDO_ZOOKEEPER") or None,
            get("QDO_STATE") or None,
            offsets,
            security,
        )

    def coordinator(self, session_seconds: float = SESSION_SECONDS, *, slots: bool = False) -> Coordinator:
        """A new coordinator. The caller closes it.

        :param slots: for a worker that records offsets of queues in Queuey by itself.
        :raises ConfigurationError: kazoo is missing, or the folder cannot be used.
        """
        check_group(self.group)
        from qdo.groups.hash_slots import is_slot

        found = self._by_zookeeper(session_seconds) if self.zookeeper else self._by_file(session_seconds)
        if slots or (self.offsets == "group" and not any(map(is_slot, found.known()))):
            return found
        from qdo.groups.offsets_in_queuey import OffsetsInQueuey

        return OffsetsInQueuey(found, self.make_client(), self.group)

    def _by_file(self, session_seconds: float) -> Coordinator:
        """Server and application are part of the name.

        Groups of other servers or applications are other groups.
        """
        try:
            from qdo.groups.local import LocalCoordinator
        except ImportError as error:
            raise ConfigurationError(
                f"a group on this machine needs more: pip install '/path/to/queuey[groups]' ({error}); or work with --lease"
            ) from error
        name = f"{self.url.rstrip('/')}/{self.application}/{self.group}"
        return LocalCoordinator(name, Path(self.state) if self.state else None, session_seconds=session_seconds)

    def _by_zookeeper(self, session_seconds: float) -> Coordinator:
        """The application is a folder. Servers that share a ZooKeeper need a chroot each."""
        try:
            from qdo.groups.zookeeper import ZooKeeperCoordinator
            from qdo.groups.zookeeper_tls import security
        except ImportError as error:
            raise ConfigurationError(
                f"ZooKeeper needs more: pip install '/path/to/queuey[zookeeper]' ({error})"
            ) from error
        hosts = self.zookeeper or ""
        how = security(**self.security)
        try:
            return ZooKeeperCoordinator(hosts, self.application, self.group, session_seconds=session_seconds, **how)
        except ValueError as error:  # kazoo raises it for an address that it cannot read
            raise ConfigurationError(
                f"ZooKeeper {hosts!r}: expected HOST:PORT, more of them after commas, and maybe a /FOLDER: {error}"
            ) from error

    @property
    def where(self) -> str:
        """Where the group is, for people."""
        if self.zookeeper:
            return f"ZooKeeper at {self.zookeeper}"
        from qdo.groups.local import default_folder

        return f"this machine, in {self.state or default_folder()}"
