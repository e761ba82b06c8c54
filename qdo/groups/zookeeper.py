"""A group in ZooKeeper: its members may run on any number of machines.

::

    <chroot>/<application>/<group>/
      members/<name>-<sequence>   ephemeral; what the member says of itself
      plan                        its version is the plan's generation
      claims/<queue>:<number>     persistent; its version + 1 is the generation of the latest claim
      resets                      its version counts offsets that were set by hand
      owners/<queue>:<number>     ephemeral; there while the owner's session lives
      offsets/<queue>:<number>    persistent

A claim is one transaction: raise the version of ``claims``, make the node in ``owners``. The second
half fails while another session has it; the first one fences whoever owned the partition before. A
commit is one transaction, too: check the version in ``claims``, set the offset. Nothing is ever
guarded by the path of an ephemeral node alone, for one that is made anew has version 0 again (G14).
"""

from __future__ import annotations

import itertools
import json
import logging
import re
import socket
import ssl
import threading
import uuid
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient, KazooState, TransactionRequest
from kazoo.exceptions import (
    BadVersionError,
    ConnectionLoss,
    KazooException,
    NodeExistsError,
    NoNodeError,
    SessionExpiredError,
)
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler
from kazoo.interfaces import IAsyncResult
from kazoo.security import make_digest_acl

from qdo.groups.assign import Partition
from qdo.groups.coordination import (
    TRUSTED_SHARE,
    Claim,
    Coordinator,
    Member,
    Offset,
    Plan,
    plan_from_text,
    plan_to_text,
)
from queuey.clock import Clock, SystemClock
from queuey.errors import ConfigurationError, CoordinatorUnavailable, SessionLost

__all__ = ["ZooKeeperCoordinator", "security"]

log = logging.getLogger(__name__)

AT_ONCE = 500
"""Requests that are on their way together."""
IN_ONE_COMMIT = 200
"""Offsets in one transaction; ZooKeeper takes a megabyte."""
BEATS = 6
"""In one session timeout."""
TLS_SECONDS = 5.0
"""For one server to shake hands."""
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}")
_PASSING = (ConnectionLoss, SessionExpiredError, KazooTimeoutError)
"""Answers that did not come, and may come when asked again."""
_RESETS = 10
"""Attempts to set offsets by hand, while claims change."""
_FOLDERS = ("members", "claims", "owners", "offsets")


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
        """:param hosts: ``host:port`` with commas between, and maybe a ``/chroot``, which is made if it is missing.
        :param session_seconds: after so long without a sign of life a member is dead; ZooKeeper has bounds of its own for it.
        :param kazoo: further arguments of its client: ``auth_data``, ``default_acl``, ``use_ssl``, ``certfile`` and so on.
        :raises ConfigurationError: a name that cannot be part of a path; a ZooKeeper that does not prove who it is.
        :raises CoordinatorUnavailable: no server answered in ``connect_seconds``.
        """
        for what, name in (("application", application), ("group", group)):
            if not _NAME.fullmatch(name) or name in {".", ".."}:
                raise ConfigurationError(f"{what} {name!r}: expected 1 to 100 letters, digits, _ . -")
        servers, _, chroot = hosts.partition("/")
        self._root = "/".join(["", *filter(None, chroot.split("/")), application, group])
        self._clock = clock or SystemClock()
        self._asked_seconds = session_seconds
        self._name: str | None = None
        self._mark = uuid.uuid4().hex[:8]
        """In all names that this coordinator ever has in the group."""
        self._joins = itertools.count(1)
        self._session = 0
        self._mine = ""
        """The node of this member."""
        self._heard = -session_seconds
        self._watched: set[str] = set()
        """Nodes whose next change will be heard of: what is known of them is up to date."""
        self._members: list[Member] = []
        self._plan = Plan()
        self._resets = 0
        self._abouts: dict[str, Mapping[str, Any]] = {}
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        if kazoo.get("use_ssl"):
            kazoo = {"handler": _Trusting(_context(kazoo["ca"], kazoo["certfile"], kazoo["keyfile"])), **kazoo}
        self._client = KazooClient(
            hosts=servers, timeout=session_seconds, connection_retry={"max_tries": -1, "max_delay": 2.0}, **kazoo
        )
        self._client.add_listener(self._state_changed)
        self._check_tls(servers)
        try:
            self._client.start(timeout=connect_seconds)
        except KazooTimeoutError as error:
            self._check_tls(servers)  # at first it may have been too busy to shake hands
            why = _tls_trouble(self._client, listens=True) if kazoo.get("use_ssl") else None
            self._client.close()
            said = f"no ZooKeeper answers at {servers} within {connect_seconds:g} s"
            raise CoordinatorUnavailable(f"{said}: {why}" if why else said) from error
        self._connect_seconds = connect_seconds
        self._is_there = False
        """The group's nodes are: its first member makes them, and who only looks makes none."""
        self._insist(self._look)

    def _check_tls(self, servers: str) -> None:
        """:raises ConfigurationError: ZooKeeper does not prove who it is."""
        if self._client.use_ssl and (trouble := _tls_trouble(self._client)):
            self._client.close()
            raise ConfigurationError(f"no TLS with ZooKeeper at {servers}: {trouble}")

    def _insist(self, ask: Callable[[], None]) -> None:
        """Ask when the session is new, and the first answers may be lost on the way: all of it may be repeated."""
        until = self._clock.elapsed() + self._connect_seconds
        while True:
            try:
                with self._asking():
                    ask()
                return
            except CoordinatorUnavailable as error:
                if self._clock.elapsed() >= until or not isinstance(error.__cause__, _PASSING):
                    self._client.stop()
                    self._client.close()
                    raise

    def _look(self) -> None:
        """What is made last is there when all is."""
        try:
            self._result(self._client.get_async(f"{self._root}/plan"))  # which needs the right to read
        except NoNodeError:
            self._is_there = False
        else:
            self._is_there = True

    def _make_all(self) -> None:
        """Make what is missing. May be repeated."""
        if self._is_there:
            return
        for name in (*_FOLDERS, "resets"):
            self._result(self._client.ensure_path_async(f"{self._root}/{name}"))
        self._make_plan()
        self._is_there = True

    def _make_plan(self) -> None:
        try:
            self._result(self._client.create_async(f"{self._root}/plan", zlib.compress(b"{}")))
        except NodeExistsError:
            return  # another one was faster

    # Who is there

    def join(self, about: Mapping[str, Any]) -> str:
        name = f"{about.get('name', 'worker')}-{self._mark}.{next(self._joins)}"
        with self._asking():
            self._make_all()
            sent = self._clock.elapsed()
            session = self._session_now()
            self._remove_members()
            path, told = f"{self._root}/members/{name}-", json.dumps(dict(about)).encode()
            self._mine = self._result(self._client.create_async(path, told, ephemeral=True, sequence=True))
            self._name, self._session, self._heard = name, session, sent
            self._watched.discard(f"{self._root}/members")  # the list that is known lacks this member
        if self._thread is None:
            self._thread = threading.Thread(target=self._beat, name="zookeeper-beat", daemon=True)
            self._thread.start()
        return name

    def _remove_members(self) -> None:
        """All that this coordinator has made: also by a join whose answer was lost, a member that would get its share of the plan and work on none of it."""
        for node in self._children("members"):
            if node.rpartition("-")[0].rpartition(".")[0].endswith(f"-{self._mark}"):
                with suppress(NoNodeError):
                    self._result(self._client.delete_async(f"{self._root}/members/{node}"))

    def tell(self, about: Mapping[str, Any]) -> None:
        with self._asking():
            self._must_live()
            with suppress(NoNodeError):  # it has just left
                self._result(self._client.set_async(self._mine, json.dumps(dict(about)).encode()))

    def _session_now(self) -> int:
        found = self._client.client_id
        if found is None:
            raise CoordinatorUnavailable("there is no session with ZooKeeper at the moment")
        return int(found[0])

    def leave(self) -> None:
        name, self._name = self._name, None
        if name is None or not self._client.connected:
            return  # without a connection it ends with the session
        try:
            with self._asking():
                self._remove_members()
                self._give_up(list(map(Partition.parse, self._children("owners"))))
        except (CoordinatorUnavailable, NoNodeError):
            log.info("the group could not be told that this member leaves: it will notice")

    def trusted(self) -> bool:
        return self._name is not None and self._clock.elapsed() - self._heard < self._timeout() * TRUSTED_SHARE

    def _timeout(self) -> float:
        """The session timeout that ZooKeeper agreed to, seconds."""
        return min(self._client._session_timeout / 1000, self._asked_seconds) or self._asked_seconds  # noqa: SLF001 - told nowhere else

    def _state_changed(self, state: str) -> None:
        if state == KazooState.LOST:
            self._name = None
        self._watched.clear()  # a connection that broke may have taken notices along
        self.changed()

    def _beat(self) -> None:
        """Ask for an answer of the leader's, again and again: a server cut off from it may answer much."""
        while not self._over.wait(self._timeout() / BEATS):
            sent, name = self._clock.elapsed(), self._name
            if name is None or not self._client.connected:
                continue
            try:
                self._client.sync_async(self._root).get(timeout=self._timeout())
                gone = self._session_now() != self._session
            except (KazooException, KazooTimeoutError, CoordinatorUnavailable):
                continue  # trust runs out by itself
            except (
                Exception
            ):  # a thread that ended here would leave the session, and all partitions, to a member that does nothing
                log.exception("ZooKeeper's leader cannot be asked, and is asked again")
                continue
            if gone:
                self._lose(name)
            elif self._name == name:
                self._heard = sent

    def _lose(self, name: str) -> None:
        if self._name == name:
            self._name = None
            self.changed()

    def members(self) -> Sequence[Member]:
        path = f"{self._root}/members"
        if self._name is None:  # who looks from outside wants to know what they say now
            self._abouts = {}
            self._watched.discard(path)
        if self._is_missing():
            return []
        if self._watch(path):
            with self._asking():
                nodes = self._result(self._client.get_children_async(path, watch=self._fired))
                nodes.sort(key=lambda node: node.rpartition("-")[2])
                new = [node for node in nodes if node not in self._abouts]
                found = zip(new, self._get([f"{path}/{node}" for node in new]), strict=True)
                known = self._abouts | {node: json.loads(said[0]) for node, said in found if said}
                self._abouts = {node: known[node] for node in nodes if node in known}
                self._members = [Member(node.rpartition("-")[0], about) for node, about in self._abouts.items()]
        return self._members

    # Who is to have what

    def plan(self) -> Plan:
        path = f"{self._root}/plan"
        if self._is_missing():
            return Plan()
        if self._watch(path):
            with self._asking():
                data, stat = self._result(self._client.get_async(path, watch=self._fired))
            self._plan = plan_from_text(stat.version, zlib.decompress(data).decode())
        return self._plan

    def propose(self, plan: Plan) -> bool:
        with self._asking():
            self._must_live()
            try:
                text = zlib.compress(plan_to_text(plan).encode())
                self._result(self._client.set_async(f"{self._root}/plan", text, version=plan.generation - 1))
            except BadVersionError:
                return False
        return True

    # Who has what

    def claim(self, partitions: Collection[Partition]) -> Mapping[Claim, Offset | None]:
        with self._asking():
            name = self._must_live()
            claims = [claim for some in _in_parts(sorted(partitions), AT_ONCE) for claim in self._claim(name, some)]
            self._must_live()
            offsets = self._get([self._node("offsets", claim.partition) for claim in claims])
            return {claim: _offset(found) for claim, found in zip(claims, offsets, strict=True)}

    def _claim(self, name: str, partitions: Sequence[Partition]) -> list[Claim]:
        unsure = [part for part in partitions if self._node("owners", part) not in self._watched]
        held = self._wait([self._client.exists_async(self._node("owners", part)) for part in unsure])
        known = list(zip(unsure, held, strict=True))
        free = [(part, stat) for part, stat in known if stat is None or stat.ephemeralOwner == self._session]
        self._watch_owners([part for part, stat in known if stat is not None and stat.ephemeralOwner != self._session])
        before = self._get([self._node("claims", part) for part, _ in free])
        claims, steps = [], []
        for (part, stat), found in zip(free, before, strict=True):
            if stat is not None and found is not None and found[0] == name.encode():
                claims.append(Claim(part, found[1].version + 1))  # from a call whose answer was lost
            else:
                steps.append((part, found, self._transaction(name, part, found, has_owner=stat is not None)))
        for part, found, step in steps:
            if _went_well(self._result(step)):
                claims.append(Claim(part, 1 if found is None else found[1].version + 2))
        return claims

    def _watch_owners(self, partitions: Sequence[Partition]) -> None:
        """Hear of it when their owners let go of these; until then nobody asks again."""
        paths = [path for part in partitions if self._watch(path := self._node("owners", part))]
        stats = self._wait([self._client.exists_async(path, watch=self._fired) for path in paths])
        gone = [path for path, stat in zip(paths, stats, strict=True) if stat is None]
        if gone:
            self._watched.difference_update(gone)
            self.changed()

    def _transaction(self, name: str, part: Partition, found: Any, *, has_owner: bool) -> IAsyncResult:
        step: TransactionRequest = self._client.transaction()
        if found is None:
            step.create(self._node("claims", part), name.encode())
            step.create(self._node("offsets", part))
        else:
            step.set_data(self._node("claims", part), name.encode(), version=found[1].version)
        if not has_owner:
            step.create(self._node("owners", part), name.encode(), ephemeral=True)
        return step.commit_async()

    def release(self, claims: Collection[Claim]) -> None:
        with self._asking():
            self._give_up([claim.partition for claim in claims])

    def _give_up(self, partitions: Sequence[Partition]) -> None:
        """Delete the owners' nodes of this session, each as long as nobody has claimed it since it was looked at: the session may have ended meanwhile.

        Who was reset meanwhile still has its node, so it is looked at again: left there, it would keep all others away.
        """
        left = list(partitions)
        while left:
            left = [part for some in _in_parts(left, AT_ONCE) for part in self._give_up_some(some)]

    def _give_up_some(self, partitions: Sequence[Partition]) -> list[Partition]:
        """:returns: those whose claims have changed since they were looked at."""
        versions = self._get([self._node("claims", part) for part in partitions])
        held = self._wait([self._client.exists_async(self._node("owners", part)) for part in partitions])
        steps = []
        for part, found, stat in zip(partitions, versions, held, strict=True):
            if found is not None and stat is not None and stat.ephemeralOwner == self._session:
                step: TransactionRequest = self._client.transaction()
                step.check(self._node("claims", part), found[1].version)
                step.delete(self._node("owners", part))
                steps.append((part, step.commit_async()))
        return [part for part, step in steps if any(isinstance(one, BadVersionError) for one in self._result(step))]

    def commit(self, offsets: Mapping[Claim, Offset]) -> Collection[Claim]:
        refused: list[Claim] = []
        with self._asking():
            for some in _in_parts(list(offsets), IN_ONE_COMMIT):
                left = list(some)
                while left and (lost := self._commit({claim: offsets[claim] for claim in left})):
                    refused += lost
                    left = [claim for claim in left if claim not in lost]
        return refused

    def _commit(self, offsets: Mapping[Claim, Offset]) -> list[Claim]:
        """:returns: those whose claims are gone; then nothing was recorded of any."""
        step: TransactionRequest = self._client.transaction()
        for claim, offset in offsets.items():
            step.check(self._node("claims", claim.partition), claim.generation - 1)
            step.set_data(self._node("offsets", claim.partition), str(offset).encode())
        results = self._result(step.commit_async())
        if _went_well(results):
            return []
        lost = [
            claim
            for claim, result in zip(offsets, results[::2], strict=True)
            if isinstance(result, BadVersionError | NoNodeError)
        ]
        if not lost:
            raise CoordinatorUnavailable(f"ZooKeeper did not take the offsets: {results!r}")
        return lost

    def resets(self) -> int:
        path = f"{self._root}/resets"
        if self._watch(path):
            with self._asking():
                stat = self._result(self._client.exists_async(path, watch=self._fired))
            self._resets = 0 if stat is None else stat.version
        return self._resets

    def owners(self) -> Mapping[Partition, tuple[str, int]]:
        if self._is_missing():
            return {}
        with self._asking():
            parts = list(map(Partition.parse, self._children("owners")))
            claims = self._get([self._node("claims", part) for part in parts])
            return {
                part: (claim[0].decode(), claim[1].version + 1)
                for part, claim in zip(parts, claims, strict=True)
                if claim is not None and claim[0]
            }

    def offsets(self) -> Mapping[Partition, Offset]:
        if self._is_missing():
            return {}
        with self._asking():
            parts = list(map(Partition.parse, self._children("offsets")))
            found = zip(parts, map(_offset, self._get([self._node("offsets", part) for part in parts])), strict=True)
            return {part: offset for part, offset in found if offset is not None}

    def known(self) -> Collection[Partition]:
        if self._is_missing():
            return []
        with self._asking():
            return list(map(Partition.parse, self._children("claims")))

    def begin(self, offsets: Mapping[Partition, Offset]) -> Collection[Partition]:
        with self._asking():
            self._make_all()
            return [part for some in _in_parts(list(offsets), AT_ONCE) for part in self._begin(some, offsets)]

    def _begin(self, partitions: Sequence[Partition], offsets: Mapping[Partition, Offset]) -> list[Partition]:
        """Each by a transaction that fails if somebody was there in between."""
        claims, places, owners = (
            self._get([self._node(folder, part) for part in partitions]) for folder in ("claims", "offsets", "owners")
        )
        steps = []
        for part, claim, place, owner in zip(partitions, claims, places, owners, strict=True):
            if owner is not None or (place is not None and place[0]):
                continue
            step: TransactionRequest = self._client.transaction()
            if claim is None or place is None:
                step.create(self._node("claims", part))
                step.create(self._node("offsets", part), str(offsets[part]).encode())
            else:
                step.check(self._node("claims", part), claim[1].version)
                step.set_data(self._node("offsets", part), str(offsets[part]).encode(), version=place[1].version)
            steps.append((part, step.commit_async()))
        return [part for part, step in steps if _went_well(self._result(step))]

    def reset(self, offsets: Mapping[Partition, Offset | None]) -> None:
        with self._asking():
            self._make_all()
            for some in _in_parts(list(offsets), IN_ONE_COMMIT):
                for _ in range(_RESETS):
                    if self._reset({part: offsets[part] for part in some}):
                        break
                else:
                    raise CoordinatorUnavailable("the claims of these partitions change just now: try again")

    def _reset(self, offsets: Mapping[Partition, Offset | None]) -> bool:
        """:returns: False if claims have changed since they were looked at; then nothing was set."""
        known = self._get([self._node("claims", part) for part in offsets])
        step: TransactionRequest = self._client.transaction()
        for (part, offset), found in zip(offsets.items(), known, strict=True):
            value = b"" if offset is None else str(offset).encode()
            if found is None:
                step.create(self._node("claims", part))
                step.create(self._node("offsets", part), value)
            else:
                step.set_data(self._node("claims", part), b"", version=found[1].version)
                step.set_data(self._node("offsets", part), value)
        step.set_data(f"{self._root}/resets", b"")
        return _went_well(self._result(step.commit_async()))

    def close(self) -> None:
        self.leave()
        self._over.set()
        thread, self._thread = self._thread, None
        if thread is not None and thread is not threading.current_thread():
            thread.join()
        self._client.stop()
        self._client.close()

    # How

    def _node(self, folder: str, part: Partition) -> str:
        return f"{self._root}/{folder}/{part}"

    def _is_missing(self) -> bool:
        """Whether the group has never had a member or an offset; asked until it has."""
        if not self._is_there:
            with self._asking():
                self._look()
        return not self._is_there

    def _watch(self, path: str) -> bool:
        """Note that a node is about to be watched.

        :returns: False if it is already, so that there is nothing to ask.
        """
        if path in self._watched:
            return False
        self._watched.add(path)
        return True

    def _fired(self, event: Any) -> None:
        if event.path:
            self._watched.discard(event.path)
        else:
            self._watched.clear()
        self.changed()

    def _must_live(self) -> str:
        name = self._name
        if name is None or self._session_now() != self._session:
            self._name = None
            raise SessionLost("ZooKeeper holds this member for dead")
        return name

    @contextmanager
    def _asking(self) -> Iterator[None]:
        try:
            yield
        except (KazooException, KazooTimeoutError) as error:
            self._watched.clear()
            raise CoordinatorUnavailable(f"ZooKeeper did not answer: {type(error).__name__} {error}") from error

    def _children(self, folder: str) -> list[str]:
        found: list[str] = self._result(self._client.get_children_async(f"{self._root}/{folder}"))
        return found

    def _result(self, asked: IAsyncResult) -> Any:
        """The answer, or an error in time: kazoo itself would wait for as long as there is no ZooKeeper."""
        return asked.get(timeout=self._timeout())

    def _wait(self, asked: Iterable[IAsyncResult]) -> list[Any]:
        """The answers in order; None where there is no such node."""
        answers = []
        for one in asked:
            try:
                answers.append(self._result(one))
            except NoNodeError:
                answers.append(None)
        return answers

    def _get(self, paths: Iterable[str]) -> list[Any]:
        """Data and state of each node, None for one that is not there."""
        return [
            answer
            for some in _in_parts(list(paths), AT_ONCE)
            for answer in self._wait([self._client.get_async(path) for path in some])
        ]


def security(
    auth: str | None = None, ca: str | None = None, cert: str | None = None, key: str | None = None
) -> dict[str, Any]:
    """Arguments of :class:`ZooKeeperCoordinator` that keep others out.

    :param auth: ``USER:PASSWORD``: nodes that are made can be read and changed by this user alone.
    :param ca: file of the authority that ZooKeeper's certificate comes from; speaks TLS. The certificate has to name the host as it is
        spelled here: any other one of the authority's would do for somebody in between.
    :param cert: file of a certificate to show to ZooKeeper, with its ``key``.
    :raises ConfigurationError: one of them cannot be used.
    """
    found: dict[str, Any] = {}
    if auth is not None:
        user, colon, password = auth.partition(":")
        if not (user and colon and password):
            raise ConfigurationError("the authentication for ZooKeeper is not USER:PASSWORD")
        found |= {"auth_data": [("digest", auth)], "default_acl": [make_digest_acl(user, password, all=True)]}
    for what, file in (("ca", ca), ("cert", cert), ("key", key)):
        if file is not None and not Path(file).is_file():
            raise ConfigurationError(f"the {what} for ZooKeeper, {file}, is no file")
    if (cert is None) != (key is None):
        raise ConfigurationError("a certificate for ZooKeeper needs its key, and a key its certificate")
    if ca is not None:
        found |= {
            "use_ssl": True,
            "verify_certs": True,
            "check_hostname": True,
            "ca": ca,
            "certfile": cert,
            "keyfile": key,
        }
    elif cert is not None:
        raise ConfigurationError("a certificate is shown by TLS alone: name the ca of ZooKeeper as well")
    return found


def _context(ca: str, cert: str | None, key: str | None) -> ssl.SSLContext:
    """Trusts this authority, and none of the system's."""
    context = ssl.create_default_context(cafile=ca)
    if cert:
        context.load_cert_chain(cert, key)
    return context


class _Trusting(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """Connects by a context of ours: kazoo's own trusts the system's authorities beside the one it is given."""

    def __init__(self, context: ssl.SSLContext) -> None:
        super().__init__()
        self._context = context

    def create_connection(self, address: tuple[str, int], hostname: str, timeout: float, **_: Any) -> ssl.SSLSocket:
        """A socket to one of ZooKeeper's servers, after the handshake."""
        plain = socket.create_connection(address, timeout)
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return self._context.wrap_socket(plain, server_hostname=hostname)
        except OSError:
            plain.close()
            raise


def _tls_trouble(client: KazooClient, *, listens: bool = False) -> str | None:
    """Why TLS fails at the first server that can be reached; kazoo tries again and again, and does not say.

    :param listens: after the handshake, until something is said: only then does a server tell that it does not take the client's certificate.
    :returns: None if it does not fail, or if no server can be reached.
    """
    context = _context(client.ca, client.certfile, client.keyfile)
    for host, port in client.hosts:
        try:
            with (
                socket.create_connection((host, port), TLS_SECONDS) as plain,
                context.wrap_socket(plain, server_hostname=host) as connection,
            ):
                if listens:
                    connection.recv(1)
                return None
        except TimeoutError:
            return None
        except ssl.SSLError as error:
            return str(error)
        except OSError:
            continue
    return None


def _in_parts(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


def _went_well(results: Sequence[Any]) -> bool:
    return not any(isinstance(result, Exception) for result in results)


def _offset(found: Any) -> Offset | None:
    return Offset.parse(found[0].decode()) if found is not None and found[0] else None
