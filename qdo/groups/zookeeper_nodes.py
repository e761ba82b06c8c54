"""The nodes of a group in ZooKeeper that hold claims, owners and offsets.

::

    <chroot>/<application>/<group>/
      members/<name>-<sequence>   ephemeral; what the member says of itself
      plan                        its version is the plan's generation
      claims/<queue>:<number>     persistent; its version + 1 is the generation of the latest claim
      resets                      its version counts offsets that were set by hand
      owners/<queue>:<number>     ephemeral; there while the owner's session lives
      offsets/<queue>:<number>    persistent

A claim is one transaction: raise the version of ``claims``, make the node in ``owners``. The second half fails while
another session has it. The first half fences whoever owned the partition before. A commit is one transaction, too:
check the version in ``claims``, set the offset. The path of an ephemeral node alone never guards anything, for a node
that is made anew has version 0 again (G14).
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from kazoo.client import TransactionRequest
from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError
from kazoo.interfaces import IAsyncResult

from qdo.groups.assign import Partition
from qdo.groups.coordination import Claim, CommittedOffset
from qdo.groups.zookeeper_session import AT_ONCE, ZooKeeperSession, in_parts, went_well
from queuey.errors import CoordinatorUnavailable

__all__ = ["GroupNodes"]

IN_ONE_COMMIT = 200
"""Offsets in one transaction. ZooKeeper takes a megabyte."""
_RESETS = 10
"""Attempts to set offsets by hand, while claims change."""
_FOLDERS = ("members", "claims", "owners", "offsets")


class GroupNodes:
    """The nodes of one group."""

    def __init__(self, session: ZooKeeperSession, root: str) -> None:
        """:param root: the path of the group."""
        self._session = session
        self.root = root
        self._exists = False
        """The nodes are there. The first member makes them; whoever only looks makes none."""

    def node(self, folder: str, part: Partition) -> str:
        return f"{self.root}/{folder}/{part}"

    # Whether they exist

    def look(self) -> None:
        """See whether the group exists.

        ``plan`` is made last: where it is, everything is.
        """
        try:
            self._session.result(self._session.client.get_async(f"{self.root}/plan"))  # this needs the right to read
        except NoNodeError:
            self._exists = False
        else:
            self._exists = True

    def is_missing(self) -> bool:
        """Whether the group has never had a member or an offset. It asks until it has."""
        if not self._exists:
            with self._session.asking():
                self.look()
        return not self._exists

    def make(self) -> None:
        """Make what is missing. May be repeated."""
        if self._exists:
            return
        client = self._session.client
        for name in (*_FOLDERS, "resets"):
            self._session.result(client.ensure_path_async(f"{self.root}/{name}"))
        with suppress(NodeExistsError):  # another member was faster
            self._session.result(client.create_async(f"{self.root}/plan", zlib.compress(b"{}")))
        self._exists = True

    # Claims

    def claim(self, name: str, session: int, partitions: Sequence[Partition]) -> list[Claim]:
        """Claim those that nobody owns, for the member ``name`` of this session."""
        return [claim for some in in_parts(sorted(partitions), AT_ONCE) for claim in self._claim(name, session, some)]

    def _claim(self, name: str, session: int, partitions: Sequence[Partition]) -> list[Claim]:
        unsure = [part for part in partitions if not self._session.is_watched(self.node("owners", part))]
        held = self._session.states([self.node("owners", part) for part in unsure])
        known = list(zip(unsure, held, strict=True))
        free = [(part, stat) for part, stat in known if stat is None or stat.ephemeralOwner == session]
        self._watch_owners([part for part, stat in known if stat is not None and stat.ephemeralOwner != session])
        before = self._session.get([self.node("claims", part) for part, _ in free])
        claims, steps = [], []
        for (part, stat), found in zip(free, before, strict=True):
            if stat is not None and found is not None and found[0] == name.encode():
                claims.append(Claim(part, found[1].version + 1))  # from a call whose answer was lost
            else:
                steps.append((part, found, self._claiming(name, part, found, has_owner=stat is not None)))
        for part, found, step in steps:
            if went_well(self._session.result(step)):
                claims.append(Claim(part, 1 if found is None else found[1].version + 2))
        return claims

    def _watch_owners(self, partitions: Sequence[Partition]) -> None:
        """Hear of it when the owners of these let go. Until then nobody asks again."""
        session = self._session
        paths = [path for part in partitions if session.watch(path := self.node("owners", part))]
        stats = session.results([session.client.exists_async(path, watch=session.fired) for path in paths])
        gone = [path for path, stat in zip(paths, stats, strict=True) if stat is None]
        if gone:
            session.forget_watches(*gone)
            session.changed()

    def _claiming(self, name: str, part: Partition, found: Any, *, has_owner: bool) -> IAsyncResult:
        step: TransactionRequest = self._session.transaction()
        if found is None:
            step.create(self.node("claims", part), name.encode())
            step.create(self.node("offsets", part))
        else:
            step.set_data(self.node("claims", part), name.encode(), version=found[1].version)
        if not has_owner:
            step.create(self.node("owners", part), name.encode(), ephemeral=True)
        return step.commit_async()

    def give_up(self, session: int, partitions: Sequence[Partition]) -> None:
        """Delete the owners' nodes of this session.

        Each is deleted only if nobody has claimed the partition since it was looked at, for the session may have ended
        meanwhile. A member whose offset was reset meanwhile still has its node, so it is looked at again: left there,
        it would keep all others away.
        """
        left = list(partitions)
        while left:
            left = [part for some in in_parts(left, AT_ONCE) for part in self._give_up(session, some)]

    def _give_up(self, session: int, partitions: Sequence[Partition]) -> list[Partition]:
        """:returns: those whose claims have changed since they were looked at."""
        versions = self._session.get([self.node("claims", part) for part in partitions])
        held = self._session.states([self.node("owners", part) for part in partitions])
        steps = []
        for part, found, stat in zip(partitions, versions, held, strict=True):
            if found is not None and stat is not None and stat.ephemeralOwner == session:
                step: TransactionRequest = self._session.transaction()
                step.check(self.node("claims", part), found[1].version)
                step.delete(self.node("owners", part))
                steps.append((part, step.commit_async()))
        return [
            part for part, step in steps if any(isinstance(one, BadVersionError) for one in self._session.result(step))
        ]

    def owners(self) -> Mapping[Partition, tuple[str, int]]:
        """Living owners and the generations of their claims."""
        parts = self.partitions("owners")
        claims = self._session.get([self.node("claims", part) for part in parts])
        return {
            part: (claim[0].decode(), claim[1].version + 1)
            for part, claim in zip(parts, claims, strict=True)
            if claim is not None and claim[0]
        }

    def partitions(self, folder: str) -> list[Partition]:
        """The partitions that have a node in a folder."""
        return list(map(Partition.parse, self._session.children(f"{self.root}/{folder}")))

    # Offsets

    def offsets(self, partitions: Sequence[Partition]) -> list[CommittedOffset | None]:
        return list(map(_offset, self._session.get([self.node("offsets", part) for part in partitions])))

    def commit(self, offsets: Mapping[Claim, CommittedOffset]) -> list[Claim]:
        """:returns: claims that are gone; nothing of them was recorded."""
        refused: list[Claim] = []
        for some in in_parts(list(offsets), IN_ONE_COMMIT):
            left = list(some)
            while left and (lost := self._commit({claim: offsets[claim] for claim in left})):
                refused += lost
                left = [claim for claim in left if claim not in lost]
        return refused

    def _commit(self, offsets: Mapping[Claim, CommittedOffset]) -> list[Claim]:
        """:returns: those whose claims are gone; then nothing was recorded of any."""
        step: TransactionRequest = self._session.transaction()
        for claim, offset in offsets.items():
            step.check(self.node("claims", claim.partition), claim.generation - 1)
            step.set_data(self.node("offsets", claim.partition), str(offset).encode())
        results = self._session.result(step.commit_async())
        if went_well(results):
            return []
        lost = [
            claim
            for claim, result in zip(offsets, results[::2], strict=True)
            if isinstance(result, BadVersionError | NoNodeError)
        ]
        if not lost:
            raise CoordinatorUnavailable(f"ZooKeeper did not take the offsets: {results!r}")
        return lost

    def begin(self, offsets: Mapping[Partition, CommittedOffset]) -> list[Partition]:
        """Give partitions their first offset.

        See :meth:`qdo.groups.coordination.Coordinator.begin`.
        """
        return [part for some in in_parts(list(offsets), AT_ONCE) for part in self._begin(some, offsets)]

    def _begin(self, partitions: Sequence[Partition], offsets: Mapping[Partition, CommittedOffset]) -> list[Partition]:
        """Each by a transaction that fails if somebody was there in between."""
        claims, places, owners = (
            self._session.get([self.node(folder, part) for part in partitions])
            for folder in ("claims", "offsets", "owners")
        )
        steps = []
        for part, claim, place, owner in zip(partitions, claims, places, owners, strict=True):
            if owner is not None or (place is not None and place[0]):
                continue
            step: TransactionRequest = self._session.transaction()
            if claim is None or place is None:
                step.create(self.node("claims", part))
                step.create(self.node("offsets", part), str(offsets[part]).encode())
            else:
                step.check(self.node("claims", part), claim[1].version)
                step.set_data(self.node("offsets", part), str(offsets[part]).encode(), version=place[1].version)
            steps.append((part, step.commit_async()))
        return [part for part, step in steps if went_well(self._session.result(step))]

    def reset(self, offsets: Mapping[Partition, CommittedOffset | None]) -> None:
        """Set offsets by hand; see :meth:`qdo.groups.coordination.Coordinator.reset`."""
        for some in in_parts(list(offsets), IN_ONE_COMMIT):
            for _ in range(_RESETS):
                if self._reset({part: offsets[part] for part in some}):
                    break
            else:
                raise CoordinatorUnavailable("the claims of these partitions change just now: try again")

    def _reset(self, offsets: Mapping[Partition, CommittedOffset | None]) -> bool:
        """:returns: False if claims have changed since they were looked at; then nothing was set."""
        known = self._session.get([self.node("claims", part) for part in offsets])
        step: TransactionRequest = self._session.transaction()
        for (part, offset), found in zip(offsets.items(), known, strict=True):
            value = b"" if offset is None else str(offset).encode()
            if found is None:
                step.create(self.node("claims", part))
                step.create(self.node("offsets", part), value)
            else:
                step.set_data(self.node("claims", part), b"", version=found[1].version)
                step.set_data(self.node("offsets", part), value)
        step.set_data(f"{self.root}/resets", b"")
        return went_well(self._session.result(step.commit_async()))


def _offset(found: Any) -> CommittedOffset | None:
    return CommittedOffset.parse(found[0].decode()) if found is not None and found[0] else None
