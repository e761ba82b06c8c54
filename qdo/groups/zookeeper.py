"""A group in ZooKeeper: its members may run on any number of machines.

:mod:`qdo.groups.zookeeper_nodes` has its nodes.
"""

from __future__ import annotations

import itertools
import json
import logging
import threading
import uuid
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

from kazoo.client import KazooState
from kazoo.exceptions import BadVersionError, KazooException, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from qdo.groups.assign import Partition
from qdo.groups.coordination import (
    TRUSTED_SHARE,
    Claim,
    CommittedOffset,
    Coordinator,
    Member,
    Plan,
    plan_from_text,
    plan_to_text,
)
from qdo.groups.names import check_group
from qdo.groups.zookeeper_nodes import GroupNodes
from qdo.groups.zookeeper_session import ZooKeeperSession
from queuey.clock import Clock, SystemClock
from queuey.errors import CoordinatorUnavailable, SessionLost

__all__ = ["ZooKeeperCoordinator"]

log = logging.getLogger(__name__)

BEATS = 6
"""In one session timeout."""


class Membership:
    """Whether this process is a member of the group, and may trust that.

    Trust lasts while the others cannot hold it for dead.
    """

    def __init__(self, session: ZooKeeperSession, nodes: GroupNodes, clock: Clock, changed: Callable[[], None]) -> None:
        """:param changed: called when the membership is lost or the connection breaks."""
        self._session = session
        self._nodes = nodes
        self._clock = clock
        self._changed = changed
        self.name: str | None = None
        self.session_number = 0
        """Of the session in which it joined."""
        self._mark = uuid.uuid4().hex[:8]
        """In all names that this coordinator ever has in the group."""
        self._joins = itertools.count(1)
        self._node = ""
        """The node of this member."""
        self._heard = -session.timeout_seconds
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        session.client.add_listener(self._state_changed)

    def join(self, about: Mapping[str, Any]) -> str:
        name = f"{about.get('name', 'worker')}-{self._mark}.{next(self._joins)}"
        session, folder = self._session, f"{self._nodes.root}/members"
        with session.asking():
            self._nodes.make()
            sent = self._clock.elapsed()
            number = session.number()
            self._remove_all()
            path, told = f"{folder}/{name}-", json.dumps(dict(about)).encode()
            self._node = session.result(session.client.create_async(path, told, ephemeral=True, sequence=True))
            self.name, self.session_number, self._heard = name, number, sent
            session.forget_watches(folder)  # the list that is known lacks this member
        if self._thread is None:
            self._thread = threading.Thread(target=self._beat, name="zookeeper-beat", daemon=True)
            self._thread.start()
        return name

    def _remove_all(self) -> None:
        """Remove all members that this coordinator has made.

        Among them may be one of a join whose answer was lost: it would get its share of the plan and work on none of it.
        """
        folder = f"{self._nodes.root}/members"
        for node in self._session.children(folder):
            if node.rpartition("-")[0].rpartition(".")[0].endswith(f"-{self._mark}"):
                with suppress(NoNodeError):
                    self._session.result(self._session.client.delete_async(f"{folder}/{node}"))

    def tell(self, about: Mapping[str, Any]) -> None:
        with self._session.asking():
            self.must_live()
            with suppress(NoNodeError):  # it has just left
                told = json.dumps(dict(about)).encode()
                self._session.result(self._session.client.set_async(self._node, told))

    def leave(self) -> None:
        name, self.name = self.name, None
        if name is None or not self._session.client.connected:
            return  # without a connection the membership ends with the session
        try:
            with self._session.asking():
                self._remove_all()
                self._nodes.give_up(self.session_number, self._nodes.partitions("owners"))
        except (CoordinatorUnavailable, NoNodeError):
            log.info("the group could not be told that this member leaves: it will notice")

    def trusted(self) -> bool:
        trusted_seconds = self._session.timeout_seconds * TRUSTED_SHARE
        return self.name is not None and self._clock.elapsed() - self._heard < trusted_seconds

    def must_live(self) -> str:
        """The name of this member.

        :raises SessionLost: it is no member any more.
        """
        name = self.name
        if name is None or self._session.number() != self.session_number:
            self.name = None
            raise SessionLost("ZooKeeper holds this member for dead")
        return name

    def close(self) -> None:
        self.leave()
        self._over.set()
        thread, self._thread = self._thread, None
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _state_changed(self, state: str) -> None:
        if state == KazooState.LOST:
            self.name = None
        self._session.forget_watches()  # notices may be lost with a connection that broke
        self._changed()

    def _beat(self) -> None:
        """Ask ZooKeeper's leader for an answer, again and again.

        A server that is cut off from it still answers much.
        """
        session = self._session
        while not self._over.wait(session.timeout_seconds / BEATS):
            sent, name = self._clock.elapsed(), self.name
            if name is None or not session.client.connected:
                continue
            try:
                session.client.sync_async(self._nodes.root).get(timeout=session.timeout_seconds)
                gone = session.number() != self.session_number
            except (KazooException, KazooTimeoutError, CoordinatorUnavailable):
                continue  # trust runs out by itself
            except Exception:
                # If this thread ended, kazoo would keep the session, and all its partitions, for a member that does nothing.
                log.exception("ZooKeeper's leader cannot be asked, and is asked again")
                continue
            if gone:
                self._lose(name)
            elif self.name == name:
                self._heard = sent

    def _lose(self, name: str) -> None:
        if self.name == name:
            self.name = None
            self._changed()


class ZooKeeperCoordinator(Coordinator):
    """One member's session with ZooKeeper. Make it after a fork, not before."""

    def __init__(
        self,
        hosts: str,
        application: str,
        group: str,
        *,
        session_seconds: float = 10.0,
        connect_seconds: float = 15.0,
        clock: Clock | None = None,
        **kazoo: Any,
    ) -> None:
        """:param hosts: ``host:port``, separated by commas, and maybe a ``/chroot``. A missing chroot is made.
        :param session_seconds: a member that gives no sign of life for so long is dead. ZooKeeper has bounds of its own.
        :param kazoo: further arguments of its client: ``auth_data``, ``default_acl``, ``use_ssl``, ``certfile`` and so on.
        :raises ConfigurationError: a name that cannot be part of a path, or a ZooKeeper that does not prove its identity.
        :raises CoordinatorUnavailable: no server answered in ``connect_seconds``.
        """
        for what, name in (("application", application), ("group", group)):
            check_group(name, what)
        servers, _, chroot = hosts.partition("/")
        root = "/".join(["", *filter(None, chroot.split("/")), application, group])
        clock = clock or SystemClock()
        self._session = session = ZooKeeperSession(
            servers, session_seconds=session_seconds, connect_seconds=connect_seconds, clock=clock, kazoo=kazoo
        )
        self._nodes = GroupNodes(session, root)
        self._member = Membership(session, self._nodes, clock, self._has_changed)
        self._members: list[Member] = []
        self._abouts: dict[str, Mapping[str, Any]] = {}
        self._plan = Plan()
        self._resets = 0
        session.changed = self._has_changed
        session.insist(self._nodes.look)

    def _has_changed(self) -> None:
        self.changed()  # looked up at each call, for it may be set at any time

    # Members

    def join(self, about: Mapping[str, Any]) -> str:
        return self._member.join(about)

    def tell(self, about: Mapping[str, Any]) -> None:
        self._member.tell(about)

    def leave(self) -> None:
        self._member.leave()

    def trusted(self) -> bool:
        return self._member.trusted()

    def members(self) -> Sequence[Member]:
        session, path = self._session, f"{self._nodes.root}/members"
        if self._member.name is None:
            # Whoever looks from outside wants to know what members say now.
            self._abouts = {}
            session.forget_watches(path)
        if self._nodes.is_missing():
            return []
        if session.watch(path):
            with session.asking():
                nodes = session.result(session.client.get_children_async(path, watch=session.fired))
                nodes.sort(key=lambda node: node.rpartition("-")[2])
                new = [node for node in nodes if node not in self._abouts]
                found = zip(new, session.get([f"{path}/{node}" for node in new]), strict=True)
                known = self._abouts | {node: json.loads(said[0]) for node, said in found if said}
                self._abouts = {node: known[node] for node in nodes if node in known}
                self._members = [Member(node.rpartition("-")[0], about) for node, about in self._abouts.items()]
        return self._members

    # The plan

    def plan(self) -> Plan:
        session, path = self._session, f"{self._nodes.root}/plan"
        if self._nodes.is_missing():
            return Plan()
        if session.watch(path):
            with session.asking():
                data, stat = session.result(session.client.get_async(path, watch=session.fired))
            self._plan = plan_from_text(stat.version, zlib.decompress(data).decode())
        return self._plan

    def propose(self, plan: Plan) -> bool:
        with self._session.asking():
            self._member.must_live()
            path, text = f"{self._nodes.root}/plan", zlib.compress(plan_to_text(plan).encode())
            try:
                self._session.result(self._session.client.set_async(path, text, version=plan.generation - 1))
            except BadVersionError:
                return False
        return True

    # Claims

    def claim(self, partitions: Collection[Partition]) -> Mapping[Claim, CommittedOffset | None]:
        with self._session.asking():
            name = self._member.must_live()
            claims = self._nodes.claim(name, self._member.session_number, list(partitions))
            self._member.must_live()
            offsets = self._nodes.offsets([claim.partition for claim in claims])
            return dict(zip(claims, offsets, strict=True))

    def release(self, claims: Collection[Claim]) -> None:
        with self._session.asking():
            self._nodes.give_up(self._member.session_number, [claim.partition for claim in claims])

    def commit(self, offsets: Mapping[Claim, CommittedOffset]) -> Collection[Claim]:
        with self._session.asking():
            return self._nodes.commit(offsets)

    def resets(self) -> int:
        session, path = self._session, f"{self._nodes.root}/resets"
        if session.watch(path):
            with session.asking():
                stat = session.result(session.client.exists_async(path, watch=session.fired))
            self._resets = 0 if stat is None else stat.version
        return self._resets

    # From outside

    def owners(self) -> Mapping[Partition, tuple[str, int]]:
        if self._nodes.is_missing():
            return {}
        with self._session.asking():
            return self._nodes.owners()

    def offsets(self) -> Mapping[Partition, CommittedOffset]:
        if self._nodes.is_missing():
            return {}
        with self._session.asking():
            parts = self._nodes.partitions("offsets")
            found = zip(parts, self._nodes.offsets(parts), strict=True)
            return {part: offset for part, offset in found if offset is not None}

    def known(self) -> Collection[Partition]:
        if self._nodes.is_missing():
            return []
        with self._session.asking():
            return self._nodes.partitions("claims")

    def begin(self, offsets: Mapping[Partition, CommittedOffset]) -> Collection[Partition]:
        with self._session.asking():
            self._nodes.make()
            return self._nodes.begin(offsets)

    def reset(self, offsets: Mapping[Partition, CommittedOffset | None]) -> None:
        with self._session.asking():
            self._nodes.make()
            self._nodes.reset(offsets)

    def close(self) -> None:
        self._member.close()
        self._session.close()
